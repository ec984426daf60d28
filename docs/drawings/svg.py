"""Deterministic SVG output: rectangles, lines and text.

Drawings are shown on light and on dark pages. `INK` is the colour of the surrounding text. Text on the fixed
colours of `PALETTE` is `DARK`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias
from xml.etree import ElementTree

INK = "currentColor"
DARK = "#1f2328"
FAINT = "#8b949e"
"""Grey that is visible on light and on dark pages."""
PALETTE = (
    "#9ecbff",
    "#ffd08a",
    "#a8e0a8",
    "#f5b5c8",
    "#d0bdf4",
    "#9fe0dc",
    "#e8dc8a",
    "#d9c2ad",
)
"""Fill colours that differ from one another and from both backgrounds."""

Anchor: TypeAlias = Literal["start", "middle", "end"]

_STYLE = (
    ".drawing{color:#1f2328;max-width:100%;height:auto}"
    "@media (prefers-color-scheme:dark){.drawing{color:#e6edf3}}"
    "[data-md-color-scheme] .drawing{color:inherit}"  # the site has its own switch
)
_FONTS = {False: "system-ui, sans-serif", True: "ui-monospace, monospace"}


class Svg:
    """Drawing to which shapes are added; `str` returns it as SVG.

    Later shapes cover earlier ones. The x axis points right, and the y axis down. All lengths are in pixels.

    Args:
        width: width of the drawing.
        height: height of the drawing.
        title: title of the drawing, for screen readers.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self._root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "class": "drawing",
                "role": "img",
                "width": _format_number(width),
                "height": _format_number(height),
                "viewBox": f"0 0 {_format_number(width)} {_format_number(height)}",
            },
        )
        ElementTree.SubElement(self._root, "title").text = title
        ElementTree.SubElement(self._root, "style").text = _STYLE

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str = "none",
        radius: float = 0,
        hint: str = "",
    ) -> None:
        """Adds a rectangle with its upper left corner at `(x, y)`, and `hint` as tooltip."""
        positions = {"x": x, "y": y, "width": width, "height": height, "rx": radius}
        shape = self._add("rect", positions, {"fill": fill, "stroke": stroke})
        if hint:
            ElementTree.SubElement(shape, "title").text = hint

    def text(
        self,
        x: float,
        y: float,
        string: str,
        *,
        size: float = 13,
        anchor: Anchor = "start",
        fill: str = INK,
        bold: bool = False,
        monospace: bool = False,
        upwards: bool = False,
    ) -> None:
        """Adds one line of text that is anchored at `(x, y)` by its start, middle or end."""
        attributes = {
            "text-anchor": anchor,
            "dominant-baseline": "central",
            "fill": fill,
            "font-family": _FONTS[monospace],
            "font-weight": "bold" if bold else "normal",
        }
        if upwards:
            attributes["transform"] = (
                f"rotate(-90 {_format_number(x)} {_format_number(y)})"
            )
        self._add("text", {"x": x, "y": y, "font-size": size}, attributes).text = string

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        stroke: str = INK,
        width: float = 1,
        dashed: bool = False,
    ) -> None:
        """Adds a straight line from `(x1, y1)` to `(x2, y2)`."""
        attributes = {"stroke": stroke} | (
            {"stroke-dasharray": "4 3"} if dashed else {}
        )
        self._add(
            "line",
            {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke-width": width},
            attributes,
        )

    def __str__(self) -> str:
        """Returns the drawing as one line of SVG, for a page or a file."""
        return ElementTree.tostring(self._root, encoding="unicode")

    def _add(
        self, tag: str, numbers: dict[str, float], attributes: dict[str, str]
    ) -> ElementTree.Element:
        formatted = {name: _format_number(value) for name, value in numbers.items()}
        return ElementTree.SubElement(self._root, tag, formatted | attributes)


def _format_number(value: float) -> str:
    """Formats a number with two decimals: further digits are invisible, and could differ between machines."""
    return f"{round(value, 2):g}"
