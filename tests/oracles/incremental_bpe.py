"""BPE training one merge at a time, with incremental counts. An oracle that is fast enough for a corpus."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tokjax.trainer.bpe.batched_training import TIE_KEYS

Pair = tuple[int, int]


@dataclass
class IncrementalMerger:
    """The different pre-tokens as lists of ids, with the count and the pre-tokens of each pair.

    Attributes:
        token: the bytes of each id.
        pretokens: the ids of each different pre-token.
        counts: number of occurrences of each pre-token in the corpus.
        tie_break: which of several equally frequent pairs is merged first.
        merges: the pairs merged so far.
    """

    token: dict[int, bytes]
    pretokens: list[list[int]]
    counts: list[int]
    tie_break: str
    merges: list[tuple[bytes, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Counts all pairs once."""
        self._id_by_token = {token: id_ for id_, token in self.token.items()}
        self._tie_keys = TIE_KEYS[self.tie_break](self.token)
        self._pair_counts: dict[Pair, int] = defaultdict(int)
        self._pretokens_by_pair: dict[Pair, set[int]] = defaultdict(set)
        for index, (pretoken, count) in enumerate(zip(self.pretokens, self.counts, strict=True)):
            for pair in zip(pretoken, pretoken[1:], strict=False):
                self._pair_counts[pair] += count
                self._pretokens_by_pair[pair].add(index)
        self._heap = [self._make_entry(pair) for pair in self._pair_counts]
        heapq.heapify(self._heap)

    def find_best_pair(self, min_frequency: int) -> Pair | None:
        """Returns the pair to merge next, or `None` if every pair is rarer than `min_frequency`."""
        while self._heap:
            negative_count, *_, pair = self._heap[0]
            actual = self._pair_counts.get(pair, 0)
            if actual == -negative_count:
                return pair if actual >= min_frequency else None
            heapq.heappop(self._heap)
            if actual > 0:  # the count has decreased since the pair was pushed
                heapq.heappush(self._heap, self._make_entry(pair))
        return None

    def merge(self, pair: Pair, new_id: int) -> bool:
        """Replaces all occurrences of the pair by one token.

        Returns:
            Whether `new_id` was used. It is not used if the bytes are a token already, since two merges that
            make the same bytes make one token.
        """
        left, right = pair
        merged = self.token[left] + self.token[right]
        id_ = self._id_by_token.setdefault(merged, new_id)
        self.token.setdefault(id_, merged)
        self.merges.append((self.token[left], self.token[right]))
        changes: dict[Pair, int] = defaultdict(int)
        for index in self._pretokens_by_pair.pop(pair):
            self._merge_in_pretoken(index, pair, id_, changes)
        del self._pair_counts[pair]
        changes.pop(pair, None)
        for changed, change in changes.items():
            self._pair_counts[changed] += change
            if self._pair_counts[changed] <= 0:
                del self._pair_counts[changed]
            elif change > 0:
                heapq.heappush(self._heap, self._make_entry(changed))
        return id_ == new_id

    def _merge_in_pretoken(self, index: int, pair: Pair, id_: int, changes: dict[Pair, int]) -> None:
        pretoken, count = self.pretokens[index], self.counts[index]
        left, right = pair
        merged: list[int] = []
        i = 0
        while i < len(pretoken):
            if pretoken[i] != left or i + 1 == len(pretoken) or pretoken[i + 1] != right:
                merged.append(pretoken[i])
                i += 1
                continue
            if merged:
                changes[merged[-1], left] -= count
                changes[merged[-1], id_] += count
                self._pretokens_by_pair[merged[-1], id_].add(index)
            merged.append(id_)
            i += 2
            if i < len(pretoken):
                changes[right, pretoken[i]] -= count
                changes[id_, pretoken[i]] += count
                self._pretokens_by_pair[id_, pretoken[i]].add(index)
        self.pretokens[index] = merged

    def _make_entry(self, pair: Pair) -> tuple[Any, ...]:
        return (-self._pair_counts[pair], self._tie_keys[pair[0]], self._tie_keys[pair[1]], pair)


def train_incrementally(counts, num_tokens, *, first_id=256, min_frequency=1, tie_break="lexicographic"):
    """Returns the merges for pre-tokens with counts, `bytes` to `int`."""
    merger = IncrementalMerger(
        {i: bytes([i]) for i in range(256)},
        [list(pretoken) for pretoken in counts],
        list(counts.values()),
        tie_break,
    )
    num_new = 0
    while num_new < num_tokens:
        pair = merger.find_best_pair(min_frequency)
        if pair is None:
            break
        num_new += merger.merge(pair, first_id + num_new)
    return merger.merges
