"""The few numbers that the page on performance explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import IDS, format_run_name
from benchmarks.tables.batches import format_plans
from benchmarks.tables.common import (
    compute_megabytes_per_second,
    format_count,
    format_markdown_table,
    format_seconds,
    get_measurement,
)

if TYPE_CHECKING:
    from benchmarks.record import Record

THREADS = (1, 2)
TOKENS = 32_000
RATES = ("MB/s at first sight", "MB/s with known words")


def make_rates_table(record: Record) -> str:
    """How many megabytes of English a second become ids, by threads."""
    rows = [
        [format_count(threads), *_get_rates(record, format_run_name(f"tokjax, {IDS}", threads))]
        for threads in THREADS
    ]
    return format_markdown_table(["threads", *RATES], rows, _format_date(record))


def make_comparison_table(record: Record) -> str:
    """The same on one thread, beside others that were given the same documents."""
    runs = [one.contender for one in record.of("warm", task="en")]
    ending = f", {format_run_name(IDS, 1)}"
    rows = [[run.removesuffix(ending), *_get_rates(record, run)] for run in runs if run.endswith(ending)]
    return format_markdown_table(["one thread", *RATES], rows, _format_date(record))


def _get_rates(record: Record, run: str) -> list[str]:
    found = [get_measurement(record, measure, task="en", contender=run) for measure in ("cold", "warm")]
    return ["" if one is None else f"{compute_megabytes_per_second(one):.0f}" for one in found]


def make_counting_table(record: Record) -> str:
    """Seconds of the two phases, by the size of the text."""
    rows = []
    for one in record.of("counting", at=TOKENS):
        merging = format_seconds(record, "merging", task=one.task, at=TOKENS, contender=one.contender)
        rows.append([one.task, f"{one.median:.2f} s", f"{merging:.2f} s"])
    return format_markdown_table(
        [f"{format_count(TOKENS)} tokens from", "counting", "merging"], rows, _format_date(record)
    )


def make_plans_table(record: Record) -> str:
    """Seconds of a plan of a million documents, by strategy."""
    rows = [
        [one.contender, f"{one.median:.2f} s", f"{one.extra['fill']:.2%}"]
        for one in record.of(task="planning")
    ]
    return format_markdown_table(
        ["strategy", "a million documents", "full"], rows, format_plans(record) + _format_date(record)
    )


def _format_date(record: Record) -> str:
    return f"({record.machine['cores']} cores, {record.date}; [benchmarks](benchmarks.md) has the rest.)"
