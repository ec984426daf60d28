"""Records rendered into pages: the tables and pictures between `<!-- NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.names import CURVES
from benchmarks.record import RESULTS, ROOT, read_record
from benchmarks.tables import TABLES
from benchmarks.tables.common import host
from benchmarks.tables.curves import PICTURES, curve, slug
from benchmarks.tables.front import front_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.record import Record

PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "performance.md")
PICTURE_DIRECTORY = ROOT / "docs" / PICTURES
FRONT_TABLES = {"front", "comparisons"}
PLACE = re.compile(r"<!-- (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
NOT_MEASURED = "Not measured yet: `python -m benchmarks {}`."
PLACES: dict[str, tuple[str, Callable[[Record], str]]] = (
    TABLES
    | {slug(task): ("curves", partial(curve, task=task)) for task in CURVES}
    | {"curves": ("curves", host)}
)
"""What goes to each place, and the record that it is made of."""


def rendered(page: str, results: Path = RESULTS) -> str:
    """The page with what is between its markers made anew."""
    return PLACE.sub(lambda found: _filled(found, results), page)


def _filled(found: re.Match[str], results: Path) -> str:
    name = found["name"]
    if name in FRONT_TABLES:
        table_of_peers = front_table(results, only_headlines=name == "front")
        return f"<!-- {name} -->\n{table_of_peers}\n<!-- end -->"
    return f"<!-- {name} -->\n{table(name, results)}\n<!-- end -->" if name in PLACES else found[0]


def table(name: str, results: Path) -> str:
    """What goes to one place."""
    benchmark, table_of = PLACES[name]
    path = results / f"{benchmark}.json"
    return table_of(read_record(path)) if path.exists() else NOT_MEASURED.format(benchmark)


def tables_of(benchmark: str, results: Path) -> str:
    """All that is made of one record."""
    return "\n\n".join(table(name, results) for name, (of, _) in PLACES.items() if of == benchmark)


def render_pages() -> list[Path]:
    """Render all pages and pictures; the files that were written."""
    for page in PAGES:
        page.write_text(rendered(page.read_text()))
    return [*PAGES, *render_pictures(RESULTS, PICTURE_DIRECTORY)]


def render_pictures(results: Path, directory: Path) -> list[Path]:
    """Draw the curves, if they were measured."""
    path = results / "curves.json"
    if not path.exists():
        return []
    from benchmarks.plots import draw_curves  # noqa: PLC0415 (tables need no matplotlib)

    return draw_curves(read_record(path), directory)
