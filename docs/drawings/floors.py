"""The floors of the code, with the places on them; and which place uses which."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from docs.drawings.svg import DARK, FAINT, PALETTE, Svg
from tests.floors import FLOORS, modules, read_imports

if TYPE_CHECKING:
    from collections.abc import Iterable

_WIDTH, _LABEL, _GAP = 700, 58, 6
_A_ROW = 5
_BOX, _HIGH = (_WIDTH - _LABEL) / _A_ROW, 42
_LOW = 1
"""The places up to this floor are single files, used by nearly all above: in the matrix each floor is one."""
_CELL, _NAMES, _HEADS = 34, 92, 78


class Place(NamedTuple):
    """A file or a folder.

    Attributes:
        name: without the package's.
        floor: where it is.
        files: how many it has.
        lines: how many they have.
    """

    name: str
    floor: int
    files: int
    lines: int


def read_places() -> list[Place]:
    """All places, from the lowest floor, as they are in the code now."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for name, path in modules().items():
        place = name.split(".")[0]
        files[place] += 1
        lines[place] += len(path.read_text("utf-8").splitlines())
    return [
        Place(name, floor, files[name], lines[name]) for name, floor in FLOORS.items()
    ]


def read_uses() -> Counter[tuple[str, str]]:
    """How many files of a place import how many of another, by the two; those of low floors by the floor."""
    return Counter(
        (_seen_as(user), _seen_as(used))
        for user, targets in read_imports().items()
        for used in targets
        if _seen_as(user) != _seen_as(used)
    )


def draw_floors() -> str:
    """The floors one above the other, with the places on each and their sizes."""
    places = read_places()
    floors = sorted({place.floor for place in places}, reverse=True)
    rows = {
        floor: _rows(place for place in places if place.floor == floor)
        for floor in floors
    }
    height = sum(len(rows[floor]) * _HIGH + 2 * _GAP for floor in floors)
    svg = Svg(
        _WIDTH, height, f"{len(places)} places of the code on {len(floors)} floors"
    )
    y = 0
    for floor in floors:
        svg.line(0, y, _WIDTH, y, stroke=FAINT)
        svg.text(0, y + _GAP + _HIGH / 2, f"floor {floor}", size=12)
        for row in rows[floor]:
            for i, place in enumerate(row):
                _draw_place(svg, _LABEL + i * _BOX, y + _GAP, place)
            y += _HIGH
        y += 2 * _GAP
    return str(svg)


def draw_uses() -> str:
    """A matrix: a row a place that imports, a column a place that is imported."""
    uses = read_uses()
    names = list(dict.fromkeys(map(_seen_as, FLOORS)))
    users = [name for name in names if any((name, other) in uses for other in names)]
    users = [name for name in users if not name.startswith("floor")]
    used = [name for name in names if any((other, name) in uses for other in users)]
    width, height = _NAMES + len(used) * _CELL + 1, _HEADS + len(users) * _CELL + 1
    svg = Svg(width, height, "Which place of the code imports which")
    for i, name in enumerate(used):
        svg.text(_NAMES + (i + 0.5) * _CELL, _HEADS - 6, name, size=12, upwards=True)
    for j, user in enumerate(users):
        y = _HEADS + j * _CELL
        svg.text(_NAMES - 8, y + _CELL / 2, user, size=12, anchor="end")
        for i, name in enumerate(used):
            _draw_use(
                svg, _NAMES + i * _CELL, y, uses[user, name], f"{user} imports {name}"
            )
    return str(svg)


def _seen_as(module: str) -> str:
    place = module.split(".", maxsplit=1)[0]
    return place if FLOORS[place] > _LOW else f"floor {FLOORS[place]}"


def _rows(places: Iterable[Place]) -> list[list[Place]]:
    left = list(places)
    return [left[i : i + _A_ROW] for i in range(0, len(left), _A_ROW)]


def _draw_place(svg: Svg, x: float, y: float, place: Place) -> None:
    size = f"{place.lines:,} lines"
    if place.files > 1:
        size = f"{place.files} files, {size}"
    middle = x + (_BOX - _GAP) / 2
    svg.rectangle(
        x,
        y,
        _BOX - _GAP,
        _HIGH - _GAP,
        fill=PALETTE[place.floor % len(PALETTE)],
        radius=4,
    )
    svg.text(middle, y + 12, place.name, size=12, anchor="middle", fill=DARK, bold=True)
    svg.text(middle, y + 26, size, size=10.5, anchor="middle", fill=DARK)


def _draw_use(svg: Svg, x: float, y: float, imports: int, hint: str) -> None:
    svg.rectangle(x, y, _CELL, _CELL, stroke=FAINT)
    if imports:
        svg.rectangle(
            x + 1,
            y + 1,
            _CELL - 2,
            _CELL - 2,
            fill=PALETTE[0],
            hint=f"{hint}: {imports}",
        )
        svg.text(
            x + _CELL / 2,
            y + _CELL / 2,
            str(imports),
            size=12,
            anchor="middle",
            fill=DARK,
        )
