"""Drawings of the layers of the package, and of the imports between packages."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from docs.drawings.svg import DARK, FAINT, PALETTE, Svg
from tests.support.import_layers import (
    LAYERS,
    get_package,
    iter_modules,
    read_imports,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_WIDTH, _LABEL, _GAP = 700, 58, 6
_PACKAGES_PER_ROW = 5
_BOX, _ROW = (_WIDTH - _LABEL) / _PACKAGES_PER_ROW, 42
_LAST_MERGED_LAYER = 1
"""Layers up to this one have one column each in the matrix, because nearly all modules import them."""
_CELL, _NAMES, _HEADS = 34, 92, 78


class Package(NamedTuple):
    """Package, or module of the top level.

    Attributes:
        name: name below `tokjax`.
        layer: index of its layer.
        files: number of Python files.
        lines: number of lines in these files.
    """

    name: str
    layer: int
    files: int
    lines: int


def read_packages() -> list[Package]:
    """Returns all packages with their sizes, from the lowest layer to the highest."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for name, path in iter_modules().items():
        package = get_package(name)
        files[package] += 1
        lines[package] += len(path.read_text("utf-8").splitlines())
    return [
        Package(name, layer, files[name], lines[name]) for name, layer in LAYERS.items()
    ]


def read_uses() -> Counter[tuple[str, str]]:
    """Counts the imports between packages; each of the lowest layers counts as one package."""
    return Counter(
        (_get_label(user), _get_label(used))
        for user, targets in read_imports().items()
        for used in targets
        if _get_label(user) != _get_label(used)
    )


def draw_layers() -> str:
    """Draws the layers, with their packages and the sizes of the packages."""
    packages = read_packages()
    layers = sorted({package.layer for package in packages}, reverse=True)
    rows = {
        layer: _split_rows(package for package in packages if package.layer == layer)
        for layer in layers
    }
    height = sum(len(rows[layer]) * _ROW + 2 * _GAP for layer in layers)
    svg = Svg(
        _WIDTH,
        height,
        f"{len(packages)} packages and modules in {len(layers)} layers",
    )
    y = 0
    for layer in layers:
        svg.line(0, y, _WIDTH, y, stroke=FAINT)
        svg.text(0, y + _GAP + _ROW / 2, f"layer {layer}", size=12)
        for row in rows[layer]:
            for i, package in enumerate(row):
                _draw_package(svg, _LABEL + i * _BOX, y + _GAP, package)
            y += _ROW
        y += 2 * _GAP
    return str(svg)


def draw_uses() -> str:
    """Draws a matrix: a row for each package that imports, a column for each that is imported."""
    uses = read_uses()
    names = list(dict.fromkeys(map(_get_label, LAYERS)))
    users = [name for name in names if any((name, other) in uses for other in names)]
    users = [name for name in users if not name.startswith("layer")]
    used = [name for name in names if any((other, name) in uses for other in users)]
    width, height = _NAMES + len(used) * _CELL + 1, _HEADS + len(users) * _CELL + 1
    svg = Svg(width, height, "Imports between packages")
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


def _get_label(module: str) -> str:
    package = get_package(module)
    return (
        package if LAYERS[package] > _LAST_MERGED_LAYER else f"layer {LAYERS[package]}"
    )


def _split_rows(packages: Iterable[Package]) -> list[list[Package]]:
    items = list(packages)
    return [
        items[i : i + _PACKAGES_PER_ROW]
        for i in range(0, len(items), _PACKAGES_PER_ROW)
    ]


def _draw_package(svg: Svg, x: float, y: float, package: Package) -> None:
    size = f"{package.lines:,} lines"
    if package.files > 1:
        size = f"{package.files} files, {size}"
    middle = x + (_BOX - _GAP) / 2
    svg.rectangle(
        x,
        y,
        _BOX - _GAP,
        _ROW - _GAP,
        fill=PALETTE[package.layer % len(PALETTE)],
        radius=4,
    )
    svg.text(
        middle, y + 12, package.name, size=12, anchor="middle", fill=DARK, bold=True
    )
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
