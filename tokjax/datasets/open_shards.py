"""Memory-mapped shards of datasets.

All mapped shards of a process share one limit. A mapped shard keeps a file handle open, and
the number of handles of a process is limited (`ulimit -n`).
Half of that limit is for shards. Beyond it, the shard that was opened first is closed, whichever dataset it
belongs to:

    opened, limit 3     a/0  a/1  b/0
    open b/1            a/1  b/0  b/1      (a/0 is closed)

The downloaded copy of a shard can be deleted while it is mapped (see `downloads.py`). It is closed then, too.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.locks import ThreadLock

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


_MAX_OPEN = 1024


class LocalCopy(NamedTuple):
    """Downloaded copy of a file.

    Attributes:
        path: path of the copy.
        inode: number of the file on its file system.
    """

    path: Path
    inode: int

    def is_deleted(self) -> bool:
        """Returns whether the copy was deleted, or replaced by another one."""
        try:
            return self.path.stat().st_ino != self.inode
        except FileNotFoundError:
            return True


class OpenShard(NamedTuple):
    """Memory-mapped data of a shard.

    Attributes:
        data: ids, or bytes of text, shape `(num_items,)`.
        raw: the same data as bytes.
        copy: downloaded copy of the file; `None` for a local dataset.
    """

    data: NDArray[Any]
    raw: memoryview
    copy: LocalCopy | None


class OpenShards:
    """Memory-mapped files of one dataset, by shard index and column. Thread-safe.

    All instances of a process share one limit, see `get_max_open_shards`.
    """

    def __init__(self) -> None:
        self._shards: dict[str, dict[int, OpenShard]] = {}

    def __contains__(self, key: tuple[int, str]) -> bool:
        """Returns whether a file of a shard is open."""
        return self.get(key) is not None

    def get(self, key: tuple[int, str]) -> OpenShard | None:
        """Returns a file of a shard if it is open, else `None`."""
        shard, column = key
        return self._shards.get(column, {}).get(shard)

    def count(self, column: str) -> int:
        """Returns the number of shards whose file of a column is open."""
        return len(self._shards.get(column, ()))

    def insert(self, key: tuple[int, str], shard: OpenShard) -> None:
        """Inserts a file of a shard, and closes the ones opened first while there are too many."""
        with _lock.current:
            self._shards.setdefault(key[1], {})[key[0]] = shard
            _insertion_order.append((weakref.ref(self), key))
            while len(_insertion_order) > get_max_open_shards():
                reference, oldest = _insertion_order.popleft()
                owner = reference()
                if owner is not None:
                    owner._remove(oldest)

    def _remove(self, key: tuple[int, str]) -> None:
        shard, column = key
        self._shards[column].pop(shard, None)


_insertion_order: deque[tuple[weakref.ref[OpenShards], tuple[int, str]]] = deque()
_lock = ThreadLock()


def close_deleted_shards() -> None:
    """Closes the shards whose downloaded copies were deleted, so that their space on disk becomes free."""
    with _lock.current:
        for entry in list(_insertion_order):
            reference, key = entry
            owner = reference()
            shard = None if owner is None else owner.get(key)
            if owner is not None and shard is not None and shard.copy is not None and shard.copy.is_deleted():
                owner._remove(key)
                _insertion_order.remove(entry)


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

    A shard stays open while it is referenced, even if it was closed.
    """
    return max(get_max_open_shards() // 4, 1)
