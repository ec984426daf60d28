"""Which tokens of a row are noise: spans of random lengths, as T5 draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import get_namespace, make_positions
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DRAW_BITS = 24  # that a draw has
_NO_SPAN = 2**29  # more than any number of a span


class NoiseCounts(NamedTuple):
    """How much of rows of 0, 1, 2, ... tokens is noise; `int32` arrays of shape `(lengths,)`.

    Attributes:
        tokens: how many tokens.
        spans: in how many spans they are.
    """

    tokens: NDArray[np.int32]
    spans: NDArray[np.int32]

    @property
    def clean(self) -> NDArray[Any]:
        """How many tokens are no noise."""
        return np.arange(len(self.tokens)) - self.tokens

    @property
    def inputs(self) -> NDArray[Any]:
        """Tokens and sentinels in the inputs, with the EOS."""
        return self.clean + self.spans + 1

    @property
    def targets(self) -> NDArray[Any]:
        """Tokens and sentinels in the targets, with the EOS; a row without noise has a sentinel too."""
        return self.tokens + np.maximum(self.spans, 1) + 1


def compute_noise_counts(length: int, noise_density: float, mean_noise_span_length: float) -> NoiseCounts:
    """The counts for rows of up to `length` tokens.

    They are worked out on the host, in T5's `float32`, so that no device rounds them otherwise. Where spans
    of that mean length would be more than the tokens to part them, there are as many as such tokens.
    """
    if not isinstance(length, int):
        raise InvalidArgumentError(
            f"rows have the symbolic length {length}, and how many of their tokens are noise is tabled for "
            "each length: export with a fixed length of rows; their number may be symbolic"
        )
    lengths = np.arange(length + 1, dtype=np.int32)
    clipped_lengths = np.maximum(lengths, 2)
    wanted = np.rint(clipped_lengths.astype(np.float32) * np.float32(noise_density)).astype(np.int32)
    tokens = np.clip(wanted, 1, clipped_lengths - 1)
    split = np.rint(tokens.astype(np.float32) / np.float32(mean_noise_span_length)).astype(np.int32)
    spans = np.clip(split, 1, np.minimum(tokens, clipped_lengths - tokens))
    noisy = (lengths >= 2) & (noise_density > 0)
    return NoiseCounts(np.where(noisy, tokens, 0), np.where(noisy, spans, 0))


def sample_noise(draws: Any, lengths: Any, tokens: Any, spans: Any, *, max_counts: tuple[int, int]) -> Any:
    """True on noise: a span that is kept, a span of noise, and so on, ending with noise.

    All ways to have so many spans of so many tokens are equally likely. A token's draw is used once.

    Args:
        draws: `float32` in `[0, 1)`, shape `(..., length)`.
        lengths: how many tokens each row has, at its front; `int32`, shape `(...)`.
        tokens: how many of them are noise, of that shape.
        spans: in how many spans, of that shape; not 0 where `tokens` is not.
        max_counts: the most tokens of a row that may be noise, and that may be kept.

    Returns:
        Booleans, shape `(..., length)`; what they are past the end of a row means nothing.
    """
    xp = get_namespace(draws, lengths, tokens, spans)
    length = draws.shape[-1]
    if length == 0:
        return xp.zeros(draws.shape, bool)
    noise_width, clean_width = (min(max(width, 1), length) for width in max_counts)
    noise = _assign_spans(draws[..., :noise_width], tokens, spans)
    clean = _assign_spans(draws[..., ::-1][..., :clean_width], lengths - tokens, spans)
    # In the order of their spans, and what is kept before the noise of that number.
    keys = xp.concatenate([np.int32(2) * noise + np.int32(1), np.int32(2) * clean], axis=-1)
    return xp.sort(keys, axis=-1)[..., :length] % np.int32(2) == np.int32(1)


def _assign_spans(draws: Any, items: Any, spans: Any) -> Any:
    """For each of a row's items the number of its span, from 0, if the row is split at random places."""
    xp = get_namespace(draws, items, spans)
    items, spans = items[..., None], spans[..., None]
    position = make_positions(xp, draws.shape[-1], draws.ndim)
    may_begin = (position > 0) & (position < items)
    integers = (draws * np.float32(2**_DRAW_BITS)).astype(np.int32)
    begins = _find_smallest(xp, xp.where(may_begin, integers, np.int32(2**_DRAW_BITS)), spans - np.int32(1))
    number = xp.cumsum(begins, axis=-1, dtype=np.int32)
    return xp.where(position < items, number, np.int32(_NO_SPAN))


def _find_smallest(xp: Any, keys: Any, count: Any) -> Any:
    """True on the `count` smallest keys of each row, the first of equal ones; none if `count` is below 1."""
    last = xp.take_along_axis(xp.sort(keys, axis=-1), xp.maximum(count - np.int32(1), np.int32(0)), axis=-1)
    smaller, equal = keys < last, keys == last
    left = count - xp.sum(smaller, axis=-1, keepdims=True, dtype=np.int32)
    return smaller | (equal & (xp.cumsum(equal, axis=-1, dtype=np.int32) <= left))
