"""Batches put on devices on a thread of their own, while the step before is running."""

from __future__ import annotations

import atexit
import os
import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.locks import ThreadLock
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Batch = TypeVar("Batch")

_WAIT_SECONDS = 0.1
_CLOSE_SECONDS = 1.0
"""How long `close` waits for a source that is about to return a batch."""
_TRANSFER_SECONDS = 10
"""How long `close` waits for a batch that is on its way to a device."""


class _Worker(NamedTuple):
    """The thread that puts batches on devices.

    Attributes:
        thread: the thread.
        stop: set once nobody waits for batches any more.
        transfer: held while a batch is put on devices.
    """

    thread: threading.Thread
    stop: threading.Event
    transfer: threading.Lock

    def close(self) -> None:
        """Stops the thread, and waits for it, but no longer than for a moment if its source waits.

        Afterwards the thread puts nothing on a device: the interpreter would abort if it ended meanwhile.
        """
        self.stop.set()
        if self.thread is threading.current_thread():
            return
        if self.transfer.acquire(timeout=_TRANSFER_SECONDS):
            self.transfer.release()
        self.thread.join(_CLOSE_SECONDS)


_running: dict[threading.Thread, _Worker] = {}
"""The threads that have not ended."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)  # (a child has no thread but its first)


def prefetch_to_device(batches: Iterable[Batch], size: int = 2, *, sharding: Any = None) -> Prefetched[Batch]:
    """Batches on devices, some of them ahead of their time.

    The thread stops when the batches end, when the iterator is closed, when nothing refers to it any more,
    or when the program ends. `close` does not wait for a source that waits itself. An error in the thread is
    raised here, in the place of the batch that could not be made.

    Threads can share the iterator. A forked child process can't use it, since the thread stays in the parent.

    The loader itself is some batches ahead of what was given out here: save the state that this iterator's
    `get_state` gives, not the loader's.

    With several processes each passes its own part (`loader.shard(...)`), and gets global arrays.

    Args:
        batches: pytrees of NumPy arrays and numbers, for instance a loader, or what its `repeat` gives.
        size: how many batches are kept ready.
        sharding: a `jax.sharding.Sharding` for the arrays, whose first dimension is the batch (numbers are
            replicated); `None` for the default device.

    Raises:
        InvalidArgumentError: `batches` can't be iterated over, `size` is no number from 1, or several
            processes give no sharding.
    """
    import jax  # noqa: PLC0415 (slow to import)

    capacity = check_int("size", size, minimum=1)
    if sharding is None and jax.process_count() > 1:
        raise InvalidArgumentError(
            "with several processes pass sharding=..., which tells how arrays are spread over them"
        )
    try:
        iterator = iter(batches)
    except TypeError as error:
        raise InvalidArgumentError(
            f"batches must be an iterable, such as a loader or loader.repeat(), not {batches!r:.100}"
        ) from error
    return Prefetched(iterator, capacity, sharding)


class _Item(NamedTuple):
    """What the thread has made.

    Attributes:
        kind: `"batch"`, `"error"` or `"end"`.
        value: the batch, or the error.
        state: the loader's, behind the batch; `None` without a loader.
    """

    kind: str
    value: Any
    state: dict[str, Any] | None


class Prefetched(Generic[Batch]):
    """The iterator of `prefetch_to_device`, also a context manager that closes it."""

    def __init__(self, batches: Iterator[Batch], size: int, sharding: Any) -> None:
        self._ready: queue.Queue[_Item] = queue.Queue(size)
        self._done = False
        self._lock = ThreadLock()
        self._process = os.getpid()
        stop, transfer = threading.Event(), threading.Lock()
        thread = threading.Thread(
            target=_run,
            args=(self._ready, stop, transfer, batches, sharding),
            daemon=True,
            name="tokjax-prefetch",
        )
        self._worker = _Worker(thread, stop, transfer)
        self._state = _get_state(batches)
        _running[thread] = self._worker
        atexit.unregister(_stop_all)  # (what was registered last runs first: before JAX clears its devices)
        atexit.register(_stop_all)
        thread.start()

    def __iter__(self) -> Prefetched[Batch]:
        """The iterator itself."""
        return self

    def __next__(self) -> Batch:
        """The next batch."""
        if self._process != os.getpid():
            raise InvalidArgumentError(
                "this process was forked after prefetch_to_device(...) began, whose thread is in the parent "
                "only; call prefetch_to_device in the process that uses the batches"
            )
        with self._lock.current:
            item = self._next_item()
            if item.kind == "batch":
                self._state = item.state
                batch: Batch = item.value
                return batch
            self.close()
        if item.kind == "error":
            raise item.value
        raise StopIteration

    def _next_item(self) -> _Item:
        while not self._done:
            try:
                return self._ready.get(timeout=_WAIT_SECONDS)
            except queue.Empty:
                continue
        return _Item("end", None, None)

    def get_state(self) -> dict[str, Any]:
        """The place behind the last batch that was given out here, as the loader's `get_state` has it.

        Raises:
            InvalidArgumentError: the batches come of no loader.
        """
        if self._state is None:
            raise InvalidArgumentError("these batches come of no loader, and so have no state")
        return self._state

    def __enter__(self) -> Prefetched[Batch]:
        """The iterator itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        """Tells the thread that nobody waits for it. At the end of the process `os` may be gone already."""
        if self._process == getpid():
            self._worker.stop.set()

    def close(self) -> None:
        """Stops the thread, and waits for it; if its source waits, for a second at most."""
        self._done = True
        if self._process == os.getpid():
            self._worker.close()
            with suppress(queue.Empty):  # (frees the batches that are ready)
                while True:
                    self._ready.get_nowait()


def _get_state(batches: Iterator[Any]) -> dict[str, Any] | None:
    get_state = getattr(batches, "get_state", None)
    return None if get_state is None else get_state()


def _run(
    ready: queue.Queue[_Item],
    stop: threading.Event,
    transfer: threading.Lock,
    batches: Iterator[Any],
    sharding: Any,
) -> None:
    """Put batches into a queue until they end or nobody wants them; runs on the thread."""
    last = _Item("end", None, None)
    try:
        for batch in batches:
            with transfer:
                if stop.is_set():
                    return
                on_device = _put_on_device(batch, sharding)
            if not _put_item(ready, stop, _Item("batch", on_device, _get_state(batches))):
                return
    except BaseException as error:
        last = _Item("error", error, None)
    finally:
        _running.pop(threading.current_thread(), None)
    _put_item(ready, stop, last)


def _put_item(ready: queue.Queue[_Item], stop: threading.Event, item: _Item) -> bool:
    """Put something into a queue as soon as there is room; `False` if nobody wants it."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=_WAIT_SECONDS)
        except queue.Full:
            continue
        return True
    return False


def _stop_all() -> None:
    """Stop all threads before the interpreter goes: one that is on its way to a device would abort it."""
    workers = list(_running.values())
    for worker in workers:
        worker.stop.set()
    for worker in workers:
        worker.close()


def _put_on_device(batch: Any, sharding: Any) -> Any:
    import jax as typed_jax  # noqa: PLC0415

    jax: Any = typed_jax  # (only a part of it has types)
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
