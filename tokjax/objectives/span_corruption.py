"""Span corruption: random spans of tokens are replaced by sentinels, and the model predicts the spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.checks import check_float, check_int
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.denoising_batches import (
    DenoisingBatch,
    NoiseCounts,
    compute_noise_counts,
    corrupt_rows,
    make_layout,
)
from tokjax.objectives.random_draws import check_draws

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax._util.arrays import Array

_MAX_TOKENS = 2**22


class SpanCorruptionLengths(NamedTuple):
    """Length of rows before corruption, and widths of the inputs and targets that they need.

    Attributes:
        tokens_length: number of tokens of a row before corruption.
        inputs_length: width of its inputs, with sentinels and EOS.
        targets_length: width of its targets, with sentinels and EOS.
    """

    tokens_length: int
    inputs_length: int
    targets_length: int


@jit_eager
def span_corruption(
    ids: Array,
    attention_mask: Array,
    draws: Array,
    *,
    sentinel_ids: Sequence[int] | Array,
    eos_id: int,
    pad_id: int,
    noise_density: float = 0.15,
    mean_noise_span_length: float = 3.0,
    inputs_length: int | None = None,
    targets_length: int | None = None,
    decoder_start_id: int | None = None,
) -> DenoisingBatch:
    """Replaces random spans of tokens by sentinels, as T5 does.

    Of a row of `n` tokens, `round(n * noise_density)` are noise, at least one, in
    `round(noise / mean_noise_span_length)` noise spans, at least one. Clean spans and noise spans alternate,
    and the first span is clean. All such arrangements are equally likely. A row of one token has no noise. A
    row without tokens remains padding. Tokens are those that the mask marks, and need not be contiguous.

    Args:
        ids: token ids without EOS, integers, shape `(..., length)`.
        attention_mask: mask of tokens, not 0 on these, shape `(..., length)`.
        draws: random numbers, `draw_uniform(source, (..., length))`.
        sentinel_ids: ids of sentinels for the first noise span, the second, and so on, shape `(sentinels,)`;
            those of T5 are `range(32_099, 31_999, -1)`.
        eos_id: id at the end of inputs and targets.
        pad_id: id on padding.
        noise_density: fraction of tokens that are noise, from 0 to 1.
        mean_noise_span_length: mean length of noise spans in tokens, at least 1.
        inputs_length: width of the inputs; by default that which a row of `length` tokens needs.
        targets_length: width of the targets; by default that which a row of `length` tokens needs.
        decoder_start_id: first id of the decoder inputs; by default the pad id, as in T5.

    Returns:
        A batch of `int32` arrays, shapes `(..., inputs_length)` and `(..., targets_length)`: JAX arrays if
        one of the inputs is, else NumPy arrays.

    Raises:
        InvalidArgumentError: rows of `length` tokens can have more noise spans than there are sentinels, or
            need wider inputs or targets. It is raised under `jax.jit` too.

    >>> ids = np.array([[11, 12, 13, 14, 15, 16]])
    >>> draws = np.float32([[0, 0.8, 0.3, 0.2, 0.6, 0]])
    >>> batch = span_corruption(
    ...     ids, ids, draws, sentinel_ids=[99, 98], eos_id=1, pad_id=0,
    ...     noise_density=0.5, mean_noise_span_length=1.5)
    >>> batch.inputs
    array([[11, 12, 99, 15, 98,  1]], dtype=int32)
    >>> batch.targets
    array([[99, 13, 14, 98, 16,  1]], dtype=int32)
    """
    tokens = as_tokens(ids)
    counts = [_compute_counts(tokens.shape[-1], noise_density, mean_noise_span_length)]
    layout = make_layout(
        counts,
        0,
        sentinel_ids=sentinel_ids,
        eos_id=eos_id,
        pad_id=pad_id,
        decoder_start_id=decoder_start_id,
        inputs_length=inputs_length,
        targets_length=targets_length,
    )
    draws = check_draws(draws, tokens.shape)
    return corrupt_rows(tokens, attention_mask, draws, counts, np.int32(0), layout)


def span_corruption_lengths(
    tokens_length: int, *, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> SpanCorruptionLengths:
    """Computes the widths of inputs and targets for rows of up to `tokens_length` tokens.

    Use `compute_input_and_target_lengths` for the opposite direction: from the width of the inputs to the
    length of rows.

    Args:
        tokens_length: maximum number of tokens of a row before corruption.
        noise_density: as in `span_corruption`.
        mean_noise_span_length: as in `span_corruption`.

    Returns:
        The three lengths, in tokens.

    Raises:
        InvalidArgumentError: a value is out of its bounds.

    >>> span_corruption_lengths(568)
    SpanCorruptionLengths(tokens_length=568, inputs_length=512, targets_length=114)
    """
    counts = _compute_counts(
        check_int("tokens_length", tokens_length, minimum=0), noise_density, mean_noise_span_length
    )
    return SpanCorruptionLengths(tokens_length, int(counts.inputs.max()), int(counts.targets.max()))


def compute_input_and_target_lengths(
    inputs_length: int, *, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> SpanCorruptionLengths:
    """Computes the maximum length of rows whose inputs fit `inputs_length`.

    Split documents into chunks of this length, so that the inputs have little or no padding. This is
    `random_spans_helper` of T5. As in T5, a density of 0.5 also limits the targets to the width of the
    inputs.

    Args:
        inputs_length: width of the inputs, with sentinels and EOS; at least 3.
        noise_density: as in `span_corruption`.
        mean_noise_span_length: as in `span_corruption`.

    Returns:
        The three lengths, in tokens. The width of the inputs may be less than `inputs_length`.

    Raises:
        InvalidArgumentError: `inputs_length` is less than 3, or nearly all tokens are noise, so that rows of
            millions of tokens fit.

    >>> compute_input_and_target_lengths(512)
    SpanCorruptionLengths(tokens_length=568, inputs_length=512, targets_length=114)
    """
    bound = check_int("inputs_length", inputs_length, minimum=3)
    counts = _compute_counts(bound, noise_density, mean_noise_span_length)
    while counts.inputs[-1] <= inputs_length:
        bound *= 2
        if bound > _MAX_TOKENS:
            raise InvalidArgumentError(
                f"with noise_density={noise_density}, rows of millions of tokens fit inputs_length="
                f"{inputs_length}; choose the length of rows yourself, and pass it to span_corruption_lengths"
            )
        counts = compute_noise_counts(bound, noise_density, mean_noise_span_length)
    tokens = int(np.searchsorted(counts.inputs, inputs_length, "right")) - 1
    if noise_density == 0.5 and counts.targets[tokens] > counts.inputs[tokens]:
        tokens -= 1
    return SpanCorruptionLengths(tokens, int(counts.inputs[tokens]), int(counts.targets[tokens]))


def _compute_counts(length: int, noise_density: float, mean_noise_span_length: float) -> NoiseCounts:
    return compute_noise_counts(
        length,
        check_float("noise_density", noise_density, minimum=0, maximum=1),
        check_float("mean_noise_span_length", mean_noise_span_length, minimum=1),
    )
