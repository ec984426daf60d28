"""Traces of best fit packing: the block of each document, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.packing.bin_packing import best_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Placement(NamedTuple):
    """Placement of one document.

    Attributes:
        length: number of tokens of the document.
        block: number of its block. Blocks are numbered in the order in which they are opened.
        free_slots: number of free slots of each block after the placement.
    """

    length: int
    block: int
    free_slots: list[int]


def iter_best_fit_steps(lengths: Sequence[int], block_size: int) -> Iterator[Placement]:
    """Yields the placement of each document.

    Each step packs one more document. Best fit places documents in order of decreasing length, so the
    placements of earlier documents do not change.

    Args:
        lengths: lengths of documents in tokens, in decreasing order.
        block_size: number of slots per block.
    """
    for stop in range(1, len(lengths) + 1):
        placed = np.array(lengths[:stop], np.int64)
        blocks = best_fit(placed, block_size, stop)
        free_slots = block_size - np.bincount(blocks, placed).astype(np.int64)
        yield Placement(lengths[stop - 1], int(blocks[-1]), free_slots.tolist())
