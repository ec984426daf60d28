"""Three ways to merge: naive, with counts kept up to date, and many at a time, on the same counted words.

The first two are the test suite's oracles, in plain Python. All give the same merges, which is checked.
Counting is not measured.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.inputs import SEPARATOR, InputError
from benchmarks.measuring import seconds_of
from tests.oracles.incremental import train_incrementally
from tests.oracles.training import train_naively
from tokjax.trainer import PretokenCounts, count_pretokens, train_bpe

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

    Merges = list[tuple[bytes, bytes]]
    Way = Callable[[PretokenCounts, int], Merges]

PACKAGES = ["tokjax", "numpy"]
RUNGS = ((0.065, 1000), (22, 1000), (22, 32_000))
"""Megabytes of text, and ids of the vocabulary."""
QUICK_RUNGS = ((0.02, 400), (0.1, 500))
SLOW_SECONDS = 60.0
SECONDS_OF_NAIVE = 900.0
"""A naive run that would take longer, by its first ten merges, is left out."""
TOO_LONG = "too long to wait for"


def naive(counts: PretokenCounts, merges: int) -> Merges:
    return train_naively(dict(counts.items()), merges)


def incremental(counts: PretokenCounts, merges: int) -> Merges:
    return train_incrementally(dict(counts.items()), merges)


def batched(counts: PretokenCounts, merges: int) -> Merges:
    vocab_size = 256 + len(counts.special_tokens) + merges
    return list(train_bpe(counts, vocab_size=vocab_size, progress=False).merges)


WAYS: dict[str, Way] = {"naive": naive, "counts kept up to date": incremental, "many at a time": batched}


def ways_for(counts: PretokenCounts, merges: int) -> dict[str, Way]:
    """All ways that end in time."""
    of_ten = seconds_of(lambda: naive(counts, 10))
    slow = of_ten / 10 * merges > SECONDS_OF_NAIVE
    return {name: way for name, way in WAYS.items() if not (slow and way is naive)}


def climbed(ways: dict[str, Way], counts: PretokenCounts, merges: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round."""
    seconds: dict[str, list[float]] = defaultdict(list)
    made: dict[str, Merges] = {}

    def make(name: str) -> None:
        made[name] = ways[name](counts, merges)

    for _ in range(rounds):
        for name in (name for name in ways if max(seconds[name], default=0) < SLOW_SECONDS):
            seconds[name].append(seconds_of(lambda name=name: make(name)))
    if any(merged != made["many at a time"] for merged in made.values()):
        raise InputError("the ways to merge give different merges")
    return seconds


def measure(bench: Bench) -> None:
    """Each rung, from few words and merges to many."""
    for megabytes, vocab_size in bench.pick(RUNGS, QUICK_RUNGS):
        text = bench.text(megabytes, called=f"{megabytes:g} MB")
        counts = count_pretokens(text.path, special_tokens=[SEPARATOR], progress=False)
        about = {"bytes": bench.inputs[text.name].bytes, "words": len(counts)}
        ways = ways_for(counts, vocab_size - 256)
        bench.say(f"{text.name}, {vocab_size:,} ids")
        seconds = climbed(ways, counts, vocab_size - 256, bench.rounds(3))
        for name in WAYS:
            if name not in ways:
                bench.leave_out(text.name, name, TOO_LONG, at=vocab_size, extra=about)
                continue
            bench.add(text.name, name, seconds[name], at=vocab_size, reference="many at a time", extra=about)
