"""Work in threads and in executors: order, errors, and what workers are sent."""

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
from tokjax._util import executors
from tokjax._util.executors import map_in_workers
from tokjax._util.threads import map_in_threads, resolve_num_threads

SHARED = pickle.dumps(12)


class OddError(Exception):
    """Pickles, but does not unpickle."""

    def __init__(self, left, right):
        super().__init__(f"{left} and {right}")

    def __reduce__(self):
        return OddError, self.args  # (as Exception does; Dask sees to those that leave it to that)


def divide_shared(shared, number):
    return shared // number


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not to be pickled")


class TextError(Exception):
    """Becomes a text through pickling."""

    def __reduce__(self):
        return str, ("a text",)


class ExitingError(Exception):
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return sys.exit, (3,)


class Inline(Executor):
    """Works in this thread, as a worker that forgets before the tasks of some numbers what it keeps.

    The answers to tasks of other numbers are lost, counted from 1.

    Attributes:
        sent: how many bytes were sent with each task.
    """

    lost = ValueError("the answer is lost")

    def __init__(self, forgets=(), stop=None, pickles=False, loses=()):
        self.forgets, self.stop, self.pickles, self.loses, self.sent = forgets, stop, pickles, loses, []
        executors._worker_cache.cache_clear()

    def submit(self, function, /, *args):
        if len(self.sent) == self.stop:
            raise BrokenProcessPool("no more")
        if len(self.sent) in self.forgets:
            executors._worker_cache.cache_clear()
        self.sent.append(len(pickle.dumps((function, args))))
        future = Future()
        if len(self.sent) in self.loses:
            future.set_exception(self.lost)
        else:
            result = function(*args)
            future.set_result(pickle.loads(pickle.dumps(result)) if self.pickles else result)
        return future


def collect_until_error(results):
    """The results of an iterator, and the error that it ends with."""
    gathered = []
    try:
        gathered.extend(results)
    except Exception as error:
        return gathered, str(error)
    return gathered, None


def test_threads_are_at_least_one():
    assert resolve_num_threads(None) >= 1


@given(st.integers(0, 40), st.integers(1, 4))
def test_results_come_in_the_order_of_the_items(items, threads):
    assert list(map_in_threads(lambda i: i * i, range(items), threads)) == [i * i for i in range(items)]


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@given(
    st.lists(st.integers(0, 9), max_size=20),
    st.booleans(),
    st.sampled_from(["threads", "executor", "workers"]),
    st.integers(1, 4),
)
@example([1], True, "threads", 1)
@example([1, 2, 3, 4, 5, 6], True, "threads", 4)
@example([1, 0], True, "workers", 1)
def test_results_come_before_later_errors(pool, items, source_fails, where, concurrency):
    def source():
        yield from items
        if source_fails:
            raise OSError("no more")

    ways = {
        "threads": partial(map_in_threads, partial(divide_shared, 12), threads=concurrency),
        "executor": partial(map_in_threads, partial(divide_shared, 12), threads=concurrency, executor=pool),
        "workers": partial(map_in_workers, divide_shared, SHARED, concurrency=concurrency, executor=pool),
    }
    assert collect_until_error(ways[where](items=source())) == collect_until_error(
        divide_shared(12, item) for item in source()
    )


def test_an_executor_that_breaks_gives_what_is_done():
    for run in (
        partial(map_in_threads, partial(divide_shared, 12)),
        partial(map_in_workers, divide_shared, SHARED),
    ):
        done, error = collect_until_error(run(itertools.count(1), 2, executor=Inline(stop=7)))
        assert (done, error) == ([12, 6, 4, 3, 2, 2, 1], "no more")


def test_an_interruption_is_not_held_back():
    def source():
        yield from (1, 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(map_in_threads(str, source(), 2))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_rest_of_a_source_can_be_used(threads):
    source = (i for i in range(20))
    results = map_in_threads(str, source, threads)
    assert next(results) == "0"
    results.close()
    assert 0 < len(list(source)) < 20


@given(st.sets(st.integers(0, 30)), st.integers(0, 20), st.integers(1, 3))
def test_workers_may_lose_shared_state(forgotten, count, concurrency):
    executor = Inline(forgotten)
    numbers = range(1, count + 1)
    results = map_in_workers(divide_shared, SHARED, numbers, concurrency, executor)
    assert list(results) == [12 // number for number in numbers]


def test_lost_item_is_resent(caplog):
    executor = Inline(loses={3, 7})
    with caplog.at_level(logging.WARNING, "tokjax"):
        assert list(map_in_workers(divide_shared, SHARED, range(1, 7), 1, executor)) == [12, 6, 4, 3, 2, 2]
    assert len(executor.sent) == 8
    again = "an item is sent to a worker again; what the executor said: ValueError('the answer is lost')"
    assert caplog.messages == [again] * 2


def test_item_lost_twice_raises():
    with pytest.raises(ValueError, match="the answer is lost"):
        list(map_in_workers(divide_shared, SHARED, [1], 1, Inline(loses={1, 2})))


def test_nothing_is_sent_to_an_executor_that_is_broken():
    executor = Inline(loses={1})
    executor.lost = BrokenProcessPool("a process died")
    with pytest.raises(BrokenProcessPool, match="a process died"):
        list(map_in_workers(divide_shared, SHARED, [1], 1, executor))
    assert len(executor.sent) == 1


def compute_total_length(shared, text):
    return len(shared) + len(text)


def make_executors(forgets, concurrency):
    """With how many of 200 items was sent what they share."""
    executor, large = Inline(forgets), 1 << 20
    results = map_in_workers(
        compute_total_length, pickle.dumps(b"." * large), ["abc"] * 200, concurrency, executor
    )
    assert list(results) == [large + 3] * 200
    assert len(executor.sent) >= 200
    return sum(nbytes > large for nbytes in executor.sent)


def test_what_is_shared_is_sent_with_few_items():
    assert make_executors((), 1) == 3
    assert make_executors((), 4) == 9
    # Those on their way to a new worker are sent again, and as many behind the last of them carry it too.
    assert make_executors({100}, 4) == 9 + 9 + 17


def raise_in_callback(error):
    error.callback = lambda: None
    return error


def raise_kind(shared, kind):
    """Raises an error with a note, and with another as its cause."""
    try:
        return shared // (kind == "fine")
    except ZeroDivisionError as cause:
        error = {
            "plain": ValueError("bad text"),
            "loses its notes": json.JSONDecodeError("bad text", "doc", 1),
            "does not unpickle": OddError("bad", "text"),
            "does not pickle": UnpicklableError("bad text"),
            "is a text": TextError("bad text"),
            "exits": ExitingError("bad text"),
            "holds a function": raise_in_callback(ValueError("bad text")),
        }[kind]
        error.add_note("in step 'parse'")
        raise error from cause


@pytest.mark.parametrize("pickles", [False, True])
@pytest.mark.parametrize("forgets", [set(), {5}])
@pytest.mark.parametrize("kind", ["plain", "loses its notes"])
def test_errors_come_out_as_they_went_in(kind, pickles, forgets, monkeypatch):
    # Where Dask is loaded, it sees to notes, causes and tracebacks.
    for error in (ValueError, json.JSONDecodeError):
        monkeypatch.delitem(copyreg.dispatch_table, error, raising=False)
    items, executor = ["fine"] * 5 + [kind], Inline(forgets, pickles=pickles)
    with pytest.raises(ValueError, match="bad text") as caught:
        list(map_in_workers(raise_kind, SHARED, items, 1, executor))
    assert type(caught.value) is (ValueError if kind == "plain" else json.JSONDecodeError)
    assert caught.value.__notes__ == ["in step 'parse'"]
    if pickles:
        assert "in raise_kind\n" in str(caught.value.__cause__)
    else:
        assert type(caught.value.__cause__) is ZeroDivisionError


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("does not unpickle", "bad and text"),
        ("does not pickle", "bad text"),
        ("is a text", "bad text"),
        ("exits", "bad text"),
        ("holds a function", "bad text"),
    ],
)
def test_unpicklable_errors_are_described(kind, text, monkeypatch):
    monkeypatch.delitem(sys.modules, "cloudpickle", raising=False)
    with pytest.raises(RuntimeError) as caught:
        list(map_in_workers(raise_kind, SHARED, [kind], 1, Inline(pickles=True)))
    message = str(caught.value)
    assert message.startswith("a worker raised an error that does not unpickle; what it said:\n\nTraceback")
    assert "ZeroDivisionError" in message
    assert "in raise_kind\n" in message
    assert message.endswith(f"Error: {text}\n")
    assert caught.value.__notes__ == ["in step 'parse'"]


def test_a_pickler_that_does_more_than_the_executors_is_used_for_errors():
    pytest.importorskip("cloudpickle")
    with pytest.raises(ValueError, match="bad text") as caught:
        list(map_in_workers(raise_kind, SHARED, ["holds a function"], 1, Inline(pickles=True)))
    assert caught.value.callback() is None
    assert caught.value.__notes__ == ["in step 'parse'"]


class TestCustomExecutors:
    @pytest.mark.parametrize(
        ("module", "advice"),
        [
            ("distributed.client", r"of a Dask client pass client\.get_executor\(\)"),
            ("ray.util.multiprocessing.pool", r"for Ray pass a subclass of Executor whose submit"),
            ("joblib.parallel", r"pass joblib\.externals\.loky\.get_reusable_executor\(N\)"),
            ("mine", "for threads pass workers=N"),
        ],
    )
    def test_the_adapter_is_named(self, tmp_path, module, advice):
        executor = type("Pool", (), {"__module__": module})()
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=f"must be a concurrent.futures.*; .*{advice}"
        ):
            tokjax.write_dataset(["a"], tokjax.RawTextField(), tmp_path / "data", executor=executor)

    def test_a_pool_of_processes(self, tmp_path):
        with (
            multiprocessing.pool.ThreadPool(1) as pool,
            pytest.raises(
                tokjax.errors.InvalidArgumentError, match=r"pass concurrent\.futures\.ProcessPoolExecutor\(N"
            ),
        ):
            tokjax.write_dataset(["a"], tokjax.RawTextField(), tmp_path / "data", executor=pool)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="instead of a pool pass concurrent.futures"
        ):
            tokjax.write_dataset(["a"], tokjax.RawTextField(), tmp_path / "data", executor=multiprocessing)
