"""What every code point is to the published split patterns: letter, mark, number, white space or other.

The tables of Unicode differ between libraries and change between their versions. The reference here is
tiktoken's, which Hugging Face's tokenizers share; `unicode_classes.txt` holds it, and a test compares all
code points with the installed tiktoken.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


OTHER, UPPER, LOWER, LETTER, MARK, NUMBER, SPACE, NEWLINE = range(8)
"""Classes: `UPPER` is Lu and Lt, `LOWER` Ll, `LETTER` Lm and Lo, `NEWLINE` line feed and carriage return."""
END, ASCII_SPACE, APOSTROPHE, SLASH = range(8, 12)
"""More of them: `END` is no character but where a text ends; the others are single characters (U+0020, U+0027
and U+002F) that patterns treat apart from their class."""

CODE_POINTS = 0x110000
_ASCII = 0x80
LONG_S = 0x17F
"""A letter outside ASCII that patterns name: it is an `s` where case does not matter."""
LONG_S_BYTES = chr(LONG_S).encode("utf-8")
NEXT_LINE = 0x85
"""A control character outside ASCII that a pattern names, white space to the others."""
NEXT_LINE_BYTES = chr(NEXT_LINE).encode("utf-8")
_NAMED = (LONG_S, NEXT_LINE)


@lru_cache(maxsize=1)
def load_code_point_classes() -> NDArray[np.uint8]:
    """The class of each code point, `uint8`, shape `(0x110000,)`.

    The file has a line for each run of equal classes: where it starts, in hexadecimal, and the class.
    """
    text = files("tokjax.pretokenize").joinpath("unicode_classes.txt").read_text("ascii")
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    starts = np.array([int(start, 16) for start, _ in rows])
    classes = np.array([int(class_) for _, class_ in rows], np.uint8)
    table = np.repeat(classes, np.diff(starts, append=CODE_POINTS))
    table[[ord(" "), ord("'"), ord("/")]] = ASCII_SPACE, APOSTROPHE, SLASH
    table.setflags(write=False)
    return table


def map_to_representatives(codes: NDArray[Any]) -> str:
    """ASCII as it is, and for each other character one of its class that all tables of Unicode agree on.

    Args:
        codes: code points, unsigned integers, shape `(n,)`.

    Returns:
        A string of `n` characters that any published pattern splits like those of `codes`.
    """
    wide = codes.astype(np.uint32)
    chosen_representatives = _CLASS_REPRESENTATIVES.take(load_code_point_classes().take(wide))
    chosen = np.where((wide < _ASCII) | np.isin(wide, _NAMED), wide, chosen_representatives)
    return chosen.astype("<u4").tobytes().decode("utf-32-le")


class _RepresentativeCache(dict[int, int]):
    """The representative of each code point that was asked for, as `str.translate` wants it."""

    def __missing__(self, code: int) -> int:
        if len(self) >= _MAX_CACHED:
            self.clear()
        representative = int(_CLASS_REPRESENTATIVES[load_code_point_classes()[code]])
        self[code] = code if code < _ASCII or code in _NAMED else representative
        return self[code]


def map_text_to_representatives(text: str) -> str:
    """The same for a short text."""
    return text.translate(_REPRESENTATIVE_CACHE)


_MAX_CACHED = 1 << 16
_REPRESENTATIVE_CACHE = _RepresentativeCache()
_CLASS_REPRESENTATIVES = np.array(
    [ord(c) for c in "!Zz\u3042\u03019\t\n! '/"], np.uint32
)  # in the order of classes


DROPPED, ACCENT, PUNCTUATION, CHINESE, DECOMPOSES, COMBINES = 1, 2, 4, 8, 16, 32
"""Bits: `DROPPED` from clean text, `ACCENT` that is stripped, `PUNCTUATION` that is a word by itself,
`CHINESE` that is set between blanks, `DECOMPOSES` in form NFD, `COMBINES` with a class other than 0."""

DOTTED_CAPITAL_I = 0x130
_LOWER_OF_DOTTED = "i\u0307"  # the one character whose lower case is two


@lru_cache(maxsize=1)
def load_code_point_flags() -> NDArray[np.uint8]:
    """The bits of each code point, `uint8`, shape `(0x110000,)`.

    The file has a line for each run of equal bits: where it starts, in hexadecimal, and the bits.
    """
    rows = [line.split() for line in _read_lines() if line.count(" ") == 1]
    starts = np.array([int(start, 16) for start, _ in rows])
    bits = np.array([int(value) for _, value in rows], np.uint8)
    table = np.repeat(bits, np.diff(starts, append=CODE_POINTS))
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def load_lowercase_map() -> Mapping[int, str]:
    """The lower case of each code point that has another.

    The file has a line for each run of them: first and last in hexadecimal, the step, and how far it is.
    """
    lower = {DOTTED_CAPITAL_I: _LOWER_OF_DOTTED}
    for line in _read_lines():
        if line.count(" ") == 3:
            first, last, step, distance = line.split()
            codes = range(int(first, 16), int(last, 16) + 1, int(step))
            lower |= {code: chr(code + int(distance)) for code in codes}
    return lower


def is_space(code: int) -> bool:
    """Whether a code point is white space."""
    return load_code_point_classes()[code] in (SPACE, NEWLINE, ASCII_SPACE)


def decompose(character: str) -> str:
    """The form NFD of one character."""
    decomposes = load_code_point_flags()[ord(character)] & DECOMPOSES
    return unicodedata.normalize("NFD", character) if decomposes else character


def combining(character: str) -> int:
    """The combining class of a character: 0 for those that begin anew."""
    return unicodedata.combining(character) if load_code_point_flags()[ord(character)] & COMBINES else 0


def _read_lines() -> list[str]:
    text = files("tokjax.pretokenize").joinpath("bert_characters.txt").read_text("ascii")
    return [line for line in text.splitlines() if not line.startswith("#")]
