"""Pairs of symbols, each with the places where it stood when it came up, and how often it stands at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges
from tokjax.trainer.bpe.linked_symbols import make_pair_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokjax.trainer.bpe.linked_symbols import LinkedPretokens, PairPositions, Positions

_MAX_PROMOTED = 4000
_HIGH_FACTOR = 8


class _Pairs(NamedTuple):
    """Pairs, one a row.

    Attributes:
        key: as of `make_pair_key`.
        bound: how often each stands at most, `int64`.
        start: where in the pool its places are.
        length: how many they are.
    """

    key: NDArray[np.int64]
    bound: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    def take(self, rows: NDArray[Any]) -> _Pairs:
        """Some of the pairs: their rows, or a mask."""
        return _Pairs(*(column[rows] for column in self))


class GroupedPairs(NamedTuple):
    """Places of pairs, those of one pair together.

    Attributes:
        keys: the pairs, as of `make_pair_key`.
        bound: how often each stands, `int64`.
        length: how many places each has.
        at: the places.
    """

    keys: NDArray[np.int64]
    bound: NDArray[np.int64]
    length: NDArray[np.int64]
    at: Positions


def group_positions(pretokens: LinkedPretokens, keys: NDArray[np.int64], at: Positions) -> GroupedPairs:
    """Places of pairs, put together.

    Args:
        pretokens: the corpus.
        keys: the pair of each place, as of `make_pair_key`.
        at: the places.
    """
    order = np.argsort(keys)
    keys, at = keys.take(order), at.take(order)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    bound = np.add.reduceat(pretokens.weight.take(at), first) if len(first) else np.zeros(0, np.int64)
    return GroupedPairs(keys.take(first), bound, np.diff(first, append=len(keys)), at)


def group_byte_pairs(pretokens: LinkedPretokens, at: Positions) -> GroupedPairs:
    """The same for the places of pairs of bytes, of which there are few: quicker."""
    pairs = (pretokens.symbol.take(at) << 8 | pretokens.symbol.take(at + 1)).astype(np.uint16)
    length = np.bincount(pairs)
    found = np.flatnonzero(length)
    bound = np.bincount(pairs, pretokens.weight.take(at)).take(found).astype(np.int64)
    keys = make_pair_key((found >> 8).astype(np.int32), (found & 0xFF).astype(np.int32))
    return GroupedPairs(keys, bound, length.take(found), at.take(np.argsort(pairs, kind="stable")))


class BestPairs(NamedTuple):
    """The most frequent pairs, counted anew.

    Attributes:
        keys: the pairs, as of `make_pair_key`.
        counts: how often each stands, `int64`.
        rows: where the table has them.
        positions: where they stand, in no order.
        looked_at: how many places were looked at to find them.
    """

    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    rows: NDArray[np.int64]
    positions: PairPositions
    looked_at: int

    def get_positions(self, chosen: NDArray[np.int64]) -> PairPositions:
        """Where some of the pairs stand; pair `chosen[i]` is `which == i`."""
        ranks = np.full(len(self.keys), -1)
        ranks[chosen] = np.arange(len(chosen))
        rank = ranks.take(self.positions.which)
        return self.positions._replace(which=rank).take(np.flatnonzero(rank >= 0))


class PairTable:
    """All pairs. Those that can be the next to be merged are active; others wait until those are used up.

    A place where a pair no longer stands is taken out when the pair is counted anew. Until then its count is
    an upper bound.

    Args:
        pretokens: the corpus.
        pairs: all pairs of it.
    """

    def __init__(self, pretokens: LinkedPretokens, pairs: GroupedPairs) -> None:
        self._pretokens = pretokens
        self._pool = np.empty(2 * len(pairs.at) + 1024, np.int32)
        self._used = 0
        self._active = _make_empty_pairs()
        self._waiting = [_make_empty_pairs()]
        self._threshold = np.iinfo(np.int64).max
        """No pair that waits is more frequent than this less one."""
        self._high = self._threshold
        """No pair that is less frequent was looked at."""
        self._add(pairs)

    def add(self, keys: NDArray[np.int64], at: Positions, *, may_exist: bool = False) -> None:
        """Pairs that came up.

        Args:
            keys: the pair of each place.
            at: the places.
            may_exist: whether some of the pairs may be here already.
        """
        if may_exist:
            keys, at = self._merge_existing(keys, at)
        self._add(group_positions(self._pretokens, keys, at))

    def best(self, width: int) -> BestPairs | None:
        """The pairs that are certainly the most frequent, those of equal counts all of them or none.

        Args:
            width: how many to look at, at first.
        """
        looked_at = 0
        while True:
            bound = self._active.bound
            if not len(bound) or bound.max() < self._threshold:
                if not self._promote():
                    return None
                continue
            counted, minimum = self._count_top(min(width, len(bound)))
            looked_at += counted.looked_at
            certain = counted.counts >= minimum
            if certain.any():
                return counted._replace(counts=np.where(certain, counted.counts, 0), looked_at=looked_at)
            width *= 2

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Pairs that were merged: they stand nowhere any more."""
        self._active.bound[rows] = 0

    def sort_by_frequency(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Callable[[int], Positions]]:
        """All pairs: their keys, the most that each can stand, falling, and where the pair of a row stood."""
        pairs = _concatenate_pairs([self._active, *self._waiting])
        pairs = pairs.take(np.flatnonzero(pairs.bound))
        pairs = pairs.take(np.argsort(-pairs.bound, kind="stable"))
        pool = self._pool

        def get_positions(row: int) -> Positions:
            return pool[pairs.start[row] : pairs.start[row] + pairs.length[row]]

        return pairs.key, pairs.bound, get_positions

    def _add(self, pairs: GroupedPairs) -> None:
        start = self._append_to_pool(pairs.at)
        first = np.cumsum(pairs.length) - pairs.length
        new = _Pairs(pairs.keys, pairs.bound, first + start, pairs.length)
        rising = new.bound >= self._threshold
        if rising.any():
            self._active = _concatenate_pairs([self._active, new.take(rising)])
            new = new.take(~rising)
        self._waiting.append(new)

    def _count_top(self, top: int) -> tuple[BestPairs, int]:
        """The pairs of the highest bounds, counted; and the least count that no other pair can have.

        Args:
            top: how many to count; more, where others have the same bound.
        """
        rows, minimum = self._find_highest(top)
        pairs = self._active
        picked = pairs.take(rows)
        at = self._pool.take(concatenate_ranges(picked.start, picked.length))
        which = np.repeat(np.arange(len(rows)), picked.length)
        positions = self._pretokens.find_current(at, which, picked.key)
        weight = self._pretokens.weight.take(positions.at)
        count = np.bincount(positions.which, weight, minlength=len(rows)).astype(np.int64)
        pairs.bound[rows] = count
        pairs.length[rows] = length = np.bincount(positions.which, minlength=len(rows))
        self._pool[concatenate_ranges(picked.start, length)] = (
            positions.at
        )  # the others need not be looked at again
        return BestPairs(picked.key, count, rows, positions, int(picked.length.sum())), minimum

    def _find_highest(self, top: int) -> tuple[NDArray[np.int64], int]:
        """Rows of the highest bounds, those of equal ones all or none; and the least bound among them."""
        high = np.flatnonzero(self._active.bound >= self._high)
        if len(high) < top and self._high > self._threshold:
            self._lower_high(top)
            high = np.flatnonzero(self._active.bound >= self._high)
        if len(high) <= top:
            return high, self._high
        bounds = self._active.bound.take(high)
        minimum = np.partition(bounds, len(high) - top)[len(high) - top]
        return high.take(np.flatnonzero(bounds >= minimum)), int(minimum)

    def _lower_high(self, top: int) -> None:
        """Look at more pairs from now on: so many that this need not be done again for some steps."""
        self._active = self._active.take(np.flatnonzero(self._active.bound))
        bounds = self._active.bound
        limit = min(_HIGH_FACTOR * top, len(bounds))
        self._high = max(
            int(np.partition(bounds, len(bounds) - limit)[len(bounds) - limit]), self._threshold, 1
        )

    def _promote(self) -> bool:
        """Make some of those that wait active; whether there is any pair left."""
        waiting = _concatenate_pairs(self._waiting)
        if not len(waiting.key):
            lowered, self._threshold = self._threshold > 1, 1
            return lowered and bool(self._active.bound.any())
        limit = min(_MAX_PROMOTED, len(waiting.bound))
        self._threshold = int(np.partition(waiting.bound, -limit)[-limit])
        rising = waiting.bound >= self._threshold
        alive = self._active.bound > 0
        self._active = _concatenate_pairs([self._active.take(alive), waiting.take(rising)])
        self._waiting = [waiting.take(~rising)]
        return True

    def _merge_existing(self, keys: NDArray[np.int64], at: Positions) -> tuple[NDArray[np.int64], Positions]:
        """New places together with the old ones of the same pairs, which are taken out of the table."""
        self._waiting = [_concatenate_pairs(self._waiting)]
        found_keys, found_at = [keys], [at]
        for pairs in (self._active, self._waiting[0]):
            rows = np.flatnonzero(np.isin(pairs.key, keys) & (pairs.bound > 0))
            old = pairs.take(rows)
            at = self._pool.take(concatenate_ranges(old.start, old.length))
            which = np.repeat(np.arange(len(rows)), old.length)
            positions = self._pretokens.find_current(at, which, old.key)
            found_keys.append(old.key.take(positions.which))
            found_at.append(positions.at)
            pairs.bound[rows] = 0
        return np.concatenate(found_keys), np.concatenate(found_at)

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
