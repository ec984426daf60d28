"""Packing plans: the assignment of documents to blocks, computed on the host from lengths alone.

A plan is a table of pieces. A piece is a part of one document, and takes consecutive slots of one block.
Example: three documents of 2, 6 and 2 tokens, blocks of 5 slots, strategy `"concat"` with separators (`|`):

                 block 0           block 1           block 2
    tokens       a0 a1 |  b0 b1    b2 b3 b4 b5 |     c0 c1 .  .  .
    pieces       0        1        2                 3

    documents    [0, 1, 1, 2]      document of each piece
    starts       [0, 0, 2, 0]      its first token within that document
    lengths      [3, 2, 5, 2]      its number of slots
    block_splits [0, 2, 3, 4]      block 0 has pieces 0 and 1, block 1 has piece 2, block 2 has piece 3

Document 1 continues in block 1, as another piece. A separator counts as the last token of its document: it
makes piece 0 and piece 2 longer by one slot. `"concat"` puts none after the last document. Padding (`.`) is
not a piece.

See docs/packing-and-masks.md for drawings of all strategies, and docs/performance.md, section "Packing", for
times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from tokjax._util.arrays import Array, as_integers, is_traced
from tokjax._util.checks import check_bool, check_choice, check_int
from tokjax._util.permutation import permute
from tokjax.core.ragged import make_row_splits
from tokjax.errors import InvalidArgumentError
from tokjax.packing.bin_packing import best_fit, first_fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Strategy: TypeAlias = Literal["concat", "first_fit", "best_fit"]
Overlong: TypeAlias = Literal["error", "split", "truncate"]
_BIN_PACKERS = {"first_fit": first_fit, "best_fit": best_fit}
_MAX_INT32 = int(np.iinfo(np.int32).max)


class PackingPlan(NamedTuple):
    """Assignment of document pieces to blocks: a pytree of arrays, small compared to the tokens.

    `plan_packing` makes plans, and `apply_packing` applies them to rows of tokens. The docstring of this
    module has an example.

    Attributes:
        documents: index of the document of each piece, pieces being sorted by block; `int32`,
            shape `(pieces,)`.
        starts: offset of each piece in its document, in tokens from 0; `int32`, shape `(pieces,)`.
        lengths: number of slots of each piece, its separator included; `int32`, shape `(pieces,)`.
        block_splits: boundaries of blocks: block `i` holds pieces `block_splits[i]` up to, but not including,
            `block_splits[i + 1]`; `int32`, shape `(blocks + 1,)`.
        slots: the numbers 0, 1, 2 and so on; `int32`, shape `(block_size,)`. The shape of this array passes
            the block size to `jax.jit`, where only shapes are static.
        row_tokens: total number of tokens of the documents that the plan was made for; `int64`, shape `()`.
    """

    documents: Array
    starts: Array
    lengths: Array
    block_splits: Array
    slots: Array
    row_tokens: Array

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return int(self.block_splits.shape[0]) - 1

    @property
    def block_size(self) -> int:
        """Number of slots per block."""
        return int(self.slots.shape[0])

    @property
    def total_tokens(self) -> int:
        """Number of tokens in all blocks, with separators and without padding."""
        return int(np.asarray(self.lengths).sum(dtype=np.int64))

    @property
    def fill_rate(self) -> float:
        """Fraction of slots that hold a token, from 0 to 1."""
        return self.total_tokens / (self.num_blocks * self.block_size)

    @property
    def assignments(self) -> NDArray[np.int32]:
        """Block of each piece, `int32`, shape `(pieces,)`."""
        counts = np.diff(np.asarray(self.block_splits))
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    def part(self, first: int, stop: int, *, num_pieces: int | None = None) -> PackingPlan:
        """Returns the plan of a range of blocks, for the same documents.

        Call it to pack a large plan in parts, for example one batch at a time.

        Args:
            first: index of the first block.
            stop: index after the last block.
            num_pieces: number of pieces to pad the part to, with pieces of length 0. Parts of one size and
                one number of pieces have the same shape, so a jitted step compiles once. By default
                pieces are not padded.

        Returns:
            A plan of `stop - first` blocks.

        Raises:
            InvalidArgumentError: the range is empty or out of bounds, or the blocks have more than
                `num_pieces` pieces.
        """
        first, stop = check_int("first", first), check_int("stop", stop)
        if not 0 <= first < stop <= self.num_blocks:
            raise InvalidArgumentError(
                f"the plan has {self.num_blocks} blocks; first={first}, stop={stop} is not a range of them; "
                f"pass 0 <= first < stop <= {self.num_blocks}"
            )
        splits = np.asarray(self.block_splits)[first : stop + 1]
        num_used = int(splits[-1] - splits[0])
        num_padded = num_used if num_pieces is None else check_int("num_pieces", num_pieces)
        if num_used > num_padded:
            raise InvalidArgumentError(
                f"blocks {first} to {stop - 1} have {num_used} pieces, more than {num_padded}; pass at least "
                f"num_pieces={num_used}"
            )
        documents, starts, lengths = (
            np.pad(np.asarray(column)[splits[0] : splits[-1]], (0, num_padded - num_used))
            for column in self[:3]
        )
        return PackingPlan(documents, starts, lengths, splits - splits[0], self.slots, self.row_tokens)

    def __repr__(self) -> str:
        """Returns the number of blocks, pieces and tokens, and the fill rate."""
        if any(is_traced(column) for column in self):
            return f"PackingPlan({self.num_blocks} blocks of {self.block_size}, traced)"
        return (
            f"PackingPlan({self.num_blocks} blocks of {self.block_size}, {len(self.lengths)} pieces, "
            f"{self.total_tokens} tokens, {self.fill_rate:.2%} full)"
        )


def plan_packing(
    lengths: Sequence[int] | Array,
    block_size: int,
    strategy: Strategy = "concat",
    *,
    max_segments: int | None = None,
    overlong: Overlong = "error",
    seed: int | None = None,
    separators: bool = False,
) -> PackingPlan:
    """Assigns documents to blocks, from their lengths alone.

    It runs on the host and is deterministic: every host computes the same plan. Documents without tokens take
    no slots, except for their separators.

    Args:
        lengths: number of tokens of each document, shape `(documents,)`.
        block_size: number of slots per block.
        strategy: `"concat"` concatenates all documents and splits the result into blocks. Only the last block
            has padding, and a document may continue in the next block, as a separate segment. `"first_fit"`
            and `"best_fit"` do not split documents. They place them from the longest to the shortest, each in
            the first block with enough free slots, or in the block with the fewest free slots that are
            enough.
        max_segments: maximum number of pieces per block. `"concat"` cannot respect it, and raises if a block
            has more.
        overlong: treatment of documents that are longer than a block. `"error"` rejects them, `"split"`
            splits them into pieces, and `"truncate"` drops the tokens that do not fit, and the separator.
            `"concat"` splits documents in any case, so `"error"` has the same effect as `"split"` there.
        seed: seed of a shuffle of the documents. `None` does not shuffle: blocks are in the order of their
            first documents.
        separators: reserve a slot after each document for a separator, which counts as part of the document.
            `"concat"` omits it after the last document.

    Returns:
        A plan of at least one block.

    Raises:
        InvalidArgumentError: a document is too long, a block would have more than `max_segments` pieces, an
            option has an invalid value, or `lengths` is traced by `jax.jit`.

    >>> plan_packing([3, 2, 4, 1], 5, "best_fit")
    PackingPlan(2 blocks of 5, 4 pieces, 10 tokens, 100.00% full)
    """
    check_int("block_size", block_size, minimum=1)
    segment_limit = _MAX_INT32 if max_segments is None else check_int("max_segments", max_segments, minimum=1)
    check_choice("strategy", strategy, get_args(Strategy))
    check_choice("overlong", overlong, get_args(Overlong))
    check_bool("separators", separators)
    counts = _check_lengths(lengths, block_size)
    order = np.arange(len(counts))
    if seed is not None:
        order = permute(order, len(counts), check_int("seed", seed))
    slot_counts = counts[order] + int(separators)
    if separators and strategy == "concat":
        slot_counts[-1:] -= 1
    if overlong == "truncate":
        slot_counts = np.minimum(slot_counts, block_size)
    if strategy == "concat":
        pieces = _split_at_blocks(slot_counts, block_size)
        _reject_crowded_blocks(pieces.blocks, segment_limit)
    else:
        if overlong == "error":
            _reject_overlong(counts, block_size, separators)
        pieces = _split_documents(slot_counts, block_size)
        pieces = pieces._replace(blocks=_BIN_PACKERS[strategy](pieces.lengths, block_size, segment_limit))
    return _build_plan(pieces, order, block_size, int(counts.sum()))


class _Pieces(NamedTuple):
    """Table of pieces in the order of documents. Each column has shape `(pieces,)`.

    Attributes:
        documents: index of the document, in the (shuffled) order in which documents are packed.
        starts: offset of the piece in its document.
        lengths: number of slots, at least 1.
        blocks: number of the block.
    """

    documents: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    blocks: NDArray[np.int64]


def _split_at_blocks(slot_counts: NDArray[np.int64], block_size: int) -> _Pieces:
    """Concatenates documents and splits the result at block boundaries."""
    splits = make_row_splits(slot_counts)
    total = int(splits[-1])
    # A piece starts wherever a document or a block starts.
    slots = np.concatenate([splits[:-1], np.arange(0, total, block_size)])
    slots.sort(kind="stable")  # the input is two sorted runs, which a stable sort merges in linear time
    # Drop duplicates (a document that starts with a block) and empty documents: their pieces have length 0.
    slots = slots[np.flatnonzero(np.diff(slots, append=total))]
    documents = np.searchsorted(splits, slots, "right") - 1
    lengths = np.diff(slots, append=total)
    return _Pieces(documents, slots - splits[documents], lengths, slots // block_size)


def _split_documents(slot_counts: NDArray[np.int64], block_size: int) -> _Pieces:
    """Splits each document that is longer than a block. The column `blocks` is filled in by the caller."""
    counts = -(-slot_counts // block_size)
    documents = np.repeat(np.arange(len(slot_counts)), counts)
    first = make_row_splits(counts)[:-1]
    starts = (np.arange(len(documents)) - first[documents]) * block_size
    lengths = np.minimum(slot_counts[documents] - starts, block_size)
    return _Pieces(documents, starts, lengths, np.zeros_like(documents))


def _build_plan(pieces: _Pieces, order: NDArray[np.int64], block_size: int, row_tokens: int) -> PackingPlan:
    """Builds the plan: blocks in the order of their first pieces, and pieces in the order of documents.

    Bin packing opens blocks for the longest documents first. Renumbering restores the order of the documents,
    so that early blocks do not hold the longest ones.
    """
    blocks = pieces.blocks
    num_blocks = int(blocks.max(initial=0)) + 1
    first = np.full(num_blocks, len(blocks))
    # NumPy keeps the last of several values that are assigned to one index. So the order is reversed, and the
    # first piece of each block stays.
    first[blocks[::-1]] = np.arange(len(blocks))[::-1]
    rank = np.empty(num_blocks, np.int64)
    rank[np.argsort(first)] = np.arange(num_blocks)
    blocks = rank[blocks]
    sequence = np.argsort(blocks, kind="stable")
    return PackingPlan(
        documents=order[pieces.documents[sequence]].astype(np.int32),
        starts=pieces.starts[sequence].astype(np.int32),
        lengths=pieces.lengths[sequence].astype(np.int32),
        block_splits=make_row_splits(np.bincount(blocks, minlength=num_blocks)).astype(np.int32),
        slots=np.arange(block_size, dtype=np.int32),
        row_tokens=np.asarray(row_tokens, np.int64),
    )


def _check_lengths(lengths: Sequence[int] | Array, block_size: int) -> NDArray[np.int64]:
    counts = as_integers(
        "lengths",
        lengths,
        np.int64,
        under_jit="plan on the host, and call apply_packing(plan, ragged, pad_id=PAD_ID) there",
    )
    if counts.ndim != 1 or (counts < 0).any():
        raise InvalidArgumentError("lengths must be non-negative integers, shape (documents,)")
    longest = int(counts.max(initial=0))
    if max(longest, len(counts), block_size) >= _MAX_INT32:
        raise InvalidArgumentError(
            f"{len(counts)} documents of up to {longest} tokens in blocks of {block_size} are more than "
            "int32 can count; pack them in parts"
        )
    return counts


def _reject_overlong(counts: NDArray[np.int64], block_size: int, separators: bool) -> None:
    too_long = np.flatnonzero(counts + int(separators) > block_size)
    if len(too_long):
        first = int(too_long[0])
        end = " and its separator" if separators else ""
        raise InvalidArgumentError(
            f"document {first} has {counts[first]} tokens{end}, more than a block of {block_size} holds "
            f"({len(too_long)} such documents); pass overlong='split' or 'truncate', or larger blocks"
        )


def _reject_crowded_blocks(blocks: NDArray[np.int64], segment_limit: int) -> None:
    counts = np.bincount(blocks)
    if counts.max(initial=0) > segment_limit:
        crowded = int(counts.argmax())
        raise InvalidArgumentError(
            f"block {crowded} would hold {counts[crowded]} segments, more than max_segments={segment_limit}; "
            "strategy='first_fit' and strategy='best_fit' respect max_segments"
        )
