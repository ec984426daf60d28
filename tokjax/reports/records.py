"""The records of a report: how much text there was, and which tokens it became."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.core.vocabulary import Vocabulary

_BYTE_FALLBACK_PATTERN = re.compile(rb"<0x[0-9A-F]{2}>")
_NUM_BYTES = 256


@dataclass(frozen=True)
class TextSize:
    """How much text there is. `a + b` is what both together hold.

    Attributes:
        documents: texts that are not empty.
        nbytes: bytes of UTF-8, of the texts as given.
        characters: code points; a byte that is no UTF-8 is one.
        words: runs of characters between white space, as `str.split` finds them.
    """

    documents: int = 0
    nbytes: int = 0
    characters: int = 0
    words: int = 0

    def __add__(self, other: TextSize) -> TextSize:
        """The size of both."""
        if not isinstance(other, TextSize):
            return NotImplemented
        return TextSize(
            self.documents + other.documents,
            self.nbytes + other.nbytes,
            self.characters + other.characters,
            self.words + other.words,
        )


class CountedToken(NamedTuple):
    """A token of a vocabulary, and how often it stands in texts.

    Attributes:
        id: its id.
        token: its readable form.
        nbytes: how many bytes it has.
        times: how often it stands there.
    """

    id: int
    token: str
    nbytes: int
    times: int


@dataclass(frozen=True, eq=False)
class TokenUse:
    """Which tokens texts became, and what follows from that.

    A token's bytes are those of its form in the vocabulary: a piece `##ing` has five. A quotient whose
    divisor is zero is `nan`: where there is no text, or no token, there is nothing to measure.

    Attributes:
        vocabulary: the tokenizer's.
        text: how much text there was.
        counts: how often each id came up, `int64`, shape `(vocabulary.size,)`.
    """

    vocabulary: Vocabulary = field(repr=False)
    text: TextSize
    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        """Seal the counts."""
        self.counts.setflags(write=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what defines the record, not what follows from it."""
        return TokenUse, (self.vocabulary, self.text, self.counts)

    def __eq__(self, other: object) -> bool:
        """Whether equal vocabularies were used alike by as much text."""
        if not isinstance(other, TokenUse):
            return NotImplemented
        return (self.vocabulary, self.text) == (other.vocabulary, other.text) and np.array_equal(
            self.counts, other.counts
        )

    def __hash__(self) -> int:
        """Of what equal records have in common."""
        return hash((self.text, self.tokens))

    def __add__(self, other: TokenUse) -> TokenUse:
        """The use of one vocabulary by both texts.

        Raises:
            InvalidArgumentError: the two are of different vocabularies.
        """
        if not isinstance(other, TokenUse):
            return NotImplemented
        if self.vocabulary != other.vocabulary:
            raise InvalidArgumentError(
                f"uses of two vocabularies, of {self.vocabulary.size} and {other.vocabulary.size} ids, don't "
                "add up; add those of one tokenizer"
            )
        return TokenUse(self.vocabulary, self.text + other.text, self.counts + other.counts)

    @cached_property
    def tokens(self) -> int:
        """How many tokens the texts became. BOS and EOS are not inserted, so they are not counted."""
        return int(self.counts.sum())

    @property
    def vocab_size(self) -> int:
        """The largest id plus one."""
        return self.vocabulary.size

    @property
    def num_ordinary(self) -> int:
        """How many tokens of the vocabulary are not special."""
        return len(self.vocabulary.ordinary)

    @property
    def num_special(self) -> int:
        """How many tokens of the vocabulary are special."""
        return len(self.vocabulary.special)

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text a token: the higher, the shorter are sequences."""
        return _divide(self.text.nbytes, self.tokens)

    @property
    def characters_per_token(self) -> float:
        """Characters of text a token."""
        return _divide(self.text.characters, self.tokens)

    @property
    def tokens_per_word(self) -> float:
        """Tokens a word of text (also called fertility)."""
        return _divide(self.tokens, self.text.words)

    @cached_property
    def bits_per_token(self) -> float:
        """Entropy of the distribution of single tokens, in bits a token.

        With `p` the share of all tokens that an id has, it is the sum of `-p * log2(p)` over the ids that
        came up.
        """
        if not self.tokens:
            return float("nan")
        shares = self.frequencies / self.tokens
        parts = (shares * np.log2(shares)).tolist()
        return -math.fsum(parts) + 0.0  # (never -0.0; a dot product goes by where its arrays lie in memory)

    @property
    def bits_per_byte(self) -> float:
        """That entropy in bits a byte of text: `bits_per_token / bytes_per_token`."""
        return _divide(self.bits_per_token * self.tokens, self.text.nbytes)

    @property
    def unused_share(self) -> float:
        """Which part of the ordinary tokens never comes up: 0 to 1."""
        return self._compute_share_with_count(0)

    @property
    def single_use_share(self) -> float:
        """Which part of the ordinary tokens comes up once: 0 to 1."""
        return self._compute_share_with_count(1)

    @property
    def unknown_share(self) -> float:
        """Which part of the texts' tokens is the unknown token: 0 to 1, and 0 where none is declared."""
        unknown = self.vocabulary.get_role_id("unk")
        return _divide(0 if unknown is None else int(self.counts[unknown]), self.tokens)

    @property
    def single_byte_share(self) -> float:
        """Which part of the texts' tokens stands for one byte: 0 to 1.

        Those are the ordinary tokens of one byte, and `<0x00>` to `<0xFF>` in a vocabulary that has all of
        them (byte fallback).
        """
        return _divide(int(self.counts[self._single_bytes].sum()), self.tokens)

    @cached_property
    def frequencies(self) -> NDArray[np.int64]:
        """How often each id stands that does at all, the most frequent first, shape `(used,)`."""
        return -np.sort(-self.counts[self.counts > 0])

    @property
    def vocabulary_lengths(self) -> NDArray[np.int64]:
        """At place `n`, how many ordinary tokens have `n` bytes, shape `(longest + 1,)`."""
        return np.bincount(self._lengths)

    @property
    def used_lengths(self) -> NDArray[np.int64]:
        """At place `n`, how many of the texts' ordinary tokens have `n` bytes, shape `(longest + 1,)`."""
        used = np.zeros(len(self.vocabulary_lengths), np.int64)
        np.add.at(used, self._lengths, self.counts[self._ordinary])
        return used

    def most_frequent(self, count: int = 20) -> tuple[CountedToken, ...]:
        """The tokens that come up most often, special ones too; of two alike, the lower id first."""
        order = np.argsort(-self.counts, kind="stable")[: check_int("count", count, minimum=0)]
        return self._select_tokens(order[self.counts[order] > 0])

    def longest(self, count: int = 20) -> tuple[CountedToken, ...]:
        """The ordinary tokens of most bytes, used or not; of two alike, the lower id first."""
        order = np.argsort(-self._lengths, kind="stable")[: check_int("count", count, minimum=0)]
        return self._select_tokens(self._ordinary[order])

    @cached_property
    def _ordinary(self) -> NDArray[np.int64]:
        """The ids of ordinary tokens, rising."""
        return np.flatnonzero((self.vocabulary.byte_lengths >= 0) & ~self.vocabulary.is_special)

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        """How many bytes each ordinary token has."""
        return self.vocabulary.byte_lengths.take(self._ordinary)

    @property
    def _single_bytes(self) -> NDArray[np.int64]:
        """The ids of tokens that stand for one byte."""
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


@dataclass(frozen=True)
class VocabularyReport:
    """How tokenizers fare on the same texts, side by side. Make one with `vocabulary_report`.

    Attributes:
        tokenizers: their names, the one that the report is about first.
        kinds: the names of the kinds of text.
        uses: for each kind, how each tokenizer fares on it, in the order of the names.
    """

    tokenizers: tuple[str, ...]
    kinds: tuple[str, ...]
    uses: tuple[tuple[TokenUse, ...], ...] = field(repr=False)

    def use(self, tokenizer: str | None = None, kind: str | None = None) -> TokenUse:
        """How a tokenizer fares.

        Args:
            tokenizer: its name; `None` for the one that the report is about.
            kind: on which kind of text; `None` for all of them together.

        Raises:
            InvalidArgumentError: the report has no such tokenizer or kind.
        """
        column = 0 if tokenizer is None else _get_name_index("tokenizer", tokenizer, self.tokenizers)
        if kind is None:
            return self._overall[column]
        return self.uses[_get_name_index("kind of text", kind, self.kinds)][column]

    @cached_property
    def _overall(self) -> tuple[TokenUse, ...]:
        first, *others = self.uses
        together = list(first)
        for uses in others:
            together = [mine + theirs for mine, theirs in zip(together, uses, strict=True)]
        return tuple(together)


def _divide(dividend: float, divisor: int) -> float:
    return dividend / divisor if divisor else float("nan")


def _get_name_index(what: str, name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise InvalidArgumentError(f"the report has no {what} {name!r}; it has {list(names)}")
    return names.index(name)
