"""All words that an engine remembers, and what it does with those that it meets for the first time."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

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
_COUNT_BITS = 8
"""A word of several tokens has the value `-1 - (first << 8 | count)`: where in the pool its ids are."""


class Ids(NamedTuple):
    """The ids of words.

    Attributes:
        values: for each word its id, if it has just one, `int64`, shape `(words,)`.
        several: the other words, rising, `int64`, shape `(several,)`.
        counts: how many ids each of those has, `int64`, shape `(several,)`.
        ids: theirs, laid end to end, `int32`.
    """

    values: NDArray[np.int64]
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
        apart = absent
        if len(absent):
            held = can_hold(words.take(absent))
            apart = absent[~held]
            self._learn(known, words, absent[held], values)
        several = np.flatnonzero(values < 0)
        packed = ABSENT - values.take(several)
        counts, first = packed & ((1 << _COUNT_BITS) - 1), packed >> _COUNT_BITS
        merged = self._merge_apart(words.take(apart)) if len(apart) else NO_WORDS
        which_apart = np.searchsorted(several, apart)
        counts[which_apart] = merged.counts
        shift = np.cumsum(counts) - counts
        source = np.repeat(first - shift, counts)
        source += np.arange(len(source))
        ids = known.pool.ids.take(source, mode="clip")
        if len(apart):
            starts = np.repeat(shift[which_apart] - np.cumsum(merged.counts) + merged.counts, merged.counts)
            ids[starts + np.arange(len(starts))] = merged.ids
        return Ids(values, several, counts, ids)

    def _learn(
        self, known: _Known, words: Words, absent: NDArray[np.int64], values: NDArray[np.int64]
    ) -> None:
        """Merge words that were not found, each once, remember them, and fill in their values."""
        if not len(absent):
            return
        example, which = known.tables.different(words.take(absent))
        new = words.take(absent[example])
        merged = self._merger.merge(new)
        with self._lock:
            of_new = known.pool.add(merged)
        known.tables.add(new, of_new)
        values[absent] = of_new[which]

    def _merge_apart(self, words: Words) -> MergedWords:
        """The ids of words that no table can hold: they are merged each time."""
        merged = self._merger.merge(words)
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
        ids = np.fromiter(ranks.values(), np.int64, len(ranks))
        self.tables = WordTables(words_of(list(ranks)), ids)
        self.pool = _Pool()
        self._vocabulary = self.tables.nbytes

    @property
    def is_full(self) -> bool:
        """Whether it is time to forget."""
        return self.tables.nbytes > self._vocabulary + MAX_KNOWN_BYTES or self.pool.used > MAX_KNOWN_TOKENS


class _Pool:
    """The ids of words that are not one token."""

    def __init__(self) -> None:
        self.ids = np.zeros(1 << 12, np.int32)
        self.used = 0

    def add(self, merged: MergedWords) -> NDArray[np.int64]:
        """Remember the ids of words; the values that stand for them."""
        start, stop = self.used, self.used + len(merged.ids)
        if stop > len(self.ids):
            self.ids = np.concatenate([self.ids, np.zeros(stop, np.int32)])
        self.ids[start:stop] = merged.ids
        self.used = stop
        first = start + np.cumsum(merged.counts) - merged.counts
        return ABSENT - (first << _COUNT_BITS | merged.counts)
