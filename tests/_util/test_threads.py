"""Tests of ordered maps over threads and executors: order, errors, and the data that workers are sent."""

import copyreg
import itertools
import json
import logging
import multiprocessing.pool
import pickle
import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest
from hypothesis import example, given, strategies as st

import tokjax
from tests.support.rejections import rejects
from tokjax._util import executors
from tokjax._util.executors import map_in_workers
from tokjax._util.threads import map_in_threads

SHARED = pickle.dumps(12)


class NotUnpicklableError(Exception):
    """Error that pickles, but does not unpickle."""

    def __init__(self, left, right):
        super().__init__(f"{left} and {right}")

    def __reduce__(self):
        return NotUnpicklableError, self.args  # as `Exception` does; Dask handles errors without this method


def divide_shared(shared, number):
    return shared // number


class NotPicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not to be pickled")


class TextError(Exception):
    """Error that unpickles as a string."""

    def __reduce__(self):
        return str, ("a text",)


class ExitingError(Exception):
    """Error that exits the process that unpickles it."""

    def __reduce__(self):
        return sys.exit, (3,)


class FakeExecutor(Executor):
    """Executor that runs tasks in the calling thread, and simulates failures of workers.

    Args:
        tasks_with_empty_cache: numbers of tasks, from 0, before which the worker's cache is cleared.
        breaks_at: number of the task, from 0, at which the executor breaks.
        pickles_results: pickle and unpickle results, as between processes.
        lost_tasks: numbers of tasks, from 1, whose answers are lost.

    Attributes:
        sent_nbytes: number of bytes that were sent with each task.
    """

    lost_error = ValueError("the answer is lost")

    def __init__(self, tasks_with_empty_cache=(), breaks_at=None, pickles_results=False, lost_tasks=()):
        self.tasks_with_empty_cache, self.breaks_at = tasks_with_empty_cache, breaks_at
        self.pickles_results, self.lost_tasks, self.sent_nbytes = pickles_results, lost_tasks, []
        executors._worker_cache.cache_clear()

    def submit(self, function, /, *args):
        if len(self.sent_nbytes) == self.breaks_at:
            raise BrokenProcessPool("no more")
        if len(self.sent_nbytes) in self.tasks_with_empty_cache:
            executors._worker_cache.cache_clear()
        self.sent_nbytes.append(len(pickle.dumps((function, args))))
        future = Future()
        if len(self.sent_nbytes) in self.lost_tasks:
            future.set_exception(self.lost_error)
        else:
            result = function(*args)
            future.set_result(pickle.loads(pickle.dumps(result)) if self.pickles_results else result)
        return future


def collect_until_error(results):
    """Returns the results of an iterator, and the text of the error that it raises, or `None`."""
    collected = []
    try:
        collected.extend(results)
    except Exception as error:
        return collected, str(error)
    return collected, None


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@given(
    st.lists(st.integers(0, 9), max_size=20),
    st.booleans(),
    st.sampled_from(["threads", "workers"]),
    st.integers(1, 4),
)
@example([1], True, "threads", 1)
@example([1, 2, 3, 4, 5, 6], True, "threads", 4)
@example([1, 0], True, "workers", 1)
def test_results_before_an_error(pool, items, source_fails, method, concurrency):
    def source():
        yield from items
        if source_fails:
            raise OSError("no more")

    maps = {
        "threads": partial(map_in_threads, partial(divide_shared, 12), threads=concurrency),
        "workers": partial(map_in_workers, divide_shared, SHARED, concurrency=concurrency, executor=pool),
    }
    assert collect_until_error(maps[method](items=source())) == collect_until_error(
        divide_shared(12, item) for item in source()
    )


def test_results_before_executor_breaks():
    results = map_in_workers(divide_shared, SHARED, itertools.count(1), 2, FakeExecutor(breaks_at=7))
    assert collect_until_error(results) == ([12, 6, 4, 3, 2, 2, 1], "no more")


def test_keyboard_interrupt_is_not_deferred():
    def source():
        yield from (1, 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(map_in_threads(str, source(), 2))


@pytest.mark.parametrize("threads", [1, 2])
def test_source_stays_open(threads):
    source = (i for i in range(20))
    results = map_in_threads(str, source, threads)
    assert next(results) == "0"
    results.close()
    assert 0 < len(list(source)) < 20


@given(st.sets(st.integers(0, 30)), st.integers(0, 20), st.integers(1, 3))
def test_workers_that_lose_their_cache(tasks_with_empty_cache, count, concurrency):
    executor = FakeExecutor(tasks_with_empty_cache)
    numbers = range(1, count + 1)
    results = map_in_workers(divide_shared, SHARED, numbers, concurrency, executor)
    assert list(results) == [12 // number for number in numbers]


def test_item_with_lost_answer_is_sent_again(caplog):
    executor = FakeExecutor(lost_tasks={3, 7})
    with caplog.at_level(logging.WARNING, "tokjax"):
        assert list(map_in_workers(divide_shared, SHARED, range(1, 7), 1, executor)) == [12, 6, 4, 3, 2, 2]
    assert len(executor.sent_nbytes) == 8
    warning = "an item is sent to a worker again; the executor raised: ValueError('the answer is lost')"
    assert caplog.messages == [warning] * 2
    with pytest.raises(ValueError, match="the answer is lost"):
        list(map_in_workers(divide_shared, SHARED, [1], 1, FakeExecutor(lost_tasks={1, 2})))


def test_nothing_is_sent_to_broken_executor():
    executor = FakeExecutor(lost_tasks={1})
    executor.lost_error = BrokenProcessPool("a process died")
    with pytest.raises(BrokenProcessPool, match="a process died"):
        list(map_in_workers(divide_shared, SHARED, [1], 1, executor))
    assert len(executor.sent_nbytes) == 1


def compute_total_length(shared, text):
    return len(shared) + len(text)


def count_items_with_shared(tasks_with_empty_cache, concurrency):
    """Counts how many of 200 items are sent with the shared argument."""
    executor, large = FakeExecutor(tasks_with_empty_cache), 1 << 20
    results = map_in_workers(
        compute_total_length, pickle.dumps(b"." * large), ["abc"] * 200, concurrency, executor
    )
    assert list(results) == [large + 3] * 200
    assert len(executor.sent_nbytes) >= 200
    return sum(nbytes > large for nbytes in executor.sent_nbytes)


def test_shared_argument_is_sent_with_few_items():
    assert count_items_with_shared((), 1) == 3
    assert count_items_with_shared((), 4) == 9
    # The first 9 items carry it. Later, 9 pending items miss the cache and are sent again with it. The 8 new
    # items between these carry it too, and 9 after the last of them.
    assert count_items_with_shared({100}, 4) == 9 + 9 + 17


def with_unpicklable_attribute(error):
    error.callback = lambda: None
    return error


def raise_kind(shared, kind):
    """Raises an error of some kind, with a note and a cause. Returns if the kind is "fine"."""
    try:
        return shared // (kind == "fine")
    except ZeroDivisionError as cause:
        error = {
            "plain": ValueError("bad text"),
            "loses its notes": json.JSONDecodeError("bad text", "doc", 1),
            "does not unpickle": NotUnpicklableError("bad", "text"),
            "does not pickle": NotPicklableError("bad text"),
            "unpickles as a string": TextError("bad text"),
            "exits": ExitingError("bad text"),
            "holds a function": with_unpicklable_attribute(ValueError("bad text")),
        }[kind]
        error.add_note("in step 'parse'")
        raise error from cause


@pytest.mark.parametrize("pickles_results", [False, True])
@pytest.mark.parametrize("tasks_with_empty_cache", [set(), {5}])
@pytest.mark.parametrize("kind", ["plain", "loses its notes"])
def test_errors_keep_type_notes_and_cause(kind, pickles_results, tasks_with_empty_cache, monkeypatch):
    # Dask, if it is loaded, pickles notes, causes and tracebacks.
    for error in (ValueError, json.JSONDecodeError):
        monkeypatch.delitem(copyreg.dispatch_table, error, raising=False)
    items, executor = (
        ["fine"] * 5 + [kind],
        FakeExecutor(tasks_with_empty_cache, pickles_results=pickles_results),
    )
    with pytest.raises(ValueError, match="bad text") as caught:
        list(map_in_workers(raise_kind, SHARED, items, 1, executor))
    assert type(caught.value) is (ValueError if kind == "plain" else json.JSONDecodeError)
    assert caught.value.__notes__ == ["in step 'parse'"]
    if pickles_results:
        assert "in raise_kind\n" in str(caught.value.__cause__)
    else:
        assert type(caught.value.__cause__) is ZeroDivisionError


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("does not unpickle", "bad and text"),
        ("does not pickle", "bad text"),
        ("unpickles as a string", "bad text"),
        ("exits", "bad text"),
        ("holds a function", "bad text"),
    ],
)
def test_unpicklable_errors_are_described(kind, text, monkeypatch):
    monkeypatch.delitem(sys.modules, "cloudpickle", raising=False)
    with pytest.raises(RuntimeError) as caught:
        list(map_in_workers(raise_kind, SHARED, [kind], 1, FakeExecutor(pickles_results=True)))
    message = str(caught.value)
    assert message.startswith("a worker raised an error that does not unpickle:\n\nTraceback")
    assert "ZeroDivisionError" in message
    assert "in raise_kind\n" in message
    assert message.endswith(f"Error: {text}\n")
    assert caught.value.__notes__ == ["in step 'parse'"]


def test_cloudpickle_is_used_for_errors():
    pytest.importorskip("cloudpickle")
    with pytest.raises(ValueError, match="bad text") as caught:
        list(map_in_workers(raise_kind, SHARED, ["holds a function"], 1, FakeExecutor(pickles_results=True)))
    assert caught.value.callback() is None
    assert caught.value.__notes__ == ["in step 'parse'"]


def test_arguments_that_are_not_executors(tmp_path):
    modules = {
        "distributed.client": r"of a Dask client pass client\.get_executor\(\)",
        "ray.util.multiprocessing.pool": r"for Ray pass a subclass of Executor whose submit",
        "joblib.parallel": r"pass joblib\.externals\.loky\.get_reusable_executor\(N\)",
        "mine": "for threads pass workers=N",
    }
    arguments = [(type("Pool", (), {"__module__": name})(), advice) for name, advice in modules.items()]
    with multiprocessing.pool.ThreadPool(1) as pool:
        instead = r"pass concurrent\.futures\.ProcessPoolExecutor\(N"
        for executor, advice in (*arguments, (pool, instead), (multiprocessing, instead)):
            with rejects(f"must be a concurrent.futures.*; .*{advice}"):
                tokjax.write_dataset(["a"], tokjax.RawTextField(), tmp_path / "data", executor=executor)
