"""Where the segments of packed rows are, in the forms that attention kernels take."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokjax._util.arrays import Array, count_below, get_namespace, is_traced, to_host
from tokjax._util.checks import check_int
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_tokens
from tokjax.errors import InvalidArgumentError


def segment_lengths(segment_ids: Array, max_segments: int) -> Array:
    """How many tokens each segment has.

    Args:
        segment_ids: 1, 2, 3 and so on, rising along a row, then 0 on padding; `(..., length)`.
        max_segments: how many segments a row may have; static under `jax.jit`.

    Returns:
        `int32`, `(..., max_segments)`, 0 where there is no segment.

    Raises:
        InvalidArgumentError: a row has more segments. Under `jax.jit`, where that can't be seen, those past
            `max_segments` are left out.

    >>> segment_lengths(np.array([[1, 1, 2, 0]]), 3)
    array([[2, 1, 0]], dtype=int32)
    """
    return _compute_lengths(cu_seqlens(segment_ids, max_segments))


def cu_seqlens(segment_ids: Array, max_segments: int) -> Array:
    """Where each segment starts, and where the last one ends: cumulative lengths.

    Args:
        segment_ids: as for `segment_lengths`.
        max_segments: as for `segment_lengths`.

    Returns:
        `int32`, `(..., max_segments + 1)`: from 0, rising. Segments that are not there are empty ones at the
        end of the tokens.

    Raises:
        InvalidArgumentError: a row has more segments, or padding stands before tokens. Under `jax.jit`
            neither is seen.

    >>> cu_seqlens(np.array([[1, 1, 2, 0]]), 3)
    array([[0, 2, 3, 3]], dtype=int32)
    """
    check_int("max_segments", max_segments, minimum=1)
    segments = as_tokens(segment_ids, "segment_ids")
    _reject_unordered_segments(segments, max_segments)
    return _compute_bounds(segments, max_segments)


def cudnn_segments(segment_ids: Array, max_segments: int) -> dict[str, Array]:
    """Segments as cuDNN's attention takes them for packed rows.

    Args:
        segment_ids: as for `segment_lengths`.
        max_segments: as for `segment_lengths`.

    Returns:
        `q_seqlen` and `kv_seqlen`, `int32`, `(..., max_segments)`, and where segments start, `q_offsets` and
        `kv_offsets`, `int32`, `(..., max_segments + 1)`; -1 where there is no segment.
    """
    return _build_cudnn_segments(cu_seqlens(segment_ids, max_segments))


@jit_eager
def _compute_bounds(segments: Any, max_segments: int) -> Array:
    xp = get_namespace(segments)
    # Padding comes after the last segment, so that rows rise.
    last = np.int32(max_segments + 1)
    rising = xp.where(segments == 0, last, xp.minimum(segments, last))
    return count_below(rising, xp.arange(1, max_segments + 2, dtype=np.int32))  # type: ignore[no-any-return]


@jit_eager
def _compute_lengths(bounds: Any) -> Array:
    return bounds[..., 1:] - bounds[..., :-1]  # type: ignore[no-any-return]


@jit_eager
def _build_cudnn_segments(bounds: Any) -> dict[str, Array]:
    xp = get_namespace(bounds)
    lengths = _compute_lengths(bounds)
    nothing = np.int32(-1)
    seqlen = xp.where(lengths > 0, lengths, nothing)
    starts = xp.where(lengths > 0, bounds[..., :-1], nothing)
    offsets = xp.concatenate([starts, xp.full_like(starts[..., :1], nothing)], axis=-1)
    return {"q_seqlen": seqlen, "kv_seqlen": seqlen, "q_offsets": offsets, "kv_offsets": offsets}


def _reject_unordered_segments(segments: Any, max_segments: int) -> None:
    if is_traced(segments) or segments.size == 0:
        return
    maximum, is_rising = map(int, to_host(_compute_segment_order(segments)))
    if maximum > max_segments:
        raise InvalidArgumentError(
            f"a row has {maximum} segments, more than max_segments={max_segments}; give a greater one, or plan "
            "with plan_packing(..., max_segments=...)"
        )
    if not is_rising:
        raise InvalidArgumentError(
            "segment_ids must rise along a row, with padding (0) behind the last segment, as pack_blocks "
            "makes them"
        )


@jit_eager
def _compute_segment_order(segments: Any) -> Any:
    """The greatest segment id, and 1 if ids rise along each row until its padding; `int32`, shape `(2,)`."""
    xp = get_namespace(segments)
    before, after = segments[..., :-1], segments[..., 1:]
    falls = (after != 0) & ((after < before) | (before == 0))
    return xp.stack([segments.max(), (~falls).all().astype(np.int32)])
