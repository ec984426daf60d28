"""Tests of process pools whose workers are killed, also while they send a result."""

import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import connection
from pathlib import Path

import pytest

from tokjax._util import threads
from tokjax._util.threads import wait_for_result

PROGRAM = """
import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from tests._util.test_process_pools import die_while_sending
from tokjax._util import threads
from tokjax._util.executors import map_in_workers
from tokjax._util.threads import map_in_threads

if __name__ == "__main__":
    threads._PATIENCE_SECONDS = 0.2
    with {start} as executor:
        try:
            print(list({map}))
        except Exception as error:
            print(type(error).__name__, error)
    print("the executor is shut down")
"""
PROCESSES = "ProcessPoolExecutor(2, get_context('spawn'))"
LOKY = "__import__('loky').ProcessPoolExecutor(2)"
MAP_IN_THREADS = "map_in_threads(partial(die_while_sending, 2), range(9), 2, executor)"
MAP_IN_WORKERS = "map_in_workers(die_while_sending, pickle.dumps(2), range(9), 2, executor)"


def die_while_sending(dies_at, item):
    """Returns the item. One item kills its worker after it has sent half of the result."""
    if item == dies_at:
        connection.Connection._send = send_half_and_die
    return item


def send_half_and_die(self, data):
    os.write(self.fileno(), data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("start", "expression"),
    [
        pytest.param(PROCESSES, MAP_IN_THREADS, marks=pytest.mark.slow, id="threads"),
        pytest.param(PROCESSES, MAP_IN_WORKERS, id="workers"),
        pytest.param(LOKY, MAP_IN_WORKERS, marks=pytest.mark.slow, id="loky"),
    ],
)
def test_worker_killed_while_it_sends(start, expression, tmp_path):
    if start == LOKY:
        pytest.importorskip("loky")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(start=start, map=expression))
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    error, shut_down = done.stdout.splitlines()
    assert "could not be ended" not in error
    assert error.startswith(("BrokenProcessPool ", "TerminatedWorkerError "))
    assert shut_down == "the executor is shut down"


class Process:
    def __init__(self, exitcode):
        self.exitcode, self.is_ended = exitcode, False

    def terminate(self):
        self.is_ended = True


class Pool(ThreadPoolExecutor):
    """Claims to have processes with certain exit codes."""

    def __init__(self, *exitcodes):
        super().__init__(1)
        self._processes = {i: Process(exitcode) for i, exitcode in enumerate(exitcodes)}


@pytest.fixture
def no_patience(monkeypatch):
    monkeypatch.setattr(threads, "_PATIENCE_SECONDS", 0.01)


@pytest.mark.usefixtures("no_patience")
class TestWait:
    def test_timeout_of_the_function(self):
        def fail():
            raise TimeoutError("the function is late")

        with Pool(None) as pool, pytest.raises(TimeoutError, match="the function is late"):
            wait_for_result(pool.submit(fail), pool)

    def test_pool_without_a_result_queue(self):
        pool = Pool(None, -9)
        with pytest.raises(threads.BrokenProcessPool, match="a process died while it sent a result"):
            wait_for_result(Future(), pool)
        assert all(process.is_ended for process in pool._processes.values())
