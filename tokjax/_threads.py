"""Work shared between threads, or between the workers of an executor."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import traceback
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from tokjax._checks import checked_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


def num_threads(threads: int | None) -> int:
    """How many threads to use: as many as said, or else as there are cores that this process may use."""
    if threads is not None:
        return checked_int("threads", threads, least=1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_executor(executor: object) -> None:
    """Refuse what is no executor, nor `None` for threads of this process."""
    if executor is not None and not isinstance(executor, Executor):
        raise InvalidArgumentError(
            f"executor must be a concurrent.futures.Executor, not {executor!r}; for threads pass workers=N"
        )


def pickled(value: Any) -> bytes:
    """A value as bytes; where loky or Dask have loaded cloudpickle, functions of a notebook too."""
    pickler: Any = sys.modules.get("cloudpickle", pickle)
    dumped: bytes = pickler.dumps(value)
    return dumped


def map_in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    executor: Executor | None = None,
) -> Iterator[Result]:
    """The results in the order of the items, which are taken a few ahead of what is asked for.

    An error comes out behind the results of all items before it, whether an item or their source raised it.

    Args:
        function: what to do with each item.
        items: they are taken in the calling thread.
        threads: how many are worked on at a time; with one, all is done in the calling thread.
        executor: where to do it instead; `None` for threads of this process.
    """
    with _errors_last(items) as taken:
        first = [] if threads == 1 else list(itertools.islice(taken, 2))
        all_items = itertools.chain(first, taken)
        if executor is None and len(first) < 2:
            for item in all_items:
                yield function(item)
            return
        with ThreadPoolExecutor(threads) if executor is None else nullcontext(executor) as pool:
            yield from _in_order((pool.submit(function, item) for item in all_items), 2 * threads)


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
    yield from _in_order(map(workers.submit, items), 2 * at_once)


class _Task(Protocol[Result_co]):
    """What is of a future here."""

    def result(self) -> Result_co: ...

    def cancel(self) -> object: ...


def _in_order(tasks: Iterable[_Task[Result]], ahead: int) -> Iterator[Result]:
    """The results of tasks, so many of which are begun ahead of what is asked for."""
    waiting: deque[_Task[Result]] = deque()
    with _errors_last(tasks) as begun:
        try:
            for task in begun:
                waiting.append(task)
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for task in waiting:
                task.cancel()


@contextmanager
def _errors_last(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """The items of a source that seems to end at an error in it, which is raised at the end instead."""
    failed: list[Exception] = []

    def until_error() -> Iterator[Item]:
        try:
            for item in items:  # noqa: UP028 (yield from would close a generator that is not ours)
                yield item
        except Exception as error:
            failed.append(error)

    yield until_error()
    if failed:
        raise failed.pop()


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
