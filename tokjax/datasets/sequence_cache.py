"""Least-recently-used cache of sequences in memory, for datasets on slow storage."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from tokjax._util.checks import check_int
from tokjax._util.locks import ThreadLock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


ENTRY_BYTES = 400
"""Approximate memory per cached sequence in addition to its bytes: its key and its entry in the table."""


class CacheStats(NamedTuple):
    """Counters of a cache.

    Attributes:
        hits: number of reads that found the sequence in the cache.
        misses: number of reads that did not.
        nbytes: memory in use, in bytes, including `ENTRY_BYTES` per sequence.
        entries: number of sequences in the cache.
    """

    hits: int
    misses: int
    nbytes: int
    entries: int

    @property
    def hit_rate(self) -> float:
        """Fraction of reads that were hits; 0 before the first read."""
        return self.hits / max(self.hits + self.misses, 1)


class TokenCache:
    """Least-recently-used cache of sequences with a limit in bytes. Thread-safe.

    Args:
        max_bytes: maximum memory in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = check_int("cache_bytes", max_bytes, minimum=1)
        self._entries: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = ThreadLock()
        self._nbytes = self._hits = self._misses = 0

    def get(self, key: Hashable, read: Callable[[], bytes]) -> bytes:
        """Returns a sequence from the cache, or reads and inserts it.

        A sequence that is larger than the whole cache is not inserted.

        Args:
            key: key of the sequence.
            read: function that reads the sequence. It runs without the lock, so two threads may read the same
                one.
        """
        with self._lock.current:
            cached = self._entries.get(key)
            if cached is not None:
                self._hits += 1
                self._entries.move_to_end(key)
                return cached
            self._misses += 1
        data = read()
        with self._lock.current:
            if key not in self._entries and _compute_size(data) <= self.max_bytes:
                self._entries[key] = data
                self._nbytes += _compute_size(data)
                while self._nbytes > self.max_bytes:
                    self._nbytes -= _compute_size(self._entries.popitem(last=False)[1])
        return data

    def stats(self) -> CacheStats:
        """Returns the counters up to now."""
        with self._lock.current:
            return CacheStats(self._hits, self._misses, self._nbytes, len(self._entries))


def _compute_size(sequence: bytes) -> int:
    return sys.getsizeof(sequence) + ENTRY_BYTES
