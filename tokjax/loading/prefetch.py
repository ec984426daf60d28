"""Batches put on devices on a thread of their own, while the step before is running."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tokjax._checks import checked_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Batch = TypeVar("Batch")

_WAIT_SECONDS = 0.1


def prefetch_to_device(batches: Iterable[Batch], size: int = 2, *, sharding: Any = None) -> Prefetched[Batch]:
    """Batches on devices, some of them ahead of their time.

    The thread stops when the batches end, when the iterator is closed, or when nothing refers to it any
    more. An error in it is raised here, in the place of the batch that could not be made.

    The loader itself is some batches ahead of what was given out here: save the state that this iterator's
    `get_state` gives, not the loader's.

    With several processes each passes its own part (`loader.shard(...)`), and gets global arrays.

    Args:
        batches: pytrees of NumPy arrays, for instance a loader, or what its `repeat` gives.
        size: how many batches are kept ready.
        sharding: a `jax.sharding.Sharding` for the arrays, whose first dimension is the batch (numbers are
            replicated); `None` for the default device.

    Raises:
        InvalidArgumentError: `size` is no number from 1, or several processes give no sharding.
    """
    import jax  # noqa: PLC0415 (slow to import)

    room = checked_int("size", size, least=1)
    if sharding is None and jax.process_count() > 1:
        raise InvalidArgumentError(
            "with several processes pass sharding=..., which tells how arrays are spread over them"
        )
    return Prefetched(batches, room, sharding)


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

    def __init__(self, batches: Iterable[Batch], size: int, sharding: Any) -> None:
        self._ready: queue.Queue[_Item] = queue.Queue(size)
        iterator = iter(batches)
        self._state = _state_of(iterator)
        self._stop = threading.Event()
        self._done = False
        self._thread = threading.Thread(
            target=_fill,
            args=(self._ready, self._stop, iterator, sharding),
            daemon=True,
            name="tokjax-prefetch",
        )
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

    def put(kind: str, value: Any) -> bool:
        item = _Item(kind, value, _state_of(batches))
        while not stop.is_set():
            try:
                ready.put(item, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    try:
        for batch in batches:
            if not put("batch", _on_device(batch, sharding)):
                return
        put("end", None)
    except BaseException as error:
        put("error", error)


def _on_device(batch: Any, sharding: Any) -> Any:
    import jax as typed_jax  # noqa: PLC0415

    jax: Any = typed_jax  # (only a part of it has types)
    if sharding is None:
        return jax.device_put(batch)

    def place(array: Any) -> Any:
        target = sharding
        if array.ndim == 0 and hasattr(sharding, "mesh"):
            target = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
        if jax.process_count() == 1:
            return jax.device_put(array, target)
        return jax.make_array_from_process_local_data(target, array)

    return jax.tree.map(place, batch)
