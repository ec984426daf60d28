"""Positions of tokens in padded and packed rows, for position embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokjax._util.arrays import Array, as_mask, compute_prefix_maximum, get_namespace
from tokjax._util.checks import MAX_INT32, check_int
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_aligned_integers, check_length_axis


@jit_eager
def compute_positions(attention_mask: Array, *, segment_ids: Array | None = None, offset: int = 0) -> Array:
    """Computes the position of each token in its row, for rows that are padded on either side.

    Left-padded rows need it: without positions, a model counts the padding before the prompt.

    Args:
        attention_mask: mask of tokens, not 0 on these, shape `(..., length)`.
        segment_ids: document of each token, integers, shape `(..., length)`; positions restart where it
            changes.
        offset: position of the first token. OPT and RoBERTa count from 2.

    Returns:
        Positions, `int32`, shape `(..., length)`. Where the mask is 0 they are `offset - 1`, as in OPT and
        RoBERTa, or 0 if `offset` is 0. A JAX array if one of the inputs is, else a NumPy array.

    Raises:
        InvalidArgumentError: the shapes differ, or `offset` is not an integer of at least 0.

    >>> compute_positions(np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]]))
    array([[0, 0, 0, 1, 2],
           [0, 1, 2, 3, 0]], dtype=int32)
    >>> compute_positions(np.array([0, 1, 1, 1]), offset=2)
    array([1, 2, 3, 4], dtype=int32)
    """
    xp = get_namespace(attention_mask, segment_ids)
    first = check_int("offset", offset, minimum=0, maximum=MAX_INT32)
    name = "attention_mask"
    valid = check_length_axis(name, as_mask(xp, name, attention_mask))
    before = xp.cumsum(valid, axis=-1, dtype=np.int32) - valid.astype(np.int32)
    if segment_ids is not None:
        segments = as_aligned_integers("segment_ids", segment_ids, valid)
        before = before - compute_prefix_maximum(xp.where(find_starts(segments), before, np.int32(0)))
    return xp.where(valid, before + np.int32(first), np.int32(max(first - 1, 0)))  # type: ignore[no-any-return]


def find_starts(segments: Any) -> Any:
    """Returns whether each token, or the padding after a segment, begins a segment.

    Args:
        segments: segment of each token, different from those beside it, and 0 on padding; `int32`, shape
            `(..., length)`.

    Returns:
        `bool`, shape `(..., length)`.
    """
    xp = get_namespace(segments)
    previous = xp.concatenate([xp.zeros_like(segments[..., :1]), segments[..., :-1]], axis=-1)
    return segments != previous
