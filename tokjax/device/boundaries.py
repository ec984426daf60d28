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

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tokjax.device.scans import (
    Neighbors,
    cumulative_sum,
    find_true,
    pack,
    running_maximum,
    store,
    take_next,
)
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
        class_of_code: class of each code point, `uint8`, shape `(0x110000,)`. The last class
            is the end of a text.
        windows: decisions by the classes before, previous and own, whether the next class is the own one,
            and the class after the run of the own one; `uint8`, shape
            `(classes, classes, classes, 2, classes)`.
        left_windows: decisions by the three classes before and the own one, `uint8`.
        groups: decisions in runs that are split into groups, by class and index in the run; `uint8`, shape
            `(classes, period)`, where `period` is the number of characters after which they repeat.
            `UNDECIDED` for classes without groups; `None` if no class has groups.
        next_state: state of the automaton after each class, `int32`, shape `(states, classes)`.
        has_match: whether a match ended before that character, `bool`, shape `(states, classes)`.
    """

    class_of_code: Any
    windows: Any
    left_windows: Any
    groups: Any
    next_state: Any
    has_match: Any


class Characters(NamedTuple):
    """The characters of all texts, by byte.

    Attributes:
        codes: code point of the character that starts at each byte, `int32`, shape `(n,)`; any number at the
            other bytes of a character.
        widths: number of bytes of that character, `uint8`, shape `(n,)`; 1 at the other bytes.
        is_first: whether the byte is the first one of its character, `bool`, shape `(n,)`.
    """

    codes: Array
    widths: Array
    is_first: Array


def make_split_tables(tables: BoundaryTables) -> SplitTables:
    """Returns the tables of the device for those of the host, with the classes of the automaton."""
    automaton = tables.automaton
    count = automaton.num_classes
    sizes = {int(tables.automaton_class[class_]): size for class_, size in tables.groups.items()}
    # Only runs that start a pre-token after any other class are split into groups.
    starts = np.all(tables.windows == STARTS, axis=(0, 3)) | np.eye(count, dtype=bool)
    sizes = {class_: size for class_, size in sizes.items() if starts[:, class_].all()}
    groups = np.full((count, math.lcm(*sizes.values())), UNDECIDED, np.uint8)
    for class_, size in sizes.items():
        groups[class_] = np.where(np.arange(groups.shape[1]) % size, 0, STARTS)
    # Within a run, the class after the run is looked up only if the next class does not decide.
    by_next = np.einsum("abcc->abc", tables.windows)[..., None]
    by_run = np.where(by_next == UNDECIDED, np.einsum("bccd->bcd", tables.run_windows), by_next)
    return SplitTables(
        tables.automaton_class.take(tables.class_of_code).astype(np.uint8),
        np.stack([tables.windows, by_run], axis=3),
        tables.left_windows,
        groups if sizes else None,
        automaton.next_state.astype(np.int32),
        automaton.has_match,
    )


def decode_characters(data: Array, is_cut: Array) -> Characters:
    """Decodes UTF-8. Each byte that is not part of a valid character is a character of one byte.

    Args:
        data: bytes, `uint8`, shape `(n,)`.
        is_cut: whether a text starts at each byte, or ends before it; `bool`, shape `(n,)`.
    """
    data_at = Neighbors(data, 0, _MAX_WIDTH - 1).at
    cut_at = Neighbors(is_cut, 0, _MAX_WIDTH - 1).at
    lead, second, third, fourth = (data_at(i) for i in range(_MAX_WIDTH))
    # Whether the next byte, the next two and the next three are continuation bytes of the same text.
    one = (second & 0xC0 == 0x80) & ~cut_at(1)
    two = one & (third & 0xC0 == 0x80) & ~cut_at(2)
    three = two & (fourth & 0xC0 == 0x80) & ~cut_at(3)
    # After some first bytes, the second one has a smaller range: no code point is written in more bytes than
    # it needs, is a surrogate, or is above 0x10FFFF.
    one &= (lead >= 0xC2) & (lead < 0xE0)
    two &= (lead & 0xF0 == 0xE0) & ((lead != 0xE0) | (second >= 0xA0)) & ((lead != 0xED) | (second < 0xA0))
    three &= (lead >= 0xF0) & (lead < 0xF5)
    three &= ((lead != 0xF0) | (second >= 0x90)) & ((lead != 0xF4) | (second < 0x90))
    widths = jnp.ones(data.shape, jnp.uint8)
    for is_width, width in ((one, 2), (two, 3), (three, 4)):
        widths = jnp.where(is_width, np.uint8(width), widths)
    widths = store(widths)
    width_at = Neighbors(widths, _MAX_WIDTH - 1, 0).at
    is_first = (width_at(-1) < 2) & (width_at(-2) < 3) & (width_at(-3) < 4)
    low = [data_at(i).astype(jnp.int32) & 0x3F for i in range(1, _MAX_WIDTH)]
    first = lead.astype(jnp.int32)
    codes = jnp.where(first < 0x80, first, first + _INVALID_BYTE)
    codes = jnp.where(widths == 2, (first & 0x1F) << 6 | low[0], codes)
    codes = jnp.where(widths == 3, (first & 0x0F) << 12 | low[0] << 6 | low[1], codes)
    codes = jnp.where(widths == 4, (first & 0x07) << 18 | low[0] << 12 | low[1] << 6 | low[2], codes)
    return Characters(*store(codes, widths, is_first))


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
    num_classes = tables.next_state.shape[1]
    end = num_classes - 1
    is_inner = store(~characters.is_first)
    inner_at = Neighbors(is_inner, _MAX_WIDTH, 0).at
    classes = store(tables.class_of_code[characters.codes])
    classes = store(jnp.where(is_inner, _get_previous(classes, inner_at), classes))
    classes_at = Neighbors(classes, 1, _MAX_WIDTH).at
    cut_at = Neighbors(is_cut, 0, _MAX_WIDTH).at
    previous = store(jnp.where(is_cut, end, classes_at(-1)))
    before = store(jnp.where(is_cut, end, _get_previous(previous, inner_at)))
    third = store(jnp.where(is_cut, end, _get_previous(before, inner_at)))
    following = jnp.full_like(classes, end)
    for width in range(1, _MAX_WIDTH + 1):
        at = jnp.where(cut_at(width), end, classes_at(width))
        following = jnp.where(characters.widths == width, at, following)
    following = store(following)
    after_run = _find_class_after_run(classes_at, cut_at, end)
    dtype = np.min_scalar_type(tables.windows.size)  # small, since the index of each byte is stored

    def get_index(*columns: Array) -> Array:
        index = columns[0].astype(dtype)
        for column in columns[1:]:
            index = index * np.array(num_classes, dtype) + column.astype(dtype)
        return index

    in_run = following == classes
    after = store(jnp.where(in_run, after_run, following))
    index = get_index(before, previous, classes) * np.array(2, dtype) + in_run.astype(dtype)
    index = store(get_index(index, after))
    decisions = store(tables.windows.reshape(-1)[index])
    left = store(get_index(third, before, previous, classes))
    decisions = jnp.where(decisions == UNDECIDED, tables.left_windows.reshape(-1)[left], decisions)
    decisions = _split_groups(tables, characters, classes, previous == classes, store(decisions))
    starts = is_cut | ((decisions == STARTS) & characters.is_first)
    undecided = (decisions == UNDECIDED) & characters.is_first & ~is_cut
    starts, undecided = store(starts, undecided)
    decided: tuple[Array, Array] = jax.lax.cond(
        undecided.any(),
        lambda: _run_automaton(tables, characters, classes, is_cut, starts, undecided, capacity),
        lambda: (starts, undecided.sum(dtype=jnp.int32)),
    )
    return decided


def _get_previous(values: Array, inner_at: Callable[[int], Array]) -> Array:
    """Returns the value at the last first byte of a character before each byte."""
    values_at = Neighbors(values, _MAX_WIDTH, 0).at
    result = values_at(-_MAX_WIDTH)
    for i in range(_MAX_WIDTH - 1, 0, -1):
        result = jnp.where(inner_at(-i), result, values_at(-i))
    return result


def _find_class_after_run(
    classes_at: Callable[[int], Array], cut_at: Callable[[int], Array], end: int
) -> Array:
    """Returns the class after the run of equal classes at each byte."""
    after = store(jnp.where(cut_at(1), end, classes_at(1)))
    return take_next(after != classes_at(0), after)


def _split_groups(
    tables: SplitTables, characters: Characters, classes: Array, is_in_run: Array, decisions: Array
) -> Array:
    """Decides in runs that are split into groups."""
    if tables.groups is None:
        return decisions
    counts = cumulative_sum(characters.is_first)
    run_starts = running_maximum(jnp.where(characters.is_first & ~is_in_run, counts, 0))
    period = tables.groups.shape[1]
    index = classes.astype(jnp.int32) * period + jax.lax.rem(counts - run_starts, period)
    groups = tables.groups.reshape(-1)[index]
    return jnp.where(is_in_run & (groups != UNDECIDED), groups, decisions)


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
    end = tables.next_state.shape[1] - 1
    packed = pack(undecided)
    positions, count = find_true(packed, capacity, length), packed.num_true
    # The last decided start at or before each position.
    last_starts = running_maximum(jnp.where(starts, jnp.arange(length, dtype=jnp.int32), 0))
    regions = jnp.where(positions < length, last_starts.at[positions].get(mode="clip"), positions)
    is_new = jnp.pad(regions[1:] != regions[:-1], (1, 0), constant_values=True)
    first = jnp.where(is_new, regions, length)

    def is_active(places: _Places) -> Array:
        """Returns which places have not reached the next decided start, or the end."""
        at_start = starts[jnp.minimum(places.first, length - 1)] & (places.first > first)
        return (places.first < length) & ~at_start

    def get_class(at: Array, begin: Array) -> Array:
        inside = jnp.minimum(at, length - 1)
        at_end = (at >= length) | (is_cut[inside] & (at > begin))
        return jnp.where(at_end, end, classes[inside].astype(jnp.int32))

    def get_next(at: Array) -> Array:
        return jnp.minimum(at + characters.widths[jnp.minimum(at, length - 1)].astype(jnp.int32), length)

    def step(carry: tuple[_Places, Array]) -> tuple[_Places, Array]:
        places, marks = carry
        active = is_active(places)
        class_ = get_class(places.position, places.first)
        last = jnp.where(tables.has_match[places.state, class_], places.position, places.last)
        state = tables.next_state[places.state, class_]
        done = (state == DEAD) & active
        unmatched = last == places.first
        ended = jnp.where(unmatched, get_next(places.first), last)
        is_start = done & ~(unmatched & places.was_unmatched)
        marks = marks.at[jnp.where(is_start, places.first, length)].set(True, mode="drop")
        moved = _Places(
            jnp.where(done, ended, places.first),
            jnp.where(done, ended, get_next(places.position)),
            jnp.where(done, ended, last),
            jnp.where(done, START, state),
            jnp.where(done, unmatched, places.was_unmatched),
        )
        return _Places(*(jnp.where(active, new, old) for new, old in zip(moved, places, strict=True))), marks

    # Constants are computed from `first`, so that they vary over the devices of `jax.shard_map` as it does.
    places = _Places(first, first, first, 0 * first + START, first < 0)
    _, marks = jax.lax.while_loop(lambda carry: is_active(carry[0]).any(), step, (places, starts))
    return marks, count
