"""Tests of worker processes: results, order, errors, and what happens when a process ends."""

import gc
import itertools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from tests.support.variants import mark_slow_except
from tokjax._util import shared_buffers, worker_processes, worker_starts
from tokjax._util.parallel import compute_num_processes, make_token, map_in_parallel
from tokjax._util.shared_buffers import SharedBuffer
from tokjax._util.worker_processes import CannotSendError, make_copies, make_remote_runners
from tokjax._util.worker_starts import WorkerDiedError

pytestmark = pytest.mark.skipif(not worker_starts.can_start_workers(), reason="workers need memfd_create")
LARGE = 1 << 40


class Numbers:
    """An object whose methods run in workers."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.total = 0

    def add(self, value):
        self.total += value
        return self.numbers + value

    def divide(self, value):
        return self.numbers // value

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
    monkeypatch.setattr(worker_starts, "failed_starts", [])
    monkeypatch.setattr(worker_processes, "failed_starts", worker_starts.failed_starts)
    yield
    wait_until_returned()


@pytest.fixture
def no_workers():
    end_workers()
    yield
    end_workers()


@pytest.fixture(autouse=True, scope="module")
def end_workers_after_module():
    end_workers()
    yield
    end_workers()


def wait_until_returned():
    deadline = time.monotonic() + 60
    while worker_processes._borrowed_workers and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)  # a worker that is still starting is returned when it is ready
    assert not worker_processes._borrowed_workers


def end_workers():
    wait_until_returned()
    worker_processes._end_workers()
    worker_processes._idle_workers.clear()


def use_all_processes(target, items, processes=2, token=None, nbytes=LARGE):
    """Returns the processes that take part, once each of them had time to start."""
    token = make_token() if token is None else token
    deadline = time.monotonic() + 60
    found = set()
    while len(found) < processes and time.monotonic() < deadline:
        found |= set(map_in_parallel(target, token, "get_process", [0.01] * items, processes, nbytes))
    return found


def test_results_are_in_order_and_workers_are_used_again():
    target, token = Numbers(np.arange(3)), make_token()
    first = use_all_processes(target, 20, token=token)
    for _ in range(3):
        rows = list(map_in_parallel(target, token, "add", range(100), 2, LARGE))
        np.testing.assert_array_equal(rows, np.arange(3) + np.arange(100)[:, None])
    assert len(first) == 2
    assert os.getpid() in first
    assert use_all_processes(Numbers(np.arange(4)), 20) == first


def test_error_is_raised_after_earlier_results():
    target = Numbers(np.arange(3))
    use_all_processes(target, 20)
    results = map_in_parallel(target, make_token(), "divide", [1, 2, "three", 4], 2, LARGE)
    assert len(list(itertools.islice(results, 2))) == 2
    with pytest.raises(TypeError, match=r"unsupported|ufunc"):
        next(results)


def test_result_that_cannot_be_pickled_is_an_error():
    with make_copies(Numbers(0), make_token(), 1) as (copy,):
        copy.prepare()
        with pytest.raises(CannotSendError) as error:
            copy.call("return_function", 5)
        assert error.value.was_called
        assert isinstance(error.value.__cause__, (AttributeError, pickle.PicklingError))
        assert copy.call("add", 5) == 5


class Unsendable(int):
    """Number that can't be pickled, or not be unpickled."""

    def __reduce__(self):
        if self % 2:
            raise TypeError("not to be pickled")
        return sys.modules["__main__"].__dict__.__getitem__, ("not there",)


@pytest.mark.parametrize("has_state", [False, True])
def test_items_that_cannot_be_sent_are_processed_here(has_state):
    target = Numbers(0)
    with make_copies(target, make_token(), 1) as (copy,):
        (runner,) = make_remote_runners([copy], "add", target.add, LARGE, has_state=has_state)
        runner.prepare()
        assert [runner.call(item) for item in (1, Unsendable(2), Unsendable(3), 4)] == [1, 2, 3, 4]
        assert target.total == 5
        assert copy.call("add", 0) == 0


def test_object_that_cannot_be_pickled_is_used_here(caplog):
    results = map_in_parallel(NotPicklable(np.arange(3)), make_token(), "get_process", [0] * 8, 2, LARGE)
    assert set(results) == {os.getpid()}
    assert not caplog.records


def test_items_of_a_killed_worker_are_processed_here(caplog):
    target, token = Numbers(np.arange(3)), make_token()
    use_all_processes(target, 20, token=token)
    items = [(os.getpid(), i) for i in range(20)]
    assert list(map_in_parallel(target, token, "end_elsewhere", items, 2, LARGE)) == list(range(20))
    (record,) = caplog.records
    assert "a worker process of tokjax ended" in record.getMessage()
    assert len(use_all_processes(target, 20, token=token)) == 2  # a new worker was started


def test_killed_worker_with_state_is_an_error():
    target = Numbers(np.arange(3))
    with make_copies(target, make_token(), 1) as (copy,):
        (runner,) = make_remote_runners([copy], "add", target.add, LARGE, has_state=True)
        runner.prepare()
        runner.call(5)
        copy._worker._process.kill()
        with pytest.raises(WorkerDiedError, match="a worker process of tokjax ended"):
            runner.call(6)
    assert target.total == 0


@pytest.mark.usefixtures("no_workers")
def test_worker_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    results = map_in_parallel(Numbers(np.arange(3)), make_token(), "get_process", [0.02] * 8, 2, LARGE)
    assert set(results) == {os.getpid()}
    assert not worker_starts.can_start_workers()  # it is not tried again


def test_program_without_an_interpreter_starts_nothing(monkeypatch):
    assert worker_starts.can_start_workers()
    for executable in (None, "", "/usr/bin/uwsgi"):
        monkeypatch.setattr(sys, "executable", executable)
        assert not worker_starts.can_start_workers()
    monkeypatch.undo()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not worker_starts.can_start_workers()


@pytest.mark.usefixtures("no_workers")
def test_worker_is_discarded_after_an_interrupted_call():
    target, token = Numbers(np.arange(3)), make_token()
    use_all_processes(target, 20, token=token)
    (worker,) = worker_processes._idle_workers
    process = worker._process
    errors = []

    def call(copy):
        try:
            copy.call("get_process", 10)
        except WorkerDiedError as error:
            errors.append(error)

    with make_copies(target, token, 1) as (copy,):
        copy.prepare()
        caller = threading.Thread(target=call, args=(copy,))
        caller.start()
        while worker.state != "calling":
            time.sleep(0.001)
    caller.join()
    assert len(errors) == 1
    assert process.poll() is not None
    assert not worker_processes._idle_workers


def test_late_thread_of_an_earlier_call_does_not_use_the_worker(monkeypatch):
    """The first call fails at once, before its thread prepares the worker that the second call then uses."""
    target, token = Numbers(np.arange(3)), make_token()
    use_all_processes(target, 20, token=token)
    prepare, seconds = worker_processes.RemoteCopy.prepare, [0.0]

    def prepare_late(copy):
        time.sleep(seconds[0])
        prepare(copy)

    monkeypatch.setattr(worker_processes.RemoteCopy, "prepare", prepare_late)
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
        patch = "import tokjax._util.worker_main as module; module._IDLE_SECONDS = 0.1; "
        return [*command, program.replace("from tokjax", patch + "from tokjax")]

    monkeypatch.setattr(worker_processes, "_make_command", make_impatient)
    with make_copies(target, make_token(), 1) as (copy,):
        copy.prepare()
        copy.call("add", 5)
        time.sleep(0.3)
        assert copy.call("add", 6) == 6
    (worker,) = worker_processes._idle_workers
    assert worker._process.wait(30) == 0
    assert len(use_all_processes(target, 20)) == 2


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize("path", mark_slow_except(["", ".", b"/tmp", 5], [""]))
def test_worker_imports_this_package(path, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(path)
    package = tmp_path / "tokjax" / "_util"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    assert len(use_all_processes(Numbers(0), 20)) == 2


def test_at_most_the_available_cores_are_used():
    with (
        make_copies(Numbers(0), make_token(), 5) as first,
        make_copies(Numbers(0), make_token(), 1) as second,
    ):
        assert (len(first), len(second)) == (5, 0)
    assert not worker_processes._borrowed_workers


def test_abandoned_iterator_returns_the_worker():
    target, token = Numbers(np.arange(3)), make_token()
    use_all_processes(target, 20, token=token)
    results = map_in_parallel(target, token, "add", range(100), 2, LARGE)
    next(results)
    results.close()
    gc.collect()
    assert not worker_processes._borrowed_workers


@pytest.mark.usefixtures("no_workers")
def test_small_inputs_start_nothing():
    assert compute_num_processes(8, 1 << 20) == 1
    assert compute_num_processes(8, 1 << 40) == 8
    assert compute_num_processes(1, 1 << 40) == 1
    results = map_in_parallel(Numbers(np.arange(3)), make_token(), "get_process", [0] * 8, 2, 100)
    assert set(results) == {os.getpid()}
    assert not worker_processes._idle_workers


@pytest.mark.usefixtures("no_workers")
def test_inputs_of_unknown_size_start_workers_after_some_items():
    target, token = Numbers(np.arange(3)), make_token()
    items = worker_processes._ITEMS_PER_PROCESS
    assert set(map_in_parallel(target, token, "get_process", [0] * (items - 1), 2, None)) == {os.getpid()}
    assert not worker_processes._idle_workers
    assert len(use_all_processes(target, 40, token=token, nbytes=None)) == 2


PROGRAM = """
    import os, signal, sys, time
    import numpy as np
    from tokjax._util import worker_processes
    from tests._util.test_worker_processes import Numbers, use_all_processes

    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore it
    worker_processes.resolve_num_threads = lambda threads: threads or 2
    print("started", flush=True)  # a worker that ran the program again would print it twice
    processes = use_all_processes(Numbers(np.arange(3)), 20)
    print(*sorted(processes), flush=True)
    if sys.argv[1:] == ["wait"]:
        time.sleep(60)
    child = os.fork()
    if child == 0:
        os._exit(len(worker_processes._idle_workers))
    assert os.waitpid(child, 0)[1] == 0  # it has no workers
    assert use_all_processes(Numbers(np.arange(3)), 20) == processes
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


class TestSharedBuffer:
    @pytest.mark.parametrize("min_nbytes", [1, 1 << 20])
    def test_values_of_all_sizes(self, min_nbytes, monkeypatch):
        monkeypatch.setattr(shared_buffers, "_MIN_NBYTES", min_nbytes)
        buffer = SharedBuffer()
        other = SharedBuffer(os.dup(buffer.fd))
        for size in (0, 1, 100_000, 5, 150_000):
            value = {"text": "é\ud800" * size, "array": np.arange(size), "none": None}
            copied = other.read(buffer.write(value))
            assert copied["text"] == value["text"]
            np.testing.assert_array_equal(copied["array"], value["array"])
            copied["array"] += 1  # it is writable, and does not change the buffer

    def test_mapped_value_is_private(self):
        buffer = SharedBuffer()
        sizes = buffer.write(np.arange(5))
        first, second = (SharedBuffer(os.dup(buffer.fd)).map_value(sizes) for _ in range(2))
        first += 1
        assert second.tolist() == [0, 1, 2, 3, 4]
