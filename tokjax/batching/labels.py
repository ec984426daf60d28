"""Labels for next-token prediction, and conversion between 0-based and 1-based ids."""

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
    make_positions,
)
from tokjax._util.checks import check_id
from tokjax._util.display import describe_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_aligned_integers, as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError


class CausalLMBatch(NamedTuple):
    """A training batch of a causal language model: a pytree of `int32` arrays of shape `(batch, length)`.

    Attributes:
        ids: input ids.
        attention_mask: 1 on tokens, 0 on padding.
        labels: the id that follows each position, or `ignore_index` where no id follows.
    """

    ids: Array
    attention_mask: Array
    labels: Array

    def __repr__(self) -> str:
        """Returns the dtype and shape of each array."""
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
    """Returns the next valid id for each valid position: `labels[i]` is the target of the prediction at `i`.

    The labels are already shifted. Validity is defined by the mask and never by an id, so that a pad id that
    equals the EOS id is safe. Gaps in the mask are skipped: the label of the position before a gap is the
    first valid id after it.

    Args:
        ids: token ids, integers, shape `(..., length)`.
        attention_mask: nonzero on valid positions, shape `(..., length)`.
        ignore_index: label of padding, and of positions without a following valid id.
        segment_ids: index of the document of each position, integers, shape `(..., length)`; no label crosses
            from one document to another.
        loss_mask: nonzero on the tokens that are targets, shape `(..., length)`; a label whose target has 0
            is `ignore_index`.

    Returns:
        `int32`, shape `(..., length)`: a NumPy array for NumPy inputs and a JAX array for JAX inputs.

    Raises:
        InvalidArgumentError: shapes do not match, or `ignore_index` is not an integer.

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
    """Inputs of the two label functions: arrays of shape `(..., length)`.

    Attributes:
        tokens: token ids, `int32`.
        valid: true on tokens, `bool`.
        segments: index of the document of each position, `int32`, or `None`.
        counted: true on tokens that are targets, `bool`, or `None`.
        ignored: label of positions without a target, `int32`, shape `()`.
    """

    tokens: Any
    valid: Any
    segments: Any
    counted: Any
    ignored: Any


def _is_contiguous(valid: Any) -> Any:
    """Returns whether the tokens of each row are contiguous, `bool`, shape `()`."""
    starts = valid[..., 1:] > valid[..., :-1]
    return (starts.sum(axis=-1, dtype=np.int32) + valid[..., 0].astype(np.int32) <= np.int32(1)).all()


def _shift_contiguous(rows: _LabelInputs) -> Any:
    """Returns labels of rows whose tokens are contiguous: the ids shifted by one."""
    xp = get_namespace(*rows)
    keep = rows.valid[..., :-1] & rows.valid[..., 1:]
    if rows.segments is not None:
        keep = keep & (rows.segments[..., :-1] == rows.segments[..., 1:])
    if rows.counted is not None:
        keep = keep & rows.counted[..., 1:]
    if xp is np:  # (in place: two passes fewer)
        host_labels = np.full(rows.tokens.shape, rows.ignored)
        np.copyto(host_labels[..., :-1], rows.tokens[..., 1:], where=keep)
        return host_labels
    labels = xp.where(keep, rows.tokens[..., 1:], rows.ignored)
    last = [(0, 0)] * (labels.ndim - 1) + [(0, 1)]
    return xp.pad(labels, last, constant_values=rows.ignored)


def _shift_with_gaps(rows: _LabelInputs) -> Any:
    """Returns labels of any rows: each valid position looks up the next valid position.

    valid       T  F  F  T  T
    own         0  5  5  3  4       position if valid, else the length 5
    following   3  3  3  4  5       suffix minimum of own, shifted by one
    """
    xp = get_namespace(*rows)
    length = rows.tokens.shape[-1]
    size = as_size(xp, length)
    own = xp.where(rows.valid, make_positions(xp, length, rows.tokens.ndim), size)
    # Shifted by one: the first valid position *after* each position, or `length` without one.
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
    """Converts 0-based ids or labels to 1-based ones, for Julia; `ignore_index` is unchanged.

    Args:
        ids: ids or labels, integers, any shape. (Julia's matrices are `(length, batch)`: transpose them.)
        ignore_index: value that is unchanged.

    Returns:
        `int32`, of the same shape: a NumPy array for a NumPy input and a JAX array for a JAX input.

    Raises:
        InvalidArgumentError: an id does not fit `int32` after the conversion.

    >>> to_one_based(np.array([0, 5, -100]))
    array([   1,    6, -100], dtype=int32)
    """
    return _shift_values(ids, 1, ignore_index)


def to_zero_based(ids: Array, *, ignore_index: int = -100) -> Array:
    """Converts 1-based ids or labels, from Julia, to 0-based ones; `ignore_index` is unchanged.

    Args:
        ids: ids or labels, integers, any shape.
        ignore_index: value that is unchanged.

    Returns:
        `int32`, of the same shape: a NumPy array for a NumPy input and a JAX array for a JAX input.

    Raises:
        InvalidArgumentError: an id does not fit `int32` after the conversion.

    >>> to_zero_based(np.array([1, 6, -100]))
    array([   0,    5, -100], dtype=int32)
    """
    return _shift_values(ids, -1, ignore_index)


@jit_eager
def _shift_values(ids: Array, by: int, ignore_index: int) -> Array:
    """Adds `by`, 1 or -1, to all values except `ignore_index`."""
    xp = get_namespace(ids, ignore_index)
    check_id("ignore_index", ignore_index)
    values = as_int32("ids", ids)
    extreme = np.iinfo(np.int32).max if by > 0 else np.iinfo(np.int32).min
    if xp is np and (values[values != ignore_index] == extreme).any():
        raise InvalidArgumentError(f"ids contains {extreme}, and {extreme + by} does not fit int32")
    return xp.where(values == xp.asarray(ignore_index, dtype=np.int32), values, values + np.int32(by))  # type: ignore[no-any-return]
