"""Worst-case inputs of doubling sizes: these show whether time is linear and memory bounded.

Each measurement is a fresh process, so that the cache holds nothing of the input.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import format_not_installed
from benchmarks.contenders import CONTENDERS, time_two_passes
from benchmarks.names import OURS, THEIRS
from benchmarks.timing import ProcessError, run_in_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

PACKAGES = ["tokjax", "numpy", "tiktoken"]
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
SIZES = (250_000, 500_000, 1_000_000, 2_000_000)
NOT_TEXT = {"random bytes"}
CRASHED = "crashes"
TAKES_NO_BYTES = "takes no bytes"
UNITS = {"cold": "s", "warm": "s", "memory": "MB"}


def measure_input(library: str, source: str, name: str, size: int) -> dict[str, float]:
    """Times two passes over one input, after a text of other words that triggers lazy initialization."""
    texts = INPUTS[name](size)
    calls = CONTENDERS[library].make(Path(source), 1)
    calls.encode_documents(["Some other words. " * 20_000])
    return time_two_passes(calls, texts if isinstance(texts, list) else [texts])[0]


def measure_in_process(bench: Bench, library: str, name: str, size: int) -> dict[str, float] | None:
    """Calls `measure_input` in a fresh process; returns `None` if another library than tokjax crashes."""
    arguments: dict[str, Any] = {"library": library, "source": str(bench.ranks), "name": name, "size": size}
    try:
        result: dict[str, float] = run_in_process("benchmarks.suites.growth:measure_input", arguments)
    except ProcessError:
        if library == OURS:
            raise
        return None
    return result


def get_skip_reason(library: str, name: str) -> str:
    """Returns the reason to skip a library; `""` if it is measured."""
    if not CONTENDERS[library].installed:
        return format_not_installed(CONTENDERS[library].package)
    return TAKES_NO_BYTES if library == THEIRS and name in NOT_TEXT else ""


def measure(bench: Bench) -> None:
    """Measures all inputs at all sizes."""
    sizes = bench.choose(SIZES, [size // 100 for size in SIZES[1:3]])
    names = bench.choose(list(INPUTS), list(INPUTS)[::4])
    results: dict[Any, list[dict[str, float]]] = defaultdict(list)
    crashed = set()
    rounds = bench.rounds(3)
    for number in range(rounds):
        for run in ((name, size, library) for name in names for size in sizes for library in (OURS, THEIRS)):
            name, size, library = run
            if get_skip_reason(library, name) or run in crashed:
                continue
            bench.say(f"round {number + 1} of {rounds}: {name}, {size:,} bytes, {library}")
            row = measure_in_process(bench, library, name, size)
            crashed |= {run} if row is None else set()
            results[run] += [row] if row else []
    for name in names:
        record_results(bench, name, sizes, results)


def record_results(
    bench: Bench, name: str, sizes: list[int], results: dict[Any, list[dict[str, float]]]
) -> None:
    """Records the results of one input."""
    for size in sizes:
        for library in (OURS, THEIRS):
            rows = results[name, size, library]
            if not rows:
                reason = get_skip_reason(library, name) or CRASHED
                bench.record_skip(name, library, reason, measure="cold", at=size)
                continue
            for measure_name, unit in UNITS.items():
                values = [row[measure_name] for row in rows]
                reference = None if unit == "MB" else THEIRS
                bench.add(
                    name, library, values, measure=measure_name, unit=unit, at=size, reference=reference
                )
