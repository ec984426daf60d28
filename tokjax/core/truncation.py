"""Truncation and windows: which tokens of each text a row has.

Truncation and windows do not copy tokens. They compute slices of the tokens of each text (`TokenSlices`), and
`core.template.apply_template` copies these to the rows. The template `[CLS] $A [SEP] $B [SEP]` and
`max_length=10` leave a capacity of 7 tokens for the texts. Pairs of texts keep these numbers of tokens:

    lengths   longest_first   only_first   only_second
    2, 9      2, 5            (error)      2, 5
    5, 9      3, 4            (error)      5, 2
    9, 5      4, 3            2, 5         (error)

An error means that the text that is not truncated is longer than the capacity. Windows cover a text that is
longer than the capacity, so that no token is removed. With a capacity of 4 and a stride of 2:

    token index    0   1   2   3   4   5   6
    window 0       |-------------|                   start 0, length 4
    window 1               |-------------|           start 2, length 4
    window 2                       |---------|       start 4, length 3

See `encoding.windows` for windows over pairs of texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from tokjax.core.ragged import concatenate_ranges
from tokjax.core.template import TokenSlices
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.core.template import TemplatePiece

    Ints = NDArray[np.int64]


Truncation = Literal["longest_first", "only_first", "only_second"]
"""Which text of a pair is truncated."""
TRUNCATIONS: tuple[Truncation, ...] = ("longest_first", "only_first", "only_second")
"""The values of `Truncation`, to check arguments."""


def compute_text_capacity(max_length: int, pieces: Sequence[TemplatePiece]) -> int:
    """Computes how many tokens of the texts fit in a row beside the special tokens of the template.

    Args:
        max_length: maximum number of tokens of a row.
        pieces: the template.

    Raises:
        InvalidArgumentError: the special tokens alone are longer than `max_length`.
    """
    inserted = sum(piece.text is None for piece in pieces)
    if max_length < inserted:
        raise InvalidArgumentError(
            f"max_length is {max_length}, and the tokenizer's template alone has {inserted} tokens"
        )
    return max_length - inserted


def compute_truncated_lengths(lengths: Sequence[Ints], capacity: int, truncation: Truncation) -> list[Ints]:
    """Computes how many tokens of each text are kept, so that a row has at most `capacity` tokens of texts.

    The lengths equal those of Hugging Face's `tokenizers`. `"longest_first"` truncates only the longer text
    if the shorter one has at most half of the capacity. Otherwise both get half, and the longer one gets the
    extra token of an odd capacity. See the example at the head of the module.

    Args:
        lengths: numbers of tokens of the first texts, and for pairs of the second texts, `int64`, shape
            `(n,)`.
        capacity: maximum number of tokens of texts in a row.
        truncation: which text of a pair is truncated.

    Returns:
        Numbers of kept tokens, arrays like `lengths`.

    Raises:
        InvalidArgumentError: the text that must not be truncated is longer than the capacity.
    """
    if len(lengths) == 1:
        return [np.minimum(lengths[0], capacity)]
    first, second = lengths
    if truncation == "longest_first":
        return _truncate_longest_first(first, second, capacity)
    truncated, untruncated = (first, second) if truncation == "only_first" else (second, first)
    check_capacity(untruncated, capacity, truncation)
    remaining = np.minimum(truncated, capacity - untruncated)
    return [remaining, untruncated] if truncation == "only_first" else [untruncated, remaining]


def compute_truncated_starts(lengths: Ints, truncated_lengths: Ints, side: Literal["left", "right"]) -> Ints:
    """Computes the first kept token of each text.

    Args:
        lengths: number of tokens of each text, `int64`, shape `(n,)`.
        truncated_lengths: number of kept tokens, `int64`, shape `(n,)`.
        side: side of the text from which tokens are removed.
    """
    return lengths - truncated_lengths if side == "left" else np.zeros(len(lengths), np.int64)


def check_capacity(untruncated: Ints, capacity: int, truncation: Truncation) -> None:
    """Raises `InvalidArgumentError` if a text that must not be truncated is longer than the capacity."""
    if (untruncated > capacity).any():
        row = int(np.flatnonzero(untruncated > capacity)[0])
        raise InvalidArgumentError(
            f"pair {row}: the text that truncation={truncation!r} does not truncate has {untruncated[row]} "
            f"tokens, and max_length leaves {capacity}; increase max_length, or truncate the other text"
        )


def compute_windows(lengths: Ints, capacities: Ints, stride: int) -> TokenSlices:
    """Computes overlapping windows over texts. An empty text has one empty window.

    Args:
        lengths: number of tokens of each text, `int64`, shape `(n,)`.
        capacities: maximum number of tokens of a window over each text, `int64`, shape `(n,)`.
        stride: number of tokens that two consecutive windows have in common.

    Returns:
        The slice of each window, in the order of the texts.
    """
    steps = capacities - stride
    # One window, and more for the tokens that do not fit it, rounded up: -(-a // b).
    counts = 1 + np.maximum(-(-(lengths - capacities) // steps), 0)
    rows = np.repeat(np.arange(len(lengths)), counts)
    starts = concatenate_ranges(0, counts) * steps[rows]
    return TokenSlices(rows, starts, np.minimum(capacities[rows], lengths[rows] - starts))


def _truncate_longest_first(first: Ints, second: Ints, capacity: int) -> list[Ints]:
    # The longer text is first truncated to the remaining capacity, but not below the length of the shorter
    # one.
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.minimum(longer, np.maximum(capacity - shorter, shorter))
    too_long = shorter + longer > capacity
    shorter = np.where(too_long, capacity // 2, shorter)
    longer = np.where(too_long, capacity - capacity // 2, longer)
    swapped = first > second
    return [np.where(swapped, longer, shorter), np.where(swapped, shorter, longer)]
