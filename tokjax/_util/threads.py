"""Work shared between threads, its results in order."""

from __future__ import annotations

import itertools
import os
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, TypeVar

from tokjax._util.checks import check_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


def resolve_num_threads(threads: int | None) -> int:
    """How many threads to use: as many as said, or else as there are cores that this process may use."""
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
"""For objects of some packages, what to pass instead."""


def check_executor(executor: object) -> None:
    """Rejects what is neither an executor nor `None` for threads of this process."""
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
) -> Iterator[Result]:
    """The results in the order of the items, which are taken a few ahead of what is asked for.

    An error comes out behind the results of all items before it, whether an item or their source raised it.

    Args:
        function: what to do with each item.
        items: they are taken in the calling thread.
        threads: how many are worked on at a time; with one, all is done in the calling thread.
        executor: where to do it instead; `None` for threads of this process.
    """
    with _defer_errors(items) as guarded_items:
        first = [] if threads == 1 else list(itertools.islice(guarded_items, 2))
        all_items = itertools.chain(first, guarded_items)
        if executor is None and len(first) < 2:
            for item in all_items:
                yield function(item)
            return
        with ThreadPoolExecutor(threads) if executor is None else nullcontext(executor) as pool:
            yield from iter_results((pool.submit(function, item) for item in all_items), 2 * threads)


class Task(Protocol[Result_co]):
    """What is of a future here."""

    def result(self) -> Result_co: ...

    def cancel(self) -> object: ...


def iter_results(tasks: Iterable[Task[Result]], num_ahead: int) -> Iterator[Result]:
    """The results of tasks, so many of which are begun ahead of what is asked for."""
    waiting: deque[Task[Result]] = deque()
    with _defer_errors(tasks) as begun:
        try:
            for task in begun:
                waiting.append(task)
                if len(waiting) > num_ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for task in waiting:
                task.cancel()


@contextmanager
def _defer_errors(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """The items of a source that seems to end at an error in it, which is raised at the end instead."""
    failed: list[Exception] = []

    def iter_until_error() -> Iterator[Item]:
        try:
            for item in items:  # noqa: UP028 (yield from would close a generator that is not ours)
                yield item
        except Exception as error:
            failed.append(error)

    yield iter_until_error()
    if failed:
        raise failed.pop()
