"""Text to ids, and to ids with offsets: tokjax and its peers on the same documents.

All contenders use the same ranks with the GPT-2 pattern. Each measurement is a process of its own: the first
pass (cold), then the same documents once more (warm). Rounds go through all contenders in turn.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.bench import not_installed
from benchmarks.contenders import CONTENDERS
from benchmarks.inputs import InputError, vocabulary_file
from benchmarks.measuring import apart
from benchmarks.names import IDS, OFFSETS, OURS, THEIRS, run_name
from benchmarks.sources import LARGE_TEXT

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench
    from benchmarks.inputs import Text

PACKAGES = ["tokjax", "numpy", "tiktoken", "tokenizers", "gigatoken", "tokie"]
MEGABYTES = 50
ONE_THREAD = [name for name in CONTENDERS if name.endswith((IDS, OFFSETS))]
SEVERAL_THREADS = [name for name in ONE_THREAD if name.startswith(("tokjax", "tiktoken", "gigatoken"))]
UNITS = {"cold": "s", "warm": "s", "build": "s", "memory": "MB"}


def check_ids(ranks: Path, text: Text) -> None:
    """Refuse to go on if tokjax's ids are not tiktoken's."""
    ours = CONTENDERS[OURS].make(ranks, 1).many(text.documents).ids
    theirs = CONTENDERS[THEIRS].make(ranks, 1).many(text.documents)
    if ours.tolist() != [id_ for row in theirs for id_ in row]:
        raise InputError(f"{text.name}: the ids of tokjax differ from tiktoken's")


def measure_text(bench: Bench, text: Text, runs: list[tuple[str, int]]) -> None:
    """All contenders on one text."""
    check_ids(bench.ranks, text)
    seen: dict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
    rounds = bench.rounds(5)
    for number in range(rounds):
        for name, threads in runs:
            bench.say(f"{text.name}, round {number + 1} of {rounds}: {name}, threads: {threads}")
            told = {"name": name, "source": str(bench.ranks), "text": str(text.path), "threads": threads}
            row = apart("benchmarks.contenders:measure_passes", told, threads=threads)
            seen[name, threads].append(row)
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
        runs += [(name, bench.threads) for name in names if name in SEVERAL_THREADS]
    bench.settings["threads"] = sorted({threads for _, threads in runs})
    texts = [name for name in bench.sources.texts if name != LARGE_TEXT]
    for text in [bench.text(MEGABYTES, name) for name in bench.pick(texts, [bench.sources.main])]:
        measure_text(bench, text, runs)
        for name in (name for name in ONE_THREAD if name not in names):
            bench.leave_out(text.name, run_name(name, 1), not_installed(CONTENDERS[name].package))
