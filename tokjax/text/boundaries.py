"""Where words start, for the published split patterns, as array code over the classes of characters.

A pattern's alternatives become tests of neighbouring classes. Each class has one set of bits as the
*previous* character and one as the *current* one; a word starts where the two have no bit in common. So one
`&` of two arrays says for all places whether a character goes on with the word before it. What depends on
more than two neighbours is rare, and is put right afterwards at the few places where it occurs; what is rarer
still is split again by the regular expression itself, between two safe cuts around the place.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.text.patterns import word_splitter
from tokjax.text.unicode_classes import (
    APOSTROPHE,
    BLANK,
    END,
    LETTER,
    LONG_S,
    LOWER,
    MARK,
    NEWLINE,
    NUMBER,
    OTHER,
    SLASH,
    SPACE,
    UPPER,
    representatives,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Classes = NDArray[np.uint8]

_WORD, _NUMBER, _OTHER, _SPACE, _NEWLINE = 1, 2, 4, 8, 16
_AT_END = 32


class _Roles(NamedTuple):
    """Tables for `bytes.translate`, from class to bits."""

    previous: bytes
    current: bytes


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


def _gpt2(classes: Classes, codes: NDArray[Any]) -> Flags:
    current = _mapped(classes, _GPT2.current)
    joined = _mapped(classes, _GPT2.previous)[:-1] & current[1:]
    # The last white space before something else goes with that, or stands alone.
    joined[:-1] &= current[2:] | ~np.uint8(_SPACE)
    starts = _from_joined(joined, classes)
    _cut_contractions(starts, classes, codes, any_case=False)
    return starts


def _cl100k(classes: Classes, codes: NDArray[Any], *, digits: int) -> Flags:
    starts, role = _tail_alike(_CL100K, classes)
    _join_single_prefixes(starts, role, classes)
    _cut_contractions(starts, classes, codes, any_case=True)
    _cut_numbers(starts, role, digits)
    return starts


def _o200k(classes: Classes, codes: NDArray[Any]) -> Flags:
    starts, role = _tail_alike(_O200K, classes)
    _join_single_prefixes(starts, role, classes)
    before, here = classes[:-1], classes[1:]
    starts[1:] |= (before == LOWER) & (here == UPPER)
    at = np.flatnonzero(classes == APOSTROPHE)
    at = at[(at > 0) & (role[at - 1] == _WORD)]
    ends = []
    for length, found in _contractions(codes, at, any_case=True):
        starts[found] = starts[found + 1] = False
        starts[found + 1 + length] = True
        ends.append(found + 1 + length)
    _cut_numbers(starts, role, 3)
    chained = np.intersect1d(np.concatenate(ends), at)
    mixed_case = ((before == LETTER) | (before == MARK)) & (here == UPPER)
    marked = (role[:-1] == _OTHER) & (here == MARK)
    slashed = (before == NEWLINE) & (here == SLASH)
    spots = np.concatenate([chained, np.flatnonzero(mixed_case | marked | slashed) + 1])
    if len(spots):
        _split_again("o200k", starts, classes, codes, spots)
    return starts


def _tail_alike(roles: _Roles, classes: Classes) -> tuple[Flags, Classes]:
    """What cl100k and o200k have in common: words, others with newlines after them, white space."""
    role = _mapped(classes, roles.current)
    joined = _mapped(classes, roles.previous)[:-1] & role[1:]
    goes_on = (role[2:] & (_SPACE | _NEWLINE | _AT_END)) != 0
    joined[:-1] &= np.where(goes_on, np.uint8(0xFF), ~np.uint8(_SPACE))
    starts = _from_joined(joined, classes)
    _cut_after_newlines(starts, role)
    return starts, role


def _cut_after_newlines(starts: Flags, role: Classes) -> None:
    """Start a word at white space after the last newline of a run, or after newlines of the word before."""
    after = np.flatnonzero((role[:-1] == _NEWLINE) & (role[1:] == _SPACE)) + 1
    if not len(after):
        return
    changes = np.flatnonzero(role[1:] != role[:-1]) + 1
    which = np.searchsorted(changes, after)
    last_newline = role[changes[which + 1]] != _NEWLINE
    newlines_start = np.where(which > 0, changes[which - 1], 0)
    swallowed = (newlines_start > 0) & (role[newlines_start - 1] == _OTHER)
    starts[after[last_newline | swallowed]] = True


def _join_single_prefixes(starts: Flags, role: Classes, classes: Classes) -> None:
    """A single character of no class goes with the letters after it, unless a blank stands before it."""
    at = np.flatnonzero((role[:-1] == _OTHER) & (role[1:] == _WORD)) + 1
    before = np.maximum(at - 2, 0)
    alone = (at == 1) | ((role[before] != _OTHER) & (classes[before] != BLANK))
    starts[at[alone]] = False


def _cut_numbers(starts: Flags, role: Classes, digits: int) -> None:
    is_number = role == _NUMBER
    if digits == 1:
        starts |= is_number
        return
    edges = np.flatnonzero(is_number[1:] != is_number[:-1]) + 1
    if is_number[0]:
        edges = np.concatenate([[0], edges])
    first, stop = edges[::2], edges[1::2]
    long = np.flatnonzero(stop - first > digits)
    for run_start, run_stop in zip(first[long].tolist(), stop[long].tolist(), strict=True):
        starts[run_start:run_stop:digits] = True


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
    if any_case:
        first, second = first | 0x20, second | 0x20  # lower case, for ASCII letters
        first = np.where(codes[np.minimum(at + 1, last)] == LONG_S, ord("s"), first)
    one = (first == ord("s")) | (first == ord("t")) | (first == ord("m")) | (first == ord("d"))
    two = (first == ord("l")) & (second == ord("l"))
    two |= ((first == ord("r")) | (first == ord("v"))) & (second == ord("e"))
    return [(1, at[one]), (2, at[two])]


def _from_joined(joined: Classes, classes: Classes) -> Flags:
    starts = np.empty(len(classes), bool)
    starts[0] = True
    np.equal(joined, 0, out=starts[1:])
    ends = np.flatnonzero(classes == END)
    starts[ends] = True
    starts[ends[:-1] + 1] = True
    return starts


def _split_again(
    pattern: str, starts: Flags, classes: Classes, codes: NDArray[Any], spots: NDArray[np.int64]
) -> None:
    """Split by the regular expression, from the last safe cut before each spot to the first after it.

    A cut between a letter or number and white space is safe, and so are the ends of texts.
    """
    cuts = np.flatnonzero(_mapped(classes, _BEFORE_CUT)[:-1] & _mapped(classes, _AFTER_CUT)[1:]) + 1
    cuts = np.concatenate([[0], cuts, [len(classes)]])
    regions = np.unique(np.searchsorted(cuts, spots, "right"))
    splitter, alike = word_splitter(pattern), representatives(codes)
    for start, stop in zip(cuts[regions - 1].tolist(), cuts[regions].tolist(), strict=True):
        lengths = splitter.lengths_alike(alike[start:stop])
        starts[start:stop] = False
        starts[start + np.cumsum(lengths) - lengths] = True


def _mapped(classes: Classes, table: bytes) -> Classes:
    return np.frombuffer(bytearray(classes.tobytes()).translate(table), np.uint8)


def _table(bits: Mapping[int, int]) -> bytes:
    return bytes(bits.get(class_, 0) for class_ in range(256))


def _roles(words: tuple[int, ...], others: tuple[int, ...], *, keep_newlines: bool) -> _Roles:
    """The bits of the patterns whose white space before a newline, or before a word, goes with it."""
    spaces = _SPACE | (_NEWLINE | _WORD if keep_newlines else 0)
    newline = _NEWLINE if keep_newlines else _SPACE
    end = _AT_END if keep_newlines else _SPACE
    other = _OTHER | (_NEWLINE if keep_newlines else 0)
    blank = spaces | _OTHER | (0 if keep_newlines else _WORD | _NUMBER)
    previous = dict.fromkeys(words, _WORD) | dict.fromkeys(others, other)
    previous |= {NUMBER: _NUMBER, SPACE: spaces, BLANK: blank, NEWLINE: newline | _SPACE}
    current = dict.fromkeys(words, _WORD) | dict.fromkeys(others, _OTHER)
    current |= {NUMBER: _NUMBER, SPACE: _SPACE, BLANK: _SPACE, NEWLINE: newline, END: end}
    return _Roles(_table(previous), _table(current))


# Where a text may be cut: what is before the cut, and what is after it, have a bit in common.
_BEFORE_CUT = _table(
    dict.fromkeys(range(12), 2) | dict.fromkeys((UPPER, LOWER, LETTER, NUMBER), 1 | 2) | {END: 1 | 2 | 4}
)
_AFTER_CUT = _table(dict.fromkeys(range(12), 4) | dict.fromkeys((SPACE, BLANK, NEWLINE), 1) | {END: 2})
_LETTERS, _OTHERS = (UPPER, LOWER, LETTER), (OTHER, APOSTROPHE, SLASH)
_GPT2 = _roles(_LETTERS, (*_OTHERS, MARK), keep_newlines=False)
_CL100K = _roles(_LETTERS, (*_OTHERS, MARK), keep_newlines=True)
_O200K = _roles((*_LETTERS, MARK), _OTHERS, keep_newlines=True)

_FINDERS: Mapping[str, Callable[[Classes, NDArray[Any]], Flags]] = {
    "gpt2": _gpt2,
    "cl100k": partial(_cl100k, digits=3),
    "llama3": partial(_cl100k, digits=3),
    "qwen2": partial(_cl100k, digits=1),
    "o200k": _o200k,
}
