"""Unicode tables for pre-tokenization: classes for the split patterns, and character flags for BERT.

The Unicode tables of libraries differ, and change between versions. So these tables are pinned:

- `unicode_classes.txt` holds the class of each code point (letter, mark, number, whitespace or other) for the
  split patterns. It is generated from tiktoken, whose classes Hugging Face's tokenizers share.
- `bert_characters.txt` holds the flags and the lower case of each code point for BERT's normalizer and
  pre-tokenizer. It is generated from Hugging Face's `tokenizers`.

Tests compare all code points with the installed libraries.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


OTHER, UPPER, LOWER, LETTER, MARK, NUMBER, SPACE, NEWLINE = range(8)
"""Character classes, by Unicode category: `UPPER` is Lu and Lt, `LOWER` is Ll, `LETTER` is Lm and Lo.
`NEWLINE` is line feed and carriage return."""
END, ASCII_SPACE, APOSTROPHE, SLASH = range(8, 12)
"""Further classes: `END` marks the end of a text. The others are single characters (U+0020, U+0027 and
U+002F) that patterns treat differently from the rest of their class."""
CODE_POINTS = 0x110000
"""Number of code points of Unicode."""
_ASCII = 0x80
"""First code point outside of ASCII."""
LONG_S = 0x17F
"""The long s, a letter outside of ASCII that contractions match: without case, it equals `s`."""
LONG_S_BYTES = chr(LONG_S).encode("utf-8")
"""The long s in UTF-8."""
NEXT_LINE = 0x85
"""A control character outside of ASCII that `"whitespace"` names. For the other patterns it is whitespace."""
NEXT_LINE_BYTES = chr(NEXT_LINE).encode("utf-8")
"""`NEXT_LINE` in UTF-8."""
_NAMED = (LONG_S, NEXT_LINE)
"""Characters outside of ASCII that patterns name."""
_CLASS_REPRESENTATIVES = np.array([ord(c) for c in "!Zz\u3042\u03019\t\n! '/"], np.uint32)
"""One character for each class, in the order of the classes."""
_FEW_CHARACTERS = 100
"""Up to this many characters, a dictionary is faster than arrays."""
_MAX_CACHED = 1 << 16
"""Number of representatives at which their cache is cleared."""
DROPPED, ACCENT, PUNCTUATION, CHINESE, DECOMPOSES, COMBINES = 1, 2, 4, 8, 16, 32
"""Flags of code points for BERT: `DROPPED` by `clean_text`, `ACCENT` removed by `strip_accents`,
`PUNCTUATION` that is a separate word, `CHINESE` that gets spaces around it, `DECOMPOSES` in form NFD,
`COMBINES` with a combining class other than 0."""
DOTTED_CAPITAL_I = 0x130
"""The capital I with a dot, the only character whose lower case has two characters."""
_LOWER_OF_DOTTED = "i\u0307"
"""Lower case of `DOTTED_CAPITAL_I`."""


@lru_cache(maxsize=1)
def load_code_point_classes() -> NDArray[np.uint8]:
    """Returns the class of each code point, `uint8`, shape `(0x110000,)`, read-only.

    The file has one line for each run of equal classes: the first code point in hexadecimal, and the class.
    """
    rows = [line.split() for line in _read_lines("unicode_classes.txt")]
    starts = np.array([int(start, 16) for start, _ in rows])
    classes = np.array([int(class_) for _, class_ in rows], np.uint8)
    table = np.repeat(classes, np.diff(starts, append=CODE_POINTS))
    table[[ord(" "), ord("'"), ord("/")]] = ASCII_SPACE, APOSTROPHE, SLASH
    table.setflags(write=False)
    return table


def is_space(code: int) -> bool:
    """Returns whether a code point is whitespace."""
    return load_code_point_classes()[code] in (SPACE, NEWLINE, ASCII_SPACE)


def map_to_representatives(codes: NDArray[Any]) -> str:
    """Replaces each character outside of ASCII by a representative of its class.

    Characters that patterns name are not replaced. All versions of Unicode agree on the representatives. So
    any library splits the result in the same way, and in the way in which tiktoken splits the original.

    Args:
        codes: code points, unsigned integers, shape `(n,)`.

    Returns:
        A string of `n` characters, which the published patterns split at the same positions.
    """
    return _map_codes(codes).tobytes().decode("utf-32-le")


def map_text_to_representatives(text: str) -> str:
    """Does the same as `map_to_representatives` for a `str`."""
    if len(text) <= _FEW_CHARACTERS:
        return text.translate(_REPRESENTATIVE_CACHE)  # faster than array calls
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return _map_codes(codes).tobytes().decode("utf-32-le")


def _map_codes(codes: NDArray[Any]) -> NDArray[np.uint32]:
    representatives = _CLASS_REPRESENTATIVES.take(load_code_point_classes().take(codes))
    is_replaced = codes >= _ASCII
    for named in _NAMED:
        is_replaced &= codes != named
    mapped: NDArray[np.uint32] = np.where(is_replaced, representatives, codes).astype("<u4")
    return mapped


@lru_cache(maxsize=1)
def load_code_point_flags() -> NDArray[np.uint8]:
    """Returns the flags of each code point, `uint8`, shape `(0x110000,)`, read-only.

    The file has one line for each run of equal flags: the first code point in hexadecimal, and the flags.
    """
    rows = [line.split() for line in _read_lines("bert_characters.txt") if line.count(" ") == 1]
    starts = np.array([int(start, 16) for start, _ in rows])
    flags = np.array([int(value) for _, value in rows], np.uint8)
    table = np.repeat(flags, np.diff(starts, append=CODE_POINTS))
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def load_lowercase_map() -> Mapping[int, str]:
    """Returns the lower case of each code point that differs from its lower case.

    The file has one line for each run of them: the first and last code point in hexadecimal, the step between
    code points, and the distance to their lower case.
    """
    lower = {DOTTED_CAPITAL_I: _LOWER_OF_DOTTED}
    for line in _read_lines("bert_characters.txt"):
        if line.count(" ") == 3:
            first, last, step, distance = line.split()
            codes = range(int(first, 16), int(last, 16) + 1, int(step))
            lower |= {code: chr(code + int(distance)) for code in codes}
    return lower


def decompose(character: str) -> str:
    """Returns the NFD form of one character."""
    decomposes = load_code_point_flags()[ord(character)] & DECOMPOSES
    return unicodedata.normalize("NFD", character) if decomposes else character


def get_combining_class(character: str) -> int:
    """Returns the combining class of a character, 0 for characters that are not combining marks."""
    return unicodedata.combining(character) if load_code_point_flags()[ord(character)] & COMBINES else 0


class _RepresentativeCache(dict[int, int]):
    """Cache of the representatives of code points for `str.translate`, filled as code points occur."""

    def __missing__(self, code: int) -> int:
        if len(self) >= _MAX_CACHED:
            self.clear()
        representative = int(_CLASS_REPRESENTATIVES[load_code_point_classes()[code]])
        self[code] = code if code < _ASCII or code in _NAMED else representative
        return self[code]


_REPRESENTATIVE_CACHE = _RepresentativeCache()
"""Cache of all calls of `map_text_to_representatives`."""


def _read_lines(name: str) -> list[str]:
    """Returns the lines of a table in this directory, without comments."""
    text = (Path(__file__).parent / name).read_text("ascii")
    return [line for line in text.splitlines() if not line.startswith("#")]
