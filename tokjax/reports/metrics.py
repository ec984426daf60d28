"""Records and metrics of a vocabulary report.

The measures of the distribution of tokens are functions of counts, for example 2, 1 and 1. A Huffman code
joins the two rarest tokens, again and again; the sum of the counts of all joined tokens is the length of the
coded text in bits:

    token      count   code   bits                joined   count
    a          2       0      2 x 1               b c      2
    b          1       10     1 x 2               a b c    4
    c          1       11     1 x 2               sum      6 bits

The entropy is a lower bound of the mean code length of any such code, and here it is reached: 1.5 bits.
"""

from __future__ import annotations

import heapq
import math
import operator
import re
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import as_known
from tokjax._util.checks import check_float, check_int
from tokjax._util.display import short_repr
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.vocabulary import Vocabulary


_BYTE_FALLBACK_PATTERN = re.compile(rb"<0x[0-9A-F]{2}>")
"""Form of a byte-fallback token."""
_NUM_BYTES = 256
"""Number of byte-fallback tokens of a vocabulary that has all of them."""


@dataclass(frozen=True)
class TextSize:
    """Size of a collection of texts. `a + b` is the size of both together.

    Attributes:
        documents: number of non-empty texts.
        nbytes: number of UTF-8 bytes, before any normalization.
        characters: number of code points; an invalid UTF-8 byte counts as one.
        words: number of words separated by whitespace, as in `str.split`.
    """

    documents: int = 0
    nbytes: int = 0
    characters: int = 0
    words: int = 0

    def __add__(self, other: TextSize) -> TextSize:
        """Returns the size of both collections together."""
        if not isinstance(other, TextSize):
            return NotImplemented
        return TextSize(*map(operator.add, astuple(self), astuple(other)))


class CountedToken(NamedTuple):
    """Token of a vocabulary with its number of occurrences in texts.

    Attributes:
        id: token id.
        token: readable form of the token.
        nbytes: number of bytes of the token.
        times: number of occurrences in the texts.
    """

    id: int
    token: str
    nbytes: int
    times: int


@short_repr
@dataclass(frozen=True, eq=False)
class TokenUse:
    """Token counts of one tokenizer on a collection of texts, and metrics derived from them.

    The length of a token is that of its form in the vocabulary: a piece `##ing` has five bytes. A ratio is
    `nan` if its divisor is zero, that is, without text or without tokens.

    Attributes:
        vocabulary: vocabulary of the tokenizer.
        text: size of the texts.
        counts: number of occurrences of each id, `int64`, shape `(vocabulary.size,)`.
    """

    vocabulary: Vocabulary = field(repr=False)
    text: TextSize
    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        """Makes the counts read-only."""
        self.counts.setflags(write=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the fields without the cached metrics."""
        return TokenUse, (self.vocabulary, self.text, self.counts)

    def __eq__(self, other: object) -> bool:
        """Returns whether vocabularies, text sizes and counts are equal."""
        if not isinstance(other, TokenUse):
            return NotImplemented
        return (self.vocabulary, self.text) == (other.vocabulary, other.text) and np.array_equal(
            self.counts, other.counts
        )

    def __hash__(self) -> int:
        """Returns a hash of the text size and the number of tokens."""
        return hash((self.text, self.tokens))

    def __add__(self, other: TokenUse) -> TokenUse:
        """Returns the token counts of both collections of texts together.

        Raises:
            InvalidArgumentError: the vocabularies differ.
        """
        if not isinstance(other, TokenUse):
            return NotImplemented
        if self.vocabulary != other.vocabulary:
            raise InvalidArgumentError(
                f"can't add token counts of different vocabularies, of {self.vocabulary.size} and "
                f"{other.vocabulary.size} ids; add TokenUse records of one tokenizer"
            )
        return TokenUse(self.vocabulary, self.text + other.text, self.counts + other.counts)

    @cached_property
    def tokens(self) -> int:
        """Number of tokens of the texts. BOS and EOS are not inserted, so they are not counted."""
        return int(self.counts.sum())

    @property
    def vocab_size(self) -> int:
        """The largest id plus one."""
        return self.vocabulary.size

    @property
    def num_ordinary(self) -> int:
        """Number of tokens in the vocabulary that are not special."""
        return len(self.vocabulary.ordinary)

    @property
    def num_special(self) -> int:
        """Number of special tokens in the vocabulary."""
        return len(self.vocabulary.special)

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per token. A higher value means shorter sequences."""
        return _divide(self.text.nbytes, self.tokens)

    @property
    def characters_per_token(self) -> float:
        """Characters of text per token."""
        return _divide(self.text.characters, self.tokens)

    @property
    def tokens_per_word(self) -> float:
        """Tokens per word of text (also called fertility)."""
        return _divide(self.tokens, self.text.words)

    @cached_property
    def bits_per_token(self) -> float:
        """Entropy of the distribution of single tokens, in bits per token: `compute_entropy(counts)`."""
        return compute_entropy(self.counts)

    @property
    def bits_per_byte(self) -> float:
        """Entropy in bits per byte of text: `bits_per_token / bytes_per_token`."""
        return _divide(self.bits_per_token * self.tokens, self.text.nbytes)

    @cached_property
    def huffman_bits_per_token(self) -> float:
        """Mean length of a Huffman code of the tokens, in bits: `compute_huffman_length(counts)`."""
        return compute_huffman_length(self.counts)

    @property
    def huffman_bits_per_byte(self) -> float:
        """Length of the Huffman code in bits per byte of text."""
        return _divide(self.huffman_bits_per_token * self.tokens, self.text.nbytes)

    @cached_property
    def renyi_efficiency(self) -> float:
        """Rényi efficiency of order 2.5, 0 to 1: `compute_renyi_efficiency(counts)`."""
        return compute_renyi_efficiency(self.counts)

    @property
    def unused_share(self) -> float:
        """Share of the ordinary tokens of the vocabulary that never occur, 0 to 1."""
        return self._compute_share_with_count(0)

    @property
    def single_use_share(self) -> float:
        """Share of the ordinary tokens of the vocabulary that occur once, 0 to 1."""
        return self._compute_share_with_count(1)

    @property
    def unknown_share(self) -> float:
        """Share of the unknown token among the tokens of the texts, 0 to 1.

        It is 0 for a vocabulary that declares no unknown token.
        """
        unknown = self.vocabulary.get_role_id("unk")
        return _divide(0 if unknown is None else int(self.counts[unknown]), self.tokens)

    @property
    def single_byte_share(self) -> float:
        """Share of single-byte tokens among the tokens of the texts, 0 to 1.

        These are the ordinary tokens of one byte, and `<0x00>` to `<0xFF>` in a vocabulary that has all 256
        of them (byte fallback).
        """
        return _divide(int(self.counts[self._single_bytes].sum()), self.tokens)

    @property
    def vocabulary_lengths(self) -> NDArray[np.int64]:
        """Number of ordinary tokens of the vocabulary by length in bytes, `int64`, shape `(longest + 1,)`."""
        return np.bincount(self._lengths)

    @property
    def used_lengths(self) -> NDArray[np.int64]:
        """Number of ordinary tokens of the texts by length in bytes, `int64`, shape `(longest + 1,)`."""
        return np.bincount(self._lengths, self.counts[self._ordinary]).astype(np.int64)  # exact to 2**53

    def most_frequent(self, count: int = 20) -> tuple[CountedToken, ...]:
        """Returns the `count` most frequent tokens, special tokens included; ties are sorted by id."""
        order = np.argsort(-self.counts, kind="stable")[: check_int("count", count, minimum=0)]
        return self._select_tokens(order[self.counts[order] > 0])

    def longest(self, count: int = 20) -> tuple[CountedToken, ...]:
        """Returns the `count` longest ordinary tokens, used or not; ties are sorted by id."""
        order = np.argsort(-self._lengths, kind="stable")[: check_int("count", count, minimum=0)]
        return self._select_tokens(self._ordinary[order])

    @cached_property
    def _ordinary(self) -> NDArray[np.int64]:
        """Ids of the ordinary tokens, ascending."""
        return np.flatnonzero((self.vocabulary.byte_lengths >= 0) & ~self.vocabulary.is_special)

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        """Lengths of the ordinary tokens, in bytes."""
        return self.vocabulary.byte_lengths.take(self._ordinary)

    @property
    def _single_bytes(self) -> NDArray[np.int64]:
        """Ids of the tokens that represent one byte."""
        ordinary = self.vocabulary.ordinary
        fallback = [id_ for token, id_ in ordinary.items() if _BYTE_FALLBACK_PATTERN.fullmatch(token)]
        single = [id_ for token, id_ in ordinary.items() if len(token) == 1]
        return np.array(single + (fallback if len(fallback) == _NUM_BYTES else []), np.int64)

    def _compute_share_with_count(self, times: int) -> float:
        matching = np.count_nonzero(self.counts.take(self._ordinary) == times)
        return _divide(int(matching), self.num_ordinary)

    def _select_tokens(self, ids: NDArray[np.int64]) -> tuple[CountedToken, ...]:
        table = self.vocabulary
        columns = (ids, table.strings[ids], table.byte_lengths[ids], self.counts[ids])
        return tuple(map(CountedToken, *(column.tolist() for column in columns)))


@short_repr
@dataclass(frozen=True)
class VocabularyReport:
    """Comparison of tokenizers on the same texts, made by `vocabulary_report`.

    Attributes:
        tokenizers: names of the tokenizers; the first one is the subject of the report.
        kinds: names of the kinds of text.
        uses: token counts by kind of text and tokenizer, in the order of `kinds` and `tokenizers`.
    """

    tokenizers: tuple[str, ...]
    kinds: tuple[str, ...]
    uses: tuple[tuple[TokenUse, ...], ...] = field(repr=False)

    def use(self, tokenizer: str | None = None, kind: str | None = None) -> TokenUse:
        """Returns the token counts and metrics of a tokenizer.

        Args:
            tokenizer: name of the tokenizer; `None` for the first one.
            kind: name of the kind of text; `None` for all kinds together.

        Raises:
            InvalidArgumentError: the report has no such tokenizer or kind of text.
        """
        column = 0 if tokenizer is None else _get_name_index("tokenizer", tokenizer, self.tokenizers)
        if kind is None:
            return self._overall[column]
        return self.uses[_get_name_index("kind of text", kind, self.kinds)][column]

    @cached_property
    def _overall(self) -> tuple[TokenUse, ...]:
        """Token counts of each tokenizer over all kinds of text."""
        return tuple(sum(uses[1:], start=uses[0]) for uses in zip(*self.uses, strict=True))


def _divide(dividend: float, divisor: int) -> float:
    return dividend / divisor if divisor else float("nan")


def _get_name_index(noun: str, name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise InvalidArgumentError(f"the report has no {noun} {name!r}; it has {list(names)}")
    return names.index(name)


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
    heap: list[int] = frequencies  # an ascending list is a heap
    total, num_bits = sum(heap), 0
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heap[0]
        num_bits += joined
        heapq.heapreplace(heap, joined)
    return num_bits / total


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
