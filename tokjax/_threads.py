"""Work shared between threads."""

from __future__ import annotations

import os
import pickle
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from tokjax._checks import checked_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


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


@lru_cache(maxsize=4)
def unpickled(pickled: bytes) -> Any:
    """What was pickled; a worker that is sent the same with every task unpickles it once."""
    return pickle.loads(pickled)


def map_in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    executor: Executor | None = None,
) -> Iterator[Result]:
    """The results in the order of the items, which are taken a few ahead of what is asked for.

    Args:
        function: what to do with each item.
        items: they are taken in the calling thread.
        threads: how many are worked on at a time; with one, all is done in the calling thread.
        executor: where to do it instead; `None` for threads of this process.
    """
    iterator = iter(items)
    first = [item for _, item in zip(range(2), iterator, strict=False)]
    if executor is None and (threads == 1 or len(first) < 2):
        yield from map(function, first)
        yield from map(function, iterator)
        return
    with ThreadPoolExecutor(threads) if executor is None else nullcontext(executor) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for some in (first, iterator):
                for item in some:
                    waiting.append(pool.submit(function, item))
                    if len(waiting) > 2 * threads:
                        yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
