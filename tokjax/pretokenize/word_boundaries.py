r"""Word boundaries: the positions of words for WordPiece and word-level tokenizers.

Whitespace separates words. For BERT, each punctuation character is also a word. Unlike the pre-tokens of a
split pattern, words do not include the whitespace between them.

Each byte has a kind, and a table of pairs of kinds says where words start and stop. For BERT:

    text      d     o     n     '     t     _     o     k     。                \n
    bytes     64    6f    6e    27    74    20    6f    6b    e3    80    82    0a
    kinds     i     i     i     s     i     w     i     i     s     c     c     w
    starts    ^                 ^     ^           ^           ^
    stops                       ^     ^     ^                 ^                 ^

A stop is the position after a word. The kinds are:

- `i`: part of a longer word
- `w`: whitespace
- `s`: the first byte of a word of one character
- `c`: a continuation byte of a word of one character

See docs/performance.md, section "WordPiece and word-level tokenizers".
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
    CODE_POINTS,
    PUNCTUATION,
    Category,
    load_categories,
    load_code_point_flags,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Kinds = NDArray[np.uint8]
    Positions = NDArray[np.int64]

Splitter = Literal["whitespace", "bert"]
"""The rule that separates words. `"whitespace"`: a word is a run of characters that are not whitespace.
`"bert"`: in addition, each punctuation character is a word, as in BERT's pre-tokenizer."""
SPLITTERS: tuple[Splitter, ...] = ("whitespace", "bert")

# The kinds of bytes and characters; see the module docstring.
_INSIDE, _SPACE, _SINGLE, _SINGLE_CONTINUATION = range(4)
# Flags of a pair of neighbours: a word starts at the second one, a word stops before it.
_STARTS, _STOPS = 1, 2
_FIRST_LEAD = 0xC0


def find_word_bounds(splitter: Splitter, text: bytes) -> tuple[Positions, Positions]:
    """Finds the words of UTF-8 that ends in whitespace.

    Args:
        splitter: the rule that separates words.
        text: valid UTF-8. The last character must be whitespace, so that the last word has a stop.

    Returns:
        `(starts, stops)`: the 0-based position of the first byte of each word, and of the byte after it;
        `int64`, shape `(num_words,)` each.
    """
    kinds = np.frombuffer(bytearray(text).translate(_make_byte_kinds(splitter)), np.uint8)
    codes = np.frombuffer(text, np.uint8)
    leads = np.flatnonzero(codes >= _FIRST_LEAD)
    if len(leads):
        _mark_multibyte_separators(splitter, text, kinds, leads)
    return _find_bounds(kinds)


def find_character_word_bounds(
    splitter: Splitter, codes: NDArray[np.uint32], starts: Positions
) -> tuple[Positions, Positions]:
    """Finds the words of any characters, of which the last is whitespace, also of invalid UTF-8.

    Args:
        splitter: the rule that separates words.
        codes: the code point of each character, shape `(n,)`.
        starts: the byte position of each character, and the total number of bytes at the end; shape
            `(n + 1,)`.

    Returns:
        `(starts, stops)` in bytes, as from `find_word_bounds`.
    """
    # Every byte gets the kind of its character. A byte that is not valid UTF-8 is a character of one byte
    # here, whatever its code point, so the byte positions have to come from `starts`.
    character_kinds = _make_code_point_kinds(splitter).take(codes)
    kinds = np.repeat(character_kinds, np.diff(starts))
    single = np.flatnonzero(character_kinds == _SINGLE)
    continuation_bytes = concatenate_ranges(starts[single] + 1, starts[single + 1] - starts[single] - 1)
    kinds[continuation_bytes] = _SINGLE_CONTINUATION
    return _find_bounds(kinds)


@lru_cache(maxsize=len(SPLITTERS))
def compile_word_expression(splitter: Splitter) -> re.Pattern[str]:
    """Returns the regular expression whose matches are the words of a text, for short texts."""
    kinds = _make_code_point_kinds(splitter)
    space, single = (_format_character_set(np.flatnonzero(kinds == kind)) for kind in (_SPACE, _SINGLE))
    return re.compile(f"[^{space}{single}]+" + (f"|[{single}]" if single else ""))


def _find_bounds(kinds: Kinds) -> tuple[Positions, Positions]:
    """Returns the starts and stops of words from the kind of each byte."""
    # One byte per pair, so that `bytes.translate` looks up all pairs at once.
    pairs = kinds[:-1] << np.uint8(2)
    pairs |= kinds[1:]
    flags = np.frombuffer(pairs.tobytes().translate(_PAIR_TABLE), np.uint8)
    starts = np.flatnonzero((flags & _STARTS).view(np.bool_)) + 1
    if kinds[0] != _SPACE:
        starts = np.concatenate([[0], starts])  # the first byte is not the second one of any pair
    return starts, np.flatnonzero(flags >= _STOPS) + 1


def _mark_multibyte_separators(splitter: Splitter, text: bytes, kinds: Kinds, leads: Positions) -> None:
    """Corrects `kinds` at characters of several bytes that are whitespace or punctuation.

    Most characters outside of ASCII are neither. Their first two bytes are enough to skip them, so only a few
    have to be decoded.
    """
    codes = np.frombuffer(text, np.uint8)
    prefixes = codes[leads].astype(np.int64) << 8 | codes[leads + 1]
    may_separate = _make_separator_table(splitter).take(prefixes)
    leads = leads.take(np.flatnonzero(may_separate))
    widths, characters = decode_characters_at(text, leads)
    lead_kinds = _make_code_point_kinds(splitter).take(characters)
    kinds[leads] = lead_kinds
    rest = np.where(lead_kinds == _SINGLE, _SINGLE_CONTINUATION, lead_kinds).astype(np.uint8)
    kinds[concatenate_ranges(leads + 1, widths - 1)] = np.repeat(rest, widths - 1)


@lru_cache(maxsize=len(SPLITTERS))
def _make_code_point_kinds(splitter: Splitter) -> Kinds:
    """Returns the kind of each code point, `uint8`, shape `(0x110000,)`."""
    kinds = np.full(CODE_POINTS, _INSIDE, np.uint8)
    if splitter == "bert":
        kinds[load_code_point_flags() & PUNCTUATION != 0] = _SINGLE
    kinds[load_categories() == Category.SPACE] = _SPACE
    return kinds


@lru_cache(maxsize=len(SPLITTERS))
def _make_byte_kinds(splitter: Splitter) -> bytes:
    """Returns the kind of each byte; bytes outside of ASCII are part of a word until they are decoded."""
    return _make_code_point_kinds(splitter)[:128].tobytes() + bytes([_INSIDE]) * 128


@lru_cache(maxsize=len(SPLITTERS))
def _make_separator_table(splitter: Splitter) -> NDArray[np.bool_]:
    """Returns which pairs of first bytes may begin whitespace or punctuation, `bool`, shape `(65536,)`."""
    table = np.zeros(1 << 16, bool)
    for code in np.flatnonzero(_make_code_point_kinds(splitter)[128:] != _INSIDE) + 128:
        table[int.from_bytes(chr(code).encode("utf-8")[:2], "big")] = True
    return table


def _format_character_set(codes: Positions) -> str:
    """Formats code points as the inside of a character set of a regular expression."""
    first = np.flatnonzero(np.diff(codes, prepend=-2) != 1)
    last = np.append(first[1:], len(codes)) - 1
    runs = zip(codes[first].tolist(), codes[last].tolist(), strict=True) if len(codes) else ()
    return "".join(f"\\U{start:08x}-\\U{stop:08x}" for start, stop in runs)


def _make_pair_table() -> bytes:
    """Returns the flags of each pair of kinds, indexed by `previous << 2 | current`."""
    table = bytearray(256)
    for previous, current in itertools.product(range(4), repeat=2):
        starts = current == _SINGLE or (current == _INSIDE and previous != _INSIDE)
        # A continuation byte never stops a word: its word is the character that it belongs to.
        stops = previous != _SPACE and current != _SINGLE_CONTINUATION and not previous == current == _INSIDE
        table[previous << 2 | current] = _STARTS * starts | _STOPS * stops
    return bytes(table)


_PAIR_TABLE = _make_pair_table()
