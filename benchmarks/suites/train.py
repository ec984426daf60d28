"""Training of byte-level BPE vocabularies by tokjax and other trainers, on the same file.

Each measurement is a fresh process, from the file to the vocabulary. Rounds interleave the trainers. A
trainer that took more than a minute is not measured again for the same text and vocabulary.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from benchmarks.bench import format_not_installed
from benchmarks.timing import ProcessError, run_in_process
from benchmarks.trainers import TRAINERS

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.inputs import Text

MEGABYTES = (20, 120, 500)
VOCAB_SIZES = (8000, 32_000, 128_000)
SLOW_SECONDS = 60.0
MANY_MEGABYTES = 200
"""Size above which a text is measured in one round."""
UNITS = {"seconds": ("time", "s"), "memory": ("memory", "MB")}
PHASES = ("counting", "merging")
PACKAGES = ["tokjax", "numpy", "tokenizers", "gigatoken", "rustbpe", "bpeasy", "sentencepiece"]


def train_in_process(bench: Bench, name: str, text: Text, vocab_size: int) -> dict[str, float] | None:
    """Calls `trainers.measure` in a fresh process; returns `None` if another trainer than tokjax fails."""
    arguments = {"name": name, "text": str(text.path), "vocab_size": vocab_size, "workers": bench.threads}
    try:
        result: dict[str, float] = run_in_process(
            "benchmarks.trainers:measure", arguments, threads=bench.threads
        )
    except ProcessError:
        if name == "tokjax":
            raise
        return None
    return result


def measure_text(bench: Bench, text: Text, vocab_sizes: tuple[int, ...], rounds: int) -> None:
    """Measures all trainers on one text, for several sizes of vocabulary."""
    runs = [(size, name) for size in vocab_sizes for name, one in TRAINERS.items() if one.installed]
    results: dict[Any, list[dict[str, float]]] = defaultdict(list)
    failed = set()
    for number in range(rounds):
        for run in runs:
            if run in failed or any(row["seconds"] > SLOW_SECONDS for row in results[run]):
                continue
            bench.say(f"{text.name}, round {number + 1} of {rounds}, {run[0]:,} ids: {run[1]}")
            row = train_in_process(bench, run[1], text, run[0])
            failed |= {run} if row is None else set()
            results[run] += [row] if row else []
    for size, name in failed:
        bench.record_skip(text.name, name, "fails", at=size)
    for (size, name), rows in ((run, rows) for run, rows in results.items() if rows):
        record_results(bench, (text.name, name, size), rows)
    for name in (name for name, one in TRAINERS.items() if not one.installed):
        bench.record_skip(text.name, name, format_not_installed(TRAINERS[name].package))


def record_results(bench: Bench, run: tuple[str, str, int], rows: list[dict[str, float]]) -> None:
    """Records time and memory of one trainer, and the phases of the time for tokjax."""
    task, name, size = run
    extra = {"ids": num_ids} if (num_ids := rows[-1].get("ids")) else {}
    for key, (measure_name, unit) in UNITS.items():
        values = [row[key] for row in rows]
        reference = "tokjax" if unit == "s" else None
        bench.add(
            task, name, values, measure=measure_name, unit=unit, at=size, reference=reference, extra=extra
        )
    for phase in (phase for phase in PHASES if phase in rows[0]):
        bench.add(task, name, [row[phase] for row in rows], measure=phase, at=size)


def measure(bench: Bench) -> None:
    """Measures all trainers on texts of several sizes."""
    bench.settings["workers"] = bench.threads
    for megabytes in bench.sizes(MEGABYTES):
        text = bench.text(megabytes, bench.find_text(megabytes), record_name=f"{megabytes:g} MB")
        rounds = 1 if megabytes > MANY_MEGABYTES else 3
        measure_text(bench, text, bench.choose(VOCAB_SIZES, (1000, 2000)), bench.rounds(rounds))
