"""All words that an engine remembers, and what it does with those that it meets for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokjax._util.locks import ThreadLock
from tokjax.bpe.batch_merging import NO_PRETOKENS, MergedPretokens
from tokjax.bpe.hash_tables import ABSENT, HashTables, can_hold, concatenate_pretokens, make_pretokens
from tokjax.core.ragged import concatenate_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Pretokens

MAX_CACHE_BYTES = 1 << 26
"""How much memory words may take before all but the vocabulary is forgotten; it is up to four times as much
while a table grows."""
MAX_CACHE_TOKENS = 1 << 23
"""How many ids of words are remembered at most, about."""
# A word's value: where in the pool its first id is, and how many it has.
_COUNT_SHIFT = 32
_OFFSET_MASK = np.int64((1 << _COUNT_SHIFT) - 1)
_NO_INDICES = np.zeros(0, np.int64)


class PretokenIds(NamedTuple):
    """The ids of words, laid end to end.

    Attributes:
        ids: `int32`, shape `(n,)`.
        ends: how many ids there are up to the end of each word, `int64`, shape `(pretokens,)`.
    """

    ids: NDArray[np.int32]
    ends: NDArray[np.int64]

    @property
    def begins_word(self) -> NDArray[np.bool_]:
        """Which of them begin a word, shape `(n,)`."""
        begins = np.zeros(len(self.ids), bool)
        begins[:1] = True
        begins[self.ends[:-1]] = True
        return begins


class CacheLookup(NamedTuple):
    """Words that were looked up.

    Attributes:
        cache: where.
        pretokens: the words.
        values: what stands for their ids, `int64`, shape `(pretokens,)`.
        misses: the words that have to be learned, `int64`, shape `(misses,)`.
        uncacheable: the words that no table can hold, `int64`, shape `(uncacheable,)`.
    """

    cache: _CacheEntries
    pretokens: Pretokens
    values: NDArray[np.int64]
    misses: NDArray[np.int64]
    uncacheable: NDArray[np.int64]


class PretokenMerger(Protocol):
    """Says which ids new words have."""

    def merge(self, pretokens: Pretokens) -> MergedPretokens:
        """The ids of words, at least one of each."""


class PretokenCache:
    """The words of a vocabulary, and others that were merged once.

    Threads can share it: reading takes no lock.

    Args:
        atomic_ids: bytes to id, of words that are one token.
        merger: what knows the ids of all others.
    """

    def __init__(self, atomic_ids: Mapping[bytes, int], merger: PretokenMerger) -> None:
        self._atomic_ids = atomic_ids
        self._lock = ThreadLock()
        self._cache = _CacheEntries(atomic_ids)
        self._merger = merger

    def find(self, pretokens: Pretokens) -> CacheLookup:
        """Look words up."""
        return self._cache.find(pretokens)

    def insert(self, parts: list[CacheLookup]) -> list[CacheLookup]:
        """Merge the words that are absent, each once, and remember them.

        The more are merged together, the less each of them costs.

        Returns:
            The same parts, with nothing absent.
        """
        if not parts:
            return []
        cache = self._get_entries()
        parts = [found if found.cache is cache else cache.find(found.pretokens) for found in parts]
        misses = concatenate_pretokens([found.pretokens.take(found.misses) for found in parts])
        if len(misses.starts):
            values = self._find_or_insert(cache, misses)
            stops = np.cumsum([len(found.misses) for found in parts])
            for found, of_part in zip(parts, np.split(values, stops[:-1]), strict=True):
                found.values[found.misses] = of_part
        return [found._replace(misses=_NO_INDICES) for found in parts]

    def get_ids(self, found: CacheLookup) -> PretokenIds:
        """The ids of words of which none is absent."""
        merged = (
            self._merge_uncacheable(found.pretokens.take(found.uncacheable))
            if len(found.uncacheable)
            else NO_PRETOKENS
        )
        return found.cache.pool.expand(found.values, found.uncacheable, merged)

    def _find_or_insert(self, cache: _CacheEntries, pretokens: Pretokens) -> NDArray[np.int64]:
        """The values of words, of which those that are not known are learned."""
        example, which = cache.tables.unique(pretokens)
        unique = pretokens.take(example)
        values = cache.tables.find(unique)  # another thread may have learned some in the meantime
        misses = np.flatnonzero(values == ABSENT)
        new = unique.take(misses)
        merged = self._merger.merge(new)
        with self._lock.current:
            of_new = cache.pool.add(merged)
        cache.tables.add(new, of_new)
        values[misses] = of_new
        return values.take(which)

    def _merge_uncacheable(self, pretokens: Pretokens) -> MergedPretokens:
        """The ids of words that no table can hold: they are merged each time."""
        texts = list(pretokens.iter_bytes())
        unique = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        which = np.fromiter(map(unique.__getitem__, texts), np.int64, len(texts))
        id_of = np.array([self._atomic_ids.get(text, ABSENT) for text in unique], np.int32)
        is_token = id_of != ABSENT
        others = [text for text, cache in zip(unique, is_token.tolist(), strict=True) if not cache]
        merged = self._merger.merge(make_pretokens(others))
        counts = np.ones(len(unique), np.int64)
        counts[~is_token] = merged.counts
        ids = np.repeat(id_of, counts)
        ids[np.repeat(~is_token, counts)] = merged.ids
        lengths = counts[which]
        return MergedPretokens(ids[concatenate_ranges((np.cumsum(counts) - counts)[which], lengths)], lengths)

    def _get_entries(self) -> _CacheEntries:
        """What is known; nothing but the vocabulary, after a time when too much was."""
        cache = self._cache
        if cache.is_full:
            cache = self._cache = _CacheEntries(self._atomic_ids)
        return cache


class _CacheEntries:
    """What is remembered at a time, from the vocabulary on."""

    def __init__(self, atomic_ids: Mapping[bytes, int]) -> None:
        ids = np.fromiter(atomic_ids.values(), np.int32, len(atomic_ids))
        self.pool = _IdPool()
        self.tables = HashTables(
            make_pretokens(list(atomic_ids)), self.pool.add(MergedPretokens(ids, np.ones(len(ids), np.int64)))
        )
        self._vocabulary = self.tables.nbytes

    def find(self, pretokens: Pretokens) -> CacheLookup:
        """Look words up."""
        values = self.tables.find(pretokens)
        missing = np.flatnonzero(values == ABSENT)
        held = can_hold(pretokens.take(missing)) if len(missing) else np.ones(0, bool)
        return CacheLookup(self, pretokens, values, missing[held], missing[~held])

    @property
    def is_full(self) -> bool:
        """Whether it is time to forget."""
        return self.tables.nbytes > self._vocabulary + MAX_CACHE_BYTES or self.pool.used > MAX_CACHE_TOKENS


class _IdPool:
    """The ids of all words, each word's side by side."""

    def __init__(self) -> None:
        self.ids = np.zeros(1 << 12, np.int32)
        self.used = 0

    def add(self, merged: MergedPretokens) -> NDArray[np.int64]:
        """Remember the ids of words; the values that stand for them."""
        start, stop = self.used, self.used + len(merged.ids)
        if stop > len(self.ids):
            self.ids = np.concatenate([self.ids, np.zeros(stop, np.int32)])
        self.ids[start:stop] = merged.ids
        self.used = stop
        return _pack_values(merged, start)

    def expand(
        self, values: NDArray[np.int64], uncacheable: NDArray[np.int64], merged: MergedPretokens
    ) -> PretokenIds:
        """The ids that values stand for.

        Args:
            values: those of all words of a chunk.
            uncacheable: the words that are in no table, whatever their values.
            merged: their ids.
        """
        values[uncacheable] = merged.counts << _COUNT_SHIFT
        counts = values >> _COUNT_SHIFT
        ends = np.cumsum(counts)
        starts = ends - counts
        positions = values & _OFFSET_MASK
        positions -= starts
        positions = np.repeat(positions, counts)
        positions += np.arange(len(positions))
        ids = self.ids.take(positions, mode="clip")
        ids[concatenate_ranges(starts.take(uncacheable), merged.counts)] = merged.ids
        return PretokenIds(ids, ends)


def _pack_values(merged: MergedPretokens, start: int) -> NDArray[np.int64]:
    """What stands for words whose ids lie end to end in a pool, from `start` on."""
    return merged.counts << _COUNT_SHIFT | start + np.cumsum(merged.counts) - merged.counts
