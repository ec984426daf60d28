"""Packing: many short rows into blocks of one size, with next to nothing wasted.

A plan is made on the host from lengths alone; applying it to arrays is one gather, which jits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    as_mask,
    get_namespace,
    is_jax,
    is_traced,
    take_or_fill,
    to_host,
)
from tokjax._util.checks import check_id
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import Ragged
from tokjax.errors import InvalidArgumentError
from tokjax.packing.blocks import PackedBlocks
from tokjax.packing.plans import PackingPlan, plan_packing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.core.records import Results, TokenizationResult
    from tokjax.packing.plans import Overlong, Strategy


_SLOTS_PER_STEP = 1 << 18

Positions: TypeAlias = Literal["segment", "document"]


def apply_packing(
    plan: PackingPlan,
    results: Results | Sequence[Chat],
    *,
    pad_id: int,
    eos_id: int | None = None,
    positions: Positions = "segment",
    loss_mask: LossMask | None = None,
) -> PackedBlocks:
    """Carry out a plan: one gather, which runs under `jax.jit`.

    Args:
        plan: made by `plan_packing` from the lengths of these rows, or a part of it.
        results: the rows: a `Ragged` of NumPy or JAX arrays, a `TokenizationBatch`, or a list of
            `TokenizationResult`s, or of the `EncodedChat`s of `encode_chat`, whose masks become the loss
            mask.
        pad_id: the id on padding.
        eos_id: the id on separators; needed if the plan has any. (Where the plan itself is an argument of a
            jitted function, that can't be checked, and separators would get the pad id.)
        positions: whether they count from the start of each segment, or from that of its document, which may
            have begun in another block.
        loss_mask: not 0 on the tokens that count as targets: an array of shape `(n,)` beside the ids of all
            rows, a `Ragged` or a list with one row for each (in a jitted function: an array). A separator
            counts if the token before it does. By default the blocks have no loss mask.

    Returns:
        Arrays of shape `(blocks, block_size)`, of the kind that was given.

    Raises:
        InvalidArgumentError: the plan or the loss mask is for other rows, or an id is missing.
    """
    if not isinstance(plan, PackingPlan):
        raise InvalidArgumentError(f"plan must be what plan_packing gives, not a {type(plan).__name__}")
    check_id("pad_id", pad_id)
    results, loss_mask = separate_chats(results, loss_mask)
    ragged = as_ragged(results)
    _check_fit(plan, ragged, eos_id)
    if positions not in ("segment", "document"):
        raise InvalidArgumentError(f"positions must be 'segment' or 'document', not {positions!r}")
    counted = None if loss_mask is None else flatten_loss_mask(loss_mask, ragged)
    xp = get_namespace(*plan[:5], *ragged, counted, pad_id, eos_id)
    _check_size(plan)
    if xp is np:
        return _pack_on_host(plan, ragged, counted, pad_id, eos_id, positions)
    if not any(map(is_traced, (*plan, *ragged))):
        import jax  # noqa: PLC0415 (loaded already)

        plan = jax.device_put(plan._replace(row_tokens=np.zeros((), np.int32)))
    return _pack_in_jax(plan, ragged, counted, pad_id, eos_id, positions)


def pack_blocks(
    results: Results | Sequence[Chat],
    *,
    block_size: int,
    pad_id: int,
    eos_id: int | None = None,
    strategy: Strategy = "concat",
    max_segments: int | None = None,
    overlong: Overlong = "error",
    seed: int | None = None,
    positions: Positions = "segment",
    loss_mask: LossMask | None = None,
) -> PackedBlocks:
    """Pack results into blocks: `plan_packing` and `apply_packing` together.

    Args:
        results: a `TokenizationBatch`, a `Ragged`, or a list of `TokenizationResult`s, or of the
            `EncodedChat`s of `encode_chat`, whose masks become the loss mask; none at all gives one block of
            padding.
        block_size: places a block.
        pad_id: the id on padding.
        eos_id: an id to put after each result (with `"concat"` not after the last); by default none is.
        strategy: as in `plan_packing`.
        max_segments: as in `plan_packing`.
        overlong: as in `plan_packing`.
        seed: as in `plan_packing`.
        positions: as in `apply_packing`.
        loss_mask: as in `apply_packing`.

    Returns:
        Arrays of shape `(blocks, block_size)`.

    Raises:
        InvalidArgumentError: as of `plan_packing` and `apply_packing`; or some of the chats have a mask and
            others have none.

    >>> from tokjax.core.ragged import ragged_from_rows
    >>> pack_blocks(ragged_from_rows([[3, 6, 7], [8]]), block_size=4, pad_id=1, eos_id=4).ids
    array([[3, 6, 7, 4],
           [8, 1, 1, 1]], dtype=int32)

    Fine-tuning on answers: labels are -100 where the loss mask of the target is 0.

    >>> blocks = pack_blocks(
    ...     ragged_from_rows([[3, 6, 7], [8, 9]]), block_size=6, pad_id=1, loss_mask=[[0, 0, 1], [0, 1]])
    >>> blocks.causal_lm_labels()
    array([[-100,    7, -100,    9, -100, -100]], dtype=int32)
    """
    results, loss_mask = separate_chats(results, loss_mask)
    ragged = as_ragged(results)
    splits = ragged.row_splits
    plan = plan_packing(
        ragged.lengths if is_traced(splits) else np.diff(to_host(splits)),
        block_size,
        strategy,
        max_segments=max_segments,
        overlong=overlong,
        seed=seed,
        separators=eos_id is not None,
    )
    return apply_packing(plan, ragged, pad_id=pad_id, eos_id=eos_id, positions=positions, loss_mask=loss_mask)


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


def _compute_runs(
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

    def merge(piece_values: Any, padding_values: Any) -> Any:
        padding_column = xp.broadcast_to(xp.asarray(padding_values, dtype=dtype), padding.shape)
        return xp.concatenate([piece_values, padding_column])[order]

    length = merge(lengths, padding)
    slot = xp.cumsum(length, dtype=dtype) - length
    source = merge(_get_row_starts(xp, row_splits, documents, dtype) + starts, 0) - slot
    return _Runs(
        length=length,
        document=merge(documents, -1),
        segment=merge(number - splits[block] + 1, 0),
        source=source,
        end=merge(_get_row_starts(xp, row_splits, documents + 1, dtype), 0) - source,
        position=merge(starts if positions == "document" else xp.zeros_like(starts), 0) - slot,
    )


def _get_row_starts(xp: Any, row_splits: Any, rows: Any, dtype: type[np.integer[Any]]) -> Any:
    """Where rows begin. A part that was filled up has pieces of no place, whose row need not be there."""
    return xp.take(row_splits, rows, mode="clip").astype(dtype)


@jit_eager
def _pack_in_jax(
    plan: PackingPlan,
    ragged: Ragged,
    loss_mask: Any,
    pad_id: int,
    eos_id: int | None,
    positions: Positions,
) -> PackedBlocks:
    """The blocks, as `jax.jit` takes it: each place looks up the run that it is in."""
    xp = get_namespace(*plan[:5], *ragged, loss_mask, pad_id, eos_id)
    runs = _compute_runs(xp, plan, ragged, np.int32, positions)
    shape = plan.num_blocks, plan.block_size
    size = plan.num_blocks * plan.block_size
    which = xp.repeat(xp.arange(runs.length.shape[0]), runs.length, total_repeat_length=size)
    runs = _Runs(*(column[which] for column in runs))
    slot = xp.arange(size, dtype=np.int32)
    present = runs.segment > 0
    is_token = present & (slot < runs.end)
    ids = take_or_fill("ids", ragged.ids, slot + runs.source, is_token, pad_id)
    if eos_id is not None:
        ids = xp.where(present & ~is_token, xp.asarray(eos_id, dtype=np.int32), ids)
    if loss_mask is not None:
        index = xp.maximum(xp.minimum(slot, runs.end - np.int32(1)) + runs.source, np.int32(0))
        loss_mask = take_or_fill("loss_mask", loss_mask, index, present, 0).reshape(shape)
    return PackedBlocks(
        ids=ids.reshape(shape),
        attention_mask=present.astype(np.int32).reshape(shape),
        segment_ids=runs.segment.reshape(shape),
        positions=xp.where(present, slot + runs.position, np.int32(0)).reshape(shape),
        document_ids=runs.document.reshape(shape),
        loss_mask=loss_mask,
    )


def _pack_on_host(
    plan: PackingPlan,
    ragged: Ragged,
    loss_mask: Any,
    pad_id: int,
    eos_id: int | None,
    positions: Positions,
) -> PackedBlocks:
    """The same in fewer passes: runs are spread, and what differs in few places is put there.

    A few blocks at a time, so that what is made on the way stays in the cache.
    """
    runs = _compute_runs(np, plan, ragged, _get_index_dtype(plan, ragged), positions)
    flat = [ragged.ids] if loss_mask is None else [ragged.ids, loss_mask]
    columns = np.empty((4 + len(flat), plan.num_blocks, plan.block_size), np.int32)
    step = max(_SLOTS_PER_STEP // plan.block_size, 1)
    for first in range(0, plan.num_blocks, step):
        blocks = slice(first, min(first + step, plan.num_blocks))
        # A block's runs are its pieces and one of padding.
        begin, end = (int(plan.block_splits[block]) + block for block in (blocks.start, blocks.stop))
        some = _Runs(*(column[begin:end] for column in runs))
        part = columns[:, blocks].reshape(len(columns), -1)
        _fill_slots(part, first * plan.block_size, flat, some, pad_id, eos_id)
    return PackedBlocks(*columns)


def _fill_slots(
    columns: Any, first_slot: int, flat: list[Any], runs: _Runs, pad_id: int, eos_id: int | None
) -> None:
    """Write what stands in some runs, from one place on.

    Args:
        columns: takes ids, attention mask, segment ids, positions and document ids, and the loss mask if
            `flat` has one: shape `(5 or 6, places)`.
        first_slot: the first of the places, counted through all blocks.
        flat: the ids of all rows, and maybe their loss mask, shape `(n,)` each.
        runs: the runs of these places.
        pad_id: the id on padding.
        eos_id: the id on separators, if there are any.
    """
    ids, present, segments, positions, documents = columns[:5]
    slot = np.arange(first_slot, first_slot + len(ids), dtype=runs.length.dtype)
    index = np.repeat(runs.source, runs.length)
    index += slot
    for column, values in zip((ids, *columns[5:]), flat, strict=True):
        column[:] = as_int32("ids", np.take(values, index, mode="clip")) if values.shape[0] else 0
    segments[:] = np.repeat(runs.segment, runs.length)
    is_padding = segments == 0
    np.copyto(ids, np.int32(pad_id), where=is_padding)
    if eos_id is not None:
        ends = (np.cumsum(runs.length) - 1)[runs.segment > 0]
        separators = ends[ends + first_slot >= runs.end[runs.segment > 0]]
        ids[separators] = eos_id
        for column, values in zip(columns[5:], flat[1:], strict=True):
            column[separators] = np.take(values, index[separators] - 1, mode="clip") if len(values) else 0
    np.add(np.repeat(runs.position, runs.length), slot, out=positions, casting="unsafe")
    for column in (positions, *columns[5:]):
        np.copyto(column, np.int32(0), where=is_padding)
    np.logical_not(is_padding, out=present, casting="unsafe")
    documents[:] = np.repeat(runs.document, runs.length)


def _check_size(plan: PackingPlan) -> None:
    size = plan.num_blocks * plan.block_size
    if size > np.iinfo(np.int32).max:
        raise InvalidArgumentError(
            f"{size} places are more than int32 can count; apply plan.part(first, stop) by and by"
        )


def _get_index_dtype(plan: PackingPlan, ragged: Ragged) -> type[np.integer[Any]]:
    """What counts places and flat ids on the host: `int32`, but where there are more of them."""
    size = plan.num_blocks * plan.block_size
    return np.int32 if ragged.ids.shape[0] + size <= np.iinfo(np.int32).max else np.int64


def _check_fit(plan: PackingPlan, ragged: Ragged, eos_id: int | None) -> None:
    """Refuse a plan for other rows, or without an id for its separators, where its values are known."""
    if eos_id is not None:
        check_id("eos_id", eos_id)
    if any(map(is_traced, plan)):
        return
    planned, tokens = int(to_host(plan.row_tokens)), ragged.ids.shape[0]
    row_splits = None if is_traced(ragged.row_splits) else to_host(ragged.row_splits)
    if row_splits is not None:
        tokens = int(row_splits[-1])
    if isinstance(tokens, int) and planned != tokens:  # (it may be a symbolic dimension of jax.export)
        raise InvalidArgumentError(
            f"the plan was made for rows of {planned} tokens in all, and these have {tokens}; "
            "plan with the lengths of these rows (and under jax.jit, where row_splits are not known, cut off "
            "ids that are of no row)"
        )
    if row_splits is None:
        return
    pieces = slice(int(to_host(plan.block_splits)[-1]))
    documents = to_host(plan.documents)[pieces]
    if documents.max(initial=-1) >= ragged.num_rows:
        raise InvalidArgumentError(
            f"the plan places document {documents.max()}, and there are {ragged.num_rows} rows; plan with "
            "the lengths of these rows"
        )
    ends = to_host(plan.starts)[pieces] + to_host(plan.lengths)[pieces]
    past_end = ends - (row_splits[documents + 1] - row_splits[documents])
    if (past_end > 1).any():
        raise InvalidArgumentError("the plan was made for longer rows; plan with the lengths of these rows")
    if eos_id is None and (past_end > 0).any():
        raise InvalidArgumentError("the plan has separators: pass eos_id, the id that stands there")


LossMask: TypeAlias = "Array | Ragged | Sequence[Array | Sequence[int]]"
"""A mask beside the ids of all rows, or one for each row."""


class Chat(Protocol):
    """The part of an `EncodedChat` that packing uses (`batching` does not import the module of chats)."""

    @property
    def result(self) -> TokenizationResult:
        """The tokens of the conversation."""

    @property
    def assistant_mask(self) -> Any:
        """1 on the tokens that count as targets, shape `(n,)`; `None` without a mask."""


def separate_chats(results: Any, loss_mask: LossMask | None) -> tuple[Any, LossMask | None]:
    """Separates encoded chats into results and their loss mask; other results stay as they are."""
    chats = [*results] if isinstance(results, (list, tuple)) and not hasattr(results, "_fields") else []
    if not chats or not all(hasattr(chat, "assistant_mask") for chat in chats):
        return results, loss_mask
    if loss_mask is None:
        masks = [chat.assistant_mask for chat in chats]
        lacking = [i for i, mask in enumerate(masks) if mask is None]
        if lacking and len(lacking) < len(masks):
            raise InvalidArgumentError(
                f"chat {lacking[0]} was encoded without a mask, and others have one; encode all of them "
                "alike, or pass loss_mask=MASKS"
            )
        loss_mask = None if lacking else masks
    return [chat.result for chat in chats], loss_mask


def flatten_loss_mask(loss_mask: Any, ragged: Ragged) -> Any:
    """Returns a loss mask as an array beside the ids of all rows: `int32`, 1 and 0, shape `(n,)`."""
    if isinstance(loss_mask, Ragged):
        lengths, flat = loss_mask.lengths, loss_mask.ids
    elif is_jax(loss_mask) or isinstance(loss_mask, np.ndarray):
        lengths, flat = None, loss_mask
    else:
        rows = [np.asarray(row) for row in loss_mask]
        if any(row.ndim != 1 for row in rows):
            raise InvalidArgumentError(
                "loss_mask must be an array of shape (n,) beside the ids of all rows, or a list with a mask "
                "for each row"
            )
        lengths = np.array([len(row) for row in rows], np.int64)
        flat = np.concatenate([np.zeros(0, np.int32), *rows])
    if lengths is not None and not is_traced(lengths) and not is_traced(ragged.row_splits):
        wanted, actual = np.diff(to_host(ragged.row_splits)), to_host(lengths)
        if len(actual) != len(wanted):
            raise InvalidArgumentError(
                f"loss_mask has {len(actual)} rows, and there are {len(wanted)} rows of ids; pass one for each"
            )
        if (actual != wanted).any():
            row = int(np.flatnonzero(actual != wanted)[0])
            raise InvalidArgumentError(
                f"row {row} of loss_mask has {actual[row]} entries, and row {row} has {wanted[row]} ids; pass "
                "one for each id"
            )
    if flat.shape != ragged.ids.shape:
        raise InvalidArgumentError(
            f"loss_mask has shape {flat.shape}, and the ids of all rows have {ragged.ids.shape}; pass one "
            "entry for each id, or a list with a mask for each row"
        )
    return as_mask(get_namespace(flat), "loss_mask", flat).astype(np.int32)
