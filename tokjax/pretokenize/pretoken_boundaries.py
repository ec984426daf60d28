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

from tokjax.core.ragged import concatenate_ranges
from tokjax.core.utf8 import decode_characters_at
from tokjax.pretokenize.patterns import make_pattern_splitter
from tokjax.pretokenize.unicode_classes import (
    APOSTROPHE,
    ASCII_SPACE,
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
    load_code_point_classes,
    map_to_representatives,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Classes = NDArray[np.uint8]
    from collections.abc import Collection

    from numpy.typing import NDArray


_WORD, _NUMBER, ROLE_OTHER, _SPACE, ROLE_NEWLINE = 1, 2, 4, 8, 16  # the roles that a pattern gives to classes
_AT_END = 32

# What a table of neighbours tells of the second of them,
STARTS = 1  # that it starts a word,
PREVIOUS_STARTS = 2  # that the one before it does (the last white space goes with what follows),
AFTER_NEWLINE = 4  # that it is white space after a newline,
ROLE_CHANGES = 8  # that its role is not that of the one before,
AFTER_OTHER = 16  # that it is a letter after something that is neither letter, number nor white space,
NUMBER_EDGE = 32  # that a run of numbers starts or has ended,
SPOT = 64  # that something rare stands here,
APOSTROPHE_AFTER_WORD = 128  # that it is just that.


class Roles(NamedTuple):
    """By class: what a character joins as the *previous* one, and what it is as the *current* one."""

    previous: dict[int, int]
    current: dict[int, int]


def make_class_array(bits: Mapping[int, int]) -> NDArray[np.uint8]:
    """Bits as an array whose index is the class, 0 where none are given."""
    return np.array([bits.get(class_, 0) for class_ in range(_CLASSES)], np.uint8)


def _make_class_table(bits: Mapping[int, int]) -> bytes:
    return bytes(bits.get(class_, 0) for class_ in range(256))


def _make_roles(words: tuple[int, ...], others: tuple[int, ...], *, keep_newlines: bool) -> Roles:
    """Those of the patterns whose white space before a newline, or before a word, goes with it."""
    spaces = _SPACE | (ROLE_NEWLINE | _WORD if keep_newlines else 0)
    newline = ROLE_NEWLINE if keep_newlines else _SPACE
    other = ROLE_OTHER | (ROLE_NEWLINE if keep_newlines else 0)
    ascii_space = spaces | ROLE_OTHER | (0 if keep_newlines else _WORD | _NUMBER)
    previous = dict.fromkeys(words, _WORD) | dict.fromkeys(others, other)
    previous |= {NUMBER: _NUMBER, SPACE: spaces, ASCII_SPACE: ascii_space, NEWLINE: newline | _SPACE, END: 0}
    current = dict.fromkeys(words, _WORD) | dict.fromkeys(others, ROLE_OTHER)
    current |= {NUMBER: _NUMBER, SPACE: _SPACE, ASCII_SPACE: _SPACE, NEWLINE: newline, END: _AT_END}
    return Roles(previous, current)


def _make_neighbour_table(
    roles: Roles,
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
            STARTS: not roles.previous[before] & now or (before, here) in starts,
            PREVIOUS_STARTS: was == _SPACE and not now & (_SPACE | ROLE_NEWLINE | _AT_END),
            AFTER_NEWLINE: was == ROLE_NEWLINE and now == _SPACE,
            ROLE_CHANGES: was != now,
            AFTER_OTHER: was == ROLE_OTHER and now == _WORD,
            NUMBER_EDGE: (was == _NUMBER) != (now == _NUMBER),
            SPOT: (before, here) in spots,
            APOSTROPHE_AFTER_WORD: was == _WORD and here == APOSTROPHE,
        }
        bits[before << 4 | here] = sum(bit for bit, holds in tests.items() if holds)
    return bytes(bits)


_CLASSES = 12
_LETTERS, _OTHERS = (UPPER, LOWER, LETTER), (OTHER, APOSTROPHE, SLASH)

# Where a text may be cut: what is before the cut, and what is after it, have a bit in common.
BEFORE_SPLIT = _make_class_table(
    dict.fromkeys(range(_CLASSES), 2)
    | dict.fromkeys((UPPER, LOWER, LETTER, NUMBER), 1 | 2)
    | {END: 1 | 2 | 4}
)
AFTER_SPLIT = _make_class_table(
    dict.fromkeys(range(_CLASSES), 4) | dict.fromkeys((SPACE, ASCII_SPACE, NEWLINE), 1) | {END: 2}
)

_GPT2_ROLES = _make_roles(_LETTERS, (*_OTHERS, MARK), keep_newlines=False)
CL100K_ROLES = _make_roles(_LETTERS, (*_OTHERS, MARK), keep_newlines=True)
O200K_ROLES = _make_roles((*_LETTERS, MARK), _OTHERS, keep_newlines=True)
GPT2_TABLE = _make_neighbour_table(_GPT2_ROLES)
CL100K_TABLE = _make_neighbour_table(CL100K_ROLES)
QWEN2_TABLE = _make_neighbour_table(CL100K_ROLES, starts=[(NUMBER, NUMBER)])
# Marks that are no part of a word; slashes after newlines.
_RARE_IN_O200K = [*((other, MARK) for other in _OTHERS), (NEWLINE, SLASH)]
O200K_TABLE = _make_neighbour_table(O200K_ROLES, starts=[(LOWER, UPPER)], spots=_RARE_IN_O200K)
TEKKEN_TABLE = _make_neighbour_table(
    O200K_ROLES, starts=[(LOWER, UPPER), (NUMBER, NUMBER)], spots=_RARE_IN_O200K
)

# White space goes with whatever follows, all of it, as newlines do that go with newlines.
_SPACES = dict.fromkeys((SPACE, ASCII_SPACE, NEWLINE), ROLE_NEWLINE)
_NO_SPACES = dict.fromkeys(range(_CLASSES), _WORD)
_WHITESPACE = Roles(
    {**_NO_SPACES, **dict.fromkeys(_SPACES, ROLE_NEWLINE | _WORD), END: 0},
    {**_NO_SPACES, **_SPACES, END: _AT_END},
)
WHITESPACE_TABLE = _make_neighbour_table(_WHITESPACE)


_VERTICAL_TAB, _FORM_FEED = 0x0B, 0x0C
_MAX_CHARACTER_BYTES = 4
_FIRST_LEAD = 0xC0
_DIGITS = 3


def find_pretoken_starts(pattern: str, classes: Classes, codes: NDArray[Any]) -> Flags:
    """Where each word of one or more texts starts.

    Args:
        pattern: a name of `PATTERNS`.
        classes: the class of each character, with `END` after each text; `uint8`, shape `(n,)`.
        codes: the code point of each character, 0 at each `END`; unsigned integers, shape `(n,)`.

    Returns:
        `bool`, shape `(n,)`; also true at each `END`.
    """
    return _FINDERS[pattern](classes, codes)


def find_pretoken_starts_in_bytes(pattern: str, text: bytes, ends: NDArray[np.int64]) -> Flags | None:
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
    if len(leads) and pattern not in _COUNTED_CLASSES:
        return None
    classes = np.frombuffer(bytearray(text).translate(_get_byte_classes()), np.uint8)
    widths, characters = decode_characters_at(text, leads)
    lead_classes = load_code_point_classes().take(characters)
    for i in range(_MAX_CHARACTER_BYTES):
        longer = np.flatnonzero(widths > i)
        classes[leads.take(longer) + i] = lead_classes.take(longer)
    classes[ends] = END
    if len(leads) and np.isin(lead_classes, _COUNTED_CLASSES[pattern]).any():
        return None
    starts = _FINDERS[pattern](classes, codes)
    spaces = np.flatnonzero(lead_classes == SPACE)
    space_leads = leads.take(spaces)
    starts[space_leads] |= starts[space_leads + widths.take(spaces) - 1]
    for i in range(1, _MAX_CHARACTER_BYTES):
        starts[leads.take(np.flatnonzero(widths > i)) + i] = False
    return starts


def _find_gpt2_starts(classes: Classes, codes: NDArray[Any]) -> Flags:
    starts, _ = _look_up_neighbours(GPT2_TABLE, classes)
    _split_contractions(starts, classes, codes, any_case=False)
    return starts


def _find_cl100k_starts(classes: Classes, codes: NDArray[Any], *, table: bytes) -> Flags:
    starts, bits = _look_up_neighbours(table, classes)
    _split_after_newlines(starts, bits, classes, CL100K_ROLES)
    _join_single_prefixes(starts, bits, classes, codes, CL100K_ROLES)
    _split_contractions(starts, classes, codes, any_case=True)
    _split_numbers(starts, bits, classes)
    return starts


def _find_o200k_starts(classes: Classes, codes: NDArray[Any]) -> Flags:
    starts, bits = _look_up_neighbours(O200K_TABLE, classes)
    _split_after_newlines(starts, bits, classes, O200K_ROLES)
    _join_single_prefixes(starts, bits, classes, codes, O200K_ROLES)
    at = _find_flagged(bits, APOSTROPHE_AFTER_WORD)
    contracted = _find_contractions(codes, at, any_case=True)
    for length, found in contracted:
        starts[found] = starts[found + 1] = False
        starts[found + 1 + length] = True
    _split_mixed_case(starts, classes, contracted)
    _split_numbers(starts, bits, classes)
    ends = np.concatenate([found + 1 + length for length, found in contracted])
    spots = np.concatenate([np.intersect1d(ends, at), _find_flagged(bits, SPOT)])
    if len(spots):
        _split_by_expression("o200k", starts, classes, codes, spots)
    return starts


def _find_tekken_starts(classes: Classes, codes: NDArray[Any]) -> Flags:
    """The same without contractions, each number a word."""
    starts, bits = _look_up_neighbours(TEKKEN_TABLE, classes)
    _split_after_newlines(starts, bits, classes, O200K_ROLES)
    _join_single_prefixes(starts, bits, classes, codes, O200K_ROLES)
    _split_mixed_case(starts, classes, [])
    spots = _find_flagged(bits, SPOT)
    if len(spots):
        _split_by_expression("tekken", starts, classes, codes, spots)
    return starts


def _split_mixed_case(
    starts: Flags, classes: Classes, contracted: list[tuple[int, NDArray[np.int64]]]
) -> None:
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
    following = classes[not_upper[np.searchsorted(not_upper, at)]]
    is_last = (following != LOWER) & (following != LETTER) & (following != MARK)
    starts[at[after_lower | is_last]] = True


def _find_whitespace_starts(classes: Classes, codes: NDArray[Any]) -> Flags:
    classes[(codes == _VERTICAL_TAB) | (codes == _FORM_FEED)] = OTHER
    if codes.dtype == np.uint8:
        lead, rest = NEXT_LINE_BYTES
        at = np.flatnonzero((codes[:-1] == lead) & (codes[1:] == rest))
        classes[at] = classes[at + 1] = OTHER
    else:
        classes[codes == NEXT_LINE] = OTHER
    starts, _ = _look_up_neighbours(WHITESPACE_TABLE, classes)
    return starts


def _look_up_neighbours(table: bytes, classes: Classes) -> tuple[Flags, Classes]:
    """What neighbours alone say of where words start; and all that the table says of each two."""
    pairs = classes[:-1] << np.uint8(4)
    pairs |= classes[1:]
    bits = np.frombuffer(pairs.tobytes().translate(table), np.uint8)
    starts = np.empty(len(classes), np.uint8)
    starts[0] = STARTS
    np.bitwise_and(bits, STARTS, out=starts[1:])
    starts[:-1] |= (bits & PREVIOUS_STARTS) >> 1
    return starts.view(np.bool_), bits


def _find_flagged(bits: Classes, bit: int) -> NDArray[np.int64]:
    """The characters of which a bit is set."""
    return np.flatnonzero((bits & bit).view(np.bool_)) + 1


def _split_after_newlines(starts: Flags, bits: Classes, classes: Classes, roles: Roles) -> None:
    """Start a word at white space after the last newline of a run, or after newlines of the word before."""
    after = _find_flagged(bits, AFTER_NEWLINE)
    if not len(after):
        return
    role = make_class_array(roles.current)
    changes = _find_flagged(bits, ROLE_CHANGES)
    which = np.searchsorted(changes, after)
    last_newline = role[classes[changes[which + 1]]] != ROLE_NEWLINE
    newlines_start = np.where(which > 0, changes[which - 1], 0)
    swallowed = (newlines_start > 0) & (role[classes[newlines_start - 1]] == ROLE_OTHER)
    starts[after[last_newline | swallowed]] = True


def _join_single_prefixes(
    starts: Flags, bits: Classes, classes: Classes, codes: NDArray[Any], roles: Roles
) -> None:
    """A single character of no class goes with the letters after it, unless a blank stands before it."""
    at = _find_flagged(bits, AFTER_OTHER)
    prefix = at - 1
    if codes.dtype == np.uint8:
        for _ in range(_MAX_CHARACTER_BYTES - 1):
            prefix = prefix - ((codes[prefix] & 0xC0) == 0x80)  # to the first byte of the character
    before = classes[np.maximum(prefix - 1, 0)]
    alone = (prefix == 0) | (
        (make_class_array(roles.current)[before] != ROLE_OTHER) & (before != ASCII_SPACE)
    )
    starts[at[alone]] = False


def _split_numbers(starts: Flags, bits: Classes, classes: Classes) -> None:
    """Cut runs of numbers into groups of three."""
    edges = _find_flagged(bits, NUMBER_EDGE)
    if classes[0] == NUMBER:
        edges = np.concatenate([[0], edges])
    first, stop = edges[::2], edges[1::2]
    long = np.flatnonzero(stop - first > _DIGITS)
    first, groups = first[long], (stop[long] - first[long] - 1) // _DIGITS
    starts[np.repeat(first, groups) + _DIGITS * concatenate_ranges(1, groups)] = True


def _split_contractions(starts: Flags, classes: Classes, codes: NDArray[Any], *, any_case: bool) -> None:
    """An apostrophe that starts a word and begins a contraction makes a word of just that."""
    at = np.flatnonzero((classes == APOSTROPHE) & starts)
    for length, found in _find_contractions(codes, at, any_case=any_case):
        starts[found + 1] = False
        starts[found + 1 + length] = True


def _find_contractions(
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


def _split_by_expression(
    pattern: str, starts: Flags, classes: Classes, codes: NDArray[Any], spots: NDArray[np.int64]
) -> None:
    """Split by the regular expression, from the last safe cut before each spot to the first after it.

    A cut between a letter or number and white space is safe, and so are the ends of texts.
    """
    split_points = (
        np.flatnonzero(_map_classes(classes, BEFORE_SPLIT)[:-1] & _map_classes(classes, AFTER_SPLIT)[1:]) + 1
    )
    split_points = np.concatenate([[0], split_points, [len(classes)]])
    regions = np.unique(np.searchsorted(split_points, spots, "right"))
    first, stop = split_points[regions - 1], split_points[regions]
    # Between two safe cuts regions can stand side by side as in the text; others are texts of their own.
    apart = (first == 0) | (stop == len(classes)) | (classes[first - 1] == END)
    apart |= classes[np.minimum(stop, len(classes) - 1)] == END
    splitter = make_pattern_splitter(pattern)
    for group, is_apart in ((~apart, False), (apart, True)):
        sizes = stop[group] - first[group]
        positions = concatenate_ranges(first[group], sizes)
        alike = map_to_representatives(codes[positions])
        stops = np.cumsum(sizes).tolist() if is_apart else [len(alike)]
        parts = [alike[begin:end] for begin, end in zip([0, *stops], stops, strict=False)]
        lengths = np.fromiter(itertools.chain.from_iterable(map(splitter.compute_lengths, parts)), np.int64)
        starts[positions] = False
        starts[positions[np.cumsum(lengths) - lengths]] = True


def _map_classes(classes: Classes, table: bytes) -> Classes:
    return np.frombuffer(bytearray(classes.tobytes()).translate(table), np.uint8)


@lru_cache(maxsize=1)
def _get_byte_classes() -> bytes:
    return load_code_point_classes()[:256].tobytes()


# Classes whose characters a pattern counts. (One that is not here may split again by the expression.)
_COUNTED_CLASSES: Mapping[str, list[int]] = {
    "gpt2": [],
    "cl100k": [NUMBER],
    "llama3": [NUMBER],
    "qwen2": [],
    "whitespace": [],
}

_FINDERS: Mapping[str, Callable[[Classes, NDArray[Any]], Flags]] = {
    "gpt2": _find_gpt2_starts,
    "cl100k": partial(_find_cl100k_starts, table=CL100K_TABLE),
    "llama3": partial(_find_cl100k_starts, table=CL100K_TABLE),
    "qwen2": partial(_find_cl100k_starts, table=QWEN2_TABLE),
    "o200k": _find_o200k_starts,
    "tekken": _find_tekken_starts,
    "whitespace": _find_whitespace_starts,
}
