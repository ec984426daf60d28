"""Tests of caches that exchange entries with their copies in worker processes."""

import gc
import pickle

import pytest

from tokjax._util.cache_exchange import ExchangingCache, collect_queues
from tokjax._util.parallel import make_token
from tokjax._util.threads import can_start_workers
from tokjax._util.worker_processes import borrow_workers


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
            self.publish([(number, number**2)])
        return self.squares[number]

    def add_entries(self, batches):
        self.squares.update(batches)


class Calculator:
    """Object with a cache, as a tokenizer has one."""

    def __init__(self):
        self.cache = Squares()

    def square_all(self, numbers):
        """Returns the squares, and how many have been computed so far."""
        return [self.cache.square(number) for number in numbers], self.cache.num_computed


@pytest.mark.skipif(not can_start_workers(), reason="workers need memfd_create")
def test_workers_compute_nothing_that_this_process_or_another_worker_has_computed():
    calculator, token = Calculator(), make_token()
    with borrow_workers(calculator, token, "square_all", 2, None, has_state=False) as (first, second):
        first.prepare()
        second.prepare()
        calculator.square_all([1, 2, 3])
        assert first.call([1, 2, 3, 4]) == ([1, 4, 9, 16], 1)
        assert second.call([4, 5]) == ([16, 25], 1)  # 4 came from the first worker
        assert calculator.square_all([4, 5]) == ([16, 25], 3)
    calculator.square_all([6])
    for number in range(7, 9):
        with borrow_workers(calculator, token, "square_all", 2, None, has_state=False) as runners:
            for runner in runners:
                runner.prepare()
                _, num_computed = runner.call([6])
                assert num_computed == 1  # it got the entries of the meantime
        calculator.square_all([number])


def make_copy(original):
    """Returns a copy as a worker has it, and the queues of both sides."""
    with collect_queues() as queues:
        pickled = pickle.dumps(original)
    with collect_queues() as queues_of_copy:
        copy = pickle.loads(pickled)
    return copy, queues, queues_of_copy


def test_caches_and_queues_do_not_keep_each_other():
    deleted, calculator = Calculator(), Calculator()
    assert not pickle.loads(pickle.dumps(calculator)).cache.has_subscribers  # an ordinary copy
    _, (queue,), _ = make_copy(deleted)
    _, (deleted_queue,), _ = make_copy(calculator)
    deleted.square_all([1])
    assert calculator.cache.has_subscribers
    del deleted, deleted_queue
    gc.collect()
    queue.deliver([(2, 4)])
    assert queue.copy().take() == [(1, 1)]
    assert not calculator.cache.has_subscribers
