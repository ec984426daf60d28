"""Prefetching of batches to devices on a background thread, while the device computes the previous step.

    source ──▶ thread: next(batches), device_put ──▶ queue of `size` batches ──▶ `Prefetched`: next()

The difficult part is the end. If the interpreter exits while the thread is in a transfer, it aborts the
process. And a source that waits forever must not keep the program from ending. So the thread is a daemon, it
checks an event between transfers, and an exit handler sets the event and waits for the current transfer, but
only briefly for the source.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.locks import ThreadLock
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Batch = TypeVar("Batch")

_WAIT_SECONDS = 0.1
"""Interval at which threads that wait for the queue check whether it was closed."""
_CLOSE_SECONDS = 1.0
"""Maximum time that `close` waits for a source that is about to return a batch."""
_TRANSFER_SECONDS = 10
"""Maximum time that `close` waits for a transfer to a device."""


class _Item(NamedTuple):
    """Entry of the queue.

    Attributes:
        batch: the batch; `None` after the last.
        state: state of the loader after the batch; `None` if the batches do not come from a loader.
        error: what `next` raises instead: `StopIteration` after the last batch.
    """

    batch: Any = None
    state: dict[str, Any] | None = None
    error: BaseException | None = None


class _Worker(threading.Thread):
    """Background thread that transfers batches to devices. It has no reference to the `Prefetched`.

    Args:
        batches: iterator of batches.
        size: number of batches in the queue.
        sharding: sharding of the batches on devices.

    Attributes:
        ready: queue of the batches on devices.
        is_closed: event that is set when no more batches are needed.
    """

    def __init__(self, batches: Iterator[Any], size: int, sharding: Any) -> None:
        super().__init__(name="tokjax-prefetch", daemon=True)
        self.ready: queue.Queue[_Item] = queue.Queue(size)
        self.is_closed = threading.Event()
        self._transfer = threading.Lock()
        self._batches, self._sharding = batches, sharding

    def run(self) -> None:
        """Transfers batches and puts them into the queue until they end or the thread is closed."""
        last = _Item(error=StopIteration())
        try:
            for batch in self._batches:
                with self._transfer:
                    if self.is_closed.is_set():
                        return
                    on_device = _put_on_device(batch, self._sharding)
                if not self._put(_Item(on_device, _get_state(self._batches))):
                    return
        except BaseException as error:
            last = _Item(error=error)
        finally:
            _running.discard(self)
            del self._batches  # (which may have a thread, too)
        self._put(last)

    def _put(self, item: _Item) -> bool:
        """Puts an entry into the queue as soon as it is not full; returns `False` if it was closed before."""
        while not self.is_closed.is_set():
            try:
                self.ready.put(item, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def close(self) -> None:
        """Stops the thread and waits for it, but at most `_CLOSE_SECONDS` for its source.

        After that, the thread does not start a transfer any more. An exit of the interpreter during a
        transfer would abort the process.
        """
        self.is_closed.set()
        if self is threading.current_thread():
            return
        if self._transfer.acquire(timeout=_TRANSFER_SECONDS):
            self._transfer.release()
        self.join(_CLOSE_SECONDS)


_running: set[_Worker] = set()
"""The threads that have not ended."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)  # a forked child has only the thread that forked


def prefetch_to_device(batches: Iterable[Batch], size: int = 2, *, sharding: Any = None) -> Prefetched[Batch]:
    """Transfers batches to devices ahead of their use, on a background thread.

    The thread stops when the batches end, when the iterator is closed or garbage-collected, or when the
    program ends. An error in the thread is raised by `next`, instead of the batch that could not be loaded.

    The iterator is thread-safe. A forked child process can't use it, because the thread exists only in the
    parent.

    The loader is ahead of this iterator by the batches in the queue. So save the state that the `get_state`
    of this iterator returns, not that of the loader.

    With several processes, each passes its own shard (`loader.shard(...)`), and the batches are global
    arrays.

    Args:
        batches: iterable of pytrees of NumPy arrays and numbers, for example a loader or `loader.repeat()`.
        size: number of batches in the queue.
        sharding: `jax.sharding.Sharding` of the arrays, whose first dimension is the batch (numbers are
            replicated); `None` for the default device.

    Returns:
        An iterator of batches on devices. It is also a context manager that closes itself.

    Raises:
        InvalidArgumentError: `batches` is not iterable, `size` is not an integer of at least 1, or `sharding`
            is missing with several processes.
    """
    import jax  # noqa: PLC0415 (slow to import)

    capacity = check_int("size", size, minimum=1)
    if sharding is None and jax.process_count() > 1:
        raise InvalidArgumentError(
            "with several processes pass sharding=..., the sharding of arrays over their devices"
        )
    try:
        iterator = iter(batches)
    except TypeError as error:
        raise InvalidArgumentError(
            f"batches must be an iterable, such as a loader or loader.repeat(), not {batches!r:.100}"
        ) from error
    return Prefetched(iterator, capacity, sharding)


class Prefetched(Iterator[Batch], AbstractContextManager["Prefetched[Batch]"]):
    """Iterator that `prefetch_to_device` returns; also a context manager that closes it."""

    def __init__(self, batches: Iterator[Batch], size: int, sharding: Any) -> None:
        self._done = False
        self._lock = ThreadLock()
        self._process = os.getpid()
        self._worker = _Worker(batches, size, sharding)
        self._state = _get_state(batches)
        _running.add(self._worker)
        # Exit handlers run in reverse order. Registering again makes this one run before JAX releases its
        # devices.
        atexit.unregister(_stop_all)
        atexit.register(_stop_all)
        self._worker.start()

    def __next__(self) -> Batch:
        """Returns the next batch, or raises the error of the thread."""
        if self._process != os.getpid():
            raise InvalidArgumentError(
                "this process was forked after prefetch_to_device(...) began, and its thread exists only in "
                "the parent; call prefetch_to_device in the process that uses the batches"
            )
        with self._lock.current:
            item = self._get_item()
            if item.error is None:
                self._state = item.state
                return item.batch  # type: ignore[no-any-return]
            self.close()
        raise item.error

    def _get_item(self) -> _Item:
        """Waits for the next entry of the queue; returns the end if another thread closes the iterator."""
        while not self._done:
            try:
                return self._worker.ready.get(timeout=_WAIT_SECONDS)
            except queue.Empty:
                continue
        return _Item(error=StopIteration())

    def get_state(self) -> dict[str, Any]:
        """Returns the state of the loader after the last batch that this iterator returned.

        Raises:
            InvalidArgumentError: the batches do not come from a loader.
        """
        if self._state is None:
            raise InvalidArgumentError(
                "these batches do not come from a loader, so they have no state; pass a loader to "
                "prefetch_to_device"
            )
        return self._state

    def __reduce__(self) -> NoReturn:
        """Raises `InvalidArgumentError`."""
        raise InvalidArgumentError(
            "batches of prefetch_to_device have a thread, and can't be pickled; pickle the loader, and call "
            "prefetch_to_device in the other process"
        )

    def __exit__(self, *_: object) -> None:
        """Closes the iterator."""
        self.close()

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        """Stops the thread. `getpid` is a default argument, because `os` can be gone at exit."""
        if self._process == getpid():
            self._worker.is_closed.set()

    def close(self) -> None:
        """Stops the thread and waits until it ends; if its source blocks, for about one second."""
        self._done = True
        if self._process == os.getpid():
            self._worker.close()
            with suppress(queue.Empty):  # frees the memory of the batches in the queue
                while True:
                    self._worker.ready.get_nowait()


def _get_state(batches: Iterator[Any]) -> dict[str, Any] | None:
    """Returns the state of the source; `None` if it has no `get_state`."""
    get_state = getattr(batches, "get_state", None)
    return None if get_state is None else get_state()


def _stop_all() -> None:
    """Stops all threads before the interpreter exits: a transfer at that time would abort the process."""
    workers = list(_running)
    for worker in workers:
        worker.is_closed.set()
    for worker in workers:
        worker.close()


def _put_on_device(batch: Any, sharding: Any) -> Any:
    """Returns a batch with its leaves on devices; with several processes, as global arrays."""
    import jax as typed_jax  # noqa: PLC0415

    jax: Any = typed_jax  # JAX is only partly typed
    if sharding is None:
        return jax.device_put(batch)

    def put_leaf(leaf: Any) -> Any:
        target = sharding
        if np.ndim(leaf) == 0 and hasattr(sharding, "mesh"):
            target = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
        if jax.process_count() == 1:
            return jax.device_put(leaf, target)
        return jax.make_array_from_process_local_data(target, np.asarray(leaf))

    return jax.tree.map(put_leaf, batch)
