"""Prefix language modelling: each row is split at random, and the model predicts the second part."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokjax._util.arrays import Array, get_namespace
from tokjax._util.display import short_repr
from tokjax._util.eager_jit import jit_eager
from tokjax.batching.labels import causal_lm_labels
from tokjax.core.array_inputs import as_aligned_mask, as_tokens
from tokjax.objectives.random_draws import check_draws, draws_to_integers


@short_repr
class PrefixLMBatch(NamedTuple):
    """Labels and prefixes for a prefix language model, whose inputs are the ids: a pytree of `int32` arrays.

    Attributes:
        labels: id of the next token if that is in the suffix, else `ignore_index`, shape `(..., length)`.
            Labels are already shifted.
        prefix_mask: 1 on tokens of the prefix, which attend to each other in both directions, shape
            `(..., length)`.
        prefix_lengths: number of tokens of each prefix, shape `(...)`.
    """

    labels: Array
    prefix_mask: Array
    prefix_lengths: Array


@jit_eager
def prefix_lm(ids: Array, attention_mask: Array, draws: Array, *, ignore_index: int = -100) -> PrefixLMBatch:
    """Splits each row into a prefix and a suffix to predict, each of at least one token.

    All splits are equally likely, as in T5. A row of one token is all prefix, and has no labels.

    Args:
        ids: token ids, integers, shape `(..., length)`, with one document per row.
        attention_mask: mask of tokens, not 0 on these, shape `(..., length)`.
        draws: random numbers, `draw_uniform(source, (...))`, one per row.
        ignore_index: label of positions whose next token is not in the suffix.

    Returns:
        Labels, prefix mask and prefix lengths; JAX arrays if one of the inputs is, else NumPy arrays.

    Raises:
        InvalidArgumentError: an array has the wrong shape.

    >>> ids, mask = np.array([[3, 6, 7, 4, 0]]), np.array([[1, 1, 1, 1, 0]])
    >>> batch = prefix_lm(ids, mask, np.float32([0.5]))
    >>> batch.labels, batch.prefix_lengths
    (array([[-100,    7,    4, -100, -100]], dtype=int32), array([2], dtype=int32))
    """
    xp = get_namespace(ids, attention_mask, draws)
    tokens = as_tokens(ids)
    valid = as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    draws = check_draws(draws, tokens.shape[:-1])
    lengths = xp.sum(valid, axis=-1, dtype=np.int32)
    splits = np.int32(1) + draws_to_integers(draws, xp.maximum(lengths - np.int32(1), np.int32(1)))
    prefix_lengths = xp.minimum(splits, lengths)
    prefix = valid & (xp.cumsum(valid, axis=-1, dtype=np.int32) <= prefix_lengths[..., None])
    labels = causal_lm_labels(tokens, valid, ignore_index=ignore_index, loss_mask=valid & ~prefix)
    return PrefixLMBatch(labels, prefix.astype(np.int32), xp.asarray(prefix_lengths))
