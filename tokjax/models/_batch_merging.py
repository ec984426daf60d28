"""Byte-pair merging of many words together: one merge of every word a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.models._word_table import ABSENT, WordTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_NEVER = np.int32(np.iinfo(np.int32).max)
_WORDS_AT_ONCE = 1 << 13


class MergedWords(NamedTuple):
    """The ids of words, laid end to end.

    Attributes:
        ids: `int32`, shape `(n,)`.
        counts: how many each word has, `int64`, shape `(words,)`.
    """

    ids: NDArray[np.int32]
    counts: NDArray[np.int64]


class BatchMerger:
    """Merges words of one vocabulary, as `merge_word` does for one that is no token itself.

    Args:
        ranks: bytes to id; the id is the rank. It holds every single byte.
    """

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        self._id_of_byte = np.array([ranks[bytes([i])] for i in range(256)], np.int32)
        self._pairs = WordTable(two_keys=False, bits=16, slots_per_word=8)
        keys, merged = [], []
        for token, id_ in ranks.items():
            for cut in range(1, len(token)):
                left = ranks.get(token[:cut])
                if left is not None and (right := ranks.get(token[cut:])) is not None:
                    keys.append(left << 32 | right)
                    merged.append(id_)
        tail = _as_key(np.array(keys, np.uint64))
        self._pairs.add(tail, tail, np.array(merged, np.int32))

    def merge(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> MergedWords:
        """Merge words, all of about one length.

        Args:
            data: bytes that hold the words, and behind the last of them as many again as the longest has.
            starts: where each word starts, `(words,)`.
            lengths: how long each is, at least 1, `(words,)`.
        """
        parts = [
            self._merge_some(data, starts[i : i + _WORDS_AT_ONCE], lengths[i : i + _WORDS_AT_ONCE])
            for i in range(0, len(starts), _WORDS_AT_ONCE)
        ]
        return MergedWords(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _merge_some(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> MergedWords:
        """Words are rows of a matrix of ids; `ranks[i, j]` is the rank of the pair at columns j and j + 1."""
        width = int(lengths.max())
        columns = np.arange(width + 1)
        ids = self._id_of_byte[data.take(starts[:, None] + columns, mode="clip")]
        left = lengths.copy()
        ranks = np.full(ids.shape, _NEVER)
        ranks[:, :-1] = self._ranks(ids[:, :-1], ids[:, 1:], columns[1:] < left[:, None])
        done_ids, done_counts = np.zeros((len(starts), width), np.int32), np.zeros(len(starts), np.int64)
        rows = np.arange(len(starts))
        while len(rows):
            at = ranks.argmin(axis=1)
            here = np.arange(len(rows))
            best = ranks[here, at]
            ended = best == _NEVER
            if ended.any():
                done_ids[rows[ended], : ids.shape[1] - 1] = ids[ended, :-1]
                done_counts[rows[ended]] = left[ended]
                on = ~ended
                rows, ids, ranks, left, at, best = (x[on] for x in (rows, ids, ranks, left, at, best))
                here = here[: len(rows)]
                if not len(rows):
                    break
            ids[here, at] = best
            self._close_gap(ids, ranks, at)
            ids, ranks = ids[:, :-1], ranks[:, :-1]
            left -= 1
            before = np.maximum(at - 1, 0)
            after = np.minimum(at + 1, ids.shape[1] - 1)
            ranks[here, at] = self._ranks(ids[here, at], ids[here, after], at + 1 < left)
            of_before = self._ranks(ids[here, before], ids[here, at], at > 0)
            ranks[here, before] = np.where(at > 0, of_before, ranks[here, before])
        kept = np.arange(width) < done_counts[:, None]
        return MergedWords(done_ids[kept], done_counts)

    def _ranks(
        self, left: NDArray[np.int32], right: NDArray[np.int32], valid: NDArray[Any]
    ) -> NDArray[np.int32]:
        keys = _as_key(left.astype(np.uint64) << np.uint64(32) | right.astype(np.uint64)).reshape(-1)
        found = self._pairs.find(keys, keys).reshape(left.shape)
        return np.where(valid & (found != ABSENT), found, _NEVER)

    @staticmethod
    def _close_gap(ids: NDArray[np.int32], ranks: NDArray[np.int32], at: NDArray[np.int64]) -> None:
        """Move what follows the right half of each merged pair one column to the left, in place."""
        for column in range(int(at.min()) + 1, ids.shape[1] - 1):
            moves = column > at
            np.copyto(ids[:, column], ids[:, column + 1], where=moves)
            np.copyto(ranks[:, column], ranks[:, column + 1], where=moves)


def _as_key(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return pairs + np.uint64(1)  # a key is never 0
