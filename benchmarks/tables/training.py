"""Tables of what makes vocabularies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tables.common import (
    format_count,
    format_host,
    format_markdown_table,
    format_seconds,
    get_measurement,
    get_names,
    left_out,
)

if TYPE_CHECKING:
    from benchmarks.record import Record


def make_train_table(record: Record) -> str:
    """Seconds from file to vocabulary, in brackets times tokjax's, and the most memory; a column a size."""
    columns = list(dict.fromkeys((one.task, one.at) for one in record.of()))
    header = ["", *(f"{task}, {format_count(size)}" for task, size in columns), "memory, MB"]
    rows = []
    for name in get_names(record.of(), "contender"):
        found = [get_measurement(record, task=task, at=size, contender=name) for task, size in columns]
        cells = ["" if one is None else f"{one.median:.1f} ({one.ratio:.2f})" for one in found]
        rows.append(
            [name, *cells, format_count(max(one.median for one in record.of("memory", contender=name)))]
        )
    workers = record.settings["workers"]
    note = f"Seconds, in brackets times tokjax; {workers} workers. {format_host(record)}{left_out(record)}"
    return format_markdown_table(header, rows, note)


def make_phases_table(record: Record) -> str:
    """Where tokjax's time goes."""
    rows = []
    for one in record.of("counting"):
        where = {"task": one.task, "at": one.at, "contender": one.contender}
        merging, memory = (
            format_seconds(record, "merging", **where),
            format_seconds(record, "memory", **where),
        )
        rows.append(
            [one.task, format_count(one.at), f"{one.median:.2f} s", f"{merging:.2f} s", format_count(memory)]
        )
    return format_markdown_table(["text", "vocabulary", "counting", "merging", "memory, MB"], rows)


def make_algorithms_table(record: Record) -> str:
    """Seconds to merge, one row a text and vocabulary."""
    ways = get_names(record.measurements, "contender")
    rows = []
    for task, size in dict.fromkeys((one.task, one.at) for one in record.measurements):
        found = [
            next(one for one in record.measurements if (one.task, one.at, one.contender) == (task, size, way))
            for way in ways
        ]
        text = f"{found[0].extra['bytes'] / 1e6:.3g} MB, {format_count(found[0].extra['words'])} words"
        rows.append([text, format_count(size), *(one.left_out or f"{one.median:.3g} s" for one in found)])
    return format_markdown_table(["text", "vocabulary", *ways], rows, format_host(record))
