"""Caches whose copies in worker processes send each other their new entries.

A worker has a copy of the cache of this process. Both meet the same new keys, and each would compute their
entries. So a call to a worker takes along the entries that are new here, and its answer brings those that are
new there, which are then also sent to the other workers::

    this process     computes a b  | call, with a b  | computes c       | adds d    | call, with c
    worker           (has a copy)  | adds a b        | computes d, c    | answer, with d c

The entry of a key does not depend on the other entries. So it is no error if an entry arrives late, twice or
never.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tokjax._util.locks import ThreadLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ExchangingCache(ABC):
    """Base class of caches that exchange entries with their copies in other processes.

    Pickles and copies have no queues, and `collect_queues` subscribes to both sides of a copy.
    """

    def __init__(self) -> None:
        self._queues: tuple[weakref.ref[EntryQueue], ...] = ()
        self._queues_lock = ThreadLock()

    @abstractmethod
    def add_entries(self, batches: Sequence[Any]) -> None:
        """Inserts entries that a copy of this cache has computed."""

    def subscribe(self) -> EntryQueue:
        """Returns a queue of all entries that this cache computes from now on."""
        queue = EntryQueue(weakref.ref(self))
        with self._queues_lock.current:
            alive = (reference for reference in self._queues if reference() is not None)
            self._queues = (*alive, weakref.ref(queue))
        return queue

    @property
    def has_subscribers(self) -> bool:
        """Whether a copy of this cache may receive entries."""
        return any(reference() is not None for reference in self._queues)

    def unsubscribe_all(self) -> None:
        """Ends the exchange: entries from now on are in no queue."""
        with self._queues_lock.current:
            self._queues = ()

    def publish(self, batches: Sequence[Any], source: EntryQueue | None = None) -> None:
        """Appends batches of new entries to all queues.

        Args:
            batches: the entries, which have to be picklable.
            source: queue of the copy that the entries come from, which does not need them.
        """
        for reference in self._queues:
            queue = reference()
            if queue is not None and queue is not source:
                queue.batches.extend(batches)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields without the queues, and subscribes for the copy inside of `collect_queues`."""
        _note_copy(self)
        return {name: value for name, value in vars(self).items() if name != "_queues"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Sets the fields, and subscribes for the original inside of `collect_queues`."""
        vars(self).update(state, _queues=())
        _note_copy(self)


class EntryQueue:
    """Entries of a cache that one of its copies has not received yet. The size of the cache bounds it.

    Attributes:
        batches: the entries.
    """

    def __init__(self, cache: weakref.ref[ExchangingCache]) -> None:
        self._cache = cache
        self.batches: list[Any] = []

    def take(self) -> list[Any]:
        """Removes and returns all batches."""
        batches, self.batches = self.batches, []
        return batches

    def deliver(self, batches: list[Any]) -> None:
        """Adds batches that the copy has computed to the cache, and passes them on to its other copies."""
        cache = self._cache()
        if cache is not None and batches:
            cache.add_entries(batches)
            cache.publish(batches, self)

    def copy(self) -> EntryQueue:
        """Returns a queue of the same cache with the same batches."""
        cache = self._cache()
        copied = EntryQueue(self._cache) if cache is None else cache.subscribe()
        copied.batches.extend(self.batches)
        return copied


class _Collector(threading.local):
    queues: list[EntryQueue] | None = None


_collector = _Collector()


@contextmanager
def collect_queues() -> Iterator[list[EntryQueue]]:
    """Yields a list to which each cache that is pickled or unpickled in the block appends a queue.

    The queues on both sides are in the same order.
    """
    before, _collector.queues = _collector.queues, []
    try:
        yield _collector.queues
    finally:
        _collector.queues = before


def is_copying_to_worker() -> bool:
    """Returns whether this thread is in `collect_queues`: it pickles an object for a worker process."""
    return _collector.queues is not None


def _note_copy(cache: ExchangingCache) -> None:
    if _collector.queues is not None:
        _collector.queues.append(cache.subscribe())
