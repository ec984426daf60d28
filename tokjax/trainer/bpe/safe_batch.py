"""Which of the most frequent pairs can be merged at once, with the result of one at a time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.trainer.bpe.linked_symbols import PairPositions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer.bpe.linked_symbols import LinkedPretokens, Positions


class RankedPairs(NamedTuple):
    """Pairs in the order in which one at a time would merge them, if merging changed nothing.

    Attributes:
        order: of each the count, negative, and then what decides between equal counts.
        keys: the pairs, as of `make_pair_key`.
        is_double: which of them are of one symbol, twice.
    """

    order: list[tuple[Any, ...]]
    keys: list[int]
    is_double: list[bool]


class PairContext(NamedTuple):
    """Where ranked pairs stand, and what they stand between.

    Attributes:
        positions: where they stand, `which` being the rank.
        before: the place before each.
        rank_before: the rank of the pair that shares the first symbol, -1 where none does.
        rank_after: the rank of the pair that shares the second symbol, -1 where none does.
    """

    positions: PairPositions
    before: Positions
    rank_before: NDArray[np.int64]
    rank_after: NDArray[np.int64]

    def select_undisputed(self, pairs: int, chosen: list[int]) -> PairPositions:
        """The places where the chosen pairs still stand when those chosen before them are merged.

        Args:
            pairs: how many pairs are ranked.
            chosen: the ranks of some, in the order in which they are merged; `chosen[i]` is `which == i`.
        """
        turns = np.full(pairs + 1, len(chosen))  # (its last is what rank -1 finds)
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
    """Finds pairs that can be merged together.

    Two pairs that share a symbol somewhere take it from one another: the second of them is rarer then, by a
    number that is known as long as neither has lost anything to a third. And a pair that comes up
    when others are merged is as frequent at most as the merged pair with that neighbour. So the order of
    merges is followed, without merging, until what comes next is uncertain.

    Args:
        pretokens: the corpus.
    """

    def __init__(self, pretokens: LinkedPretokens) -> None:
        self._pretokens = pretokens
        self._rank_at = np.full(len(pretokens.symbol), -1, np.int16)
        """The rank of the pair that stands at a place; -1 but while it is looked at."""
        self._newcomers: dict[int, int] = {}
        """By pair, how frequent those that come up when it is merged were at most, when that was counted.

        It stays a bound, since merging others makes a pair's neighbours rarer only.
        """

    def find_context(self, positions: PairPositions) -> PairContext:
        """What ranked pairs stand between.

        Args:
            positions: where they stand, `which` being the rank.
        """
        before = self._pretokens.before.take(positions.at)
        self._rank_at[positions.at] = positions.which
        rank_before, rank_after = self._rank_at.take(before), self._rank_at.take(positions.after)
        self._rank_at[positions.at] = -1
        return PairContext(positions, before, rank_before.astype(np.int64), rank_after.astype(np.int64))

    def find(self, ranked: RankedPairs, context: PairContext) -> list[int]:
        """The ranks of the pairs to merge, in order: at least one.

        Args:
            ranked: the most frequent pairs.
            context: where they stand.
        """
        losses = self._compute_losses(context, len(ranked.keys))
        newcomers = self._find_top_newcomers(ranked, context)
        entries = [(*entry, rank) for rank, entry in enumerate(ranked.order)]
        counts = [-entry[0] for entry in ranked.order]
        lost, uncertain = [False] * len(counts), [False] * len(counts)
        accepted: list[int] = []
        top_newcomer = 0
        rarest = counts[-1]  # all that is not ranked is no more frequent
        while entries:
            entry = heapq.heappop(entries)
            count, rank = -entry[0], entry[-1]
            if count != counts[rank]:
                continue  # it was pushed again when it lost some
            if uncertain[rank] or count <= top_newcomer or (lost[rank] and count <= rarest):
                break
            accepted.append(rank)
            counts[rank] = 0
            top_newcomer = max(top_newcomer, newcomers[rank])
            for loser, loss in losses.get(rank, ()):
                uncertain[loser] |= lost[rank] or lost[loser] or ranked.is_double[rank]
                if counts[loser] and not uncertain[loser]:  # (else it may be as frequent as before)
                    lost[loser] = True
                    counts[loser] -= loss
                    heapq.heappush(entries, (-counts[loser], *ranked.order[loser][1:], loser))
        return accepted

    def reset_newcomers(self) -> None:
        """To be called when a token is made that was there before, and so its pairs get more frequent."""
        self._newcomers.clear()

    def _compute_losses(self, context: PairContext, pairs: int) -> dict[int, list[tuple[int, int]]]:
        """For each pair those that share a symbol with it, and how much rarer they are once it is merged."""
        positions, _, before, after = context
        from_before = np.flatnonzero((before >= 0) & (before != positions.which))
        from_after = np.flatnonzero((after >= 0) & (after != positions.which) & (after != before))
        losers = np.concatenate([from_before, from_after])
        takers = np.concatenate([before.take(from_before), after.take(from_after)])
        found, which = np.unique(takers * pairs + positions.which.take(losers), return_inverse=True)
        weights = self._pretokens.weight.take(positions.at.take(losers))
        lost = np.bincount(which, weights, len(found)).astype(np.int64)
        losses: dict[int, list[tuple[int, int]]] = {}
        for key, loss in zip(found.tolist(), lost.tolist(), strict=True):
            taker, loser = divmod(key, pairs)
            losses.setdefault(taker, []).append((loser, loss))
        return losses

    def _find_top_newcomers(self, ranked: RankedPairs, context: PairContext) -> list[int]:
        """How frequent the pairs that come up when each pair is merged are at most."""
        rarest = -ranked.order[-1][0]  # what is below it bounds enough
        is_open = np.array([self._newcomers.get(key, rarest) >= rarest for key in ranked.keys])
        of_open = np.flatnonzero(is_open.take(context.positions.which))
        positions, before = context.positions.take(of_open), context.before.take(of_open)
        counted = self._count_newcomers(positions, before, len(is_open)).tolist()
        self._newcomers.update(
            (ranked.keys[rank], counted[rank]) for rank in np.flatnonzero(is_open).tolist()
        )
        return [self._newcomers[key] for key in ranked.keys]

    def _count_newcomers(self, positions: PairPositions, before: Positions, pairs: int) -> NDArray[np.int64]:
        """How frequent the most frequent neighbour of each pair is, shape `(pairs,)`."""
        pretokens = self._pretokens
        highest = np.zeros(pairs, np.int64)
        for neighbour in (before, pretokens.after.take(positions.after)):
            symbol = pretokens.symbol.take(neighbour)
            real = np.flatnonzero(symbol >= 0)
            if len(real):
                keys = positions.which.take(real) << 32 | symbol.take(real)
                order = np.argsort(keys)
                keys = keys.take(order)
                first = np.flatnonzero(np.diff(keys, prepend=-1))
                together = np.add.reduceat(pretokens.weight.take(positions.at.take(real.take(order))), first)
                np.maximum.at(highest, keys.take(first) >> 32, together)
        return highest


def drop_overlaps(positions: PairPositions, is_double: NDArray[np.bool_]) -> PairPositions:
    """Of pairs of one symbol twice that overlap, as in `aaaa`, every other, from the left.

    Args:
        positions: where pairs stand.
        is_double: which of them are of one symbol, twice.
    """
    doubles = np.flatnonzero(is_double.take(positions.which))
    if not len(doubles):
        return positions
    doubles = doubles.take(np.lexsort((positions.at.take(doubles), positions.which.take(doubles))))
    at, after, which = positions.take(doubles)
    overlaps = np.zeros(len(at), bool)
    overlaps[1:] = (after[:-1] == at[1:]) & (which[1:] == which[:-1])
    index = np.arange(len(at))
    since = index - np.maximum.accumulate(np.where(overlaps, 0, index))
    is_current = np.ones(len(positions.at), bool)
    is_current[doubles] = since % 2 == 0
    return positions.take(np.flatnonzero(is_current))
