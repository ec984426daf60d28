"""Tests of the scans and compactions of device programs, against NumPy."""

from functools import partial

import jax
import numpy as np
import pytest

from tests.support.variants import mark_slow_except
from tokjax.device.scans import (
    Neighbors,
    compact,
    count_before,
    cumulative_sum,
    find_true,
    number_segments,
    pack,
    running_maximum,
    take_next,
)

LENGTHS = mark_slow_except([1, 33, 256, 16 * 257 + 1], [33, 16 * 257 + 1])


def make_masks(length):
    """Returns masks with few, some and many true values."""
    values = np.random.default_rng(length).random(length)
    return [values < share for share in (0.0, 0.01, 0.3, 1.0)]


@pytest.mark.parametrize("length", LENGTHS)
def test_sums_and_maxima_of_numbers(length):
    values = np.random.default_rng(length).integers(-1000, 1000, length).astype(np.int32)
    sums, maxima = jax.jit(lambda values: (cumulative_sum(values), running_maximum(values)))(values)
    assert np.array_equal(sums, np.cumsum(values))
    assert np.array_equal(maxima, np.maximum.accumulate(values))


@pytest.mark.parametrize("length", LENGTHS)
def test_sums_and_counts_of_masks(length):
    positions = np.arange(length + 1, dtype=np.int32)

    @jax.jit
    def scan(mask):
        packed = pack(mask)
        return cumulative_sum(mask), count_before(packed, positions), packed.num_true

    for mask in make_masks(length):
        sums, counts, num_true = scan(mask)
        assert np.array_equal(sums, np.cumsum(mask))
        assert np.array_equal(counts, [0, *np.cumsum(mask)])
        assert num_true == mask.sum()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("capacity", mark_slow_except([1, 40, 6000], [40]))
def test_positions_of_true_values(length, capacity):
    find_both = jax.jit(lambda mask: (compact(mask, capacity, -5), find_true(pack(mask), capacity, -5)))
    for mask in make_masks(length):
        true = np.flatnonzero(mask)[:capacity]
        expected = np.append(true, np.full(capacity - len(true), -5))
        (positions, count), true_positions = find_both(mask)
        assert count == mask.sum()
        assert np.array_equal(positions, expected)
        assert np.array_equal(true_positions, expected)


@pytest.mark.parametrize("length", LENGTHS)
def test_values_at_the_next_true_position(length):
    values = (np.arange(length) % 251).astype(np.uint8)
    get_next = jax.jit(take_next)
    for mask in make_masks(length):
        mask[-1] = True
        true = np.flatnonzero(mask)
        expected = values[true[np.searchsorted(true, np.arange(length))]]
        assert np.array_equal(get_next(mask, values), expected)


def test_segments():
    begins = np.array([0, 3, 4, 4, 9, 12], np.int32)
    is_used = np.array([True, True, True, False, True, True])
    numbers = jax.jit(partial(number_segments, capacity=10))(begins, is_used)
    assert np.array_equal(numbers, [0, 0, 0, 1, 2, 2, 2, 2, 2, 3])


@pytest.mark.parametrize("length", LENGTHS)
def test_neighbors_wrap_around(length):
    values = np.arange(length, dtype=np.int32)
    distances = range(-3, 3)

    @jax.jit
    def get_neighbors(values):
        neighbors = Neighbors(values, 3, 2)
        return [neighbors.at(distance) for distance in distances]

    for distance, neighbors in zip(distances, get_neighbors(values), strict=True):
        assert np.array_equal(neighbors, np.roll(values, -distance))
