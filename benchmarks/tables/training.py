"""Tables of what makes vocabularies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tables.common import count, host, left_out, markdown, names_of, one_of, seconds_of

if TYPE_CHECKING:
    from benchmarks.record import Record


def train_table(record: Record) -> str:
    """Seconds from file to vocabulary, in brackets times tokjax's, and the most memory; a column a size."""
    columns = list(dict.fromkeys((one.task, one.at) for one in record.of()))
    header = ["", *(f"{task}, {count(size)}" for task, size in columns), "memory, MB"]
    rows = []
    for name in names_of(record.of(), "contender"):
        found = [one_of(record, task=task, at=size, contender=name) for task, size in columns]
        cells = ["" if one is None else f"{one.median:.1f} ({one.ratio:.2f})" for one in found]
        rows.append([name, *cells, count(max(one.median for one in record.of("memory", contender=name)))])
    workers = record.settings["workers"]
    note = f"Seconds, in brackets times tokjax; {workers} workers. {host(record)}{left_out(record)}"
    return markdown(header, rows, note)


def phases_table(record: Record) -> str:
    """Where tokjax's time goes."""
    rows = []
    for one in record.of("counting"):
        where = {"task": one.task, "at": one.at, "contender": one.contender}
        merging, memory = seconds_of(record, "merging", **where), seconds_of(record, "memory", **where)
        rows.append([one.task, count(one.at), f"{one.median:.2f} s", f"{merging:.2f} s", count(memory)])
    return markdown(["text", "vocabulary", "counting", "merging", "memory, MB"], rows)


def ladder_table(record: Record) -> str:
    """Seconds to merge, one row a text and vocabulary."""
    ways = names_of(record.measurements, "contender")
    rows = []
    for task, size in dict.fromkeys((one.task, one.at) for one in record.measurements):
        found = [
            next(one for one in record.measurements if (one.task, one.at, one.contender) == (task, size, way))
            for way in ways
        ]
        text = f"{found[0].extra['bytes'] / 1e6:.3g} MB, {count(found[0].extra['words'])} words"
        rows.append([text, count(size), *(one.left_out or f"{one.median:.3g} s" for one in found)])
    return markdown(["text", "vocabulary", *ways], rows, host(record))
