"""Span corruption: spans of tokens are replaced by sentinels, and the model says what stood there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.checks import check_float, check_int
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.denoising_batches import DenoisingBatch, corrupt_rows, make_layout
from tokjax.objectives.noise_spans import NoiseCounts, compute_noise_counts
from tokjax.objectives.random_draws import check_draws

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax._util.arrays import Array

_MAX_TOKENS = 2**22


class SpanCorruptionLengths(NamedTuple):
    """Lengths that fit together.

    Attributes:
        tokens_length: tokens of a row before corruption.
        inputs_length: places that its inputs need, sentinels and EOS included.
        targets_length: places that its targets need, sentinels and EOS included.
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
    """Replace random spans by sentinels, as T5 does.

    Of a row of `n` tokens `round(n * noise_density)` are noise, at least one, in
    `round(noise / mean_noise_span_length)` spans, at least one. Spans that are kept and spans of noise
    alternate, beginning with one that is kept; all ways to do so are equally likely. A row of one token has
    no noise; a row of none stays padding throughout. What counts are the tokens that the mask marks, wherever
    they stand.

    Args:
        ids: integers without EOS, shape `(..., length)`.
        attention_mask: not 0 on tokens, of that shape.
        draws: `draw_uniform(source, (..., length))`.
        sentinel_ids: the ids for the first span, the second, and so on; T5's are `range(32_099, 31_999, -1)`.
        eos_id: the id that ends inputs and targets.
        pad_id: the id on padding.
        noise_density: the share of tokens that are noise, from 0 to 1.
        mean_noise_span_length: how long spans of noise are on average, at least 1.
        inputs_length: places of the inputs; by default as many as a row of `length` tokens needs.
        targets_length: places of the targets; likewise.
        decoder_start_id: the id that the decoder begins with; by default the pad id, as in T5.

    Returns:
        `int32` arrays of the kind that was given, `(..., inputs_length)` and `(..., targets_length)`.

    Raises:
        InvalidArgumentError: rows of `length` tokens can have more spans than there are sentinels, or need
            longer inputs or targets; under `jax.jit` too.

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
    """How long inputs and targets are for rows of up to `tokens_length` tokens.

    Args:
        tokens_length: tokens of a row before corruption.
        noise_density: as in `span_corruption`.
        mean_noise_span_length: as in `span_corruption`.

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
    """How many tokens to cut documents into, so that their inputs fill `inputs_length` and no more.

    This is T5's `random_spans_helper`. As there, with a density of 0.5 the targets are not to be longer than
    the inputs.

    Args:
        inputs_length: places of the inputs, sentinels and EOS included; at least 3.
        noise_density: as in `span_corruption`.
        mean_noise_span_length: as in `span_corruption`.

    Raises:
        InvalidArgumentError: the inputs are too short for two tokens, or nearly everything is noise, so that
            documents of millions of tokens fit.

    >>> compute_input_and_target_lengths(512)
    SpanCorruptionLengths(tokens_length=568, inputs_length=512, targets_length=114)
    """
    bound = check_int("inputs_length", inputs_length, minimum=3)
    counts = _compute_counts(bound, noise_density, mean_noise_span_length)
    while counts.inputs[-1] <= inputs_length:
        bound *= 2
        if bound > _MAX_TOKENS:
            raise InvalidArgumentError(
                f"with noise_density={noise_density} rows of millions of tokens fit {inputs_length} places; "
                "choose the length of rows yourself, and pass it to span_corruption_lengths"
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
