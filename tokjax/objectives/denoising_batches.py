"""Denoising batches: encoder inputs and decoder targets of span corruption and of denoiser mixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, as_int32, gather, get_namespace, make_positions, scatter_rows
from tokjax._util.checks import check_id, check_int
from tokjax._util.display import display_batch
from tokjax.core.array_inputs import as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.noise_spans import NoiseCounts, sample_noise

if TYPE_CHECKING:
    from collections.abc import Sequence


def compact_rows(values: Any, keep: Any, width: int, fill: Any) -> Any:
    """Moves the selected values of each row to its front, in order, and fills the rest.

    Args:
        values: values, `int32`, shape `(..., n)`.
        keep: mask of the values to select, booleans, shape `(..., n)`; at most `width` of each row.
        width: length of the resulting rows.
        fill: value after the selected ones.

    Returns:
        Compacted rows, `int32`, shape `(..., width)`.
    """
    slots = get_namespace(values, keep).cumsum(keep, axis=-1, dtype=np.int32) - np.int32(1)
    return scatter_rows(width, fill, slots, values, keep)


@display_batch
class DenoisingBatch(NamedTuple):
    """Training batch of an encoder-decoder model: a pytree of `int32` arrays.

    Attributes:
        inputs: tokens that are not noise, with a sentinel in place of each noise span, then EOS; shape
            `(..., inputs_length)`.
        inputs_mask: 1 on inputs, 0 on padding; shape `(..., inputs_length)`.
        decoder_inputs: targets, shifted right by one; shape `(..., targets_length)`.
        targets: each sentinel, followed by the noise span that it replaces, then EOS; shape
            `(..., targets_length)`. They are the labels of the decoder at the same position. Do not shift
            them again.
        targets_mask: 1 on targets, 0 on padding; shape `(..., targets_length)`. Use it as weights of the
            loss.
        denoisers: index of the denoiser of each row in a mixture, shape `(...)`; `None` for span corruption.
    """

    inputs: Array
    inputs_mask: Array
    decoder_inputs: Array
    targets: Array
    targets_mask: Array
    denoisers: Array | None = None


class DenoisingLayout(NamedTuple):
    """Ids to insert and lengths of the outputs.

    Attributes:
        sentinel_ids: ids of sentinels in order of use, `int32`, shape `(sentinels,)`.
        eos_id: id at the end of inputs and targets.
        pad_id: id on padding.
        decoder_start_id: first id of the decoder inputs.
        inputs_length: width of the inputs.
        targets_length: width of the targets.
    """

    sentinel_ids: Any
    eos_id: int
    pad_id: int
    decoder_start_id: int
    inputs_length: int
    targets_length: int


def make_layout(
    counts: Sequence[NoiseCounts],
    num_modes: int,
    *,
    sentinel_ids: Sequence[int] | Array,
    eos_id: int,
    pad_id: int,
    decoder_start_id: int | None,
    inputs_length: int | None,
    targets_length: int | None,
) -> DenoisingLayout:
    """Builds the layout of a batch, and checks that full rows fit.

    Args:
        counts: noise counts of each denoiser.
        num_modes: number of mode ids before the inputs, 0 or 1.
        sentinel_ids: ids of sentinels, integers, shape `(sentinels,)`.
        eos_id: id at the end of inputs and targets.
        pad_id: id on padding.
        decoder_start_id: first id of the decoder inputs; `None` is the pad id.
        inputs_length: width of the inputs; `None` is the minimum.
        targets_length: width of the targets; `None` is the minimum.

    Raises:
        InvalidArgumentError: there are too few sentinels, or a length is too short, for full rows. This
            follows from shapes alone. So it is raised under `jax.jit` too, and no row is ever truncated.
    """
    sentinels = as_int32("sentinel_ids", sentinel_ids)
    start = pad_id if decoder_start_id is None else decoder_start_id
    for name, value in (("eos_id", eos_id), ("pad_id", pad_id), ("decoder_start_id", start)):
        check_id(name, value)
    rows = f"rows of {len(counts[0].tokens) - 1} tokens"
    spans = max(1, *(int(c.spans.max()) for c in counts))
    if sentinels.ndim != 1 or sentinels.shape[0] < spans:
        raise InvalidArgumentError(
            f"{rows} can have {spans} noise spans, and sentinel_ids has shape {sentinels.shape}; pass at "
            f"least {spans} sentinel ids, shorter rows, or a larger mean_noise_span_length"
        )
    needed = {
        "inputs_length": max(int(c.inputs.max()) for c in counts) + num_modes,
        "targets_length": max(int(c.targets.max()) for c in counts),
    }
    lengths = [
        _check_length(name, requested, minimum, rows)
        for (name, minimum), requested in zip(needed.items(), (inputs_length, targets_length), strict=True)
    ]
    return DenoisingLayout(sentinels, eos_id, pad_id, start, *lengths)


def _check_length(name: str, requested: int | None, minimum: int, rows: str) -> int:
    if requested is None:
        return minimum
    if check_int(name, requested) < minimum:
        raise InvalidArgumentError(
            f"{name} is {requested}, and {rows} can need {minimum}; pass at least {name}={minimum}, or "
            "shorter rows (compute_input_and_target_lengths returns their maximum length)"
        )
    return requested


def corrupt_rows(
    ids: Array,
    attention_mask: Array,
    draws: Any,
    counts: Sequence[NoiseCounts],
    denoisers: Any,
    layout: DenoisingLayout,
    modes: tuple[Any, Any] | None = None,
) -> DenoisingBatch:
    """Splits rows into inputs and targets, at random noise spans.

    Args:
        ids: token ids, integers, shape `(..., length)`.
        attention_mask: mask of tokens, 0 elsewhere, shape `(..., length)`.
        draws: random numbers, one per token, `float32` in `[0, 1)`, shape `(..., length)`.
        counts: noise counts of each denoiser, for rows of up to `length` tokens.
        denoisers: index of the denoiser of each row, `int32`, shape `(...)`.
        layout: layout for these counts.
        modes: mode id before the inputs of each row, and booleans that say which rows have one; both of shape
            `(...)`.

    Returns:
        The batch, without its `denoisers`.
    """
    xp = get_namespace(ids, attention_mask, draws, denoisers, *layout)
    tokens = as_tokens(ids)
    valid = as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    length = tokens.shape[-1]
    tokens = compact_rows(tokens, valid, length, 0)
    lengths = xp.sum(valid, axis=-1, dtype=np.int32)
    # The tables of all denoisers, concatenated: one lookup per row, at (denoiser, length).
    table_row = denoisers * np.int32(length + 1) + lengths
    row_counts = (gather(np.concatenate(tables), table_row) for tables in zip(*counts, strict=True))
    max_counts = max(int(c.tokens.max()) for c in counts), max(int(c.clean.max()) for c in counts)
    noise = sample_noise(draws, lengths, *row_counts, max_counts=max_counts)
    present = make_positions(xp, length, tokens.ndim) < lengths[..., None]
    inputs = _insert_sentinels(xp, tokens, present & noise, present, layout.sentinel_ids)
    targets = _insert_sentinels(xp, tokens, present & ~noise, present, layout.sentinel_ids)
    # Rows without tokens stay padding: they get neither a mode id nor EOS.
    is_nonempty = lengths[..., None] > 0
    eos = (xp.where(is_nonempty, xp.asarray(layout.eos_id, dtype=np.int32), np.int32(0)), is_nonempty)
    mode = [] if modes is None else [(modes[0][..., None], modes[1][..., None] & is_nonempty)]
    encoded, encoded_mask = _join_parts(xp, [*mode, inputs, eos], layout.inputs_length, layout.pad_id)
    decoded, decoded_mask = _join_parts(xp, [targets, eos], layout.targets_length, layout.pad_id)
    start = xp.full_like(decoded[..., :1], xp.asarray(layout.decoder_start_id, dtype=np.int32))
    shifted = xp.concatenate([start, decoded[..., :-1]], axis=-1)
    return DenoisingBatch(encoded, encoded_mask, shifted, decoded, decoded_mask)


def _insert_sentinels(xp: Any, tokens: Any, hidden: Any, present: Any, sentinels: Any) -> tuple[Any, Any]:
    """Writes a sentinel over the first token of each hidden span.

    Returns:
        The tokens with sentinels, and a mask of the values to keep: sentinels, and tokens that are not
        hidden.
    """
    previous = xp.concatenate([xp.zeros_like(hidden[..., :1]), hidden[..., :-1]], axis=-1)
    begins = hidden & ~previous
    number = xp.maximum(xp.cumsum(begins, axis=-1, dtype=np.int32) - np.int32(1), np.int32(0))
    marked = xp.where(begins, gather(sentinels, number), tokens)
    return marked, begins | (present & ~hidden)


def _join_parts(xp: Any, parts: Sequence[tuple[Any, Any]], width: int, pad_id: int) -> tuple[Any, Any]:
    """Concatenates the kept values of the parts.

    Args:
        xp: array namespace.
        parts: pairs of values and a mask of the values to keep, both of shape `(..., n)`, with `n` of each
            part.
        width: length of the resulting rows.
        pad_id: id on padding.

    Returns:
        Rows of shape `(..., width)`, and a mask of that shape, 1 on kept values and 0 on padding.
    """
    values, keep = (xp.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True))
    total = xp.sum(keep, axis=-1, keepdims=True, dtype=np.int32)
    mask = (make_positions(xp, width, values.ndim) < total).astype(np.int32)
    return compact_rows(values, keep, width, pad_id), mask
