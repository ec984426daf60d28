"""Work that workers of an executor do, in order, with something that all of it shares."""

from __future__ import annotations

import pickle
import sys
import traceback
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tokjax._threads import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future

Item = TypeVar("Item")
Result = TypeVar("Result")


def pickled(value: Any) -> bytes:
    """A value as bytes; where loky or Dask have loaded cloudpickle, functions of a notebook too."""
    pickler: Any = sys.modules.get("cloudpickle", pickle)
    dumped: bytes = pickler.dumps(value)
    return dumped


def map_in_workers(
    function: Callable[[Any, Item], Result],
    shared: bytes,
    items: Iterable[Item],
    at_once: int,
    executor: Executor,
) -> Iterator[Result]:
    """The results of a function of each item, and of something that all of them share.

    Workers keep what is shared. It travels with the first few items; those behind them name it by its digest,
    and an item whose worker does not have it is sent once more, along with it. Order and errors are as in
    `map_in_threads`.

    Args:
        function: what to do with what is shared, and with each item; it must pickle, if the workers are
            processes.
        shared: it, pickled.
        items: they are taken in the calling thread.
        at_once: how many are worked on at a time.
        executor: where.
    """
    workers = _Workers(function, shared, 2 * at_once + 1, executor)
    yield from in_order(map(workers.submit, items), 2 * at_once)


class _Lacking:
    """The answer of a worker that does not have what the items share."""


class _Workers(Generic[Item, Result]):
    """The workers of an executor, which are sent what the items share with as few of them as will do."""

    def __init__(
        self, function: Callable[[Any, Item], Result], shared: bytes, carriers: int, executor: Executor
    ) -> None:
        submit: Callable[..., Future[Any]] = executor.submit
        self._send = partial(submit, _work, function, sha256(shared).digest())
        self._shared = shared
        self._carriers = self._to_carry = carriers

    def submit(self, item: Item) -> _Sent:
        """Send an item; the first few carry what is shared, as many as are on their way at a time."""
        carried = self._shared if self._to_carry > 0 else None
        self._to_carry -= 1
        return _Sent(self._send(carried, item), partial(self._send_again, item))

    def _send_again(self, item: Item) -> Future[Any]:
        # Where one worker is new, others are likely to be, and the next items may be theirs.
        self._to_carry = self._carriers
        return self._send(self._shared, item)


class _Sent(NamedTuple):
    """An item on its way."""

    future: Future[Any]
    send_again: Callable[[], Future[Any]]

    def result(self) -> Any:
        answer = _answer(self.future)
        return _answer(self.send_again()) if answer is _Lacking else answer

    def cancel(self) -> bool:
        return self.future.cancel()


@lru_cache(maxsize=4)
def _kept(digest: bytes) -> list[Any]:  # noqa: ARG001
    """Where a worker keeps what has the digest; empty until it came."""
    return []


def _work(function: Callable[[Any, Any], Any], digest: bytes, shared: bytes | None, item: Any) -> Any:
    """In a worker: what becomes of an item."""
    kept = _kept(digest)
    if not kept:
        if shared is None:
            return _Lacking
        kept.append(pickle.loads(shared))
    try:
        return function(kept[0], item)
    except Exception as error:
        instead = _instead_of(error)
        if instead is None:
            raise
    raise instead


class _NotedError(Exception):
    """An error that would lose its notes on its way, such as `json.JSONDecodeError`, and the notes."""


def _instead_of(error: Exception) -> Exception | None:
    """What a worker raises for an error that does not come whole through pickling; `None` for itself."""
    notes: list[str] = getattr(error, "__notes__", [])
    try:
        copy = pickle.loads(pickled(error))
    except Exception:  # It would break a pool of processes.
        told = traceback.TracebackException.from_exception(error)
        told.__notes__ = None
        text = "".join(told.format())
        instead = RuntimeError(f"a worker raised an error that does not unpickle; what it said:\n\n{text}")
        instead.__notes__ = notes
        return instead
    if getattr(copy, "__notes__", []) == notes:
        return None
    return _NotedError(error, notes).with_traceback(error.__traceback__)


def _answer(future: Future[Any]) -> Any:
    try:
        return future.result()
    except _NotedError as noted:
        error, error.__notes__ = noted.args
        raise error from noted.__cause__ or error.__cause__
