"""Bin packing: `best_fit` and `first_fit`, from the longest piece to the shortest.

A textbook implementation places one piece per step. Here all pieces of one length are placed together, so the
number of steps in Python depends on the number of different lengths and free spaces, not on the number of
pieces. Example: `best_fit` with blocks of 14 slots and pieces of 10, 8, 6, 6, 5, 3, 2 and 2 slots:

    length  pieces  placed in                        free slots after that
                                                     block 0  block 1  block 2
    10      1       new block 0                       4
     8      1       new block 1                       4        6
     6      2       block 1 (6 free), new block 2     4        0        8
     5      1       block 2 (8 free)                  4        0        3
     3      1       block 2 (3 free)                  4        0        0
     2      2       block 0 (4 free), both pieces     0        0        0

See docs/performance.md, section "Packing", and docs/packing-and-masks.md for a drawing of the same example.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_CHUNK = 1 << 9


def best_fit(lengths: NDArray[np.int64], block_size: int, max_pieces: int) -> NDArray[np.int64]:
    """Assigns each piece to the block with the least free space that is sufficient, or else to a new block.

    Args:
        lengths: lengths of the pieces in slots, from 1 to `block_size`, shape `(pieces,)`.
        block_size: number of slots per block.
        max_pieces: maximum number of pieces per block.

    Returns:
        Block of each piece, shape `(pieces,)`. Blocks are numbered in the order in which they are opened.
    """
    open_blocks = _OpenBlocks(block_size)
    pieces = _Assignment(len(lengths), max_pieces)
    for length, members in _iter_longest_first(lengths):
        begin = 0
        while begin < len(members):
            space = open_blocks.find_space(length)
            if space == 0:
                break
            # Once the tightest block took a piece, it is tighter still. Sequential best fit would choose it
            # again as long as another piece fits, so each block is filled before the next one is considered.
            fitting = space // length
            blocks = open_blocks.pop(space, -(-(len(members) - begin) // fitting))
            num_placed = pieces.assign(members[begin:], blocks, np.full(len(blocks), fitting))
            begin += int(num_placed.sum())
            open_blocks.add(*pieces.select_open(blocks, space - num_placed * length))
        if begin < len(members):
            blocks, num_placed = pieces.assign_to_new(members[begin:], block_size // length)
            open_blocks.add(*pieces.select_open(blocks, block_size - num_placed * length))
    return pieces.block_ids


class _OpenBlocks:
    """Blocks that can take more pieces, grouped by free space. Each group is a queue."""

    def __init__(self, block_size: int) -> None:
        self._blocks_by_space: defaultdict[int, deque[NDArray[np.int64]]] = defaultdict(deque)
        self._has_blocks = np.zeros(block_size + 1, bool)

    def find_space(self, length: int) -> int:
        """Returns the smallest free space of any block that fits `length`; 0 if there is no such block."""
        space = length + int(self._has_blocks[length:].argmax())  # argmax of booleans stops at the first True
        return space if self._has_blocks[space] else 0

    def pop(self, space: int, count: int) -> NDArray[np.int64]:
        """Removes and returns up to `count` blocks with exactly `space` free slots, at least one."""
        queue, parts, missing = self._blocks_by_space[space], [], count
        while queue and missing > 0:
            parts.append(queue[0][:missing])
            queue[0] = queue[0][missing:]
            missing -= len(parts[-1])
            if not len(queue[0]):
                queue.popleft()
        self._has_blocks[space] = len(queue) > 0
        return np.concatenate(parts)

    def add(self, blocks: NDArray[np.int64], space: NDArray[np.int64]) -> None:
        """Adds blocks with their free space; full blocks are ignored."""
        # Nearly all blocks of one call took the same number of pieces, so there are few distinct free spaces.
        for free in np.unique(space[space > 0]).tolist():
            self._blocks_by_space[free].append(blocks[space == free])
            self._has_blocks[free] = True


def first_fit(lengths: NDArray[np.int64], block_size: int, max_pieces: int) -> NDArray[np.int64]:
    """Assigns each piece to the first block with sufficient free space, or else to a new block.

    The arguments and the result are those of `best_fit`.
    """
    pieces = _Assignment(len(lengths), max_pieces)
    space = np.zeros(-(-max(len(lengths), 1) // _CHUNK) * _CHUNK, np.int64)
    # The maximum free space of each chunk of blocks lets the search skip chunks in which nothing fits.
    chunks = space.reshape(-1, _CHUNK)
    max_space = np.zeros(len(chunks), np.int64)
    for length, members in _iter_longest_first(lengths):
        begin = 0
        for selected in _iter_doubling(np.flatnonzero(max_space >= length)):
            blocks = np.flatnonzero(chunks[selected] >= length)
            blocks = selected[blocks // _CHUNK] * _CHUNK + blocks % _CHUNK
            num_placed = pieces.assign(members[begin:], blocks, space[blocks] // length)
            begin += int(num_placed.sum())
            space[blocks] -= num_placed * length
            # A block with the maximum number of pieces counts as full.
            space[blocks[pieces.count[blocks] >= max_pieces]] = 0
            max_space[selected] = chunks[selected].max(axis=1)
            if begin == len(members):
                break
        if begin < len(members):
            blocks, num_placed = pieces.assign_to_new(members[begin:], block_size // length)
            space[blocks] = np.where(pieces.count[blocks] < max_pieces, block_size - num_placed * length, 0)
            changed = slice(int(blocks[0]) // _CHUNK, int(blocks[-1]) // _CHUNK + 1)
            max_space[changed] = chunks[changed].max(axis=1)
    return pieces.block_ids


class _Assignment:
    """Assignment of pieces to blocks.

    Attributes:
        block_ids: block of each piece, shape `(pieces,)`.
        count: number of pieces in each block, shape `(pieces,)`, as there are at most as many blocks as
            pieces.
        num_blocks: number of blocks opened so far.
    """

    def __init__(self, num_pieces: int, max_pieces: int) -> None:
        self.block_ids = np.zeros(num_pieces, np.int64)
        self.count = np.zeros(num_pieces, np.int64)
        self.num_blocks = 0
        self._max_pieces = max_pieces

    def assign(
        self, members: NDArray[np.int64], blocks: NDArray[np.int64], fitting: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Fills the blocks in order with pieces of one length, and returns how many pieces each block takes.

        Args:
            members: indices of the pieces, shape `(members,)`.
            blocks: block numbers, shape `(blocks,)`.
            fitting: number of pieces that fit into the free space of each block, shape `(blocks,)`.
        """
        fitting = np.minimum(fitting, self._max_pieces - self.count[blocks])
        before = np.cumsum(fitting) - fitting
        num_placed: NDArray[np.int64] = np.clip(len(members) - before, 0, fitting)
        self.count[blocks] += num_placed
        self.block_ids[members[: int(num_placed.sum())]] = np.repeat(blocks, num_placed)
        return num_placed

    def assign_to_new(
        self, members: NDArray[np.int64], fitting: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Opens as many blocks as the pieces need; returns the blocks and how many pieces each takes."""
        number = -(-len(members) // min(fitting, self._max_pieces))
        blocks = np.arange(self.num_blocks, self.num_blocks + number)
        self.num_blocks += number
        return blocks, self.assign(members, blocks, np.full(number, fitting))

    def select_open(
        self, blocks: NDArray[np.int64], space: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the blocks below the maximum number of pieces, and their free space."""
        is_open = self.count[blocks] < self._max_pieces
        return blocks[is_open], space[is_open]


def _iter_longest_first(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yields each distinct length, longest first, with the indices of its pieces in ascending order."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order], append=0)) + 1
    begin = 0
    for end in ends.tolist():
        yield int(lengths[order[begin]]), order[begin:end]
        begin = end


def _iter_doubling(items: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yields consecutive parts of an array, each twice as long as the one before.

    Short searches look at few items, and long ones take few steps.
    """
    begin, size = 0, 1
    while begin < len(items):
        yield items[begin : begin + size]
        begin, size = begin + size, 2 * size
