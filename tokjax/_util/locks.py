"""Locks between threads that survive a fork, and locks between processes."""

from __future__ import annotations

import errno
import os
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

# The first call of `np.unique` imports this. A child forked while another thread does so would wait for ever.
import numpy.ma  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class ThreadLock:
    """Holder of a lock that a forked child process can acquire: `with lock.current:`.

    A child has only the thread that forked it. A lock that another thread held at that moment would stay
    locked in the child for ever, so the child gets a new one. The state that it guards must therefore be
    usable after any statement of the code that changes it.

    It pickles and copies as one with a new lock.

    Attributes:
        current: the lock of this process.
    """

    def __init__(self) -> None:
        self.current = threading.Lock()
        _locks.add(self)

    def __reduce__(self) -> tuple[type[ThreadLock], tuple[()]]:
        """Pickles as one with a new lock."""
        return ThreadLock, ()


_locks: weakref.WeakSet[ThreadLock] = weakref.WeakSet()


def _renew_locks() -> None:
    for lock in list(_locks):
        lock.current = threading.Lock()
    if sys.version_info < (3, 12):  # (where a cached property has a lock, shared by all objects of its class)
        modules = [module for name, module in list(sys.modules.items()) if name.startswith("tokjax.")]
        classes = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
        for attribute in (attribute for kind in classes for attribute in vars(kind).values()):
            if isinstance(attribute, cached_property):
                setattr(attribute, "lock", threading.RLock())  # noqa: B010 (no attribute in the types)


if hasattr(os, "register_at_fork"):  # (Windows has no fork)
    os.register_at_fork(after_in_child=_renew_locks)


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Locks a file between processes and threads, and deletes it at the end.

    The lock ends with the process, however that ends. A file that a killed process leaves locks nothing.

    Yields:
        Whether the lock was acquired: `False` where another holds it.

    Raises:
        OSError: the file can't be made, or its file system has no locks.
    """
    descriptor = _acquire(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):  # (Windows deletes no open file; then it stays, unlocked)
                path.unlink()
            os.close(descriptor)


@contextmanager
def keep_locked(path: Path) -> Iterator[None]:
    """Locks a file of a unique name until the block ends, and leaves it where it is.

    It does nothing on a file system without locks, nor on Windows, where nobody could write to the file.
    """
    descriptor = None
    with suppress(OSError):
        while descriptor is None and sys.platform != "win32":  # another process may lock it for an instant
            descriptor = _acquire(path)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _acquire(path: Path) -> int | None:
    """Returns the locked file's descriptor, or `None` where another holds the lock."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            if not _try_to_lock(descriptor, path):
                os.close(descriptor)
                return None
            # The holder before may have deleted the file after it was opened here. A lock on a deleted file
            # keeps nobody out, since others lock the file that has the name now.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _try_to_lock(descriptor: int, path: Path) -> bool:  # noqa: ARG001
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_to_lock(descriptor: int, path: Path) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            error.filename = str(path)
            raise
        return True
