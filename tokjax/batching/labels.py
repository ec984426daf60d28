"""Targets for next-token prediction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tokjax._checks import check_id
from tokjax._namespace import Array, as_int32, as_mask, namespace, suffix_minimum
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
    xp = namespace(ids, attention_mask, segment_ids, loss_mask)
    check_id("ignore_index", ignore_index)
    tokens = as_int32("ids", ids)
    valid = _shaped("attention_mask", as_mask(xp, attention_mask), tokens)
    length = tokens.shape[-1]
    if length == 0:
        return tokens  # type: ignore[no-any-return]
    own = xp.where(valid, xp.arange(length, dtype=np.int32), np.int32(length))
    # Shifted by one: the first valid position *after* each, `length` where there is none.
    following = suffix_minimum(xp.concatenate([own[..., 1:], xp.full_like(own[..., :1], length)], axis=-1))
    target = xp.minimum(following, np.int32(length - 1))
    keep = valid & (following < length)
    if segment_ids is not None:
        segments = _shaped("segment_ids", as_int32("segment_ids", segment_ids), tokens)
        keep &= segments == xp.take_along_axis(segments, target, axis=-1)
    if loss_mask is not None:
        counted = _shaped("loss_mask", as_mask(xp, loss_mask), tokens)
        keep &= xp.take_along_axis(counted, target, axis=-1)
    labels = xp.take_along_axis(tokens, target, axis=-1)
    return xp.where(keep, labels, xp.asarray(ignore_index, dtype=np.int32))  # type: ignore[no-any-return]


def to_one_based(ids: Array, *, ignore_index: int = -100) -> Array:
    """0-based ids or labels as 1-based ones, for Julia; `ignore_index` stays as it is.

    >>> to_one_based(np.array([0, 5, -100]))
    array([   1,    6, -100], dtype=int32)
    """
    return _shifted(ids, 1, ignore_index)


def to_zero_based(ids: Array, *, ignore_index: int = -100) -> Array:
    """1-based ids or labels, from Julia, as 0-based ones; `ignore_index` stays as it is.

    >>> to_zero_based(np.array([1, 6, -100]))
    array([   0,    5, -100], dtype=int32)
    """
    return _shifted(ids, -1, ignore_index)


def _shifted(ids: Array, by: int, ignore_index: int) -> Array:
    xp = namespace(ids)
    values = as_int32("ids", ids)
    return xp.where(values == np.int32(ignore_index), values, values + np.int32(by))  # type: ignore[no-any-return]


def _shaped(name: str, array: Any, ids: Any) -> Any:
    if array.shape != ids.shape:
        raise InvalidArgumentError(f"{name} has shape {array.shape}, and ids {ids.shape}; they must be equal")
    return array
