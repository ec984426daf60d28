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

    from tokjax.trainer.bpe.linked_symbols import LinkedPretokens
    from tokjax.trainer.bpe.pair_table import PairTable


class RarePairs:
    """The pairs that are left, those of high counts in a heap, and all others waiting.

    A pair's count is an upper bound until it comes first; then it is counted anew.

    Args:
        pretokens: the corpus.
        pairs: all pairs of it.
        tie_key: of an id, what rises as its pairs come later among equally frequent ones.
        may_merge: whether a pair may be merged at all.
    """

    def __init__(
        self,
        pretokens: LinkedPretokens,
        pairs: PairTable,
        tie_key: Callable[[int], Any],
        may_merge: Callable[[int], bool],
    ) -> None:
        self._symbol, self._weight = pretokens.symbol.data, pretokens.weight.data
        self._after, self._before = pretokens.after.data, pretokens.before.data
        self._tie_key = tie_key
        self._may_merge = may_merge
        self._keys, bounds, self._get_row_positions = pairs.sort_by_frequency()
        self._negative_bounds = -bounds  # rising, to be searched
        self._by_key = np.argsort(self._keys)
        self._next_row = 0
        self._positions: dict[int, list[int]] = {}
        self._heap: list[tuple[Any, ...]] = []
        self._later: dict[int, list[int]] = defaultdict(list)
        self._level = np.iinfo(np.int64).max
        """Every pair that may be so frequent is in the heap."""

    def best(self, min_frequency: int) -> int | None:
        """The pair to merge next, as of `make_pair_key`, or `None` if none is as frequent as asked for."""
        while True:
            while not self._heap or -self._heap[0][0] < self._level:
                if not self._lower_level():
                    return None
            negative, *_, key = heapq.heappop(self._heap)
            positions = self._find_current(key)
            count = sum(map(self._weight.__getitem__, positions))
            if count > -negative:
                continue  # it was pushed again since, when it got more frequent
            self._positions[key] = positions
            if count < -negative:
                if count:
                    self._push(key, count)
            elif count < min_frequency:
                return None
            else:
                return int(key)

    def merge(self, pair: int, new: int, *, may_exist: bool) -> None:
        """Merge a pair wherever it stands.

        Args:
            pair: as of `make_pair_key`.
            new: the id that it becomes.
            may_exist: whether there may be pairs with that id already.
        """
        symbol, after, before = self._symbol, self._after, self._before
        left, right = pair >> ID_BITS, pair & RIGHT
        new_pairs: dict[int, list[int]] = defaultdict(list)
        for position in sorted(self._positions.pop(pair)):
            swallowed = after[position]
            if symbol[position] != left or symbol[swallowed] != right:
                continue  # it overlaps the one before
            following, preceding = after[swallowed], before[position]
            symbol[position], symbol[swallowed] = new, SWALLOWED
            after[position], before[following] = following, position
            if symbol[preceding] >= 0:
                new_pairs[symbol[preceding] << ID_BITS | new].append(preceding)
            if symbol[following] >= 0:
                new_pairs[new << ID_BITS | symbol[following]].append(position)
        for key, positions in new_pairs.items():
            if not self._may_merge(key):
                continue
            if may_exist:
                positions.extend(self._find_current(key, but=set(positions)))
            self._positions[key] = positions
            self._push(key, sum(map(self._weight.__getitem__, positions)))

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

    def _find_current(self, key: int, but: set[int] | None = None) -> list[int]:
        """Where a pair stands still."""
        left, right = key >> ID_BITS, key & RIGHT
        positions = self._positions.get(key)
        if positions is None:
            at = self._by_key[np.searchsorted(self._keys, key, sorter=self._by_key) :][:1]
            is_present = len(at) and self._keys[at[0]] == key
            positions = self._get_row_positions(int(at[0])).tolist() if is_present else []
        symbol, after = self._symbol, self._after
        return [
            position
            for position in positions
            if symbol[position] == left and symbol[after[position]] == right and not (but and position in but)
        ]
