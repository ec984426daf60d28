"""Byte-pair merging of counted words: as if one pair at a time, always the most frequent, but many a step.

A step takes the most frequent pairs, ranks them as one at a time would, and merges the longest prefix of
which no two pairs share a symbol, and no pair that comes up on the way could be more frequent than one that
is still to come. So the merges, and their order, are those of the slow way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tokjax.trainer._linked_words import LinkedWords, key_of_pair
from tokjax.trainer._pair_table import Best, PairTable
from tokjax.trainer._rare_pairs import RarePairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokjax._progress import Advance
    from tokjax.trainer._linked_words import Places
    from tokjax.trainer.pretokens import PretokenCounts

TieBreak: TypeAlias = Literal["lexicographic", "huggingface"]
_MIRROR = bytes(255 - i for i in range(256))
_LEAST_WIDTH, _MOST_WIDTH = 16, 512
_MOST_AT_ONCE = 512
_PLACES_A_MERGE, _PLACES_A_STEP = 20, 400
"""What a merge costs one at a time, and what a step of many costs: as much as so many places to merge."""
_SLOW_STEPS = 16
"""After so many steps in a row that had little to merge, it is one at a time."""


@dataclass
class Merged:
    """What merging made.

    Attributes:
        token: the bytes of each id.
        merges: the pairs, in the order in which they were merged.
        num_tokens: how many tokens the corpus has.
    """

    token: dict[int, bytes] = field(default_factory=lambda: {i: bytes([i]) for i in range(256)})
    merges: list[tuple[bytes, bytes]] = field(default_factory=list)
    num_tokens: int = 0


def train_merges(
    counts: PretokenCounts,
    *,
    num_tokens: int,
    first_id: int,
    min_frequency: int,
    tie_break: TieBreak,
    advance: Advance,
) -> Merged:
    """Merge until there are `num_tokens` new tokens, or no pair is frequent enough.

    Args:
        counts: the words, and how often each stands in the corpus.
        num_tokens: how many tokens to make.
        first_id: the id of the first of them; single bytes have the ids 0 to 255.
        min_frequency: pairs that are rarer are not merged.
        tie_break: which of equally frequent pairs is merged first.
        advance: reports new tokens.
    """
    merger = _Merger(LinkedWords(counts), first_id, tie_break)
    made = 0
    while made < num_tokens:
        if merger.slow_steps < _SLOW_STEPS:
            new = merger.step(num_tokens - made, min_frequency)
        else:
            new = merger.merge_one(min_frequency)
        if new is None:
            break
        made += new
        advance(new)
    merger.merged.num_tokens = merger.words.num_tokens()
    return merger.merged


class _Merger:
    """The state of training."""

    def __init__(self, words: LinkedWords, first_id: int, tie_break: TieBreak) -> None:
        self.words = words
        self.merged = Merged()
        self._next_id = first_id
        self._id_of = {token: id_ for id_, token in self.merged.token.items()}
        self._tie_key = TIE_KEYS[tie_break](self.merged.token)
        self._width = _LEAST_WIDTH
        self.slow_steps = 0
        at = words.pairs_of_bytes()
        left, right = words.symbol[at], words.symbol[at + 1]
        order = np.argsort((left << 8 | right).astype(np.uint16), kind="stable")  # (so short, it is quick)
        self._pairs = PairTable(words, key_of_pair(left, right)[order], at[order])

    def step(self, most: int, min_frequency: int) -> int | None:
        """Merge some pairs: how many tokens they make; `None` if no pair is frequent enough."""
        best = self._pairs.best(self._width)
        if best is None:
            return None
        ranking = self._ranked(best, min(most, _MOST_AT_ONCE), min_frequency)
        if not len(ranking):
            return None
        at, rank = _places_of(best, ranking)
        safe = min(
            _before_clash(self.words, at, rank, len(ranking)),
            _before_newcomer(self.words, at, rank, best.counts[ranking]),
        )
        safe_ranking = ranking[:safe]
        made, new = self._named(best.left[safe_ranking].tolist(), best.right[safe_ranking].tolist())
        ids = np.array(made, np.int32)
        ranking = ranking[: len(ids)]
        at, rank = at[rank < len(ids)], rank[rank < len(ids)]
        at, rank = _without_overlaps(self.words, at, rank, (best.left == best.right)[ranking])
        self._pairs.drop(best.rows[ranking])
        keys, places = self.words.merge(at, ids[rank])
        self._pairs.add(keys, places, may_be_known=new < len(ids))
        self._adapt(len(ids), safe, len(best.rows))
        takes_long = _PLACES_A_MERGE * len(ids) + len(at) > _PLACES_A_STEP
        self.slow_steps = 0 if takes_long else self.slow_steps + 1
        return new

    def merge_one(self, min_frequency: int) -> int | None:
        """Merge one pair: how many tokens that makes; `None` if no pair is frequent enough."""
        pair = self._rare.best(min_frequency)
        if pair is None:
            return None
        ids, new = self._named([pair[0]], [pair[1]])
        self._rare.merge(*pair, ids[0], is_known=not new)
        return new

    @cached_property
    def _rare(self) -> RarePairs:
        return RarePairs(self.words, self._pairs, self._tie_key)

    def _ranked(self, best: Best, most: int, min_frequency: int) -> NDArray[np.int64]:
        """The pairs that one at a time would merge next if merging changed nothing, in that order."""
        chosen = np.flatnonzero(best.counts >= min_frequency)
        if len(chosen) > most:
            least = np.partition(best.counts[chosen], -most)[-most]
            chosen = chosen[best.counts[chosen] >= least]
        keys = [
            (-count, self._tie_key(left), self._tie_key(right), i)
            for count, left, right, i in zip(
                best.counts[chosen].tolist(),
                best.left[chosen].tolist(),
                best.right[chosen].tolist(),
                chosen.tolist(),
                strict=True,
            )
        ]
        return np.array([key[-1] for key in sorted(keys)[:most]], np.int64)

    def _named(self, lefts: list[int], rights: list[int]) -> tuple[list[int], int]:
        """Ids for what pairs become, and how many of them are new.

        Two merges that make the same bytes make one token. The second of them is the last of its step: pairs
        of its token are known already, and get more frequent.
        """
        token, first = self.merged.token, self._next_id
        ids: list[int] = []
        for left, right in zip(lefts, rights, strict=True):
            made = token[left] + token[right]
            id_ = self._id_of.get(made, self._next_id)
            if first <= id_ < self._next_id:
                break  # made in this very step
            ids.append(id_)
            self.merged.merges.append((token[left], token[right]))
            if id_ != self._next_id:
                break
            token[id_] = made
            self._id_of[made] = id_
            self._next_id += 1
        return ids, self._next_id - first

    def _adapt(self, merged: int, safe: int, looked_at: int) -> None:
        """Look at more pairs next time if all could be merged, and at fewer if few could."""
        if merged == safe == looked_at:
            self._width = min(2 * self._width, _MOST_WIDTH)
        elif merged < looked_at // 8:
            self._width = max(self._width // 2, _LEAST_WIDTH)


def _places_of(best: Best, ranking: NDArray[np.int64]) -> tuple[Places, NDArray[np.int64]]:
    """Where the ranked pairs stand, and the rank of the pair of each place."""
    rank_of = np.full(len(best.rows), len(ranking))
    rank_of[ranking] = np.arange(len(ranking))
    rank = rank_of[best.which]
    ranked = rank < len(ranking)
    return best.at[ranked], rank[ranked]


def _before_clash(words: LinkedWords, at: Places, rank: NDArray[np.int64], pairs: int) -> int:
    """How many of the pairs, from the first, share no symbol with another of them."""
    touched = np.concatenate([at, words.after[at]])
    order = np.argsort(touched)
    touched, owner = touched[order], np.concatenate([rank, rank])[order]
    clash = np.flatnonzero((touched[1:] == touched[:-1]) & (owner[1:] != owner[:-1]))
    return int(np.maximum(owner[clash], owner[clash + 1]).min(initial=pairs))


def _before_newcomer(
    words: LinkedWords, at: Places, rank: NDArray[np.int64], counts: NDArray[np.int64]
) -> int:
    """How many of the pairs, from the first, are certainly more frequent than all that they bring forth.

    A pair that comes up is as frequent at most as the merged pair with that neighbour.

    Args:
        words: the corpus.
        at: where the pairs stand.
        rank: the pair of each place.
        counts: how often each pair stands, falling.
    """
    most = np.zeros(len(counts), np.int64)
    for neighbour in (words.symbol[words.before[at]], words.symbol[words.after[words.after[at]]]):
        real = np.flatnonzero(neighbour >= 0)
        if len(real):
            keys = rank[real] << 32 | neighbour[real]
            order = np.argsort(keys)
            keys = keys[order]
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            together = np.add.reduceat(words.weight[at[real[order]]], first)
            np.maximum.at(most, keys[first] >> 32, together)
    late = np.flatnonzero(np.maximum.accumulate(most)[:-1] >= counts[1:])
    return int(late[0]) + 1 if len(late) else len(counts)


def _without_overlaps(
    words: LinkedWords, at: Places, rank: NDArray[np.int64], is_double: NDArray[np.bool_]
) -> tuple[Places, NDArray[np.int64]]:
    """Of pairs of one symbol twice that overlap, as in `aaaa`, every other, from the left."""
    if not is_double[rank].any():
        return at, rank
    order = np.lexsort((at, rank))
    at, rank = at[order], rank[order]
    overlaps = np.zeros(len(at), bool)
    overlaps[1:] = (words.after[at[:-1]] == at[1:]) & (rank[1:] == rank[:-1])
    index = np.arange(len(at))
    since = index - np.maximum.accumulate(np.where(overlaps, 0, index))
    kept = since % 2 == 0
    return at[kept], rank[kept]


def _lexicographic(token: dict[int, bytes]) -> Callable[[int], str]:
    """Keys that rise as byte strings fall: mirrored bytes, and an end that is above them all."""
    keys: dict[int, str] = {}

    def key(id_: int) -> str:
        if id_ not in keys:
            keys[id_] = token[id_].translate(_MIRROR).decode("latin-1") + "\u0100"
        return keys[id_]

    return key


def _huggingface(_: dict[int, bytes]) -> Callable[[int], int]:
    """Ids as that library gives them: bytes in the order of their printable stand-ins, then merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [i for i in range(256) if i not in set(printable)]
    place = {byte: i for i, byte in enumerate(printable + others)}
    return lambda id_: place.get(id_, id_)


TIE_KEYS: dict[TieBreak, Callable[[dict[int, bytes]], Callable[[int], Any]]] = {
    "lexicographic": _lexicographic,
    "huggingface": _huggingface,
}
