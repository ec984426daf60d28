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


class _OpenFile:
    """Open file whose lock belongs to this process.

    All copies of a descriptor that forks have made share its lock. So a forked child would keep the locks of
    its parent, even after the parent was killed, and wait for them forever. Therefore a child closes its
    copies.

    Attributes:
        descriptor: descriptor of the file; `None` once it is closed.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with _fork_lock:  # (a fork between the two statements would copy an unknown descriptor)
            self.descriptor: int | None = os.open(path, flags, 0o666)
            _open_files.add(self)

    def close(self) -> None:
        """Closes the file, and so releases its lock, unless it is closed already."""
        with _fork_lock:
            if self.descriptor is not None:
                _unlock(self.descriptor)  # (a process that is being forked can still have a copy)
                self.forget()

    def forget(self) -> None:
        """Closes this copy of the descriptor, without releasing the lock."""
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None
        _open_files.discard(self)


_open_files: set[_OpenFile] = set()
_fork_lock = threading.RLock()  # (reentrant, since a signal handler can fork)


def _close_inherited() -> None:
    for file in list(_open_files):
        file.forget()
    _fork_lock.release()


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
    os.register_at_fork(
        before=_fork_lock.acquire, after_in_parent=_fork_lock.release, after_in_child=_close_inherited
    )


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
    file = _acquire(path)
    try:
        yield file is not None
    finally:
        if file is not None and file.descriptor is not None:  # (not in a child that was forked in the block)
            with suppress(OSError):  # Windows can't delete an open file: it stays, without a lock
                path.unlink()
            file.close()


@contextmanager
def keep_locked(path: Path) -> Iterator[None]:
    """Waits until a file is not locked, and locks it until the block ends. The file is not deleted.

    Does nothing on a file system without locks, and on Windows, where a locked file can't be written.
    """
    file = None
    with suppress(OSError):
        while sys.platform != "win32" and (file := _acquire(path)) is None:
            time.sleep(_RETRY_SECONDS)
    try:
        yield
    finally:
        if file is not None:
            file.close()


def _acquire(path: Path) -> _OpenFile | None:
    """Returns the locked file, or `None` if another process or thread holds the lock."""
    while True:
        file = _OpenFile(path)
        descriptor = file.descriptor
        assert descriptor is not None
        try:
            if not _try_to_lock(descriptor, path):
                file.close()
                return None
            # The previous holder may have deleted the file after it was opened here. A lock on a deleted file
            # excludes nobody, since others lock the file that has the name now. So try again.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _try_to_lock(descriptor: int, path: Path) -> bool:  # noqa: ARG001
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        pass  # closing the file is enough

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

    def _unlock(descriptor: int) -> None:
        with suppress(OSError):  # the file system does not support locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)
