"""Tests of best fit and first fit, against an oracle."""

import numpy as np
from hypothesis import given, strategies as st

from tests.oracles import packing as oracle
from tokjax.packing import bin_packing

lengths_and_size = st.integers(1, 12).flatmap(
    lambda size: st.tuples(st.lists(st.integers(1, size), max_size=40), st.just(size))
)


@given(lengths_and_size, st.integers(1, 5))
def test_first_fit(case, max_pieces):
    lengths, size = case
    actual = bin_packing.first_fit(np.array(lengths, np.int64), size, max_pieces)
    assert actual.tolist() == oracle.first_fit(lengths, size, max_pieces)


@given(lengths_and_size)
def test_best_fit_leaves_the_same_free_space(case):
    lengths, size = case
    actual = bin_packing.best_fit(np.array(lengths, np.int64), size, 2**31).tolist()
    expected = oracle.best_fit(lengths, size, 2**31)
    assert oracle.compute_free_space(lengths, actual, size) == oracle.compute_free_space(
        lengths, expected, size
    )


@given(lengths_and_size, st.integers(1, 5))
def test_best_fit_respects_max_pieces(case, max_pieces):
    lengths, size = case
    actual = bin_packing.best_fit(np.array(lengths, np.int64), size, max_pieces)
    if lengths:
        assert np.bincount(actual).max() <= max_pieces
        assert min(oracle.compute_free_space(lengths, actual.tolist(), size)) >= 0
        assert sorted(set(actual.tolist())) == list(range(actual.max() + 1))


def test_many_blocks():
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(4, 1, 3_000), 1, 512).astype(np.int64)
    for size in (512, 4096):
        expected = oracle.first_fit(lengths.tolist(), size, 9)
        assert bin_packing.first_fit(lengths, size, 9).tolist() == expected
        actual = bin_packing.best_fit(lengths, size, 2**31).tolist()
        expected = oracle.best_fit(lengths.tolist(), size, 2**31)
        assert oracle.compute_free_space(lengths, actual, size) == oracle.compute_free_space(
            lengths, expected, size
        )
