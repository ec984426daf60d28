"""Drawings of padded batches and packed blocks: grids of tokens in the colours of their documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from docs.drawings.svg import DARK, FAINT, INK, PALETTE, Svg
from tokjax import PackedBlocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax import PaddedBatch

_WIDTH, _HIGH, _HEADING, _SPACE = 34, 24, 26, 10
_NAMES = 96
_IGNORED = -100


class _Grid(NamedTuple):
    """Grid of numbers.

    Attributes:
        heading: text above the grid.
        values: the numbers, `int32`, shape `(rows, length)`.
        documents: document index of each number, -1 for padding, shape `(rows, length)`.
        names: labels of the rows; empty for no labels.
    """

    heading: str
    values: NDArray[np.int32]
    documents: NDArray[np.int32]
    names: Sequence[str]


def draw_batches(title: str, batches: Mapping[str, PaddedBatch | PackedBlocks]) -> str:
    """Draws the ids of batches below one another, with headings; padding has no colour.

    Args:
        title: title of the drawing, for screen readers.
        batches: batches by heading; row `i` of a padded batch is document `i`.
    """
    return _draw_grids(
        title, [_get_ids(heading, batch) for heading, batch in batches.items()]
    )


def draw_batches_at(
    svg: Svg, x: float, y: float, batches: Mapping[str, PaddedBatch | PackedBlocks]
) -> None:
    """Draws the ids of batches side by side into `svg`, with the upper left corner at `(x, y)`."""
    for heading, batch in batches.items():
        _draw_grid(svg, x, y, _get_ids(heading, batch), left=0)
        x += batch.ids.shape[1] * _WIDTH + 2 * _SPACE


def draw_columns(title: str, blocks: PackedBlocks) -> str:
    """Draws ids, segment ids, positions, document ids and labels of packed blocks, block by block."""
    columns = {
        "ids": blocks.ids,
        "segment_ids": blocks.segment_ids,
        "positions": blocks.positions,
        "document_ids": blocks.document_ids,
        "labels": blocks.causal_lm_labels(ignore_index=_IGNORED),
    }
    arrays = np.stack([np.asarray(array) for array in columns.values()], axis=1)
    documents = np.broadcast_to(
        np.asarray(blocks.document_ids)[:, None, :], arrays.shape
    )
    grids = [
        _Grid(f"block {i}", arrays[i], documents[i], [*columns])
        for i in range(len(arrays))
    ]
    return _draw_grids(title, grids)


def _get_ids(heading: str, batch: PaddedBatch | PackedBlocks) -> _Grid:
    ids = np.asarray(batch.ids)
    if isinstance(batch, PackedBlocks):
        return _Grid(heading, ids, np.asarray(batch.document_ids), ())
    rows = np.arange(len(ids), dtype=np.int32)[:, None]
    return _Grid(
        heading, ids, np.where(np.asarray(batch.attention_mask) > 0, rows, -1), ()
    )


def _draw_grids(title: str, grids: Sequence[_Grid]) -> str:
    left = _NAMES if any(grid.names for grid in grids) else 0
    width = left + max(grid.values.shape[1] for grid in grids) * _WIDTH
    height = sum(_HEADING + len(grid.values) * _HIGH + _SPACE for grid in grids)
    svg = Svg(width, height, title)
    y = 0
    for grid in grids:
        _draw_grid(svg, 0, y, grid, left)
        y += _HEADING + len(grid.values) * _HIGH + _SPACE
    return str(svg)


def _draw_grid(svg: Svg, x: float, y: float, grid: _Grid, left: float) -> None:
    svg.text(x, y + _HEADING / 2, grid.heading, bold=True)
    for i, name in enumerate(grid.names):
        position = x + left - 8, y + _HEADING + (i + 0.5) * _HIGH
        svg.text(*position, name, size=12, anchor="end", monospace=True)
    for (i, j), value in np.ndenumerate(grid.values):
        position = x + left + j * _WIDTH, y + _HEADING + i * _HIGH
        _draw_cell(svg, *position, int(value), int(grid.documents[i, j]))


def _draw_cell(svg: Svg, x: float, y: float, value: int, document: int) -> None:
    fill = PALETTE[document % len(PALETTE)] if document >= 0 else "none"
    svg.rectangle(
        x + 1, y + 1, _WIDTH - 2, _HIGH - 2, fill=fill, stroke=FAINT, radius=3
    )
    ink = DARK if document >= 0 else INK
    svg.text(
        x + _WIDTH / 2,
        y + _HIGH / 2,
        str(value),
        size=11.5,
        anchor="middle",
        fill=ink,
        monospace=True,
    )
