r"""The start positions of the pre-tokens of many texts, computed with array operations.

Each character gets its class in the split pattern. Then, from frequent to rare:

1. A table of pairs decides for most characters, by the class of the character and of the one before it. Where
   that is not enough, the entry of the next pair or of the pair before can decide.
2. Runs of digits are split into groups of three, if the pattern does that.
3. Tables of windows decide by up to three characters before, and by the next one or the one after a run.
4. What remains is decided by the automaton of the pattern. It reads the text from the last decided start on,
   at all these places in parallel.

For `cl100k`::

    text         d  o  n  '  t  _  _  p  a  y  _  $  1  2  3  4      _ is a space
    classes      l  l  l  '  t  _  _  l  l  l  _  o  n  n  n  n      letter, apostrophe, space, other, number
    pairs        ^  .  .  ^  w  ^  r  ^  .  .  ^  .  ^  g  g  g      r next pair, w window, g groups decide
    correct      ^  .  .  ^  .  ^  ^  .  .  .  ^  .  ^  .  .  ^      don|'t|_|_pay|_$|123|4

A pattern can have several steps: each one splits the pre-tokens of the step before it, as if they were texts.

See `boundary_tables`, and docs/performance.md, section "Boundary tables".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges
from tokjax.core.sorting import find_distinct
from tokjax.core.utf8 import decode_characters_at
from tokjax.pretokenize.boundary_tables import (
    LEFT_MARKED,
    LEFT_STARTS,
    MARKED,
    NEEDS_LEFT,
    NEEDS_RIGHT,
    RIGHT_MARKED,
    RIGHT_STARTS,
    STARTS,
    STARTS_FLAG,
    UNDECIDED,
)
from tokjax.pretokenize.digit_groups import DigitGroups, find_digit_groups
from tokjax.pretokenize.split_automaton import DEAD, START

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.pretokenize.boundary_tables import BoundaryTables

    Flags = NDArray[np.bool_]
    Classes = NDArray[np.uint8]
    Positions = NDArray[np.int64]

_FIRST_LEAD = 0xC0
"""First byte value that begins a character of several bytes."""
_MAX_CHARACTER_BYTES = 4
_WIDTHS = np.repeat(np.array([1, 2, 3, 4, 1]), [_FIRST_LEAD, 0x20, 0x10, 0x08, 0x08])
"""Number of bytes of a character, by its first byte."""
_WIDTH_LIST: list[int] = _WIDTHS.tolist()
_FEW = 50
"""Up to this many places, a loop over places is faster than array calls for all of them."""
_READS_PER_CHARACTER = 4
"""Number of times that the automaton usually reads a character, at most."""
_FAR = 64
"""Number of characters that the automaton reads without a match before its states are recorded."""
_LOOK_AHEAD = 32
"""Number of characters within which most runs of equal classes end."""


class _Characters(NamedTuple):
    """The characters of all texts, as code points or as UTF-8.

    In UTF-8, each byte of a character has the class of the character, and positions are those of first bytes.

    Attributes:
        classes: the class of each character, with that of the end after each text.
        text: the bytes of UTF-8; `None` for code points.
    """

    classes: Classes
    text: NDArray[np.uint8] | None

    def find_next(self, positions: Positions) -> Positions:
        """Returns the positions of the next characters. The last position is its own next one."""
        widths = 1 if self.text is None else _WIDTHS.take(self.text.take(positions))
        return np.minimum(positions + widths, len(self.classes) - 1)

    def find_previous(self, positions: Positions) -> Positions:
        """Returns the positions of the characters before, -1 at the first character."""
        previous = positions - 1
        if self.text is not None:
            for _ in range(_MAX_CHARACTER_BYTES - 1):  # back to the first byte
                previous = previous - (self.text.take(previous, mode="clip") & 0xC0 == 0x80)
        return previous

    def get_classes(self, positions: Positions, end: int) -> Classes:
        """Returns the classes at some positions, and that of the end before the first character."""
        return np.where(positions >= 0, self.classes.take(positions, mode="clip"), np.uint8(end))


def find_pretoken_starts(
    steps: Sequence[BoundaryTables | DigitGroups], codes: NDArray[np.uint32], ends: Positions
) -> Flags:
    """Finds where each pre-token of one or several texts starts.

    Args:
        steps: the tables of each step of the split pattern.
        codes: the code points of the texts, with one character of any kind after each text; shape `(n,)`.
        ends: the positions of these characters.

    Returns:
        `bool`, shape `(n,)`: true where a pre-token starts, and at each end.
    """
    starts = None
    for tables in steps:
        classes = tables.class_of_code.take(codes, mode="clip")
        classes[ends] = tables.end
        starts = _find_starts_within(tables, _Characters(classes, None), starts, np.zeros(0, np.int64))
    assert starts is not None
    return starts


def find_pretoken_starts_in_bytes(
    steps: Sequence[BoundaryTables | DigitGroups], text: bytes, ends: Positions
) -> Flags:
    """Finds where each pre-token starts in UTF-8 that is mostly ASCII, without decoding it.

    Args:
        steps: the tables of each step of the split pattern.
        text: valid UTF-8, with one ASCII character after each text.
        ends: the positions of these characters, `int64`, shape `(num_texts,)`.

    Returns:
        `bool`, one entry per byte, as from `find_pretoken_starts`.
    """
    codes = np.frombuffer(text, np.uint8)
    leads = np.flatnonzero(codes >= _FIRST_LEAD)
    widths, characters = decode_characters_at(text, leads)
    inner = np.concatenate(
        [leads.take(np.flatnonzero(widths > i)) + i for i in range(1, _MAX_CHARACTER_BYTES)]
    )
    starts = None
    for tables in steps:
        classes = np.frombuffer(bytearray(text).translate(tables.class_of_byte), np.uint8)
        if len(leads):
            lead_classes = tables.class_of_code.take(characters)
            for i in range(_MAX_CHARACTER_BYTES):
                longer = np.flatnonzero(widths > i)
                classes[leads.take(longer) + i] = lead_classes.take(longer)
        classes[ends] = tables.end
        starts = _find_starts_within(tables, _Characters(classes, codes), starts, inner)
    assert starts is not None
    return starts


def _find_starts_within(
    tables: BoundaryTables | DigitGroups, characters: _Characters, starts: Flags | None, inner: Positions
) -> Flags:
    """Finds the starts of one step within the pre-tokens of the step before it.

    Args:
        tables: the tables of the step.
        characters: the characters of all texts.
        starts: the result of the step before; `None` for the first one.
        inner: the positions of all bytes of UTF-8 that are not the first one of their character.
    """
    if starts is None:
        return _find_starts(tables, characters, inner)
    classes, text = characters
    is_end = classes == tables.end
    cuts = np.flatnonzero(starts[1:] & ~is_end[1:] & ~is_end[:-1]) + 1
    if not len(cuts):
        return _find_starts(tables, characters, inner)
    # Each pre-token becomes a separate text: an end is inserted before it.
    cut_text = None if text is None else np.insert(text, cuts, ord("\n"))
    inner = inner + np.searchsorted(cuts, inner, "right")
    flags = _find_starts(tables, _Characters(np.insert(classes, cuts, tables.end), cut_text), inner)
    return np.delete(flags, cuts + np.arange(len(cuts)))


def _find_starts(tables: BoundaryTables | DigitGroups, characters: _Characters, inner: Positions) -> Flags:
    if isinstance(tables, DigitGroups):
        return _find_group_starts(tables, characters, inner)
    classes = characters.classes
    # `bytes.translate` is faster than indexing the table with an array. NumPy multiplies 8-bit numbers about
    # ten times faster than it shifts them; the upper bits of the first class are lost, as they should.
    pairs = classes[:-1] * np.uint8(16)
    pairs |= classes[1:] & np.uint8(15)
    flags = np.frombuffer(bytearray(pairs).translate(tables.pairs), np.uint8)
    flags[inner - 1] = RIGHT_MARKED | LEFT_MARKED  # the bytes of one character
    combined = _combine_flags(flags)
    starts = np.empty(len(classes), bool)
    starts[0] = True
    np.not_equal(combined & np.uint8(STARTS_FLAG | RIGHT_STARTS | LEFT_STARTS), 0, out=starts[1:])
    uncounted = _split_groups(tables, classes, inner, starts)
    marked = np.flatnonzero(combined & np.uint8(MARKED | RIGHT_MARKED | LEFT_MARKED) != 0) + 1
    marked = np.concatenate([marked, *_find_near_triggers(tables, characters, marked)])
    needs_window = tables.needs_window.take(pairs.take(marked - 1))
    marked = marked.take(np.flatnonzero(needs_window))
    undecided = np.concatenate([uncounted, _decide_by_windows(tables, characters, marked, starts)])
    if len(undecided):
        _run_automaton(tables, characters, undecided, starts)
    return starts


def _find_group_starts(tables: DigitGroups, characters: _Characters, inner: Positions) -> Flags:
    classes = characters.classes
    is_end = classes == tables.end
    starts: Flags = is_end | np.append(True, is_end[:-1])
    first_bytes = np.delete(np.arange(len(classes)), inner)  # one position per character
    starts[first_bytes] |= find_digit_groups(classes.take(first_bytes))
    return starts


def _combine_flags(flags: Classes) -> Classes:
    """Combines the flags of each pair with those that it needs, of the next pair or of the pair before."""
    combined = flags & np.uint8(STARTS_FLAG | MARKED)
    # The factor sets the flags that say what a needed pair decides: 16 and 64 from 4, 32 and 128 from 8.
    needed = flags & np.uint8(NEEDS_RIGHT | NEEDS_LEFT)
    needed *= np.uint8((RIGHT_STARTS | RIGHT_MARKED) // NEEDS_RIGHT)
    combined[:-1] |= needed[:-1] & flags[1:] & np.uint8(RIGHT_STARTS | RIGHT_MARKED)
    combined[1:] |= needed[1:] & flags[:-1] & np.uint8(LEFT_STARTS | LEFT_MARKED)
    combined[:1] |= needed[:1] & np.uint8(LEFT_MARKED)  # there is no pair before
    return combined


def _find_near_triggers(
    tables: BoundaryTables, characters: _Characters, marked: Positions
) -> Iterator[Positions]:
    """Yields the positions after triggers at which the table of pairs may not hold."""
    near = marked.take(np.flatnonzero(tables.is_trigger.take(characters.classes.take(marked))))
    if tables.is_trigger[characters.classes[0]]:
        near = np.append(near, 0)
    if len(near):
        near = characters.find_next(near)  # the pair of a trigger and the next character holds
        for _ in range(tables.reach):
            near = characters.find_next(near)
            yield near


def _split_groups(tables: BoundaryTables, classes: Classes, inner: Positions, starts: Flags) -> Positions:
    """Splits runs of some classes into groups of a fixed number of characters, from the left.

    Returns:
        A position in each run with characters of several bytes. These runs are not split here.
    """
    uncounted = [np.zeros(0, np.int64)]
    for class_, size in tables.group_sizes.items():
        is_member = classes == class_
        edges = np.flatnonzero(is_member[1:] != is_member[:-1]) + 1
        if is_member[0]:
            edges = np.concatenate([[0], edges])
        # Edges alternate: the start of a run, its stop, the start of the next one.
        first, stop = edges[::2], edges[1::2]
        is_long = stop - first > size
        inner_members = inner.take(np.flatnonzero(is_member.take(inner)))
        if len(inner_members):
            runs = np.searchsorted(first, inner_members, "right") - 1
            is_long[runs] = False
            uncounted.append(first[runs] + 1)
        long = np.flatnonzero(is_long)
        first, num_splits = first[long], (stop[long] - first[long] - 1) // size
        starts[np.repeat(first, num_splits) + size * concatenate_ranges(1, num_splits)] = True
    return np.concatenate(uncounted)


def _decide_by_windows(
    tables: BoundaryTables, characters: _Characters, positions: Positions, starts: Flags
) -> Positions:
    """Sets `starts` at some positions, from the characters around them. Returns those not decided yet."""
    classes = characters.classes
    previous = characters.find_previous(positions)
    before = characters.find_previous(previous)
    left = characters.get_classes(before, tables.end), classes.take(previous), classes.take(positions)
    following = classes.take(characters.find_next(positions))
    decisions = tables.windows.take(tables.get_window_index(*left, following, is_after_run=False))
    in_run = np.flatnonzero((decisions == UNDECIDED) & (following == left[2]))
    if len(in_run):
        after_run = classes.take(_find_run_stops(classes, positions.take(in_run)))
        first, second, third = (part.take(in_run) for part in left)
        index = tables.get_window_index(first, second, third, after_run, is_after_run=True)
        decisions[in_run] = tables.windows.take(index)
    undecided = np.flatnonzero(decisions == UNDECIDED)
    if len(undecided):
        first = characters.get_classes(characters.find_previous(before.take(undecided)), tables.end)
        number = tables.automaton_class
        decisions[undecided] = tables.left_windows[number[first], *(number[part[undecided]] for part in left)]
    starts[positions] = decisions == STARTS
    return positions.take(np.flatnonzero(decisions == UNDECIDED))


def _find_run_stops(classes: Classes, positions: Positions) -> Positions:
    """Returns the first position after each position at which the class is another one."""
    class_, stops = classes.take(positions), positions + 1
    active = np.arange(len(positions))
    for _ in range(_LOOK_AHEAD):
        active = active.take(np.flatnonzero(classes.take(stops.take(active)) == class_.take(active)))
        if not len(active):
            return stops
        stops[active] += 1
    all_stops = np.append(np.flatnonzero(classes[1:] != classes[:-1]) + 1, len(classes) - 1)
    return all_stops.take(np.searchsorted(all_stops, positions, "right"), mode="clip")


def _run_automaton(
    tables: BoundaryTables, characters: _Characters, positions: Positions, starts: Flags
) -> None:
    """Sets `starts` between the decided starts before and after some positions.

    A pre-token begins at each decided start, so the automaton can begin there. It has read enough when it has
    found the next decided start. `last` is where the last match ended, and the pre-token ends there when no
    longer match can follow.
    """
    first, stop = _find_regions(starts, positions)
    automaton = tables.automaton
    num_classes = automaton.num_classes
    next_state, has_match = automaton.next_state.ravel(), automaton.has_match.ravel()
    position, state, last = first, np.full(len(first), START, np.int64), first
    was_unmatched = np.zeros(len(first), bool)
    # If characters are read again and again, `_run_automaton_at` needs fewer steps.
    for _ in range(_READS_PER_CHARACTER * int(np.max(stop - first, initial=0))):
        if len(first) <= _FEW:
            break
        entry = state * num_classes + tables.automaton_class.take(characters.classes.take(position))
        last = np.where(has_match.take(entry), position, last)
        state = next_state.take(entry).astype(np.int64)
        position = characters.find_next(position)
        done = np.flatnonzero(state == DEAD)
        if not len(done):
            continue
        unmatched = last.take(done) == first.take(done)
        ended = np.where(unmatched, characters.find_next(first.take(done)), last.take(done))
        starts[first.take(done)] |= ~(unmatched & was_unmatched.take(done))
        first[done] = last[done] = position[done] = ended
        was_unmatched[done] = unmatched
        state[done] = START
        active = np.flatnonzero(first < stop)
        if len(active) < len(first):
            first, stop, position = first[active], stop[active], position[active]
            state, last, was_unmatched = state[active], last[active], was_unmatched[active]
    for place in zip(first.tolist(), stop.tolist(), was_unmatched.tolist(), strict=True):
        _run_automaton_at(tables, characters, starts, *place)


def _find_regions(starts: Flags, positions: Positions) -> tuple[Positions, Positions]:
    """Returns the last start before each position and the first start after it, each pair once."""
    if len(positions) > _FEW:
        bounds = np.flatnonzero(starts)
        index = find_distinct(np.searchsorted(bounds, positions, "right"))
        return bounds.take(index - 1), bounds.take(index)
    flags = starts.tobytes()
    pairs = {
        (flags.rfind(b"\x01", 0, position), flags.find(b"\x01", position + 1))
        for position in positions.tolist()
    }
    first, stop = np.array(sorted(pairs)).T
    return first, stop


def _run_automaton_at(
    tables: BoundaryTables, characters: _Characters, starts: Flags, first: int, stop: int, was_unmatched: bool
) -> None:
    """Does the same as `_run_automaton` for one place, from the start of a pre-token on.

    Takes linear time: where the automaton has read far without a match, its positions and states are
    recorded, and it stops when it comes to one of them again.
    """
    numbers, next_state, has_match = tables.automaton_lists
    class_at = characters.classes.data
    byte_at = None if characters.text is None else characters.text.data
    state, last, position = START, first, first
    without_match: set[int] = set()
    read: list[int] = []  # positions and states since the last match
    num_states = len(next_state)
    while first < stop:
        class_ = numbers[class_at[position]]
        if has_match[state][class_]:
            last = position
            read.clear()
        state = next_state[state][class_]
        position += 1 if byte_at is None else _WIDTH_LIST[byte_at[position]]
        read.append(position * num_states + state)
        if state == DEAD or (without_match and read[-1] in without_match):
            if len(read) > _FAR:
                without_match.update(read)
            read.clear()
            is_unmatched = last == first
            starts[first] |= not (is_unmatched and was_unmatched)
            if is_unmatched:
                last += 1 if byte_at is None else _WIDTH_LIST[byte_at[first]]
            was_unmatched = is_unmatched
            first = position = last
            state = START
