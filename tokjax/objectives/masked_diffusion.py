"""Masked diffusion: each row is masked at its own rate, and the model predicts the masked tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, get_namespace, is_jax
from tokjax._util.checks import check_id
from tokjax._util.display import display_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_aligned_integers, as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.random_draws import check_draws


@display_batch
class MaskedDiffusionBatch(NamedTuple):
    """Training batch of a masked diffusion model: a pytree of arrays of the shape of the ids.

    Attributes:
        ids: input ids, with some tokens masked, `int32`, shape `(..., length)`.
        labels: original id of each masked token, `ignore_index` elsewhere, `int32`, shape `(..., length)`.
            Labels are not shifted.
        weights: weight of the loss at each position, `float32`, shape `(..., length)`: 1 divided by the rate
            at masked tokens, 0 elsewhere.
    """

    ids: Array
    labels: Array
    weights: Array


@jit_eager
def masked_diffusion(
    ids: Array,
    attention_mask: Array,
    draws: Array,
    rates: Array,
    *,
    mask_id: int,
    segment_ids: Array | None = None,
    loss_mask: Array | None = None,
    ignore_index: int = -100,
) -> MaskedDiffusionBatch:
    """Masks each token with the probability of its row or document, as LLaDA and MDLM do.

    The rate is the time `t` of the diffusion, usually uniform in `[0, 1)`. The loss of LLaDA is the sum of
    `weights * cross_entropy`, divided by the number of tokens that can be masked. It is an upper bound of the
    negative log-likelihood per token, in expectation over draws and rates. `masked_lm` has one rate for all
    rows, and also replaces tokens by random ids.

    Args:
        ids: token ids, integers, shape `(..., length)`.
        attention_mask: mask of tokens, 0 on padding, which is never masked, shape `(..., length)`.
        draws: random numbers, `draw_uniform(source, (..., length))`; a token whose number is below its rate
            is masked.
        rates: probability that a token is masked, from 0 to 1, `float32`; one per row, shape `(...)`, or with
            `segment_ids` one per document, shape `(..., max_segments)`. For uniform rates:
            `draw_uniform(source, shape)`. LLaDA's rates are at least 0.001, which limits the weights to 1000:
            `np.maximum(rates, np.float32(0.001))`.
        mask_id: id of the mask token, `tokjax.mask_id(tokenizer)`.
        segment_ids: index of the document of each position in packed rows, from 1, and 0 on padding;
            integers, shape `(..., length)`. Tokens of document `i` have the rate `rates[..., i - 1]`.
        loss_mask: mask of the tokens that can be masked, 0 on the prompts of fine-tuning, shape
            `(..., length)`.
        ignore_index: label of tokens that are not masked.

    Returns:
        Ids, labels and weights; JAX arrays if one of the inputs is, else NumPy arrays.

    Raises:
        InvalidArgumentError: an array has the wrong shape or dtype, a rate is not from 0 to 1, or
            `segment_ids` has more documents than `rates`. Values are not checked in JAX arrays; tokens of
            documents without a rate are then not masked.

    >>> ids, rates = np.array([[11, 12, 13, 14]]), np.float32([0.5])
    >>> batch = masked_diffusion(ids, np.ones_like(ids), np.float32([[0.3, 0.8, 0.4, 0.6]]), rates, mask_id=4)
    >>> batch
    MaskedDiffusionBatch(ids=int32[1,4], labels=int32[1,4], weights=float32[1,4])
    >>> batch.ids, batch.labels
    (array([[ 4, 12,  4, 14]], dtype=int32), array([[  11, -100,   13, -100]], dtype=int32))
    >>> batch.weights
    array([[2., 0., 2., 0.]], dtype=float32)
    """
    check_id("mask_id", mask_id)
    check_id("ignore_index", ignore_index)
    xp = get_namespace(ids, attention_mask, draws, rates, segment_ids, loss_mask, mask_id, ignore_index)
    tokens = as_tokens(ids)
    draws = check_draws(draws, tokens.shape)
    eligible = as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    if loss_mask is not None:
        eligible = eligible & as_aligned_mask(xp, "loss_mask", loss_mask, tokens)
    if segment_ids is None:
        token_rates = _check_rates(rates, tokens.shape[:-1])[..., None]
    else:
        segments = as_aligned_integers("segment_ids", segment_ids, tokens)
        token_rates, has_rate = _look_up_rates(xp, rates, segments)
        eligible = eligible & has_rate
    masked = eligible & (draws < token_rates)
    one, zero = np.float32(1), np.float32(0)
    return MaskedDiffusionBatch(
        xp.where(masked, xp.asarray(mask_id, dtype=np.int32), tokens),
        xp.where(masked, tokens, xp.asarray(ignore_index, dtype=np.int32)),
        xp.where(masked, one / xp.where(masked, token_rates, one), zero),
    )


def _look_up_rates(xp: Any, rates: Array, segments: Any) -> tuple[Any, Any]:
    """Returns the rate of the document of each position, and whether it has one; shape `(..., length)`."""
    max_segments = np.shape(rates)[-1] if np.ndim(rates) else 0
    values = _check_rates(rates, (*segments.shape[:-1], max(max_segments, 1)))
    if xp is np and segments.size and not 0 <= segments.min() <= segments.max() <= max_segments:
        raise InvalidArgumentError(
            f"segment_ids are from {segments.min()} to {segments.max()}, but rates has {max_segments} per "
            "row; pass one rate for each document, numbered from 1"
        )
    has_rate = (segments > 0) & (segments <= np.int32(max_segments))
    index = xp.where(has_rate, segments - np.int32(1), np.int32(0))
    return xp.take_along_axis(xp.asarray(values), index, axis=-1), has_rate


def _check_rates(rates: Array, shape: tuple[int, ...]) -> Any:
    """Returns `rates` if they are `float32` of that shape, and from 0 to 1 unless they are a JAX array."""
    values: Any = rates if is_jax(rates) else np.asarray(rates)
    if values.dtype != np.float32 or values.shape != shape:
        raise InvalidArgumentError(
            f"rates must be float32 of shape {shape}, not {values.dtype} of shape {values.shape}; generate "
            f"them with draw_uniform(source, {shape})"
        )
    if not is_jax(values) and values.size and not (values.min() >= 0 and values.max() <= 1):
        raise InvalidArgumentError(
            f"rates must be from 0 to 1, but they are from {values.min()} to {values.max()}"
        )
    return values
