"""Three ways to merge: naive, with counts kept up to date, and many at a time, on the same counted words.

The first two are the test suite's oracles, in plain Python. All give the same merges, which is checked.
Counting is not measured.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.inputs import SEPARATOR, InputError
from benchmarks.timing import measure_seconds
from tests.oracles.incremental_bpe import train_incrementally
from tests.oracles.naive_bpe import train_naively
from tokjax.trainer import PretokenCounts, count_pretokens, train_bpe

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

    Merges = list[tuple[bytes, bytes]]
    Way = Callable[[PretokenCounts, int], Merges]

PACKAGES = ["tokjax", "numpy"]
CORPUS_SIZES = ((0.065, 1000), (22, 1000), (22, 32_000))
"""Megabytes of text, and ids of the vocabulary."""
QUICK_CORPUS_SIZES = ((0.02, 400), (0.1, 500))
SLOW_SECONDS = 60.0
NAIVE_SECONDS = 900.0
"""A naive run that would take longer, by its first ten merges, is left out."""
TOO_LONG = "too long to wait for"


def train_naive(counts: PretokenCounts, merges: int) -> Merges:
    return train_naively(dict(counts.items()), merges)


def train_incremental(counts: PretokenCounts, merges: int) -> Merges:
    return train_incrementally(dict(counts.items()), merges)


def train_batched(counts: PretokenCounts, merges: int) -> Merges:
    vocab_size = 256 + len(counts.special_tokens) + merges
    return list(train_bpe(counts, vocab_size=vocab_size, progress=False).merges)


ALGORITHMS: dict[str, Way] = {
    "naive": train_naive,
    "counts kept up to date": train_incremental,
    "many at a time": train_batched,
}


def select_algorithms(counts: PretokenCounts, merges: int) -> dict[str, Way]:
    """All ways that end in time."""
    of_ten = measure_seconds(lambda: train_naive(counts, 10))
    slow = of_ten / 10 * merges > NAIVE_SECONDS
    return {name: way for name, way in ALGORITHMS.items() if not (slow and way is train_naive)}


def measure_algorithms(
    ways: dict[str, Way], counts: PretokenCounts, merges: int, rounds: int
) -> dict[str, list[float]]:
    """Seconds of each way in each round."""
    seconds: dict[str, list[float]] = defaultdict(list)
    made: dict[str, Merges] = {}

    def make(name: str) -> None:
        made[name] = ways[name](counts, merges)

    for _ in range(rounds):
        for name in (name for name in ways if max(seconds[name], default=0) < SLOW_SECONDS):
            seconds[name].append(measure_seconds(lambda name=name: make(name)))
    if any(merged != made["many at a time"] for merged in made.values()):
        raise InputError("the ways to merge give different merges")
    return seconds


def measure(bench: Bench) -> None:
    """Each rung, from few words and merges to many."""
    for megabytes, vocab_size in bench.choose(CORPUS_SIZES, QUICK_CORPUS_SIZES):
        text = bench.text(megabytes, record_name=f"{megabytes:g} MB")
        counts = count_pretokens(text.path, special_tokens=[SEPARATOR], progress=False)
        about = {"bytes": bench.inputs[text.name].bytes, "words": len(counts)}
        ways = select_algorithms(counts, vocab_size - 256)
        bench.say(f"{text.name}, {vocab_size:,} ids")
        seconds = measure_algorithms(ways, counts, vocab_size - 256, bench.rounds(3))
        for name in ALGORITHMS:
            if name not in ways:
                bench.record_skip(text.name, name, TOO_LONG, at=vocab_size, extra=about)
                continue
            bench.add(text.name, name, seconds[name], at=vocab_size, reference="many at a time", extra=about)
