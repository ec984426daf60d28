"""Text to ids, and to ids with offsets: tokjax and its peers on the same documents.

    python -m benchmarks.encode RANKS TEXT [TEXT ...]

RANKS is a file in tiktoken's format, TEXT files have documents joined by `<|endoftext|>`. All contenders use
the vocabulary RANKS with the GPT-2 pattern. Each measurement is a process of its own: first pass (cold), then
the same documents once more (warm). Rounds go through all contenders in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS, read_documents
from benchmarks.record import described_input, write_record

PACKAGES = ["tokjax", "numpy", "tiktoken", "tokenizers", "gigatoken", "tokie"]
TWO_THREADS = [name for name in CONTENDERS if name.startswith(("tokjax", "tiktoken", "gigatoken"))]
MEASURES = ("cold_seconds", "warm_seconds", "build_seconds", "megabytes_over_documents")


def measured_apart(name: str, ranks: Path, text: Path, megabytes: float, threads: int) -> dict[str, float]:
    """What `contenders.measured` sees in a fresh process."""
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads)}
    arguments = [name, str(ranks), str(text), str(megabytes), str(threads)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.contenders", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise SystemExit(f"{name} on {text} failed:\n{done.stderr}")
    seen: dict[str, float] = json.loads(done.stdout)
    return seen


def check_ids(ranks: Path, text: Path, megabytes: float) -> None:
    """Stop if tokjax's ids are not tiktoken's."""
    documents = read_documents(text, megabytes)
    ours = CONTENDERS["tokjax, ids"](ranks, 1)(documents).ids
    theirs = CONTENDERS["tiktoken, ids"](ranks, 1)(documents)
    if ours.tolist() != [id_ for row in theirs for id_ in row]:
        raise SystemExit(f"{text}: the ids differ from tiktoken's")


def compared(ranks: Path, text: Path, megabytes: float, rounds: int) -> dict[str, Any]:
    """All contenders on one text."""
    check_ids(ranks, text, megabytes)
    runs = [(name, 1) for name in CONTENDERS] + [(name, 2) for name in TWO_THREADS]
    seen: dict[str, list[dict[str, float]]] = {f"{name}; {threads}": [] for name, threads in runs}
    for number in range(rounds):
        for name, threads in runs:
            seen[f"{name}; {threads}"].append(measured_apart(name, ranks, text, megabytes, threads))
            print(f"{text.stem}, round {number + 1}: {name}; {threads}: {seen[f'{name}; {threads}'][-1]}")
    size = sum(len(document.encode()) for document in read_documents(text, megabytes)) / 1e6
    return {
        "input": described_input(text.read_bytes()[: int(megabytes * 1e6)]),
        "rounds": seen,
        "medians": {
            run: {measure: statistics.median(r[measure] for r in rows) for measure in MEASURES}
            | {
                f"{pass_}_megabytes_per_second": size / statistics.median(r[f"{pass_}_seconds"] for r in rows)
                for pass_ in ("cold", "warm")
            }
            for run, rows in seen.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    results = {path.stem: compared(args.ranks, path, args.megabytes, args.rounds) for path in args.texts}
    print(write_record("encode", PACKAGES, {"results": results}))


if __name__ == "__main__":
    main()
