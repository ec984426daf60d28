"""Where the words of a split pattern start in many texts at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokjax.bpe.chunks import cut_before_blank, starts_in_bytes
from tokjax.pretokenize.boundaries import word_starts, word_starts_in_bytes
from tokjax.pretokenize.unicode_classes import END, class_of_code_point

if TYPE_CHECKING:
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
