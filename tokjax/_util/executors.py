"""Ordered map over the workers of an executor, with a shared argument that each worker caches.

The shared argument (a tokenizer, say) can be large, so it is not sent with every item. The first items carry
it, and later items carry only its SHA-256 digest:

    item 0   digest, shared bytes   worker 1 unpickles the shared argument and caches it
    item 1   digest, shared bytes   worker 2 likewise
    item 2   digest                 worker 1 has it in its cache
    item 3   digest                 worker 3 is new: it answers `_CacheMiss`
    item 3   digest, shared bytes   sent again, and the next items carry the shared bytes again

A pool of processes (`concurrent.futures.ProcessPoolExecutor`, or that of loky) receives the results of all
workers from one pipe. If a worker dies in the middle of a message, the thread of the pool that receives it
waits for the rest. The pipe does not end, since the other workers and this process can write to it, so the
pool waits forever:

    worker 1   ────[ length 1,000,000 | 65,536 bytes   killed
                                                              ──▶  pipe  ──▶  thread of the pool: waits
    worker 2   ─────────────────────── waits to write its result

Then `_wait_for_result` ends the other workers, as the pool does itself when it notices that a worker died,
and closes this end of the pipe. So the pool gets the end of the file, and reports that it is broken.
"""

from __future__ import annotations

import logging
import pickle
import sys
import traceback
from concurrent.futures import BrokenExecutor, Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from tokjax._util.threads import iter_results
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

_log = logging.getLogger("tokjax")

Item = TypeVar("Item")
Result = TypeVar("Result")
_PATIENCE_SECONDS = 3.0
"""Time without a result after which the workers are checked. Pools usually notice a dead worker earlier."""
_ADAPTERS = {
    "distributed": "of a Dask client pass client.get_executor()",
    "multiprocessing": "instead of a pool pass concurrent.futures.ProcessPoolExecutor(N)",
    "multiprocess": "instead of a pool pass concurrent.futures.ProcessPoolExecutor(N)",
    "joblib": "instead of joblib.Parallel pass joblib.externals.loky.get_reusable_executor(N)",
    "ray": "for Ray pass a subclass of Executor whose submit(self, function, /, *args) returns "
    "ray.remote(function).remote(*args).future()",
}
"""Advice by package, for objects that are not executors but can be converted to one."""


def check_executor(executor: object) -> None:
    """Raises `InvalidArgumentError` unless the argument is an `Executor`, or `None` for threads."""
    if executor is not None and not isinstance(executor, Executor):
        module = getattr(executor, "__module__", getattr(executor, "__name__", ""))
        advice = _ADAPTERS.get(str(module).partition(".")[0], "for threads pass workers=N")
        raise InvalidArgumentError(
            f"executor must be a concurrent.futures.Executor, not {executor!r:.100}; {advice}"
        )


def pickle_bytes(value: Any) -> bytes:
    """Pickles a value, with cloudpickle if loky or Dask have loaded it: it also pickles local functions."""
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
    """Yields the results of `function(shared, item)` in the order of the items.

    Each worker caches the shared argument (see the head of the module). An item is sent a second time, with
    the shared argument, if its worker does not have the argument in its cache, or if the executor itself
    raises, for instance because a worker died. Order and errors are as in `map_in_threads`.

    Args:
        function: function of the shared argument and an item. It must pickle if the workers are processes.
        shared: the shared argument, pickled.
        items: the items; iterated over in the calling thread.
        concurrency: number of items that are processed at the same time.
        executor: executor that runs the function.
    """
    submit: Callable[..., Future[Any]] = executor.submit
    send = partial(submit, _run_item, function, sha256(shared).digest())
    max_with_shared = num_with_shared_left = 2 * concurrency + 1

    def send_item(item: Item) -> Future[Any]:
        nonlocal num_with_shared_left
        num_with_shared_left -= 1
        return send(shared if num_with_shared_left >= 0 else None, item)

    def wait(item: Item, future: Future[Any]) -> Result:
        nonlocal num_with_shared_left
        try:
            answer = _wait_for_result(future, executor)
        except BrokenExecutor:
            raise
        except Exception as error:
            # The answer may be lost because a worker of a cluster died. A second failure is raised.
            _log.warning("an item is sent to a worker again; the executor raised: %r", error)
            answer = _CacheMiss
        if answer is _CacheMiss:
            # If one worker is new, others probably are too (a cluster was scaled up), and may get the next
            # items.
            num_with_shared_left = max_with_shared
            answer = _wait_for_result(send(shared, item), executor)
        return cast("Result", _unwrap(answer))

    yield from iter_results(send_item, items, 2 * concurrency, wait)


class _CacheMiss:
    """Answer of a worker that does not have the shared argument in its cache."""


class _RemoteError:
    """Answer of a worker in which the function raised an error.

    Errors are returned, not raised, so that an error that the executor raises is one of the executor itself.
    In transit to another process the answer becomes a `PickledError`, with any pickler.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return PickledError, tuple(pickle_error(self.error))


class PickledError(NamedTuple):
    """A pickled error, with the parts that pickling can lose.

    Attributes:
        pickle_bytes: the pickled error; empty if it cannot be pickled and unpickled.
        notes: notes of the error (`__notes__`).
        traceback: formatted traceback, including causes.
    """

    pickle_bytes: bytes
    notes: list[str]
    traceback: str


class _WorkerTraceback(Exception):  # noqa: N818 (never raised: shown as the cause of an error)
    """Traceback of an error in another process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@lru_cache(maxsize=4)
def _worker_cache(digest: bytes) -> list[Any]:  # noqa: ARG001
    """Returns a worker's cache entry for a digest: a list with the shared argument, or an empty list."""
    return []


def _run_item(function: Callable[[Any, Any], Any], digest: bytes, shared: bytes | None, item: Any) -> Any:
    """Processes one item in a worker, and returns the result, a `_CacheMiss` or a `_RemoteError`."""
    cache = _worker_cache(digest)
    if not cache:
        if shared is None:
            return _CacheMiss
        cache.append(pickle.loads(shared))
    try:
        return function(cache[0], item)
    except Exception as error:
        return _RemoteError(error)


def pickle_error(error: Exception) -> PickledError:
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    traced = traceback.TracebackException.from_exception(error)
    traced.__notes__ = None
    return PickledError(_pickle_if_possible(error), notes, "".join(traced.format()))


def _pickle_if_possible(error: Exception) -> bytes:
    try:
        data = pickle_bytes(error)
        return data if isinstance(pickle.loads(data), Exception) else b""
    except (Exception, SystemExit):
        return b""


def _unwrap(answer: Any) -> Any:
    """Returns the result of an answer, or raises its error."""
    if isinstance(answer, _RemoteError):
        raise answer.error
    if isinstance(answer, PickledError):
        raise restore_error(answer)
    return answer


def restore_error(pickled_error: PickledError) -> Exception:
    """Returns the error of a worker, or a `RuntimeError` with its traceback if it does not unpickle here."""
    try:
        error: Exception = pickle.loads(pickled_error.pickle_bytes)
    except Exception:
        error = RuntimeError(f"a worker raised an error that does not unpickle:\n\n{pickled_error.traceback}")
    else:
        if error.__traceback__ is None:  # Dask restores the traceback and the cause
            error.__cause__ = _WorkerTraceback(pickled_error.traceback)
    if pickled_error.notes:
        error.__notes__ = pickled_error.notes
    return error


def _wait_for_result(future: Future[Any], executor: Executor) -> Any:
    """Returns the result of a future, or raises its error.

    Args:
        future: a future of the executor.
        executor: any executor. Those that are not process pools are not checked.

    Raises:
        BrokenProcessPool: a worker of the process pool died.
    """
    if not hasattr(executor, "_processes"):
        return future.result()
    found_dead = False
    while True:
        try:
            return future.result(_PATIENCE_SECONDS)
        except TimeoutError:
            if future.done():  # the result arrived now, or the function raised this error
                return future.result()
        if found_dead:
            raise BrokenProcessPool(
                "a process died while it sent a result, and the others could not be ended"
            )
        found_dead = _end_if_worker_died(executor)


def _end_if_worker_died(executor: Any) -> bool:
    """Ends all workers of a process pool if one of them died. Returns whether one did."""
    processes = list((executor._processes or {}).values())
    if all(process.exitcode in (None, 0) for process in processes):
        return False
    for process in processes:
        process.terminate()
    with suppress(AttributeError, OSError):  # the pool is being shut down, or is another kind of pool
        executor._result_queue._writer.close()
    return True
