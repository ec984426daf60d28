"""Batches put on devices on a thread of their own, while the step before is running."""

from __future__ import annotations

import atexit
import queue
import threading
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from tokjax._checks import checked_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Batch = TypeVar("Batch")

_WAIT_SECONDS = 0.1
_EXIT_SECONDS = 10
_running: dict[threading.Thread, threading.Event] = {}
"""The threads that put batches on devices, and what stops each."""


def prefetch_to_device(batches: Iterable[Batch], size: int = 2, *, sharding: Any = None) -> Prefetched[Batch]:
    """Batches on devices, some of them ahead of their time.

    The thread stops when the batches end, when the iterator is closed, when nothing refers to it any more,
    or when the program ends. An error in it is raised here, in the place of the batch that could not be made.

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

    room = checked_int("size", size, least=1)
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
    return Prefetched(iterator, room, sharding)


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
        self._stop = threading.Event()
        self._state = _state_of(batches)
        self._done = False
        self._thread = threading.Thread(
            target=_fill,
            args=(self._ready, self._stop, batches, sharding),
            daemon=True,
            name="tokjax-prefetch",
        )
        _running[self._thread] = self._stop
        atexit.unregister(_stop_all)  # (what was registered last runs first: before JAX clears its devices)
        atexit.register(_stop_all)
        self._thread.start()

    def __iter__(self) -> Prefetched[Batch]:
        """The iterator itself."""
        return self

    def __next__(self) -> Batch:
        """The next batch."""
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

    def __del__(self) -> None:
        """Tell the thread that nobody waits for it."""
        self._stop.set()

    def close(self) -> None:
        """Stop the thread, and wait for it."""
        self._done = True
        self._stop.set()
        while not self._ready.empty():
            self._ready.get_nowait()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _state_of(batches: Iterator[Any]) -> dict[str, Any] | None:
    get_state = getattr(batches, "get_state", None)
    return None if get_state is None else get_state()


def _fill(ready: queue.Queue[_Item], stop: threading.Event, batches: Iterator[Any], sharding: Any) -> None:
    """Put batches into a queue until they end or nobody wants them; runs on the thread."""
    last = _Item("end", None, None)
    try:
        for batch in batches:
            item = _Item("batch", _on_device(batch, sharding), _state_of(batches))
            if not _put(ready, stop, item):
                return
    except BaseException as error:
        last = _Item("error", error, None)
    finally:
        _running.pop(threading.current_thread(), None)
    _put(ready, stop, last)


def _put(ready: queue.Queue[_Item], stop: threading.Event, item: _Item) -> bool:
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
    threads = dict(_running)
    for stop in threads.values():
        stop.set()
    for thread in threads:
        thread.join(_EXIT_SECONDS)  # (no longer: a source may wait for ever)


def _on_device(batch: Any, sharding: Any) -> Any:
    import jax as typed_jax  # noqa: PLC0415

    jax: Any = typed_jax  # (only a part of it has types)
    if sharding is None:
        return jax.device_put(batch)

    def place(leaf: Any) -> Any:
        target = sharding
        if np.ndim(leaf) == 0 and hasattr(sharding, "mesh"):
            target = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
        if jax.process_count() == 1:
            return jax.device_put(leaf, target)
        return jax.make_array_from_process_local_data(target, np.asarray(leaf))

    return jax.tree.map(place, batch)
