"""Byte-pair merging of one word: always the pair of lowest rank, the leftmost of equals."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONG_WORD = 64
"""From this many bytes on, a heap is quicker than looking at all pairs each time."""


def merge_word(word: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """The ids of one word.

    A word that is itself a token is that token, even if merging would not arrive there (tiktoken's rule).

    Args:
        word: at least one byte.
        ranks: bytes to id; the id is the rank. It holds every single byte.
    """
    whole = ranks.get(word)
    if whole is not None:
        return [whole]
    return [ranks[token] for token in merge_bytes(word, ranks)]


def merge_bytes(text: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """The tokens that merging arrives at, for a word or a part of one that merges for itself."""
    return _merge_by_scanning(text, ranks) if len(text) < _LONG_WORD else _merge_by_heap(text, ranks)


def _merge_by_scanning(text: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    parts = [text[i : i + 1] for i in range(len(text))]
    pair_ranks = [ranks.get(left + right) for left, right in zip(parts, parts[1:], strict=False)]
    while True:
        candidates = [rank for rank in pair_ranks if rank is not None]
        if not candidates:
            return parts
        i = pair_ranks.index(min(candidates))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        del pair_ranks[i]
        if i > 0:
            pair_ranks[i - 1] = ranks.get(parts[i - 1] + parts[i])
        if i < len(pair_ranks):
            pair_ranks[i] = ranks.get(parts[i] + parts[i + 1])


def _merge_by_heap(text: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """The same in O(n log n): parts are a linked list, candidates a heap with stale entries."""
    size = len(text)
    stop = list(range(1, size + 1))  # where the part that starts here ends; 0 once it was swallowed
    previous = list(range(-1, size - 1))

    def candidate(start: int) -> tuple[int, int, int] | None:
        middle = stop[start]
        if middle == size:
            return None
        rank = ranks.get(text[start : stop[middle]])
        return None if rank is None else (rank, start, stop[middle])

    heap = [entry for start in range(size - 1) if (entry := candidate(start))]
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
            if first >= 0 and (entry := candidate(first)):
                heapq.heappush(heap, entry)
    parts, start = [], 0
    while start < size:
        parts.append(text[start : stop[start]])
        start = stop[start]
    return parts
