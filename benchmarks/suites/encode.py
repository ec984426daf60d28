"""Encoding to ids, and to ids with offsets and masks, by tokjax and other libraries on the same documents.

All contenders use the same ranks with the GPT-2 pattern. Each measurement is a fresh process, which encodes
the documents twice: first with a cold cache, then with a warm one. Rounds interleave the contenders.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from benchmarks.bench import format_not_installed
from benchmarks.contenders import CONTENDERS
from benchmarks.corpus import LARGE_SOURCES
from benchmarks.inputs import InputError, write_vocabulary_file
from benchmarks.names import IDS, OFFSETS, OTHER_IDS, OURS, THEIRS, UNREAD, format_run_name
from benchmarks.sources import LARGE_TEXT
from benchmarks.timing import run_in_process

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.inputs import Text

    Run = tuple[str, int]

PACKAGES = ["tokjax", "numpy", "tiktoken", "tokenizers", "gigatoken", "tokie"]
MEGABYTES = 50
NAMES = [name for name in CONTENDERS if name.endswith((IDS, OFFSETS, UNREAD))]
SINGLE_THREADED = [f"tokie, {OFFSETS}"]
"""Contenders without multi-threaded encoding: tokie returns offsets for one document per call."""
UNITS = {"cold": "s", "warm": "s", "build": "s", "memory": "MB"}


def record_other_ids(bench: Bench, text: str, ids: dict[Run, str]) -> None:
    """Records the contenders whose ids differ from those of tokjax, although the ranks are the same.

    Args:
        bench: the running suite.
        text: name of the text.
        ids: checksums of the ids, by contender and threads.

    Raises:
        InputError: the ids of tiktoken differ.
    """
    others = sorted({name for (name, _), checksum in ids.items() if checksum != ids[OURS, 1]})
    if THEIRS in others:
        raise InputError(f"{text}: the ids of tokjax differ from tiktoken's")
    if others:
        bench.settings.setdefault(OTHER_IDS, {})[text] = others


def measure_text(bench: Bench, text: Text, runs: list[Run]) -> None:
    """Measures all contenders on one text."""
    results: dict[Run, list[dict[str, Any]]] = defaultdict(list)
    rounds = bench.rounds(3)
    for number in range(rounds):
        for name, threads in runs:
            bench.say(f"{text.name}, round {number + 1} of {rounds}: {name}, threads: {threads}")
            arguments = {"name": name, "source": str(bench.ranks), "text": str(text.path), "threads": threads}
            row = run_in_process("benchmarks.contenders:measure_passes", arguments, threads=threads)
            results[name, threads].append(row)
        record_other_ids(bench, text.name, {run: rows[-1]["ids"] for run, rows in results.items()})
    size = {"bytes": sum(len(document.encode()) for document in text.documents)}
    for (name, threads), rows in results.items():
        for measure, unit in UNITS.items():
            bench.add(
                text.name,
                format_run_name(name, threads),
                [row[measure] for row in rows],
                measure=measure,
                unit=unit,
                reference=format_run_name(THEIRS, 1) if unit == "s" else None,
                extra=size,
            )


def measure(bench: Bench) -> None:
    """Measures all contenders on English, code and several languages, or else on all texts."""
    write_vocabulary_file(bench.ranks, "huggingface")
    names = [name for name in NAMES if CONTENDERS[name].installed]
    runs = [(name, 1) for name in names]
    if bench.threads > 1:
        runs += [(name, bench.threads) for name in names if name not in SINGLE_THREADED]
    bench.settings["threads"] = sorted({threads for _, threads in runs})
    texts = [name for name in bench.sources.texts if name != LARGE_TEXT]
    texts = [name for name in texts if name in LARGE_SOURCES] or texts
    for text in [bench.text(MEGABYTES, name) for name in bench.choose(texts, [bench.sources.main])]:
        measure_text(bench, text, runs)
        for name in (name for name in NAMES if name not in names):
            bench.record_skip(
                text.name, format_run_name(name, 1), format_not_installed(CONTENDERS[name].package)
            )
