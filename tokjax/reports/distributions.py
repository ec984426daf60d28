"""Measures of the distribution of tokens, as functions of counts: entropy, Huffman code, Rényi efficiency.

An example with the counts 2, 1 and 1. A Huffman code joins the two rarest tokens, again and again; the sum of
the counts of all joined tokens is the length of the coded text in bits::

    token      count   code   bits                joined   count
    a          2       0      2 x 1               b c      2
    b          1       10     1 x 2               a b c    4
    c          1       11     1 x 2               sum      6 bits

The entropy is a lower bound of the mean code length of any such code, and here it is reached: 1.5 bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.arrays import as_known
from tokjax._util.checks import check_float
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

RENYI_ORDER = 2.5
"""Default order of the Rényi entropy. In experiments with machine translation, the efficiency of this order
predicted the quality of the models best."""


def compute_entropy(counts: ArrayLike) -> float:
    """Computes the entropy of a distribution of tokens, in bits per token.

    It is the sum of `-p * log2(p)` over all tokens that occur, where `p` is the share of the token.

    Args:
        counts: number of occurrences of each token, integers, shape `(num_tokens,)`.

    Returns:
        The entropy; `nan` if no token occurs.

    Raises:
        InvalidArgumentError: the counts are not integers of one dimension, or one of them is negative.

    >>> compute_entropy([2, 1, 1, 0])
    1.5
    """
    frequencies = _sort_positive(counts)
    if not len(frequencies):
        return math.nan
    shares = frequencies / frequencies.sum()
    parts = (shares * np.log2(shares)).tolist()
    # Adding 0.0 turns -0.0 into 0.0. `fsum` is exact, while the result of a dot product may depend on the
    # memory alignment of its arrays.
    return -math.fsum(parts) + 0.0


def compute_huffman_length(counts: ArrayLike) -> float:
    """Computes the mean code length of a Huffman code for the tokens, in bits per token.

    No code that gives each token a whole number of bits is shorter. The length is at least the entropy, and
    less than one bit above it.

    Args:
        counts: number of occurrences of each token, integers, shape `(num_tokens,)`.

    Returns:
        The mean code length; 0 if only one token occurs, and `nan` if none does.

    Raises:
        InvalidArgumentError: the counts are not integers of one dimension, or one of them is negative.

    >>> compute_huffman_length([6, 1, 1, 0])
    1.25
    """
    frequencies = _sort_positive(counts).tolist()
    if not frequencies:
        return math.nan
    # Joined tokens are made in ascending order of their counts, so the rarest token is always the next one of
    # two sorted lists, and no heap is needed.
    joined: list[int] = []
    first_single = first_joined = 0
    for _ in range(len(frequencies) - 1):
        count = 0
        for _ in range(2):
            has_single, has_joined = first_single < len(frequencies), first_joined < len(joined)
            if has_single and not (has_joined and joined[first_joined] < frequencies[first_single]):
                count += frequencies[first_single]
                first_single += 1
            else:
                count += joined[first_joined]
                first_joined += 1
        joined.append(count)
    total: float = sum(joined) / sum(frequencies)
    return total


def compute_renyi_efficiency(counts: ArrayLike, order: float = RENYI_ORDER) -> float:
    """Computes the Rényi efficiency of a vocabulary: Rényi entropy divided by its maximum.

    It is 1 if all tokens of the vocabulary are equally frequent. Orders above 1 reduce it for vocabularies
    with a few very frequent tokens.

    Args:
        counts: number of occurrences of each token of the vocabulary, integers, shape `(vocab_size,)`. Tokens
            that do not occur count as part of the vocabulary.
        order: order of the entropy, at least 0. The order 1 is the entropy of `compute_entropy`.

    Returns:
        The efficiency, 0 to 1; `nan` if no token occurs, or the vocabulary has a single token.

    Raises:
        InvalidArgumentError: the counts are not integers of one dimension, one of them is negative, or the
            order is negative.

    >>> compute_renyi_efficiency([1, 1, 1, 1]), round(compute_renyi_efficiency([5, 1, 1, 1]), 3)
    (1.0, 0.54)
    """
    order = check_float("order", order, minimum=0)
    frequencies = _sort_positive(counts)
    size = np.size(counts)
    if not len(frequencies) or size < 2:
        return math.nan
    if order == 1:
        return compute_entropy(counts) / math.log2(size)
    # Powers of shares are divided by that of the greatest one, so that high orders do not underflow.
    shares = frequencies / frequencies.sum()
    powers = ((shares / shares[-1]) ** order).tolist()
    logarithm = math.log2(math.fsum(powers)) + order * math.log2(shares[-1])
    return logarithm / (1 - order) / math.log2(size) + 0.0


def _sort_positive(counts: ArrayLike) -> NDArray[np.int64]:
    """Returns the positive counts, ascending."""
    array = as_known("counts", counts)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidArgumentError(
            f"counts must be integers of one dimension, not {array.dtype} of shape {array.shape}; pass "
            "np.bincount(ids, minlength=vocab_size)"
        )
    if (array < 0).any():
        raise InvalidArgumentError(f"counts must not be negative, but the lowest is {array.min()}")
    return np.sort(array[array > 0]).astype(np.int64)
