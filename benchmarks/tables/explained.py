"""Tables of the page on performance, which explains a few of the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import IDS, format_run_name
from benchmarks.tables.common import (
    compute_megabytes_per_second,
    format_count,
    format_markdown_table,
    get_measurement,
    get_median,
)

if TYPE_CHECKING:
    from benchmarks.record import Record

CORES = (1, 2)
ESTIMATED_CORES = (16, 64)
TOKENS = 32_000
RATES = ("MB/s, cold cache", "MB/s, warm cache")


def make_rates_table(record: Record) -> str:
    """Renders MB/s of encoding English, by number of cores, and what Amdahl's law gives for more cores."""
    rows = [
        [format_count(cores), *_get_rates(record, format_run_name(f"tokjax, {IDS}", cores))]
        for cores in CORES
    ]
    rates = [[_compute_rate(record, measure, cores) for cores in CORES] for measure in ("cold", "warm")]
    if all(rate is not None for column in rates for rate in column):
        shares = [compute_serial_share(one, two) for one, two in rates]
        rows.append(["serial share", *(f"{share:.0%}" for share in shares)])
        for cores in ESTIMATED_CORES:
            estimates = (
                one / (share + (1 - share) / cores) for (one, _), share in zip(rates, shares, strict=True)
            )
            rows.append([f"{cores}, by Amdahl's law", *(f"{rate:.0f}" for rate in estimates)])
    return format_markdown_table(["cores", *RATES], rows, _format_date(record))


def compute_serial_share(one: float, two: float) -> float:
    """Returns the share of the work that is not done in parallel, from the rates on one and on two cores.

    By Amdahl's law, `two / one = 1 / (share + (1 - share) / 2)`. This is the metric of Karp and Flatt, and
    includes what two cores lose by sharing the memory.
    """
    return 2 * one / two - 1


def _compute_rate(record: Record, measure: str, cores: int) -> float | None:
    run = format_run_name(f"tokjax, {IDS}", cores)
    one = get_measurement(record, measure, task="en", contender=run)
    return None if one is None else compute_megabytes_per_second(one)


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


def _format_date(record: Record) -> str:
    return f"({record.machine['cores']} cores, {record.date}; see [benchmarks](benchmarks.md) for the rest)"
