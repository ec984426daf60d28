"""Sequential BPE merging of one pre-token: always the pair of lowest rank, and of equal ranks the leftmost.

Short texts and the last few pairs of batched merging are merged here. It also serves as the reference that
batched merging is tested against.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax.bpe.merge_rules import MergeRules

_LONG_PRETOKEN = 64
"""From this many bytes on, a heap is faster than scanning all pairs for each merge."""


def merge_pretoken(pretoken: bytes, rules: MergeRules) -> list[int]:
    """Returns the ids of one pre-token.

    Args:
        pretoken: the bytes of the pre-token, at least one.
        rules: the merge rules of the vocabulary.
    """
    atomic_id = rules.atomic_ids.get(pretoken)
    if atomic_id is not None:
        return [atomic_id]
    return [id_ for token in merge_bytes(pretoken, rules) for id_ in rules.get_ids(token)]


def merge_bytes(text: bytes, rules: MergeRules) -> list[bytes]:
    """Merges a pre-token, or a part of one that merges separately. Returns the bytes of its tokens."""
    merge = merge_by_scanning if len(text) < _LONG_PRETOKEN else _merge_by_heap
    return merge(text, rules.get_rank)


def merge_by_scanning(text: bytes, get_rank: Callable[[bytes, bytes], int | None]) -> list[bytes]:
    """Merges by scanning the ranks of all pairs for each merge: O(n²), and fast for short pre-tokens."""
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
    """Merges in O(n log n): the parts are a linked list, the candidates a heap with stale entries."""
    size = len(text)
    stop = list(range(1, size + 1))  # the end of the part that starts at each index; 0 after it was merged
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
            continue  # stale: one of the two parts has changed
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
