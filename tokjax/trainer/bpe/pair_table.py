"""Pairs of symbols, each with the places where it stood when it came up, and how often it stands at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import ranges
from tokjax.trainer.bpe.linked_symbols import key_of_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokjax.trainer.bpe.linked_symbols import LinkedWords, PairPlaces, Places

_MOST_PROMOTED = 4000
_HIGH_A_STEP = 8


class _Pairs(NamedTuple):
    """Pairs, one a row.

    Attributes:
        key: as of `key_of_pair`.
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


class Grouped(NamedTuple):
    """Places of pairs, those of one pair together.

    Attributes:
        keys: the pairs, as of `key_of_pair`.
        bound: how often each stands, `int64`.
        length: how many places each has.
        at: the places.
    """

    keys: NDArray[np.int64]
    bound: NDArray[np.int64]
    length: NDArray[np.int64]
    at: Places


def grouped(words: LinkedWords, keys: NDArray[np.int64], at: Places) -> Grouped:
    """Places of pairs, put together.

    Args:
        words: the corpus.
        keys: the pair of each place, as of `key_of_pair`.
        at: the places.
    """
    order = np.argsort(keys)
    keys, at = keys.take(order), at.take(order)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    bound = np.add.reduceat(words.weight.take(at), first) if len(first) else np.zeros(0, np.int64)
    return Grouped(keys.take(first), bound, np.diff(first, append=len(keys)), at)


def grouped_pairs_of_bytes(words: LinkedWords, at: Places) -> Grouped:
    """The same for the places of pairs of bytes, of which there are few: quicker."""
    pairs = (words.symbol.take(at) << 8 | words.symbol.take(at + 1)).astype(np.uint16)
    length = np.bincount(pairs)
    found = np.flatnonzero(length)
    bound = np.bincount(pairs, words.weight.take(at)).take(found).astype(np.int64)
    keys = key_of_pair((found >> 8).astype(np.int32), (found & 0xFF).astype(np.int32))
    return Grouped(keys, bound, length.take(found), at.take(np.argsort(pairs, kind="stable")))


class Best(NamedTuple):
    """The most frequent pairs, counted anew.

    Attributes:
        keys: the pairs, as of `key_of_pair`.
        counts: how often each stands, `int64`.
        rows: where the table has them.
        places: where they stand, in no order.
        looked_at: how many places were looked at to find them.
    """

    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    rows: NDArray[np.int64]
    places: PairPlaces
    looked_at: int

    def places_of(self, chosen: NDArray[np.int64]) -> PairPlaces:
        """Where some of the pairs stand; pair `chosen[i]` is `which == i`."""
        rank_of = np.full(len(self.keys), -1)
        rank_of[chosen] = np.arange(len(chosen))
        rank = rank_of.take(self.places.which)
        return self.places._replace(which=rank).take(np.flatnonzero(rank >= 0))


class PairTable:
    """All pairs. Those that can be the next to be merged are active; others wait until those are used up.

    A place where a pair no longer stands is taken out when the pair is counted anew. Until then its count is
    an upper bound.

    Args:
        words: the corpus.
        pairs: all pairs of it.
    """

    def __init__(self, words: LinkedWords, pairs: Grouped) -> None:
        self._words = words
        self._pool = np.empty(2 * len(pairs.at) + 1024, np.int32)
        self._used = 0
        self._active = _no_pairs()
        self._waiting = [_no_pairs()]
        self._threshold = np.iinfo(np.int64).max
        """No pair that waits is more frequent than this less one."""
        self._high = self._threshold
        """No pair that is less frequent was looked at."""
        self._add(pairs)

    def add(self, keys: NDArray[np.int64], at: Places, *, may_be_known: bool = False) -> None:
        """Pairs that came up.

        Args:
            keys: the pair of each place.
            at: the places.
            may_be_known: whether some of the pairs may be here already.
        """
        if may_be_known:
            keys, at = self._with_known(keys, at)
        self._add(grouped(self._words, keys, at))

    def best(self, width: int) -> Best | None:
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
            counted, least = self._counted(min(width, len(bound)))
            looked_at += counted.looked_at
            certain = counted.counts >= least
            if certain.any():
                return counted._replace(counts=np.where(certain, counted.counts, 0), looked_at=looked_at)
            width *= 2

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Pairs that were merged: they stand nowhere any more."""
        self._active.bound[rows] = 0

    def most_frequent_first(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Callable[[int], Places]]:
        """All pairs: their keys, the most that each can stand, falling, and where the pair of a row stood."""
        pairs = _joined([self._active, *self._waiting])
        pairs = pairs.take(np.flatnonzero(pairs.bound))
        pairs = pairs.take(np.argsort(-pairs.bound, kind="stable"))
        pool = self._pool

        def places_of(row: int) -> Places:
            return pool[pairs.start[row] : pairs.start[row] + pairs.length[row]]

        return pairs.key, pairs.bound, places_of

    def _add(self, pairs: Grouped) -> None:
        start = self._added_to_pool(pairs.at)
        first = np.cumsum(pairs.length) - pairs.length
        new = _Pairs(pairs.keys, pairs.bound, first + start, pairs.length)
        rising = new.bound >= self._threshold
        if rising.any():
            self._active = _joined([self._active, new.take(rising)])
            new = new.take(~rising)
        self._waiting.append(new)

    def _counted(self, top: int) -> tuple[Best, int]:
        """The pairs of the highest bounds, counted; and the least count that no other pair can have.

        Args:
            top: how many to count; more, where others have the same bound.
        """
        rows, least = self._highest(top)
        pairs = self._active
        picked = pairs.take(rows)
        at = self._pool.take(ranges(picked.start, picked.length))
        which = np.repeat(np.arange(len(rows)), picked.length)
        places = self._words.standing(at, which, picked.key)
        weight = self._words.weight.take(places.at)
        count = np.bincount(places.which, weight, minlength=len(rows)).astype(np.int64)
        pairs.bound[rows] = count
        pairs.length[rows] = length = np.bincount(places.which, minlength=len(rows))
        self._pool[ranges(picked.start, length)] = places.at  # the others need not be looked at again
        return Best(picked.key, count, rows, places, int(picked.length.sum())), least

    def _highest(self, top: int) -> tuple[NDArray[np.int64], int]:
        """Rows of the highest bounds, those of equal ones all or none; and the least bound among them."""
        high = np.flatnonzero(self._active.bound >= self._high)
        if len(high) < top and self._high > self._threshold:
            self._lower_high(top)
            high = np.flatnonzero(self._active.bound >= self._high)
        if len(high) <= top:
            return high, self._high
        bounds = self._active.bound.take(high)
        least = np.partition(bounds, len(high) - top)[len(high) - top]
        return high.take(np.flatnonzero(bounds >= least)), int(least)

    def _lower_high(self, top: int) -> None:
        """Look at more pairs from now on: so many that this need not be done again for some steps."""
        self._active = self._active.take(np.flatnonzero(self._active.bound))
        bounds = self._active.bound
        most = min(_HIGH_A_STEP * top, len(bounds))
        self._high = max(
            int(np.partition(bounds, len(bounds) - most)[len(bounds) - most]), self._threshold, 1
        )

    def _promote(self) -> bool:
        """Make some of those that wait active; whether there is any pair left."""
        waiting = _joined(self._waiting)
        if not len(waiting.key):
            lowered, self._threshold = self._threshold > 1, 1
            return lowered and bool(self._active.bound.any())
        most = min(_MOST_PROMOTED, len(waiting.bound))
        self._threshold = int(np.partition(waiting.bound, -most)[-most])
        rising = waiting.bound >= self._threshold
        alive = self._active.bound > 0
        self._active = _joined([self._active.take(alive), waiting.take(rising)])
        self._waiting = [waiting.take(~rising)]
        return True

    def _with_known(self, keys: NDArray[np.int64], at: Places) -> tuple[NDArray[np.int64], Places]:
        """New places together with the old ones of the same pairs, which are taken out of the table."""
        self._waiting = [_joined(self._waiting)]
        found_keys, found_at = [keys], [at]
        for pairs in (self._active, self._waiting[0]):
            rows = np.flatnonzero(np.isin(pairs.key, keys) & (pairs.bound > 0))
            old = pairs.take(rows)
            at = self._pool.take(ranges(old.start, old.length))
            which = np.repeat(np.arange(len(rows)), old.length)
            places = self._words.standing(at, which, old.key)
            found_keys.append(old.key.take(places.which))
            found_at.append(places.at)
            pairs.bound[rows] = 0
        return np.concatenate(found_keys), np.concatenate(found_at)

    def _added_to_pool(self, at: Places) -> int:
        start, stop = self._used, self._used + len(at)
        if stop > len(self._pool):
            self._pool = np.concatenate([self._pool, np.empty(max(len(self._pool) // 2, len(at)), np.int32)])
        self._pool[start:stop] = at
        self._used = stop
        return start


def _no_pairs() -> _Pairs:
    return _Pairs(*(np.zeros(0, np.int64) for _ in range(4)))


def _joined(parts: list[_Pairs]) -> _Pairs:
    return _Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
