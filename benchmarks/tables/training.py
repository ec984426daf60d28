"""Tables of training vocabularies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tables.common import (
    format_count,
    format_host,
    format_markdown_table,
    format_skipped,
    get_label,
    get_measurement,
    get_median,
    get_names,
)

if TYPE_CHECKING:
    from benchmarks.record import Record


def make_train_table(record: Record) -> str:
    """Renders seconds from file to vocabulary, the ratio to tokjax, and the peak memory."""
    columns = list(dict.fromkeys((one.task, one.at) for one in record.select()))
    header = ["trainer", *(f"{task}, {format_count(size)}" for task, size in columns), "memory, MB"]
    rows = []
    for name in get_names(record.select(), "contender"):
        measurements = [get_measurement(record, task=task, at=size, contender=name) for task, size in columns]
        cells = ["" if one is None else f"{one.median:.1f} ({one.ratio:.2f})" for one in measurements]
        rows.append(
            [name, *cells, format_count(max(one.median for one in record.select("memory", contender=name)))]
        )
    workers = record.settings["workers"]
    details = f"{format_host(record)}{format_skipped(record)}"
    note = f"Seconds; in brackets the ratio to tokjax. {workers} workers. {details}"
    return format_markdown_table(header, rows, note)


def make_phases_table(record: Record) -> str:
    """Renders the phases of training in tokjax: seconds of counting and merging, and memory."""
    rows = []
    for one in record.select("counting"):
        where = {"task": one.task, "at": one.at, "contender": one.contender}
        merging, memory = (
            get_median(record, "merging", **where),
            get_median(record, "memory", **where),
        )
        rows.append(
            [one.task, format_count(one.at), f"{one.median:.2f} s", f"{merging:.2f} s", format_count(memory)]
        )
    return format_markdown_table(["text", "vocabulary", "counting", "merging", "memory, MB"], rows)


def make_algorithms_table(record: Record) -> str:
    """Renders seconds of the merge algorithms, with one row per text and vocabulary."""
    algorithms = get_names(record.measurements, "contender")
    rows = []
    for task, size in dict.fromkeys((one.task, one.at) for one in record.measurements):
        measurements = [
            next(
                one for one in record.measurements if (one.task, one.at, one.contender) == (task, size, name)
            )
            for name in algorithms
        ]
        counts = measurements[0].extra
        text = f"{counts['bytes'] / 1e6:.3g} MB, {format_count(counts['words'])} distinct pre-tokens"
        cells = [one.left_out or f"{one.median:.3g} s" for one in measurements]
        rows.append([text, format_count(size), *cells])
    header = ["text", "vocabulary", *map(get_label, algorithms)]
    return format_markdown_table(header, rows, format_host(record))
