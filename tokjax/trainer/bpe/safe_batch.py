"""Which of the most frequent pairs can be merged at once, with the result of one at a time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.trainer.bpe.linked_symbols import PairPlaces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer.bpe.linked_symbols import LinkedWords, Places


class Ranked(NamedTuple):
    """Pairs in the order in which one at a time would merge them, if merging changed nothing.

    Attributes:
        order: of each the count, negative, and then what decides between equal counts.
        keys: the pairs, as of `key_of_pair`.
        is_double: which of them are of one symbol, twice.
    """

    order: list[tuple[Any, ...]]
    keys: list[int]
    is_double: list[bool]


class Surroundings(NamedTuple):
    """Where ranked pairs stand, and what they stand between.

    Attributes:
        places: where they stand, `which` being the rank.
        before: the place before each.
        rank_before: the rank of the pair that shares the first symbol, -1 where none does.
        rank_after: the rank of the pair that shares the second symbol, -1 where none does.
    """

    places: PairPlaces
    before: Places
    rank_before: NDArray[np.int64]
    rank_after: NDArray[np.int64]

    def undisputed(self, pairs: int, chosen: list[int]) -> PairPlaces:
        """The places where the chosen pairs still stand when those chosen before them are merged.

        Args:
            pairs: how many pairs are ranked.
            chosen: the ranks of some, in the order in which they are merged; `chosen[i]` is `which == i`.
        """
        turn_of = np.full(pairs + 1, len(chosen))  # (its last is what rank -1 finds)
        turn_of[chosen] = np.arange(len(chosen))
        turn = turn_of.take(self.places.which)
        stands = turn < len(chosen)
        stands &= turn_of.take(self.rank_before) >= turn
        stands &= turn_of.take(self.rank_after) >= turn
        kept = np.flatnonzero(stands)
        return PairPlaces(self.places.at.take(kept), self.places.after.take(kept), turn.take(kept))


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
        self._newcomers: dict[int, int] = {}
        """By pair, how frequent those that come up when it is merged were at most, when that was counted.

        It stays a bound, since merging others makes a pair's neighbours rarer only.
        """

    def surroundings(self, places: PairPlaces) -> Surroundings:
        """What ranked pairs stand between.

        Args:
            places: where they stand, `which` being the rank.
        """
        before = self._words.before.take(places.at)
        self._rank_at[places.at] = places.which
        rank_before, rank_after = self._rank_at.take(before), self._rank_at.take(places.after)
        self._rank_at[places.at] = -1
        return Surroundings(places, before, rank_before.astype(np.int64), rank_after.astype(np.int64))

    def find(self, ranked: Ranked, around: Surroundings) -> list[int]:
        """The ranks of the pairs to merge, in order: at least one.

        Args:
            ranked: the most frequent pairs.
            around: where they stand.
        """
        losses = self._losses(around, len(ranked.keys))
        newcomers = self._most_frequent_newcomers(ranked, around)
        entries = [(*entry, rank) for rank, entry in enumerate(ranked.order)]
        counts = [-entry[0] for entry in ranked.order]
        lost, uncertain = [False] * len(counts), [False] * len(counts)
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
                uncertain[loser] |= lost[rank] or lost[loser] or ranked.is_double[rank]
                if counts[loser] and not uncertain[loser]:  # (else it may be as frequent as before)
                    lost[loser] = True
                    counts[loser] -= loss
                    heapq.heappush(entries, (-counts[loser], *ranked.order[loser][1:], loser))
        return accepted

    def forget(self) -> None:
        """To be called when a token is made that was there before, and so its pairs get more frequent."""
        self._newcomers.clear()

    def _losses(self, around: Surroundings, pairs: int) -> dict[int, list[tuple[int, int]]]:
        """For each pair those that share a symbol with it, and how much rarer they are once it is merged."""
        places, _, before, after = around
        from_before = np.flatnonzero((before >= 0) & (before != places.which))
        from_after = np.flatnonzero((after >= 0) & (after != places.which) & (after != before))
        losers = np.concatenate([from_before, from_after])
        takers = np.concatenate([before.take(from_before), after.take(from_after)])
        found, which = np.unique(takers * pairs + places.which.take(losers), return_inverse=True)
        weights = self._words.weight.take(places.at.take(losers))
        lost = np.bincount(which, weights, len(found)).astype(np.int64)
        losses: dict[int, list[tuple[int, int]]] = {}
        for key, loss in zip(found.tolist(), lost.tolist(), strict=True):
            taker, loser = divmod(key, pairs)
            losses.setdefault(taker, []).append((loser, loss))
        return losses

    def _most_frequent_newcomers(self, ranked: Ranked, around: Surroundings) -> list[int]:
        """How frequent the pairs that come up when each pair is merged are at most."""
        rarest = -ranked.order[-1][0]  # what is below it bounds enough
        is_open = np.array([self._newcomers.get(key, rarest) >= rarest for key in ranked.keys])
        of_open = np.flatnonzero(is_open.take(around.places.which))
        places, before = around.places.take(of_open), around.before.take(of_open)
        counted = self._counted_newcomers(places, before, len(is_open)).tolist()
        self._newcomers.update(
            (ranked.keys[rank], counted[rank]) for rank in np.flatnonzero(is_open).tolist()
        )
        return [self._newcomers[key] for key in ranked.keys]

    def _counted_newcomers(self, places: PairPlaces, before: Places, pairs: int) -> NDArray[np.int64]:
        """How frequent the most frequent neighbour of each pair is, shape `(pairs,)`."""
        words = self._words
        most = np.zeros(pairs, np.int64)
        for neighbour in (before, words.after.take(places.after)):
            symbol = words.symbol.take(neighbour)
            real = np.flatnonzero(symbol >= 0)
            if len(real):
                keys = places.which.take(real) << 32 | symbol.take(real)
                order = np.argsort(keys)
                keys = keys.take(order)
                first = np.flatnonzero(np.diff(keys, prepend=-1))
                together = np.add.reduceat(words.weight.take(places.at.take(real.take(order))), first)
                np.maximum.at(most, keys.take(first) >> 32, together)
        return most


def without_overlaps(places: PairPlaces, is_double: NDArray[np.bool_]) -> PairPlaces:
    """Of pairs of one symbol twice that overlap, as in `aaaa`, every other, from the left.

    Args:
        places: where pairs stand.
        is_double: which of them are of one symbol, twice.
    """
    doubles = np.flatnonzero(is_double.take(places.which))
    if not len(doubles):
        return places
    doubles = doubles.take(np.lexsort((places.at.take(doubles), places.which.take(doubles))))
    at, after, which = places.take(doubles)
    overlaps = np.zeros(len(at), bool)
    overlaps[1:] = (after[:-1] == at[1:]) & (which[1:] == which[:-1])
    index = np.arange(len(at))
    since = index - np.maximum.accumulate(np.where(overlaps, 0, index))
    stands = np.ones(len(places.at), bool)
    stands[doubles] = since % 2 == 0
    return places.take(np.flatnonzero(stands))
