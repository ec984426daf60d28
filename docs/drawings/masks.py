"""Drawings of attention masks: one row per query, one column per key, coloured where the mask is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from docs.drawings.svg import FAINT, PALETTE, Svg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax._util.arrays import Array

_CELL, _HEADING, _SPACE = 20, 26, 36
_MASKS_PER_ROW = 3


def draw_masks(
    title: str, masks: Mapping[str, Array], segment_ids: Array | None = None
) -> str:
    """Draws masks side by side, with headings.

    Args:
        title: title of the drawing, for screen readers.
        masks: masks of one sequence by heading, `bool`, shape `(..., queries, keys)` with leading axes of
            size 1; a mask with a single query applies to all queries.
        segment_ids: segment of each key, which gives its colour (0 is grey); `None` for one colour.
    """
    squares = {heading: _to_square(mask) for heading, mask in masks.items()}
    length = max(len(square) for square in squares.values())
    colours = (
        np.ones(length, np.int32)
        if segment_ids is None
        else np.asarray(segment_ids).reshape(-1)
    )
    side = length * _CELL
    columns, rows = (
        min(len(squares), _MASKS_PER_ROW),
        -(-len(squares) // _MASKS_PER_ROW),
    )
    svg = Svg(
        columns * (side + _SPACE) - _SPACE + 1,
        rows * (_HEADING + side + _SPACE) - _SPACE,
        title,
    )
    for i, (heading, square) in enumerate(squares.items()):
        x, y = (
            i % _MASKS_PER_ROW * (side + _SPACE),
            i // _MASKS_PER_ROW * (_HEADING + side + _SPACE),
        )
        svg.text(x, y + _HEADING / 2, heading, size=11.5, monospace=True)
        _draw_square(svg, x, y + _HEADING, square, colours)
    return str(svg)


def _to_square(mask: Array) -> NDArray[np.bool_]:
    """Broadcasts a mask of one sequence to shape `(keys, keys)`."""
    array = np.asarray(mask)
    keys = array.shape[-1]
    return np.broadcast_to(array.reshape(-1, keys), (keys, keys))


def _draw_square(
    svg: Svg, x: float, y: float, square: NDArray[np.bool_], colours: NDArray[np.int32]
) -> None:
    for (query, key), is_visible in np.ndenumerate(square):
        fill = _get_colour(int(colours[key])) if is_visible else "none"
        svg.rectangle(
            x + key * _CELL, y + query * _CELL, _CELL, _CELL, fill=fill, stroke=FAINT
        )


def _get_colour(segment: int) -> str:
    return PALETTE[(segment - 1) % len(PALETTE)] if segment > 0 else FAINT
