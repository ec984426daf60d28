"""Tests of the cache of sequences: its contents, eviction order and counters."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, strategies as st

from tokjax.datasets.caches import ENTRY_BYTES, TokenCache


def get_size(sequence):
    return sys.getsizeof(sequence) + ENTRY_BYTES


def fail_if_read():
    raise AssertionError("read although it is cached")


class SlowCache:
    """Reference implementation: a list of keys and sequences, the most recently used one last."""

    def __init__(self, max_bytes):
        self.max_bytes, self.entries, self.hits, self.misses = max_bytes, [], 0, 0

    def get(self, key, sequence):
        hit = [entry for entry in self.entries if entry[0] == key]
        self.hits, self.misses = self.hits + len(hit), self.misses + 1 - len(hit)
        if not hit and get_size(sequence) > self.max_bytes:
            return sequence
        self.entries = [entry for entry in self.entries if entry[0] != key] + (hit or [(key, sequence)])
        while sum(get_size(cached) for _, cached in self.entries) > self.max_bytes:
            self.entries.pop(0)
        return self.entries[-1][1]

    def stats(self):
        return self.hits, self.misses, sum(get_size(cached) for _, cached in self.entries), len(self.entries)


@given(
    st.integers(1, 5 * get_size(b"")),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2 * get_size(b""))), max_size=40),
)
def test_cache_is_least_recently_used(max_bytes, requests):
    cache, slow = TokenCache(max_bytes), SlowCache(max_bytes)
    for key, length in requests:
        sequence = bytes([key]) * length
        assert cache.get(key, lambda data=sequence: data) == slow.get(key, sequence)
        assert cache.stats() == slow.stats()
    assert cache.stats().hit_rate == slow.hits / max(len(requests), 1)
    for key, sequence in slow.entries:
        assert cache.get(key, fail_if_read) == sequence


def test_entry_at_the_byte_limit():
    for capacity, entries in ((get_size(b"12"), 1), (get_size(b"12") - 1, 0)):
        cache = TokenCache(capacity)
        assert cache.get(0, lambda: b"12") == b"12"
        assert cache.stats() == (0, 1, entries * get_size(b"12"), entries)


def test_concurrent_reads_store_one_entry():
    cache, barrier = TokenCache(10_000), threading.Barrier(2, timeout=60)

    def read():
        barrier.wait()
        return b"sequence"

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(cache.get, [0, 0], [read, read]))
    assert cache.stats() == (0, 2, get_size(b"sequence"), 1)
