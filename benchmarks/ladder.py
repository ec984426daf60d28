"""Three ways to merge: naive, with counts kept up to date, and many at a time, on the same counted words.

    python -m benchmarks.ladder TEXT

The first two are the test suite's oracles, in plain Python. All give the same merges, which is checked.
Counting is not measured.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import SEPARATOR
from benchmarks.record import described_input, write_record
from tests.oracles.incremental import train_incrementally
from tests.oracles.training import train_naively
from tokjax.trainer import PretokenCounts, count_pretokens, train_bpe

if TYPE_CHECKING:
    from collections.abc import Callable

    Merges = list[tuple[bytes, bytes]]

RUNGS = ((65e3, 1000), (22e6, 1000), (22e6, 32000))
"""Bytes of text, and ids of the vocabulary."""
SECONDS_OF_NAIVE = 900.0
"""A naive run that would take longer, by its first ten merges, is left out."""


def naive(counts: PretokenCounts, merges: int) -> Merges:
    return train_naively(dict(counts.items()), merges)


def incremental(counts: PretokenCounts, merges: int) -> Merges:
    return train_incrementally(dict(counts.items()), merges)


def batched(counts: PretokenCounts, merges: int) -> Merges:
    vocab_size = 256 + len(counts.special_tokens) + merges
    return list(train_bpe(counts, vocab_size=vocab_size, progress=False).merges)


WAYS: dict[str, Callable[[PretokenCounts, int], Merges]] = {
    "naive": naive,
    "counts kept up to date": incremental,
    "many at a time": batched,
}


def timed(way: Callable[[PretokenCounts, int], Merges], counts: PretokenCounts, merges: int) -> Any:
    begin = time.perf_counter()
    made = way(counts, merges)
    return time.perf_counter() - begin, made


def climbed(counts: PretokenCounts, merges: int, rounds: int) -> dict[str, list[float] | None]:
    """Seconds of each way in each round; `None` for one that would take too long."""
    taking_part = dict(WAYS)
    if timed(naive, counts, 10)[0] / 10 * merges > SECONDS_OF_NAIVE:
        del taking_part["naive"]
    seconds: dict[str, list[float] | None] = dict.fromkeys(WAYS)
    for number in range(rounds):
        results = {name: timed(way, counts, merges) for name, way in taking_part.items()}
        if any(made != results["many at a time"][1] for _, made in results.values()):
            raise SystemExit("the merges differ")
        for name, (taken, _) in results.items():
            seconds[name] = [*(seconds[name] or []), taken]
            print(
                f"{len(counts)} words, {merges} merges, round {number + 1}: {name}: {taken:.2f} s", flush=True
            )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    logging.getLogger("tokjax").setLevel(logging.ERROR)
    rungs = []
    for size, vocab_size in RUNGS:
        with args.text.open("rb") as file:
            data = file.read(int(size))
        with tempfile.TemporaryDirectory() as directory:
            part = Path(directory) / "part.txt"
            part.write_bytes(data)
            counts = count_pretokens(part, special_tokens=[SEPARATOR], progress=False)
        seconds = climbed(counts, vocab_size - 256, args.rounds)
        medians = {name: taken and statistics.median(taken) for name, taken in seconds.items()}
        described = described_input(data) | {"unique_words": len(counts), "vocab_size": vocab_size}
        rungs.append({"input": described, "rounds": seconds, "medians": medians})
    print(write_record("ladder", ["tokjax", "numpy"], {"rungs": rungs}))


if __name__ == "__main__":
    main()
