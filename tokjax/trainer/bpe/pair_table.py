"""Pair table: all pairs of symbols, with upper bounds of their counts, and their recorded positions.

A merge makes existing pairs only rarer (unless it makes a token that exists already, which is handled
separately). So the count of a pair when it appeared remains an upper bound, and a pair is counted again only
when its bound is among the highest. Positions where the pair no longer occurs are dropped at that time. An
example with the positions of `linked_symbols`: `low` 5 times, `lower` twice::

    pair     bound    positions         after the merge of o·w     after the next count
    l·o        7      0  4                7      0  4                0     (none)
    o·w        7      1  5                0      (merged)            0
    w·e        2      6                   2      6                   2     6      not counted: 2 is too low
    e·r        2      7                   2      7                   2     7
    l·ow                                  7      0  4                7     0  4
    ow·e                                  2      5                   2     5

Most pairs are too rare to be merged soon. They wait, and only active pairs are searched: those whose bounds
reach `_threshold`. Once all active pairs are below it, the next few thousand waiting pairs become active.
Positions are stored in one array, the pool; each pair has a slice of it.

See docs/performance.md, section "Data structures of the trainer".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import argsort_integers, concatenate_ranges
from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer.bpe.linked_symbols import (
    RIGHT,
    FormedPairs,
    PairPositions,
    sum_groups,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer.bpe.linked_symbols import LinkedPretokens, Positions

_MAX_PROMOTED = 4000
"""Approximate number of waiting pairs that become active together."""


class _Pairs(NamedTuple):
    """Columns of the table: `int64` arrays, shape `(pairs,)`.

    Attributes:
        key: the pair, as `make_pair_key` returns it.
        bound: upper bound of its count; 0 after it was merged.
        start: index of its first position in the pool.
        length: number of its positions.
    """

    key: NDArray[np.int64]
    bound: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    def take(self, rows: NDArray[Any]) -> _Pairs:
        """Returns the pairs at the rows, or those of a mask."""
        return _Pairs(*(column[rows] for column in self))


class GroupedPairs(NamedTuple):
    """Positions of pairs, grouped by pair.

    Attributes:
        keys: the pairs, as `make_pair_key` returns them, `int64`, shape `(pairs,)`.
        bound: the count of each pair, `int64`, shape `(pairs,)`.
        length: number of positions of each pair, `int64`, shape `(pairs,)`.
        at: the positions of all pairs, concatenated, `int32`.
    """

    keys: NDArray[np.int64]
    bound: NDArray[np.int64]
    length: NDArray[np.int64]
    at: Positions


def group_pairs(pairs: FormedPairs) -> GroupedPairs:
    """Groups the positions of pairs by pair."""
    keys, at, weights = pairs.take(_sort_by_key(pairs.keys))
    is_first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    length = np.diff(first, append=len(keys))
    return GroupedPairs(keys.take(first), sum_groups(weights, length), length, at)


def _sort_by_key(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the order that sorts the keys of pairs."""
    # Operations in place, since new memory is slow. A key has more bits than its ids need.
    shortened, right = keys >> ID_BITS, keys & RIGHT
    id_bits = int(max(shortened.max(initial=0), right.max(initial=0))).bit_length()
    shortened <<= id_bits
    shortened |= right
    return argsort_integers(shortened, 2 * id_bits)


class FrequentPairs(NamedTuple):
    """All pairs whose count is at least `minimum`.

    Attributes:
        keys: the pairs, as `make_pair_key` returns them, `int64`, shape `(pairs,)`.
        counts: the count of each pair, `int64`, shape `(pairs,)`.
        rows: the row of each pair in the table, `int64`, shape `(pairs,)`.
        positions: the positions where they occur, grouped in the order of `keys`.
        minimum: the minimum count.
    """

    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    rows: NDArray[np.int64]
    positions: PairPositions
    minimum: int

    def select(self, minimum: int) -> FrequentPairs:
        """Returns the pairs whose count is at least a higher minimum."""
        is_selected = self.counts >= minimum
        if is_selected.all():
            return self._replace(minimum=minimum)
        chosen = np.flatnonzero(is_selected)
        positions = self.positions.select(np.flatnonzero(np.repeat(is_selected, self.positions.lengths)))
        return FrequentPairs(
            self.keys.take(chosen),
            self.counts.take(chosen),
            self.rows.take(chosen),
            positions._replace(lengths=positions.lengths.take(chosen)),
            minimum,
        )

    def select_half(self) -> FrequentPairs | None:
        """Returns about half of the pairs, the most frequent ones; `None` if all are equally frequent."""
        higher = np.sort(self.counts[self.counts > self.minimum])
        higher = higher[higher > self.counts.min()]
        if not len(higher):
            return None
        return self.select(int(higher[max(len(higher) - len(self.counts) // 2, 0)]))


class PairTable:
    """Table of all pairs, active or waiting.

    Args:
        pretokens: the corpus.
        pairs: all pairs of the corpus.
    """

    def __init__(self, pretokens: LinkedPretokens, pairs: GroupedPairs) -> None:
        self._pretokens = pretokens
        self._pool = np.empty(2 * len(pairs.at) + 1024, np.int32)
        self._used = 0
        self._active = _make_empty_pairs()
        self._waiting = [_make_empty_pairs()]
        self._threshold = np.iinfo(np.int64).max
        """Minimum bound of an active pair when it became active. All waiting pairs have lower bounds."""
        self._add(pairs)

    def add(self, formed: FormedPairs, *, may_exist: bool = False) -> None:
        """Adds pairs that merges have formed.

        Args:
            formed: the pairs.
            may_exist: whether some of the pairs may be in the table already.
        """
        self._add(group_pairs(self._merge_existing(formed) if may_exist else formed))

    def find_frequent(self, width: int) -> FrequentPairs | None:
        """Returns the most frequent pairs, or `None` if no pair is left.

        A pair is certain to be among the most frequent if its count is at least as high as the bounds of all
        pairs that were not counted. Of several pairs with the same count, all are returned or none.

        Args:
            width: number of pairs to count at first. It is doubled until a count is certain.
        """
        while True:
            bound = self._active.bound
            # A waiting pair may be more frequent than all active ones.
            if not len(bound) or bound.max() < self._threshold:
                if not self._promote():
                    return None
                continue
            counted = self._count_top(min(width, len(bound)))
            if (counted.counts >= counted.minimum).any():
                return counted.select(counted.minimum)
            width *= 2

    def set_bounds(self, rows: NDArray[np.int64], bounds: NDArray[np.int64]) -> None:
        """Lowers the bounds of pairs: to 0 for pairs that were merged, and no longer occur."""
        self._active.bound[rows] = bounds

    def _add(self, pairs: GroupedPairs) -> None:
        # Slices of replaced or merged pairs are not reused: the pool only grows.
        start = self._append_to_pool(pairs.at)
        first = np.cumsum(pairs.length) - pairs.length
        new = _Pairs(pairs.keys, pairs.bound, first + start, pairs.length)
        is_active = new.bound >= self._threshold
        if is_active.any():
            self._active = _concatenate_pairs([self._active, new.take(is_active)])
            new = new.take(~is_active)
        self._waiting.append(new)

    def _count_top(self, top: int) -> FrequentPairs:
        """Counts the pairs with the highest bounds, and drops positions where they no longer occur.

        Args:
            top: approximate number of pairs to count. Pairs of equal bounds are counted together.

        Returns:
            The counted pairs, some of which may be rarer than the minimum. No other pair reaches it.
        """
        rows, minimum = self._find_highest(top)
        pairs = self._active
        selected = pairs.take(rows)
        positions = self._find_current(selected)
        count = sum_groups(self._pretokens.get_link_weights(positions.links), positions.lengths)
        pairs.bound[rows] = count
        pairs.length[rows] = positions.lengths
        # Keep only current positions, so that stale ones are read once.
        self._pool[concatenate_ranges(selected.start, positions.lengths)] = positions.at
        return FrequentPairs(selected.key, count, rows, positions, minimum)

    def _find_highest(self, top: int) -> tuple[NDArray[np.int64], int]:
        """Finds the highest bounds.

        Returns:
            Their rows, all or none of equal bounds, and a bound that no other row reaches.
        """
        bounds = self._active.bound
        minimum = max(int(np.partition(bounds, -top)[-top]), self._threshold)
        return np.flatnonzero(bounds >= minimum), minimum

    def _promote(self) -> bool:
        """Makes the most frequent waiting pairs active. Returns whether any pair is left."""
        waiting = _concatenate_pairs(self._waiting)
        if not len(waiting.key):
            # Nothing waits: all active pairs that still occur are candidates.
            was_lowered, self._threshold = self._threshold > 1, 1
            return was_lowered and bool(self._active.bound.any())
        limit = min(_MAX_PROMOTED, len(waiting.bound))
        self._threshold = int(np.partition(waiting.bound, -limit)[-limit])
        is_promoted = waiting.bound >= self._threshold
        is_left = self._active.bound > 0
        self._active = _concatenate_pairs([self._active.take(is_left), waiting.take(is_promoted)])
        self._waiting = [waiting.take(~is_promoted)]
        return True

    def _merge_existing(self, formed: FormedPairs) -> FormedPairs:
        """Combines new positions with the current ones of the same pairs, and drops these pairs.

        A pair of an existing token can become more frequent, so its bound has to be computed again.
        """
        self._waiting = [_concatenate_pairs(self._waiting)]
        parts = [formed]
        for pairs in (self._active, self._waiting[0]):
            rows = np.flatnonzero(np.isin(pairs.key, formed.keys) & (pairs.bound > 0))
            old = pairs.take(rows)
            current = self._find_current(old)
            keys = np.repeat(old.key, current.lengths)
            parts.append(FormedPairs(keys, current.at, self._pretokens.get_link_weights(current.links)))
            pairs.bound[rows] = 0
        return FormedPairs(*map(np.concatenate, zip(*parts, strict=True)))

    def _find_current(self, pairs: _Pairs) -> PairPositions:
        """Returns the recorded positions at which pairs still occur."""
        at = self._pool.take(concatenate_ranges(pairs.start, pairs.length))
        return self._pretokens.find_current(at, pairs.length, pairs.key)

    def _append_to_pool(self, at: Positions) -> int:
        start, stop = self._used, self._used + len(at)
        if stop > len(self._pool):
            self._pool = np.concatenate([self._pool, np.empty(max(len(self._pool) // 2, len(at)), np.int32)])
        self._pool[start:stop] = at
        self._used = stop
        return start


def _make_empty_pairs() -> _Pairs:
    return _Pairs(*(np.zeros(0, np.int64) for _ in range(4)))


def _concatenate_pairs(parts: list[_Pairs]) -> _Pairs:
    return _Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
