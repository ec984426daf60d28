r"""The start positions of the pre-tokens of many texts, computed with array operations.

Each character gets its class in the split pattern. Then, from frequent to rare:

1. A table of pairs decides for most characters, by the class of the character and of the one before it. Where
   that is not enough, the entry of the next pair can decide.
2. Tables of windows decide by up to three characters before, and by the next one or the one after a run.
3. Runs of digits are split into groups of three, if the pattern does that.
4. What remains is decided by the automaton of the pattern. It reads the text from the last decided start to
   the next one.

For `cl100k`::

    text         d  o  n  '  t  _  _  p  a  y  _  $  1  2  3  4      _ is a space
    classes      l  l  l  '  t  _  _  l  l  l  _  o  n  n  n  n      letter, apostrophe, space, other, number
    pairs        ^  .  .  ^  w  ^  r  ^  .  .  ^  .  ^  g  g  g      r next pair, w window, g groups decide
    correct      ^  .  .  ^  .  ^  ^  .  .  .  ^  .  ^  .  .  ^      don|'t|_|_pay|_$|123|4

A pattern can have several steps: each one splits the pre-tokens of the step before it, as if they were texts.

See `boundary_tables`, and docs/performance.md, section "Boundary tables".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.core.ragged import concatenate_ranges, find_distinct
from tokjax.core.utf8 import decode_characters_at
from tokjax.pretokenize.boundary_tables import (
    MARKED,
    NEEDS_RIGHT,
    RIGHT_MARKED,
    RIGHT_STARTS,
    STARTS,
    STARTS_FLAG,
    UNDECIDED,
    BoundaryTables,
)
from tokjax.pretokenize.split_automaton import DEAD, START
from tokjax.pretokenize.unicode_classes import Category, load_categories

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Classes = NDArray[np.uint8]
    Positions = NDArray[np.int64]
    Characters: TypeAlias = bytes | NDArray[np.uint32]

_FIRST_LEAD = 0xC0
"""First byte value that begins a character of several bytes."""
_ASCII = 0x80
_CONTINUATION_BYTES = bytes(range(_ASCII, _FIRST_LEAD))
_LOOK_AHEAD = 16, 64
"""Numbers of characters within which most runs of one or two classes end."""
_FAR = 64
"""Number of characters that the automaton reads without a match before its states are recorded."""


def find_pretoken_starts(
    steps: Sequence[BoundaryTables | DigitGroups], characters: Characters, ends: Positions
) -> Flags:
    """Finds where each pre-token of one or several texts starts.

    Args:
        steps: the tables of each step of the split pattern.
        characters: the texts, with one ASCII character of any kind after each: code points, shape `(n,)`, or
            valid UTF-8, which is faster for texts that are mostly ASCII.
        ends: the positions of these characters, counted in characters, `int64`, shape `(num_texts,)`.

    Returns:
        `bool`, one entry per character: true where a pre-token starts, and at each end.
    """
    starts = None
    for tables, classes in zip(steps, iter_classes(steps, characters, ends), strict=True):
        starts = _find_starts_within(tables, classes, starts)
    assert starts is not None
    return starts


def iter_classes(steps: Sequence[Any], characters: Characters, ends: Positions) -> Iterator[Classes]:
    """Yields the class of each character in each of the steps, which have `class_of_code` and `end`."""
    if isinstance(characters, bytes):
        leads = np.flatnonzero(np.frombuffer(characters, np.uint8) >= _FIRST_LEAD)
        widths, codes = decode_characters_at(characters, leads)
        leads -= np.cumsum(widths - 1) - (widths - 1)  # positions, counted in characters
    for tables in steps:
        if isinstance(characters, bytes):
            deleted = _CONTINUATION_BYTES if len(leads) else b""
            class_of_byte = tables.class_of_code[:_ASCII].tobytes() + bytes(_ASCII)
            classes = np.frombuffer(bytearray(characters).translate(class_of_byte, deleted), np.uint8)
            classes[leads] = tables.class_of_code.take(codes)
        else:
            classes = tables.class_of_code.take(characters, mode="clip")
        classes[ends] = tables.end
        yield classes


def _find_starts_within(
    tables: BoundaryTables | DigitGroups, classes: Classes, starts: Flags | None
) -> Flags:
    """Finds the starts of one step within the pre-tokens of the step before it; `None` for the first step."""
    if starts is None:
        return find_starts(tables, classes)
    is_end = classes == tables.end
    cuts = np.flatnonzero(starts[1:] & ~is_end[1:] & ~is_end[:-1]) + 1
    # Each pre-token becomes a separate text: an end is inserted before it.
    flags = find_starts(tables, np.insert(classes, cuts, tables.end))
    return np.delete(flags, cuts + np.arange(len(cuts)))


def find_starts(tables: BoundaryTables | DigitGroups, classes: Classes) -> Flags:
    """Finds the starts of one step, given the class of each character, that of the end after each text."""
    if not isinstance(tables, BoundaryTables):
        return tables.find_starts(classes)
    # `bytes.translate` is faster than indexing the table with an array. NumPy multiplies 8-bit numbers about
    # ten times faster than it shifts them; the upper bits of the first class are lost, as they should.
    pairs = classes[:-1] * np.uint8(16)
    pairs |= classes[1:] & np.uint8(15)
    flags = np.frombuffer(bytearray(pairs).translate(tables.pairs), np.uint8)
    # The factor sets the flags that say what a needed pair decides.
    needed = flags[:-1] & np.uint8(NEEDS_RIGHT)
    needed *= np.uint8((RIGHT_STARTS | RIGHT_MARKED) // NEEDS_RIGHT)
    combined = flags & np.uint8(STARTS_FLAG | MARKED)
    combined[:-1] |= needed & flags[1:]
    starts = np.empty(len(classes), bool)
    starts[0] = True
    np.not_equal(combined & np.uint8(STARTS_FLAG | RIGHT_STARTS), 0, out=starts[1:])
    marked = np.flatnonzero(combined & np.uint8(MARKED | RIGHT_MARKED) != 0) + 1
    marked = np.concatenate([marked, _find_near_triggers(tables, classes, marked)])
    undecided = _decide_by_windows(tables, classes, marked, starts)
    undecided = np.concatenate([undecided, *_split_groups(tables, classes, starts)])
    _run_automaton(tables, classes, undecided, starts)
    return starts


def _find_near_triggers(tables: BoundaryTables, classes: Classes, marked: Positions) -> Positions:
    """Returns the positions after triggers at which the table of pairs may not hold."""
    near = marked.take(np.flatnonzero(tables.is_trigger.take(classes.take(marked))))
    if tables.is_trigger[classes[0]]:
        near = np.append(near, 0)
    # The pair of a trigger and the next character holds.
    return np.minimum(np.add.outer(np.arange(2, tables.reach + 2), near).ravel(), len(classes) - 1)


def _split_groups(tables: BoundaryTables, classes: Classes, starts: Flags) -> Iterator[Positions]:
    """Splits runs of some classes into groups of a fixed number of characters, from the left.

    Yields:
        A position in each run that does not start a pre-token. These runs are not split here.
    """
    for class_, size in tables.groups.items():
        is_member = classes == class_
        edges = np.flatnonzero(is_member[1:] != is_member[:-1]) + 1
        if is_member[0]:
            edges = np.concatenate([[0], edges])
        # Edges alternate: the start of a run, its stop, the start of the next one.
        first, lengths = edges[::2], edges[1::2] - edges[::2]
        is_start = starts.take(first)
        yield first[~is_start & (lengths > 1)] + 1
        num_splits = is_start * ((lengths - 1) // size)
        starts[np.repeat(first, num_splits) + size * concatenate_ranges(1, num_splits)] = True


def _decide_by_windows(
    tables: BoundaryTables, classes: Classes, positions: Positions, starts: Flags
) -> Positions:
    """Sets `starts` at some positions, from the characters around them. Returns those not decided yet."""
    ends = np.full(_LOOK_AHEAD[-1], tables.end, np.uint8)
    padded = np.concatenate([ends[:3], classes, ends])
    # Four classes from each one on, as one number. The third one before a position is at its index.
    fours = np.ndarray((len(padded) - 3,), "<u4", padded, strides=(1,))
    decisions = tables.look_up(tables.windows, fours[positions + 1])
    undecided = np.flatnonzero(decisions == UNDECIDED)
    for count in _LOOK_AHEAD:
        at = positions.take(undecided)
        ahead = np.ndarray(classes.shape, f"V{count}", padded[3:], strides=(1,))[at]
        ahead = ahead.view(np.uint8).reshape(-1, count)
        is_other = (ahead != ahead[:, :1]) & (ahead != ahead[:, 1:2])
        other = np.arange(len(at)), is_other.argmax(axis=1)
        with_other = fours[at + 2] & np.uint32(0xFFFFFF) | ahead[other].astype(np.uint32) << np.uint32(24)
        by_run = tables.look_up(tables.run_windows, with_other)
        by_run[~is_other[other]] = UNDECIDED
        decisions[undecided] = by_run
        undecided = undecided.take(np.flatnonzero(by_run == UNDECIDED))
    decisions[undecided] = tables.look_up(tables.left_windows, fours[positions.take(undecided)])
    starts[positions] = decisions == STARTS
    return positions.take(np.flatnonzero(decisions == UNDECIDED))


def _run_automaton(tables: BoundaryTables, classes: Classes, positions: Positions, starts: Flags) -> None:
    """Sets `starts` between the decided starts before and after some positions.

    The classes from one decided start up to the next one determine the starts between them. So the automaton
    runs once for equal ones, such as the line break and the indentation of each line of a text.
    """
    if not len(positions):
        return
    decided, class_at = starts.tobytes(), classes.tobytes()
    starts_by_classes: dict[bytes, list[int]] = {}
    found: list[int] = []
    stop = 0
    for position in find_distinct(positions).tolist():
        if position >= stop:
            first, stop = decided.rfind(b"\x01", 0, position), decided.find(b"\x01", position + 1)
            between = class_at[first : stop + 1]
            if between not in starts_by_classes:
                starts_by_classes[between] = _find_starts_by_automaton(tables, between)
            found += [first + start for start in starts_by_classes[between]]
    starts[found] = True


def _find_starts_by_automaton(tables: BoundaryTables, classes: bytes) -> list[int]:
    """Finds the starts of pre-tokens from a decided start, the first class, up to the one of the last class.

    `last` is where the last match ended, and the pre-token ends there when no longer match can follow. Takes
    linear time: where the automaton has read far without a match, its positions and states are recorded, and
    it stops when it comes to one of them again.
    """
    next_state, has_match = tables.automaton_lists
    without_match: set[tuple[int, int]] = set()
    starts: list[int] = []
    first, was_unmatched = 0, False
    while first < len(classes) - 1:
        state, last, position = START, first, first
        read: list[int] = []  # states since the last match
        while state != DEAD and position < len(classes):
            class_ = classes[position]
            if has_match[state][class_]:
                last, read = position, []
            state = next_state[state][class_]
            position += 1
            if without_match and (position, state) in without_match:
                break
            read.append(state)
        if len(read) > _FAR:
            without_match.update(zip(range(last + 1, position + 1), read, strict=False))
        is_unmatched = last == first
        if not (is_unmatched and was_unmatched):
            starts.append(first)
        was_unmatched, first = is_unmatched, last + is_unmatched
    return starts


class DigitGroups:
    r"""Stand-in for the boundary tables of a pattern that splits numbers into groups of three from the right.

    SuperBPE's tokenizers split with `(?=(\d{3})+(?!\d))`. It matches no text, but positions: those with three
    digits after them, or six, or nine ..., up to the end of the number. Such a condition on arbitrarily long
    text has no automaton that reads a text from left to right. The number of digits after each position
    decides:

        text      a  b  1  2  3  4  c  1  2
        digits    0  0  4  3  2  1  0  2  1      from each position on
        starts    ^        ^                     if a multiple of 3: "ab1", "234c12"

    Attributes:
        end: the class of the end of a text. Digits have the class 1, other characters 0.
        splits_before_spaces: whether a space after a letter or number starts a pre-token: it does not.
        covers_any_text: whether the matches of the pattern cover every text: they have no text.
    """

    end = 2
    splits_before_spaces = covers_any_text = False

    @cached_property
    def class_of_code(self) -> Classes:
        """The class of each code point, `uint8`, shape `(0x110000,)`."""
        classes: Classes = (load_categories() == Category.DIGIT).astype(np.uint8)
        return classes

    def find_starts(self, classes: Classes) -> Flags:
        """Finds where groups of digits and texts start, and where texts end, `bool`, shape `(n,)`."""
        is_digit = classes == 1
        run_ends = np.flatnonzero(is_digit[:-1] & ~is_digit[1:])  # an end is the last character
        digits = np.flatnonzero(is_digit)
        remaining = run_ends[np.searchsorted(run_ends, digits)] - digits + 1
        is_end: Flags = classes == self.end
        starts: Flags = is_end | np.append(True, is_end[:-1])
        starts[digits[remaining % 3 == 0]] = True
        return starts
