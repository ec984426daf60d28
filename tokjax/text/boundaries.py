"""Where words start, for the published split patterns, as array code over the classes of characters.

A pattern's alternatives become tests of two neighbouring classes: one table, looked up for all neighbours
at once, says with a bit for each test whether a word starts there, or whether it is a place to look at again.
What depends on more than two neighbours is rare, and is put right afterwards where it occurs; what is rarer
still is split again by the regular expression itself, between two safe cuts around the place.
"""

from __future__ import annotations

import itertools
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.ragged import ranges
from tokjax.text.patterns import word_splitter
from tokjax.text.unicode_classes import (
    APOSTROPHE,
    BLANK,
    END,
    LETTER,
    LONG_S,
    LONG_S_BYTES,
    LOWER,
    MARK,
    NEWLINE,
    NEXT_LINE,
    NEXT_LINE_BYTES,
    NUMBER,
    OTHER,
    SLASH,
    SPACE,
    UPPER,
    class_of_code_point,
    representatives,
)
from tokjax.utf8 import wide_characters_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Classes = NDArray[np.uint8]

_WORD, _NUMBER, _OTHER, _SPACE, _NEWLINE = 1, 2, 4, 8, 16  # the roles that a pattern gives to classes
_AT_END = 32

# What a table of neighbours tells of the second of them,
_STARTS = 1  # that it starts a word,
_PREVIOUS_STARTS = (
    2  # that the one before it does: the last white space goes with what follows, or stands alone,
)
_AFTER_NEWLINE = 4  # that it is white space after a newline,
_ROLE_CHANGES = 8  # that its role is not that of the one before,
_AFTER_OTHER = 16  # that it is a letter after something that is neither letter, number nor white space,
_NUMBER_EDGE = 32  # that a run of numbers starts or has ended,
_SPOT = 64  # that something rare stands here,
_APOSTROPHE_AFTER_WORD = 128  # that it is just that.


class _Roles(NamedTuple):
    """By class: what a character joins as the *previous* one, and what it is as the *current* one."""

    previous: dict[int, int]
    current: dict[int, int]


def word_starts(pattern: str, classes: Classes, codes: NDArray[Any]) -> Flags:
    """Where each word of one or more texts starts.

    Args:
        pattern: a name of `PATTERNS`.
        classes: the class of each character, with `END` after each text; `uint8`, shape `(n,)`.
        codes: the code point of each character, 0 at each `END`; unsigned integers, shape `(n,)`.

    Returns:
        `bool`, shape `(n,)`; also true at each `END`.
    """
    return _FINDERS[pattern](classes, codes)


def word_starts_in_bytes(pattern: str, text: bytes, ends: NDArray[np.int64]) -> Flags | None:
    """The same for UTF-8 that is mostly ASCII, byte by byte: without a detour by code points.

    All bytes of a character get its class, so that most tests of neighbours hold for bytes as they do for
    characters.

    Args:
        pattern: a name of `PATTERNS`.
        text: valid UTF-8, with one ASCII character after each text.
        ends: the places of those.

    Returns:
        `bool`, one entry a byte; `None` where characters have to be counted.
    """
    codes = np.frombuffer(text, np.uint8)
    leads = np.flatnonzero(codes >= _FIRST_LEAD)
    if len(leads) and pattern not in _COUNTED:
        return None
    classes = np.frombuffer(bytearray(text).translate(_class_of_low_byte()), np.uint8)
    widths, characters = wide_characters_at(text, leads)
    of_leads = class_of_code_point().take(characters)
    for i in range(_WIDEST):
        longer = np.flatnonzero(widths > i)
        classes[leads.take(longer) + i] = of_leads.take(longer)
    classes[ends] = END
    if len(leads) and np.isin(of_leads, _COUNTED[pattern]).any():
        return None
    starts = _FINDERS[pattern](classes, codes)
    spaces = np.flatnonzero(of_leads == SPACE)
    lead_of_space = leads.take(spaces)
    starts[lead_of_space] |= starts[lead_of_space + widths.take(spaces) - 1]
    for i in range(1, _WIDEST):
        starts[leads.take(np.flatnonzero(widths > i)) + i] = False
    return starts


def _gpt2(classes: Classes, codes: NDArray[Any]) -> Flags:
    starts, _ = _by_neighbours(_GPT2_TABLE, classes)
    _cut_contractions(starts, classes, codes, any_case=False)
    return starts


def _cl100k(classes: Classes, codes: NDArray[Any], *, table: bytes) -> Flags:
    starts, bits = _by_neighbours(table, classes)
    _cut_after_newlines(starts, bits, classes, _CL100K)
    _join_single_prefixes(starts, bits, classes, codes, _CL100K)
    _cut_contractions(starts, classes, codes, any_case=True)
    _cut_numbers(starts, bits, classes)
    return starts


def _o200k(classes: Classes, codes: NDArray[Any]) -> Flags:
    starts, bits = _by_neighbours(_O200K_TABLE, classes)
    _cut_after_newlines(starts, bits, classes, _O200K)
    _join_single_prefixes(starts, bits, classes, codes, _O200K)
    at = _places(bits, _APOSTROPHE_AFTER_WORD)
    contracted = _contractions(codes, at, any_case=True)
    for length, found in contracted:
        starts[found] = starts[found + 1] = False
        starts[found + 1 + length] = True
    _cut_mixed_case(starts, classes, contracted)
    _cut_numbers(starts, bits, classes)
    ends = np.concatenate([found + 1 + length for length, found in contracted])
    spots = np.concatenate([np.intersect1d(ends, at), _places(bits, _SPOT)])
    if len(spots):
        _split_again("o200k", starts, classes, codes, spots)
    return starts


def _cut_mixed_case(starts: Flags, classes: Classes, contracted: list[tuple[int, NDArray[np.int64]]]) -> None:
    """Upper case after letters without case starts a word if lower case came before, or nothing follows.

    A word is upper case and then lower case; letters without case, and marks, are both. So upper case ends a
    word in which there was lower case, and if no lower case comes at all, the word ends at its last letter
    that can be one.
    """
    caseless = (classes == LETTER) | (classes == MARK)
    at = np.flatnonzero(caseless[:-1] & (classes[1:] == UPPER)) + 1
    if not len(at):
        return
    seen = classes.copy()
    for length, found in contracted:
        for i in range(1, length + 1):
            seen[found + i] = OTHER  # these letters are of the word before
    with_case = np.flatnonzero(~caseless)
    which = np.searchsorted(with_case, at) - 1
    after_lower = (which >= 0) & (seen[with_case[which]] == LOWER)
    not_upper = np.flatnonzero(classes != UPPER)
    behind = classes[not_upper[np.searchsorted(not_upper, at)]]
    is_last = (behind != LOWER) & (behind != LETTER) & (behind != MARK)
    starts[at[after_lower | is_last]] = True


def _whitespace(classes: Classes, codes: NDArray[Any]) -> Flags:
    classes[(codes == _VERTICAL_TAB) | (codes == _FORM_FEED)] = OTHER
    if codes.dtype == np.uint8:
        lead, rest = NEXT_LINE_BYTES
        at = np.flatnonzero((codes[:-1] == lead) & (codes[1:] == rest))
        classes[at] = classes[at + 1] = OTHER
    else:
        classes[codes == NEXT_LINE] = OTHER
    starts, _ = _by_neighbours(_WHITESPACE_TABLE, classes)
    return starts


def _by_neighbours(table: bytes, classes: Classes) -> tuple[Flags, Classes]:
    """What neighbours alone say of where words start; and all that the table says of each two."""
    pairs = classes[:-1] << np.uint8(4)
    pairs |= classes[1:]
    bits = np.frombuffer(pairs.tobytes().translate(table), np.uint8)
    starts = np.empty(len(classes), np.uint8)
    starts[0] = _STARTS
    np.bitwise_and(bits, _STARTS, out=starts[1:])
    starts[:-1] |= (bits & _PREVIOUS_STARTS) >> 1
    return starts.view(np.bool_), bits


def _places(bits: Classes, bit: int) -> NDArray[np.int64]:
    """The characters of which a bit is set."""
    return np.flatnonzero((bits & bit).view(np.bool_)) + 1


def _cut_after_newlines(starts: Flags, bits: Classes, classes: Classes, roles: _Roles) -> None:
    """Start a word at white space after the last newline of a run, or after newlines of the word before."""
    after = _places(bits, _AFTER_NEWLINE)
    if not len(after):
        return
    role = _by_class(roles.current)
    changes = _places(bits, _ROLE_CHANGES)
    which = np.searchsorted(changes, after)
    last_newline = role[classes[changes[which + 1]]] != _NEWLINE
    newlines_start = np.where(which > 0, changes[which - 1], 0)
    swallowed = (newlines_start > 0) & (role[classes[newlines_start - 1]] == _OTHER)
    starts[after[last_newline | swallowed]] = True


def _join_single_prefixes(
    starts: Flags, bits: Classes, classes: Classes, codes: NDArray[Any], roles: _Roles
) -> None:
    """A single character of no class goes with the letters after it, unless a blank stands before it."""
    at = _places(bits, _AFTER_OTHER)
    prefix = at - 1
    if codes.dtype == np.uint8:
        for _ in range(_WIDEST - 1):
            prefix = prefix - ((codes[prefix] & 0xC0) == 0x80)  # to the first byte of the character
    before = classes[np.maximum(prefix - 1, 0)]
    alone = (prefix == 0) | ((_by_class(roles.current)[before] != _OTHER) & (before != BLANK))
    starts[at[alone]] = False


def _cut_numbers(starts: Flags, bits: Classes, classes: Classes) -> None:
    """Cut runs of numbers into groups of three."""
    edges = _places(bits, _NUMBER_EDGE)
    if classes[0] == NUMBER:
        edges = np.concatenate([[0], edges])
    first, stop = edges[::2], edges[1::2]
    long = np.flatnonzero(stop - first > _DIGITS)
    first, groups = first[long], (stop[long] - first[long] - 1) // _DIGITS
    starts[np.repeat(first, groups) + _DIGITS * ranges(1, groups)] = True


def _cut_contractions(starts: Flags, classes: Classes, codes: NDArray[Any], *, any_case: bool) -> None:
    """An apostrophe that starts a word and begins a contraction makes a word of just that."""
    at = np.flatnonzero((classes == APOSTROPHE) & starts)
    for length, found in _contractions(codes, at, any_case=any_case):
        starts[found + 1] = False
        starts[found + 1 + length] = True


def _contractions(
    codes: NDArray[Any], at: NDArray[np.int64], *, any_case: bool
) -> list[tuple[int, NDArray[np.int64]]]:
    """Apostrophes that begin a contraction, with the number of letters: of one, then of two."""
    last = len(codes) - 1
    first, second = codes[np.minimum(at + 1, last)], codes[np.minimum(at + 2, last)]
    if not any_case:
        long_s = np.zeros(0, np.int64)
    elif codes.dtype == np.uint8:
        long_s = at[(first == LONG_S_BYTES[0]) & (second == LONG_S_BYTES[1])]
    else:
        long_s = at[first == LONG_S]
    if any_case:
        first, second = first | 0x20, second | 0x20  # lower case, for ASCII letters
    one = (first == ord("s")) | (first == ord("t")) | (first == ord("m")) | (first == ord("d"))
    two = (first == ord("l")) & (second == ord("l"))
    two |= ((first == ord("r")) | (first == ord("v"))) & (second == ord("e"))
    if codes.dtype == np.uint8:
        return [(1, at[one]), (2, np.concatenate([at[two], long_s]))]
    return [(1, np.concatenate([at[one], long_s])), (2, at[two])]


def _split_again(
    pattern: str, starts: Flags, classes: Classes, codes: NDArray[Any], spots: NDArray[np.int64]
) -> None:
    """Split by the regular expression, from the last safe cut before each spot to the first after it.

    A cut between a letter or number and white space is safe, and so are the ends of texts.
    """
    cuts = np.flatnonzero(_mapped(classes, _BEFORE_CUT)[:-1] & _mapped(classes, _AFTER_CUT)[1:]) + 1
    cuts = np.concatenate([[0], cuts, [len(classes)]])
    regions = np.unique(np.searchsorted(cuts, spots, "right"))
    first, stop = cuts[regions - 1], cuts[regions]
    # Between two safe cuts regions can stand side by side as in the text; others are texts of their own.
    apart = (first == 0) | (stop == len(classes)) | (classes[first - 1] == END)
    apart |= classes[np.minimum(stop, len(classes) - 1)] == END
    splitter = word_splitter(pattern)
    for group, is_apart in ((~apart, False), (apart, True)):
        sizes = stop[group] - first[group]
        places = ranges(first[group], sizes)
        alike = representatives(codes[places])
        stops = np.cumsum(sizes).tolist() if is_apart else [len(alike)]
        parts = [alike[begin:end] for begin, end in zip([0, *stops], stops, strict=False)]
        lengths = np.fromiter(itertools.chain.from_iterable(map(splitter.lengths_alike, parts)), np.int64)
        starts[places] = False
        starts[places[np.cumsum(lengths) - lengths]] = True


def _mapped(classes: Classes, table: bytes) -> Classes:
    return np.frombuffer(bytearray(classes.tobytes()).translate(table), np.uint8)


@lru_cache(maxsize=1)
def _class_of_low_byte() -> bytes:
    return class_of_code_point()[:256].tobytes()


def _by_class(bits: Mapping[int, int]) -> Classes:
    return np.array([bits.get(class_, 0) for class_ in range(_CLASSES)], np.uint8)


def _table(bits: Mapping[int, int]) -> bytes:
    return bytes(bits.get(class_, 0) for class_ in range(256))


def _roles(words: tuple[int, ...], others: tuple[int, ...], *, keep_newlines: bool) -> _Roles:
    """Those of the patterns whose white space before a newline, or before a word, goes with it."""
    spaces = _SPACE | (_NEWLINE | _WORD if keep_newlines else 0)
    newline = _NEWLINE if keep_newlines else _SPACE
    other = _OTHER | (_NEWLINE if keep_newlines else 0)
    blank = spaces | _OTHER | (0 if keep_newlines else _WORD | _NUMBER)
    previous = dict.fromkeys(words, _WORD) | dict.fromkeys(others, other)
    previous |= {NUMBER: _NUMBER, SPACE: spaces, BLANK: blank, NEWLINE: newline | _SPACE, END: 0}
    current = dict.fromkeys(words, _WORD) | dict.fromkeys(others, _OTHER)
    current |= {NUMBER: _NUMBER, SPACE: _SPACE, BLANK: _SPACE, NEWLINE: newline, END: _AT_END}
    return _Roles(previous, current)


def _neighbours(
    roles: _Roles,
    starts: Collection[tuple[int, int]] = (),
    spots: Collection[tuple[int, int]] = (),
) -> bytes:
    """The table of a pattern: bits of two classes, 4 bits of the one before and 4 of the one here.

    Args:
        roles: two neighbours are of one word if they have a bit in common.
        starts: other neighbours of which the second starts a word.
        spots: neighbours where something rare stands.
    """
    bits = bytearray(256)
    for before, here in itertools.product(range(_CLASSES), repeat=2):
        was, now = roles.current[before], roles.current[here]
        tests = {
            _STARTS: not roles.previous[before] & now or (before, here) in starts,
            _PREVIOUS_STARTS: was == _SPACE and not now & (_SPACE | _NEWLINE | _AT_END),
            _AFTER_NEWLINE: was == _NEWLINE and now == _SPACE,
            _ROLE_CHANGES: was != now,
            _AFTER_OTHER: was == _OTHER and now == _WORD,
            _NUMBER_EDGE: (was == _NUMBER) != (now == _NUMBER),
            _SPOT: (before, here) in spots,
            _APOSTROPHE_AFTER_WORD: was == _WORD and here == APOSTROPHE,
        }
        bits[before << 4 | here] = sum(bit for bit, holds in tests.items() if holds)
    return bytes(bits)


_CLASSES = 12
_VERTICAL_TAB, _FORM_FEED = 0x0B, 0x0C
_WIDEST = 4
_FIRST_LEAD = 0xC0
_DIGITS = 3
# Where a text may be cut: what is before the cut, and what is after it, have a bit in common.
_BEFORE_CUT = _table(
    dict.fromkeys(range(_CLASSES), 2)
    | dict.fromkeys((UPPER, LOWER, LETTER, NUMBER), 1 | 2)
    | {END: 1 | 2 | 4}
)
_AFTER_CUT = _table(dict.fromkeys(range(_CLASSES), 4) | dict.fromkeys((SPACE, BLANK, NEWLINE), 1) | {END: 2})
_LETTERS, _OTHERS = (UPPER, LOWER, LETTER), (OTHER, APOSTROPHE, SLASH)
_GPT2 = _roles(_LETTERS, (*_OTHERS, MARK), keep_newlines=False)
_CL100K = _roles(_LETTERS, (*_OTHERS, MARK), keep_newlines=True)
_O200K = _roles((*_LETTERS, MARK), _OTHERS, keep_newlines=True)
_GPT2_TABLE = _neighbours(_GPT2)
_CL100K_TABLE = _neighbours(_CL100K)
_QWEN2_TABLE = _neighbours(_CL100K, starts=[(NUMBER, NUMBER)])
# Marks that are no part of a word; slashes after newlines.
_RARE_IN_O200K = [*((other, MARK) for other in _OTHERS), (NEWLINE, SLASH)]
# White space goes with whatever follows, all of it, as newlines do that go with newlines.
_SPACES = dict.fromkeys((SPACE, BLANK, NEWLINE), _NEWLINE)
_NO_SPACES = dict.fromkeys(range(_CLASSES), _WORD)
_WHITESPACE = _Roles(
    {**_NO_SPACES, **dict.fromkeys(_SPACES, _NEWLINE | _WORD), END: 0},
    {**_NO_SPACES, **_SPACES, END: _AT_END},
)
_WHITESPACE_TABLE = _neighbours(_WHITESPACE)
_O200K_TABLE = _neighbours(_O200K, starts=[(LOWER, UPPER)], spots=_RARE_IN_O200K)

# Classes whose characters a pattern counts. (One that is not here may split again by the expression.)
_COUNTED: Mapping[str, list[int]] = {
    "gpt2": [],
    "cl100k": [NUMBER],
    "llama3": [NUMBER],
    "qwen2": [],
    "whitespace": [],
}

_FINDERS: Mapping[str, Callable[[Classes, NDArray[Any]], Flags]] = {
    "gpt2": _gpt2,
    "cl100k": partial(_cl100k, table=_CL100K_TABLE),
    "llama3": partial(_cl100k, table=_CL100K_TABLE),
    "qwen2": partial(_cl100k, table=_QWEN2_TABLE),
    "o200k": _o200k,
    "whitespace": _whitespace,
}
