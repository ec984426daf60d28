"""Unicode tables for pre-tokenization: categories for split patterns, and character flags for BERT.

The Unicode tables of libraries differ, and change between versions. So these tables are pinned:

- `unicode_classes.txt` holds the category of each code point (letter, mark, number, whitespace and so on),
  and the Chinese characters, for split patterns. It is generated from tiktoken. Hugging Face's tokenizers
  agree with it.
- `bert_characters.txt` holds the flags and the lower case of each code point for BERT's normalizer and
  pre-tokenizer. It is generated from Hugging Face's `tokenizers`.

Tests compare all code points with the installed libraries.
"""

from __future__ import annotations

import itertools
import unicodedata
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray


Item = TypeVar("Item")


class Category(IntEnum):
    r"""The Unicode categories that split patterns distinguish.

    `SPACE` is the property White_Space, `\s` in patterns. `OTHER` is everything else.
    """

    OTHER, UPPER, TITLE, LOWER, MODIFIER, LETTER, MARK, DIGIT, NUMBER, PUNCTUATION, SYMBOL, SPACE = range(12)


PROPERTIES: Mapping[str, tuple[Category, ...]] = MappingProxyType(
    {
        "L": (Category.UPPER, Category.TITLE, Category.LOWER, Category.MODIFIER, Category.LETTER),
        "Lu": (Category.UPPER,),
        "Lt": (Category.TITLE,),
        "Ll": (Category.LOWER,),
        "Lm": (Category.MODIFIER,),
        "Lo": (Category.LETTER,),
        "M": (Category.MARK,),
        "N": (Category.DIGIT, Category.NUMBER),
        "Nd": (Category.DIGIT,),
        "P": (Category.PUNCTUATION,),
        "S": (Category.SYMBOL,),
        "White_Space": (Category.SPACE,),
    }
)
"""The categories of each property that a pattern can name, as in `\\p{Lu}`."""
LETTERS_AND_NUMBERS = PROPERTIES["L"] + PROPERTIES["N"]
CODE_POINTS = 0x110000
"""Number of code points of Unicode."""
DROPPED, ACCENT, PUNCTUATION, CHINESE, DECOMPOSES, COMBINES = 1, 2, 4, 8, 16, 32
"""Flags of code points for BERT: `DROPPED` by `clean_text`, `ACCENT` removed by `strip_accents`,
`PUNCTUATION` that is a separate word, `CHINESE` that gets spaces around it, `DECOMPOSES` in form NFD,
`COMBINES` with a combining class other than 0."""
EXTENDS, STRIPPED, COMPATIBLE = 64, 128, 256
"""More flags of code points: `EXTENDS` the grapheme before it, `STRIPPED` by the normalizer `StripAccents`,
`COMPATIBLE` characters that decompose in form NFKD."""
DOTTED_CAPITAL_I = 0x130
"""The capital I with a dot, the only character whose lower case has two characters."""
_LOWER_OF_DOTTED = "i\u0307"
"""Lower case of `DOTTED_CAPITAL_I`."""
_MAX_CACHED = 1 << 16


@lru_cache(maxsize=1)
def load_category_runs() -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Returns the runs of code points of equal category.

    The file has one line for each run: the first code point in hexadecimal, and the number of its `Category`.

    Returns:
        `(starts, categories)`: the first code point of each run, `int64`, ascending, and its `Category`,
        `uint8`; shape `(num_runs,)` each.
    """
    rows = [line.split() for line in _read_lines("unicode_classes.txt") if line.count(" ") == 1]
    starts, categories = zip(*rows, strict=True)
    return np.array([int(start, 16) for start in starts]), np.array(categories).astype(np.uint8)


@lru_cache(maxsize=1)
def load_categories() -> NDArray[np.uint8]:
    """Returns the `Category` of each code point, `uint8`, shape `(0x110000,)`, read-only."""
    starts, categories = load_category_runs()
    table = np.repeat(categories, np.diff(starts, append=CODE_POINTS))
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def load_han_ranges() -> tuple[tuple[int, int], ...]:
    r"""Returns the first and last code point of each range of Chinese characters, `\p{Han}` in patterns.

    The file has one line for each: `Han`, and the code points in hexadecimal.
    """
    rows = [line.split() for line in _read_lines("unicode_classes.txt") if line.startswith("Han ")]
    return tuple((int(first, 16), int(last, 16)) for _, first, last in rows)


@lru_cache(maxsize=1)
def load_code_point_flags() -> NDArray[np.uint16]:
    """Returns the flags of each code point, `uint16`, shape `(0x110000,)`, read-only.

    The file has one line for each run of equal flags: the first code point in hexadecimal, and the flags.
    """
    rows = [line.split() for line in _read_lines("bert_characters.txt") if line.count(" ") == 1]
    starts = np.array([int(start, 16) for start, _ in rows])
    flags = np.array([int(value) for _, value in rows], np.uint16)
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


def make_punctuation_set() -> str:
    """Returns the set of the step `Punctuation` of Hugging Face's tokenizers, as in a regular expression."""
    is_member = (load_code_point_flags() & PUNCTUATION > 0).astype(np.int8)
    bounds = np.flatnonzero(np.diff(is_member, prepend=0)).reshape(-1, 2)
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{stop - 1:x}}}" for first, stop in bounds.tolist()) + "]"


class ReplacementTable(dict[int, str]):
    """Cache of character replacements for `str.translate`, filled when a character first occurs.

    Args:
        compute_replacement: function that returns the replacement of a character.
    """

    def __init__(self, compute_replacement: Callable[[str], str]) -> None:
        super().__init__()
        self._compute_replacement = compute_replacement

    def __missing__(self, code: int) -> str:
        """Computes a replacement."""
        if len(self) >= _MAX_CACHED:
            self.clear()
        self[code] = self._compute_replacement(chr(code))
        return self[code]


def get_combining_class(character: str) -> int:
    """Returns the combining class of a character, 0 for characters that are not combining marks."""
    return unicodedata.combining(character) if load_code_point_flags()[ord(character)] & COMBINES else 0


def sort_marks(items: Iterable[Item], get_class: Callable[[Item], int]) -> Iterator[Item]:
    """Sorts each run of items with a combining class other than 0 by the class, as all normal forms do."""
    for _, run in itertools.groupby(items, lambda item: get_class(item) != 0):
        yield from sorted(run, key=get_class)


def _read_lines(name: str) -> list[str]:
    """Returns the lines of a table in this directory, without comments."""
    text = (Path(__file__).parent / name).read_text("ascii")
    return [line for line in text.splitlines() if not line.startswith("#")]
