"""Sequential BPE training with a heap, which is faster than batches where pairs are rare.

Near the end of training, the remaining pairs are in pre-tokens that occur a few times. Most of their counts
are equal, and a pair that a merge forms is often the next one to be merged. So a batch could merge little at
once.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer.bpe.linked_symbols import REMOVED, RIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax.trainer.bpe.linked_symbols import LinkedPretokens
    from tokjax.trainer.bpe.pair_table import PairTable


class RarePairs:
    """Priority queue of the remaining pairs: the most frequent ones are in a heap, all others wait.

    The count of a pair is an upper bound until the pair is at the top of the heap, where it is counted again.

    Args:
        pretokens: the corpus.
        pairs: all pairs of the corpus.
        tie_key: function that returns the tie-break key of an id. Among equally frequent pairs, the pair with
            the lower keys is merged first.
        may_merge: function that returns whether a pair may be merged at all.
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
        self._negative_bounds = -bounds  # ascending, for `searchsorted`
        self._by_key = np.argsort(self._keys)
        self._next_row = 0
        self._positions: dict[int, list[int]] = {}
        self._heap: list[tuple[Any, ...]] = []
        self._later: dict[int, list[int]] = defaultdict(list)
        self._level = np.iinfo(np.int64).max
        """All pairs whose bounds reach this count are in the heap. The others wait."""

    def pop_best(self, min_frequency: int) -> int | None:
        """Returns the key of the pair to merge next, or `None` if no pair is frequent enough."""
        while True:
            while not self._heap or -self._heap[0][0] < self._level:
                if not self._lower_level():
                    return None
            negative_bound, *_, key = heapq.heappop(self._heap)
            positions = self._find_current(key)
            count = sum(map(self._weight.__getitem__, positions))
            if count > -negative_bound:
                continue  # stale: the pair was pushed again when it became more frequent
            self._positions[key] = positions
            if count < -negative_bound:
                if count:
                    self._push(key, count)
            elif count < min_frequency:
                return None
            else:
                return int(key)

    def merge(self, pair: int, new: int, *, may_exist: bool) -> None:
        """Merges a pair at all its positions.

        Args:
            pair: the key of the pair, as `pop_best` returned it.
            new: the id that the pair becomes.
            may_exist: whether pairs with this id may exist already.
        """
        symbol, after, before = self._symbol, self._after, self._before
        left, right = pair >> ID_BITS, pair & RIGHT
        new_pairs: dict[int, list[int]] = defaultdict(list)
        for position in sorted(self._positions.pop(pair)):
            removed = after[position]
            if symbol[position] != left or symbol[removed] != right:
                continue  # it overlaps the previous position, which was merged
            following, preceding = after[removed], before[position]
            symbol[position], symbol[removed] = new, REMOVED
            after[position], before[following] = following, position
            if symbol[preceding] >= 0:
                new_pairs[symbol[preceding] << ID_BITS | new].append(preceding)
            if symbol[following] >= 0:
                new_pairs[new << ID_BITS | symbol[following]].append(position)
        for key, positions in new_pairs.items():
            if not self._may_merge(key):
                continue
            if may_exist:
                positions.extend(self._find_current(key, exclude=set(positions)))
            self._positions[key] = positions
            self._push(key, sum(map(self._weight.__getitem__, positions)))

    def _push(self, key: int, bound: int) -> None:
        if bound < self._level:
            self._later[bound].append(key)
        else:
            keys = self._tie_key(key >> ID_BITS), self._tie_key(key & RIGHT)
            heapq.heappush(self._heap, (-bound, *keys, key))

    def _lower_level(self) -> bool:
        """Pushes the most frequent waiting pairs to the heap. Returns whether any pair is left."""
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

    def _find_current(self, key: int, exclude: set[int] | None = None) -> list[int]:
        """Returns the recorded positions at which a pair still occurs, except those in `exclude`."""
        left, right = key >> ID_BITS, key & RIGHT
        positions = self._positions.get(key)
        if positions is None:
            rows = self._by_key[np.searchsorted(self._keys, key, sorter=self._by_key) :][:1]
            is_present = len(rows) and self._keys[rows[0]] == key
            positions = self._get_row_positions(int(rows[0])).tolist() if is_present else []
        symbol, after = self._symbol, self._after
        return [
            position
            for position in positions
            if symbol[position] == left
            and symbol[after[position]] == right
            and not (exclude and position in exclude)
        ]
