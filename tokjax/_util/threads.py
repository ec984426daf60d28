"""Ordered maps over threads with bounded lookahead, and whether worker processes can help them."""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tokjax._util.checks import check_int

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence


Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_THREADS = 1024
"""Maximum number of threads or processes: starting a million of them never ends."""
_JOIN_SECONDS = 5.0
"""Time to wait for the current item of a thread when a map ends early."""
failed_starts: list[BaseException] = []
"""Errors of workers that ended before their first answer. After one of them, threads do the work."""


class WorkerDiedError(RuntimeError):
    """Raised if a worker process can't be started, or ended before it answered."""


def resolve_num_threads(threads: int | None, name: str = "threads") -> int:
    """Returns the number of threads to use. `None` means one for each core that this process may use."""
    if threads is not None:
        return check_int(name, threads, minimum=1, maximum=MAX_THREADS)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_start_workers() -> bool:
    """Returns whether workers can be started: on Linux, by an interpreter that is not part of a program."""
    is_python = "python" in Path(sys.executable or "").name.lower() and not hasattr(sys, "frozen")
    return is_python and hasattr(os, "memfd_create") and not failed_starts


def map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Generator[Result]:
    """Yields `function(item)` for each item, in the order of the items.

    At most `2 * threads` items are submitted ahead of the result that the caller asks for. An error, of the
    function or of the iterable, is raised after the results of all items before it.

    Args:
        function: function of one item.
        items: the items; iterated over in the calling thread.
        threads: number of items that are processed at the same time. With 1, the function runs in the calling
            thread.
    """
    yield from map_over_runners([Runner(function)] * threads, items)


class Runner:
    """One of several ways to compute the same results, used by one thread.

    Args:
        function: function of one item.

    Attributes:
        min_items: number of items from which on the runner is used.
    """

    min_items = 0

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def prepare(self) -> None:
        """Called by the thread before anything else. Other runners do the work until it returns."""

    def call(self, item: Any) -> Any:
        """Returns the result of an item."""
        return self._function(item)


def map_over_runners(runners: Sequence[Runner], items: Iterable[Any]) -> Iterator[Any]:
    """Yields the result of each item, in order. A runner takes the next item whenever it is free.

    Order, lookahead and errors are as in `map_in_threads`.

    Args:
        runners: the runners, each with a thread of its own, in the order of `min_items`. The first is used
            from the start. A single runner runs in the calling thread.
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
            yield from iter_results(pool.submit, all_items, 2 * len(runners))
        finally:
            pool.close()


class _RunnerThreads:
    """One thread for each runner. They take items from one queue."""

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


def iter_results(
    submit: Callable[[Item], Future[Any]],
    items: Iterable[Item],
    num_ahead: int,
    wait: Callable[[Item, Future[Any]], Any] = lambda _, future: future.result(),
) -> Iterator[Any]:
    """Yields the results of items in order, and starts at most `num_ahead` items ahead of the consumer.

    Args:
        submit: function that starts the work on an item.
        items: the items.
        num_ahead: number of items that are started ahead.
        wait: function of an item and its future that returns the result.
    """
    pending: deque[tuple[Item, Future[Any]]] = deque()
    with _defer_errors((item, submit(item)) for item in items) as started:
        try:
            for task in started:
                pending.append(task)
                if len(pending) > num_ahead:
                    yield wait(*pending.popleft())
            while pending:
                yield wait(*pending.popleft())
        finally:
            for _, future in pending:
                future.cancel()


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
