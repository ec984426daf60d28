"""Records rendered into pages: the tables and pictures between `<!-- NAME -->` and `<!-- end -->`."""

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

PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "performance.md")
PICTURE_DIRECTORY = ROOT / "docs" / PICTURES
FRONT_TABLES = {"front", "comparisons"}
TABLE_MARKER = re.compile(r"<!-- (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
NOT_MEASURED_TEXT = "Not measured yet: `python -m benchmarks {}`."
TABLE_MARKERS: dict[str, tuple[str, Callable[[Record], str]]] = (
    TABLES
    | {make_slug(task): ("curves", partial(make_curve_table, task=task)) for task in CURVES}
    | {"curves": ("curves", format_host)}
)
"""What goes to each place, and the record that it is made of."""


def render_page(page: str, results: Path = RESULTS) -> str:
    """The page with what is between its markers made anew."""
    return TABLE_MARKER.sub(lambda found: _fill_marker(found, results), page)


def _fill_marker(found: re.Match[str], results: Path) -> str:
    name = found["name"]
    if name in FRONT_TABLES:
        table_of_peers = make_front_table(results, only_headlines=name == "front")
        return f"<!-- {name} -->\n{table_of_peers}\n<!-- end -->"
    return (
        f"<!-- {name} -->\n{render_table(name, results)}\n<!-- end -->" if name in TABLE_MARKERS else found[0]
    )


def render_table(name: str, results: Path) -> str:
    """What goes to one place."""
    benchmark, table_makers = TABLE_MARKERS[name]
    path = results / f"{benchmark}.json"
    return table_makers(read_record(path)) if path.exists() else NOT_MEASURED_TEXT.format(benchmark)


def get_tables(benchmark: str, results: Path) -> str:
    """All that is made of one record."""
    return "\n\n".join(
        render_table(name, results) for name, (of, _) in TABLE_MARKERS.items() if of == benchmark
    )


def render_pages() -> list[Path]:
    """Render all pages and pictures; the files that were written."""
    for page in PAGES:
        page.write_text(render_page(page.read_text()))
    return [*PAGES, *render_pictures(RESULTS, PICTURE_DIRECTORY)]


def render_pictures(results: Path, directory: Path) -> list[Path]:
    """Draw the curves, if they were measured."""
    path = results / "curves.json"
    if not path.exists():
        return []
    from benchmarks.plots import draw_curves  # noqa: PLC0415 (tables need no matplotlib)

    return draw_curves(read_record(path), directory)
