"""What goes into which block, decided on the host from lengths alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from tokjax._util.arrays import Array, as_integers, is_traced
from tokjax._util.checks import check_int
from tokjax._util.permutation import permute
from tokjax.core.ragged import make_row_splits
from tokjax.errors import InvalidArgumentError
from tokjax.packing.bin_packing import best_fit, first_fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Strategy: TypeAlias = Literal["concat", "first_fit", "best_fit"]
Overlong: TypeAlias = Literal["error", "split", "truncate"]
_FITTERS = {"first_fit": first_fit, "best_fit": best_fit}
_MAX_INT32 = int(np.iinfo(np.int32).max)


class PackingPlan(NamedTuple):
    """Which piece of which document stands where: a pytree of arrays, small beside the tokens.

    Attributes:
        documents: the document that each piece is of, in the order of blocks; `int32`, `(pieces,)`.
        starts: where the piece starts in its document, in tokens from 0; `int32`, `(pieces,)`.
        lengths: places that the piece takes; one past the document's last token is its separator; `int32`,
            `(pieces,)`.
        block_splits: block `i` has the pieces from `block_splits[i]` to `block_splits[i + 1]`; `int32`,
            `(blocks + 1,)`.
        slots: the places of a block, 0, 1, 2 and so on; `int32`, `(block_size,)`. (They carry the block's
            size into `jax.jit`, where only shapes are known.)
        row_tokens: tokens of all documents that the plan was made for; `int64`, shape `()`.
    """

    documents: Array
    starts: Array
    lengths: Array
    block_splits: Array
    slots: Array
    row_tokens: Array

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return int(self.block_splits.shape[0]) - 1

    @property
    def block_size(self) -> int:
        """Places a block."""
        return int(self.slots.shape[0])

    @property
    def total_tokens(self) -> int:
        """Tokens in all blocks, separators too, padding not."""
        return int(np.asarray(self.lengths).sum(dtype=np.int64))

    @property
    def fill_rate(self) -> float:
        """The share of places that hold a token."""
        return self.total_tokens / (self.num_blocks * self.block_size)

    @property
    def assignments(self) -> NDArray[np.int32]:
        """The block of each piece, `int32`, shape `(pieces,)`."""
        counts = np.diff(np.asarray(self.block_splits))
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    def part(self, first: int, stop: int, *, num_pieces: int | None = None) -> PackingPlan:
        """The plan of some of the blocks, which takes from the same documents.

        Args:
            first: the first block.
            stop: one past the last.
            num_pieces: fill up to so many pieces with ones that take no place, so that all parts have one
                shape and a jitted step compiles once.

        Raises:
            InvalidArgumentError: there are no such blocks, or they have more pieces.
        """
        first, stop = check_int("first", first), check_int("stop", stop)
        if not 0 <= first < stop <= self.num_blocks:
            raise InvalidArgumentError(
                f"the plan has {self.num_blocks} blocks; first={first}, stop={stop} are none of them"
            )
        splits = np.asarray(self.block_splits)[first : stop + 1]
        found = int(splits[-1] - splits[0])
        wanted = found if num_pieces is None else check_int("num_pieces", num_pieces)
        if found > wanted:
            raise InvalidArgumentError(
                f"blocks {first} to {stop - 1} have {found} pieces, more than {wanted}"
            )
        documents, starts, lengths = (
            np.pad(np.asarray(column)[splits[0] : splits[-1]], (0, wanted - found)) for column in self[:3]
        )
        return PackingPlan(documents, starts, lengths, splits - splits[0], self.slots, self.row_tokens)

    def __repr__(self) -> str:
        """How much there is, and how full the blocks are."""
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
    """Decide what goes where, from lengths alone. Runs on the host, the same on every one.

    Documents without a token take no part, but for their separators.

    Args:
        lengths: tokens of each document, shape `(documents,)`.
        block_size: places a block.
        strategy: `"concat"` joins all documents and cuts the result into blocks, so nearly nothing is wasted,
            and a document may go on in the next block (as a segment of its own there). `"first_fit"` and
            `"best_fit"` keep documents whole: they are placed from the longest to the shortest, each in the
            first block that has room, or in the one with the least room that is enough.
        max_segments: how many pieces a block takes at most. `"concat"` can't keep to it, and refuses if it is
            exceeded.
        overlong: what becomes of documents longer than a block: `"error"` refuses them, `"split"` cuts them
            into pieces, `"truncate"` drops what is too much, the separator with it. (With `"concat"`, which
            cuts documents in any case, `"error"` is as `"split"`.)
        seed: shuffle the documents first; `None` keeps blocks in the order of their first documents.
        separators: leave a place after each document, which counts as its end; with `"concat"` none after
            the last.

    Returns:
        A plan of at least one block.

    Raises:
        InvalidArgumentError: a document is too long, blocks would have too many segments, or options make no
            sense.

    >>> plan_packing([3, 2, 4, 1], 5, "best_fit")
    PackingPlan(2 blocks of 5, 4 pieces, 10 tokens, 100.00% full)
    """
    check_int("block_size", block_size, minimum=1)
    segment_limit = _MAX_INT32 if max_segments is None else check_int("max_segments", max_segments, minimum=1)
    if strategy not in get_args(Strategy):
        raise InvalidArgumentError(f"strategy must be one of {_format_choices(Strategy)}, not {strategy!r}")
    if overlong not in get_args(Overlong):
        raise InvalidArgumentError(f"overlong must be one of {_format_choices(Overlong)}, not {overlong!r}")
    counts = _check_lengths(lengths, block_size)
    order = np.arange(len(counts))
    if seed is not None:
        order = permute(order, len(counts), check_int("seed", seed))
    needed = counts[order] + int(separators)
    if separators and strategy == "concat":
        needed[-1:] -= 1
    if overlong == "truncate":
        needed = np.minimum(needed, block_size)
    if strategy == "concat":
        pieces = _split_at_blocks(needed, block_size)
        _reject_crowded_blocks(pieces.blocks, segment_limit)
    else:
        if overlong == "error":
            _reject_overlong(counts, block_size, separators)
        pieces = _split_documents(needed, block_size)
        pieces = pieces._replace(blocks=_FITTERS[strategy](pieces.lengths, block_size, segment_limit))
    return _build_plan(pieces, order, block_size, int(counts.sum()))


class _Pieces(NamedTuple):
    """Pieces of documents, in their order: each column of shape `(pieces,)`.

    Attributes:
        documents: which document, in the order in which they are packed.
        starts: where the piece starts in it.
        lengths: places that it takes, at least 1.
        blocks: the block that it goes to.
    """

    documents: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    blocks: NDArray[np.int64]


def _split_at_blocks(needed: NDArray[np.int64], block_size: int) -> _Pieces:
    """Documents end to end, cut where a block is full."""
    splits = make_row_splits(needed)
    total = int(splits[-1])
    slots = np.concatenate([splits[:-1], np.arange(0, total, block_size)])
    slots.sort(kind="stable")  # (two rising runs: merged, not sorted)
    slots = slots[np.flatnonzero(np.diff(slots, append=total))]
    documents = np.searchsorted(splits, slots, "right") - 1
    lengths = np.diff(slots, append=total)
    return _Pieces(documents, slots - splits[documents], lengths, slots // block_size)


def _split_documents(needed: NDArray[np.int64], block_size: int) -> _Pieces:
    """Each document by itself, cut where it is longer than a block; the blocks are not known yet."""
    counts = -(-needed // block_size)
    documents = np.repeat(np.arange(len(needed)), counts)
    first = make_row_splits(counts)[:-1]
    starts = (np.arange(len(documents)) - first[documents]) * block_size
    lengths = np.minimum(needed[documents] - starts, block_size)
    return _Pieces(documents, starts, lengths, np.zeros_like(documents))


def _build_plan(pieces: _Pieces, order: NDArray[np.int64], block_size: int, row_tokens: int) -> PackingPlan:
    """The plan: blocks in the order of their first pieces, pieces in theirs."""
    blocks = pieces.blocks
    num_blocks = int(blocks.max(initial=0)) + 1
    first = np.full(num_blocks, len(blocks))
    # The last value that is written stays: the first piece.
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
    if is_traced(lengths):
        raise InvalidArgumentError(
            "plan_packing needs the lengths themselves, which are not known under jax.jit; plan on the "
            "host, and call apply_packing(plan, ragged, pad_id=PAD_ID) inside"
        )
    counts = as_integers("lengths", lengths, np.int64)
    if counts.ndim != 1 or (counts < 0).any():
        raise InvalidArgumentError("lengths must be integers from 0, shape (documents,)")
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
        which = int(too_long[0])
        end = " and its separator" if separators else ""
        raise InvalidArgumentError(
            f"document {which} has {counts[which]} tokens{end}, more than a block of {block_size} holds "
            f"({len(too_long)} such documents); pass overlong='split' or 'truncate', or larger blocks"
        )


def _reject_crowded_blocks(blocks: NDArray[np.int64], segment_limit: int) -> None:
    found = np.bincount(blocks)
    if found.max(initial=0) > segment_limit:
        crowded = int(found.argmax())
        raise InvalidArgumentError(
            f"block {crowded} would hold {found[crowded]} segments, more than max_segments={segment_limit}; "
            "strategy='first_fit' and 'best_fit' keep to it"
        )


def _format_choices(choices: object) -> str:
    return ", ".join(map(repr, get_args(choices)))
