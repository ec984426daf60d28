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

Once the cache is full, it is reset to the vocabulary, which changes no id.

See docs/performance.md, section "Pre-token cache".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tokjax._util.cache_exchange import ExchangingCache
from tokjax._util.locks import ThreadLock
from tokjax.bpe.batched_merging import PretokenIds
from tokjax.bpe.hash_tables import ABSENT, HashTables, concatenate_pretokens, make_pretokens
from tokjax.core.ragged import concatenate_ranges
from tokjax.core.vocabulary import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Pretokens

MAX_CACHE_BYTES = 1 << 26
"""Memory of the pre-tokens besides the vocabulary, in bytes, at which the cache is reset. The tables take up
to four times as much while one of them grows."""
MAX_CACHE_TOKENS = 1 << 23
"""Number of ids in the pool at which the cache is reset."""
# The value of a pre-token: its first id and the number of its ids in the upper 32 bits, the offset of its ids
# in the pool in the lower. Most pre-tokens are one token, whose id is then known without reading the pool. If
# there are more ids than the bits hold, the value is negative, and the number is in the pool before the ids.
_UPPER_SHIFT = 32
_OFFSET_MASK = np.int64((1 << _UPPER_SHIFT) - 1)
_FIRST_ID_MASK = np.int32((1 << ID_BITS) - 1)
_MANY = 1 << 31 - ID_BITS
"""From this number of ids on, it is in the pool."""
_MAX_MISSES, _MAX_BATCHES = 1 << 15, 16
"""Misses are merged and inserted once there are this many, or this many batches wait for them."""


class _CacheLookup(NamedTuple):
    """The result of looking up pre-tokens.

    Attributes:
        entries: the entries that the values refer to. A reset of the cache replaces them.
        pretokens: the pre-tokens.
        values: number and offset of the ids of each pre-token, packed, `int64`, shape `(pretokens,)`.
            `ABSENT` for misses.
    """

    entries: _CacheEntries
    pretokens: Pretokens
    values: NDArray[np.int64]


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

    Attributes:
        entries: the current entries.
    """

    def __init__(self, atomic_ids: Mapping[bytes, int], merger: PretokenMerger) -> None:
        super().__init__()
        self._atomic_ids = atomic_ids
        self._lock = ThreadLock()
        self.entries = _CacheEntries(atomic_ids)
        self._merger = merger

    def encode(self, batches: Iterable[Pretokens]) -> Iterator[PretokenIds]:
        """Yields the ids of the pre-tokens of each batch, in order.

        The misses of several batches are merged together, because that costs less per pre-token.
        """
        pending: list[_CacheLookup] = []
        num_misses = 0
        for pretokens in batches:
            entries = self.entries
            pending.append(_CacheLookup(entries, pretokens, entries.tables.find(pretokens)))
            num_misses += int(np.count_nonzero(pending[-1].values == ABSENT))
            if not num_misses or num_misses >= _MAX_MISSES or len(pending) >= _MAX_BATCHES:
                yield from self._insert_misses(pending)
                pending, num_misses = [], 0
        yield from self._insert_misses(pending)

    def _insert_misses(self, lookups: list[_CacheLookup]) -> Iterator[PretokenIds]:
        """Merges the misses of lookups, each different pre-token once, and yields the ids of each lookup."""
        if any(np.any(lookup.values == ABSENT) for lookup in lookups):
            entries = self._get_entries()
            # Values of entries that were reset since the lookup mean nothing for the current ones.
            lookups = [
                lookup
                if lookup.entries is entries
                else _CacheLookup(entries, lookup.pretokens, entries.tables.find(lookup.pretokens))
                for lookup in lookups
            ]
            misses = [np.flatnonzero(lookup.values == ABSENT) for lookup in lookups]
            pretokens = [each.pretokens.take(indices) for each, indices in zip(lookups, misses, strict=True)]
            values = self._find_or_insert(entries, concatenate_pretokens(pretokens))
            stops = np.cumsum(list(map(len, misses)))
            for lookup, indices, stop in zip(lookups, misses, stops.tolist(), strict=True):
                lookup.values[indices] = values[stop - len(indices) : stop]
        return (lookup.entries.pool.expand(lookup.values) for lookup in lookups)

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
        entries = self.entries
        if entries.is_full:
            return
        pretokens = concatenate_pretokens([part for part, _ in batches])
        ids = np.concatenate([merged.ids for _, merged in batches])
        counts = np.concatenate([merged.counts for _, merged in batches])
        new = np.flatnonzero(entries.tables.find(pretokens) == ABSENT)
        indices = concatenate_ranges((np.cumsum(counts) - counts).take(new), counts.take(new))
        merged = PretokenIds(ids.take(indices), counts.take(new))
        self._insert_merged(entries, pretokens.take(new), merged)

    def _get_entries(self) -> _CacheEntries:
        """Returns the current entries. They are reset to the vocabulary once they are full."""
        entries = self.entries
        if entries.is_full:
            entries = self.entries = _CacheEntries(self._atomic_ids)
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
        ids, counts = merged.ids, merged.counts.astype(np.int64)
        first = np.cumsum(counts) - counts
        is_many = counts >= _MANY
        if is_many.any():
            ids = np.insert(ids, first[is_many], counts[is_many])
            first += np.cumsum(is_many)
        start, stop = self.used, self.used + len(ids)
        if stop > len(self.ids):
            # A new array: threads that read the old one are not disturbed.
            self.ids = np.concatenate([self.ids, np.zeros(stop, np.int32)])
        self.ids[start:stop] = ids
        self.used = stop
        upper = np.where(is_many, -_MANY, counts) << ID_BITS | ids.take(first)
        values: NDArray[np.int64] = upper << _UPPER_SHIFT | start + first
        return values

    def expand(self, values: NDArray[np.int64]) -> PretokenIds:
        """Returns the ids of pre-tokens from their values."""
        upper = values.view("<i4")[1::2]
        counts = upper >> ID_BITS
        first_ids = upper & _FIRST_ID_MASK
        if upper.min(initial=0) < 0:
            many = np.flatnonzero(upper < 0)
            counts[many] = self.ids.take((values.take(many) & _OFFSET_MASK) - 1)
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
        return PretokenIds(ids, counts)
