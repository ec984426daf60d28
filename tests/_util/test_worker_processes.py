"""Tests of worker processes: results, order, errors, and what happens when a process ends."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from unittest.mock import Mock

import numpy as np
import pytest

from tests.support.variants import mark_slow_except
from tokjax._util import threads, worker_processes
from tokjax._util.parallel import compute_num_processes, make_token, map_in_parallel
from tokjax._util.threads import WorkerDiedError
from tokjax._util.worker_processes import RemoteRunner, SharedBuffer, borrow_workers

pytestmark = pytest.mark.skipif(not threads.can_start_workers(), reason="workers need memfd_create")
LARGE = 1 << 40


class Numbers:
    """An object whose methods run in workers."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.total = 0

    def add(self, value):
        self.total += value
        return self.numbers + value

    def get_process(self, seconds):
        time.sleep(seconds)
        return os.getpid()

    def end_elsewhere(self, value):
        process, value = value
        if os.getpid() != process:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        return value

    def return_function(self, value):
        return lambda: value


class NotPicklable(Numbers):
    def __reduce__(self):
        raise TypeError("not to be pickled")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    """Makes two cores available. Tests share a worker unless they use `no_workers`."""
    monkeypatch.setattr(worker_processes, "resolve_num_threads", lambda threads: threads or 2)
    yield
    threads.failed_starts.clear()
    wait_until_returned()


@pytest.fixture
def no_workers():
    end_workers()
    yield
    end_workers()


@pytest.fixture(autouse=True, scope="module")
def end_workers_after_module():
    yield
    end_workers()


def get_borrowed():
    return [worker for worker in worker_processes._workers if worker.is_borrowed]


def get_running():
    return [worker for worker in worker_processes._workers if worker.is_alive]


def wait_until_returned():
    deadline = time.monotonic() + 60
    while get_borrowed() and time.monotonic() < deadline:
        time.sleep(0.01)  # a worker that is still starting is returned when it is ready
    assert not get_borrowed()


def end_workers():
    wait_until_returned()
    worker_processes._end_workers()


def borrow(target, method="add", token=None, *, has_state=False, count=1):
    return borrow_workers(target, token or make_token(), method, count, LARGE, has_state=has_state)


def use_all_processes(target, token=None, nbytes=LARGE):
    """Returns the processes that take part, once each of them had time to start."""
    token = make_token() if token is None else token
    deadline = time.monotonic() + 60
    found = set()
    while len(found) < 2 and time.monotonic() < deadline:
        found |= set(map_in_parallel(target, token, "get_process", [0.01] * 20, 2, nbytes))
    return found


def test_results_are_in_order_and_workers_are_used_again():
    target, token = Numbers(np.arange(3)), make_token()
    first = use_all_processes(target, token)
    for _ in range(3):
        rows = list(map_in_parallel(target, token, "add", range(100), 2, LARGE))
        np.testing.assert_array_equal(rows, np.arange(3) + np.arange(100)[:, None])
    results = map_in_parallel(target, make_token(), "add", [1, 2, "three", 4], 2, LARGE)
    assert len(list(itertools.islice(results, 2))) == 2
    with pytest.raises(TypeError, match=r"unsupported|ufunc"):
        next(results)
    abandoned = map_in_parallel(target, token, "add", range(100), 2, LARGE)
    next(abandoned)
    abandoned.close()
    wait_until_returned()
    assert len(first) == 2
    assert os.getpid() in first
    assert use_all_processes(Numbers(np.arange(4))) == first


class Unsendable(int):
    """Number that can't be pickled, or not be unpickled."""

    def __reduce__(self):
        if self % 2:
            raise TypeError("not to be pickled")
        return sys.modules["__main__"].__dict__.__getitem__, ("not there",)


@pytest.mark.parametrize("has_state", [False, True])
def test_items_that_cannot_be_sent_are_processed_here(has_state):
    target = Numbers(0)
    with borrow(target, has_state=has_state) as (runner,):
        runner.prepare()
        assert [runner.call(item) for item in (1, Unsendable(2), Unsendable(3), 4)] == [1, 2, 3, 4]
        assert target.total == 5
        assert runner._worker.call(runner._token, "add", 0) == 0
    with borrow(target, "return_function") as (runner,):
        runner.prepare()
        assert runner.call(5)() == 5


def test_object_that_cannot_be_pickled_is_used_here(caplog):
    results = map_in_parallel(NotPicklable(np.arange(3)), make_token(), "get_process", [0] * 8, 2, LARGE)
    assert set(results) == {os.getpid()}
    assert not caplog.records


def test_items_of_a_killed_worker_are_processed_here(caplog):
    target, token = Numbers(np.arange(3)), make_token()
    use_all_processes(target, token)
    items = [(os.getpid(), i) for i in range(20)]
    assert list(map_in_parallel(target, token, "end_elsewhere", items, 2, LARGE)) == list(range(20))
    (record,) = caplog.records
    assert "a worker process of tokjax ended" in record.getMessage()
    assert len(use_all_processes(target, token)) == 2  # a new worker was started
    with borrow(target, has_state=True) as (runner,):
        runner.prepare()
        runner.call(5)
        runner._worker.interrupt()
        with pytest.raises(WorkerDiedError, match="a worker process of tokjax ended"):
            runner.call(6)
    assert target.total == 0


@pytest.mark.usefixtures("no_workers")
def test_worker_that_cannot_be_started(monkeypatch):
    for executable in (None, "", "/usr/bin/uwsgi"):
        monkeypatch.setattr(sys, "executable", executable)
        assert not threads.can_start_workers()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert threads.can_start_workers()
    results = map_in_parallel(Numbers(np.arange(3)), make_token(), "get_process", [0.02] * 8, 2, LARGE)
    assert set(results) == {os.getpid()}
    assert not threads.can_start_workers()  # it is not tried again
    threads.failed_starts.clear()
    monkeypatch.setattr(worker_processes, "_workers", [])
    monkeypatch.setattr(os, "memfd_create", lambda _: os.open("/no/such/file", os.O_RDWR))
    assert list(map_in_parallel(Numbers(0), make_token(), "add", range(8), 2, LARGE)) == list(range(8))


def test_interrupted_call_leaves_no_answer_to_the_next_one(monkeypatch):
    target, token = Numbers(0), make_token()
    with borrow(target, token=token) as (runner,):
        runner.prepare()
        with monkeypatch.context() as patch:
            patch.setattr(runner._worker._connection, "recv", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                runner.call(5)
    with borrow(target, token=token) as (runner,):
        runner.prepare()
        assert [runner.call(item) for item in (6, 7)] == [6, 7]
    assert target.total == 0


@pytest.mark.usefixtures("no_workers")
def test_worker_is_ended_if_its_use_ends_during_a_call():
    target, token = Numbers(np.arange(3)), make_token()
    use_all_processes(target, token)
    (worker,) = get_running()
    errors = []

    def call(runner):
        try:
            runner.call(10)
        except WorkerDiedError as error:
            errors.append(error)

    with borrow(target, "get_process", token) as (runner,):
        runner.prepare()
        caller = threading.Thread(target=call, args=(runner,))
        caller.start()
        while runner._state != "calling":
            time.sleep(0.001)
    caller.join()
    assert len(errors) == 1
    assert not worker.is_alive


def test_late_thread_of_an_earlier_call_does_not_use_the_worker(monkeypatch):
    """The first call fails at once, before its thread prepares the worker that the second call then uses."""
    target, token = Numbers(np.arange(3)), make_token()
    use_all_processes(target, token)
    prepare, seconds = RemoteRunner.prepare, [0.0]

    def prepare_late(runner):
        time.sleep(seconds[0])
        prepare(runner)

    monkeypatch.setattr(RemoteRunner, "prepare", prepare_late)
    for _ in range(20):
        seconds[0] = 0.02
        with pytest.raises(TypeError):
            list(map_in_parallel(Numbers(np.arange(3)), make_token(), "add", ["one", 2, 3], 2, LARGE))
        seconds[0] = 0.0
        rows = list(map_in_parallel(target, token, "add", range(60), 2, LARGE))
        np.testing.assert_array_equal(rows, np.arange(3) + np.arange(60)[:, None])


@pytest.mark.usefixtures("no_workers")
def test_only_workers_that_nobody_uses_end_by_themselves(monkeypatch):
    target = Numbers(0)
    main = worker_processes._make_command

    def make_impatient(fds):
        *command, program = main(fds)
        patch = "import tokjax._util.worker_processes as module; module._IDLE_SECONDS = 0.1; "
        return [*command, program.replace("from tokjax", patch + "from tokjax")]

    with borrow(target) as (runner,):
        with monkeypatch.context() as patch:
            patch.setattr(worker_processes, "_make_command", make_impatient)
            runner.prepare()
        runner.call(5)
        time.sleep(0.3)
        assert runner.call(6) == 6
        assert target.total == 0
    assert runner._worker._process.wait(30) == 0
    assert len(use_all_processes(target)) == 2


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize("path", mark_slow_except(["", ".", b"/tmp", 5], [""]))
def test_worker_imports_this_package(path, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(path)
    package = tmp_path / "tokjax" / "_util"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    assert len(use_all_processes(Numbers(0))) == 2


def test_at_most_the_available_cores_are_used():
    with borrow(Numbers(0), count=5) as first, borrow(Numbers(0)) as second:
        assert (len(first), len(second)) == (5, 0)
    assert not get_borrowed()


@pytest.mark.usefixtures("no_workers")
def test_only_large_inputs_start_workers():
    assert [compute_num_processes(8, size) for size in (1 << 20, 1 << 40)] == [1, 8]
    assert compute_num_processes(1, 1 << 40) == 1
    target, token, items = Numbers(np.arange(3)), make_token(), worker_processes._ITEMS_PER_PROCESS
    for count, size in ((8, 100), (items - 1, None)):  # of unknown size, after some items
        results = map_in_parallel(target, token, "get_process", [0] * count, 2, size)
        assert set(results) == {os.getpid()}
    assert not get_running()
    assert len(use_all_processes(target, token, nbytes=None)) == 2


PROGRAM = """
    import os, signal, sys, time
    import numpy as np
    from tokjax._util import worker_processes
    from tests._util.test_worker_processes import Numbers, use_all_processes

    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore it
    worker_processes.resolve_num_threads = lambda threads: threads or 2
    print("started", flush=True)  # a worker that ran the program again would print it twice
    processes = use_all_processes(Numbers(np.arange(3)))
    print(*sorted(processes), flush=True)
    if sys.argv[1:] == ["wait"]:
        time.sleep(60)
    child = os.fork()
    if child == 0:
        os._exit(len(worker_processes._workers))
    assert os.waitpid(child, 0)[1] == 0  # it has no workers
    assert use_all_processes(Numbers(np.arange(3))) == processes
"""


def run_program(*arguments, **options):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(PROGRAM), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_until_ended(process):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", mark_slow_except([signal.SIGKILL, signal.SIGINT], [signal.SIGKILL]))
def test_workers_end_with_the_program(number):
    """One program ends, and another one is killed."""
    ending, killed = run_program(), run_program("wait", start_new_session=True)
    output, errors = ending.communicate(timeout=120)
    assert (errors, ending.returncode) == ("", 0)
    output_of_killed = [killed.stdout.readline() for _ in range(2)]
    os.killpg(killed.pid, number) if number == signal.SIGINT else os.kill(killed.pid, number)
    killed.communicate(timeout=60)
    for program, (started, processes) in ((ending, output.splitlines()), (killed, output_of_killed)):
        assert started.strip() == "started"
        (worker,) = set(map(int, processes.split())) - {program.pid}
        assert wait_until_ended(worker)


def test_values_in_shared_memory():
    buffer = SharedBuffer()
    other = SharedBuffer(os.dup(buffer.fd))
    for size in (0, 1, 100_000, 5, 150_000):
        value = {"text": "é\ud800" * size, "array": np.arange(size), "none": None}
        sizes = buffer.write(value)
        mapped = SharedBuffer(os.dup(buffer.fd)).read(sizes, copy=False)
        for copied in (other.read(sizes), mapped, other.read(sizes)):
            assert copied["text"] == value["text"]
            np.testing.assert_array_equal(copied["array"], value["array"])
            copied["array"] += 1  # it is writable, and does not change the buffer
