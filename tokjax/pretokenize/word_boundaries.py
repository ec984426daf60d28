"""Where words start and stop that white space parts, and for BERT punctuation too.

Unlike the words of a split pattern, these leave out the white space between them.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokjax.core.ragged import ranges
from tokjax.core.utf8 import wide_characters_at
from tokjax.pretokenize.bert_characters import PUNCTUATION, bits_of_code_point
from tokjax.pretokenize.unicode_classes import BLANK, CODE_POINTS, NEWLINE, SPACE, class_of_code_point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Kinds = NDArray[np.uint8]
    Places = NDArray[np.int64]

Splitter = Literal["whitespace", "bert"]
"""`"whitespace"`: a word is a run of characters that are no white space. `"bert"`: a punctuation mark is a
word by itself, as for BERT's pre-tokenizer."""
SPLITTERS: tuple[Splitter, ...] = ("whitespace", "bert")

# What a byte is: part of a word, white space, or the first or a later byte of a word of one character.
_INSIDE, _SPACE, _ALONE, _REST_OF_ALONE = range(4)
_STARTS, _STOPS = 1, 2
_FIRST_LEAD = 0xC0


def word_bounds(splitter: Splitter, text: bytes) -> tuple[Places, Places]:
    """The words of UTF-8 that ends in white space.

    Args:
        splitter: what parts words.
        text: valid UTF-8.

    Returns:
        The byte at which each word starts, and the one behind it; `int64`, shape `(words,)`.
    """
    kinds = np.frombuffer(bytearray(text).translate(_kinds_of_bytes(splitter)), np.uint8)
    codes = np.frombuffer(text, np.uint8)
    leads = np.flatnonzero(codes >= _FIRST_LEAD)
    if len(leads):
        _mark_wide(splitter, text, kinds, leads)
    return _bounds(kinds)


def word_bounds_of_characters(
    splitter: Splitter, codes: NDArray[np.uint32], starts: Places
) -> tuple[Places, Places]:
    """The same of any characters, of which the last is white space.

    Args:
        splitter: what parts words.
        codes: the code point of each, shape `(n,)`.
        starts: the byte at which each starts, and last the number of bytes, shape `(n + 1,)`.
    """
    of_characters = _kind_of_code_point(splitter).take(codes)
    kinds = np.repeat(of_characters, np.diff(starts))
    alone = np.flatnonzero(of_characters == _ALONE)
    kinds[ranges(starts[alone] + 1, starts[alone + 1] - starts[alone] - 1)] = _REST_OF_ALONE
    return _bounds(kinds)


@lru_cache(maxsize=len(SPLITTERS))
def word_expression(splitter: Splitter) -> re.Pattern[str]:
    """What matches the words of a text, one after the other."""
    kinds = _kind_of_code_point(splitter)
    space, alone = (_set_of(np.flatnonzero(kinds == kind)) for kind in (_SPACE, _ALONE))
    return re.compile(f"[^{space}{alone}]+" + (f"|[{alone}]" if alone else ""))


def _bounds(kinds: Kinds) -> tuple[Places, Places]:
    pairs = kinds[:-1] << np.uint8(2)
    pairs |= kinds[1:]
    bits = np.frombuffer(pairs.tobytes().translate(_OF_PAIRS), np.uint8)
    starts = np.flatnonzero((bits & _STARTS).view(np.bool_)) + 1
    if kinds[0] != _SPACE:
        starts = np.concatenate([[0], starts])
    return starts, np.flatnonzero(bits >= _STOPS) + 1


def _mark_wide(splitter: Splitter, text: bytes, kinds: Kinds, leads: Places) -> None:
    """Put right the kinds of characters of several bytes that are not part of words."""
    codes = np.frombuffer(text, np.uint8)
    odd = _may_be_apart(splitter).take(codes[leads].astype(np.int64) << 8 | codes[leads + 1])
    leads = leads.take(np.flatnonzero(odd))
    widths, characters = wide_characters_at(text, leads)
    of_leads = _kind_of_code_point(splitter).take(characters)
    kinds[leads] = of_leads
    rest = np.where(of_leads == _ALONE, _REST_OF_ALONE, of_leads).astype(np.uint8)
    kinds[ranges(leads + 1, widths - 1)] = np.repeat(rest, widths - 1)


@lru_cache(maxsize=len(SPLITTERS))
def _kind_of_code_point(splitter: Splitter) -> Kinds:
    kinds = np.full(CODE_POINTS, _INSIDE, np.uint8)
    if splitter == "bert":
        kinds[bits_of_code_point() & PUNCTUATION != 0] = _ALONE
    kinds[np.isin(class_of_code_point(), (SPACE, NEWLINE, BLANK))] = _SPACE
    return kinds


@lru_cache(maxsize=len(SPLITTERS))
def _kinds_of_bytes(splitter: Splitter) -> bytes:
    """The kind of each byte, as far as one byte tells."""
    return _kind_of_code_point(splitter)[:128].tobytes() + bytes([_INSIDE]) * 128


@lru_cache(maxsize=len(SPLITTERS))
def _may_be_apart(splitter: Splitter) -> NDArray[np.bool_]:
    """Which two first bytes begin a character that parts words."""
    table = np.zeros(1 << 16, bool)
    for code in np.flatnonzero(_kind_of_code_point(splitter)[128:] != _INSIDE) + 128:
        table[int.from_bytes(chr(code).encode("utf-8")[:2], "big")] = True
    return table


def _set_of(codes: Places) -> str:
    """Code points as the inside of a set of a regular expression."""
    first = np.flatnonzero(np.diff(codes, prepend=-2) != 1)
    last = np.append(first[1:], len(codes)) - 1
    runs = zip(codes[first].tolist(), codes[last].tolist(), strict=True) if len(codes) else ()
    return "".join(f"\\U{start:08x}-\\U{stop:08x}" for start, stop in runs)


def _of_pairs() -> bytes:
    """What two neighbours tell of the second: that it starts a word, that the word before it stops."""
    bits = bytearray(256)
    for before, here in itertools.product(range(4), repeat=2):
        starts = here == _ALONE or (here == _INSIDE and before != _INSIDE)
        stops = before != _SPACE and here != _REST_OF_ALONE and not before == here == _INSIDE
        bits[before << 2 | here] = _STARTS * starts | _STOPS * stops
    return bytes(bits)


_OF_PAIRS = _of_pairs()
