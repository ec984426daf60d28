"""Where the words of a split pattern start in many texts at once."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.bpe.chunks import cut_before_blank, starts_in_bytes
from tokjax.pretokenize.boundaries import word_starts, word_starts_in_bytes
from tokjax.pretokenize.unicode_classes import END, class_of_code_point

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces
    from tokjax.pretokenize.patterns import WordSplitter


_MOSTLY_ASCII = 1.2  # up to so many bytes a character, bytes are quicker than code points


class PatternCutter:
    """Finds the words of a pattern: by arrays if it is a published one, else by its expression.

    Args:
        splitter: the pattern.
    """

    def __init__(self, splitter: WordSplitter) -> None:
        self._splitter = splitter

    def words(self, text: str) -> list[str]:
        """The words of a text; joined, they are the text."""
        return self._splitter.words(text)

    def cut(self, text: str, target: int) -> int:
        """A place at or after `target` where a word starts, or the end: of any expression one can't tell."""
        return cut_before_blank(text, target) if self._splitter.is_named else len(text)

    def starts(self, text: bytes, pieces: Pieces, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where words start in the UTF-8 of pieces, each with a newline behind it."""
        name = self._splitter.name
        if name is None:
            return starts_in_bytes(self._flags_by_expression(pieces.texts), text)
        characters = sum(map(len, pieces.texts)) + len(pieces.texts)
        if not pieces.hold_bytes and len(text) <= _MOSTLY_ASCII * characters:
            flags = word_starts_in_bytes(name, text, ends)
            if flags is not None:
                flags[ends] = False
                return np.flatnonzero(flags)
        return starts_in_bytes(_flags_by_classes(pieces, name), text)

    def _flags_by_expression(self, texts: list[str]) -> NDArray[np.bool_]:
        """Which characters start a word; none of those behind the texts does."""
        flags = np.zeros(sum(map(len, texts)) + len(texts), bool)
        start = 0
        for text in texts:
            lengths = np.fromiter(map(len, self._splitter.words(text)), np.int64)
            flags[start + np.cumsum(lengths) - lengths] = True
            start += len(text) + 1
        return flags


def _flags_by_classes(pieces: Pieces, name: str) -> NDArray[np.bool_]:
    """Which characters start a word of a published pattern; none of those behind the texts does."""
    codes = pieces.codes()
    classes = class_of_code_point().take(codes, mode="clip")
    ends = pieces.ends_in_characters()
    classes[ends] = END
    flags = word_starts(name, classes, codes)
    flags[ends] = False
    return flags


def begins_after_blanks(is_blank: NDArray[np.bool_], splits: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which symbols begin a word: the first of each text, and blanks behind what is none.

    Args:
        is_blank: of the symbols of all texts, end to end, shape `(n,)`.
        splits: where each text starts, `int64`, shape `(texts + 1,)`.
    """
    begins = np.zeros(len(is_blank), bool)
    begins[1:] = is_blank[1:] & ~is_blank[:-1]
    begins[splits[:-1][np.diff(splits) > 0]] = True
    return begins


_BITS = 20
_FACTORS = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77)
_LOOK_AHEAD = 1 << 12
_SEPARATOR, _SURROGATES = b"\xff", 0xD800 >> 11
_SECOND_SURROGATES = 0xDC00 >> 10  # these may belong to the characters before them


class JoinedCutter:
    """Finds words that merge for themselves: no token that merging makes reaches from one into the next.

    The pairs of characters that stand side by side in tokens are kept by a hash. Two pairs of one hash only
    make words longer than they need be.

    Args:
        tokens: the bytes of those that merging can make, parts of characters among them.
        before_blanks: whether a word starts at each blank in any case.
    """

    def __init__(self, tokens: Iterable[bytes], *, before_blanks: bool) -> None:
        # Bytes that make no character, the separator among them, become lone surrogates, which join nothing.
        codes = _codes(_SEPARATOR.join(tokens).decode("utf-8", "surrogateescape"))
        is_text = codes >> 11 != _SURROGATES
        inside = is_text[:-1] & is_text[1:]
        self._joins = np.zeros(1 << _BITS, bool)
        self._joins[_hash(codes[:-1][inside], codes[1:][inside])] = True
        self._before_blanks = before_blanks

    def words(self, text: str) -> list[str]:
        """The words of a text; joined, they are the text."""
        starts = np.flatnonzero(self._starts_word(_codes(text))).tolist()
        return [text[start:stop] for start, stop in pairwise([*starts, len(text)])]

    def cut(self, text: str, target: int) -> int:
        """The first place at or after `target` where a word starts, or the end."""
        while 0 < target < len(text):
            codes = _codes(text[target - 1 : target + _LOOK_AHEAD])
            flags = (self._starts_word(codes) & (codes >> 10 != _SECOND_SURROGATES))[1:]
            if flags.any():
                return target + int(flags.argmax())
            target += len(flags)
        return len(text)

    def starts(self, text: bytes, pieces: Pieces, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where words start in the UTF-8 of pieces, each with a newline behind it."""
        of_characters = pieces.ends_in_characters()
        is_ascii = of_characters[-1] == ends[-1]
        codes = np.frombuffer(text, np.uint8) if is_ascii else pieces.codes()
        flags = self._starts_word(codes)
        flags[of_characters[:-1] + 1] = True
        flags[of_characters] = False
        return np.flatnonzero(flags) if is_ascii else starts_in_bytes(flags, text)

    def _starts_word(self, codes: NDArray[Any]) -> NDArray[np.bool_]:
        """Which characters of a text start a word."""
        starts = np.ones(len(codes), bool)
        np.logical_not(self._joins.take(_hash(codes[:-1], codes[1:])), out=starts[1:])
        if self._before_blanks:
            starts[codes == ord(" ")] = True
        return starts


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _hash(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.uint32]:
    mixed = left * _FACTORS[0]
    mixed ^= right * _FACTORS[1]
    mixed >>= np.uint32(32 - _BITS)
    return mixed
