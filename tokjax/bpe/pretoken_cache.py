"""Pre-token cache: maps pre-tokens to their ids, and merges those that it does not hold.

The ids of all cached pre-tokens are stored in one array, the pool. The hash tables hold a value for each
pre-token: the number of its ids, the first of them, and its offset in the pool. The cache starts with the
vocabulary, where each pre-token is one id.

An example with a vocabulary of low (id 260) and est (259), where merges also make er (257). The pre-tokens of
a chunk are looked up all at once. The misses are merged together, each different one once, and appended to
the pool::

    pre-tokens       low     lowest    low     lower     lowest
    lookup           hit     miss      hit     miss      miss
    pool before      260 | 259
    pool after       260 | 259 | 260 259 | 260 257
    offset           0     1     2         4
    count, offset    (1,0)   (2,2)     (1,0)   (2,4)     (2,2)
    ids              260     260 259   260     260 257   260 259

The ids of the chunk are then one gather from the pool. Misses can be inserted in any order, so their offsets
are not defined, only their ids.

Pre-tokens that no table can hold (very long ones, or with zero bytes) are in a dictionary. Both are bounded:
once the cache is full, it is reset to the vocabulary, which changes no id.

See docs/performance.md, section "Pre-token cache".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tokjax._util.cache_exchange import ExchangingCache
from tokjax._util.locks import ThreadLock
from tokjax.bpe.batched_merging import NO_IDS, PretokenIds
from tokjax.bpe.hash_tables import ABSENT, HashTables, can_hold, concatenate_pretokens, make_pretokens
from tokjax.core.ragged import concatenate_ranges
from tokjax.core.vocabulary import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Pretokens

MAX_CACHE_BYTES = 1 << 26
"""Memory of the pre-tokens besides the vocabulary, in bytes, at which the cache is reset. The tables take up
to four times as much while one of them grows."""
_ENTRY_BYTES = 200
"""Memory of an entry of the dictionary besides the bytes of its pre-token."""
MAX_CACHE_TOKENS = 1 << 23
"""Number of ids in the pool at which the cache is reset."""
# The value of a pre-token: its first id and the number of its ids in the upper 32 bits, the offset of its ids
# in the pool in the lower. Most pre-tokens are one token, whose id is then known without reading the pool.
_UPPER_SHIFT = 32
_OFFSET_MASK = np.int64((1 << _UPPER_SHIFT) - 1)
_FIRST_ID_MASK = np.int32((1 << ID_BITS) - 1)
_NO_INDICES = np.zeros(0, np.int64)
_MAX_MISSES, _MAX_BATCHES = 1 << 15, 16
"""Misses are merged and inserted once there are this many, or this many batches wait for them."""


class CacheLookup(NamedTuple):
    """The result of looking up pre-tokens.

    Attributes:
        cache: the entries that the values refer to. A reset of the cache replaces them.
        pretokens: the pre-tokens.
        values: number and offset of the ids of each pre-token, packed, `int64`, shape `(pretokens,)`.
            `ABSENT` for misses and uncacheable pre-tokens.
        misses: indices of the pre-tokens that have to be merged and inserted, `int64`, shape `(misses,)`.
        uncacheable: indices of the pre-tokens that no table can hold, `int64`, shape `(uncacheable,)`.
    """

    cache: _CacheEntries
    pretokens: Pretokens
    values: NDArray[np.int64]
    misses: NDArray[np.int64]
    uncacheable: NDArray[np.int64]


class PretokenMerger(Protocol):
    """Computes the ids of pre-tokens that are not in the cache."""

    def merge(self, pretokens: Pretokens) -> PretokenIds:
        """Returns the ids of pre-tokens, at least one for each."""


class PretokenCache(ExchangingCache):
    """Cache of pre-tokens and their ids.

    Threads can share it: reading takes no lock. Copies in other processes exchange new pre-tokens with it.

    Args:
        atomic_ids: bytes to id, for the pre-tokens that are one token without merging.
        merger: computes the ids of all other pre-tokens.
    """

    def __init__(self, atomic_ids: Mapping[bytes, int], merger: PretokenMerger) -> None:
        super().__init__()
        self._atomic_ids = atomic_ids
        self._lock = ThreadLock()
        self._cache = _CacheEntries(atomic_ids)
        self._merger = merger
        self._uncacheable: dict[bytes, NDArray[np.int32]] = {}
        self._num_uncacheable_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields, without the dictionary, which another thread may change now."""
        return super().__getstate__() | {"_uncacheable": {}, "_num_uncacheable_bytes": 0}

    def encode(self, batches: Iterable[Pretokens]) -> Iterator[PretokenIds]:
        """Yields the ids of the pre-tokens of each batch, in order.

        The misses of several batches are merged together, because that costs less per pre-token.
        """
        pending: list[CacheLookup] = []
        misses = 0
        for pretokens in batches:
            pending.append(self.find(pretokens))
            misses += len(pending[-1].misses)
            if not misses or misses >= _MAX_MISSES or len(pending) >= _MAX_BATCHES:
                yield from map(self.get_ids, self.insert(pending))
                pending, misses = [], 0
        yield from map(self.get_ids, self.insert(pending))

    def find(self, pretokens: Pretokens, entries: _CacheEntries | None = None) -> CacheLookup:
        """Looks up pre-tokens, in the current entries unless others are given, and inserts nothing."""
        entries = entries or self._cache
        values = entries.tables.find(pretokens)
        absent = np.flatnonzero(values == ABSENT)
        is_cacheable = can_hold(pretokens.take(absent)) if len(absent) else np.ones(0, bool)
        return CacheLookup(entries, pretokens, values, absent[is_cacheable], absent[~is_cacheable])

    def insert(self, lookups: list[CacheLookup]) -> list[CacheLookup]:
        """Merges the misses of lookups, each different pre-token once, and inserts them.

        Returns:
            The same lookups, without misses.
        """
        if not any(len(lookup.misses) for lookup in lookups):
            return lookups
        entries = self._get_entries()
        # Values of entries that were reset since the lookup mean nothing for the current ones: look up
        # again.
        lookups = [
            lookup if lookup.cache is entries else self.find(lookup.pretokens, entries) for lookup in lookups
        ]
        misses = concatenate_pretokens([lookup.pretokens.take(lookup.misses) for lookup in lookups])
        values = self._find_or_insert(entries, misses)
        stops = np.cumsum([len(lookup.misses) for lookup in lookups])
        for lookup, new_values in zip(lookups, np.split(values, stops[:-1]), strict=True):
            lookup.values[lookup.misses] = new_values
        return [lookup._replace(misses=_NO_INDICES) for lookup in lookups]

    def get_ids(self, lookup: CacheLookup) -> PretokenIds:
        """Returns the ids of the pre-tokens of a lookup without misses."""
        merged = (
            self._find_uncacheable(lookup.pretokens.take(lookup.uncacheable))
            if len(lookup.uncacheable)
            else NO_IDS
        )
        return lookup.cache.pool.expand(lookup.values, lookup.uncacheable, merged)

    def _find_or_insert(self, entries: _CacheEntries, pretokens: Pretokens) -> NDArray[np.int64]:
        """Returns the values of pre-tokens. Merges and inserts those that are not there yet."""
        example, inverse = entries.tables.unique(pretokens)
        unique = pretokens.take(example)
        values = entries.tables.find(unique)  # another thread may have inserted some in the meantime
        misses = np.flatnonzero(values == ABSENT)
        new = unique.take(misses)
        merged = self._merger.merge(new)
        values[misses] = self._insert_merged(entries, new, merged)
        if self.has_subscribers:
            self.publish([(concatenate_pretokens([new]), merged)])
        return values.take(inverse)

    def _insert_merged(
        self, entries: _CacheEntries, pretokens: Pretokens, merged: PretokenIds
    ) -> NDArray[np.int64]:
        """Inserts pre-tokens with their ids. Returns their values."""
        # First the pool, then the tables: a thread that finds a value also finds its ids.
        with self._lock.current:
            values = entries.pool.add(merged)
        entries.tables.add(pretokens, values)
        return values

    def add_entries(self, batches: Sequence[tuple[Pretokens, PretokenIds]]) -> None:
        """Inserts pre-tokens that a copy of this cache has merged, unless this cache is full."""
        entries = self._cache
        if entries.is_full:
            return
        pretokens = concatenate_pretokens([part for part, _ in batches])
        ids = np.concatenate([merged.ids for _, merged in batches])
        counts = np.concatenate([merged.counts for _, merged in batches])
        new = np.flatnonzero(entries.tables.find(pretokens) == ABSENT)
        indices = concatenate_ranges((np.cumsum(counts) - counts).take(new), counts.take(new))
        merged = PretokenIds(ids.take(indices), counts.take(new))
        self._insert_merged(entries, pretokens.take(new), merged)

    def _find_uncacheable(self, pretokens: Pretokens) -> PretokenIds:
        """Returns the ids of pre-tokens that no table can hold. Those that are new are merged."""
        keys, found = list(pretokens.iter_bytes()), self._uncacheable
        new = [key for key in dict.fromkeys(keys) if key not in found]
        if new:
            if self._num_uncacheable_bytes > MAX_CACHE_BYTES:
                found, new = {}, list(dict.fromkeys(keys))
                self._uncacheable, self._num_uncacheable_bytes = found, 0
            others = [key for key in new if key not in self._atomic_ids]
            merged = self._merger.merge(make_pretokens(others))
            found.update(zip(others, np.split(merged.ids, np.cumsum(merged.counts)[:-1]), strict=False))
            atomic = self._atomic_ids.keys() & new
            found.update({key: np.array([self._atomic_ids[key]], np.int32) for key in atomic})
            self._num_uncacheable_bytes += sum(map(len, new)) + _ENTRY_BYTES * len(new)
        parts = [found[key] for key in keys]
        return PretokenIds(np.concatenate(parts), np.fromiter(map(len, parts), np.int64, len(parts)))

    def _get_entries(self) -> _CacheEntries:
        """Returns the current entries. They are reset to the vocabulary once they are full."""
        entries = self._cache
        if entries.is_full:
            entries = self._cache = _CacheEntries(self._atomic_ids)
            # Most of the pre-tokens of such a text occur once. The caches of other processes would only be
            # full sooner.
            self.unsubscribe_all()
        return entries


class _CacheEntries:
    """The entries of the cache between two resets: hash tables and pool. They start with the vocabulary.

    A reset replaces this object and does not change it. So lookups of other threads stay valid.
    """

    def __init__(self, atomic_ids: Mapping[bytes, int]) -> None:
        ids = np.fromiter(atomic_ids.values(), np.int32, len(atomic_ids))
        self.pool = _IdPool()
        self.tables = HashTables(
            make_pretokens(list(atomic_ids)), self.pool.add(PretokenIds(ids, np.ones(len(ids), np.int64)))
        )
        self._vocabulary_nbytes = self.tables.nbytes

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields, the tables first: the pool then has all ids to which they lead."""
        return {"tables": self.tables} | vars(self)

    @property
    def is_full(self) -> bool:
        """Whether the cache has to be reset."""
        is_large = self.tables.nbytes > self._vocabulary_nbytes + MAX_CACHE_BYTES
        return is_large or self.pool.used > MAX_CACHE_TOKENS


class _IdPool:
    """The ids of all cached pre-tokens, those of each pre-token contiguous."""

    def __init__(self) -> None:
        self.ids = np.zeros(1 << 12, np.int32)
        self.used = 0

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields, without free space. The ids in use never change."""
        used = self.used
        return {"ids": self.ids[:used], "used": used}

    def add(self, merged: PretokenIds) -> NDArray[np.int64]:
        """Appends the ids of pre-tokens. Returns the values of the pre-tokens."""
        start, stop = self.used, self.used + len(merged.ids)
        if stop > len(self.ids):
            # A new array: threads that read the old one are not disturbed.
            self.ids = np.concatenate([self.ids, np.zeros(stop, np.int32)])
        self.ids[start:stop] = merged.ids
        self.used = stop
        return _pack_values(merged, start)

    def expand(
        self, values: NDArray[np.int64], uncacheable: NDArray[np.int64], merged: PretokenIds
    ) -> PretokenIds:
        """Returns the ids of pre-tokens from their values.

        Args:
            values: the values of all pre-tokens of a chunk. Those of uncacheable ones are overwritten.
            uncacheable: indices of the pre-tokens that are in no table, ascending.
            merged: the ids of the uncacheable pre-tokens.
        """
        upper = values.view("<i4")[1::2]
        counts = upper >> ID_BITS
        first_ids = upper & _FIRST_ID_MASK
        if len(uncacheable):
            counts = counts.astype(np.int64)
            counts[uncacheable] = merged.counts
        ends = np.cumsum(counts, dtype=np.int64)
        if not len(ends) or ends[-1] == len(ends):
            ids = first_ids
        elif len(several := np.flatnonzero(counts > 1)) > len(counts) // 2:
            ids = self.ids.take(concatenate_ranges(values & _OFFSET_MASK, counts), mode="clip")
        else:
            ids = np.empty(ends[-1], np.int32)
            ids[ends - counts] = first_ids
            num_more = counts.take(several) - 1
            offsets = values.take(several) & _OFFSET_MASK
            more = self.ids.take(concatenate_ranges(offsets + 1, num_more), mode="clip")
            ids[concatenate_ranges(ends.take(several) - num_more, num_more)] = more
        if len(uncacheable):
            starts = ends.take(uncacheable) - merged.counts
            ids[concatenate_ranges(starts, merged.counts)] = merged.ids
        return PretokenIds(ids, counts)


def _pack_values(merged: PretokenIds, start: int) -> NDArray[np.int64]:
    """Returns the values of pre-tokens whose ids are stored in the pool from `start` on."""
    first = np.cumsum(merged.counts) - merged.counts
    upper = merged.counts << ID_BITS | merged.ids.take(first)
    values: NDArray[np.int64] = upper << _UPPER_SHIFT | start + first
    return values
