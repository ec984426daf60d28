r"""Kinds of characters, for tokenizers whose words are encoded separately.

Each different character of the texts is normalized once, between two vertical bars. Examples, with `NFKC` and
a `Metaspace` that keeps spaces:

    character    normalized    kind          replacement
    a            a             ORDINARY      a
    ，           ,             ORDINARY      ,
    ½            1⁄2           ORDINARY      -1, since it becomes several characters
    U+3000       a space       WHITESPACE    ▁
    U+0301       U+0301        MARK          U+0301
    U+200D       U+200D        JOINING       U+200D
    ▁            ▁             HAZARD        -1
"""

from __future__ import annotations

import unicodedata
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.pretokenize.special_tokens import WHITE_SPACE

if TYPE_CHECKING:
    from numpy.typing import NDArray

METASPACE = "▁"
_MARKS = {"Mn", "Mc", "Me"}
_MARK_LETTERS = frozenset("\u0e33\u0eb3\uff9e\uff9f" + "".join(map(chr, range(0x1F3FB, 0x1F400))))
"""Characters of other categories that form a grapheme with a space before them."""
_PREPENDING_CATEGORIES = {"Cf", "Cn"}
_PREPENDING_LETTERS = frozenset(
    "\u0d4e\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011d46\U00011f02"
    + "".join(map(chr, range(0x11A84, 0x11A8A)))
)
"""Characters of other categories that form a grapheme with a space after them."""
_NUM_CODE_POINTS = 0x110000
_NO_REPLACEMENT = -1


class Kind(IntEnum):
    """What a character is, for the separation of words."""

    UNKNOWN = 0  # not normalized yet
    ORDINARY = 1
    WHITESPACE = 2
    REMOVED = 3  # removed by the normalizer
    MARK = 4  # may join a space before it; otherwise ordinary
    JOINING = 5  # may join a space before or after it; otherwise ordinary
    HAZARD = 6  # `▁`, replaced by whitespace and other characters, or changes its neighbours
    END = 7  # the end of a text


class CharacterKinds:
    """Kinds and replacements of all characters. They are found when a character first occurs.

    Args:
        normalizer: normalizer of the library, or `None`.
        keeps_spaces: whether a word includes the whitespace before it.
        strips: whether the normalizer removes whitespace around a text.
    """

    def __init__(self, normalizer: Any, *, keeps_spaces: bool, strips: bool) -> None:
        self._normalizer = normalizer
        self._keeps_spaces = keeps_spaces
        self._strips = strips
        self._kinds = np.zeros(_NUM_CODE_POINTS, np.uint8)
        self._replacements = np.full(_NUM_CODE_POINTS, _NO_REPLACEMENT, np.int32)

    def find(self, codes: NDArray[Any]) -> NDArray[np.uint8]:
        """Returns the kind of each character, `uint8`, shape `(characters,)`.

        Args:
            codes: code points, an array of integers, shape `(characters,)`.
        """
        kinds = self._kinds.take(codes)
        if kinds.all():
            return kinds
        unknown = np.unique(codes[kinds == Kind.UNKNOWN])
        classified = [self._classify(chr(code)) for code in unknown.tolist()]
        # The replacements first: a thread that finds a kind also finds the replacement.
        self._replacements[unknown] = [replacement for _, replacement in classified]
        self._kinds[unknown] = [kind for kind, _ in classified]
        return self._kinds.take(codes)

    def find_replacements(self, codes: NDArray[Any]) -> NDArray[np.int32]:
        """Returns the code points that replace characters of known kinds, `int32`, shape `(characters,)`.

        `▁` replaces whitespace. A character that becomes several, or none, has the replacement -1.

        Args:
            codes: code points, an array of integers, shape `(characters,)`.
        """
        return self._replacements.take(codes)

    def _classify(self, character: str) -> tuple[Kind, int]:
        """Returns the kind of a character, and its replacement."""
        text = f"|{character}|"
        normalized = self._normalizer.normalize_str(text) if self._normalizer else text
        content = normalized[1:-1]
        kind = self._find_kind(character, normalized, content)
        if kind == Kind.WHITESPACE:
            return kind, ord(METASPACE) if content == " " else _NO_REPLACEMENT
        if kind == Kind.HAZARD or len(content) != 1:
            return kind, _NO_REPLACEMENT
        return kind, ord(content)

    def _find_kind(self, character: str, normalized: str, content: str) -> Kind:
        """Returns the kind of a character.

        Args:
            character: the character.
            normalized: the character after normalization, between two vertical bars.
            content: the same without the bars, if these remain.
        """
        kind = _find_joining_kind(character)
        is_removed_space = not content and self._strips and character in WHITE_SPACE
        if METASPACE in character + content or normalized != f"|{content}|" or is_removed_space:
            return Kind.HAZARD
        if not content:
            return Kind.REMOVED
        whitespace = [c for c in content if c in WHITE_SPACE]
        if not whitespace or (self._keeps_spaces and " " not in whitespace and not self._strips):
            return kind
        is_separator = content == " " if self._keeps_spaces else len(whitespace) == len(content)
        # A format character that becomes whitespace may join the character before it, too. `Strip` may not
        # know a character that another step replaces by whitespace.
        is_whitespace = kind == Kind.ORDINARY and (character in WHITE_SPACE or not self._strips)
        return Kind.WHITESPACE if is_separator and is_whitespace else Kind.HAZARD


def is_ordinary_character(character: str) -> bool:
    """Returns whether a character forms a grapheme with no whitespace before or after it."""
    return _find_joining_kind(character) == Kind.ORDINARY


def _find_joining_kind(character: str) -> Kind:
    """Returns whether a character may join whitespace: `ORDINARY`, `MARK` or `JOINING`."""
    category = unicodedata.category(character)
    if category in _PREPENDING_CATEGORIES or character in _PREPENDING_LETTERS:
        return Kind.JOINING
    return Kind.MARK if category in _MARKS or character in _MARK_LETTERS else Kind.ORDINARY
