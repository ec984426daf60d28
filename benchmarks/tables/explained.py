"""Tables of the page on performance, which explains a few of the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import IDS, format_run_name
from benchmarks.tables.batches import format_plans
from benchmarks.tables.common import (
    compute_megabytes_per_second,
    format_count,
    format_markdown_table,
    get_measurement,
    get_median,
)

if TYPE_CHECKING:
    from benchmarks.record import Record

THREADS = (1, 2)
TOKENS = 32_000
RATES = ("MB/s, cold cache", "MB/s, warm cache")


def make_rates_table(record: Record) -> str:
    """Renders MB/s of encoding English, by number of threads."""
    rows = [
        [format_count(threads), *_get_rates(record, format_run_name(f"tokjax, {IDS}", threads))]
        for threads in THREADS
    ]
    return format_markdown_table(["threads", *RATES], rows, _format_date(record))


def make_comparison_table(record: Record) -> str:
    """Renders MB/s of encoding English on one thread, for all contenders."""
    runs = [one.contender for one in record.select("warm", task="en")]
    ending = f", {format_run_name(IDS, 1)}"
    rows = [[run.removesuffix(ending), *_get_rates(record, run)] for run in runs if run.endswith(ending)]
    return format_markdown_table(["one thread", *RATES], rows, _format_date(record))


def _get_rates(record: Record, run: str) -> list[str]:
    passes = [get_measurement(record, measure, task="en", contender=run) for measure in ("cold", "warm")]
    return ["" if one is None else f"{compute_megabytes_per_second(one):.0f}" for one in passes]


def make_counting_table(record: Record) -> str:
    """Renders the seconds of counting and merging, by size of the text."""
    rows = []
    for one in record.select("counting", at=TOKENS):
        merging = get_median(record, "merging", task=one.task, at=TOKENS, contender=one.contender)
        rows.append([one.task, f"{one.median:.2f} s", f"{merging:.2f} s"])
    return format_markdown_table(
        [f"{format_count(TOKENS)} tokens from", "counting", "merging"], rows, _format_date(record)
    )


def make_plans_table(record: Record) -> str:
    """Renders the seconds and the fill rate of plans for a million documents, by strategy."""
    rows = [
        [one.contender, f"{one.median:.2f} s", f"{one.extra['fill']:.2%}"]
        for one in record.select(task="planning")
    ]
    return format_markdown_table(
        ["strategy", "a million documents", "fill rate"], rows, format_plans(record) + _format_date(record)
    )


def _format_date(record: Record) -> str:
    return f"({record.machine['cores']} cores, {record.date}; see [benchmarks](benchmarks.md) for the rest)"
