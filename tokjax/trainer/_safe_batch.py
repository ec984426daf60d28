"""Which of the most frequent pairs can be merged at once, with the result of one at a time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer._linked_words import LinkedWords, Places

Ranked = list[tuple[Any, ...]]
"""Pairs in the order in which one at a time would merge them, if merging changed nothing: of each the count,
negative, then what decides between equal counts, and last its row."""


class PairPlaces(NamedTuple):
    """Where ranked pairs stand.

    Attributes:
        at: the places.
        rank: the pair of each place.
    """

    at: Places
    rank: NDArray[np.int64]


def ranked_anew(places: PairPlaces, pairs: int, chosen: NDArray[np.int64]) -> PairPlaces:
    """The places of some pairs, those of pair `chosen[i]` as of rank `i`.

    Args:
        places: where all of them stand.
        pairs: how many pairs these are of.
        chosen: the ranks that they have there.
    """
    rank_of = np.full(pairs, -1)
    rank_of[chosen] = np.arange(len(chosen))
    rank = rank_of.take(places.rank)
    kept = np.flatnonzero(rank >= 0)
    return PairPlaces(places.at.take(kept), rank.take(kept))


class SafeBatches:
    """Finds pairs that can be merged together.

    Two pairs that share a symbol somewhere take it from one another: the second of them is rarer then, by a
    number that is known as long as neither has lost anything to a third. And a pair that comes up
    when others are merged is as frequent at most as the merged pair with that neighbour. So the order of
    merges is followed, without merging, until what comes next is uncertain.

    Args:
        words: the corpus.
    """

    def __init__(self, words: LinkedWords) -> None:
        self._words = words
        self._rank_at = np.full(len(words.symbol), -1, np.int16)
        """The rank of the pair that stands at a place; -1 but while it is looked at."""

    def find(self, places: PairPlaces, ranking: Ranked, is_double: NDArray[np.bool_]) -> list[int]:
        """The ranks of the pairs to merge, in order: at least one.

        Args:
            places: where they stand.
            ranking: the pairs.
            is_double: which of them are of one symbol, twice.
        """
        losses = self._losses(places, len(ranking))
        newcomers = self._newcomers(places, len(ranking)).tolist()
        doubles = is_double.tolist()
        entries = [(*entry[:-1], rank) for rank, entry in enumerate(ranking)]
        counts = [-entry[0] for entry in ranking]
        lost, uncertain = [False] * len(ranking), [False] * len(ranking)
        accepted: list[int] = []
        most_frequent_newcomer = 0
        rarest = counts[-1]  # all that is not ranked is no more frequent
        while entries:
            entry = heapq.heappop(entries)
            count, rank = -entry[0], entry[-1]
            if count != counts[rank]:
                continue  # it was pushed again when it lost some
            if uncertain[rank] or count <= most_frequent_newcomer or (lost[rank] and count <= rarest):
                break
            accepted.append(rank)
            counts[rank] = 0
            most_frequent_newcomer = max(most_frequent_newcomer, newcomers[rank])
            for loser, loss in losses.get(rank, ()):
                uncertain[loser] |= lost[rank] or lost[loser] or doubles[rank]
                if counts[loser] and not uncertain[loser]:  # (else it may be as frequent as before)
                    lost[loser] = True
                    counts[loser] -= loss
                    heapq.heappush(entries, (-counts[loser], *ranking[loser][1:-1], loser))
        return accepted

    def undisputed(self, places: PairPlaces) -> PairPlaces:
        """The places where a pair still stands when those before it are merged.

        Args:
            places: where the pairs of a batch stand, ranked as they are merged.
        """
        at, rank = places
        before, after = self._neighbours(places)
        stands = np.flatnonzero(((before < 0) | (before >= rank)) & ((after < 0) | (after >= rank)))
        return PairPlaces(at.take(stands), rank.take(stands))

    def _losses(self, places: PairPlaces, pairs: int) -> dict[int, list[tuple[int, int]]]:
        """For each pair those that share a symbol with it, and how much rarer they are once it is merged."""
        at, rank = places
        before, after = self._neighbours(places)
        from_before = np.flatnonzero((before >= 0) & (before != rank))
        from_after = np.flatnonzero((after >= 0) & (after != rank) & (after != before))
        losers = np.concatenate([from_before, from_after])
        takers = np.concatenate([before.take(from_before), after.take(from_after)])
        found, which = np.unique(takers * pairs + rank.take(losers), return_inverse=True)
        weights = np.bincount(which, self._words.weight.take(at.take(losers)), len(found)).astype(np.int64)
        losses: dict[int, list[tuple[int, int]]] = {}
        for key, weight in zip(found.tolist(), weights.tolist(), strict=True):
            taker, loser = divmod(key, pairs)
            losses.setdefault(taker, []).append((loser, weight))
        return losses

    def _neighbours(self, places: PairPlaces) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ranks of the pairs that share the first symbol of each, and its second; -1 where none does."""
        at, rank = places
        self._rank_at[at] = rank
        before = self._rank_at.take(self._words.before.take(at)).astype(np.int64)
        after = self._rank_at.take(self._words.after.take(at)).astype(np.int64)
        self._rank_at[at] = -1
        return before, after

    def _newcomers(self, places: PairPlaces, pairs: int) -> NDArray[np.int64]:
        """How frequent the pairs that come up when each pair is merged are at most, shape `(pairs,)`."""
        words, (at, rank) = self._words, places
        most = np.zeros(pairs, np.int64)
        behind = words.after.take(words.after.take(at))
        for neighbour in (words.symbol.take(words.before.take(at)), words.symbol.take(behind)):
            real = np.flatnonzero(neighbour >= 0)
            if len(real):
                keys = rank.take(real) << 32 | neighbour.take(real)
                order = np.argsort(keys)
                keys = keys.take(order)
                first = np.flatnonzero(np.diff(keys, prepend=-1))
                together = np.add.reduceat(words.weight.take(at.take(real.take(order))), first)
                np.maximum.at(most, keys.take(first) >> 32, together)
        return most


def without_overlaps(words: LinkedWords, places: PairPlaces, is_double: NDArray[np.bool_]) -> PairPlaces:
    """Of pairs of one symbol twice that overlap, as in `aaaa`, every other, from the left.

    Args:
        words: the corpus.
        places: where pairs stand.
        is_double: which of them are of one symbol, twice.
    """
    if not is_double.take(places.rank).any():
        return places
    order = np.lexsort(places)
    at, rank = places.at.take(order), places.rank.take(order)
    overlaps = np.zeros(len(at), bool)
    overlaps[1:] = (words.after[at[:-1]] == at[1:]) & (rank[1:] == rank[:-1])
    index = np.arange(len(at))
    since = index - np.maximum.accumulate(np.where(overlaps, 0, index))
    kept = np.flatnonzero(since % 2 == 0)
    return PairPlaces(at.take(kept), rank.take(kept))
