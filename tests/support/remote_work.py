"""Makes worker processes do all the work that they usually share with this process."""

from contextlib import contextmanager
from unittest.mock import patch

from tokjax._util import parallel, worker_processes


@contextmanager
def work_in_worker_processes():
    """Sends all items to a worker, however small the input is. Yields the list of the calls."""
    calls = []
    call_worker = worker_processes.RemoteCopy.call

    def record_call(copy, method, *arguments):
        calls.append(method)
        return call_worker(copy, method, *arguments)

    def map_remotely(runners, items):
        (remote,) = runners[1:]
        remote.prepare()
        yield from map(remote.call, items)

    with (
        patch.object(parallel, "compute_num_processes", lambda *_: 2),
        patch.object(parallel, "map_over_runners", map_remotely),
        patch.object(worker_processes, "resolve_num_threads", lambda _: 2),
        patch.object(worker_processes.RemoteCopy, "call", record_call),
    ):
        yield calls
