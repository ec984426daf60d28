"""Targets for next-token prediction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tokjax._util.arrays import (
    Array,
    apply_cond,
    as_int32,
    as_size,
    compute_suffix_minimum,
    get_namespace,
    positions,
)
from tokjax._util.checks import check_id
from tokjax._util.display import describe_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_aligned_integers, as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError


class CausalLMBatch(NamedTuple):
    """What a causal language model trains on: a pytree of `int32` arrays of shape `(batch, length)`.

    Attributes:
        ids: the inputs.
        attention_mask: 1 on tokens, 0 on padding.
        labels: the id that follows each position, `ignore_index` where none does.
    """

    ids: Array
    attention_mask: Array
    labels: Array

    def __repr__(self) -> str:
        """The dtype and shape of each array."""
        return describe_batch(self)


@jit_eager
def causal_lm_labels(
    ids: Array,
    attention_mask: Array,
    *,
    ignore_index: int = -100,
    segment_ids: Array | None = None,
    loss_mask: Array | None = None,
) -> Array:
    """For each valid position the next valid id, so that `labels[i]` is what the model says at `i`.

    Labels are already shifted. Validity is told by the mask and never by an id, so a pad id that equals
    the EOS id is safe. Holes in the mask are skipped: the position before a hole is given the first
    valid id after it.

    Args:
        ids: integers, shape `(..., length)`.
        attention_mask: not 0 on valid positions, of the shape of `ids`.
        ignore_index: the label of padding, and of a position that no valid one follows.
        segment_ids: which document each position is of, of the shape of `ids`; no label crosses from one
            to another.
        loss_mask: not 0 on the tokens that count as targets, of the shape of `ids`; where a label's
            target has 0, the label is `ignore_index`.

    Returns:
        `int32`, of the shape of `ids` and of the kind that was given.

    >>> causal_lm_labels(np.array([[3, 6, 7, 4, 1]]), np.array([[1, 1, 1, 1, 0]]))
    array([[   6,    7,    4, -100, -100]], dtype=int32)
    """
    xp = get_namespace(ids, attention_mask, segment_ids, loss_mask, ignore_index)
    check_id("ignore_index", ignore_index)
    tokens = as_tokens(ids)
    rows = _LabelInputs(
        tokens,
        as_aligned_mask(xp, "attention_mask", attention_mask, tokens),
        None if segment_ids is None else as_aligned_integers("segment_ids", segment_ids, tokens),
        None if loss_mask is None else as_aligned_mask(xp, "loss_mask", loss_mask, tokens),
        xp.asarray(ignore_index, dtype=np.int32),
    )
    if tokens.shape[-1] == 0:
        return tokens.copy()  # type: ignore[no-any-return]
    return apply_cond(_is_contiguous(rows.valid), _shift_contiguous, _shift_with_gaps, rows)  # type: ignore[no-any-return]


class _LabelInputs(NamedTuple):
    """What labels are made of: arrays of shape `(..., length)`.

    Attributes:
        tokens: the ids.
        valid: true on tokens.
        segments: which document, or `None`.
        counted: true on the targets that count, or `None`.
        ignored: the label of what has none, shape `()`.
    """

    tokens: Any
    valid: Any
    segments: Any
    counted: Any
    ignored: Any


def _is_contiguous(valid: Any) -> Any:
    """Whether the tokens of each row stand side by side, shape `()`: the next place is the next valid one."""
    begins = valid[..., 1:] > valid[..., :-1]
    return (begins.sum(axis=-1, dtype=np.int32) + valid[..., 0].astype(np.int32) <= np.int32(1)).all()


def _shift_contiguous(rows: _LabelInputs) -> Any:
    """Labels of rows without holes: everything shifted by one."""
    xp = get_namespace(*rows)
    keep = rows.valid[..., :-1] & rows.valid[..., 1:]
    if rows.segments is not None:
        keep = keep & (rows.segments[..., :-1] == rows.segments[..., 1:])
    if rows.counted is not None:
        keep = keep & rows.counted[..., 1:]
    if xp is np:  # (two passes less)
        host_labels = np.full(rows.tokens.shape, rows.ignored)
        np.copyto(host_labels[..., :-1], rows.tokens[..., 1:], where=keep)
        return host_labels
    labels = xp.where(keep, rows.tokens[..., 1:], rows.ignored)
    last = [(0, 0)] * (labels.ndim - 1) + [(0, 1)]
    return xp.pad(labels, last, constant_values=rows.ignored)


def _shift_with_gaps(rows: _LabelInputs) -> Any:
    """Labels of any rows: each valid place looks up where the next one is."""
    xp = get_namespace(*rows)
    length = rows.tokens.shape[-1]
    size = as_size(xp, length)
    own = xp.where(rows.valid, positions(xp, length, rows.tokens.ndim), size)
    # Shifted by one: the first valid position *after* each, `length` where there is none.
    following = compute_suffix_minimum(
        xp.concatenate([own[..., 1:], xp.full_like(own[..., :1], size)], axis=-1)
    )
    target = xp.minimum(following, size - np.int32(1))
    keep = rows.valid & (following < size)
    if rows.segments is not None:
        keep &= rows.segments == xp.take_along_axis(rows.segments, target, axis=-1)
    if rows.counted is not None:
        keep &= xp.take_along_axis(rows.counted, target, axis=-1)
    return xp.where(keep, xp.take_along_axis(rows.tokens, target, axis=-1), rows.ignored)


def to_one_based(ids: Array, *, ignore_index: int = -100) -> Array:
    """0-based ids or labels as 1-based ones, for Julia; `ignore_index` stays as it is.

    Any shape, which the result has too. (Julia's matrices are `(length, batch)`: transpose them.)

    >>> to_one_based(np.array([0, 5, -100]))
    array([   1,    6, -100], dtype=int32)
    """
    return _shift_values(ids, 1, ignore_index)


def to_zero_based(ids: Array, *, ignore_index: int = -100) -> Array:
    """1-based ids or labels, from Julia, as 0-based ones; `ignore_index` stays as it is.

    Any shape, which the result has too.

    >>> to_zero_based(np.array([1, 6, -100]))
    array([   0,    5, -100], dtype=int32)
    """
    return _shift_values(ids, -1, ignore_index)


@jit_eager
def _shift_values(ids: Array, by: int, ignore_index: int) -> Array:
    xp = get_namespace(ids, ignore_index)
    check_id("ignore_index", ignore_index)
    values = as_int32("ids", ids)
    beyond = np.iinfo(np.int32).max if by > 0 else np.iinfo(np.int32).min
    if xp is np and (values[values != ignore_index] == beyond).any():
        raise InvalidArgumentError(f"ids holds {beyond}, and {beyond + by} does not fit int32")
    return xp.where(values == xp.asarray(ignore_index, dtype=np.int32), values, values + np.int32(by))  # type: ignore[no-any-return]
