"""Makes worker processes do all the work that they usually share with this process."""

from contextlib import contextmanager
from unittest.mock import patch

from tokjax._util import parallel, worker_processes


@contextmanager
def work_in_worker_processes():
    """Sends all items to a worker, however small the input is. Yields the list of the calls."""
    calls = []
    call_worker, map_over_runners = worker_processes._Worker.call, parallel.map_over_runners

    def record_call(worker, token, method, *arguments):
        calls.append(method)
        return call_worker(worker, token, method, *arguments)

    def map_remotely(runners, items):
        remote = runners[-1]
        if isinstance(remote, worker_processes.RemoteRunner):
            remote.prepare()
            return map(remote.call, items)
        return map_over_runners(runners, items)

    with (
        patch.object(parallel, "compute_num_processes", lambda *_: 2),
        patch.object(parallel, "map_over_runners", map_remotely),
        patch.object(worker_processes, "resolve_num_threads", lambda _: 2),
        patch.object(worker_processes._Worker, "call", record_call),
    ):
        yield calls
