"""Rows with noise as inputs and targets: what span corruption and mixtures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, as_int32, gather, get_namespace, make_positions
from tokjax._util.checks import check_id, check_int
from tokjax._util.display import describe_batch
from tokjax.core.array_inputs import as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.noise_spans import NoiseCounts, sample_noise
from tokjax.objectives.row_compaction import compact_rows

if TYPE_CHECKING:
    from collections.abc import Sequence


class DenoisingBatch(NamedTuple):
    """What an encoder and decoder train on: a pytree of `int32` arrays.

    Attributes:
        inputs: what is kept, a sentinel for each span of noise, and the EOS; `(..., inputs_length)`.
        inputs_mask: 1 on these, 0 on padding; `(..., inputs_length)`.
        decoder_inputs: the targets, shifted right by one; `(..., targets_length)`.
        targets: each sentinel and its span of noise, and the EOS; `(..., targets_length)`. What the decoder
            says at a place: they are not to be shifted again.
        targets_mask: 1 on these, 0 on padding: the weights of a loss; `(..., targets_length)`.
        denoisers: which denoiser of a mixture each row got, shape `(...)`; `None` of span corruption.
    """

    inputs: Array
    inputs_mask: Array
    decoder_inputs: Array
    targets: Array
    targets_mask: Array
    denoisers: Array | None = None

    def __repr__(self) -> str:
        """The dtype and shape of each array."""
        return describe_batch(self)


class DenoisingLayout(NamedTuple):
    """The ids that are put in, and the lengths that result.

    Attributes:
        sentinel_ids: `int32`, shape `(sentinels,)`, in the order of their use.
        eos_id: the id that ends inputs and targets.
        pad_id: the id on padding.
        decoder_start_id: the id that the decoder begins with.
        inputs_length: places of the inputs.
        targets_length: places of the targets.
    """

    sentinel_ids: Any
    eos_id: int
    pad_id: int
    decoder_start_id: int
    inputs_length: int
    targets_length: int


def make_layout(
    counts: Sequence[NoiseCounts],
    opening: int,
    *,
    sentinel_ids: Sequence[int] | Array,
    eos_id: int,
    pad_id: int,
    decoder_start_id: int | None,
    inputs_length: int | None,
    targets_length: int | None,
) -> DenoisingLayout:
    """The layout for rows with these counts and `opening` ids before their inputs.

    Raises:
        InvalidArgumentError: too few sentinels, or too short lengths, for full rows. Shapes alone tell, so it
            is raised under `jax.jit` too, and no row is ever cut.
    """
    sentinels = as_int32("sentinel_ids", sentinel_ids)
    start = pad_id if decoder_start_id is None else decoder_start_id
    for name, value in (("eos_id", eos_id), ("pad_id", pad_id), ("decoder_start_id", start)):
        check_id(name, value)
    rows = f"rows of {len(counts[0].tokens) - 1} tokens"
    spans = max(1, *(int(c.spans.max()) for c in counts))
    if sentinels.ndim != 1 or sentinels.shape[0] < spans:
        raise InvalidArgumentError(
            f"{rows} can have {spans} spans of noise, and sentinel_ids has shape {sentinels.shape}; give at "
            f"least {spans} ids, shorter rows, or a greater mean_noise_span_length"
        )
    needed = {
        "inputs_length": max(int(c.inputs.max()) for c in counts) + opening,
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
            f"{name} is {requested}, and {rows} can need {minimum}; give at least that, or shorter rows: "
            "compute_input_and_target_lengths tells how long they may be"
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
    """Rows as inputs and targets.

    Args:
        ids: integers, shape `(..., length)`.
        attention_mask: 0 on what is no token, of that shape.
        draws: one a token, of that shape.
        counts: of each denoiser, for rows of up to `length` tokens.
        denoisers: which of them each row gets, `int32`, shape `(...)`.
        layout: for these counts.
        modes: for each row the id that its inputs begin with, and whether they do; shape `(...)`.
    """
    xp = get_namespace(ids, attention_mask, draws, denoisers, *layout)
    tokens = as_tokens(ids)
    valid = as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    length = tokens.shape[-1]
    tokens = compact_rows(tokens, valid, length, 0)
    lengths = xp.sum(valid, axis=-1, dtype=np.int32)
    table_row = denoisers * np.int32(length + 1) + lengths
    spread = (gather(np.concatenate(tables), table_row) for tables in zip(*counts, strict=True))
    max_counts = max(int(c.tokens.max()) for c in counts), max(int(c.clean.max()) for c in counts)
    noise = sample_noise(draws, lengths, *spread, max_counts=max_counts)
    present = make_positions(xp, length, tokens.ndim) < lengths[..., None]
    inputs = _insert_sentinels(xp, tokens, present & noise, present, layout.sentinel_ids)
    targets = _insert_sentinels(xp, tokens, present & ~noise, present, layout.sentinel_ids)
    no_empty_row = lengths[..., None] > 0
    ending = (xp.where(no_empty_row, xp.asarray(layout.eos_id, dtype=np.int32), np.int32(0)), no_empty_row)
    opening = [] if modes is None else [(modes[0][..., None], modes[1][..., None] & no_empty_row)]
    encoded, encoded_mask = _join_parts(xp, [*opening, inputs, ending], layout.inputs_length, layout.pad_id)
    decoded, decoded_mask = _join_parts(xp, [targets, ending], layout.targets_length, layout.pad_id)
    start = xp.full_like(decoded[..., :1], xp.asarray(layout.decoder_start_id, dtype=np.int32))
    shifted = xp.concatenate([start, decoded[..., :-1]], axis=-1)
    return DenoisingBatch(encoded, encoded_mask, shifted, decoded, decoded_mask)


def _insert_sentinels(xp: Any, tokens: Any, hidden: Any, present: Any, sentinels: Any) -> tuple[Any, Any]:
    """Tokens with a sentinel at the start of each hidden span, and which of them are there to stay."""
    before = xp.concatenate([xp.zeros_like(hidden[..., :1]), hidden[..., :-1]], axis=-1)
    begins = hidden & ~before
    number = xp.maximum(xp.cumsum(begins, axis=-1, dtype=np.int32) - np.int32(1), np.int32(0))
    marked = xp.where(begins, gather(sentinels, number), tokens)
    return marked, begins | (present & ~hidden)


def _join_parts(xp: Any, parts: Sequence[tuple[Any, Any]], width: int, pad_id: int) -> tuple[Any, Any]:
    """What is kept of the parts, in order, as rows of `width` places; and 1 on these."""
    values, keep = (xp.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True))
    total = xp.sum(keep, axis=-1, keepdims=True, dtype=np.int32)
    mask = (make_positions(xp, width, values.ndim) < total).astype(np.int32)
    return compact_rows(values, keep, width, pad_id), mask
