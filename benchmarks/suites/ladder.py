"""Three merge algorithms on the same pre-token counts: naive, incremental counts, and batched merges.

The first two are oracles of the test suite, in plain Python. The suite checks that all give the same merges.
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
    MergeFunction = Callable[[PretokenCounts, int], Merges]

PACKAGES = ["tokjax", "numpy"]
CORPUS_SIZES = ((0.065, 1000), (22, 1000), (22, 32_000))
"""Size of the text in MB, and size of the vocabulary."""
QUICK_CORPUS_SIZES = ((0.02, 400), (0.1, 500))
SLOW_SECONDS = 60.0
NAIVE_SECONDS = 900.0
"""Limit for a naive run, estimated from its first ten merges; longer ones are skipped."""
TOO_LONG = "too long to wait for"


def train_naive(counts: PretokenCounts, merges: int) -> Merges:
    return train_naively(dict(counts.items()), merges)


def train_incremental(counts: PretokenCounts, merges: int) -> Merges:
    return train_incrementally(dict(counts.items()), merges)


def train_batched(counts: PretokenCounts, merges: int) -> Merges:
    vocab_size = 256 + len(counts.special_tokens) + merges
    return list(train_bpe(counts, vocab_size=vocab_size, progress=False).merges)


ALGORITHMS: dict[str, MergeFunction] = {
    "naive": train_naive,
    "counts kept up to date": train_incremental,
    "many at a time": train_batched,
}


def select_algorithms(counts: PretokenCounts, merges: int) -> dict[str, MergeFunction]:
    """Returns the algorithms that finish in time."""
    seconds_of_ten = measure_seconds(lambda: train_naive(counts, 10))
    slow = seconds_of_ten / 10 * merges > NAIVE_SECONDS
    return {name: merge for name, merge in ALGORITHMS.items() if not (slow and merge is train_naive)}


def measure_algorithms(
    algorithms: dict[str, MergeFunction], counts: PretokenCounts, merges: int, rounds: int
) -> dict[str, list[float]]:
    """Returns the seconds of each round, by algorithm.

    Raises:
        InputError: the algorithms give different merges.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    results: dict[str, Merges] = {}

    def run(name: str) -> None:
        results[name] = algorithms[name](counts, merges)

    for _ in range(rounds):
        for name in (name for name in algorithms if max(seconds[name], default=0) < SLOW_SECONDS):
            seconds[name].append(measure_seconds(lambda name=name: run(name)))
    if any(result != results["many at a time"] for result in results.values()):
        raise InputError("the merge algorithms give different merges")
    return seconds


def measure(bench: Bench) -> None:
    """Measures each size, from few pre-tokens and merges to many."""
    for megabytes, vocab_size in bench.choose(CORPUS_SIZES, QUICK_CORPUS_SIZES):
        text = bench.text(megabytes, record_name=f"{megabytes:g} MB")
        counts = count_pretokens(text.path, special_tokens=[SEPARATOR], progress=False)
        extra = {"bytes": bench.inputs[text.name].bytes, "words": len(counts)}
        algorithms = select_algorithms(counts, vocab_size - 256)
        bench.say(f"{text.name}, {vocab_size:,} ids")
        seconds = measure_algorithms(algorithms, counts, vocab_size - 256, bench.rounds(3))
        for name in ALGORITHMS:
            if name not in algorithms:
                bench.record_skip(text.name, name, TOO_LONG, at=vocab_size, extra=extra)
                continue
            bench.add(text.name, name, seconds[name], at=vocab_size, reference="many at a time", extra=extra)
