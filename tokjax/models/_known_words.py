"""All words that an engine remembers, and what it does with those that it meets for the first time."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.models._batch_merging import NO_WORDS, BatchMerger, MergedWords
from tokjax.models._word_table import ABSENT
from tokjax.models._word_tables import WordTables, can_hold, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.models._word_tables import Words

MAX_KNOWN_BYTES = 1 << 24
"""How many bytes of words are remembered, the vocabulary's not counted, before all of them are forgotten."""
MAX_KNOWN_TOKENS = 1 << 22
"""How many ids of words of several tokens are remembered at most, about."""
_NOTHING = -2
"""Values up to this stand for words of no token or of several: for entry 0 of `_Several`, entry 1 and so on."""


class Ids(NamedTuple):
    """The ids of words.

    Attributes:
        values: for each word its id, if it has just one, `int32`, shape `(words,)`.
        several: the other words, rising, `int64`, shape `(several,)`.
        counts: how many ids each of those has, `int64`, shape `(several,)`.
        ids: theirs, laid end to end, `int32`.
    """

    values: NDArray[np.int32]
    several: NDArray[np.int64]
    counts: NDArray[np.int64]
    ids: NDArray[np.int32]


class KnownWords:
    """The words of a vocabulary, and others that were merged once.

    Threads can share it: reading takes no lock.

    Args:
        ranks: bytes to id; the id is the rank. It holds every single byte.
    """

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        self._ranks = ranks
        self._lock = threading.Lock()
        self._known = _Known(ranks)

    def ids_of(self, words: Words) -> Ids:
        """The ids of all words of a chunk."""
        known = self._room()
        values = known.tables.find(words)
        absent = np.flatnonzero(values == ABSENT)
        held = can_hold(words.take(absent))
        apart = absent[~held]
        if len(absent) > len(apart):
            self._learn(known, words, absent[held], values)
        values[apart] = _NOTHING
        several = np.flatnonzero(values < 0)
        entries = _NOTHING - values.take(several)
        counts, first = known.several.count.take(entries), known.several.first.take(entries)
        merged = self._merge_apart(words.take(apart))
        which_apart = np.searchsorted(several, apart)
        counts[which_apart] = merged.counts
        shift = np.cumsum(counts) - counts
        ids = known.several.pool.take(np.repeat(first - shift, counts) + np.arange(counts.sum()), mode="clip")
        if len(apart):
            starts = np.repeat(shift[which_apart] - np.cumsum(merged.counts) + merged.counts, merged.counts)
            ids[starts + np.arange(len(starts))] = merged.ids
        return Ids(values, several, counts, ids)

    def _learn(
        self, known: _Known, words: Words, absent: NDArray[np.int64], values: NDArray[np.int32]
    ) -> None:
        """Merge words that were not found, each once, remember them, and fill in their values."""
        example, which = known.tables.different(words.take(absent))
        new = words.take(absent[example])
        merged = self._merger.merge(new)
        with self._lock:
            of_new = known.several.add(merged)
        known.tables.add(new, of_new)
        values[absent] = of_new[which]

    def _merge_apart(self, words: Words) -> MergedWords:
        """The ids of words that no table can hold: they are merged each time."""
        merged = self._merger.merge(words) if len(words.starts) else NO_WORDS
        whole = [self._ranks.get(text, ABSENT) for text in words.texts()]
        tokens = np.flatnonzero(np.array(whole, np.int32) != ABSENT)
        for word in tokens[::-1].tolist():
            first = int(merged.counts[:word].sum())
            ids = np.delete(merged.ids, slice(first, first + int(merged.counts[word])))
            merged = MergedWords(np.insert(ids, first, whole[word]), merged.counts)
            merged.counts[word] = 1
        return merged

    @cached_property
    def _merger(self) -> BatchMerger:
        return BatchMerger(self._ranks, _Known(self._ranks).tables)

    def _room(self) -> _Known:
        """What is known; nothing but the vocabulary, after a time when too much was."""
        known = self._known
        if known.is_full:
            known = self._known = _Known(self._ranks)
        return known


class _Known:
    """What is remembered at a time, from the vocabulary on."""

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        ids = np.fromiter(ranks.values(), np.int32, len(ranks))
        self.tables = WordTables(words_of(list(ranks)), ids)
        self.several = _Several()
        self._vocabulary = self.tables.nbytes

    @property
    def is_full(self) -> bool:
        """Whether it is time to forget."""
        return (
            self.tables.nbytes > self._vocabulary + MAX_KNOWN_BYTES or self.several.pooled > MAX_KNOWN_TOKENS
        )


class _Several:
    """The ids of words that are not one token: entry `i` is `pool[first[i] : first[i] + count[i]]`."""

    def __init__(self) -> None:
        self.first, self.count = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self.pool = np.zeros(4096, np.int32)
        self.used, self.pooled = 1, 0  # entry 0 is no token at all

    def add(self, merged: MergedWords) -> NDArray[np.int32]:
        """Remember the ids of words; the values that stand for them."""
        entries = np.arange(self.used, self.used + len(merged.counts))
        self.first = _with_room(self.first, self.used + len(entries))
        self.count = _with_room(self.count, self.used + len(entries))
        self.pool = _with_room(self.pool, self.pooled + len(merged.ids))
        self.pool[self.pooled : self.pooled + len(merged.ids)] = merged.ids
        self.first[entries] = self.pooled + np.cumsum(merged.counts) - merged.counts
        self.count[entries] = merged.counts
        self.used += len(entries)
        self.pooled += len(merged.ids)
        return (_NOTHING - entries).astype(np.int32)


def _with_room(array: NDArray[Any], size: int) -> NDArray[Any]:
    if size <= len(array):
        return array
    grown = np.zeros(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown
