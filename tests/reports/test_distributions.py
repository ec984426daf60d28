"""Tests of entropy, Huffman code length and Rényi efficiency, against slow oracles and known bounds."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import report as oracle
from tokjax.reports import compute_entropy, compute_huffman_length, compute_renyi_efficiency

counts_of_tokens = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 10**6)), max_size=40)


@given(counts_of_tokens)
def test_huffman_length_equals_the_oracle(counts):
    expected = oracle.compute_huffman_length(counts)
    assert compute_huffman_length(counts) == pytest.approx(expected, rel=1e-15, nan_ok=True)
    assert compute_huffman_length(np.array(counts, np.uint32)) == pytest.approx(expected, nan_ok=True)


@given(counts_of_tokens.filter(lambda counts: sum(map(bool, counts)) > 1))
def test_huffman_length_is_bounded_by_the_entropy(counts):
    entropy, length = compute_entropy(counts), compute_huffman_length(counts)
    assert entropy - 1e-9 <= length < entropy + 1


@given(counts_of_tokens, st.sampled_from([0, 2, 3, 7]))
def test_renyi_efficiency_equals_the_oracle(counts, order):
    expected = oracle.compute_renyi_efficiency(counts, order)
    assert compute_renyi_efficiency(counts, order) == pytest.approx(
        expected, rel=1e-9, abs=1e-12, nan_ok=True
    )


@given(counts_of_tokens)
def test_renyi_efficiency_decreases_with_the_order(counts):
    values = [compute_renyi_efficiency(counts, order) for order in (0.5, 0.999999, 1, 1.000001, 2.5, 200)]
    if math.isnan(values[0]):
        assert all(map(math.isnan, values))
    else:
        assert all(a >= b - 1e-9 for a, b in zip(values, values[1:], strict=False))
        assert values[1] == pytest.approx(values[3], rel=1e-4, abs=1e-9)
        assert values[-1] >= 0
        assert values[0] <= 1 + 1e-9


def test_few_tokens():
    assert compute_huffman_length([7, 0]) == compute_entropy([0, 7]) == compute_renyi_efficiency([7, 0]) == 0
    assert compute_renyi_efficiency(np.ones(1000, np.int64)) == pytest.approx(1)
    for compute in (compute_entropy, compute_huffman_length, compute_renyi_efficiency):
        assert math.isnan(compute([]))
        assert math.isnan(compute([0, 0]))
    assert math.isnan(compute_renyi_efficiency([5]))


@pytest.mark.parametrize("compute", [compute_entropy, compute_huffman_length, compute_renyi_efficiency])
def test_invalid_counts_are_rejected(compute):
    for counts, message in (
        ([0.5], r"counts must be integers of one dimension, not float64 of shape \(1,\); pass np.bincount"),
        ([[1]], r"not int64 of shape \(1, 1\)"),
        ([2, -1], "counts must not be negative, but the lowest is -1"),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            compute(counts)


def test_invalid_order_is_rejected():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="order must be"):
        compute_renyi_efficiency([1, 1], -1)
