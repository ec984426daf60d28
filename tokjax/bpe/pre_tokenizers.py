"""Pre-tokenizers of the array engine: they find the pre-tokens of all texts of a chunk at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.bpe.chunks import find_byte_starts, find_split_before_space, move_to_bytes
from tokjax.pretokenize.pretoken_starts import find_pretoken_starts
from tokjax.pretokenize.special_tokens import compile_byte_matcher, compile_matcher
from tokjax.pretokenize.word_boundaries import compile_word_expression, find_word_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces
    from tokjax.pretokenize.patterns import PatternSplitter
    from tokjax.pretokenize.word_boundaries import Splitter


_BITS = 20
"""Number of bits of the hash of a pair of characters; the table of pairs has `2 ** _BITS` entries."""
_ASCII = 128
"""Number of ASCII characters."""
_FACTORS = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77)
"""Odd 32-bit constants that mix the left and the right character of a pair."""
_LOOK_AHEAD = 1 << 12
"""Number of characters that `AdjacencyPreTokenizer.find_split` searches at a time."""
_SEPARATOR = b"\xff"
"""Byte between tokens, which occurs in no UTF-8 text."""
_SURROGATES = 0xD800 >> 11
"""Upper bits of all surrogates: code points with `code >> 11` equal to it."""
_SECOND_SURROGATES = 0xDC00 >> 10
"""Upper bits of second surrogates, which may form one character with the code point before."""


class FillingPreTokenizer(ABC):
    """Pre-tokenizer whose pre-tokens, concatenated, are the text.

    Attributes:
        split: function that returns the pre-tokens of a text.
    """

    split: Callable[[str], list[str]]

    @abstractmethod
    def find_split(self, text: str, target: int) -> int:
        """Implements `PreTokenizer`."""

    @abstractmethod
    def find_starts(self, text: bytes, pieces: Pieces) -> NDArray[np.int64]:
        """Returns the byte positions at which pre-tokens start. The arguments are those of `find_bounds`."""

    def find_bounds(
        self, text: bytes, pieces: Pieces, ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the byte positions at which pre-tokens start and stop, as `PreTokenizer` specifies."""
        starts = self.find_starts(text, pieces)
        stops = np.append(starts, ends[-1])[1:]
        # The last pre-token of a piece ends before the newline. Empty pieces have none.
        num_before = np.searchsorted(starts, ends)
        nonempty = np.flatnonzero(np.diff(num_before, prepend=0))
        stops[num_before[nonempty] - 1] = ends[nonempty]
        return starts, stops


class PatternPreTokenizer(FillingPreTokenizer):
    """Pre-tokenizer of a split pattern. It uses arrays if the pattern has boundary tables.

    Args:
        splitter: the split pattern.
    """

    def __init__(self, splitter: PatternSplitter) -> None:
        self._splitter = splitter
        self.split = splitter.steps[0].split if len(splitter.steps) == 1 else splitter.split

    def find_split(self, text: str, target: int) -> int:
        """Returns an index at or after `target` where a pre-token starts, whatever text follows.

        For some patterns, only the end of the text is such an index.
        """
        return find_split_before_space(text, target) if self._splitter.splits_before_spaces else len(text)

    def find_starts(self, text: bytes, pieces: Pieces) -> NDArray[np.int64]:
        """Returns the byte positions at which pre-tokens start in the pieces."""
        if not self._splitter.has_tables:
            return find_byte_starts(self._flag_starts_by_expression(pieces.texts), text)
        character_ends = pieces.get_character_ends()
        flags = find_pretoken_starts(self._splitter.tables, pieces.get_characters(text), character_ends)
        flags[character_ends] = False
        return find_byte_starts(flags, text)

    def _flag_starts_by_expression(self, texts: list[str]) -> NDArray[np.bool_]:
        """Returns a mask of the characters that start a pre-token. The newlines after the texts do not."""
        flags = np.zeros(sum(map(len, texts)) + len(texts), bool)
        start = 0
        for text in texts:
            lengths = np.fromiter(map(len, self._splitter.split(text)), np.int64)
            flags[start + np.cumsum(lengths) - lengths] = True
            start += len(text) + 1
        return flags


class AdjacencyPreTokenizer(FillingPreTokenizer):
    """Pre-tokenizer for models without a split pattern: splits where no token can span two characters.

    A text may be split between two characters that are adjacent in no token, since no merge can cross that
    position. With the tokens `lo`, `low` and `er`::

        text                      l o w e r l o w
        adjacent in a token        y y n y n y y
        pre-tokens                low er low

    The pairs of adjacent characters are stored as bits at their hashes. A hash collision makes a pre-token
    longer than necessary, and changes no id.

    Args:
        tokens: the bytes of all tokens that merges can make, which may be parts of characters.
        split_before_spaces: whether a pre-token starts at every space.
    """

    def __init__(self, tokens: Iterable[bytes], *, split_before_spaces: bool) -> None:
        # Bytes that are not valid UTF-8, such as the separator, become lone surrogates. These join nothing.
        codes = _to_code_points(_SEPARATOR.join(tokens).decode("utf-8", "surrogateescape"))
        is_text = codes >> 11 != _SURROGATES
        inside = is_text[:-1] & is_text[1:]
        self._mergeable_pairs = np.zeros(1 << _BITS, bool)
        self._mergeable_pairs[_hash_pairs(codes[:-1][inside], codes[1:][inside])] = True
        self._split_before_spaces = split_before_spaces
        ascii_codes = np.arange(_ASCII * _ASCII, dtype=np.uint32)
        self._mergeable_ascii_pairs = self._mergeable_pairs.take(
            _hash_pairs(ascii_codes // _ASCII, ascii_codes % _ASCII)
        )

    def split(self, text: str) -> list[str]:
        """Returns the pre-tokens of a text. Concatenated, they are the text."""
        starts = np.flatnonzero(self._flag_starts(_to_code_points(text))).tolist()
        return [text[start:stop] for start, stop in pairwise([*starts, len(text)])]

    def find_split(self, text: str, target: int) -> int:
        """Returns the first index at or after `target` where a pre-token starts, or the text's length."""
        while 0 < target < len(text):
            codes = _to_code_points(text[target - 1 : target + _LOOK_AHEAD])
            flags = (self._flag_starts(codes) & (codes >> 10 != _SECOND_SURROGATES))[1:]
            if flags.any():
                return target + int(flags.argmax())
            target += len(flags)
        return len(text)

    def find_starts(self, text: bytes, pieces: Pieces) -> NDArray[np.int64]:
        """Returns the byte positions at which pre-tokens start in the pieces."""
        character_ends = pieces.get_character_ends()
        is_ascii = text.isascii()  # then bytes are code points
        flags = self._flag_ascii_starts(text) if is_ascii else self._flag_starts(pieces.get_codes())
        flags[character_ends[:-1] + 1] = True
        flags[character_ends] = False
        return np.flatnonzero(flags) if is_ascii else find_byte_starts(flags, text)

    def _flag_ascii_starts(self, text: bytes) -> NDArray[np.bool_]:
        """Returns a mask of the bytes of an ASCII text that start a pre-token."""
        codes = np.frombuffer(text, np.uint8)
        pairs = codes[:-1].astype(np.uint16)
        pairs *= np.uint16(_ASCII)
        pairs += codes[1:]
        return self._complete_flags(codes, self._mergeable_ascii_pairs.take(pairs))

    def _flag_starts(self, codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Returns a mask of the characters of a text that start a pre-token."""
        return self._complete_flags(codes, self._mergeable_pairs.take(_hash_pairs(codes[:-1], codes[1:])))

    def _complete_flags(self, codes: NDArray[Any], are_mergeable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns the mask for characters of which each and the next are mergeable or not."""
        starts = np.ones(len(codes), bool)
        np.logical_not(are_mergeable, out=starts[1:])
        if self._split_before_spaces:
            starts[codes == ord(" ")] = True
        return starts


class SymbolPreTokenizer(FillingPreTokenizer):
    """Pre-tokenizer for models with symbols that are never split or merged: each is a separate pre-token.

    Symbols are matched from the left, and the longest one at each position.

    Args:
        tokens: as for `AdjacencyPreTokenizer`.
        symbols: the symbols, which may contain any character.
    """

    def __init__(self, tokens: Iterable[bytes], symbols: frozenset[str]) -> None:
        # A pre-token of this one starts nowhere inside of a symbol, and so at no place where the match of
        # symbols would depend on the text before.
        as_bytes = [symbol.encode("utf-8") for symbol in symbols]
        self._adjacency = AdjacencyPreTokenizer([*tokens, *as_bytes], split_before_spaces=False)
        self._matcher = compile_matcher(symbols)
        self._byte_matcher = compile_byte_matcher(symbols)

    def split(self, text: str) -> list[str]:
        """Returns the pre-tokens of a text. Concatenated, they are the text."""
        parts = self._matcher.split(text)  # the symbols have odd indices
        return [
            pretoken
            for i, part in enumerate(parts)
            for pretoken in ([part] if i % 2 else self._adjacency.split(part))
            if pretoken
        ]

    def find_split(self, text: str, target: int) -> int:
        """Returns the first index at or after `target` where a pre-token starts, or the text's length."""
        return self._adjacency.find_split(text, target)

    def find_starts(self, text: bytes, pieces: Pieces) -> NDArray[np.int64]:
        """Returns the byte positions at which pre-tokens start in the pieces."""
        starts = self._adjacency.find_starts(text, pieces)
        [ends] = move_to_bytes(text, pieces.num_characters, pieces.get_character_ends())
        spans = [
            match.span()
            for piece_end, next_end in pairwise([-1, *ends.tolist()])
            for match in self._byte_matcher.finditer(text, piece_end + 1, next_end)
        ]
        if not spans:
            return starts
        bounds = np.array(spans, np.int64).reshape(-1)
        # The number of bounds at or before a position is odd inside of a symbol.
        is_inside = np.searchsorted(bounds, starts, "right") % 2 == 1
        flags = np.zeros(len(text), bool)
        flags[starts] = ~is_inside
        flags[bounds] = True
        flags[ends] = False
        return np.flatnonzero(flags)


class WordPreTokenizer:
    """Pre-tokenizer of words, without the whitespace between them.

    Args:
        splitter: name of the rule that splits texts into words.
    """

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans of the words of a text, in characters."""
        return [match.span() for match in compile_word_expression(self._splitter).finditer(text)]

    def find_split(self, text: str, target: int) -> int:
        """Returns an index at or after `target` that is in no word."""
        return find_split_before_space(text, target)

    def find_bounds(
        self,
        text: bytes,
        pieces: Pieces,
        ends: NDArray[np.int64],  # noqa: ARG002 (part of `PreTokenizer`)
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the byte positions at which words start and stop, as `PreTokenizer` specifies."""
        starts, stops = find_word_bounds(
            self._splitter, pieces.get_characters(text), pieces.get_character_ends()
        )
        starts, stops = move_to_bytes(text, pieces.num_characters, starts, stops)
        return starts, stops


def _to_code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _hash_pairs(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.uint32]:
    mixed = left * _FACTORS[0]
    mixed ^= right * _FACTORS[1]
    mixed >>= np.uint32(32 - _BITS)
    return mixed
