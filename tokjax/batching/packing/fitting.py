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
    pieces = _Pieces(len(lengths), max_pieces)
    for length, members in _longest_first(lengths):
        begin = 0
        while begin < len(members):
            room = open_blocks.least_room(length)
            if room == 0:
                break
            fitting = room // length
            blocks = open_blocks.take(room, -(-(len(members) - begin) // fitting))
            taken = pieces.put(members[begin:], blocks, np.full(len(blocks), fitting))
            begin += int(taken.sum())
            open_blocks.add(*pieces.still_open(blocks, room - taken * length))
        if begin < len(members):
            blocks, taken = pieces.put_in_new(members[begin:], block_size // length)
            open_blocks.add(*pieces.still_open(blocks, block_size - taken * length))
    return pieces.block_of


class _OpenBlocks:
    """Blocks that may take more, by the room that they have; of those with the same room in their order."""

    def __init__(self, block_size: int) -> None:
        self._with_room: defaultdict[int, deque[NDArray[np.int64]]] = defaultdict(deque)
        self._there_are = np.zeros(block_size + 1, bool)

    def least_room(self, length: int) -> int:
        """The least room of a block that is enough for a piece; 0 if there is no such block."""
        room = length + int(self._there_are[length:].argmax())  # (stops at the first one)
        return room if self._there_are[room] else 0

    def take(self, room: int, count: int) -> NDArray[np.int64]:
        """Take out up to `count` blocks with some room, at least one."""
        waiting, found, missing = self._with_room[room], [], count
        while waiting and missing > 0:
            found.append(waiting[0][:missing])
            waiting[0] = waiting[0][missing:]
            missing -= len(found[-1])
            if not len(waiting[0]):
                waiting.popleft()
        self._there_are[room] = len(waiting) > 0
        return np.concatenate(found)

    def add(self, blocks: NDArray[np.int64], room: NDArray[np.int64]) -> None:
        """Note the room that is left in blocks; of most of them it is the same."""
        for left in np.unique(room[room > 0]).tolist():
            self._with_room[left].append(blocks[room == left])
            self._there_are[left] = True


def first_fit(lengths: NDArray[np.int64], block_size: int, max_pieces: int) -> NDArray[np.int64]:
    """Each piece to the first block that has room for it; to a new block if there is none.

    Args and result are those of `best_fit`.
    """
    pieces = _Pieces(len(lengths), max_pieces)
    room = np.zeros(-(-max(len(lengths), 1) // _CHUNK) * _CHUNK, np.int64)
    chunks = room.reshape(-1, _CHUNK)
    most_room = np.zeros(len(chunks), np.int64)
    for length, members in _longest_first(lengths):
        begin = 0
        for some in _doubling(np.flatnonzero(most_room >= length)):
            blocks = np.flatnonzero(chunks[some] >= length)
            blocks = some[blocks // _CHUNK] * _CHUNK + blocks % _CHUNK
            taken = pieces.put(members[begin:], blocks, room[blocks] // length)
            begin += int(taken.sum())
            room[blocks] -= taken * length
            room[blocks[pieces.count[blocks] >= max_pieces]] = 0
            most_room[some] = chunks[some].max(axis=1)
            if begin == len(members):
                break
        if begin < len(members):
            blocks, taken = pieces.put_in_new(members[begin:], block_size // length)
            room[blocks] = np.where(pieces.count[blocks] < max_pieces, block_size - taken * length, 0)
            begun = slice(int(blocks[0]) // _CHUNK, int(blocks[-1]) // _CHUNK + 1)
            most_room[begun] = chunks[begun].max(axis=1)
    return pieces.block_of


class _Pieces:
    """Which block each piece went to, and how many each block has.

    Attributes:
        block_of: the block of each piece, shape `(pieces,)`.
        count: pieces of each block; there are at most as many blocks as pieces.
        num_blocks: how many blocks were begun.
    """

    def __init__(self, num_pieces: int, max_pieces: int) -> None:
        self.block_of = np.zeros(num_pieces, np.int64)
        self.count = np.zeros(num_pieces, np.int64)
        self.num_blocks = 0
        self._most = max_pieces

    def put(
        self, members: NDArray[np.int64], blocks: NDArray[np.int64], fitting: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Fill blocks one after the other with pieces of one length; how many each takes.

        Args:
            members: the pieces.
            blocks: the blocks.
            fitting: for how many pieces each of them has room.
        """
        fitting = np.minimum(fitting, self._most - self.count[blocks])
        before = np.cumsum(fitting) - fitting
        taken: NDArray[np.int64] = np.clip(len(members) - before, 0, fitting)
        self.count[blocks] += taken
        self.block_of[members[: int(taken.sum())]] = np.repeat(blocks, taken)
        return taken

    def put_in_new(
        self, members: NDArray[np.int64], fitting: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Begin as many blocks as pieces of one length need; the blocks, and how many each takes."""
        number = -(-len(members) // min(fitting, self._most))
        blocks = np.arange(self.num_blocks, self.num_blocks + number)
        self.num_blocks += number
        return blocks, self.put(members, blocks, np.full(number, fitting))

    def still_open(
        self, blocks: NDArray[np.int64], room: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The blocks that may take more pieces, and their room."""
        is_open = self.count[blocks] < self._most
        return blocks[is_open], room[is_open]


def _longest_first(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each length that there is, from the greatest, and the pieces that have it, in their order."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order], append=0)) + 1
    begin = 0
    for end in ends.tolist():
        yield int(lengths[order[begin]]), order[begin:end]
        begin = end


def _doubling(items: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Parts of an array, each twice as long as the one before: a few items need few steps, many too."""
    begin, size = 0, 1
    while begin < len(items):
        yield items[begin : begin + size]
        begin, size = begin + size, 2 * size
