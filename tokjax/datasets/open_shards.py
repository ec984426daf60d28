"""Cache of memory-mapped shards, with one limit for all datasets of a process.

A mapped shard keeps a file handle open, and the number of handles of a process is limited (`ulimit -n`).
Half of that limit is for shards. Beyond it, the shard that was opened first is closed, whichever dataset it
belongs to:

    opened, limit 3     a/0  a/1  b/0
    open b/1            a/1  b/0  b/1      (a/0 is closed)
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.locks import ThreadLock

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_OPEN = 1024


class OpenShard(NamedTuple):
    """Memory-mapped data of a shard.

    Attributes:
        data: ids, or bytes of text, shape `(num_items,)`.
        raw: the same data as bytes.
    """

    data: NDArray[Any]
    raw: memoryview


class OpenShards:
    """Memory-mapped shards of one dataset, by shard index. Thread-safe.

    All instances of a process share one limit, see `get_max_open_shards`.
    """

    def __init__(self) -> None:
        self._shards: dict[int, OpenShard] = {}

    def get(self, index: int) -> OpenShard | None:
        """Returns a shard if it is open, else `None`."""
        return self._shards.get(index)

    def insert(self, index: int, shard: OpenShard) -> None:
        """Inserts a shard, and closes the ones opened first while there are too many."""
        with _lock.current:
            self._shards[index] = shard
            _insertion_order.append((weakref.ref(self), index))
            while len(_insertion_order) > get_max_open_shards():
                reference, oldest = _insertion_order.popleft()
                owner = reference()
                if owner is not None:
                    owner._shards.pop(oldest, None)


_insertion_order: deque[tuple[weakref.ref[OpenShards], int]] = deque()
_lock = ThreadLock()


def get_max_open_shards() -> int:
    """Returns the maximum number of open shards in this process: at most half of its file handles."""
    try:
        import resource  # noqa: PLC0415 (not available on Windows)
    except ImportError:
        return _MAX_OPEN // 2
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:  # (-1 on Linux)
        return _MAX_OPEN
    return max(min(soft // 2, _MAX_OPEN), 1)


def get_max_held_shards() -> int:
    """Returns the maximum number of shards that one thread may hold references to at a time.

    A shard stays open while it is referenced, even if the cache has dropped it.
    """
    return max(get_max_open_shards() // 4, 1)
