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


def rates_table(record: Record) -> str:
    """How many megabytes of English a second become ids, at first sight and when words are known."""
    rows = []
    for threads in THREADS:
        run = run_name(f"tokjax, {IDS}", threads)
        found = [one_of(record, measure, task="en", contender=run) for measure in ("cold", "warm")]
        rows.append(
            [count(threads), *("" if one is None else f"{megabytes_a_second(one):.0f}" for one in found)]
        )
    return markdown(["threads", "MB/s at first sight", "MB/s with known words"], rows, _when(record))


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
