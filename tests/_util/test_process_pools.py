"""Tests of process pools whose workers are killed, also while they send a result."""

import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokjax._util import executors

PROGRAM = """
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tests._util.test_process_pools import die_while_sending
from tokjax._util import executors

if __name__ == "__main__":
    executors._PATIENCE_SECONDS = 0.2
    with {start} as executor:
        try:
            print(list(executors.map_in_workers(die_while_sending, pickle.dumps(2), range(9), 2, executor)))
        except Exception as error:
            print(type(error).__name__, error)
    print("the executor is shut down")
"""
PROCESSES = "ProcessPoolExecutor(2, get_context('spawn'))"
LOKY = "__import__('loky').ProcessPoolExecutor(2)"


def die_while_sending(dies_at, item):
    """Returns the item. One item kills its worker after it has sent half of the result."""
    if item == dies_at:
        connection.Connection._send = send_half_and_die
    return item


def send_half_and_die(self, data):
    os.write(self.fileno(), data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("start", [PROCESSES, pytest.param(LOKY, marks=pytest.mark.slow, id="loky")])
def test_worker_killed_while_it_sends(start, tmp_path):
    if start == LOKY:
        pytest.importorskip("loky")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(start=start))
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


def test_waiting_for_other_kinds_of_pools(monkeypatch):
    monkeypatch.setattr(executors, "_PATIENCE_SECONDS", 0.01)

    def fail():
        raise TimeoutError("the function is late")

    with ThreadPoolExecutor(1) as pool:
        pool._processes = {}
        with pytest.raises(TimeoutError, match="the function is late"):
            executors._wait_for_result(pool.submit(fail), pool)
        ended = []
        pool._processes = {0: SimpleNamespace(exitcode=-9, terminate=lambda: ended.append(0))}
        with pytest.raises(BrokenProcessPool, match="a process died while it sent a result"):
            executors._wait_for_result(Future(), pool)  # (there is no queue of results)
        assert ended == [0]
