"""Curves: the lines of the plots in pages, and tables of their numbers, which runs print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tables.common import format_markdown_table, get_median, get_names

if TYPE_CHECKING:
    from benchmarks.record import Measurement, Record

PICTURES = "pictures/bench"
MEASURES = {"time": "", "cold": ", cold cache", "warm": ", warm cache"}


def make_slug(task: str) -> str:
    """Returns the name of the file and of the marker for a task."""
    return task.replace(" ", "-")


def get_lines(record: Record, task: str) -> dict[str, list[Measurement]]:
    """Returns the points of each line of a plot, by its label: one line per contender and measure."""
    lines = {}
    for measure, suffix in MEASURES.items():
        for name in get_names(record.select(measure, task=task), "contender"):
            lines[f"{name}{suffix}"] = record.select(measure, task=task, contender=name)
    return lines


def format_point_name(task: str, at: float) -> str:
    """Returns the label of a position on the x axis: bytes in MB, other quantities as they are."""
    return f"{at / 1e6:.3g} MB" if task.endswith("size of text") else f"{at:,.12g}"


def make_curve_table(record: Record, task: str) -> str:
    """Renders the seconds of a plot, with a row for each line and a column for each position."""
    lines = get_lines(record, task)
    if not lines:
        return "Not measured yet."
    positions = sorted({one.at for points in lines.values() for one in points})
    rows = [
        [name, *(_format_cell(record, points[0], at) for at in positions)] for name, points in lines.items()
    ]
    header = ["seconds", *(format_point_name(task, at) for at in positions)]
    return format_markdown_table(header, rows)


def _format_cell(record: Record, point: Measurement, at: float) -> str:
    """Returns the seconds at a position, for the contender and measure of another point."""
    value = get_median(record, point.measure, task=point.task, contender=point.contender, at=at)
    return "" if value is None else f"{value:.3g}"
