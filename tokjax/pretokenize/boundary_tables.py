"""What two neighbouring classes of characters tell of where words start: a table for each split pattern."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.pretokenize.unicode_classes import (
    APOSTROPHE,
    ASCII_SPACE,
    END,
    LETTER,
    LOWER,
    MARK,
    NEWLINE,
    NUMBER,
    OTHER,
    SLASH,
    SPACE,
    UPPER,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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
