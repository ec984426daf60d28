"""Work that workers of an executor do, in order, with something that all of it shares."""

from __future__ import annotations

import logging
import pickle
import sys
import traceback
from concurrent.futures import BrokenExecutor
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tokjax._util.threads import iter_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future

_log = logging.getLogger("tokjax")

Item = TypeVar("Item")
Result = TypeVar("Result")


def pickle_bytes(value: Any) -> bytes:
    """A value as bytes; where loky or Dask have loaded cloudpickle, functions of a notebook too."""
    pickler: Any = sys.modules.get("cloudpickle", pickle)
    dumped: bytes = pickler.dumps(value)
    return dumped


def map_in_workers(
    function: Callable[[Any, Item], Result],
    shared: bytes,
    items: Iterable[Item],
    concurrency: int,
    executor: Executor,
) -> Iterator[Result]:
    """The results of a function of each item, and of something that all of them share.

    Workers keep what is shared. It travels with the first few items; those behind them name it by its digest,
    and an item whose worker does not have it is sent once more, along with it. So is an item for which the
    executor itself raises, because a worker died. Order and errors are as in `map_in_threads`.

    Args:
        function: what to do with what is shared, and with each item; it must pickle, if the workers are
            processes.
        shared: it, pickled.
        items: they are taken in the calling thread.
        concurrency: how many are worked on at a time.
        executor: where.
    """
    workers = _WorkerPool(function, shared, 2 * concurrency + 1, executor)
    yield from iter_results(map(workers.submit, items), 2 * concurrency)


class _CacheMiss:
    """The answer of a worker that does not have what the items share."""


class _RemoteError:
    """The answer of a worker where the function raised: what an executor raises is then its own.

    On the way to another process it becomes `_PickledError`, whatever the executor pickles with.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _PickledError, tuple(_make_pickled_error(self.error))


class _PickledError(NamedTuple):
    """What comes of an error through pickling.

    Attributes:
        pickle_bytes: the error, or nothing if it does not unpickle.
        notes: its notes, which pickling may lose.
        traceback: as text, since pickling loses it.
    """

    pickle_bytes: bytes
    notes: list[str]
    traceback: str


class _WorkerTraceback(Exception):  # noqa: N818 (the cause of an error, and shown above it)
    """The traceback of an error in another process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class _WorkerPool(Generic[Item, Result]):
    """The workers of an executor, which are sent what the items share with as few of them as will do."""

    def __init__(
        self, function: Callable[[Any, Item], Result], shared: bytes, num_carriers: int, executor: Executor
    ) -> None:
        submit: Callable[..., Future[Any]] = executor.submit
        self._send = partial(submit, _run_item, function, sha256(shared).digest())
        self._shared = shared
        self._num_carriers = self._num_to_carry = num_carriers

    def submit(self, item: Item) -> _PendingItem:
        """Send an item; the first few carry what is shared, as many as are on their way at a time."""
        carried = self._shared if self._num_to_carry > 0 else None
        self._num_to_carry -= 1
        return _PendingItem(self._send(carried, item), partial(self._resend, item))

    def _resend(self, item: Item) -> Future[Any]:
        # Where one worker is new, others are likely to be, and the next items may be theirs.
        self._num_to_carry = self._num_carriers
        return self._send(self._shared, item)


class _PendingItem(NamedTuple):
    """An item on its way."""

    future: Future[Any]
    resend: Callable[[], Future[Any]]

    def result(self) -> Any:
        try:
            answer = self.future.result()
        except BrokenExecutor:
            raise
        except Exception as error:
            # A worker of a cluster died, say, and its answer is lost; what fails again is raised.
            _log.warning("an item is sent to a worker again; what the executor said: %r", error)
            answer = _CacheMiss
        return _unwrap(self.resend().result() if answer is _CacheMiss else answer)

    def cancel(self) -> bool:
        return self.future.cancel()


@lru_cache(maxsize=4)
def _worker_cache(digest: bytes) -> list[Any]:  # noqa: ARG001
    """Where a worker keeps what has the digest; empty until it came."""
    return []


def _run_item(function: Callable[[Any, Any], Any], digest: bytes, shared: bytes | None, item: Any) -> Any:
    """In a worker: what becomes of an item."""
    cache = _worker_cache(digest)
    if not cache:
        if shared is None:
            return _CacheMiss
        cache.append(pickle.loads(shared))
    try:
        return function(cache[0], item)
    except Exception as error:
        return _RemoteError(error)


def _make_pickled_error(error: Exception) -> _PickledError:
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    traced = traceback.TracebackException.from_exception(error)
    traced.__notes__ = None
    return _PickledError(_pickle_if_possible(error), notes, "".join(traced.format()))


def _pickle_if_possible(error: Exception) -> bytes:
    try:
        data = pickle_bytes(error)
        return data if isinstance(pickle.loads(data), Exception) else b""
    except (Exception, SystemExit):
        return b""


def _unwrap(answer: Any) -> Any:
    """The result that an answer is, or the error that it tells of, raised."""
    if isinstance(answer, _RemoteError):
        raise answer.error
    if isinstance(answer, _PickledError):
        raise _restore_error(answer)
    return answer


def _restore_error(pickled_error: _PickledError) -> Exception:
    """The error that a worker told of; another with its text if it does not unpickle here."""
    try:
        error: Exception = pickle.loads(pickled_error.pickle_bytes)
    except Exception:
        error = RuntimeError(
            f"a worker raised an error that does not unpickle; what it said:\n\n{pickled_error.traceback}"
        )
    else:
        if error.__traceback__ is None:  # (Dask keeps it, and the cause)
            error.__cause__ = _WorkerTraceback(pickled_error.traceback)
    if pickled_error.notes:
        error.__notes__ = pickled_error.notes
    return error
