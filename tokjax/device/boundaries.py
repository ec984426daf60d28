r"""Where pre-tokens start, for all bytes of a batch of texts at once, under `jax.jit`.

Positions are those of bytes. All bytes of a character have its class. The steps, for `cl100k`:

    text         d  o  n  '  t  _  _  p  a  y  _  $  1  2  3  4      _ is a space
    windows      ^  .  .  ^  .  ^  .  ^  .  .  ^  .  ^  ?  ?  ?      by up to three characters before, and
                                                                     the next one or the one after a run
    groups       ^  .  .  ^  .  ^  .  ^  .  .  ^  .  ^  .  .  ^      runs of digits are split in threes

What remains undecided (`?`) is decided by the automaton of the pattern. It reads the text from the last
decided start on, at all these places in parallel. Most texts have no such place.

The tables are those of the host; see `tokjax/pretokenize/boundary_tables.py`. A pattern can have several
steps: each one splits the pre-tokens of the step before it, as if they were texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tokjax.device.scans import compact, cumulative_sum, following_minimum, running_maximum, shift
from tokjax.pretokenize.boundary_tables import STARTS, UNDECIDED
from tokjax.pretokenize.split_automaton import DEAD, START

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    from tokjax.pretokenize.boundary_tables import BoundaryTables

_MAX_WIDTH = 4
_INVALID_BYTE = 0xDC00
"""Code point of invalid bytes, minus the byte: each is one character, as on the host."""


class SplitTables(NamedTuple):
    """Tables of one step of a split pattern, a pytree of arrays.

    Attributes:
        class_of_code: class of each code point, `uint8`, shape `(0x110000,)`. The number of classes is
            `class_sizes.shape[0]`; the last one is the end of a text.
        windows: decisions by the classes before, previous, own, whether the last one is after a run, and
            after; `uint8`, shape `(classes, classes, classes, 2, classes)`.
        left_windows: decisions by the three classes before and the own one, `uint8`.
        group_sizes: number of characters of a group, by class, 0 for classes without groups; `int32`.
        is_trigger: classes after which groups and windows may not hold, `bool`, shape `(classes,)`.
        reach: number of characters after a trigger, as the length of this array.
        next_state: state of the automaton after each class, `int32`, shape `(states, classes)`.
        has_match: whether a match ended before that character, `bool`, shape `(states, classes)`.
    """

    class_of_code: Any
    windows: Any
    left_windows: Any
    group_sizes: Any
    is_trigger: Any
    reach: Any
    next_state: Any
    has_match: Any


class Characters(NamedTuple):
    """The characters of all texts, by byte.

    Attributes:
        codes: code point of the character of each byte, `int32`, shape `(n,)`.
        widths: number of bytes of the character of each byte, `int32`, shape `(n,)`.
        is_first: whether the byte is the first one of its character, `bool`, shape `(n,)`.
    """

    codes: Array
    widths: Array
    is_first: Array


def make_split_tables(tables: BoundaryTables) -> SplitTables:
    """Returns the tables of the device for those of the host, with the classes of the automaton."""
    automaton = tables.automaton
    count = automaton.num_classes
    groups = np.zeros(count, np.int32)
    for class_, size in tables.group_sizes.items():
        groups[tables.automaton_class[class_]] = size
    return SplitTables(
        automaton.class_of_code,
        tables.windows.reshape(count, count, count, 2, count),
        tables.left_windows,
        groups,
        tables.is_trigger[tables.classes],
        np.zeros(tables.reach + 1, bool),
        automaton.next_state.astype(np.int32),
        automaton.has_match,
    )


def decode_characters(data: Array, is_cut: Array) -> Characters:
    """Decodes UTF-8. Each byte that is not part of a valid character is a character of one byte.

    Args:
        data: bytes, `uint8`, shape `(n,)`.
        is_cut: whether a text starts at each byte, or ends before it; `bool`, shape `(n,)`.
    """
    lead = data.astype(jnp.int32)
    parts = [shift(lead, -i, 0) for i in range(1, _MAX_WIDTH)]
    # Whether the next byte, the next two and the next three are continuation bytes of the same text.
    joined = []
    so_far = jnp.ones(data.shape, bool)
    for i, part in enumerate(parts, 1):
        so_far = so_far & (part & 0xC0 == 0x80) & ~shift(is_cut, -i, fill=True)
        joined.append(so_far)
    low = [part & 0x3F for part in parts]
    two = (lead & 0x1F) << 6 | low[0]
    three = (lead & 0x0F) << 12 | low[0] << 6 | low[1]
    four = (lead & 0x07) << 18 | low[0] << 12 | low[1] << 6 | low[2]
    is_two = (lead >= 0xC2) & (lead < 0xE0) & joined[0]
    is_three = (lead >= 0xE0) & (lead < 0xF0) & joined[1] & (three >= 0x800) & (three >> 11 != 0x1B)
    is_four = (lead >= 0xF0) & joined[2] & (four >= 0x10000) & (four < 0x110000) & (lead < 0xF5)
    code = jnp.where(lead < 0x80, lead, lead + _INVALID_BYTE)
    width = jnp.ones_like(lead)
    for is_width, value, size in ((is_two, two, 2), (is_three, three, 3), (is_four, four, 4)):
        code, width = jnp.where(is_width, value, code), jnp.where(is_width, size, width)
    is_first = jnp.ones(data.shape, bool)
    codes, widths = code, width
    for i in range(1, _MAX_WIDTH):
        is_inner = shift(width, i, 1) > i
        is_first &= ~is_inner
        codes = jnp.where(is_inner, shift(code, i, 0), codes)
        widths = jnp.where(is_inner, shift(width, i, 1), widths)
    return Characters(codes, widths, is_first)


def find_starts(
    steps: tuple[SplitTables, ...], characters: Characters, is_cut: Array, capacity: int
) -> tuple[Array, Array]:
    """Finds where pre-tokens start.

    Args:
        steps: tables of each step of the pattern.
        characters: the characters of all texts.
        is_cut: whether a text starts at each byte, or ends before it; `bool`, shape `(n,)`.
        capacity: number of places that the automaton can decide.

    Returns:
        Whether a pre-token starts at each byte, `bool`, shape `(n,)`, and the number of places that the
        automaton had to decide, `int32`, shape `()`. If it exceeds the capacity, the starts are not valid.
    """
    starts, needed = is_cut, jnp.int32(0)
    for tables in steps:
        starts, count = _find_step_starts(tables, characters, starts, capacity)
        needed = jnp.maximum(needed, count)
    return starts, needed


def _find_step_starts(
    tables: SplitTables, characters: Characters, is_cut: Array, capacity: int
) -> tuple[Array, Array]:
    """Finds the starts of one step within the pre-tokens of the step before it."""
    num_classes = tables.group_sizes.shape[0]
    end = num_classes - 1
    classes = tables.class_of_code[characters.codes].astype(jnp.int32)
    inner = ~characters.is_first
    previous = jnp.where(is_cut, end, shift(classes, 1, end))
    before = jnp.where(is_cut, end, _get_previous(previous, inner, end))
    following = _get_following(classes, is_cut, characters.widths, end)

    def look_up(after: Array, is_after_run: int) -> Array:
        index = ((before * num_classes + previous) * num_classes + classes) * 2 + is_after_run
        return tables.windows.reshape(-1)[index * num_classes + after]

    decisions = look_up(following, 0)
    undecided = (decisions == UNDECIDED) & characters.is_first
    after_run = _find_class_after_run(classes, is_cut, end)
    decisions = jnp.where(undecided & (following == classes), look_up(after_run, 1), decisions)
    third = jnp.where(is_cut, end, _get_previous(before, inner, end))
    left = ((third * num_classes + before) * num_classes + previous) * num_classes + classes
    decisions = jnp.where(decisions == UNDECIDED, tables.left_windows.reshape(-1)[left], decisions)
    decisions = _split_groups(tables, characters, classes, previous, is_cut, decisions)
    starts = is_cut | ((decisions == STARTS) & characters.is_first)
    undecided = (decisions == UNDECIDED) & characters.is_first & ~is_cut
    return jax.lax.cond(
        undecided.any(),
        lambda: _run_automaton(tables, characters, classes, is_cut, starts, undecided, capacity),
        lambda: (starts, jnp.int32(0)),
    )


def _get_previous(values: Array, inner: Array, fill: int) -> Array:
    """Returns the value at the character before each first byte."""
    result = shift(values, 1, fill)
    skipped = jnp.ones(values.shape, bool)
    for i in range(1, _MAX_WIDTH):
        skipped = skipped & shift(inner, i, fill=False)
        result = jnp.where(skipped, shift(values, i + 1, fill), result)
    return result


def _get_following(classes: Array, is_cut: Array, widths: Array, end: int) -> Array:
    """Returns the class of the character after each first byte, that of the end after a text."""
    following = jnp.full_like(classes, end)
    for width in range(1, _MAX_WIDTH + 1):
        at = jnp.where(shift(is_cut, -width, fill=True), end, shift(classes, -width, end))
        following = jnp.where(widths == width, at, following)
    return following


def _find_class_after_run(classes: Array, is_cut: Array, end: int) -> Array:
    """Returns the class after the run of equal classes at each byte."""
    length = classes.shape[0]
    position = jnp.arange(1, length + 1, dtype=jnp.int32)
    is_cut_after = shift(is_cut, -1, fill=True)
    is_last = is_cut_after | (classes != shift(classes, -1, end))
    stop = following_minimum(jnp.where(is_last, position, length))
    after = jnp.where(is_cut_after, end, shift(classes, -1, end))
    return after[stop - 1]


def _split_groups(
    tables: SplitTables,
    characters: Characters,
    classes: Array,
    previous: Array,
    is_cut: Array,
    decisions: Array,
) -> Array:
    """Decides in runs that are split into groups, except near triggers."""
    size = tables.group_sizes[classes]
    in_run = (size > 0) & (previous == classes) & ~is_cut
    number = cumulative_sum(characters.is_first)
    first = running_maximum(jnp.where(in_run & characters.is_first | ~characters.is_first, 0, number))
    starts_group = (number - first) % jnp.maximum(size, 1) == 0
    near = jnp.zeros(classes.shape, bool)
    trigger = tables.is_trigger[classes]
    for i in range(1, _MAX_WIDTH * (tables.reach.shape[0] + 1) + 1):
        near = near | shift(trigger, i, fill=False)
    return jnp.where(in_run & ~near, jnp.where(starts_group, STARTS, 0).astype(decisions.dtype), decisions)


class _Places(NamedTuple):
    """State of the automaton at each place. Arrays of shape `(capacity,)`."""

    first: Array
    position: Array
    last: Array
    state: Array
    was_unmatched: Array


def _run_automaton(
    tables: SplitTables,
    characters: Characters,
    classes: Array,
    is_cut: Array,
    starts: Array,
    undecided: Array,
    capacity: int,
) -> tuple[Array, Array]:
    """Decides what is undecided, by reading the text from the last decided start before it.

    The same as `_run_automaton` of the host: `last` is where the last match ended, and the pre-token ends
    there when no longer match can follow.
    """
    length = classes.shape[0]
    end = tables.group_sizes.shape[0] - 1
    position = jnp.arange(length, dtype=jnp.int32)
    region = running_maximum(jnp.where(starts, position, -1))
    has_undecided = jnp.zeros(length, bool).at[jnp.where(undecided, region, length)].set(True, mode="drop")
    first, count = compact(has_undecided, capacity, length)
    next_start = shift(following_minimum(jnp.where(starts, position, length)), -1, length)
    stop = jnp.where(first < length, next_start[jnp.minimum(first, length - 1)], 0)

    def get_class(at: Array, begin: Array) -> Array:
        inside = jnp.minimum(at, length - 1)
        at_end = (at >= length) | (is_cut[inside] & (at > begin))
        return jnp.where(at_end, end, classes[inside])

    def step(carry: tuple[_Places, Array, Array]) -> tuple[_Places, Array, Array]:
        places, marks, limits = carry
        class_ = get_class(places.position, places.first)
        last = jnp.where(tables.has_match[places.state, class_], places.position, places.last)
        state = tables.next_state[places.state, class_]
        widths = characters.widths[jnp.minimum(places.position, length - 1)]
        at = jnp.minimum(places.position + widths, length)
        active = places.first < limits
        done = (state == DEAD) & active
        unmatched = last == places.first
        first_width = characters.widths[jnp.minimum(places.first, length - 1)]
        ended = jnp.where(unmatched, places.first + first_width, last)
        is_start = done & ~(unmatched & places.was_unmatched)
        marks = marks.at[jnp.where(is_start, places.first, length)].set(True, mode="drop")
        moved = _Places(
            jnp.where(done, ended, places.first),
            jnp.where(done, ended, at),
            jnp.where(done, ended, last),
            jnp.where(done, START, state),
            jnp.where(done, unmatched, places.was_unmatched),
        )
        kept = _Places(*(jnp.where(active, new, old) for new, old in zip(moved, places, strict=True)))
        return kept, marks, limits

    places = _Places(
        first, first, first, jnp.full(capacity, START, jnp.int32), jnp.zeros(capacity, bool)
    )
    is_active: Callable[[Any], Array] = lambda carry: (carry[0].first < carry[2]).any()  # noqa: E731
    _, starts, _ = jax.lax.while_loop(is_active, step, (places, starts, stop))
    return starts, count
