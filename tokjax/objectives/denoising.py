"""Denoising: inputs and targets of span corruption, as in T5, and of mixtures of denoisers, as in UL2.

The length of a row determines how many tokens are noise, and in how many spans (`_count_noise`).
Random numbers determine where the spans are (`_sample_noise`), as in T5. Example: a row of 6 tokens, of which
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
    jit_eager,
    make_positions,
    prepend_axes,
    scatter_rows,
)
from tokjax._util.checks import check_float, check_id, check_int, check_iterable
from tokjax._util.display import display_batch
from tokjax.core.array_inputs import as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.random_draws import check_draws

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_DRAW_BITS = 24  # random bits of a float32 in [0, 1)
_NO_SPAN = 2**29  # sorts after all span numbers; twice this number plus 1 fits int32
_MAX_TOKENS = 2**22


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


def _check_sentinels(sentinels: Any, spans: int, length: int) -> None:
    """Raises `InvalidArgumentError` if there are too few sentinels for full rows.

    This follows from shapes alone. So it is raised under `jax.jit` too, and no row is ever truncated.
    """
    needed = max(1, spans)
    if sentinels.ndim != 1 or sentinels.shape[0] < needed:
        raise InvalidArgumentError(
            f"rows of {length} tokens can have {needed} noise spans, and sentinel_ids has shape "
            f"{sentinels.shape}; pass at least {needed} sentinel ids, shorter rows, or a larger "
            "mean_noise_span_length"
        )


def _check_width(name: str, requested: int | None, minimum: int, length: int) -> int:
    """Returns the width of the inputs or targets: by default the minimum for full rows."""
    if requested is None:
        return minimum
    if check_int(name, requested) < minimum:
        raise InvalidArgumentError(
            f"{name} is {requested}, and rows of {length} tokens can need {minimum}; pass at least "
            f"{name}={minimum}, or shorter rows (compute_input_and_target_lengths returns their maximum "
            "length)"
        )
    return requested


def _compact_rows(values: Any, keep: Any, width: int, fill: Any) -> Any:
    """Moves the selected values of each row, at most `width`, to its front, and fills the rest of `width`."""
    slots = get_namespace(values, keep).cumsum(keep, axis=-1, dtype=np.int32) - np.int32(1)
    return scatter_rows(width, fill, slots, values, keep)


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
    return _compact_rows(values, keep, width, pad_id), mask


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
    tokens, sentinels = as_tokens(ids), as_int32("sentinel_ids", sentinel_ids)
    length = tokens.shape[-1]
    counts = _count_noise(kinds, length)
    has_mode = np.array([kind.mode_id is not None for kind in kinds])
    start_id = pad_id if decoder_start_id is None else decoder_start_id
    for name, value in (("eos_id", eos_id), ("pad_id", pad_id), ("decoder_start_id", start_id)):
        check_id(name, value)
    _check_sentinels(sentinels, int(counts.spans.max()), length)
    inputs_minimum = int(counts.inputs.max()) + int(has_mode.any())
    inputs_length = _check_width("inputs_length", inputs_length, inputs_minimum, length)
    targets_length = _check_width("targets_length", targets_length, int(counts.targets.max()), length)
    draws = check_draws(draws, (*tokens.shape[:-1], length + 1))
    xp = get_namespace(tokens, attention_mask, draws, sentinels, eos_id, pad_id, start_id)
    valid = as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    tokens, lengths = _compact_rows(tokens, valid, length, 0), xp.sum(valid, axis=-1, dtype=np.int32)
    chosen = _choose_denoisers(xp, draws[..., -1], [kind.weight for kind in kinds])
    noise = _sample_noise(draws[..., :-1], lengths, chosen, counts)
    present = make_positions(xp, length, tokens.ndim) < lengths[..., None]
    inputs = _insert_sentinels(xp, tokens, present & noise, present, sentinels)
    targets = _insert_sentinels(xp, tokens, present & ~noise, present, sentinels)
    # Rows without tokens stay padding: they get neither a mode id nor EOS.
    is_nonempty = lengths[..., None] > 0
    eos = (xp.where(is_nonempty, xp.asarray(eos_id, dtype=np.int32), np.int32(0)), is_nonempty)
    mode_ids = np.array([kind.mode_id or 0 for kind in kinds], np.int32)
    mode = (gather(mode_ids, chosen)[..., None], gather(has_mode, chosen)[..., None] & is_nonempty)
    encoded, encoded_mask = _join_parts(xp, [mode, inputs, eos], inputs_length, pad_id)
    decoded, decoded_mask = _join_parts(xp, [targets, eos], targets_length, pad_id)
    start = xp.full_like(decoded[..., :1], xp.asarray(start_id, dtype=np.int32))
    shifted = xp.concatenate([start, decoded[..., :-1]], axis=-1)
    return DenoisingBatch(encoded, encoded_mask, shifted, decoded, decoded_mask, chosen)


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
    draws = check_draws(draws, tokens.shape)
    xp = get_namespace(draws)
    batch = denoising_mixture(
        tokens,
        attention_mask,
        xp.concatenate([draws, xp.zeros_like(draws, shape=(*draws.shape[:-1], 1))], axis=-1),
        denoisers=[_make_denoiser(noise_density, mean_noise_span_length)],
        sentinel_ids=sentinel_ids,
        eos_id=eos_id,
        pad_id=pad_id,
        inputs_length=inputs_length,
        targets_length=targets_length,
        decoder_start_id=decoder_start_id,
    )
    return batch._replace(denoisers=None)


def _make_denoiser(noise_density: float, mean_noise_span_length: float) -> Denoiser:
    """Returns the denoiser of span corruption, which is not that of a prefix."""
    check_float("mean_noise_span_length", mean_noise_span_length, minimum=1)
    return Denoiser(noise_density, mean_noise_span_length)


def _check_denoisers(denoisers: Any) -> list[Denoiser]:
    kinds = [denoisers] if isinstance(denoisers, Denoiser) else list(check_iterable("denoisers", denoisers))
    for kind in kinds:
        if not isinstance(kind, Denoiser):
            raise InvalidArgumentError(f"denoisers must be Denoisers, and {kind!r} is not a Denoiser")
    if not kinds:
        raise InvalidArgumentError("denoisers is empty; pass at least one Denoiser, or UL2_DENOISERS")
    return kinds


def _choose_denoisers(xp: Any, draws: Any, weights: Sequence[float]) -> Any:
    """Returns the index of the denoiser that each random number selects, in proportion to the weights."""
    bounds = prepend_axes(draws.ndim + 1, (np.cumsum(weights)[:-1] / np.sum(weights)).astype(np.float32))
    return xp.sum(draws[..., None] >= bounds, axis=-1, dtype=np.int32)


class _NoiseCounts(NamedTuple):
    """Table of noise counts by denoiser and row length: column `n` is for rows of `n` tokens.

    Attributes:
        tokens: number of noise tokens, `int32`, shape `(denoisers, lengths)`.
        spans: number of noise spans, `int32`, shape `(denoisers, lengths)`.
    """

    tokens: NDArray[np.int32]
    spans: NDArray[np.int32]

    @property
    def clean(self) -> NDArray[Any]:
        """Number of clean tokens, which are not noise, shape `(denoisers, lengths)`."""
        return np.arange(self.tokens.shape[1]) - self.tokens

    @property
    def inputs(self) -> NDArray[Any]:
        """Width of the inputs: clean tokens, sentinels and EOS, shape `(denoisers, lengths)`."""
        return self.clean + self.spans + 1

    @property
    def targets(self) -> NDArray[Any]:
        """Width of the targets: noise tokens, sentinels and EOS, shape `(denoisers, lengths)`.

        The targets of a row without noise have one sentinel too.
        """
        return self.tokens + np.maximum(self.spans, 1) + 1


def _count_noise(denoisers: Sequence[Denoiser], length: int) -> _NoiseCounts:
    """Computes the noise counts of rows of 0 to `length` tokens.

    They are computed on the host, because devices may round differently, and in `float32`, as T5 does. There
    are at most as many noise spans as clean tokens, since each noise span needs a clean token before it.

    Raises:
        InvalidArgumentError: `length` is a symbolic dimension of `jax.export`.
    """
    if not isinstance(length, int):
        raise InvalidArgumentError(
            f"rows have the symbolic length {length}, but noise counts are a table with an entry for each "
            "length; export with a fixed length of rows (their number may be symbolic)"
        )
    densities = np.array([[kind.noise_density] for kind in denoisers], np.float64)
    span_lengths = np.array([[kind.mean_noise_span_length or math.inf] for kind in denoisers], np.float32)
    lengths = np.arange(length + 1, dtype=np.int32)
    clipped_lengths = np.maximum(lengths, 2)
    rounded_tokens = np.rint(clipped_lengths.astype(np.float32) * densities.astype(np.float32)).astype(
        np.int32
    )
    tokens = np.clip(rounded_tokens, 1, clipped_lengths - 1)
    rounded_spans = np.rint(tokens.astype(np.float32) / span_lengths).astype(np.int32)
    spans = np.clip(rounded_spans, 1, np.minimum(tokens, clipped_lengths - tokens))
    noisy = (lengths >= 2) & (densities > 0)
    return _NoiseCounts(np.where(noisy, tokens, 0), np.where(noisy, spans, 0))


def _sample_noise(draws: Any, lengths: Any, denoisers: Any, counts: _NoiseCounts) -> Any:
    """Chooses noise tokens at random, from given numbers of noise tokens and noise spans.

    Clean spans and noise spans alternate; the first is clean, and the last is noise. All such arrangements
    are equally likely. Each random number is used once.

    Args:
        draws: random numbers, `float32` in `[0, 1)`, shape `(..., length)`.
        lengths: number of tokens of each row, which are at its start; `int32`, shape `(...)`.
        denoisers: index of the denoiser of each row, `int32`, shape `(...)`.
        counts: noise counts of the denoisers, for rows of up to `length` tokens.

    Returns:
        Mask of noise tokens, booleans, shape `(..., length)`. Values after the end of a row are arbitrary.
    """
    xp = get_namespace(draws, lengths, denoisers)
    length = draws.shape[-1]
    if length == 0:
        return xp.zeros(draws.shape, bool)
    table_index = denoisers * np.int32(length + 1) + lengths
    tokens, spans = (gather(table.reshape(-1), table_index) for table in counts)
    # The maximum number of noise tokens, and of clean tokens, of any row limits the amount of work.
    noise_width, clean_width = (min(max(int(n.max()), 1), length) for n in (counts.tokens, counts.clean))
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
    denoiser = _make_denoiser(noise_density, mean_noise_span_length)
    counts = _count_noise([denoiser], check_int("tokens_length", tokens_length, minimum=0))
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
    denoiser = _make_denoiser(noise_density, mean_noise_span_length)
    while (counts := _count_noise([denoiser], bound)).inputs[0, -1] <= inputs_length:
        bound *= 2
        if bound > _MAX_TOKENS:
            raise InvalidArgumentError(
                f"with noise_density={noise_density}, rows of millions of tokens fit inputs_length="
                f"{inputs_length}; choose the length of rows yourself, and pass it to span_corruption_lengths"
            )
    [inputs], [targets] = counts.inputs, counts.targets
    tokens = int(np.searchsorted(inputs, inputs_length, "right")) - 1
    if noise_density == 0.5 and targets[tokens] > inputs[tokens]:
        tokens -= 1
    return SpanCorruptionLengths(tokens, int(inputs[tokens]), int(targets[tokens]))
