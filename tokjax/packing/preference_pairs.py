"""Segments and positions of the sides of preference pairs in packed rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokjax._util.arrays import Array, get_namespace
from tokjax._util.display import short_repr
from tokjax._util.eager_jit import jit_eager
from tokjax.batching.positions import compute_positions
from tokjax.core.array_inputs import as_aligned_mask, as_tokens


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
