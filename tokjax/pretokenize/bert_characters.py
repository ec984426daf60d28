"""What every code point is to BERT's normaliser and to the splitter after it.

The reference is Hugging Face's `tokenizers`, which takes its tables from three versions of Unicode, none of
them Python's. `bert_characters.txt` holds what that library does, and a test compares all code points with
the installed one.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from tokjax.pretokenize.unicode_classes import (
    ASCII_SPACE,
    CODE_POINTS,
    NEWLINE,
    SPACE,
    load_code_point_classes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

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
