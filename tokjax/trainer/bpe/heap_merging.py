"""Merging one pair at a time, with a heap: quicker than arrays where pairs are rare.

Of words that stand in the corpus a few times, the pairs are all equally frequent, and what a merge brings
forth is often the next to be merged: there is no prefix to merge together.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer.bpe.linked_symbols import RIGHT, SWALLOWED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax.trainer.bpe.linked_symbols import LinkedWords
    from tokjax.trainer.bpe.pair_table import PairTable


class RarePairs:
    """The pairs that are left, those of high counts in a heap, and all others waiting.

    A pair's count is an upper bound until it comes first; then it is counted anew.

    Args:
        words: the corpus.
        pairs: all pairs of it.
        tie_key: of an id, what rises as its pairs come later among equally frequent ones.
        may_merge: whether a pair may be merged at all.
    """

    def __init__(
        self,
        words: LinkedWords,
        pairs: PairTable,
        tie_key: Callable[[int], Any],
        may_merge: Callable[[int], bool],
    ) -> None:
        self._symbol, self._weight = words.symbol.data, words.weight.data
        self._after, self._before = words.after.data, words.before.data
        self._tie_key = tie_key
        self._may_merge = may_merge
        self._keys, bounds, self._places_of_row = pairs.most_frequent_first()
        self._negative_bounds = -bounds  # rising, to be searched
        self._by_key = np.argsort(self._keys)
        self._next_row = 0
        self._places: dict[int, list[int]] = {}
        self._heap: list[tuple[Any, ...]] = []
        self._later: dict[int, list[int]] = defaultdict(list)
        self._level = np.iinfo(np.int64).max
        """Every pair that may be so frequent is in the heap."""

    def best(self, min_frequency: int) -> int | None:
        """The pair to merge next, as of `key_of_pair`, or `None` if none is as frequent as asked for."""
        while True:
            while not self._heap or -self._heap[0][0] < self._level:
                if not self._lower_level():
                    return None
            negative, *_, key = heapq.heappop(self._heap)
            places = self._standing(key)
            count = sum(map(self._weight.__getitem__, places))
            if count > -negative:
                continue  # it was pushed again since, when it got more frequent
            self._places[key] = places
            if count < -negative:
                if count:
                    self._push(key, count)
            elif count < min_frequency:
                return None
            else:
                return int(key)

    def merge(self, pair: int, new: int, *, is_known: bool) -> None:
        """Merge a pair wherever it stands.

        Args:
            pair: as of `key_of_pair`.
            new: the id that it becomes.
            is_known: whether there may be pairs with that id already.
        """
        symbol, after, before = self._symbol, self._after, self._before
        left, right = pair >> ID_BITS, pair & RIGHT
        born: dict[int, list[int]] = defaultdict(list)
        for place in sorted(self._places.pop(pair)):
            swallowed = after[place]
            if symbol[place] != left or symbol[swallowed] != right:
                continue  # it overlaps the one before
            following, preceding = after[swallowed], before[place]
            symbol[place], symbol[swallowed] = new, SWALLOWED
            after[place], before[following] = following, place
            if symbol[preceding] >= 0:
                born[symbol[preceding] << ID_BITS | new].append(preceding)
            if symbol[following] >= 0:
                born[new << ID_BITS | symbol[following]].append(place)
        for key, places in born.items():
            if not self._may_merge(key):
                continue
            if is_known:
                places.extend(self._standing(key, but=set(places)))
            self._places[key] = places
            self._push(key, sum(map(self._weight.__getitem__, places)))

    def _push(self, key: int, bound: int) -> None:
        if bound < self._level:
            self._later[bound].append(key)
        else:
            keys = self._tie_key(key >> ID_BITS), self._tie_key(key & RIGHT)
            heapq.heappush(self._heap, (-bound, *keys, key))

    def _lower_level(self) -> bool:
        """Push the most frequent pairs that wait; whether there are any."""
        waiting = (-self._negative_bounds[self._next_row : self._next_row + 1]).tolist()
        self._level = max([*waiting, *self._later, *(-entry[0] for entry in self._heap[:1])], default=0)
        if not self._level:
            return False
        stop = int(np.searchsorted(self._negative_bounds, -self._level, "right"))
        keys = self._keys[self._next_row : stop].tolist() + self._later.pop(self._level, [])
        self._next_row = max(stop, self._next_row)
        for key in keys:
            self._push(key, self._level)
        return True

    def _standing(self, key: int, but: set[int] | None = None) -> list[int]:
        """Where a pair stands still."""
        left, right = key >> ID_BITS, key & RIGHT
        places = self._places.get(key)
        if places is None:
            at = self._by_key[np.searchsorted(self._keys, key, sorter=self._by_key) :][:1]
            known = len(at) and self._keys[at[0]] == key
            places = self._places_of_row(int(at[0])).tolist() if known else []
        symbol, after = self._symbol, self._after
        return [
            place
            for place in places
            if symbol[place] == left and symbol[after[place]] == right and not (but and place in but)
        ]
