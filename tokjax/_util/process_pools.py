"""Results of process pools, also if a worker is killed while it sends one.

A pool (`concurrent.futures.ProcessPoolExecutor`, or that of loky) receives the results of all workers from
one pipe. If a worker dies in the middle of a message, the thread of the pool that receives it waits for the
rest. The pipe does not end, since the other workers and this process can write to it, so the pool waits
forever:

    worker 1   ────[ length 1,000,000 | 65,536 bytes   killed
                                                              ──▶  pipe  ──▶  thread of the pool: waits
    worker 2   ─────────────────────── waits to write its result

Then the other workers are ended, as the pool does itself when it notices that a worker died, and this end of
the pipe is closed. So the pool gets the end of the file, and reports that it is broken.
"""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

_PATIENCE_SECONDS = 3.0
"""Time without a result after which the workers are checked. Pools usually notice a dead worker earlier."""

Result = TypeVar("Result")


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
