"""Text to ids, and to ids with offsets: tokjax and its peers on the same documents.

All contenders use the same ranks with the GPT-2 pattern. Each measurement is a process of its own: the first
pass (cold), then the same documents once more (warm). Rounds go through all contenders in turn.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from benchmarks.bench import not_installed
from benchmarks.contenders import CONTENDERS
from benchmarks.inputs import InputError, vocabulary_file
from benchmarks.measuring import apart
from benchmarks.names import IDS, OFFSETS, OURS, THEIRS, run_name
from benchmarks.sources import LARGE_TEXT

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.inputs import Text

PACKAGES = ["tokjax", "numpy", "tiktoken", "tokenizers", "gigatoken", "tokie"]
MEGABYTES = 50
ONE_THREAD = [name for name in CONTENDERS if name.endswith((IDS, OFFSETS))]
ONE_THREAD_ALONE = [f"tokie, {OFFSETS}"]
"""Which takes one document a call."""
UNITS = {"cold": "s", "warm": "s", "build": "s", "memory": "MB"}


def check_ids(text: str, checksums: dict[str, set[str]]) -> None:
    """Refuse to go on if contenders, all of the same ranks, give different ids."""
    if differ := [name for name, seen in checksums.items() if seen != checksums[run_name(OURS, 1)]]:
        raise InputError(f"{text}: other ids than those of tokjax: {', '.join(differ)}")


def measure_text(bench: Bench, text: Text, runs: list[tuple[str, int]]) -> None:
    """All contenders on one text."""
    seen: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    rounds = bench.rounds(3)
    for number in range(rounds):
        for name, threads in runs:
            bench.say(f"{text.name}, round {number + 1} of {rounds}: {name}, threads: {threads}")
            told = {"name": name, "source": str(bench.ranks), "text": str(text.path), "threads": threads}
            row = apart("benchmarks.contenders:measure_passes", told, threads=threads)
            seen[name, threads].append(row)
    check_ids(text.name, {run_name(*run): {row["ids"] for row in rows} for run, rows in seen.items()})
    size = {"bytes": sum(len(document.encode()) for document in text.documents)}
    for (name, threads), rows in seen.items():
        for measure, unit in UNITS.items():
            bench.add(
                text.name,
                run_name(name, threads),
                [row[measure] for row in rows],
                measure=measure,
                unit=unit,
                reference=run_name(THEIRS, 1) if unit == "s" else None,
                extra=size,
            )


def measure(bench: Bench) -> None:
    """All contenders on all texts."""
    vocabulary_file(bench.ranks, "huggingface")
    names = [name for name in ONE_THREAD if CONTENDERS[name].installed]
    runs = [(name, 1) for name in names]
    if bench.threads > 1:
        runs += [(name, bench.threads) for name in names if name not in ONE_THREAD_ALONE]
    bench.settings["threads"] = sorted({threads for _, threads in runs})
    texts = [name for name in bench.sources.texts if name != LARGE_TEXT]
    for text in [bench.text(MEGABYTES, name) for name in bench.pick(texts, [bench.sources.main])]:
        measure_text(bench, text, runs)
        for name in (name for name in ONE_THREAD if name not in names):
            bench.leave_out(text.name, run_name(name, 1), not_installed(CONTENDERS[name].package))
