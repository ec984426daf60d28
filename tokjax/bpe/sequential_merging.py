"""Sequential BPE merging of one pre-token: always the pair of lowest rank, and of equal ranks the leftmost.

Short texts and the last few pairs of batched merging are merged here. It also serves as the reference that
batched merging is tested against.

A long, repetitive text is cut into parts, and equal parts are merged only once. With the tokens aa
(rank 258), aaa (257) and aaaa (256), and a space for a cut::

    text       aaaaaaaaaaaaaaa
    tokens     aaaa·aaaa·aaaa·aaa
    parts      aaaa aaaa aaaaaaa        merged: aaaa and aaaaaaa

No merge crosses a cut if none crosses it when only the two parts next to it are merged. Otherwise, consider
the first merge that crosses any cut. Before it, merges in its two parts depended on nothing else, so they
were those of the two parts alone, and the next one of these crosses the cut as well.
"""

from __future__ import annotations

import heapq
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, AnyStr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokjax.bpe.merge_rules import MergeRules

_LONG_PRETOKEN = 64
"""From this many bytes on, a heap is faster than scanning all pairs for each merge."""
_PART = 256
"""Minimum number of bytes of a part of a repetitive text. Most tokens are much shorter."""
_BLOCK = 64
"""Number of bytes of the blocks that are compared to find out whether data is repetitive."""
_MIN_COPIES = 4
"""Average number of copies of each block from which on data is repetitive."""
_MAX_ATTEMPTS = 4
"""Number of times that parts are joined at cuts that merges cross, before the whole text is merged."""


def merge_pretoken(pretoken: bytes, rules: MergeRules) -> list[int]:
    """Returns the ids of one pre-token.

    Args:
        pretoken: the bytes of the pre-token, at least one.
        rules: the merge rules of the vocabulary.
    """
    atomic_id = rules.atomic_ids.get(pretoken)
    if atomic_id is not None:
        return [atomic_id]
    is_long = len(pretoken) > 2 * _PART
    tokens = RepetitiveMerger(rules).merge(pretoken) if is_long else merge_bytes(pretoken, rules)
    return [id_ for token in tokens for id_ in rules.get_ids(token)]


def merge_bytes(text: bytes, rules: MergeRules) -> list[bytes]:
    """Merges a pre-token, or a part of one that merges separately. Returns the bytes of its tokens."""
    if len(text) < _LONG_PRETOKEN:
        return merge_by_scanning(text, rules.get_rank)
    starts = merge_by_heap(text, range(len(text)), rules.get_rank)
    return [text[start:stop] for start, stop in pairwise([*starts, len(text)])]


def merge_by_scanning(text: AnyStr, get_rank: Callable[[AnyStr, AnyStr], int | None]) -> list[AnyStr]:
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


def merge_by_heap(
    text: AnyStr,
    starts: Sequence[int],
    get_rank: Callable[[AnyStr, AnyStr], int | None],
    is_dropped: Callable[[int, int], bool] | None = None,
    step: int = 0,
    *,
    together: bool = False,
) -> list[int]:
    """Merges in O(n log n): the symbols are a linked list, the candidates a heap with stale entries.

    Args:
        text: bytes of the pre-token.
        starts: start of each symbol in the text, from 0.
        get_rank: function that returns the rank of a pair, or `None`.
        is_dropped: with dropout, function of the start of a pair and the number of the step. In a step, pairs
            are decided about in order of rank, until one of them is kept.
        step: number of the first step.
        together: merge all pairs of a rank before those of lower ranks that this makes.

    Returns:
        The start of each symbol after merging.
    """
    size = len(text)
    stop, previous = [0] * size, [-1] * (size + 1)  # 0 where no symbol starts
    for start, end in pairwise([*starts, size]):
        stop[start], previous[end] = end, start

    def find_candidate(start: int) -> tuple[int, int, int, int] | None:
        middle = stop[start]
        if middle == size:
            return None
        rank = get_rank(text[start:middle], text[middle : stop[middle]])
        return None if rank is None else (rank, start, middle, stop[middle])

    heap = [candidate for start in starts if (candidate := find_candidate(start))]
    heapq.heapify(heap)
    waiting: list[tuple[int, int, int, int]] = []
    while heap:
        batch = [heapq.heappop(heap)]
        while together and heap and heap[0][0] == batch[0][0]:
            batch.append(heapq.heappop(heap))
        for candidate in batch:
            _, start, middle, end = candidate
            if stop[start] != middle or stop[middle] != end:
                continue  # stale: one of the two symbols has changed
            if is_dropped is not None and is_dropped(start, step):
                waiting.append(candidate)
                continue
            stop[start], stop[middle], previous[end] = end, 0, start
            for first in (start, previous[start]):
                if first >= 0 and (found := find_candidate(first)):
                    heapq.heappush(heap, found)
            for each in waiting:
                heapq.heappush(heap, each)
            waiting.clear()
            step += 1
    return [start for start in range(size) if stop[start]]


def is_repetitive(data: bytes) -> bool:
    """Returns whether most blocks of some data are equal to others, as in a long run of spaces."""
    blocks = {data[start : start + _BLOCK] for start in range(0, len(data), _BLOCK)}
    return len(blocks) * _MIN_COPIES * _BLOCK <= len(data)


class RepetitiveMerger:
    """Merges pre-tokens, or parts that merge separately, and merges equal parts of long ones only once.

    Args:
        rules: the merge rules of the vocabulary.
    """

    def __init__(self, rules: MergeRules) -> None:
        self._rules = rules
        self._ends: dict[bytes, list[int]] = {}

    def merge(self, text: bytes) -> list[bytes]:
        """Returns the bytes of the tokens of a text, as `merge_bytes`."""
        if len(text) <= 2 * _PART or not is_repetitive(text):
            return merge_bytes(text, self._rules)
        cuts = self._propose_cuts(text)
        for _ in range(_MAX_ATTEMPTS):
            crossed = {
                cut
                for before, cut, after in zip(cuts, cuts[1:], cuts[2:], strict=False)
                if cut - before not in self._find_ends(text[before:after])
            }
            if not crossed:
                ends = (
                    before + end
                    for before, after in pairwise(cuts)
                    for end in self._find_ends(text[before:after])
                )
                return [text[start:stop] for start, stop in pairwise((0, *ends))]
            cuts = [cut for cut in cuts if cut not in crossed]
        return merge_bytes(text, self._rules)

    def _propose_cuts(self, text: bytes) -> list[int]:
        """Returns positions where tokens end if only the text near them is merged, and 0 and its end."""
        cuts = [0]
        while len(text) - cuts[-1] > 2 * _PART:
            ends = self._find_ends(text[cuts[-1] : cuts[-1] + 2 * _PART])
            cuts.append(cuts[-1] + next(end for end in ends if end >= _PART))
        return [*cuts, len(text)]

    def _find_ends(self, text: bytes) -> list[int]:
        """Returns the positions in a text where its tokens end."""
        ends = self._ends.get(text)
        if ends is None:
            ends = self._ends[text] = list(accumulate(map(len, merge_bytes(text, self._rules))))
        return ends
