"""Which block each piece goes to: whole pieces into as few blocks as can be had, longest first.

Pieces of one length are placed together, in blocks with the same room: the steps in Python are as many as
there are different lengths and rooms, not pieces.
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
    """Each piece to the block with the least room that is enough; to a new block if there is none.

    Args:
        lengths: of the pieces, from 1 to `block_size`, shape `(pieces,)`.
        block_size: places a block.
        max_pieces: how many pieces a block takes at most.

    Returns:
        The block of each piece, counted in the order in which blocks are begun, shape `(pieces,)`.
    """
    open_blocks = _OpenBlocks(block_size)
    pieces = _Assignment(len(lengths), max_pieces)
    for length, members in _iter_longest_first(lengths):
        begin = 0
        while begin < len(members):
            space = open_blocks.find_space(length)
            if space == 0:
                break
            fitting = space // length
            blocks = open_blocks.take(space, -(-(len(members) - begin) // fitting))
            num_placed = pieces.put(members[begin:], blocks, np.full(len(blocks), fitting))
            begin += int(num_placed.sum())
            open_blocks.add(*pieces.select_open(blocks, space - num_placed * length))
        if begin < len(members):
            blocks, num_placed = pieces.put_in_new(members[begin:], block_size // length)
            open_blocks.add(*pieces.select_open(blocks, block_size - num_placed * length))
    return pieces.block_ids


class _OpenBlocks:
    """Blocks that may take more, by the room that they have; of those with the same room in their order."""

    def __init__(self, block_size: int) -> None:
        self._blocks_by_space: defaultdict[int, deque[NDArray[np.int64]]] = defaultdict(deque)
        self._has_blocks = np.zeros(block_size + 1, bool)

    def find_space(self, length: int) -> int:
        """The least room of a block that is enough for a piece; 0 if there is no such block."""
        space = length + int(self._has_blocks[length:].argmax())  # (stops at the first one)
        return space if self._has_blocks[space] else 0

    def take(self, space: int, count: int) -> NDArray[np.int64]:
        """Take out up to `count` blocks with some room, at least one."""
        waiting, found, missing = self._blocks_by_space[space], [], count
        while waiting and missing > 0:
            found.append(waiting[0][:missing])
            waiting[0] = waiting[0][missing:]
            missing -= len(found[-1])
            if not len(waiting[0]):
                waiting.popleft()
        self._has_blocks[space] = len(waiting) > 0
        return np.concatenate(found)

    def add(self, blocks: NDArray[np.int64], space: NDArray[np.int64]) -> None:
        """Note the room that is left in blocks; of most of them it is the same."""
        for left in np.unique(space[space > 0]).tolist():
            self._blocks_by_space[left].append(blocks[space == left])
            self._has_blocks[left] = True


def first_fit(lengths: NDArray[np.int64], block_size: int, max_pieces: int) -> NDArray[np.int64]:
    """Each piece to the first block that has room for it; to a new block if there is none.

    Args and result are those of `best_fit`.
    """
    pieces = _Assignment(len(lengths), max_pieces)
    space = np.zeros(-(-max(len(lengths), 1) // _CHUNK) * _CHUNK, np.int64)
    chunks = space.reshape(-1, _CHUNK)
    max_space = np.zeros(len(chunks), np.int64)
    for length, members in _iter_longest_first(lengths):
        begin = 0
        for some in _iter_doubling(np.flatnonzero(max_space >= length)):
            blocks = np.flatnonzero(chunks[some] >= length)
            blocks = some[blocks // _CHUNK] * _CHUNK + blocks % _CHUNK
            num_placed = pieces.put(members[begin:], blocks, space[blocks] // length)
            begin += int(num_placed.sum())
            space[blocks] -= num_placed * length
            space[blocks[pieces.count[blocks] >= max_pieces]] = 0
            max_space[some] = chunks[some].max(axis=1)
            if begin == len(members):
                break
        if begin < len(members):
            blocks, num_placed = pieces.put_in_new(members[begin:], block_size // length)
            space[blocks] = np.where(pieces.count[blocks] < max_pieces, block_size - num_placed * length, 0)
            begun = slice(int(blocks[0]) // _CHUNK, int(blocks[-1]) // _CHUNK + 1)
            max_space[begun] = chunks[begun].max(axis=1)
    return pieces.block_ids


class _Assignment:
    """Which block each piece went to, and how many each block has.

    Attributes:
        block_ids: the block of each piece, shape `(pieces,)`.
        count: pieces of each block; there are at most as many blocks as pieces.
        num_blocks: how many blocks were begun.
    """

    def __init__(self, num_pieces: int, max_pieces: int) -> None:
        self.block_ids = np.zeros(num_pieces, np.int64)
        self.count = np.zeros(num_pieces, np.int64)
        self.num_blocks = 0
        self._max_pieces = max_pieces

    def put(
        self, members: NDArray[np.int64], blocks: NDArray[np.int64], fitting: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Fill blocks one after the other with pieces of one length; how many each takes.

        Args:
            members: the pieces.
            blocks: the blocks.
            fitting: for how many pieces each of them has room.
        """
        fitting = np.minimum(fitting, self._max_pieces - self.count[blocks])
        before = np.cumsum(fitting) - fitting
        num_placed: NDArray[np.int64] = np.clip(len(members) - before, 0, fitting)
        self.count[blocks] += num_placed
        self.block_ids[members[: int(num_placed.sum())]] = np.repeat(blocks, num_placed)
        return num_placed

    def put_in_new(
        self, members: NDArray[np.int64], fitting: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Begin as many blocks as pieces of one length need; the blocks, and how many each takes."""
        number = -(-len(members) // min(fitting, self._max_pieces))
        blocks = np.arange(self.num_blocks, self.num_blocks + number)
        self.num_blocks += number
        return blocks, self.put(members, blocks, np.full(number, fitting))

    def select_open(
        self, blocks: NDArray[np.int64], space: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The blocks that may take more pieces, and their room."""
        is_open = self.count[blocks] < self._max_pieces
        return blocks[is_open], space[is_open]


def _iter_longest_first(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each length that there is, from the greatest, and the pieces that have it, in their order."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order], append=0)) + 1
    begin = 0
    for end in ends.tolist():
        yield int(lengths[order[begin]]), order[begin:end]
        begin = end


def _iter_doubling(items: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Parts of an array, each twice as long as the one before: a few items need few steps, many too."""
    begin, size = 0, 1
    while begin < len(items):
        yield items[begin : begin + size]
        begin, size = begin + size, 2 * size
