"""Denoising batches: inputs and targets of span corruption and of denoiser mixtures, as in UL2.

The length of a row determines how many tokens are noise, and in how many spans (`compute_noise_counts`).
Random numbers determine where the spans are (`sample_noise`), as in T5. Example: a row of 6 tokens, of which
3 are noise, in 2 spans. Noise tokens and clean tokens are first split into 2 spans each. The spans are then
interleaved:

    draws                       0    .8   .3   .2   .6   0

    draws of 3 noise tokens     0    .8   .3                  the first three
    span of each                0    0    1                   the smallest draw after the first begins span 1
    sort key 2 * span + 1       1    1    3

    draws of 3 clean tokens     0    .6   .2                  the last three, in reverse
    span of each                0    0    1
    sort key 2 * span           0    0    2

    all keys, sorted            0    0    1    1    2    3
    noise where the key is odd  .    .    #    #    .    #

Sorting makes this work under `jax.jit`, where the lengths of spans are unknown. See docs/objectives.md,
section "Span corruption".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    gather,
    get_namespace,
    make_positions,
    prepend_axes,
    scatter_rows,
)
from tokjax._util.checks import check_float, check_id, check_int
from tokjax._util.display import display_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.random_draws import check_draws

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


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


@dataclass(frozen=True)
class Denoiser:
    """Settings of one kind of noise.

    Attributes:
        noise_density: fraction of tokens that are noise, from 0 to 1.
        mean_noise_span_length: mean length of noise spans in tokens, at least 1; `None` is a single span at
            the end of the row, so that the model continues a prefix.
        weight: probability of the denoiser, relative to the weights of the others; more than 0.
        mode_id: id at the start of the inputs, which shows the denoiser to the model; `None` adds nothing.

    Raises:
        InvalidArgumentError: a value is out of these bounds.
    """

    noise_density: float
    mean_noise_span_length: float | None
    weight: float = 1.0
    mode_id: int | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        check_float("noise_density", self.noise_density, minimum=0, maximum=1)
        if self.mean_noise_span_length is not None:
            check_float("mean_noise_span_length", self.mean_noise_span_length, minimum=1)
        if check_float("weight", self.weight, minimum=0) == 0:
            raise InvalidArgumentError("weight must be more than 0; omit a denoiser that is never used")
        if self.mode_id is not None:
            check_id("mode_id", self.mode_id)


UL2_DENOISERS = (
    Denoiser(0.15, 3),
    Denoiser(0.15, 8),
    Denoiser(0.25, None),
    Denoiser(0.5, 3),
    Denoiser(0.5, 8),
    Denoiser(0.15, 64),
    Denoiser(0.5, 64),
)
"""The seven denoisers of table 1 of UL2: two regular ones, the sequential one, and four extreme ones.

They have equal weights and no mode ids, since these depend on the tokenizer. Set them with
`dataclasses.replace(denoiser, mode_id=..., weight=...)`.
"""


@jit_eager
def denoising_mixture(
    ids: Array,
    attention_mask: Array,
    draws: Array,
    *,
    denoisers: Sequence[Denoiser],
    sentinel_ids: Sequence[int] | Array,
    eos_id: int,
    pad_id: int,
    inputs_length: int | None = None,
    targets_length: int | None = None,
    decoder_start_id: int | None = None,
) -> DenoisingBatch:
    """Corrupts each row by a randomly chosen denoiser, as UL2 does. All rows get the same shape.

    Args:
        ids: token ids without EOS, integers, shape `(..., length)`.
        attention_mask: mask of tokens, not 0 on these, shape `(..., length)`.
        draws: random numbers, `draw_uniform(source, (..., length + 1))`; the last of each row chooses its
            denoiser.
        denoisers: denoisers of the mixture, at least one.
        sentinel_ids: as in `span_corruption`; there must be enough for each of the denoisers.
        eos_id: id at the end of inputs and targets.
        pad_id: id on padding.
        inputs_length: width of the inputs; by default the maximum over all denoisers for a row of `length`
            tokens, with the mode id.
        targets_length: width of the targets; by default the maximum over all denoisers, too.
        decoder_start_id: first id of the decoder inputs; by default the pad id.

    Returns:
        A batch as from `span_corruption`, whose `denoisers` hold the index of the denoiser of each row.

    Raises:
        InvalidArgumentError: `denoisers` is empty, or as for `span_corruption`.

    >>> ids = np.arange(11, 19)[None, :]
    >>> draws = np.full((1, 9), 0.9, np.float32)
    >>> denoisers = [Denoiser(0.15, 3), Denoiser(0.25, None, mode_id=5)]
    >>> batch = denoising_mixture(
    ...     ids, ids, draws, denoisers=denoisers, sentinel_ids=[99], eos_id=1, pad_id=0)
    >>> batch.inputs, batch.denoisers
    (array([[ 5, 11, 12, 13, 14, 15, 16, 99,  1,  0]], dtype=int32), array([1], dtype=int32))
    """
    kinds = _check_denoisers(denoisers)
    tokens = as_tokens(ids)
    length = tokens.shape[-1]
    counts = [_compute_counts(kind, length) for kind in kinds]
    has_mode = np.array([kind.mode_id is not None for kind in kinds])
    layout = make_layout(
        counts,
        int(has_mode.any()),
        sentinel_ids=sentinel_ids,
        eos_id=eos_id,
        pad_id=pad_id,
        decoder_start_id=decoder_start_id,
        inputs_length=inputs_length,
        targets_length=targets_length,
    )
    draws = check_draws(draws, (*tokens.shape[:-1], length + 1))
    xp = get_namespace(tokens, attention_mask, draws)
    chosen = _choose_denoisers(xp, draws[..., -1], [kind.weight for kind in kinds])
    mode_ids = np.array([kind.mode_id or 0 for kind in kinds], np.int32)
    modes = (gather(mode_ids, chosen), gather(has_mode, chosen)) if has_mode.any() else None
    batch = corrupt_rows(tokens, attention_mask, draws[..., :-1], counts, chosen, layout, modes)
    return batch._replace(denoisers=chosen)


def _check_denoisers(denoisers: Sequence[Denoiser]) -> list[Denoiser]:
    if isinstance(denoisers, Denoiser):
        raise InvalidArgumentError("denoisers must be a list of Denoisers; pass [denoiser]")
    kinds = list(denoisers)
    for kind in kinds:
        if not isinstance(kind, Denoiser):
            raise InvalidArgumentError(f"denoisers must be Denoisers, and {kind!r} is not a Denoiser")
    if not kinds:
        raise InvalidArgumentError("denoisers is empty; pass at least one Denoiser, or UL2_DENOISERS")
    return kinds


def _compute_counts(kind: Denoiser, length: int) -> NoiseCounts:
    span_length = math.inf if kind.mean_noise_span_length is None else kind.mean_noise_span_length
    return compute_noise_counts(length, kind.noise_density, span_length)


def _choose_denoisers(xp: Any, draws: Any, weights: Sequence[float]) -> Any:
    """Returns the index of the denoiser that each random number selects, in proportion to the weights."""
    bounds = prepend_axes(draws.ndim + 1, (np.cumsum(weights)[:-1] / np.sum(weights)).astype(np.float32))
    return xp.sum(draws[..., None] >= bounds, axis=-1, dtype=np.int32)


_DRAW_BITS = 24  # random bits of a float32 in [0, 1)
_NO_SPAN = 2**29  # sorts after all span numbers; twice this number plus 1 fits int32


class NoiseCounts(NamedTuple):
    """Table of noise counts by row length: entry `n` is for rows of `n` tokens.

    Attributes:
        tokens: number of noise tokens, `int32`, shape `(lengths,)`.
        spans: number of noise spans, `int32`, shape `(lengths,)`.
    """

    tokens: NDArray[np.int32]
    spans: NDArray[np.int32]

    @property
    def clean(self) -> NDArray[Any]:
        """Number of clean tokens, which are not noise, shape `(lengths,)`."""
        return np.arange(len(self.tokens)) - self.tokens

    @property
    def inputs(self) -> NDArray[Any]:
        """Width of the inputs: clean tokens, sentinels and EOS, shape `(lengths,)`."""
        return self.clean + self.spans + 1

    @property
    def targets(self) -> NDArray[Any]:
        """Width of the targets: noise tokens, sentinels and EOS, shape `(lengths,)`.

        The targets of a row without noise have one sentinel too.
        """
        return self.tokens + np.maximum(self.spans, 1) + 1


def compute_noise_counts(length: int, noise_density: float, mean_noise_span_length: float) -> NoiseCounts:
    """Computes the noise counts of rows of up to `length` tokens.

    They are computed on the host, because devices may round differently, and in `float32`, as T5 does. There
    are at most as many noise spans as clean tokens, since each noise span needs a clean token
    before it.

    Args:
        length: maximum number of tokens of a row.
        noise_density: fraction of tokens that are noise, from 0 to 1.
        mean_noise_span_length: mean length of noise spans in tokens; infinity makes a single span.

    Returns:
        Noise counts of rows of 0 to `length` tokens.

    Raises:
        InvalidArgumentError: `length` is a symbolic dimension of `jax.export`.
    """
    if not isinstance(length, int):
        raise InvalidArgumentError(
            f"rows have the symbolic length {length}, but noise counts are a table with an entry for each "
            "length; export with a fixed length of rows (their number may be symbolic)"
        )
    lengths = np.arange(length + 1, dtype=np.int32)
    clipped_lengths = np.maximum(lengths, 2)
    rounded_tokens = np.rint(clipped_lengths.astype(np.float32) * np.float32(noise_density)).astype(np.int32)
    tokens = np.clip(rounded_tokens, 1, clipped_lengths - 1)
    rounded_spans = np.rint(tokens.astype(np.float32) / np.float32(mean_noise_span_length)).astype(np.int32)
    spans = np.clip(rounded_spans, 1, np.minimum(tokens, clipped_lengths - tokens))
    noisy = (lengths >= 2) & (noise_density > 0)
    return NoiseCounts(np.where(noisy, tokens, 0), np.where(noisy, spans, 0))


def sample_noise(draws: Any, lengths: Any, tokens: Any, spans: Any, *, max_counts: tuple[int, int]) -> Any:
    """Chooses noise tokens at random, from given numbers of noise tokens and noise spans.

    Clean spans and noise spans alternate; the first is clean, and the last is noise. All such arrangements
    are equally likely. Each random number is used once.

    Args:
        draws: random numbers, `float32` in `[0, 1)`, shape `(..., length)`.
        lengths: number of tokens of each row, which are at its start; `int32`, shape `(...)`.
        tokens: number of noise tokens of each row, `int32`, shape `(...)`.
        spans: number of noise spans of each row, `int32`, shape `(...)`; at least 1 where `tokens` is not 0.
        max_counts: maximum number of noise tokens of any row, and of clean tokens. They limit the amount of
            work.

    Returns:
        Mask of noise tokens, booleans, shape `(..., length)`. Values after the end of a row are arbitrary.
    """
    xp = get_namespace(draws, lengths, tokens, spans)
    length = draws.shape[-1]
    if length == 0:
        return xp.zeros(draws.shape, bool)
    noise_width, clean_width = (min(max(width, 1), length) for width in max_counts)
    # Noise uses the first draws of the array, and clean tokens the last, so no draw is used twice.
    noise = _assign_spans(draws[..., :noise_width], tokens, spans)
    clean = _assign_spans(draws[..., ::-1][..., :clean_width], lengths - tokens, spans)
    # Sorted keys order tokens by span, and the clean span before the noise span of the same number.
    keys = xp.concatenate([np.int32(2) * noise + np.int32(1), np.int32(2) * clean], axis=-1)
    return xp.sort(keys, axis=-1)[..., :length] % np.int32(2) == np.int32(1)


def _assign_spans(draws: Any, items: Any, spans: Any) -> Any:
    """Splits `items` tokens into `spans` spans at random, and returns the span of each token, from 0.

    A span begins at the first token, and at the `spans - 1` other tokens with the smallest draws. All ways to
    split are equally likely. Entries after the last token are `_NO_SPAN`.
    """
    xp = get_namespace(draws, items, spans)
    items, spans = items[..., None], spans[..., None]
    position = make_positions(xp, draws.shape[-1], draws.ndim)
    can_begin = (position > 0) & (position < items)
    # A draw has 24 random bits, so the conversion is exact. Tokens that cannot begin a span get the maximum.
    integers = (draws * np.float32(2**_DRAW_BITS)).astype(np.int32)
    begins = _find_smallest(xp, xp.where(can_begin, integers, np.int32(2**_DRAW_BITS)), spans - np.int32(1))
    number = xp.cumsum(begins, axis=-1, dtype=np.int32)
    return xp.where(position < items, number, np.int32(_NO_SPAN))


def _find_smallest(xp: Any, keys: Any, count: Any) -> Any:
    """Returns a mask of the `count` smallest keys of each row; all False if `count` is below 1.

    Of equal keys, the first ones are selected, so that exactly `count` keys are.
    """
    last = xp.take_along_axis(xp.sort(keys, axis=-1), xp.maximum(count - np.int32(1), np.int32(0)), axis=-1)
    smaller, equal = keys < last, keys == last
    remaining = count - xp.sum(smaller, axis=-1, keepdims=True, dtype=np.int32)
    return smaller | (equal & (xp.cumsum(equal, axis=-1, dtype=np.int32) <= remaining))
