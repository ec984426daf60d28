"""Curves as pictures, and the numbers that they are drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tables.common import format_markdown_table, format_seconds, get_names

if TYPE_CHECKING:
    from benchmarks.record import Measurement, Record

PICTURES = "pictures/bench"
MEASURES = {"time": "", "cold": ", first pass", "warm": ", second pass"}


def make_slug(task: str) -> str:
    """The name of a task as that of a file and a place in a page."""
    return task.replace(" ", "-")


def get_lines(record: Record, task: str) -> dict[str, list[Measurement]]:
    """The points of each contender and measure."""
    found = {}
    for measure, said in MEASURES.items():
        for name in get_names(record.of(measure, task=task), "contender"):
            found[f"{name}{said}"] = record.of(measure, task=task, contender=name)
    return found


def format_point_name(task: str, at: float) -> str:
    """A point of the axis: bytes as megabytes, all else as a number."""
    return f"{at / 1e6:.3g} MB" if task.endswith("size of text") else f"{at:,.12g}"


def make_curve_table(record: Record, task: str) -> str:
    """The picture of a curve, and a row a line with seconds at each place."""
    lines = get_lines(record, task)
    if not lines:
        return "Not measured yet."
    positions = sorted({one.at for points in lines.values() for one in points})
    rows = [
        [name, *(_format_cell(record, points[0], at) for at in positions)] for name, points in lines.items()
    ]
    header = ["seconds", *(format_point_name(task, at) for at in positions)]
    picture = f"![{task.capitalize()}: seconds, both axes logarithmic]({PICTURES}/{make_slug(task)}.svg)"
    return f"{picture}\n\n{format_markdown_table(header, rows)}"


def _format_cell(record: Record, like: Measurement, at: float) -> str:
    value = format_seconds(record, like.measure, task=like.task, contender=like.contender, at=at)
    return "" if value is None else f"{value:.3g}"
