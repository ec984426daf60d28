"""All different words of a corpus, laid end to end as symbols that are linked to their neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges
from tokjax.core.vocabulary import ID_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer.pretoken_counts import PretokenCounts

    Ids = NDArray[np.int32]
    Positions = NDArray[np.int32]

RIGHT = (1 << ID_BITS) - 1
"""The bits of a pair's number that are its second id."""
_BETWEEN_PRETOKENS, SWALLOWED = -1, -2


class Symbols(NamedTuple):
    """Words as they are at some time of training, those of one symbol left out.

    Attributes:
        ids: the symbols of all words, end to end, `int32`.
        lengths: how many symbols each word has, at least two, `int64`.
        counts: how often each word stands in the corpus, `int64`.
        num_single: how often words of one symbol stand in the corpus.
    """

    ids: Ids
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]
    num_single: int


def make_symbols(counts: PretokenCounts) -> Symbols:
    """The bytes of counted words."""
    long = counts.lengths > 1
    starts = (np.cumsum(counts.lengths) - counts.lengths)[long]
    ids = counts.data.take(concatenate_ranges(starts, counts.lengths[long])).astype(np.int32)
    return Symbols(ids, counts.lengths[long], counts.counts[long], int(counts.counts[~long].sum()))


class PairPositions(NamedTuple):
    """Where pairs stand.

    Attributes:
        at: the places of their first symbols.
        after: the places of their second symbols.
        which: the pair of each place, a number.
    """

    at: Positions
    after: Positions
    which: NDArray[np.int64]

    def take(self, selected: NDArray[np.int64]) -> PairPositions:
        """Some of the places."""
        return PairPositions(self.at.take(selected), self.after.take(selected), self.which.take(selected))


class LinkedPretokens:
    """Symbols, one a place; a place whose symbol was merged into the one before it is skipped by the links.

    Attributes:
        symbol: ids, and negative numbers where there is none, shape `(positions,)`.
        after: the next place that has a symbol, or the end of the word.
        before: the same backwards.
        weight: how often the word of a place stands in the corpus, `int64`.
    """

    def __init__(self, symbols: Symbols) -> None:
        lengths = symbols.lengths
        stops = np.cumsum(lengths + 1)
        size = int(stops[-1]) if len(stops) else 1
        self.symbol: Ids = np.full(size, _BETWEEN_PRETOKENS, np.int32)
        self.symbol[concatenate_ranges(stops - lengths - 1, lengths)] = symbols.ids
        self.after: Positions = np.arange(1, size + 1, dtype=np.int32)
        self.before: Positions = np.arange(-1, size - 1, dtype=np.int32)
        self.after[-1] = self.before[0] = size - 1  # a place between words
        self.weight = np.zeros(size, np.int64)
        if len(stops):
            self.weight[:] = np.repeat(symbols.counts, lengths + 1)
        self._num_single = symbols.num_single
        self._is_fresh = np.zeros(size, bool)

    def as_symbols(self) -> Symbols:
        """The words as they are now."""
        ends = np.flatnonzero(self.symbol == _BETWEEN_PRETOKENS)
        find_current = np.flatnonzero(self.symbol >= 0)
        lengths = np.diff(np.searchsorted(find_current, ends), prepend=0)
        counts = self.weight[ends]
        long = lengths > 1
        selected = np.repeat(long, lengths)
        num_single = int(counts[lengths == 1].sum()) + self._num_single
        return Symbols(self.symbol[find_current[selected]], lengths[long], counts[long], num_single)

    def find_pair_positions(self) -> Positions:
        """Where a pair of symbols stands, before any is merged here."""
        return np.flatnonzero((self.symbol[:-1] >= 0) & (self.symbol[1:] >= 0)).astype(np.int32)

    def find_current(
        self, at: Positions, which: NDArray[np.int64], pairs: NDArray[np.int64]
    ) -> PairPositions:
        """Those of the places of some pairs where the pair still stands.

        Args:
            at: the places.
            which: the pair of each place, a row of `pairs`.
            pairs: as of `make_pair_key`.
        """
        left, right = split_pair_key(pairs)
        after = self.after.take(at)
        same = self.symbol.take(at) == left.take(which)
        same &= self.symbol.take(after) == right.take(which)
        return PairPositions(at, after, which).take(np.flatnonzero(same))

    def merge(self, positions: PairPositions, ids: Ids) -> tuple[NDArray[np.int64], Positions]:
        """Merge the symbols of pairs, no two of which overlap.

        Args:
            positions: where the pairs stand.
            ids: the ids that the pairs become.

        Returns:
            The pairs that this brought forth, `left << ID_BITS | right`, and their places.
        """
        at, swallowed, which = positions
        new = ids.take(which)
        following = self.after.take(swallowed)
        self.symbol[at], self.symbol[swallowed] = new, SWALLOWED
        self.after[at], self.before[following] = following, at
        preceding = self.before.take(at)
        left, right = self.symbol.take(preceding), self.symbol.take(following)
        self._is_fresh[at] = True
        has_left = (left >= 0) & ~self._is_fresh[preceding]  # (else it is the right one of another)
        self._is_fresh[at] = False
        has_right = right >= 0
        keys = [make_pair_key(left, new)[has_left], make_pair_key(new, right)[has_right]]
        return np.concatenate(keys), np.concatenate([preceding[has_left], at[has_right]])

    def num_tokens(self) -> int:
        """How many symbols the corpus has."""
        return int(self.weight[self.symbol >= 0].sum()) + self._num_single


def make_pair_key(left: Ids, right: Ids) -> NDArray[np.int64]:
    """Two ids in one number."""
    return left.astype(np.int64) << ID_BITS | right


def split_pair_key(key: NDArray[np.int64]) -> tuple[Ids, Ids]:
    """The two ids of each number."""
    return (key >> ID_BITS).astype(np.int32), (key & RIGHT).astype(np.int32)
