"""Sequences that were read lately, kept in memory: for datasets on slow storage."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from tokjax._util.checks import check_int
from tokjax._util.locks import ThreadLock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


ENTRY_BYTES = 400
"""About what a sequence in a cache takes besides its bytes: its key and its place in the table."""


class CacheStats(NamedTuple):
    """What a cache did.

    Attributes:
        hits: how often a sequence was there.
        misses: how often it had to be read.
        nbytes: how much memory it takes, `ENTRY_BYTES` for each sequence besides it.
        entries: how many there are.
    """

    hits: int
    misses: int
    nbytes: int
    entries: int

    @property
    def hit_rate(self) -> float:
        """The share of sequences that were there; 0 before the first."""
        return self.hits / max(self.hits + self.misses, 1)


class TokenCache:
    """The sequences that were read last, up to a number of bytes. Threads can share it.

    Args:
        max_bytes: how much memory it may take.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = check_int("cache_bytes", max_bytes, minimum=1)
        self._entries: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = ThreadLock()
        self._nbytes = self._hits = self._misses = 0

    def get(self, key: Hashable, read: Callable[[], bytes]) -> bytes:
        """A sequence: the one that is kept under a key, or else what `read` gives, which is then kept."""
        with self._lock.current:
            found = self._entries.get(key)
            if found is not None:
                self._hits += 1
                self._entries.move_to_end(key)
                return found
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
        """What it did up to now."""
        with self._lock.current:
            return CacheStats(self._hits, self._misses, self._nbytes, len(self._entries))


def _compute_size(sequence: bytes) -> int:
    return sys.getsizeof(sequence) + ENTRY_BYTES
