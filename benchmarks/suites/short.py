"""Latency of encoding one text, from one byte to a megabyte, with warm caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.contenders import CONTENDERS
from benchmarks.timing import time_interleaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

PACKAGES = ["tokjax", "numpy", "tiktoken", "tokenizers"]
LENGTHS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000, 1_000_000)
CHARACTERS_PER_ROUND = 300_000
REFERENCE = "tiktoken"
NAMES = ("tokjax", REFERENCE, "tokenizers")


def make_repeated(call: Callable[[str], Any], text: str, times: int) -> Callable[[], None]:
    """Returns a function that makes the call `times` times."""

    def run() -> None:
        for _ in range(times):
            call(text)

    return run


def measure(bench: Bench) -> None:
    """Measures seconds per call, for each library and length."""
    book = "\n".join(bench.text(2 * LENGTHS[-1] / 1e6).documents)
    texts = {"hello world": "hello world"}
    texts |= {f"{length} characters": book[:length] for length in LENGTHS if length <= len(book)}
    names = [name for name in NAMES if CONTENDERS[name].installed or name == REFERENCE]
    by_library = {name: CONTENDERS[name].make(bench.ranks, 1).encode_text for name in names}
    for task, text in texts.items():
        bench.say(task)
        times = max(1, bench.choose(CHARACTERS_PER_ROUND, CHARACTERS_PER_ROUND // 100) // (len(text) + 50))
        runs = {library: make_repeated(call, text, times) for library, call in by_library.items()}
        for library, seconds in time_interleaved(runs, bench.rounds(9)).items():
            bench.add(task, library, [value / times for value in seconds], reference=REFERENCE)
