"""Application of packing plans: gathers the tokens of rows into blocks of one size.

`plan_packing` computes a plan on the host from lengths alone. Applying it to arrays is one gather, which
works under `jax.jit`. Both versions below, for the host and for JAX, divide the slots of all blocks into
runs: a run is a piece of a document, or the padding at the end of a block. All slots of a run have the same
document and segment, and their tokens are contiguous in the flat ids. So a table with one row per run
describes all slots.

Example: rows `[11, 12]` and `[21, 22, 23]`, `block_size=4`, `eos_id=9`, `pad_id=0`, strategy `"concat"`:

    run             piece 0   piece 1   (empty)   piece 2   padding
    length          3         1         0         2         2
    document        0         1         -1        1         -1
    segment         1         2         0         1         0
    source_shift    0         -1                  -1                  index in the flat ids minus slot
    end_slot        2         6                   6                   slot of the separator

    slot            0   1   2   3  |  4   5   6   7
    run             0   0   0   1  |  3   3   4   4
    flat index      0   1   .   2  |  3   4   .   .     slot + source_shift
    ids             11  12  9   21 |  22  23  0   0     9 where slot == end_slot, 0 in a run of padding

See docs/packing-and-masks.md for drawings of blocks, and docs/performance.md, section "Packing".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    as_mask,
    get_namespace,
    is_traced,
    jit_eager,
    take_or_fill,
    to_host,
)
from tokjax._util.checks import check_choice, check_id
from tokjax.core.array_inputs import as_ragged, flatten_column, separate_chats
from tokjax.errors import InvalidArgumentError
from tokjax.packing.packed_blocks import PackedBlocks
from tokjax.packing.plans import PackingPlan, plan_packing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.core.ragged import Ragged
    from tokjax.core.records import Results
    from tokjax.packing.plans import Overlong, Strategy


Positions: TypeAlias = Literal["segment", "document"]
"""Where positions start at 0; see `apply_packing`."""
LossMask: TypeAlias = "Array | Ragged | Sequence[Array | Sequence[int]]"
"""Loss mask: an array aligned with the flat ids of all rows, or one mask per row."""
_SLOTS_PER_STEP = 1 << 18
"""Number of slots that `_pack_on_host` fills at a time, so that temporary arrays stay in the CPU cache."""


def apply_packing(
    plan: PackingPlan,
    results: Results | Sequence[Any],
    *,
    pad_id: int,
    eos_id: int | None = None,
    positions: Positions = "segment",
    loss_mask: LossMask | None = None,
) -> PackedBlocks:
    """Packs rows into blocks according to a plan.

    It is one gather, which also runs under `jax.jit`. Use `pack_blocks` to plan and pack in one call.

    Args:
        plan: result of `plan_packing` for the lengths of these rows, or a part of it (`PackingPlan.part`).
        results: rows of tokens: a `Ragged` of NumPy or JAX arrays, a `TokenizationBatch`, a list of
            `TokenizationResult`s, `EncodedChats`, or a list of `EncodedChat`s, whose assistant masks become
            the loss mask.
        pad_id: id on padding.
        eos_id: id of separators; required if the plan has separators. If the plan is an argument of a jitted
            function, this cannot be checked, and separators get the pad id.
        positions: `"segment"` counts positions from the start of each segment. `"document"` counts from the
            start of the document, which may be in another block.
        loss_mask: mask of the tokens that count as targets, not 0 on these: an array of shape `(n,)`, aligned
            with the flat ids of all rows; or a `Ragged` or a list with one mask per row. In a jitted function
            it must be an array. A separator counts if the token before it does. By default the blocks have no
            loss mask.

    Returns:
        Blocks, arrays of shape `(blocks, block_size)`: NumPy arrays if all inputs are, else JAX arrays.

    Raises:
        InvalidArgumentError: the plan or the loss mask does not match the rows, `eos_id` is missing, or the
            blocks have more slots than `int32` can count.
    """
    if not isinstance(plan, PackingPlan):
        raise InvalidArgumentError(
            f"plan must be a PackingPlan, which plan_packing returns, not a {type(plan).__name__}"
        )
    check_id("pad_id", pad_id)
    results, loss_mask = separate_chats(results, loss_mask)
    ragged = as_ragged(results)
    _check_plan(plan, ragged, eos_id)
    check_choice("positions", positions, ("segment", "document"))
    flat_mask = None if loss_mask is None else flatten_loss_mask(loss_mask, ragged)
    xp = get_namespace(*plan[:5], *ragged, flat_mask, pad_id, eos_id)
    _check_size(plan)
    if xp is np:
        return _pack_on_host(plan, ragged, flat_mask, pad_id, eos_id, positions)
    if not any(map(is_traced, (*plan, *ragged))):
        import jax  # noqa: PLC0415 (loaded already)

        # row_tokens is int64, which JAX does not have by default. It was checked above, and is not needed any
        # more.
        plan = jax.device_put(plan._replace(row_tokens=np.zeros((), np.int32)))
    return _pack_in_jax(plan, ragged, flat_mask, pad_id, eos_id, positions)


def pack_blocks(
    results: Results | Sequence[Any],
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
    """Packs rows into blocks: `plan_packing` and `apply_packing` in one call.

    Args:
        results: rows of tokens: a `TokenizationBatch`, a `Ragged`, a list of `TokenizationResult`s,
            `EncodedChats`, or a list of `EncodedChat`s, whose assistant masks become the loss mask. Without
            rows, the result is one block of padding.
        block_size: number of slots per block.
        pad_id: id on padding.
        eos_id: id of a separator after each row; with `"concat"`, not after the last row. By default rows
            are not separated.
        strategy: as in `plan_packing`.
        max_segments: as in `plan_packing`.
        overlong: as in `plan_packing`.
        seed: as in `plan_packing`.
        positions: as in `apply_packing`.
        loss_mask: as in `apply_packing`.

    Returns:
        Blocks, arrays of shape `(blocks, block_size)`.

    Raises:
        InvalidArgumentError: as for `plan_packing` and `apply_packing`; or some chats have an assistant mask
            and others do not.

    >>> from tokjax.core.ragged import ragged_from_rows
    >>> pack_blocks(ragged_from_rows([[3, 6, 7], [8]]), block_size=4, pad_id=1, eos_id=4).ids
    array([[3, 6, 7, 4],
           [8, 1, 1, 1]], dtype=int32)

    For fine-tuning on answers, labels are -100 where the loss mask of the target is 0:

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


def flatten_loss_mask(loss_mask: Any, ragged: Ragged) -> Any:
    """Returns a loss mask as an array that is aligned with the flat ids: `int32`, 0 or 1, shape `(n,)`."""
    flat = flatten_column("loss_mask", loss_mask, ragged)
    if flat.ndim != 1:
        raise InvalidArgumentError(f"loss_mask must have one number for each id, not shape {flat.shape}")
    return as_mask(get_namespace(flat), "loss_mask", flat).astype(np.int32)


def _check_plan(plan: PackingPlan, ragged: Ragged, eos_id: int | None) -> None:
    """Rejects a plan that was made for other rows, and separators without an id.

    Checks that need the values of traced arrays are skipped.
    """
    if eos_id is not None:
        check_id("eos_id", eos_id)
    if any(map(is_traced, plan)):
        return
    planned, tokens = int(to_host(plan.row_tokens)), ragged.ids.shape[0]
    row_splits = None if is_traced(ragged.row_splits) else to_host(ragged.row_splits)
    if row_splits is not None:
        tokens = int(row_splits[-1])
    if isinstance(tokens, int) and planned != tokens:  # tokens may be a symbolic dimension of jax.export
        raise InvalidArgumentError(
            f"the plan was made for rows of {planned} tokens in total, and these rows have {tokens}; plan "
            "with the lengths of these rows (under jax.jit, where the values of row_splits are unknown, "
            "remove ids that belong to no row)"
        )
    if row_splits is None:
        return
    pieces = slice(int(to_host(plan.block_splits)[-1]))
    documents = to_host(plan.documents)[pieces]
    if documents.max(initial=-1) >= ragged.num_rows:
        raise InvalidArgumentError(
            f"the plan refers to document {documents.max()}, and there are {ragged.num_rows} rows; plan with "
            "the lengths of these rows"
        )
    ends = to_host(plan.starts)[pieces] + to_host(plan.lengths)[pieces]
    # A piece may end one slot after its document: this slot is the separator.
    past_end = ends - (row_splits[documents + 1] - row_splits[documents])
    if (past_end > 1).any():
        raise InvalidArgumentError("the plan was made for longer rows; plan with the lengths of these rows")
    if eos_id is None and (past_end > 0).any():
        raise InvalidArgumentError("the plan has separators; pass eos_id, the id of separators")


def _check_size(plan: PackingPlan) -> None:
    size = plan.num_blocks * plan.block_size
    if size > np.iinfo(np.int32).max:
        raise InvalidArgumentError(
            f"{size} slots are more than int32 can count; apply plan.part(first, stop) for a few blocks at a "
            "time"
        )


class _Runs(NamedTuple):
    """Table of runs: the pieces and the padding of each block. Each column has shape `(runs,)`.

    Slots are numbered through all blocks. A value that increases by one from slot to slot is stored as a
    shift, that is, the value minus the slot number, which is constant within a run.

    Attributes:
        length: number of slots; 0 for the padding of a full block.
        document: index of the input row, -1 on padding.
        segment: number of the piece within its block, from 1; 0 on padding.
        source_shift: index of the slot's token in the flat ids, minus the slot number.
        end_slot: slot number of the end of the document. A slot of the run at or after it is a separator.
        position_shift: position within the segment or document, minus the slot number.
    """

    length: Any
    document: Any
    segment: Any
    source_shift: Any
    end_slot: Any
    position_shift: Any


def _compute_runs(
    xp: Any, plan: PackingPlan, ragged: Ragged, dtype: type[np.integer[Any]], positions: Positions
) -> _Runs:
    """Builds the table of runs, in the order of slots: the pieces of each block, then its padding."""
    documents, starts, lengths, splits = (xp.asarray(column).astype(dtype) for column in plan[:4])
    row_splits = xp.asarray(ragged.row_splits)
    number = xp.arange(documents.shape[0], dtype=dtype)
    block = (xp.searchsorted(splits, number, side="right") - 1).astype(dtype)
    bounds = xp.concatenate([xp.zeros(1, dtype), xp.cumsum(lengths, dtype=dtype)])
    padding = plan.block_size - (bounds[splits[1:]] - bounds[splits[:-1]])
    # Each block has exactly one run of padding, after its pieces. So piece `i` of block `b` is run `i + b`,
    # and the padding of block `b` is run `splits[b + 1] + b`. Sorting these numbers interleaves the two kinds
    # of runs.
    order = xp.argsort(xp.concatenate([number + block, splits[1:] + xp.arange(plan.num_blocks, dtype=dtype)]))

    def merge(piece_values: Any, padding_values: Any) -> Any:
        padding_column = xp.broadcast_to(xp.asarray(padding_values, dtype=dtype), padding.shape)
        return xp.concatenate([piece_values, padding_column])[order]

    length = merge(lengths, padding)
    first_slot = xp.cumsum(length, dtype=dtype) - length
    source_shift = merge(_get_row_starts(xp, row_splits, documents, dtype) + starts, 0) - first_slot
    return _Runs(
        length=length,
        document=merge(documents, -1),
        segment=merge(number - splits[block] + 1, 0),
        source_shift=source_shift,
        end_slot=merge(_get_row_starts(xp, row_splits, documents + 1, dtype), 0) - source_shift,
        position_shift=merge(starts if positions == "document" else xp.zeros_like(starts), 0) - first_slot,
    )


def _get_row_starts(xp: Any, row_splits: Any, rows: Any, dtype: type[np.integer[Any]]) -> Any:
    """Returns the starts of rows in the flat ids.

    Indices are clipped: pieces of length 0, which `PackingPlan.part` adds as padding, may refer to rows that
    do not exist.
    """
    return xp.take(row_splits, rows, mode="clip").astype(dtype)


def _get_index_dtype(plan: PackingPlan, ragged: Ragged) -> type[np.integer[Any]]:
    """Returns the dtype of slot numbers and flat indices on the host: `int32` if they fit, else `int64`."""
    size = plan.num_blocks * plan.block_size
    return np.int32 if ragged.ids.shape[0] + size <= np.iinfo(np.int32).max else np.int64


@jit_eager
def _pack_in_jax(
    plan: PackingPlan,
    ragged: Ragged,
    loss_mask: Any,
    pad_id: int,
    eos_id: int | None,
    positions: Positions,
) -> PackedBlocks:
    """Packs under `jax.jit`: each slot looks up the run that it belongs to."""
    xp = get_namespace(*plan[:5], *ragged, loss_mask, pad_id, eos_id)
    runs = _compute_runs(xp, plan, ragged, np.int32, positions)
    shape = plan.num_blocks, plan.block_size
    size = plan.num_blocks * plan.block_size
    # The static total length is required: under jit the lengths of runs are unknown.
    run_of_slot = xp.repeat(xp.arange(runs.length.shape[0]), runs.length, total_repeat_length=size)
    runs = _Runs(*(column[run_of_slot] for column in runs))
    slot = xp.arange(size, dtype=np.int32)
    present = runs.segment > 0
    is_token = present & (slot < runs.end_slot)
    ids = take_or_fill("ids", ragged.ids, slot + runs.source_shift, is_token, pad_id)
    if eos_id is not None:
        ids = xp.where(present & ~is_token, xp.asarray(eos_id, dtype=np.int32), ids)
    if loss_mask is not None:
        # A separator takes the mask of the last token of its document. A document without tokens has none,
        # and its index is clipped to 0.
        last_token = runs.end_slot - np.int32(1)
        index = xp.maximum(xp.minimum(slot, last_token) + runs.source_shift, np.int32(0))
        loss_mask = take_or_fill("loss_mask", loss_mask, index, present, 0).reshape(shape)
    return PackedBlocks(
        ids=ids.reshape(shape),
        attention_mask=present.astype(np.int32).reshape(shape),
        segment_ids=runs.segment.reshape(shape),
        positions=xp.where(present, slot + runs.position_shift, np.int32(0)).reshape(shape),
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
    """Packs NumPy arrays: like `_pack_in_jax`, but with fewer passes over memory.

    Runs are repeated to slots, and separators, which are few, are written afterwards by index. A few blocks
    are packed at a time, so that temporary arrays stay in the CPU cache.
    """
    runs = _compute_runs(np, plan, ragged, _get_index_dtype(plan, ragged), positions)
    flat = [ragged.ids] if loss_mask is None else [ragged.ids, loss_mask]
    columns = np.empty((4 + len(flat), plan.num_blocks, plan.block_size), np.int32)
    step = max(_SLOTS_PER_STEP // plan.block_size, 1)
    for first in range(0, plan.num_blocks, step):
        blocks = slice(first, min(first + step, plan.num_blocks))
        # Every block before `block` has its pieces and one run of padding.
        begin, end = (int(plan.block_splits[block]) + block for block in (blocks.start, blocks.stop))
        block_runs = _Runs(*(column[begin:end] for column in runs))
        part = columns[:, blocks].reshape(len(columns), -1)
        _fill_slots(part, first * plan.block_size, flat, block_runs, pad_id, eos_id)
    return PackedBlocks(*columns)


def _fill_slots(
    columns: Any, first_slot: int, flat: list[Any], runs: _Runs, pad_id: int, eos_id: int | None
) -> None:
    """Writes the slots of consecutive runs in place.

    Args:
        columns: output: ids, attention mask, segment ids, positions and document ids, and the loss mask if
            `flat` has one; `int32`, shape `(5 or 6, slots)`.
        first_slot: number of the first slot, counted through all blocks.
        flat: ids of all rows, and optionally their loss mask; arrays of shape `(n,)`.
        runs: runs of these slots.
        pad_id: id on padding.
        eos_id: id of separators; `None` if the plan has no separators.
    """
    ids, present, segments, positions, documents = columns[:5]
    slot = np.arange(first_slot, first_slot + len(ids), dtype=runs.length.dtype)
    index = np.repeat(runs.source_shift, runs.length)
    index += slot
    # The indices of padding and separators may be out of range. They are clipped, and these slots are
    # overwritten below.
    for column, values in zip((ids, *columns[5:]), flat, strict=True):
        column[:] = as_int32("ids", np.take(values, index, mode="clip")) if values.shape[0] else 0
    segments[:] = np.repeat(runs.segment, runs.length)
    is_padding = segments == 0
    np.copyto(ids, np.int32(pad_id), where=is_padding)
    if eos_id is not None:
        # A separator can only be in the last slot of a piece.
        last_slots = (np.cumsum(runs.length) - 1)[runs.segment > 0]
        separators = last_slots[last_slots + first_slot >= runs.end_slot[runs.segment > 0]]
        ids[separators] = eos_id
        for column, values in zip(columns[5:], flat[1:], strict=True):
            column[separators] = np.take(values, index[separators] - 1, mode="clip") if len(values) else 0
    np.add(np.repeat(runs.position_shift, runs.length), slot, out=positions, casting="unsafe")
    for column in (positions, *columns[5:]):
        np.copyto(column, np.int32(0), where=is_padding)
    np.logical_not(is_padding, out=present, casting="unsafe")
    documents[:] = np.repeat(runs.document, runs.length)
