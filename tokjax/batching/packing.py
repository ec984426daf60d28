"""Packing: many short rows into blocks of one size, with next to nothing wasted.

A plan is made on the host from lengths alone; applying it to arrays is one gather, which jits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax._arrays import take_or_fill
from tokjax._checks import check_id
from tokjax._namespace import as_int32, is_traced, namespace
from tokjax.batching._inputs import as_ragged
from tokjax.batching.blocks import PackedBlocks
from tokjax.batching.plans import PackingPlan, plan_packing
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tokjax.batching.plans import Overlong, Strategy
    from tokjax.ragged import Ragged
    from tokjax.records import Results

_PLACES_AT_ONCE = 1 << 18

Positions: TypeAlias = Literal["segment", "document"]


def apply_packing(
    plan: PackingPlan,
    results: Results,
    *,
    pad_id: int,
    eos_id: int | None = None,
    positions: Positions = "segment",
) -> PackedBlocks:
    """Carry out a plan: one gather, which runs under `jax.jit`.

    Args:
        plan: made by `plan_packing` from the lengths of these rows, or a part of it.
        results: the rows: a `Ragged` of NumPy or JAX arrays, a `TokenizationBatch`, or a list of
            `TokenizationResult`s.
        pad_id: the id on padding.
        eos_id: the id on separators; needed if the plan has any. (Where the plan itself is an argument of a
            jitted function, that can't be checked, and separators would get the pad id.)
        positions: whether they count from the start of each segment, or from that of its document, which may
            have begun in another block.

    Returns:
        Arrays of shape `(blocks, block_size)`, of the kind that was given.

    Raises:
        InvalidArgumentError: the plan is for other rows, or an id is missing.
    """
    if not isinstance(plan, PackingPlan):
        raise InvalidArgumentError(f"plan must be what plan_packing gives, not a {type(plan).__name__}")
    check_id("pad_id", pad_id)
    ragged = as_ragged(results)
    _check_fit(plan, ragged, eos_id)
    if positions not in ("segment", "document"):
        raise InvalidArgumentError(f"positions must be 'segment' or 'document', not {positions!r}")
    xp = namespace(*plan[:5], *ragged, pad_id, eos_id)
    dtype = _index_dtype(xp, plan, ragged)
    fill = _on_host if xp is np else _traced
    return fill(plan, ragged, _runs_of(xp, plan, ragged, dtype, positions), pad_id, eos_id)


def pack_blocks(
    results: Results,
    *,
    block_size: int,
    pad_id: int,
    eos_id: int | None = None,
    strategy: Strategy = "concat",
    max_segments: int | None = None,
    overlong: Overlong = "error",
    seed: int | None = None,
    positions: Positions = "segment",
) -> PackedBlocks:
    """Pack results into blocks: `plan_packing` and `apply_packing` together.

    Args:
        results: a `TokenizationBatch`, a `Ragged`, or a list of `TokenizationResult`s; none at all gives
            one block of padding.
        block_size: places a block.
        pad_id: the id on padding.
        eos_id: an id to put after each result (with `"concat"` not after the last); by default none is.
        strategy: as in `plan_packing`.
        max_segments: as in `plan_packing`.
        overlong: as in `plan_packing`.
        seed: as in `plan_packing`.
        positions: as in `apply_packing`.

    Returns:
        Arrays of shape `(blocks, block_size)`.

    >>> from tokjax.ragged import ragged_from_rows
    >>> pack_blocks(ragged_from_rows([[3, 6, 7], [8]]), block_size=4, pad_id=1, eos_id=4).ids
    array([[3, 6, 7, 4],
           [8, 1, 1, 1]], dtype=int32)
    """
    ragged = as_ragged(results)
    plan = plan_packing(
        ragged.lengths,
        block_size,
        strategy,
        max_segments=max_segments,
        overlong=overlong,
        seed=seed,
        separators=eos_id is not None,
    )
    return apply_packing(plan, ragged, pad_id=pad_id, eos_id=eos_id, positions=positions)


class _Runs(NamedTuple):
    """What stands in a run of places, a piece or the padding of a block: each column of shape `(runs,)`.

    A column that grows along the run holds what is to be added to the place, counted through all blocks.

    Attributes:
        length: places.
        document: the row of the input, -1 on padding.
        segment: the number of the piece in its block, from 1, 0 on padding.
        source: where the place's token stands in the flat ids; grows.
        end: the place where the document has ended: what lies behind is a separator.
        position: the place within the segment or document; grows.
    """

    length: Any
    document: Any
    segment: Any
    source: Any
    end: Any
    position: Any


def _runs_of(
    xp: Any, plan: PackingPlan, ragged: Ragged, dtype: type[np.integer[Any]], positions: Positions
) -> _Runs:
    """All pieces and paddings, in the order of places."""
    documents, starts, lengths, splits = (xp.asarray(column).astype(dtype) for column in plan[:4])
    row_splits = xp.asarray(ragged.row_splits)
    number = xp.arange(documents.shape[0], dtype=dtype)
    block = (xp.searchsorted(splits, number, side="right") - 1).astype(dtype)
    up_to = xp.concatenate([xp.zeros(1, dtype), xp.cumsum(lengths, dtype=dtype)])
    padding = plan.block_size - (up_to[splits[1:]] - up_to[splits[:-1]])
    # A block's padding comes after its pieces, so a piece has the paddings of earlier blocks before it.
    order = xp.argsort(xp.concatenate([number + block, splits[1:] + xp.arange(plan.num_blocks, dtype=dtype)]))

    def merged(of_pieces: Any, of_paddings: Any) -> Any:
        filling = xp.broadcast_to(xp.asarray(of_paddings, dtype=dtype), padding.shape)
        return xp.concatenate([of_pieces, filling])[order]

    length = merged(lengths, padding)
    place = xp.cumsum(length, dtype=dtype) - length
    source = merged(_bounds(xp, row_splits, documents, dtype) + starts, 0) - place
    return _Runs(
        length=length,
        document=merged(documents, -1),
        segment=merged(number - splits[block] + 1, 0),
        source=source,
        end=merged(_bounds(xp, row_splits, documents + 1, dtype), 0) - source,
        position=merged(starts if positions == "document" else xp.zeros_like(starts), 0) - place,
    )


def _bounds(xp: Any, row_splits: Any, rows: Any, dtype: type[np.integer[Any]]) -> Any:
    """Where rows begin. A part that was filled up has pieces of no place, whose row need not be there."""
    return xp.take(row_splits, rows, mode="clip").astype(dtype)


def _traced(plan: PackingPlan, ragged: Ragged, runs: _Runs, pad_id: int, eos_id: int | None) -> PackedBlocks:
    """The blocks, as `jax.jit` takes it: each place looks up the run that it is in."""
    xp = namespace(*runs)
    shape = plan.num_blocks, plan.block_size
    size = plan.num_blocks * plan.block_size
    which = xp.repeat(xp.arange(runs.length.shape[0]), runs.length, total_repeat_length=size)
    runs = _Runs(*(column[which] for column in runs))
    place = xp.arange(size, dtype=np.int32)
    present = runs.segment > 0
    is_token = present & (place < runs.end)
    ids = take_or_fill("ids", ragged.ids, place + runs.source, is_token, pad_id)
    if eos_id is not None:
        ids = xp.where(present & ~is_token, xp.asarray(eos_id, dtype=np.int32), ids)
    return PackedBlocks(
        ids=ids.reshape(shape),
        attention_mask=present.astype(np.int32).reshape(shape),
        segment_ids=runs.segment.reshape(shape),
        positions=xp.where(present, place + runs.position, np.int32(0)).reshape(shape),
        document_ids=runs.document.reshape(shape),
        total_tokens=present.sum(dtype=np.int32),
    )


def _on_host(plan: PackingPlan, ragged: Ragged, runs: _Runs, pad_id: int, eos_id: int | None) -> PackedBlocks:
    """The same in fewer passes: runs are spread, and what differs in few places is put there.

    A few blocks at a time, so that what is made on the way stays in the cache.
    """
    columns = np.empty((5, plan.num_blocks, plan.block_size), np.int32)
    step = max(_PLACES_AT_ONCE // plan.block_size, 1)
    for first in range(0, plan.num_blocks, step):
        blocks = slice(first, min(first + step, plan.num_blocks))
        # A block's runs are its pieces and one of padding.
        begin, end = (int(plan.block_splits[block]) + block for block in (blocks.start, blocks.stop))
        some = _Runs(*(column[begin:end] for column in runs))
        _fill_some(columns[:, blocks].reshape(5, -1), first * plan.block_size, ragged, some, pad_id, eos_id)
    ids, present, segments, positions, documents = columns
    total = np.asarray(present.sum(dtype=np.int32))
    return PackedBlocks(ids, present, segments, positions, documents, total)


def _fill_some(
    columns: Any, first_place: int, ragged: Ragged, runs: _Runs, pad_id: int, eos_id: int | None
) -> None:
    """Write what stands in some runs, from one place on, to columns of shape `(5, places)`."""
    ids, present, segments, positions, documents = columns
    place = np.arange(first_place, first_place + len(ids), dtype=runs.length.dtype)
    index = np.repeat(runs.source, runs.length)
    index += place
    ids[:] = as_int32("ids", np.take(ragged.ids, index, mode="clip")) if ragged.ids.shape[0] else 0
    segments[:] = np.repeat(runs.segment, runs.length)
    is_padding = segments == 0
    np.copyto(ids, np.int32(pad_id), where=is_padding)
    if eos_id is not None:
        ends = (np.cumsum(runs.length) - 1)[runs.segment > 0]
        ids[ends[ends + first_place >= runs.end[runs.segment > 0]]] = eos_id
    np.add(np.repeat(runs.position, runs.length), place, out=positions, casting="unsafe")
    np.copyto(positions, np.int32(0), where=is_padding)
    np.logical_not(is_padding, out=present, casting="unsafe")
    documents[:] = np.repeat(runs.document, runs.length)


def _index_dtype(xp: Any, plan: PackingPlan, ragged: Ragged) -> type[np.integer[Any]]:
    """What counts places and flat ids: `int32`, but where the host has more of them."""
    most, size = np.iinfo(np.int32).max, plan.num_blocks * plan.block_size
    if size > most:
        raise InvalidArgumentError(
            f"{size} places are more than int32 can count; apply plan.part(first, stop) by and by"
        )
    fits = ragged.ids.shape[0] + size <= most
    return np.int32 if fits or xp is not np else np.int64


def _check_fit(plan: PackingPlan, ragged: Ragged, eos_id: int | None) -> None:
    """Refuse a plan for other rows, or without an id for its separators, where its values are known."""
    if eos_id is not None:
        check_id("eos_id", eos_id)
    if any(map(is_traced, plan)):
        return
    planned, tokens = int(plan.row_tokens), ragged.ids.shape[0]
    if not is_traced(ragged.row_splits):
        tokens = int(ragged.row_splits[-1])
    if planned != tokens:
        raise InvalidArgumentError(
            f"the plan was made for rows of {planned} tokens in all, and these have {tokens}; "
            "plan with the lengths of these rows (and under jax.jit, where row_splits are not known, cut off "
            "ids that are of no row)"
        )
    if is_traced(ragged.row_splits):
        return
    pieces = slice(int(plan.block_splits[-1]))
    documents = np.asarray(plan.documents)[pieces]
    if documents.max(initial=-1) >= ragged.num_rows:
        raise InvalidArgumentError(
            f"the plan places document {documents.max()}, and there are {ragged.num_rows} rows; plan with "
            "the lengths of these rows"
        )
    ends = np.asarray(plan.starts)[pieces] + np.asarray(plan.lengths)[pieces]
    row_splits = np.asarray(ragged.row_splits)
    past_end = ends - (row_splits[documents + 1] - row_splits[documents])
    if (past_end > 1).any():
        raise InvalidArgumentError("the plan was made for longer rows; plan with the lengths of these rows")
    if eos_id is None and (past_end > 0).any():
        raise InvalidArgumentError("the plan has separators: pass eos_id, the id that stands there")
