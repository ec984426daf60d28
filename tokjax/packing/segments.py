"""Segments of packed rows: lengths and boundaries for attention kernels, and sides of preference pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tokjax._util.arrays import (
    Array,
    count_below,
    get_namespace,
    is_traced,
    jit_eager,
    to_host,
)
from tokjax._util.checks import MAX_INT32, check_int
from tokjax._util.display import short_repr
from tokjax.batching.labels import compute_positions
from tokjax.core.array_inputs import as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError


def segment_lengths(segment_ids: Array, max_segments: int) -> Array:
    """Computes the number of tokens in each segment.

    Args:
        segment_ids: segment of each token, 1, 2, 3 and so on in ascending order along a row, then 0 on
            padding; integers, shape `(..., length)`.
        max_segments: maximum number of segments per row; static under `jax.jit`.

    Returns:
        Segment lengths, `int32`, shape `(..., max_segments)`; 0 for segments that do not exist.

    Raises:
        InvalidArgumentError: a row has more segments, or its segment ids are not in ascending order. Under
            `jax.jit` this cannot be checked, and segments after `max_segments` are dropped.

    >>> segment_lengths(np.array([[1, 1, 2, 0]]), 3)
    array([[2, 1, 0]], dtype=int32)
    """
    return _compute_lengths(cu_seqlens(segment_ids, max_segments))


def cu_seqlens(segment_ids: Array, max_segments: int) -> Array:
    """Computes cumulative segment lengths: the start of each segment, and the end of the last one.

    Args:
        segment_ids: as for `segment_lengths`.
        max_segments: as for `segment_lengths`.

    Returns:
        Boundaries, `int32`, shape `(..., max_segments + 1)`, in ascending order from 0. Segments that do not
        exist are empty segments at the end of the tokens.

    Raises:
        InvalidArgumentError: a row has more segments, its segment ids are not in ascending order, or there is
            padding before tokens. Under `jax.jit` none of this is checked.

    >>> cu_seqlens(np.array([[1, 1, 2, 0]]), 3)
    array([[0, 2, 3, 3]], dtype=int32)
    """
    check_int("max_segments", max_segments, minimum=1, maximum=MAX_INT32 - 1)
    segments = as_tokens(segment_ids, "segment_ids")
    _reject_unordered_segments(segments, max_segments)
    return _compute_bounds(segments, max_segments)


def cudnn_segments(segment_ids: Array, max_segments: int) -> dict[str, Array]:
    """Computes the lengths and offsets that cuDNN's attention expects for packed rows.

    Args:
        segment_ids: as for `segment_lengths`.
        max_segments: as for `segment_lengths`.

    Returns:
        `q_seqlen` and `kv_seqlen`: segment lengths, `int32`, shape `(..., max_segments)`. `q_offsets` and
        `kv_offsets`: segment starts, `int32`, shape `(..., max_segments + 1)`. Entries without a segment are
        -1.

    Raises:
        InvalidArgumentError: as for `cu_seqlens`.
    """
    return _build_cudnn_segments(cu_seqlens(segment_ids, max_segments))


@jit_eager
def _compute_bounds(segments: Any, max_segments: int) -> Array:
    xp = get_namespace(segments)
    # Number padding as the last segment: the ids are then in ascending order, as `count_below` requires.
    last = np.int32(max_segments + 1)
    ordered = xp.where(segments == 0, last, xp.minimum(segments, last))
    return count_below(ordered, xp.arange(1, max_segments + 2, dtype=np.int32))  # type: ignore[no-any-return]


@jit_eager
def _compute_lengths(bounds: Any) -> Array:
    return bounds[..., 1:] - bounds[..., :-1]  # type: ignore[no-any-return]


@jit_eager
def _build_cudnn_segments(bounds: Any) -> dict[str, Array]:
    xp = get_namespace(bounds)
    lengths = _compute_lengths(bounds)
    absent = np.int32(-1)
    seqlen = xp.where(lengths > 0, lengths, absent)
    starts = xp.where(lengths > 0, bounds[..., :-1], absent)
    offsets = xp.concatenate([starts, xp.full_like(starts[..., :1], absent)], axis=-1)
    return {"q_seqlen": seqlen, "kv_seqlen": seqlen, "q_offsets": offsets, "kv_offsets": offsets}


def _reject_unordered_segments(segments: Any, max_segments: int) -> None:
    if is_traced(segments) or segments.size == 0:
        return
    maximum, is_ascending = map(int, to_host(_compute_segment_order(segments)))
    if maximum > max_segments:
        raise InvalidArgumentError(
            f"a row has {maximum} segments, more than max_segments={max_segments}; pass a larger "
            "max_segments, or plan with plan_packing(..., max_segments=...)"
        )
    if not is_ascending:
        raise InvalidArgumentError(
            "segment_ids must be in ascending order along a row, with padding (0) after the last segment, as "
            "pack_blocks returns them"
        )


@jit_eager
def _compute_segment_order(segments: Any) -> Any:
    """Returns the maximum segment id, and 1 if ids ascend in each row up to its padding, else 0.

    The result is `int32`, shape `(2,)`.
    """
    xp = get_namespace(segments)
    left, right = segments[..., :-1], segments[..., 1:]
    descends = (right != 0) & ((right < left) | (left == 0))
    return xp.stack([segments.max(), (~descends).all().astype(np.int32)])


@short_repr
class PreferenceSegments(NamedTuple):
    """Segments and positions in which each side of a preference pair is separate.

    Attributes:
        segment_ids: 1 and 2 on the chosen and the rejected side of the first pair of a row, 3 and 4 on those
            of the second, and so on; 0 on padding. `int32`, shape `(..., length)`.
        positions: position of each token, from 0 at the start of its side; 0 on padding. `int32`, shape
            `(..., length)`.
    """

    segment_ids: Array
    positions: Array


@jit_eager
def split_preference_pairs(segment_ids: Array, rejected: Array) -> PreferenceSegments:
    """Separates the sides of preference pairs, so that attention and positions restart on each side.

    Use it in the training step, on rows of a dataset of `PreferenceField`. With `num_segments=2 * pairs + 1`,
    `jax.ops.segment_sum` of log-probabilities by these segment ids gives 0 for padding and then the chosen
    and the rejected side of each pair.

    Args:
        segment_ids: pair of each token, 1, 2, 3 and so on, then 0 on padding; integers, shape
            `(..., length)`. Of padded rows, the attention mask.
        rejected: whether each token belongs to the rejected side, shape `(..., length)`; ignored on padding.

    Returns:
        Segment ids and positions; JAX arrays if one of the inputs is, else NumPy arrays.

    Raises:
        InvalidArgumentError: the shapes differ.

    >>> segments = split_preference_pairs(np.array([1, 1, 1, 1, 2, 0]), np.array([0, 0, 1, 1, 0, 0]))
    >>> segments.segment_ids, segments.positions
    (array([1, 1, 2, 2, 3, 0], dtype=int32), array([0, 1, 0, 1, 0, 0], dtype=int32))
    """
    xp = get_namespace(segment_ids, rejected)
    pairs = as_tokens(segment_ids, "segment_ids")
    is_rejected = as_aligned_mask(xp, "rejected", rejected, pairs)
    sides = np.int32(2) * pairs - np.int32(1) + is_rejected.astype(np.int32)
    segments = xp.where(pairs > 0, sides, np.int32(0))
    return PreferenceSegments(segments, compute_positions(segments, segment_ids=segments))
