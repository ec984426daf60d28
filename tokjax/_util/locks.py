"""Locks between threads that survive a fork, and locks between processes."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_RETRY_SECONDS = 0.01


class ThreadLock:
    """Holder of a lock that can be acquired in a forked child process: `with lock.current:`.

    A child process has only the thread that forked it. A lock that another thread held at that moment would
    stay locked in the child forever, so the child gets a new lock. The child may therefore see the guarded
    state after any statement of the code that changes it; that code must keep the state valid after each
    statement.

    Pickles and copies have a new lock.

    Attributes:
        current: lock of the current process.
    """

    def __init__(self) -> None:
        self.current = threading.Lock()
        _locks.add(self)

    def __reduce__(self) -> tuple[type[ThreadLock], tuple[()]]:
        """Pickles without the lock; a copy gets a new one."""
        return ThreadLock, ()


_locks: weakref.WeakSet[ThreadLock] = weakref.WeakSet()


def _renew_locks() -> None:
    for lock in list(_locks):
        lock.current = threading.Lock()
    if sys.version_info < (3, 12):  # there, a cached property has a lock that all objects of its class share
        modules = [module for name, module in list(sys.modules.items()) if name.startswith("tokjax.")]
        classes = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
        for attribute in (attribute for kind in classes for attribute in vars(kind).values()):
            if isinstance(attribute, cached_property):
                setattr(attribute, "lock", threading.RLock())  # noqa: B010 (the type stubs lack the attribute)


def _import_numpy_ma() -> None:
    """Imports `numpy.ma`, as the first call of `np.unique` does.

    A child process that is forked while another thread imports it would deadlock.
    """
    importlib.import_module("numpy.ma")


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(before=_import_numpy_ma, after_in_child=_renew_locks)


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Locks a file between processes and threads without waiting, and deletes the file at the end.

    The operating system releases the lock when the process ends, even if it is killed. A lock file that a
    killed process leaves is therefore not locked.

    Args:
        path: path of the lock file; created if it does not exist.

    Yields:
        Whether the lock was acquired: `False` if another process or thread holds it.

    Raises:
        OSError: the file can't be created, or its file system does not support locks.
    """
    descriptor = _acquire(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):  # Windows can't delete an open file: it stays, without a lock
                path.unlink()
            os.close(descriptor)


@contextmanager
def keep_locked(path: Path) -> Iterator[None]:
    """Waits until a file is not locked, and locks it until the block ends. The file is not deleted.

    Does nothing on a file system without locks, and on Windows, where a locked file can't be written.
    """
    descriptor = None
    with suppress(OSError):
        while sys.platform != "win32" and (descriptor := _acquire(path)) is None:
            time.sleep(_RETRY_SECONDS)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _acquire(path: Path) -> int | None:
    """Returns the descriptor of the locked file, or `None` if another process or thread holds the lock."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            if not _try_to_lock(descriptor, path):
                os.close(descriptor)
                return None
            # The previous holder may have deleted the file after it was opened here. A lock on a deleted file
            # excludes nobody, since others lock the file that has the name now. So try again.
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
