"""Safe batches: the most frequent pairs that can be merged in one step, in the order of sequential training.

Sequential training merges the most frequent pair, counts again, and repeats. A step of the trainer follows
that order without merging, as long as it is certain. Two things can change the order:

1. A pair loses occurrences, because it shares a symbol with a pair that is merged. The loss is counted, and
   the pair is ranked again with its new count. After a second loss, or a loss to a pair that has itself lost,
   its count is uncertain.
2. A new pair is formed next to a merged one. It is at most as frequent as the merged pair together with that
   neighbour. The highest such count is the new-pair bound of the merged pair.

The step ends before the first pair whose count is uncertain, or not above the new-pair bounds of the pairs
accepted so far. An example with low (5 times), lower (2), newest (6) and widest (3), after the merge of s·t::

    rank   pair    count   new-pair bound   decision
    0      e·st      9           6          accepted: the most frequent pair is always certain
    1      w·e       8           6          e·st takes the e of newest: loses 6, ranked again with count 2
    2      o·w       7           7          accepted: 7 is above the bound 6
    3      l·o       7           7          o·w takes all its occurrences: count 0
    4      n·e       6           6          the step ends: 6 is not above the bound 7

One step merges e·st and o·w. Sequential training, too, merges l·ow next, a new pair of count 7, and not n·e.

See docs/performance.md, section "Batched BPE training".
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.trainer.bpe.linked_symbols import PairPositions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer.bpe.linked_symbols import LinkedPretokens, Positions


class RankedPairs(NamedTuple):
    """The most frequent pairs, ranked by count and tie-break. The index of a pair is its rank.

    Sequential training would merge them in this order if no count changed.

    Attributes:
        order: sort key of each pair: its negative count, then the values that break ties.
        keys: the pairs, as `make_pair_key` returns them.
        is_double: whether each pair is the same symbol twice.
    """

    order: list[tuple[Any, ...]]
    keys: list[int]
    is_double: list[bool]


class PairContext(NamedTuple):
    """The positions of ranked pairs, with their neighbours.

    Attributes:
        positions: the positions of the pairs; `which` is the rank.
        before: position of the symbol before each pair, `int32`.
        rank_before: rank of the ranked pair that shares the left symbol, or -1, `int64`.
        rank_after: rank of the ranked pair that shares the right symbol, or -1, `int64`.
    """

    positions: PairPositions
    before: Positions
    rank_before: NDArray[np.int64]
    rank_after: NDArray[np.int64]

    def select_undisputed(self, pairs: int, chosen: list[int]) -> PairPositions:
        """Selects the positions of the chosen pairs where both symbols are left when their turn comes.

        A pair that is merged earlier in the step, and shares a symbol, takes it.

        Args:
            pairs: number of ranked pairs.
            chosen: ranks of the chosen pairs, in the order of the merges.

        Returns:
            The positions, with `which == i` for the pair `chosen[i]`.
        """
        turns = np.full(pairs + 1, len(chosen))  # the last entry is that of rank -1: no pair
        turns[chosen] = np.arange(len(chosen))
        turn = turns.take(self.positions.which)
        is_current = turn < len(chosen)
        is_current &= turns.take(self.rank_before) >= turn
        is_current &= turns.take(self.rank_after) >= turn
        selected = np.flatnonzero(is_current)
        return PairPositions(
            self.positions.at.take(selected), self.positions.after.take(selected), turn.take(selected)
        )


class SafeBatches:
    """Finds pairs that can be merged in one step.

    Args:
        pretokens: the corpus.
    """

    def __init__(self, pretokens: LinkedPretokens) -> None:
        self._pretokens = pretokens
        self._rank_at = np.full(len(pretokens.symbol), -1, np.int16)
        """Scratch space of `find_context`: the rank of the pair at each position, -1 elsewhere."""
        self._new_pair_bounds: dict[int, int] = {}
        """For each pair, the new-pair bound when it was last counted.

        It remains a bound, since other merges make a pair with a given neighbour only rarer.
        """

    def find_context(self, positions: PairPositions) -> PairContext:
        """Finds the neighbours of ranked pairs.

        Args:
            positions: the positions of the pairs; `which` is the rank.
        """
        before = self._pretokens.before.take(positions.at)
        self._rank_at[positions.at] = positions.which
        rank_before, rank_after = self._rank_at.take(before), self._rank_at.take(positions.after)
        self._rank_at[positions.at] = -1
        return PairContext(positions, before, rank_before.astype(np.int64), rank_after.astype(np.int64))

    def find(self, ranked: RankedPairs, context: PairContext) -> list[int]:
        """Returns the ranks of the pairs to merge, in order, at least one.

        Args:
            ranked: the most frequent pairs.
            context: their positions.
        """
        losses = self._compute_losses(context, len(ranked.keys))
        new_pair_bounds = self._compute_new_pair_bounds(ranked, context)
        entries = [(*entry, rank) for rank, entry in enumerate(ranked.order)]
        counts = [-entry[0] for entry in ranked.order]
        has_lost, is_uncertain = [False] * len(counts), [False] * len(counts)
        accepted: list[int] = []
        new_pair_bound = 0
        rarest = counts[-1]  # pairs that are not ranked are at most as frequent
        while entries:
            entry = heapq.heappop(entries)
            count, rank = -entry[0], entry[-1]
            if count != counts[rank]:
                continue  # stale: the pair was pushed again with a lower count
            # Ties count as uncertain, since the tie-break of a new or unranked pair is not known here.
            if is_uncertain[rank] or count <= new_pair_bound or (has_lost[rank] and count <= rarest):
                break
            accepted.append(rank)
            counts[rank] = 0
            new_pair_bound = max(new_pair_bound, new_pair_bounds[rank])
            for loser, loss in losses.get(rank, ()):
                # The loss was counted as if each pair still had all its occurrences. After another loss, or
                # if only every other occurrence of a double pair is merged, the actual loss may be smaller.
                is_uncertain[loser] |= has_lost[rank] or has_lost[loser] or ranked.is_double[rank]
                # An uncertain pair keeps its old count, as an upper bound: the step ends when it comes up.
                if counts[loser] and not is_uncertain[loser]:
                    has_lost[loser] = True
                    counts[loser] -= loss
                    heapq.heappush(entries, (-counts[loser], *ranked.order[loser][1:], loser))
        return accepted

    def reset_new_pair_bounds(self) -> None:
        """Drops all new-pair bounds.

        This is necessary when a merge makes an existing token, whose pairs become more frequent.
        """
        self._new_pair_bounds.clear()

    def _compute_losses(self, context: PairContext, pairs: int) -> dict[int, list[tuple[int, int]]]:
        """Computes how many occurrences each pair takes from pairs that share a symbol with it.

        Returns:
            For the rank of each pair, the ranks of the pairs that lose to it, with their losses.
        """
        positions, _, before, after = context
        from_before = np.flatnonzero((before >= 0) & (before != positions.which))
        from_after = np.flatnonzero((after >= 0) & (after != positions.which) & (after != before))
        losers = np.concatenate([from_before, from_after])
        takers = np.concatenate([before.take(from_before), after.take(from_after)])
        keys, which = np.unique(takers * pairs + positions.which.take(losers), return_inverse=True)
        weights = self._pretokens.weight.take(positions.at.take(losers))
        amounts = np.bincount(which, weights, len(keys)).astype(np.int64)
        losses: dict[int, list[tuple[int, int]]] = {}
        for key, loss in zip(keys.tolist(), amounts.tolist(), strict=True):
            taker, loser = divmod(key, pairs)
            losses.setdefault(taker, []).append((loser, loss))
        return losses

    def _compute_new_pair_bounds(self, ranked: RankedPairs, context: PairContext) -> list[int]:
        """Returns the new-pair bound of each pair.

        A stored bound is used if it is lower than all counts in the ranking, since it then ends no step.
        Other bounds are computed again, because they may have become lower.
        """
        rarest = -ranked.order[-1][0]
        is_outdated = np.array([self._new_pair_bounds.get(key, rarest) >= rarest for key in ranked.keys])
        outdated = np.flatnonzero(is_outdated.take(context.positions.which))
        positions, before = context.positions.take(outdated), context.before.take(outdated)
        counts = self._count_most_frequent_neighbours(positions, before, len(is_outdated)).tolist()
        self._new_pair_bounds.update(
            (ranked.keys[rank], counts[rank]) for rank in np.flatnonzero(is_outdated).tolist()
        )
        return [self._new_pair_bounds[key] for key in ranked.keys]

    def _count_most_frequent_neighbours(
        self, positions: PairPositions, before: Positions, pairs: int
    ) -> NDArray[np.int64]:
        """Counts how often each pair occurs with its most frequent neighbour, left or right.

        Args:
            positions: positions of the pairs; `which` is the rank.
            before: position of the symbol before each pair.
            pairs: number of ranked pairs.

        Returns:
            The counts, `int64`, shape `(pairs,)`.
        """
        pretokens = self._pretokens
        highest = np.zeros(pairs, np.int64)
        for neighbour in (before, pretokens.after.take(positions.after)):
            symbol = pretokens.symbol.take(neighbour)
            present = np.flatnonzero(symbol >= 0)
            if len(present):
                keys = positions.which.take(present) << 32 | symbol.take(present)
                order = np.argsort(keys)
                keys = keys.take(order)
                first = np.flatnonzero(np.diff(keys, prepend=-1))
                weights = pretokens.weight.take(positions.at.take(present.take(order)))
                np.maximum.at(highest, keys.take(first) >> 32, np.add.reduceat(weights, first))
        return highest


def drop_overlaps(positions: PairPositions, is_double: NDArray[np.bool_]) -> PairPositions:
    """Drops every other position of double pairs that overlap, from the left.

    In `aaaa`, the pair a·a occurs at 0, 1 and 2. It is merged at 0 and 2.

    Args:
        positions: positions of pairs.
        is_double: whether each pair is the same symbol twice.
    """
    doubles = np.flatnonzero(is_double.take(positions.which))
    if not len(doubles):
        return positions
    doubles = doubles.take(np.lexsort((positions.at.take(doubles), positions.which.take(doubles))))
    at, after, which = positions.take(doubles)
    overlaps = np.zeros(len(at), bool)
    overlaps[1:] = (after[:-1] == at[1:]) & (which[1:] == which[:-1])
    index = np.arange(len(at))
    since_run_start = index - np.maximum.accumulate(np.where(overlaps, 0, index))
    is_current = np.ones(len(positions.at), bool)
    is_current[doubles] = since_run_start % 2 == 0
    return positions.take(np.flatnonzero(is_current))
