"""Inputs that are slow for careless tokenizers, at doubling sizes: is time linear, and memory bounded?

    python -m benchmarks.growth RANKS

RANKS is a file in tiktoken's format, used with the GPT-2 pattern. Each measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contenders import CONTENDERS, measured_on
from benchmarks.record import write_record

if TYPE_CHECKING:
    from collections.abc import Callable

RANDOM = random.Random(0)
INPUTS: dict[str, Callable[[int], str | bytes | list[str]]] = {
    "one letter": lambda size: "a" * size,
    "one rare letter": lambda size: "q" * size,
    "one word of random letters": lambda size: "".join(RANDOM.choices("etaoinshrdlu", k=size)),
    "spaces": lambda size: " " * size,
    "newlines": lambda size: "\n" * size,
    "contractions: 's's's": lambda size: "'s" * (size // 2),
    "digits": lambda size: "7" * size,
    "no space: one,two,one": lambda size: "one,two," * (size // 8),
    "random ideographs": lambda size: "".join(
        chr(RANDOM.randrange(0x4E00, 0x9FFF)) for _ in range(size // 3)
    ),
    "emoji": lambda size: "😀" * (size // 4),
    "letters with marks": lambda size: "e\u0301" * (size // 3),
    "zero bytes": lambda size: "\0" * size,
    "random bytes": RANDOM.randbytes,
    "empty strings": lambda size: [""] * size,
}
OURS, THEIRS = "tokjax, ids", "tiktoken, ids"
NOT_TEXT = {"random bytes"}


def measured_apart(library: str, ranks: Path, name: str, size: int) -> dict[str, float] | None:
    """Seconds and memory of encoding one input in a fresh process; `None` where a peer crashes."""
    arguments = [str(ranks), "--one", library, name, str(size)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode and library == OURS:
        raise SystemExit(f"{library} on {name} failed:\n{done.stderr}")
    if done.returncode:
        return None
    seen: dict[str, float] = json.loads(done.stdout)
    return seen


def measured(library: str, ranks: Path, name: str, size: int) -> dict[str, float]:
    """The same in this process. A first text of ordinary words makes what is only made once."""
    made = INPUTS[name](size)
    texts = made if isinstance(made, list) else [made]
    encode = CONTENDERS[library](ranks, 1)
    encode(["Some other words. " * 1000])
    return measured_on(encode, texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250_000, 500_000, 1_000_000, 2_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--one", nargs=3, metavar=("LIBRARY", "INPUT", "SIZE"), help="measure just this, here"
    )
    args = parser.parse_args()
    if args.one:
        library, name, size = args.one
        print(json.dumps(measured(library, args.ranks, name, int(size))))
        return
    seen: dict[str, dict[str, list[dict[str, float]]]] = {name: {} for name in INPUTS}
    for number in range(args.rounds):
        for name, size, library in (
            (name, size, library) for name in INPUTS for size in args.sizes for library in (OURS, THEIRS)
        ):
            if library == OURS or name not in NOT_TEXT:
                row = measured_apart(library, args.ranks, name, size)
                if row:
                    seen[name].setdefault(f"{library}; {size}", []).append(row)
                print(f"round {number + 1}: {name}, {size}, {library}: {row}")
    medians = {
        name: {
            run: {measure: statistics.median(row[measure] for row in rows) for measure in rows[0]}
            for run, rows in runs.items()
        }
        for name, runs in seen.items()
    }
    body = {"sizes": args.sizes, "rounds": seen, "medians": medians}
    print(write_record("growth", ["tokjax", "numpy", "tiktoken"], body))


if __name__ == "__main__":
    main()
