"""Trace of best fit: the block of each document, one document after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.packing.bin_packing import best_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class PlacedDocument(NamedTuple):
    """A document in a block.

    Attributes:
        length: the length of the document.
        block: the number of its block, counted in the order in which blocks are opened.
        free_space: the free space of each block afterwards.
    """

    length: int
    block: int
    free_space: list[int]


def iter_best_fit_steps(
    lengths: Sequence[int], block_size: int
) -> Iterator[PlacedDocument]:
    """Iterates over the steps of best fit.

    Args:
        lengths: the lengths of the documents, in descending order, so that a later document changes no
            earlier step.
        block_size: the size of a block.
    """
    for stop in range(1, len(lengths) + 1):
        placed = np.array(lengths[:stop], np.int64)
        blocks = best_fit(placed, block_size, stop)
        free_space = block_size - np.bincount(blocks, placed).astype(np.int64)
        yield PlacedDocument(lengths[stop - 1], int(blocks[-1]), free_space.tolist())
