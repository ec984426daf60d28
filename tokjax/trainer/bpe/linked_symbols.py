"""Linked symbols: the different pre-tokens of a corpus, in one array, with links between neighbours.

All pre-tokens are concatenated, with a separator after each. A merge writes the new symbol at the position of
the left one, marks the right one as removed, and changes two links. Nothing is moved, so positions stay valid
for the whole training. `low`, which occurs 5 times in the corpus, and `lower`, which occurs twice::

    position    0   1   2   3   4   5   6   7   8   9
    symbol      l   o   w   |   l   o   w   e   r   |       | is a separator
    after       1   2   3   4   5   6   7   8   9   9
    before      9   0   1   2   3   4   5   6   7   8
    weight      5   5   5   5   2   2   2   2   2   2

After the merge of o·w at the positions 1 and 5, for all occurrences at once::

    symbol      l   ow  x   |   l   ow  x   e   r   |       x is removed
    after       1   3*  3   4   5   7*  7   8   9   9       * changed
    before      9   0   1   1*  3   4   5   5*  7   8

    pairs formed by the merge: l·ow at 0 and 4, ow·e at 5

The count of a pair is the sum of the weights at its positions.

The four numbers of a position are a record: they are next to each other in memory, since a read from a random
position takes far longer than one from the position beside it. Weights can need more than 32 bits, so the
record has the index of the weight among the different weights. There are few of them.

See docs/performance.md, sections "Batched BPE training" and "Data structures of the trainer".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import find_distinct
from tokjax.core.vocabulary import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokjax.trainer.pretoken_counts import PretokenCounts

    Ids = NDArray[np.int32]
    Positions = NDArray[np.int32]
    Links = NDArray[np.int32]
    """Records of positions, shape `(n, 4)`; see `_SYMBOL`."""

POSITION_BITS = 31
"""Number of bits of a position, which is an `int32`."""
RIGHT = (1 << ID_BITS) - 1
"""Mask of the bits of a pair's key that are its right id."""
_SYMBOL, _AFTER, _BEFORE, _WEIGHT_INDEX = range(4)
"""Columns of the records of positions."""
_BLOCK = 1 << 13
"""Number of positions that are read or written together. The parts of memory with their records, of 64 bytes
each, fit in the processor's cache."""
_SEPARATOR, REMOVED = -1, -2
"""Markers in the array of symbols: after the last symbol of a pre-token, and where a right symbol was
merged."""


class Symbols(NamedTuple):
    """The symbols of the different pre-tokens at some step of training, without pre-tokens of one symbol.

    Attributes:
        ids: the symbols of all pre-tokens, concatenated, `int32`, shape `(symbols,)`.
        lengths: number of symbols of each pre-token, at least two, `int64`, shape `(pretokens,)`.
        counts: number of occurrences of each pre-token in the corpus, `int64`, shape `(pretokens,)`.
        num_single: number of occurrences in the corpus of pre-tokens that are one symbol.
    """

    ids: Ids
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]
    num_single: int


def drop_single(ids: Ids, lengths: NDArray[np.int64], counts: NDArray[np.int64]) -> Symbols:
    """Returns the symbols of pre-tokens without those that are one symbol.

    Args:
        ids: the symbols of all pre-tokens, concatenated, `int32`, shape `(symbols,)`.
        lengths: number of symbols of each pre-token, `int64`, shape `(pretokens,)`.
        counts: number of occurrences of each pre-token in the corpus, `int64`, shape `(pretokens,)`.
    """
    is_long = lengths > 1
    num_single = int(counts[~is_long].sum())
    return Symbols(ids[np.repeat(is_long, lengths)], lengths[is_long], counts[is_long], num_single)


def make_symbols(counts: PretokenCounts) -> Symbols:
    """Returns the bytes of counted pre-tokens as symbols."""
    return drop_single(counts.data.astype(np.int32), counts.lengths, counts.counts)


class PairPositions(NamedTuple):
    """Positions where pairs occur, grouped by pair.

    Attributes:
        at: position of the left symbol, `int32`, shape `(n,)`.
        links: the record of the left symbol in `LinkedPretokens`, `int32`, shape `(n, 4)`.
        lengths: number of positions of each pair, `int64`, shape `(pairs,)`.
    """

    at: Positions
    links: Links
    lengths: NDArray[np.int64]

    @property
    def after(self) -> Positions:
        """Position of the right symbol."""
        return self.links[:, _AFTER]

    @property
    def before(self) -> Positions:
        """Position of the symbol or separator before the left symbol."""
        return self.links[:, _BEFORE]

    def select(self, indices: NDArray[np.int64]) -> PairPositions:
        """Returns the positions at some indices, which must be ascending."""
        return PairPositions(
            self.at.take(indices), self.links.take(indices, axis=0), count_selected(self.lengths, indices)
        )


class Merges(NamedTuple):
    """Positions that become new symbols, and positions that are removed.

    A new symbol can replace two symbols, or more if several merges are applied together.

    Attributes:
        at: positions of the new symbols, `int32`, shape `(new,)`.
        ids: the new symbols, `int32`, shape `(new,)`.
        removed: positions of the other symbols that become part of a new one, `int32`.
        last: position of the last symbol that becomes part of each new one, `int32`, shape `(new,)`.
    """

    at: Positions
    ids: Ids
    removed: Positions
    last: Positions


class FormedPairs(NamedTuple):
    """The pairs that merges form, in no particular order.

    Attributes:
        keys: the pair at each position, as `make_pair_key` returns it, `int64`, shape `(n,)`.
        at: position of the left symbol, `int32`, shape `(n,)`.
        weights: number of occurrences in the corpus of the pre-token at each position, `int64`, shape `(n,)`.
    """

    keys: NDArray[np.int64]
    at: Positions
    weights: NDArray[np.int64]

    def take(self, indices: NDArray[Any]) -> FormedPairs:
        """Returns the pairs at the indices, or those of a mask."""
        return FormedPairs(*(column[indices] for column in self))


class LinkedPretokens:
    """The symbols of all pre-tokens, linked to their neighbours. The links skip removed positions.

    The arrays are columns of the records. Read them as `symbol[indices]`: `symbol.take(indices)` copies the
    whole column.

    Args:
        symbols: the pre-tokens.

    Attributes:
        symbol: id of the symbol at each position, `int32`, shape `(positions,)`. Negative at separators and
            removed positions.
        after: position of the next symbol, or of the separator after the pre-token, `int32`.
        before: position of the previous symbol, or of the separator before the pre-token, `int32`.
    """

    def __init__(self, symbols: Symbols) -> None:
        lengths, counts = symbols.lengths, symbols.counts
        if not len(lengths):  # there is at least one separator, so that all links are valid
            lengths = counts = np.zeros(1, np.int64)
        stops = np.cumsum(lengths + 1)
        size = int(stops[-1])
        is_symbol = np.ones(size, bool)
        is_symbol[stops - 1] = False
        symbol = np.full(size, _SEPARATOR, np.int32)
        symbol[is_symbol] = symbols.ids
        self._weights = find_distinct(counts)
        index = np.searchsorted(self._weights, counts).astype(np.int32)
        weight_index = np.repeat(index, lengths + 1)
        self._links: Links = np.empty((size, 4), np.int32)
        for block in _iter_blocks(size):
            links = self._links[block]
            at = np.arange(block.start, block.start + len(links), dtype=np.int32)
            links[:, _SYMBOL], links[:, _WEIGHT_INDEX] = symbol[block], weight_index[block]
            links[:, _AFTER], links[:, _BEFORE] = at + 1, at - 1
        self.symbol: Ids = self._links[:, _SYMBOL]
        self.after: Positions = self._links[:, _AFTER]
        self.before: Positions = self._links[:, _BEFORE]
        self.after[-1] = self.before[0] = size - 1  # the last separator is also before the first pre-token
        self._num_single = symbols.num_single

    def get_weights(self, at: NDArray[np.integer]) -> NDArray[np.int64]:
        """Returns the number of occurrences in the corpus of the pre-token at each position, `int64`."""
        weights: NDArray[np.int64] = self._weights.take(self._links[at, _WEIGHT_INDEX])
        return weights

    def get_link_weights(self, links: Links) -> NDArray[np.int64]:
        """Returns the same as `get_weights` for the records of positions, which were read before."""
        return self._weights.take(links[:, _WEIGHT_INDEX])

    def find_pair_positions(self) -> Positions:
        """Returns the positions of all pairs, before the first merge, `int32`."""
        is_symbol = self.symbol >= 0
        return np.flatnonzero(is_symbol[:-1] & is_symbol[1:]).astype(np.int32)

    def find_current(
        self, at: Positions, lengths: NDArray[np.int64], pairs: NDArray[np.int64]
    ) -> PairPositions:
        """Returns the recorded positions at which the pair still occurs.

        Args:
            at: recorded positions of pairs, grouped by pair, `int32`, shape `(n,)`.
            lengths: number of positions of each pair, `int64`, shape `(pairs,)`.
            pairs: keys of the pairs, as `make_pair_key` returns them, `int64`, shape `(pairs,)`.
        """
        left, right = (np.repeat(ids, lengths) for ids in split_pair_key(pairs))
        found, links = [np.zeros(0, np.int64)], [self._links[:0]]
        for block in _iter_blocks(len(at)):
            read = self._links.take(at[block], axis=0)
            # A removed left symbol matches no id, and a changed neighbour has another id: no need to track
            # merges.
            same = np.flatnonzero(read[:, _SYMBOL] == left[block])
            read = read.take(same, axis=0)
            selected = np.flatnonzero(self.symbol[read[:, _AFTER]] == right[block].take(same))
            found.append(same.take(selected) + block.start)
            links.append(read.take(selected, axis=0))
        indices = np.concatenate(found)
        return PairPositions(at.take(indices), np.concatenate(links), count_selected(lengths, indices))

    def merge(self, merges: Merges, first_new: int | None = None) -> FormedPairs:
        """Replaces symbols by new ones, at all given positions at once.

        Args:
            merges: the positions and the new symbols.
            first_new: the lowest id of the new symbols; `None` if the corpus may have one of them already.

        Returns:
            The pairs that the merges form.
        """
        at, new, removed, last = merges
        for block in _iter_blocks(max(len(at), len(removed))):
            following = self.after[last[block]]
            self.symbol[removed[block]] = REMOVED
            self.symbol[at[block]] = new[block]
            self.after[at[block]], self.before[following] = following, at[block]
        formed = [FormedPairs(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))]
        merged = np.sort(at) if first_new is None else at
        for block in _iter_blocks(len(at)):
            links = self._links.take(at[block], axis=0)
            preceding, weights = links[:, _BEFORE], self.get_link_weights(links)
            left, right = self.symbol[preceding], self.symbol[links[:, _AFTER]]
            # A pair of two new symbols would be reported twice: as the right pair of the one, and as the left
            # pair of the other. Only the first is kept.
            if first_new is None:
                is_new = merged.take(np.searchsorted(merged, preceding), mode="clip") == preceding
            else:
                is_new = left >= first_new
            has_left, has_right = np.flatnonzero((left >= 0) & ~is_new), np.flatnonzero(right >= 0)
            formed += [
                FormedPairs(make_pair_key(left, new[block]), preceding, weights).take(has_left),
                FormedPairs(make_pair_key(new[block], right), at[block], weights).take(has_right),
            ]
        return FormedPairs(*map(np.concatenate, zip(*formed, strict=True)))

    def count_tokens(self) -> int:
        """Returns the number of symbols of the whole corpus."""
        return int(self.get_weights(np.flatnonzero(self.symbol >= 0)).sum()) + self._num_single


def count_selected(lengths: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns how many of the selected values are in each group.

    Args:
        lengths: number of values of each group, `int64`, shape `(groups,)`.
        indices: indices of the selected values, ascending, `int64`.
    """
    stops = np.searchsorted(indices, np.cumsum(lengths))
    stops[1:] -= stops[:-1]
    return stops


def sum_groups(values: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the sum of each group of values.

    Args:
        values: the values of all groups, concatenated, `int64`.
        lengths: number of values of each group, `int64`, shape `(groups,)`.
    """
    sums = np.zeros(len(lengths), np.int64)
    nonempty = np.flatnonzero(lengths)
    if len(nonempty):
        starts = np.cumsum(lengths) - lengths
        sums[nonempty] = np.add.reduceat(values, starts.take(nonempty))
    return sums


def _iter_blocks(size: int) -> Iterator[slice]:
    """Yields slices of an array of positions.

    The records of a slice are read from memory once: they are still in the processor's cache when they, or
    those beside them, are read or written again.
    """
    return (slice(start, start + _BLOCK) for start in range(0, size, _BLOCK))


def make_pair_key(left: Ids, right: Ids) -> NDArray[np.int64]:
    """Returns the keys of pairs: both ids in one number, `left << ID_BITS | right`."""
    return left.astype(np.int64) << ID_BITS | right


def split_pair_key(key: NDArray[np.int64]) -> tuple[Ids, Ids]:
    """Returns the left and right ids of pair keys."""
    return (key >> ID_BITS).astype(np.int32), (key & RIGHT).astype(np.int32)
