"""Shards whose data are mapped: a bounded number in a process, however many datasets it has."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.locks import ThreadLock

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_OPEN = 1024


class OpenShard(NamedTuple):
    """A shard whose data are mapped.

    Attributes:
        data: ids, or bytes of text, mapped.
        raw: the same as bytes.
    """

    data: NDArray[Any]
    raw: memoryview


class OpenShards:
    """The shards of one dataset whose data are mapped, by their numbers. Threads can share it.

    Each takes a file handle, of which a process has a number; so those stay open that any of its datasets
    opened last.
    """

    def __init__(self) -> None:
        self._shards: dict[int, OpenShard] = {}

    def get(self, index: int) -> OpenShard | None:
        """A shard, if it is open."""
        return self._shards.get(index)

    def keep(self, index: int, shard: OpenShard) -> None:
        """Take in a shard that was opened; those that were opened first are closed if there are too many."""
        with _lock.current:
            self._shards[index] = shard
            _opened.append((weakref.ref(self), index))
            while len(_opened) > get_max_open_shards():
                reference, oldest = _opened.popleft()
                owner = reference()
                if owner is not None:
                    owner._shards.pop(oldest, None)


_opened: deque[tuple[weakref.ref[OpenShards], int]] = deque()
_lock = ThreadLock()


def get_max_open_shards() -> int:
    """How many shards stay open in this process: at most half of its file handles are for them."""
    try:
        import resource  # noqa: PLC0415 (Windows has none)
    except ImportError:
        return _MAX_OPEN // 2
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:  # (-1 on Linux)
        return _MAX_OPEN
    return max(min(soft // 2, _MAX_OPEN), 1)


def get_max_held_shards() -> int:
    """How many shards one thread may refer to at a time, which stay open while it does."""
    return max(get_max_open_shards() // 4, 1)
