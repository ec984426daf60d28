"""Batches put on devices on a thread of their own, while the step before is running."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tokjax._checks import checked_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Batch = TypeVar("Batch")

_WAIT_SECONDS = 0.1


def prefetch_to_device(batches: Iterable[Batch], size: int = 2, *, sharding: Any = None) -> Iterator[Batch]:
    """Batches on devices, some of them ahead of their time.

    The thread stops when the batches end, when the iterator is closed, or when nothing refers to it any
    more. An error in it is raised here, in the place of the batch that could not be made.

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
    return _Prefetched(batches, room, sharding)


class _Prefetched:
    """The iterator of `prefetch_to_device`, also a context manager that closes it."""

    def __init__(self, batches: Iterable[Any], size: int, sharding: Any) -> None:
        self._ready: queue.Queue[tuple[str, Any]] = queue.Queue(size)
        self._stop = threading.Event()
        self._done = False
        self._thread = threading.Thread(
            target=_fill,
            args=(self._ready, self._stop, batches, sharding),
            daemon=True,
            name="tokjax-prefetch",
        )
        self._thread.start()

    def __iter__(self) -> _Prefetched:
        """The iterator itself."""
        return self

    def __next__(self) -> Any:
        """The next batch."""
        if self._done:
            raise StopIteration
        kind, value = self._ready.get()
        if kind == "batch":
            return value
        self.close()
        if kind == "error":
            raise value
        raise StopIteration

    def __enter__(self) -> _Prefetched:
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


def _fill(
    ready: queue.Queue[tuple[str, Any]], stop: threading.Event, batches: Iterable[Any], sharding: Any
) -> None:
    """Put batches into a queue until they end or nobody wants them; runs on the thread."""

    def put(kind: str, value: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put((kind, value), timeout=_WAIT_SECONDS)
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
        if array.ndim == 0:
            target = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
        if jax.process_count() == 1:
            return jax.device_put(array, target)
        return jax.make_array_from_process_local_data(target, array)

    return jax.tree.map(place, batch)
