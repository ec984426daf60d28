"""Which block each document goes to, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.packing.bin_packing import best_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Placed(NamedTuple):
    """A document in a block.

    Attributes:
        length: of the document.
        block: to which it goes, counted as blocks are begun.
        room: what is left in each block after that.
    """

    length: int
    block: int
    room: list[int]


def best_fit_steps(lengths: Sequence[int], block_size: int) -> Iterator[Placed]:
    """Best fit of documents that are sorted from the longest: what is placed later changes nothing before."""
    for stop in range(1, len(lengths) + 1):
        so_far = np.array(lengths[:stop], np.int64)
        blocks = best_fit(so_far, block_size, stop)
        room = block_size - np.bincount(blocks, so_far).astype(np.int64)
        yield Placed(lengths[stop - 1], int(blocks[-1]), room.tolist())
