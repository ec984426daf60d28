"""Rendering of records into pages: tables between `<!-- NAME -->` and `<!-- end -->`, and plots."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.names import CURVES
from benchmarks.record import RESULTS, ROOT, read_record
from benchmarks.tables import TABLES
from benchmarks.tables.common import format_host
from benchmarks.tables.curves import PICTURES, make_curve_table, make_slug
from benchmarks.tables.front import make_front_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.record import Record

PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "performance.md",
    RESULTS / "README.md",
)
PICTURE_DIRECTORY = ROOT / "docs" / PICTURES
FRONT_TABLES = {"front", "comparisons"}
TABLE_MARKER = re.compile(r"<!-- (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
NOT_MEASURED_TEXT = "Not measured yet: `python -m benchmarks {}`."
TABLE_MARKERS: dict[str, tuple[str, Callable[[Record], str]]] = (
    TABLES
    | {make_slug(task): ("curves", partial(make_curve_table, task=task)) for task in CURVES}
    | {"curves": ("curves", format_host)}
)
"""Name of the record and the function that renders it, by the name of the marker."""


def render_page(page: str, results: Path = RESULTS) -> str:
    """Returns the page with the text between its markers rendered from the records."""
    return TABLE_MARKER.sub(lambda match: _fill_marker(match, results), page)


def _fill_marker(match: re.Match[str], results: Path) -> str:
    name = match["name"]
    if name in FRONT_TABLES:
        table = make_front_table(results, only_headlines=name == "front")
    elif name in TABLE_MARKERS:
        table = render_table(name, results)
    else:
        return match[0]
    return f"<!-- {name} -->\n{table}\n<!-- end -->"


def render_table(name: str, results: Path) -> str:
    """Returns the text for one marker, or a note if its record does not exist."""
    benchmark, make_table = TABLE_MARKERS[name]
    path = results / f"{benchmark}.json"
    return make_table(read_record(path)) if path.exists() else NOT_MEASURED_TEXT.format(benchmark)


def get_tables(benchmark: str, results: Path) -> str:
    """Returns all tables that are rendered from one record."""
    return "\n\n".join(
        render_table(name, results) for name, (record, _) in TABLE_MARKERS.items() if record == benchmark
    )


def render_pages() -> list[Path]:
    """Renders all pages and plots, and returns the paths of the files."""
    for page in PAGES:
        page.write_text(render_page(page.read_text()))
    return [*PAGES, *render_pictures(RESULTS, PICTURE_DIRECTORY)]


def render_pictures(results: Path, directory: Path) -> list[Path]:
    """Draws the curves if their record exists, and returns the paths of the files."""
    path = results / "curves.json"
    if not path.exists():
        return []
    from benchmarks.plots import draw_curves  # noqa: PLC0415 (tables need no matplotlib)

    return draw_curves(read_record(path), directory)
