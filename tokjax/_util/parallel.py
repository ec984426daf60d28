"""Parallel maps for large inputs: with worker processes if the input is large enough, else with threads.

The modules of worker processes take time to import, so they are imported when a process is needed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tokjax._util.threads import Runner, can_start_workers, map_in_threads, map_over_runners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MIN_SIZE_PER_PROCESS = 1 << 22
"""A process is worth its start for this many bytes. Encoding them takes about as long as the start."""
make_token = itertools.count().__next__
"""Function that returns a new number, by which workers recognize an object of which they have a copy."""


def compute_num_processes(workers: int, size: int | None) -> int:
    """Returns the number of processes, which include this one, that an input is worth.

    Args:
        workers: number of cores that may be used.
        size: size of the input in bytes or characters; `None` if it is unknown.
    """
    if not can_start_workers():
        return 1
    return workers if size is None else max(min(workers, size // _MIN_SIZE_PER_PROCESS), 1)


def map_in_parallel(
    target: Any,
    token: int,
    method: str,
    items: Iterable[Any],
    workers: int,
    size: int | None,
    gather: tuple[str, Callable[[Any], object]] | None = None,
) -> Iterator[Any]:
    """Yields `getattr(target, method)(item)` for each item, in order.

    Processes do the work if the input is large enough, else threads. If a process ends, its items are
    processed in this one. Order, lookahead and errors are as in `map_in_threads`.

    Args:
        target: the object. It, the items and the results have to be picklable.
        token: token of the object. Processes keep their copies for later calls with the same token.
        method: name of the method.
        items: the items; iterated over in the calling thread.
        workers: number of threads or processes, which include this one.
        size: size of all items in bytes or characters; `None` if it is unknown. Then each process is started
            after some more items.
        gather: for calls that change the object: name of the method that returns what the calls on a copy
            have collected, and the function of this process that adds it. The copies are deleted at the end.

    Raises:
        WorkerDiedError: a process whose copy was changed ended. Raised only with `gather`.
    """
    local = getattr(target, method)
    num_processes = compute_num_processes(workers, size)
    if num_processes == 1:
        yield from map_in_threads(local, items, workers)
        return
    from tokjax._util.worker_processes import borrow_workers  # noqa: PLC0415 (slow)

    has_state = gather is not None
    with borrow_workers(target, token, method, num_processes - 1, size, has_state=has_state) as remote:
        yield from map_over_runners([Runner(local), *remote], items)
        if gather is not None:
            for runner in remote:
                runner.gather(*gather)
