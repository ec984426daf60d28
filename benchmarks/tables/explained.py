"""The few numbers that the page on performance explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import IDS, run_name
from benchmarks.tables.batches import about_plans
from benchmarks.tables.common import count, markdown, megabytes_a_second, one_of, seconds_of

if TYPE_CHECKING:
    from benchmarks.record import Record

THREADS = (1, 2)
TOKENS = 32_000
RATES = ("MB/s at first sight", "MB/s with known words")


def rates_table(record: Record) -> str:
    """How many megabytes of English a second become ids, by threads."""
    rows = [[count(threads), *_rates(record, run_name(f"tokjax, {IDS}", threads))] for threads in THREADS]
    return markdown(["threads", *RATES], rows, _when(record))


def compared_table(record: Record) -> str:
    """The same on one thread, beside others that were given the same documents."""
    runs = [one.contender for one in record.of("warm", task="en")]
    ending = f", {run_name(IDS, 1)}"
    rows = [[run.removesuffix(ending), *_rates(record, run)] for run in runs if run.endswith(ending)]
    return markdown(["one thread", *RATES], rows, _when(record))


def _rates(record: Record, run: str) -> list[str]:
    found = [one_of(record, measure, task="en", contender=run) for measure in ("cold", "warm")]
    return ["" if one is None else f"{megabytes_a_second(one):.0f}" for one in found]


def counting_table(record: Record) -> str:
    """Seconds of the two phases, by the size of the text."""
    rows = []
    for one in record.of("counting", at=TOKENS):
        merging = seconds_of(record, "merging", task=one.task, at=TOKENS, contender=one.contender)
        rows.append([one.task, f"{one.median:.2f} s", f"{merging:.2f} s"])
    return markdown([f"{count(TOKENS)} tokens from", "counting", "merging"], rows, _when(record))


def plans_table(record: Record) -> str:
    """Seconds of a plan of a million documents, by strategy."""
    rows = [
        [one.contender, f"{one.median:.2f} s", f"{one.extra['fill']:.2%}"]
        for one in record.of(task="planning")
    ]
    return markdown(["strategy", "a million documents", "full"], rows, about_plans(record) + _when(record))


def _when(record: Record) -> str:
    return f"({record.machine['cores']} cores, {record.date}; [benchmarks](benchmarks.md) has the rest.)"
