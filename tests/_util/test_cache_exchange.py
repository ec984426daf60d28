"""Tests of caches that exchange entries with their copies in worker processes."""

import gc
import itertools
import pickle

import pytest

from tokjax._util import cache_exchange, worker_starts
from tokjax._util.cache_exchange import ExchangingCache, collect_queues
from tokjax._util.parallel import make_token
from tokjax._util.worker_processes import make_copies


class Squares(ExchangingCache):
    """Cache of squares, which counts how many it has computed."""

    def __init__(self):
        super().__init__()
        self.squares = {}
        self.num_computed = 0

    def square(self, number):
        if number not in self.squares:
            self.num_computed += 1
            self.squares[number] = number**2
            self.publish((number, number**2), 1)
        return self.squares[number]

    def add_entries(self, batches):
        self.squares.update(batches)


class Calculator:
    """Object with a cache, as a tokenizer has one."""

    def __init__(self):
        self.cache = Squares()

    def square_all(self, numbers):
        return [self.cache.square(number) for number in numbers]

    def get_num_computed(self):
        return self.cache.num_computed


def make_copy(original):
    """Returns a copy as a worker has it, and the queues of both sides."""
    with collect_queues() as queues:
        pickled = pickle.dumps(original)
    with collect_queues() as queues_of_copy:
        copy = pickle.loads(pickled)
    return copy, queues, queues_of_copy


needs_workers = pytest.mark.skipif(not worker_starts.can_start_workers(), reason="workers need memfd_create")


@needs_workers
def test_workers_compute_nothing_that_this_process_or_another_worker_has_computed():
    calculator, token = Calculator(), make_token()
    with make_copies(calculator, token, 2) as (first, second):
        first.prepare()
        second.prepare()
        calculator.square_all([1, 2, 3])
        assert first.call("square_all", [1, 2, 3, 4]) == [1, 4, 9, 16]
        assert first.call("get_num_computed") == 1
        assert second.call("square_all", [4, 5]) == [16, 25]
        assert calculator.square_all([4, 5]) == [16, 25]
        assert calculator.get_num_computed() == 3
        assert second.call("get_num_computed") == 1  # 4 came from the first worker


@needs_workers
def test_worker_that_is_used_again_gets_the_entries_of_the_meantime():
    calculator, token = Calculator(), make_token()
    for number in range(3):
        with make_copies(calculator, token, 1) as (copy,):
            copy.prepare()
            copy.call("square_all", [number])
            assert copy.call("get_num_computed") == 1  # only the first square
        calculator.square_all([number + 1])


def test_copied_queue_has_the_entries_so_far():
    calculator = Calculator()
    _, (queue,), _ = make_copy(calculator)
    calculator.square_all([1])
    copied = queue.copy()
    calculator.square_all([2])
    assert copied.take() == queue.take() == [((1, 1), 1), ((2, 4), 1)]


def test_caches_and_queues_do_not_keep_each_other():
    deleted, calculator = Calculator(), Calculator()
    assert not pickle.loads(pickle.dumps(calculator)).cache.has_subscribers  # an ordinary copy
    _, (queue,), _ = make_copy(deleted)
    _, (deleted_queue,), _ = make_copy(calculator)
    deleted.square_all([1])
    assert calculator.cache.has_subscribers
    del deleted, deleted_queue
    gc.collect()
    queue.deliver([((2, 4), 1)])
    assert queue.copy() is None
    assert not calculator.cache.has_subscribers


def test_full_queue_is_emptied(monkeypatch):
    monkeypatch.setattr(cache_exchange, "_MAX_QUEUED_ENTRIES", 10)
    calculator = Calculator()
    _, (queue,), _ = make_copy(calculator)
    for number in itertools.count():
        calculator.square_all([number])
        if number == 10:
            break
    assert queue.take() == [((10, 100), 1)]
