"""Tests of `LengthBuckets`: optimality against all other boundaries, and use in other functions."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.oracles import length_buckets as oracle
from tests.support.rejections import rejects
from tokjax import LengthBuckets

small_lengths = st.lists(st.integers(0, 14), min_size=1, max_size=12)


@given(small_lengths, st.integers(1, 4), st.integers(1, 4))
def test_boundaries_are_optimal(lengths, num_buckets, multiple_of):
    buckets = LengthBuckets.fit(lengths, num_buckets, multiple_of=multiple_of)
    assert oracle.count_padded_tokens(buckets, lengths) == oracle.compute_minimum_tokens(
        lengths, num_buckets, multiple_of
    )
    assert len(buckets) <= num_buckets
    assert all(boundary % multiple_of == 0 for boundary in buckets)


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_no_moved_boundary_reduces_padding(seed, num_buckets):
    """A local check for numbers of buckets that are too large to try all boundaries."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(4, 1, 500).astype(int)
    buckets = LengthBuckets.fit(lengths, num_buckets)
    assert len(buckets) == num_buckets
    minimum = buckets.padding(lengths)
    distinct = np.unique(lengths).tolist()
    for removed in rng.integers(0, num_buckets - 1, 5).tolist() if num_buckets > 1 else []:
        for replacement in rng.choice(distinct, 5).tolist():
            other = LengthBuckets([*buckets[:removed], *buckets[removed + 1 :], max(replacement, 1)])
            assert other.padding(lengths) >= minimum
    assert LengthBuckets.fit(lengths, num_buckets + 1).padding(lengths) < minimum


def test_one_bucket_per_length_has_no_padding():
    lengths = [7, 3, 3, 40]
    for num_buckets in (3, 4, 100):
        assert LengthBuckets.fit(lengths, num_buckets) == LengthBuckets([3, 7, 40])
    assert LengthBuckets.fit(lengths, 3).padding(lengths) == 0
    assert LengthBuckets.fit([0, 0], 2) == LengthBuckets([1])


@given(st.lists(st.integers(1, 99), min_size=1, max_size=9), st.lists(st.integers(0, 99), max_size=20))
def test_padded_lengths_and_padding(boundaries, lengths):
    buckets = LengthBuckets(boundaries)
    lengths = [length for length in lengths if length <= max(boundaries)]
    expected = [min(boundary for boundary in boundaries if boundary >= length) for length in lengths]
    assert buckets.compute_padded_lengths(lengths).tolist() == expected
    assert buckets.padding(lengths) == (sum(expected) - sum(lengths)) / max(sum(expected), 1)
    if lengths:
        for width in ({len(lengths)}, {1, len(lengths)}):
            shaped = np.array(lengths, np.uint16).reshape(*width, -1)
            assert buckets.compute_padded_lengths(shaped).shape == shaped.shape
        assert buckets.compute_padded_lengths(jnp.array(lengths)).tolist() == expected
        assert buckets.compute_padded_lengths(lengths[0]) == expected[0]


@given(st.integers(1, 500), st.integers(0, 5000), st.floats(1.01, 10), st.integers(1, 64))
def test_geometric_by_factor(shortest, difference, factor, multiple_of):
    longest = shortest + difference
    buckets = LengthBuckets.geometric(shortest, longest, factor=factor, multiple_of=multiple_of)
    assert buckets[0] >= shortest
    assert buckets[0] - shortest < multiple_of
    assert longest <= buckets[-1] < longest + multiple_of
    assert all(boundary % multiple_of == 0 for boundary in buckets)
    for low, high in zip(buckets, buckets[1:], strict=False):
        assert low < high < low * factor + multiple_of * (1 + 1e-9)


@given(st.integers(1, 500), st.integers(0, 5000), st.integers(1, 30), st.integers(1, 64))
def test_geometric_by_num_buckets(shortest, difference, num_buckets, multiple_of):
    longest = shortest + difference
    buckets = LengthBuckets.geometric(shortest, longest, num_buckets=num_buckets, multiple_of=multiple_of)
    assert longest <= buckets[-1] < longest + multiple_of
    assert len(buckets) <= num_buckets
    if multiple_of == 1 and longest >= shortest * 2 ** (num_buckets - 1):
        assert len(buckets) == num_buckets


def test_geometric_examples():
    assert LengthBuckets.geometric(64, 1024).boundaries == (64, 128, 256, 512, 1024)
    assert LengthBuckets.geometric(64, 1024, num_buckets=5).boundaries == (64, 128, 256, 512, 1024)
    ten = LengthBuckets.geometric(8, 64, num_buckets=10)
    assert ten.boundaries == (8, 11, 13, 16, 21, 26, 32, 41, 51, 64)
    assert LengthBuckets.geometric(10, 14, factor=1.1).boundaries == (10, 11, 13, 14)
    assert LengthBuckets.geometric(10, 1000, num_buckets=1, multiple_of=64).boundaries == (1024,)
    for options in ({}, {"num_buckets": 3}):
        assert LengthBuckets.geometric(7, 7, **options).boundaries == (7,)


def test_repr_pickle_hash_and_equality():
    buckets = LengthBuckets([256, 64, 128, 64])
    assert repr(buckets) == "LengthBuckets([64, 128, 256])"
    assert eval(repr(buckets)) == buckets
    assert pickle.loads(pickle.dumps(buckets)) == buckets
    assert hash(buckets) == hash(LengthBuckets(np.array([64, 128, 256])))
    assert buckets != LengthBuckets([64, 128])
    assert (list(buckets), len(buckets), buckets[-1], 128 in buckets) == ([64, 128, 256], 3, 256, True)
    with pytest.raises(AttributeError):
        buckets.boundaries = ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LengthBuckets([]), r"at least one bucket; pass LengthBuckets\(\[64, 128\]\)"),
        (lambda: LengthBuckets(64), r"must be lengths, not 64; pass LengthBuckets\(\[64, 128\]\)"),
        (lambda: LengthBuckets([64, 0]), "a bucket must be at least 1, not 0"),
        (lambda: LengthBuckets([1.5]), "a bucket must be an integer, not 1.5"),
        (
            lambda: LengthBuckets([4]).compute_padded_lengths([1, 9]),
            r"length 9 does not fit any bucket of \[4\]",
        ),
        (lambda: LengthBuckets([4]).padding([5]), "truncate rows to 4, or add a bucket"),
        (lambda: LengthBuckets([4]).compute_padded_lengths([-1]), "lengths must be at least 0, not -1"),
        (lambda: LengthBuckets([4]).compute_padded_lengths([0.5]), "lengths must be integers"),
        (
            lambda: jax.jit(LengthBuckets([4]).compute_padded_lengths)(jnp.arange(3)),
            "choose the bucket on the host",
        ),
        (lambda: LengthBuckets.fit([], 2), "lengths is empty; pass the length of at least one row"),
        (lambda: LengthBuckets.fit([2**31], 2), "lengths holds 2147483648, which does not fit int32"),
        (lambda: LengthBuckets.fit([1], 0), "num_buckets must be at least 1, not 0"),
        (lambda: LengthBuckets.fit([1], 1, multiple_of=0), "multiple_of must be at least 1, not 0"),
        (lambda: LengthBuckets.geometric(0, 4), "shortest must be at least 1, not 0"),
        (lambda: LengthBuckets.geometric(5, 4), "longest must be at least 5, not 4"),
        (lambda: LengthBuckets.geometric(1, 4, factor=1), "factor must be greater than 1"),
        (lambda: LengthBuckets.geometric(1, 4, factor=0.5), "factor must be a number, at least 1.0, not 0.5"),
        (
            lambda: LengthBuckets.geometric(1, 4, factor=2, num_buckets=2),
            "pass factor=2 or num_buckets=2, not both",
        ),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with rejects(message):
        call()
