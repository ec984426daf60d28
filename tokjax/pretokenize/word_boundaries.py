"""Where words start and stop that white space parts, and for BERT punctuation too.

Unlike the words of a split pattern, these leave out the white space between them.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokjax.core.ragged import concatenate_ranges
from tokjax.core.utf8 import decode_characters_at
from tokjax.pretokenize.unicode_classes import (
    ASCII_SPACE,
    CODE_POINTS,
    NEWLINE,
    PUNCTUATION,
    SPACE,
    load_code_point_classes,
    load_code_point_flags,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Kinds = NDArray[np.uint8]
    Positions = NDArray[np.int64]

Splitter = Literal["whitespace", "bert"]
"""`"whitespace"`: a word is a run of characters that are no white space. `"bert"`: a punctuation mark is a
word by itself, as for BERT's pre-tokenizer."""
SPLITTERS: tuple[Splitter, ...] = ("whitespace", "bert")

# What a byte is: part of a word, white space, or the first or a later byte of a word of one character.
_INSIDE, _SPACE, _ALONE, _REST_OF_ALONE = range(4)
_STARTS, _STOPS = 1, 2
_FIRST_LEAD = 0xC0


def find_word_bounds(splitter: Splitter, text: bytes) -> tuple[Positions, Positions]:
    """The words of UTF-8 that ends in white space.

    Args:
        splitter: what parts words.
        text: valid UTF-8.

    Returns:
        The byte at which each word starts, and the one behind it; `int64`, shape `(words,)`.
    """
    kinds = np.frombuffer(bytearray(text).translate(_make_byte_kinds(splitter)), np.uint8)
    codes = np.frombuffer(text, np.uint8)
    leads = np.flatnonzero(codes >= _FIRST_LEAD)
    if len(leads):
        _mark_wide(splitter, text, kinds, leads)
    return _find_bounds(kinds)


def find_character_word_bounds(
    splitter: Splitter, codes: NDArray[np.uint32], starts: Positions
) -> tuple[Positions, Positions]:
    """The same of any characters, of which the last is white space.

    Args:
        splitter: what parts words.
        codes: the code point of each, shape `(n,)`.
        starts: the byte at which each starts, and last the number of bytes, shape `(n + 1,)`.
    """
    character_kinds = _make_code_point_kinds(splitter).take(codes)
    kinds = np.repeat(character_kinds, np.diff(starts))
    alone = np.flatnonzero(character_kinds == _ALONE)
    kinds[concatenate_ranges(starts[alone] + 1, starts[alone + 1] - starts[alone] - 1)] = _REST_OF_ALONE
    return _find_bounds(kinds)


@lru_cache(maxsize=len(SPLITTERS))
def compile_word_expression(splitter: Splitter) -> re.Pattern[str]:
    """What matches the words of a text, one after the other."""
    kinds = _make_code_point_kinds(splitter)
    space, alone = (_format_character_set(np.flatnonzero(kinds == kind)) for kind in (_SPACE, _ALONE))
    return re.compile(f"[^{space}{alone}]+" + (f"|[{alone}]" if alone else ""))


def _find_bounds(kinds: Kinds) -> tuple[Positions, Positions]:
    pairs = kinds[:-1] << np.uint8(2)
    pairs |= kinds[1:]
    bits = np.frombuffer(pairs.tobytes().translate(_PAIR_TABLE), np.uint8)
    starts = np.flatnonzero((bits & _STARTS).view(np.bool_)) + 1
    if kinds[0] != _SPACE:
        starts = np.concatenate([[0], starts])
    return starts, np.flatnonzero(bits >= _STOPS) + 1


def _mark_wide(splitter: Splitter, text: bytes, kinds: Kinds, leads: Positions) -> None:
    """Put right the kinds of characters of several bytes that are not part of words."""
    codes = np.frombuffer(text, np.uint8)
    odd = _make_separator_table(splitter).take(codes[leads].astype(np.int64) << 8 | codes[leads + 1])
    leads = leads.take(np.flatnonzero(odd))
    widths, characters = decode_characters_at(text, leads)
    lead_kinds = _make_code_point_kinds(splitter).take(characters)
    kinds[leads] = lead_kinds
    rest = np.where(lead_kinds == _ALONE, _REST_OF_ALONE, lead_kinds).astype(np.uint8)
    kinds[concatenate_ranges(leads + 1, widths - 1)] = np.repeat(rest, widths - 1)


@lru_cache(maxsize=len(SPLITTERS))
def _make_code_point_kinds(splitter: Splitter) -> Kinds:
    kinds = np.full(CODE_POINTS, _INSIDE, np.uint8)
    if splitter == "bert":
        kinds[load_code_point_flags() & PUNCTUATION != 0] = _ALONE
    kinds[np.isin(load_code_point_classes(), (SPACE, NEWLINE, ASCII_SPACE))] = _SPACE
    return kinds


@lru_cache(maxsize=len(SPLITTERS))
def _make_byte_kinds(splitter: Splitter) -> bytes:
    """The kind of each byte, as far as one byte tells."""
    return _make_code_point_kinds(splitter)[:128].tobytes() + bytes([_INSIDE]) * 128


@lru_cache(maxsize=len(SPLITTERS))
def _make_separator_table(splitter: Splitter) -> NDArray[np.bool_]:
    """Which two first bytes begin a character that parts words."""
    table = np.zeros(1 << 16, bool)
    for code in np.flatnonzero(_make_code_point_kinds(splitter)[128:] != _INSIDE) + 128:
        table[int.from_bytes(chr(code).encode("utf-8")[:2], "big")] = True
    return table


def _format_character_set(codes: Positions) -> str:
    """Code points as the inside of a set of a regular expression."""
    first = np.flatnonzero(np.diff(codes, prepend=-2) != 1)
    last = np.append(first[1:], len(codes)) - 1
    runs = zip(codes[first].tolist(), codes[last].tolist(), strict=True) if len(codes) else ()
    return "".join(f"\\U{start:08x}-\\U{stop:08x}" for start, stop in runs)


def _make_pair_table() -> bytes:
    """What two neighbours tell of the second: that it starts a word, that the word before it stops."""
    bits = bytearray(256)
    for before, here in itertools.product(range(4), repeat=2):
        starts = here == _ALONE or (here == _INSIDE and before != _INSIDE)
        stops = before != _SPACE and here != _REST_OF_ALONE and not before == here == _INSIDE
        bits[before << 2 | here] = _STARTS * starts | _STOPS * stops
    return bytes(bits)


_PAIR_TABLE = _make_pair_table()
