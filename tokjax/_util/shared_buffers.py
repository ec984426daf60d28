"""Shared memory in which two processes of one machine pass values to each other.

A value is pickled, and the arrays in it are stored after the pickle, each at an aligned position. So arrays
and long strings are copied once on each side, and pass through no pipe.
"""

from __future__ import annotations

import mmap
import os
import pickle
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_ALIGNMENT = 64
_MIN_NBYTES = 1 << 20


class SharedBuffer:
    """Anonymous memory that is shared with other processes through its file descriptor.

    Only one process may write at a time, and no other may read then. The memory grows as needed, and is freed
    when the last process has closed it.

    Args:
        fd: descriptor of existing memory, which the buffer then owns; `None` for new memory.

    Attributes:
        fd: the file descriptor.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd: int | None = os.memfd_create("tokjax") if fd is None else fd
        self._map: mmap.mmap | None = None

    def write(self, value: Any) -> list[int]:
        """Writes a value, in place of the one before. Returns the sizes that `read` needs, in bytes."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
        parts = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
        sizes = [part.nbytes for part in parts]
        starts = _compute_starts(sizes)
        if self._map is None or len(self._map) < starts[-1]:
            nbytes = max(_MIN_NBYTES, 2 * starts[-1])  # pages that are not written take no memory
            os.ftruncate(self._get_fd(), nbytes)
            self._map = mmap.mmap(self._get_fd(), nbytes)
        for start, part in zip(starts, parts, strict=False):
            self._map[start : start + part.nbytes] = part
        return sizes

    def read(self, sizes: list[int]) -> Any:
        """Returns a copy of the value that another process wrote."""
        starts = _compute_starts(sizes)
        if self._map is None or len(self._map) < starts[-1]:
            self._map = mmap.mmap(self._get_fd(), 0)
        with memoryview(self._map) as memory:
            parts = [memory[start : start + size] for start, size in zip(starts, sizes, strict=False)]
            try:
                return pickle.loads(parts[0], buffers=map(bytearray, parts[1:]))
            finally:
                for part in parts:
                    part.release()

    def map_value(self, sizes: list[int]) -> Any:
        """Returns the value without copying its arrays, and closes the descriptor.

        A page of memory that is changed becomes private to this process. The others stay shared with all
        processes that use the value.
        """
        memory = memoryview(mmap.mmap(self._get_fd(), 0, access=mmap.ACCESS_COPY))
        self.close()
        starts = _compute_starts(sizes)
        parts = [memory[start : start + size] for start, size in zip(starts, sizes, strict=False)]
        return pickle.loads(parts[0], buffers=parts[1:])

    def close(self, close_fd: Callable[[int], None] = os.close) -> None:
        """Closes the descriptor. Memory that is mapped stays valid.

        Args:
            close_fd: `os.close`, also while the interpreter ends, when this module has no `os` any more.
        """
        if self.fd is not None:
            close_fd(self.fd)
            self.fd = None

    def __del__(self) -> None:
        """Closes the descriptor."""
        self.close()

    def _get_fd(self) -> int:
        assert self.fd is not None, "the buffer is closed"
        return self.fd


def _compute_starts(sizes: list[int]) -> list[int]:
    """Returns the position of each part, and the end of the last."""
    aligned = (-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
    return list(accumulate(aligned, initial=0))
