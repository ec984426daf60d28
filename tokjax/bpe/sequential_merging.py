"""Byte-pair merging of one word: always the pair of lowest rank, the leftmost of equals."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax.bpe.merge_rules import MergeRules

_LONG_PRETOKEN = 64
"""From this many bytes on, a heap is quicker than looking at all pairs each time."""


def merge_pretoken(pretoken: bytes, rules: MergeRules) -> list[int]:
    """The ids of one word.

    Args:
        pretoken: at least one byte.
        rules: what merges.
    """
    atomic_ids = rules.atomic_ids.get(pretoken)
    if atomic_ids is not None:
        return [atomic_ids]
    return [id_ for made in merge_bytes(pretoken, rules) for id_ in rules.get_ids(made)]


def merge_bytes(text: bytes, rules: MergeRules) -> list[bytes]:
    """The tokens that merging arrives at, for a word or a part of one that merges for itself."""
    merge = _merge_by_scanning if len(text) < _LONG_PRETOKEN else _merge_by_heap
    return merge(text, rules.get_rank)


def _merge_by_scanning(text: bytes, get_rank: Callable[[bytes, bytes], int | None]) -> list[bytes]:
    parts = [text[i : i + 1] for i in range(len(text))]
    pair_ranks = list(map(get_rank, parts, parts[1:]))
    while True:
        candidates = [rank for rank in pair_ranks if rank is not None]
        if not candidates:
            return parts
        i = pair_ranks.index(min(candidates))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        del pair_ranks[i]
        if i > 0:
            pair_ranks[i - 1] = get_rank(parts[i - 1], parts[i])
        if i < len(pair_ranks):
            pair_ranks[i] = get_rank(parts[i], parts[i + 1])


def _merge_by_heap(text: bytes, get_rank: Callable[[bytes, bytes], int | None]) -> list[bytes]:
    """The same in O(n log n): parts are a linked list, candidates a heap with stale entries."""
    size = len(text)
    stop = list(range(1, size + 1))  # where the part that starts here ends; 0 once it was swallowed
    previous = list(range(-1, size - 1))

    def find_candidate(start: int) -> tuple[int, int, int] | None:
        middle = stop[start]
        if middle == size:
            return None
        rank = get_rank(text[start:middle], text[middle : stop[middle]])
        return None if rank is None else (rank, start, stop[middle])

    heap = [entry for start in range(size - 1) if (entry := find_candidate(start))]
    heapq.heapify(heap)
    while heap:
        _, start, end = heapq.heappop(heap)
        middle = stop[start]
        if middle == 0 or middle in (size, end) or stop[middle] != end:
            continue  # one of the two parts has changed since
        stop[start], stop[middle] = end, 0
        if end < size:
            previous[end] = start
        for first in (start, previous[start]):
            if first >= 0 and (entry := find_candidate(first)):
                heapq.heappush(heap, entry)
    parts, start = [], 0
    while start < size:
        parts.append(text[start : stop[start]])
        start = stop[start]
    return parts
