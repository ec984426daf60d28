"""Plots of curves as SVG. The output is deterministic for a record and a version of matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.names import CURVES
from benchmarks.tables.curves import get_lines, make_slug

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.record import Measurement, Record

STYLE = {"svg.hashsalt": "tokjax", "svg.fonttype": "none", "font.size": 9, "path.simplify": False}
SIZE = (6.4, 3.6)
DASHES = {"warm": "--"}
COLOURS = ("#1f5fa8", "#c4532b", "#3f8f4f", "#7a4fa3", "#8a6d1d", "#4a4a4a")
AXES = {"text": "bytes of text", "vocabulary": "ids of the vocabulary", "pre-tokens": "unique pre-tokens"}


def draw_curves(record: Record, directory: Path) -> list[Path]:
    """Draws each curve of the record into a file, and returns the paths."""
    paths = []
    for task in CURVES:
        lines = get_lines(record, task)
        if lines:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{make_slug(task)}.svg"
            draw_plot(task, lines, path)
            paths.append(path)
    return paths


def draw_plot(task: str, lines: dict[str, list[Measurement]], path: Path) -> None:
    """Draws seconds by size, with one line per contender and measure, on logarithmic axes."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        colours = dict(
            zip(dict.fromkeys(points[0].contender for points in lines.values()), COLOURS, strict=False)
        )
        for name, points in lines.items():
            _draw_line(axes, name, points, colours[points[0].contender])
        axes.set(xscale="log", yscale="log", xlabel=_get_axis(task), ylabel="seconds", title=task)
        axes.grid(visible=True, which="major", alpha=0.3)
        figure.legend(loc="outside right upper", frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _draw_line(axes: Any, name: str, points: list[Measurement], colour: str) -> None:
    ordered = sorted(points, key=lambda one: one.at or 0)
    positions, seconds = [one.at for one in ordered], [one.median for one in ordered]
    style = DASHES.get(points[0].measure, "-")
    axes.plot(positions, seconds, style, label=name, color=colour, marker="o", markersize=3, linewidth=1.2)


def _get_axis(task: str) -> str:
    return AXES.get(task.rsplit(maxsplit=1)[-1], task.rsplit(maxsplit=1)[-1])
