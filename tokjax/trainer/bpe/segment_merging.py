"""Sequential BPE training on the distinct frequent segments.

The most frequent pair is merged, then the next one, as the rule of BPE training says. This is a loop in
Python, but over few symbols: a pair that is alone in all its segments only takes its turn, and of the other
segments each different one is merged once. An example, with the minimum 6 and the segments `l o w` (7 times)
and `n e w est` (6)::

    merge      count   segments after it
    o·w        7       l ow            n e w est         l·o does not occur any more
    l·ow       7       low             n e w est         a pair that the previous merge formed
    w·est      6       low             n e west          e·w does not occur any more
    n·e        6       low             ne west
    ne·west    6       low             newest

See docs/performance.md, section "Batched BPE training".
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from operator import neg
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core.ragged import concatenate_ranges
from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer.bpe.linked_symbols import REMOVED, RIGHT, make_pair_key, split_pair_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from tokjax.trainer.bpe.frequent_segments import DistinctSegments, FrequentSegments
    from tokjax.trainer.bpe.linked_symbols import Ids


class SegmentMerger:
    """The distinct frequent segments, and a queue of their frequent pairs.

    The symbols are linked as in `linked_symbols`, in Python lists.

    Args:
        segments: the frequent segments.
        keys: the frequent pairs, as `make_pair_key` returns them.
        counts: the count of each pair.
        minimum: the count that makes a pair frequent.
        tie_keys: the tie-break key of each id. Among equally frequent pairs, the pair with the lower keys is
            merged first.

    Attributes:
        merged: the id that each merged pair became, by its key.
        rare: the counts of the pairs that are not frequent any more, by key.
    """

    def __init__(
        self,
        segments: FrequentSegments,
        keys: list[int],
        counts: list[int],
        minimum: int,
        tie_keys: Mapping[int, Any],
    ) -> None:
        self.merged: dict[int, int] = {}
        self.rare: dict[int, int] = {}
        self._minimum = minimum
        self._tie_keys = tie_keys
        self._alone_counts = dict(zip(keys, segments.alone_counts.tolist(), strict=True))
        self._link(segments.distinct)
        # The queue has two parts: the frequent pairs of the beginning, sorted once, and a heap of those that
        # are new or have become rarer. Most pairs are only ever in the first, which is faster.
        entries = self._make_entries(keys, counts)
        self._sorted = sorted(entries, reverse=True)  # the best pair is last, and is popped first
        self._heap: list[tuple[Any, ...]] = []

    def merge_frequent(self, record: Callable[[int], tuple[int, bool]]) -> None:
        """Merges the most frequent pair, again and again, until no pair is frequent any more.

        Args:
            record: function of the key of the pair to merge next, which returns the id that the pair becomes,
                and whether it is the last pair to merge.
        """
        ordered, heap, positions_of = self._sorted, self._heap, self._positions
        is_last = False
        while (ordered or heap) and not is_last:
            entry = heapq.heappop(heap) if heap and (not ordered or heap[0] < ordered[-1]) else ordered.pop()
            key: int = entry[-1]
            if key not in positions_of:  # it is alone wherever it occurs, so its count has not changed
                self.merged[key], is_last = record(key)
                continue
            positions_of[key] = positions = self._find_current(key)
            count = self._alone_counts.get(key, 0) + sum(map(self._weight.__getitem__, positions))
            if count == -entry[0]:
                self.merged[key], is_last = record(key)
                self._add_formed(self._merge_positions(key, self.merged[key]))
            elif count >= self._minimum:
                heapq.heappush(heap, (-count, *entry[1:]))
            else:
                self.rare[key] = count

    def _make_entries(self, keys: list[int], counts: list[int]) -> Iterator[tuple[Any, ...]]:
        """Returns the entries of pairs in the queue. The best pair has the lowest entry."""
        tie_keys = (map(self._tie_keys.__getitem__, ids.tolist()) for ids in split_pair_key(np.array(keys)))
        return zip(map(neg, counts), *tie_keys, keys, strict=True)

    def _add_formed(self, formed: Mapping[int, list[int]]) -> None:
        """Adds the pairs that a merge has formed to the queue, if they are frequent."""
        for key, positions in formed.items():
            count = sum(map(self._weight.__getitem__, positions))
            if count >= self._minimum:
                self._positions[key] = positions
                entry = (-count, self._tie_keys[key >> ID_BITS], self._tie_keys[key & RIGHT], key)
                heapq.heappush(self._heap, entry)

    def _merge_positions(self, pair: int, new: int) -> dict[int, list[int]]:
        """Merges a pair at its positions. Returns the pairs that this forms, with their positions."""
        symbol, after, before = self._symbol, self._after, self._before
        left, right = pair >> ID_BITS, pair & RIGHT
        formed: dict[int, list[int]] = defaultdict(list)
        for position in sorted(self._positions.pop(pair)):
            removed = after[position]
            if symbol[position] != left or symbol[removed] != right:
                continue  # it overlaps the previous position, which was merged
            following, preceding = after[removed], before[position]
            symbol[position], symbol[removed] = new, REMOVED
            after[position], before[following] = following, position
            if symbol[preceding] >= 0:
                formed[symbol[preceding] << ID_BITS | new].append(preceding)
            if symbol[following] >= 0:
                formed[new << ID_BITS | symbol[following]].append(position)
        return formed

    def get_ids(self) -> Ids:
        """Returns the symbols of the distinct segments, concatenated, `REMOVED` where a symbol was merged."""
        return np.array(self._symbol, np.int32).take(self._slots)

    def _link(self, distinct: DistinctSegments) -> None:
        """Links the symbols of the segments, and records the positions of their pairs."""
        stops = np.cumsum(distinct.lengths + 1)
        size = int(stops[-1]) if len(stops) else 0
        self._slots: NDArray[np.int64] = concatenate_ranges(stops - distinct.lengths - 1, distinct.lengths)
        symbol = np.full(size, -1, np.int32)  # there is a separator after each segment
        symbol[self._slots] = distinct.ids
        at = np.flatnonzero((symbol[:-1] >= 0) & (symbol[1:] >= 0))
        self._symbol: list[int] = symbol.tolist()
        self._after = list(range(1, size + 1))
        self._before = list(range(-1, size - 1))  # -1 is the last separator
        self._weight = np.repeat(distinct.counts, distinct.lengths + 1).tolist()
        self._positions: dict[int, list[int]] = defaultdict(list)
        for key, position in zip(
            make_pair_key(symbol[at], symbol[at + 1]).tolist(), at.tolist(), strict=True
        ):
            self._positions[key].append(position)
        self._positions.default_factory = None

    def _find_current(self, key: int) -> list[int]:
        """Returns the recorded positions at which a pair still occurs."""
        symbol, after = self._symbol, self._after
        left, right = key >> ID_BITS, key & RIGHT
        return [
            position
            for position in self._positions[key]
            if symbol[position] == left and symbol[after[position]] == right
        ]
