r"""Characters of texts for unigram tokenizers: where words begin, and what the normalizer makes of each.

Each different character of the texts is normalized once. Examples, with `NFKC`:

    character    normalized    kind     replacement
    a            a             PLAIN    a
    ½            1⁄2           PLAIN    1⁄2
    U+3000       a space       SPACE    ▁
    U+0301       U+0301        MARK     U+0301, if nothing shows that it changes the character before it
    U+200E       nothing       OTHER    -
    ▁            ▁             OTHER    -
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.models.metaspace import METASPACE
from tokjax.models.unigram_viterbi import to_text
from tokjax.pretokenize.aligned_text import PREPENDING
from tokjax.pretokenize.special_tokens import WHITE_SPACE
from tokjax.pretokenize.unicode_classes import (
    CODE_POINTS,
    COMBINES,
    EXTENDS,
    STRIPPED,
    load_code_point_flags,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.pretokenize.aligned_text import StepNormalizer

_PREPENDING = re.compile(f"[{PREPENDING}]")
_VOWELS_AND_FINALS = re.compile("[\u1160-\u11ff\ud7b0-\ud7fb]")


class Kind:
    """What a character is, for the separation of words. NumPy compares members of an `IntEnum` slowly."""

    UNSEEN = 0
    PLAIN = 1
    MARK = 2  # may change the character before it
    SPACE = 3
    OTHER = 4  # removed, may change the character after it, or becomes spaces and other characters
    END = 5  # before and after each text


class CharacterTable:
    """Kinds and replacements of all characters. They are found when a character first occurs.

    Args:
        normalizer: normalizer.
        keeps_spaces: whether a word includes the spaces before it, and spaces are the only whitespace.

    Attributes:
        begins_key: mask of the characters that `Precompiled` may replace together with the next ones, by code
            point. It is set for those whose kind was found.
    """

    def __init__(self, normalizer: StepNormalizer, *, keeps_spaces: bool) -> None:
        self._normalizer, self._keeps_spaces = normalizer, keeps_spaces
        self._kinds = np.zeros(CODE_POINTS, np.uint8)
        self._kinds[0xD800:0xE000] = Kind.OTHER
        self._replacements: dict[int, str] = {}
        self._lengths = np.ones(CODE_POINTS, np.uint8)
        self.begins_key = np.zeros(CODE_POINTS, bool)

    def find_kinds(self, codes: NDArray[Any]) -> NDArray[np.uint8]:
        """Returns the kind of each character, `uint8`, shape `(characters,)`.

        Args:
            codes: code points, an array of integers, shape `(characters,)`.
        """
        kinds = self._kinds.take(codes)
        if kinds.all():
            return kinds
        for code in np.unique(codes[kinds == Kind.UNSEEN]).tolist():
            self._insert(code)
        return self._kinds.take(codes)

    def replace(self, codes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Returns the replacements of characters, none of which is `Kind.OTHER`.

        Returns:
            Code points, `int64`, and the number of code points of each replacement, `int64`, shape
            `(characters,)`; `None` if all are 1.
        """
        replaced = to_text(codes).translate(self._replacements)
        counts = self._lengths.take(codes).astype(np.int64) if len(replaced) > len(codes) else None
        return np.frombuffer(replaced.encode("utf-32-le"), "<u4").astype(np.int64), counts

    def _insert(self, code: int) -> None:
        """Finds the kind and the replacement of a character. The kind is stored last, for other threads."""
        character = chr(code)
        forms = list(self._normalizer.iter_forms(character))
        kind = self._find_kind(character, forms)
        self._replacements[code] = METASPACE if kind == Kind.SPACE else forms[-1]
        self._lengths[code] = len(self._replacements[code])
        trie = self._normalizer.trie
        self.begins_key[code] = trie is not None and any(trie.begins_key(c) for form in forms for c in form)
        self._kinds[code] = kind

    def _find_kind(self, character: str, forms: list[str]) -> int:
        """Returns the kind of a character.

        Args:
            character: the character.
            forms: the character after each step.
        """
        normalized = forms[-1]
        if not normalized or any(map(_PREPENDING.search, forms)):
            return Kind.OTHER
        if self._is_space(character, forms):
            return Kind.SPACE
        whitespace = WHITE_SPACE if "Strip" in self._normalizer.types or not self._keeps_spaces else " "
        if any(c in whitespace or c == METASPACE for c in normalized):
            return Kind.OTHER
        return Kind.MARK if any(attaches(form[0]) for form in forms if form) else Kind.PLAIN

    def _is_space(self, character: str, forms: list[str]) -> bool:
        if "Strip" in self._normalizer.types and not all(form in WHITE_SPACE for form in forms):
            return False
        if not self._keeps_spaces:
            return len(forms[-1]) == 1 and forms[-1] in WHITE_SPACE
        # A space that is replaced by `▁` is not merged with others.
        is_written = forms[-1] == METASPACE != character and not self._normalizer.merges_spaces
        return forms[-1] == " " or is_written


def find_words(kinds: NDArray[np.uint8], *, keeps_spaces: bool) -> NDArray[np.int64]:
    r"""Finds words: the longest stretches of texts that are normalized and split independently.

    With the text "a\u0600 b c", where U+0600 may change the space after it:

        keeps_spaces    "a\u0600 b"  " c"
        else            "a\u0600 b"  "c"

    Args:
        kinds: kind of each character, with `Kind.END` before and after each text, shape `(characters,)`.
        keeps_spaces: whether a word includes the spaces before it.

    Returns:
        The starts and stops of words, in characters, `int64`, shape `(2, words)`.
    """
    is_plain, is_mark = kinds == Kind.PLAIN, kinds == Kind.MARK
    others = np.flatnonzero(is_mark | (kinds == Kind.OTHER))
    if not keeps_spaces and not len(others):
        return np.flatnonzero(is_plain[1:] != is_plain[:-1]).reshape(-1, 2).T + 1
    is_space, is_end = kinds == Kind.SPACE, kinds == Kind.END
    can_end = is_plain
    if is_mark.any():  # marks after a space can become one space with it
        bases = np.maximum.accumulate(np.where(is_mark, 0, np.arange(len(kinds))))
        can_end = is_plain.take(bases)
    begins = is_end.copy()
    begins[1:] |= is_end[:-1] | (is_space[1:] & can_end[:-1])
    if not keeps_spaces:
        begins[1:] |= is_space[:-1] & is_plain[1:]
    bounds = np.flatnonzero(begins)
    starts, stops = bounds[:-1], bounds[1:]
    first_kinds = kinds.take(starts)
    is_word = first_kinds != Kind.END
    if not keeps_spaces:  # words that begin with spaces have other characters than plain ones
        is_word &= first_kinds != Kind.SPACE
        is_word |= np.searchsorted(others, stops) > np.searchsorted(others, starts)
    return np.stack([starts[is_word], stops[is_word]])


def attaches(character: str) -> bool:
    """Returns whether a character may change the one before it."""
    is_mark = load_code_point_flags()[ord(character)] & (EXTENDS | COMBINES | STRIPPED)
    return bool(is_mark) or _VOWELS_AND_FINALS.match(character) is not None
