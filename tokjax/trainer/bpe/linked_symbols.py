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

See docs/performance.md, sections "Batched BPE training" and "Data structures of the trainer".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.vocabulary import ID_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer.pretoken_counts import PretokenCounts

    Ids = NDArray[np.int32]
    Positions = NDArray[np.int32]

RIGHT = (1 << ID_BITS) - 1
"""Mask of the bits of a pair's key that are its right id."""
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


def make_symbols(counts: PretokenCounts) -> Symbols:
    """Returns the bytes of counted pre-tokens as symbols."""
    long = counts.lengths > 1
    ids = counts.data[np.repeat(long, counts.lengths)].astype(np.int32)
    return Symbols(ids, counts.lengths[long], counts.counts[long], int(counts.counts[~long].sum()))


class PairPositions(NamedTuple):
    """Positions of pairs; three arrays of the same shape.

    Attributes:
        at: position of the left symbol, `int32`.
        after: position of the right symbol, `int32`.
        which: number of the pair that occurs there, `int64`. The caller numbers the pairs.
    """

    at: Positions
    after: Positions
    which: NDArray[np.int64]

    def take(self, selected: NDArray[np.int64]) -> PairPositions:
        """Returns the positions at the indices `selected`."""
        return PairPositions(self.at.take(selected), self.after.take(selected), self.which.take(selected))


class Merges(NamedTuple):
    """Positions that become new symbols, and positions that are removed.

    A new symbol can replace two symbols, or more if several merges are applied together.

    Attributes:
        at: positions of the new symbols, `int32`, shape `(new,)`.
        ids: the new symbols, `int32`, shape `(new,)`.
        removed: positions of the other symbols that become part of a new one, `int32`.
        following: position of the symbol or separator after each new symbol, `int32`, shape `(new,)`.
    """

    at: Positions
    ids: Ids
    removed: Positions
    following: Positions


class LinkedPretokens:
    """The symbols of all pre-tokens, linked to their neighbours. The links skip removed positions.

    Args:
        symbols: the pre-tokens.

    Attributes:
        symbol: id of the symbol at each position, `int32`, shape `(positions,)`. Negative at separators and
            removed positions.
        after: position of the next symbol, or of the separator after the pre-token, `int32`.
        before: position of the previous symbol, or of the separator before the pre-token, `int32`.
        weight: number of occurrences in the corpus of the pre-token at each position, `int64`.
        scratch: space to mark positions in, `bool`. It is all `False` between two uses.
    """

    def __init__(self, symbols: Symbols) -> None:
        lengths = symbols.lengths
        stops = np.cumsum(lengths + 1)
        size = int(stops[-1]) if len(stops) else 1  # at least one separator, so that all links are valid
        is_symbol = np.ones(size, bool)
        is_symbol[stops - 1 if len(stops) else 0] = False
        self.symbol: Ids = np.full(size, _SEPARATOR, np.int32)
        self.symbol[is_symbol] = symbols.ids
        self.after: Positions = np.arange(1, size + 1, dtype=np.int32)
        self.before: Positions = np.arange(-1, size - 1, dtype=np.int32)
        self.after[-1] = self.before[0] = size - 1  # the last separator is also before the first pre-token
        self.weight = np.repeat(symbols.counts, lengths + 1) if len(stops) else np.zeros(1, np.int64)
        self._num_single = symbols.num_single
        self.scratch = np.zeros(size, bool)

    def as_symbols(self) -> Symbols:
        """Returns the current symbols of all pre-tokens, without links."""
        # A separator has the weight of the pre-token before it.
        ends = np.flatnonzero(self.symbol == _SEPARATOR)
        current = np.flatnonzero(self.symbol >= 0)
        lengths = np.diff(np.searchsorted(current, ends), prepend=0)
        counts = self.weight[ends]
        long = lengths > 1
        selected = np.repeat(long, lengths)
        num_single = int(counts[lengths == 1].sum()) + self._num_single
        return Symbols(self.symbol[current[selected]], lengths[long], counts[long], num_single)

    def find_pair_positions(self) -> Positions:
        """Returns the positions of all pairs, before the first merge, `int32`."""
        is_symbol = self.symbol >= 0
        return np.flatnonzero(is_symbol[:-1] & is_symbol[1:]).astype(np.int32)

    def find_current(
        self, at: Positions, which: NDArray[np.int64], pairs: NDArray[np.int64]
    ) -> PairPositions:
        """Returns the recorded positions at which the pair still occurs.

        Args:
            at: recorded positions of pairs, `int32`, shape `(n,)`.
            which: the pair of each position, an index into `pairs`, `int64`, shape `(n,)`.
            pairs: keys of the pairs, as `make_pair_key` returns them.
        """
        left, right = split_pair_key(pairs)
        after = self.after.take(at)
        # A removed left symbol matches no id, and a changed neighbour has another id: no need to track
        # merges.
        same = self.symbol.take(at) == left.take(which)
        same &= self.symbol.take(after) == right.take(which)
        return PairPositions(at, after, which).take(np.flatnonzero(same))

    def merge(self, merges: Merges) -> tuple[NDArray[np.int64], Positions]:
        """Replaces symbols by new ones, at all given positions at once.

        Returns:
            The pairs that the merges form: the key of each, and the position of its left symbol.
        """
        at, new, removed, following = merges
        self.symbol[removed] = REMOVED
        self.symbol[at] = new
        self.after[at], self.before[following] = following, at
        preceding = self.before.take(at)
        left, right = self.symbol.take(preceding), self.symbol.take(following)
        # A pair of two new symbols would be reported twice: as the right pair of the one, and as the left
        # pair of the other. Only the first is kept.
        self.scratch[at] = True
        has_left = np.flatnonzero((left >= 0) & ~self.scratch.take(preceding))
        self.scratch[at] = False
        has_right = np.flatnonzero(right >= 0)
        keys = [
            make_pair_key(left.take(has_left), new.take(has_left)),
            make_pair_key(new.take(has_right), right.take(has_right)),
        ]
        return np.concatenate(keys), np.concatenate([preceding.take(has_left), at.take(has_right)])

    def count_tokens(self) -> int:
        """Returns the number of symbols of the whole corpus."""
        return int(self.weight[self.symbol >= 0].sum()) + self._num_single


def make_pair_key(left: Ids, right: Ids) -> NDArray[np.int64]:
    """Returns the keys of pairs: both ids in one number, `left << ID_BITS | right`."""
    return left.astype(np.int64) << ID_BITS | right


def split_pair_key(key: NDArray[np.int64]) -> tuple[Ids, Ids]:
    """Returns the left and right ids of pair keys."""
    return (key >> ID_BITS).astype(np.int32), (key & RIGHT).astype(np.int32)
