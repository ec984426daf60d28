"""Byte-pair training one merge at a time, with counts that are kept up to date: quick enough for a corpus."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tokjax.trainer.bpe.batched_merging import TIE_KEYS

Pair = tuple[int, int]


@dataclass
class Incremental:
    """Every unique word as a list of ids, and what is known of each pair of ids.

    Attributes:
        token: the bytes of each id.
        merges: the pairs merged so far.
        words: the ids of each unique word.
        counts: how often each word stands in the corpus.
    """

    token: dict[int, bytes]
    words: list[list[int]]
    counts: list[int]
    tie_break: str
    merges: list[tuple[bytes, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Count all pairs, once."""
        self._id_of = {token: id_ for id_, token in self.token.items()}
        self._tie_key = TIE_KEYS[self.tie_break](self.token)
        self._pair_counts: dict[Pair, int] = defaultdict(int)
        self._words_with: dict[Pair, set[int]] = defaultdict(set)
        for index, (word, count) in enumerate(zip(self.words, self.counts, strict=True)):
            for pair in zip(word, word[1:], strict=False):
                self._pair_counts[pair] += count
                self._words_with[pair].add(index)
        self._heap = [self._entry(pair) for pair in self._pair_counts]
        heapq.heapify(self._heap)

    def best_pair(self, min_frequency: int) -> Pair | None:
        """The pair to merge next, or `None` if none is as frequent as asked for."""
        while self._heap:
            negative_count, *_, pair = self._heap[0]
            actual = self._pair_counts.get(pair, 0)
            if actual == -negative_count:
                return pair if actual >= min_frequency else None
            heapq.heappop(self._heap)
            if actual > 0:  # it has fallen since it was pushed
                heapq.heappush(self._heap, self._entry(pair))
        return None

    def merge(self, pair: Pair, new_id: int) -> bool:
        """Replace the pair everywhere by one token.

        Returns:
            Whether `new_id` was used. It is not where the bytes are a token already: two merges that
            make the same bytes make one token.
        """
        left, right = pair
        merged = self.token[left] + self.token[right]
        id_ = self._id_of.setdefault(merged, new_id)
        self.token.setdefault(id_, merged)
        self.merges.append((self.token[left], self.token[right]))
        changes: dict[Pair, int] = defaultdict(int)
        for index in self._words_with.pop(pair):
            self._merge_in_word(index, pair, id_, changes)
        del self._pair_counts[pair]
        changes.pop(pair, None)
        for changed, change in changes.items():
            self._pair_counts[changed] += change
            if self._pair_counts[changed] <= 0:
                del self._pair_counts[changed]
            elif change > 0:
                heapq.heappush(self._heap, self._entry(changed))
        return id_ == new_id

    def _merge_in_word(self, index: int, pair: Pair, id_: int, changes: dict[Pair, int]) -> None:
        word, count = self.words[index], self.counts[index]
        left, right = pair
        merged: list[int] = []
        i = 0
        while i < len(word):
            if word[i] != left or i + 1 == len(word) or word[i + 1] != right:
                merged.append(word[i])
                i += 1
                continue
            if merged:
                changes[merged[-1], left] -= count
                changes[merged[-1], id_] += count
                self._words_with[merged[-1], id_].add(index)
            merged.append(id_)
            i += 2
            if i < len(word):
                changes[right, word[i]] -= count
                changes[id_, word[i]] += count
                self._words_with[id_, word[i]].add(index)
        self.words[index] = merged

    def _entry(self, pair: Pair) -> tuple[Any, ...]:
        return (-self._pair_counts[pair], self._tie_key(pair[0]), self._tie_key(pair[1]), pair)


def train_incrementally(counts, num_tokens, *, first_id=256, min_frequency=1, tie_break="lexicographic"):
    """The merges of words with counts, `bytes` to `int`."""
    merger = Incremental(
        {i: bytes([i]) for i in range(256)},
        [list(word) for word in counts],
        list(counts.values()),
        tie_break,
    )
    made = 0
    while made < num_tokens:
        pair = merger.best_pair(min_frequency)
        if pair is None:
            break
        made += merger.merge(pair, first_id + made)
    return merger.merges
