"""Counts of pairs in each of several sources, kept up to date while pairs are merged one at a time.

An example with two sources, before and after the merge of l·o::

    pair      English  German      after the merge
    l·o          7        3        0     0
    o·w          5        0        0     0
    lo·w                           5     0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer.bpe.frequent_segments import find_merges_of_pair
from tokjax.trainer.bpe.linked_symbols import (
    REMOVED,
    RIGHT,
    LinkedPretokens,
    Symbols,
    make_pair_key,
    make_symbols,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.trainer.bpe.linked_symbols import Positions
    from tokjax.trainer.pretoken_counts import PretokenCounts


class SourcePairCounts:
    """The count of each pair of adjacent symbols in each of several sources, kept up to date by merges.

    The pre-tokens of all sources are linked in one array, as in `linked_symbols`. A merge changes only the
    counts of the pairs at and beside its positions.

    Args:
        sources: pre-tokens of the sources.

    Attributes:
        rows: the row of each pair in the counts, by its key (`left << ID_BITS | right`).
    """

    def __init__(self, sources: Sequence[PretokenCounts]) -> None:
        parts = list(map(make_symbols, sources))
        columns = zip(*(part[:3] for part in parts), strict=True)
        ids, lengths, counts = map(np.concatenate, columns)
        self._pretokens = LinkedPretokens(Symbols(ids, lengths, counts, 0))
        self._symbols = self._pretokens.symbol.copy()  # contiguous, since each merge searches all of them
        indices = np.repeat(np.arange(len(parts)), [len(part.lengths) for part in parts])
        self._source = np.repeat(indices, lengths + 1)
        self._counts = np.zeros((1024, len(parts)))
        self._keys = np.zeros(1024, np.int64)
        self.rows: dict[int, int] = {}
        self._add(self._pretokens.find_pair_positions(), 1)

    def get_keys(self) -> NDArray[np.int64]:
        """Returns the keys of all pairs, in the order of their rows, `int64`, shape `(num_pairs,)`."""
        return self._keys[: len(self.rows)]

    def get_counts(self) -> NDArray[np.float64]:
        """Returns the count of each pair in each source, `float64`, shape `(num_pairs, num_sources)`."""
        return self._counts[: len(self.rows)]

    def merge(self, pair: int, new: int) -> None:
        """Merges a pair in all sources.

        Args:
            pair: key of the pair.
            new: the symbol that it becomes.
        """
        pretokens = self._pretokens
        at = np.flatnonzero(self._symbols == pair >> ID_BITS).astype(np.int32)
        after = pretokens.after[at]
        matches = np.flatnonzero(self._symbols.take(after) == pair & RIGHT)
        merges = find_merges_of_pair(at.take(matches), after.take(matches), new)
        # Every pair that has one of the merged symbols disappears. `unique`, since merges can be adjacent.
        touched = np.unique(np.concatenate([pretokens.before[merges.at], merges.at, merges.removed]))
        is_pair = (self._symbols.take(touched) >= 0) & (self._symbols.take(pretokens.after[touched]) >= 0)
        self._add(touched[is_pair], -1)
        formed = pretokens.merge(merges)
        self._symbols[merges.at], self._symbols[merges.removed] = new, REMOVED
        self._add(formed.at, 1)

    def _add(self, at: Positions, sign: int) -> None:
        """Adds the pairs at positions to the counts, or subtracts them."""
        pretokens = self._pretokens
        keys = make_pair_key(self._symbols.take(at), self._symbols.take(pretokens.after[at]))
        pairs, which = np.unique(keys, return_inverse=True)
        found = (self.rows.setdefault(pair, len(self.rows)) for pair in pairs.tolist())
        rows = np.fromiter(found, np.int64, len(pairs))
        missing = len(self.rows) - len(self._keys)
        num_sources = self._counts.shape[1]
        if missing > 0:
            num_more = max(missing, len(self._keys))
            self._keys = np.concatenate([self._keys, np.zeros(num_more, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros((num_more, num_sources))])
        self._keys[rows] = pairs
        # Sums of whole numbers below 2**53 are exact.
        cells = which * num_sources + self._source.take(at)
        sums = np.bincount(cells, pretokens.get_weights(at), len(pairs) * num_sources)
        self._counts[rows] += sign * sums.reshape(len(pairs), num_sources)
