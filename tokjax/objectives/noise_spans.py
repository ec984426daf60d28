"""Noise spans: random choice of the tokens that span corruption replaces, as in T5.

The length of a row determines how many tokens are noise, and in how many spans (`compute_noise_counts`).
Random numbers determine where the spans are (`sample_noise`). Example: a row of 6 tokens, of which 3 are
noise, in 2 spans. Noise tokens and clean tokens are first split into 2 spans each. The spans are then
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

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import get_namespace, make_positions
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
