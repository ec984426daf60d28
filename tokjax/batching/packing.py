"""Packing: many short rows into blocks of one size, with nothing wasted but the last block's tail.

A plan is made on the host from lengths alone; applying it to arrays is one gather, which jits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax._checks import check_id, checked_int
from tokjax._namespace import Array, as_int32, as_integers, is_traced, namespace
from tokjax.batching._inputs import as_ragged
from tokjax.errors import InvalidArgumentError
from tokjax.ragged import splits_from_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.ragged import Ragged
    from tokjax.records import Results

Strategy: TypeAlias = Literal["concat"]
PADDING, SEPARATOR = -1, -2
"""What stands in a plan's `source` where no token of a row does."""


class PackingPlan(NamedTuple):
    """Where each place of each block takes its token from: a pytree of `int32` arrays.

    Attributes:
        source: the index into the flat ids, -1 on padding, -2 on a separator; `(blocks, block_size)`.
        segment_ids: which document of the block, from 1, 0 on padding; `(blocks, block_size)`.
        positions: the place within the segment, from 0, 0 on padding; `(blocks, block_size)`.
        document_ids: which row of the input, -1 on padding; `(blocks, block_size)`.
        total_tokens: tokens in all blocks, separators too, padding not; shape `()`.
        row_tokens: tokens of all rows that the plan was made for; shape `()`.
    """

    source: Array
    segment_ids: Array
    positions: Array
    document_ids: Array
    total_tokens: Array
    row_tokens: Array

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return int(self.source.shape[0])

    @property
    def fill_rate(self) -> float:
        """The share of places that hold a token."""
        return float(self.total_tokens) / max(self.source.size, 1)


class PackedBlocks(NamedTuple):
    """Blocks of packed tokens, ready for a device: a pytree of `int32` arrays.

    Attributes:
        ids: `(blocks, block_size)`, the pad id on padding.
        attention_mask: `(blocks, block_size)`, 1 on tokens and 0 on padding.
        segment_ids: `(blocks, block_size)`, the documents of a block from 1, 0 on padding.
        positions: `(blocks, block_size)`, from 0 at the start of each segment.
        document_ids: `(blocks, block_size)`, which row of the input, -1 on padding.
        total_tokens: tokens in all blocks, separators too, padding not; shape `()`.
    """

    ids: Array
    attention_mask: Array
    segment_ids: Array
    positions: Array
    document_ids: Array
    total_tokens: Array


def plan_packing(
    lengths: Sequence[int] | Array,
    block_size: int,
    strategy: Strategy = "concat",
    *,
    separators: bool = False,
) -> PackingPlan:
    """Decide what goes where, from lengths alone. Runs on the host.

    Args:
        lengths: tokens of each document, shape `(documents,)`.
        block_size: places a block.
        strategy: `"concat"` joins all documents and cuts the result into blocks, so a document may go on in
            the next block (as a segment of its own there).
        separators: leave a place after each document but the last, which counts as its end.

    Returns:
        At least one block; the last is padded at its end.

    >>> plan_packing([3, 2], 4).segment_ids
    array([[1, 1, 1, 2],
           [1, 0, 0, 0]], dtype=int32)
    """
    checked_int("block_size", block_size, least=1)
    if strategy != "concat":
        raise InvalidArgumentError(f"strategy must be 'concat', not {strategy!r}")
    if is_traced(lengths):
        raise InvalidArgumentError(
            "plan_packing needs the lengths themselves, which are not known under jax.jit; plan on the "
            "host, and call apply_packing(plan, ragged, pad_id=PAD_ID) inside"
        )
    counts = as_integers("lengths", lengths, np.int64)
    if counts.ndim != 1 or (counts < 0).any():
        raise InvalidArgumentError("lengths must be integers from 0, shape (documents,)")
    places = counts.copy()
    if separators:
        places[:-1] += 1
    if float(places.sum(dtype=np.float64)) + block_size > np.iinfo(np.int32).max:
        raise InvalidArgumentError(
            f"{places.sum(dtype=np.float64):.0f} tokens in blocks of {block_size} are more than int32 can "
            "count; pack them in parts"
        )
    total = int(places.sum())
    num_blocks = max(1, -(-total // block_size))
    document = np.repeat(np.arange(len(counts), dtype=np.int32), places)
    within = np.arange(total) - np.repeat(splits_from_lengths(places)[:-1], places)
    flat = np.repeat(splits_from_lengths(counts)[:-1], places) + within
    source = np.where(within < counts[document], flat, SEPARATOR)

    def blocks(values: Array, fill: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        padded = np.full(num_blocks * block_size, fill, np.int32)
        padded[:total] = values
        return padded.reshape(num_blocks, block_size)

    document_ids = blocks(document, -1)
    starts = np.ones(document_ids.shape, bool)
    starts[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    present = document_ids >= 0
    column = np.arange(block_size, dtype=np.int32)
    first = np.maximum.accumulate(np.where(starts, column, 0), axis=1)
    return PackingPlan(
        source=blocks(source, PADDING),
        segment_ids=np.where(present, np.cumsum(starts, axis=1), 0).astype(np.int32),
        positions=np.where(present, column - first, 0).astype(np.int32),
        document_ids=document_ids,
        total_tokens=np.asarray(total, np.int32),
        row_tokens=np.asarray(counts.sum(), np.int32),
    )


def apply_packing(
    plan: PackingPlan, ragged: Ragged, *, pad_id: int, eos_id: int | None = None
) -> PackedBlocks:
    """Carry out a plan: one gather, which runs under `jax.jit`.

    Args:
        plan: made by `plan_packing` from the lengths of these rows.
        ragged: the rows, as NumPy or JAX arrays.
        pad_id: the id on padding.
        eos_id: the id on separators; needed if the plan has any. (Where the plan itself is an argument of a
            jitted function, that can't be checked, and separators would get the pad id.)

    Returns:
        Arrays of shape `(blocks, block_size)`, of the kind that was given.
    """
    check_id("pad_id", pad_id)
    _check_fit(plan, ragged, eos_id)
    xp = namespace(*plan, *ragged)
    plan = PackingPlan(*map(xp.asarray, plan))
    padding = xp.asarray(pad_id, dtype=np.int32)
    separator = padding if eos_id is None else xp.asarray(eos_id, dtype=np.int32)
    ids = xp.where(plan.source == np.int32(SEPARATOR), separator, padding)
    if ragged.ids.shape[0]:
        taken = as_int32("ids", xp.take(ragged.ids, xp.maximum(plan.source, np.int32(0)), axis=0))
        ids = xp.where(plan.source >= np.int32(0), taken, ids)
    attention_mask = (plan.source != np.int32(PADDING)).astype(np.int32)
    return PackedBlocks(ids, attention_mask, *plan[1:5])


def pack_blocks(
    results: Results,
    *,
    block_size: int,
    pad_id: int,
    eos_id: int | None = None,
    strategy: Strategy = "concat",
) -> PackedBlocks:
    """Join results, cut them into blocks, and pad the tail.

    Args:
        results: a `TokenizationBatch`, a `Ragged`, or a list of `TokenizationResult`s; none at all gives
            one block of padding.
        block_size: places a block.
        pad_id: the id on padding.
        eos_id: an id to put between results, and not after the last; by default none is.
        strategy: as in `plan_packing`.

    Returns:
        Arrays of shape `(blocks, block_size)`.

    >>> from tokjax.ragged import ragged_from_rows
    >>> pack_blocks(ragged_from_rows([[3, 6, 7], [8]]), block_size=4, pad_id=1, eos_id=4).ids
    array([[3, 6, 7, 4],
           [8, 1, 1, 1]], dtype=int32)
    """
    ragged = as_ragged(results)
    plan = plan_packing(ragged.lengths, block_size, strategy, separators=eos_id is not None)
    return apply_packing(plan, ragged, pad_id=pad_id, eos_id=eos_id)


def _check_fit(plan: PackingPlan, ragged: Ragged, eos_id: int | None) -> None:
    """Refuse a plan for other rows, or without an id for its separators, where its values are known."""
    if eos_id is not None:
        check_id("eos_id", eos_id)
    if is_traced(plan.source) or is_traced(plan.row_tokens):
        return
    if int(plan.row_tokens) != ragged.ids.shape[0]:
        raise InvalidArgumentError(
            f"the plan was made for rows of {int(plan.row_tokens)} tokens in all, and these have "
            f"{ragged.ids.shape[0]}; plan with the lengths of these rows"
        )
    if eos_id is None and bool((plan.source == np.int32(SEPARATOR)).any()):
        raise InvalidArgumentError("the plan has separators: pass eos_id, the id that stands there")
