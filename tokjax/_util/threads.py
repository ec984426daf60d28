"""Ordered parallel map over threads or an executor, with bounded lookahead.

A pool of processes (`concurrent.futures.ProcessPoolExecutor`, or that of loky) receives the results of all
workers from one pipe. If a worker dies in the middle of a message, the thread of the pool that receives it
waits for the rest. The pipe does not end, since the other workers and this process can write to it, so the
pool waits forever:

    worker 1   ────[ length 1,000,000 | 65,536 bytes   killed
                                                              ──▶  pipe  ──▶  thread of the pool: waits
    worker 2   ─────────────────────── waits to write its result

Then `wait_for_result` ends the other workers, as the pool does itself when it notices that a worker died, and
closes this end of the pipe. So the pool gets the end of the file, and reports that it is broken.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections import deque
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from tokjax._util.checks import check_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence


Item = TypeVar("Item")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
_PATIENCE_SECONDS = 3.0
"""Time without a result after which the workers are checked. Pools usually notice a dead worker earlier."""


def resolve_num_threads(threads: int | None) -> int:
    """Returns the number of threads to use. `None` means one for each core that this process may use."""
    if threads is not None:
        return check_int("threads", threads, minimum=1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def map_in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    executor: Executor | None = None,
) -> Generator[Result]:
    """Yields `function(item)` for each item, in the order of the items.

    At most `2 * threads` items are submitted ahead of the result that the caller asks for. An error, of the
    function or of the iterable, is raised after the results of all items before it.

    Args:
        function: function of one item.
        items: the items; iterated over in the calling thread.
        threads: number of items that are processed at the same time. With 1 and no executor, the function
            runs in the calling thread.
        executor: executor that runs the function; `None` for threads of this process.
    """
    if executor is None:
        yield from map_over_runners([Runner(function)] * threads, items)
    else:
        with _defer_errors(items) as guarded_items:
            submitted = (PendingResult(executor.submit(function, item), executor) for item in guarded_items)
            yield from iter_results(submitted, 2 * threads)


class Runner(NamedTuple):
    """One of several ways to compute the same results, used by one thread.

    Attributes:
        call: function of one item.
        prepare: function that the thread calls first. Other runners do the work until it returns.
        min_items: number of items from which on the runner is used.
    """

    call: Callable[[Any], Any]
    prepare: Callable[[], object] = lambda: None
    min_items: int = 0


def map_over_runners(runners: Sequence[Runner], items: Iterable[Any]) -> Iterator[Any]:
    """Yields the result of each item, in order. A runner takes the next item whenever it is free.

    Order, lookahead and errors are as in `map_in_threads`.

    Args:
        runners: the runners, each with a thread of its own. The first is used from the start. A single runner
            runs in the calling thread.
        items: the items; iterated over in the calling thread.
    """
    with _defer_errors(items) as guarded_items:
        # For a single item, starting a thread costs more than it saves.
        first = [] if len(runners) == 1 else list(itertools.islice(guarded_items, 2))
        all_items = itertools.chain(first, guarded_items)
        if len(first) < 2:
            yield from map(runners[0].call, all_items)
            return
        pool = _RunnerThreads(runners)
        try:
            yield from iter_results(map(pool.submit, all_items), 2 * len(runners))
        finally:
            pool.close()


_JOIN_SECONDS = 5.0
"""Time to wait for the current item of a thread when a map ends early."""


class _RunnerThreads:
    """One thread for each runner. They take items from one queue.

    Args:
        runners: the runners, in the order of `min_items`.
    """

    def __init__(self, runners: Sequence[Runner]) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Any], Any] | None] = queue.SimpleQueue()
        self._runners = runners
        self._threads: list[threading.Thread] = []
        self._preparing: set[threading.Thread] = set()
        self._num_items = 0

    def submit(self, item: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._queue.put((future, item))
        self._num_items += 1
        for runner in self._runners[len(self._threads) :]:
            if runner.min_items > self._num_items:
                break
            self._start(runner)
        return future

    def close(self) -> None:
        """Ends the threads after their current items.

        A runner that is not prepared yet is not waited for, nor an item that takes long: an interrupted call
        returns soon.
        """
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.is_alive() and thread not in self._preparing:
                thread.join(_JOIN_SECONDS)

    def _start(self, runner: Runner) -> None:
        thread = threading.Thread(target=self._run, args=(runner,), name="tokjax", daemon=True)
        self._threads.append(thread)
        self._preparing.add(thread)
        thread.start()

    def _run(self, runner: Runner) -> None:
        runner.prepare()
        self._preparing.discard(threading.current_thread())
        for future, item in iter(self._queue.get, None):
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(runner.call(item))
                except BaseException as error:
                    future.set_exception(error)
                del future, item  # they may be large


class Task(Protocol[Result_co]):
    """The methods of a future that `iter_results` needs."""

    def result(self) -> Result_co: ...

    def cancel(self) -> object: ...


def iter_results(tasks: Iterable[Task[Result]], num_ahead: int) -> Iterator[Result]:
    """Yields the results of tasks in order, and starts at most `num_ahead` tasks ahead of the consumer.

    Args:
        tasks: an iterable that starts a task when it is advanced.
        num_ahead: number of tasks that are started ahead.
    """
    pending: deque[Task[Result]] = deque()
    with _defer_errors(tasks) as started:
        try:
            for task in started:
                pending.append(task)
                if len(pending) > num_ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for task in pending:
                task.cancel()


@contextmanager
def _defer_errors(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """Defers errors of an iterable to the end of the block, after the results of all items before the error.

    Yields:
        An iterator over the items that ends at an error instead of raising it.
    """
    errors: list[Exception] = []

    def iter_until_error() -> Iterator[Item]:
        try:
            for item in items:  # noqa: UP028 (`yield from` would close the caller's generator)
                yield item
        except Exception as error:
            errors.append(error)

    yield iter_until_error()
    if errors:
        raise errors.pop()


class PendingResult(NamedTuple, Generic[Result]):
    """A future of an executor. Its `result` raises `BrokenProcessPool` if a worker of the executor died."""

    future: Future[Result]
    executor: Executor

    def result(self) -> Result:
        return wait_for_result(self.future, self.executor)

    def cancel(self) -> bool:
        return self.future.cancel()


def wait_for_result(future: Future[Result], executor: Executor) -> Result:
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
