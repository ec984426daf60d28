"""Text to a byte-level BPE vocabulary: tokjax and its peers on the same file.

    python -m benchmarks.train 20=TEXT 120=TEXT 500=TEXT --rounds 3 3 1

Of each TEXT, whose documents are joined by `<|endoftext|>`, so many megabytes are taken. Each measurement is
a process of its own, from the file to the vocabulary; rounds go through all contenders in turn, but for one
that took more than a minute: it is not asked again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import described_input, write_record
from benchmarks.trainers import TRAINERS

PACKAGES = ["tokjax", "numpy", "tokenizers", "gigatoken", "rustbpe", "bpeasy", "sentencepiece"]
SLOW_SECONDS = 60.0


def measured_apart(name: str, path: Path, vocab_size: int, workers: int) -> dict[str, Any]:
    """What `trainers.measured` sees in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.trainers", name, str(path), str(vocab_size), str(workers)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"RAYON_NUM_THREADS": str(workers)},
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # (some print on the way)
    return seen


def compared(path: Path, megabytes: float, vocab_sizes: list[int], rounds: int, workers: int) -> Any:
    """All contenders on one text, for several sizes of vocabulary."""
    runs = [(size, name) for size in vocab_sizes for name in TRAINERS]
    seen: dict[str, list[dict[str, Any]]] = {f"{size}; {name}": [] for size, name in runs}
    for number in range(rounds):
        for size, name in runs:
            if any(row["seconds"] > SLOW_SECONDS for row in seen[f"{size}; {name}"]):
                continue
            row = measured_apart(name, path, size, workers)
            seen[f"{size}; {name}"].append(row)
            print(f"{megabytes} MB, round {number + 1}, {size}: {name}: {row}", flush=True)
    return {
        "input": described_input(path.read_bytes()),
        "rounds": seen,
        "medians": {
            run: {
                measure: statistics.median(row[measure] for row in rows)
                for measure in rows[0]
                if measure != "vocab_size"
            }
            for run, rows in seen.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", metavar="MEGABYTES=TEXT")
    parser.add_argument("--vocab-sizes", type=int, nargs="+", default=[8000, 32000, 128000])
    parser.add_argument("--rounds", type=int, nargs="+", default=[3], help="for each text, or for all")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    results = {}
    rounds = args.rounds * len(args.texts) if len(args.rounds) == 1 else args.rounds
    with tempfile.TemporaryDirectory() as directory:
        for given, times in zip(args.texts, rounds, strict=True):
            megabytes, path = given.split("=", 1)
            part = Path(directory) / "part.txt"
            with Path(path).open("rb") as file:
                part.write_text(file.read(int(float(megabytes) * 1e6)).decode("utf-8", "ignore"))
            results[megabytes] = compared(part, float(megabytes), args.vocab_sizes, times, args.workers)
    print(write_record("train", PACKAGES, {"workers": args.workers, "results": results}))


if __name__ == "__main__":
    main()
