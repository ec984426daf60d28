"""Tests of segment lengths and boundaries."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.numpy_jax_agreement import assert_agrees
from tests.support.rejections import rejects

segments = st.lists(st.lists(st.integers(1, 4), max_size=4), min_size=2, max_size=2)
WIDTH = 17


def describe_segments(ids):
    functions = tokjax.packing.segment_lengths, tokjax.packing.cu_seqlens, tokjax.packing.cudnn_segments
    return [function(ids, max_segments=5) for function in functions]


@given(segments)
def test_lengths_and_boundaries(lengths):
    """All examples have one shape, so that JAX compiles the functions once."""
    rows = [[i for i, n in enumerate(row, 1) for _ in range(n)] for row in lengths]
    ids = np.array([row + [0] * (WIDTH - len(row)) for row in rows], np.int32)
    actual, bounds, packed = assert_agrees(describe_segments, ids)
    assert actual.tolist() == [row + [0] * (5 - len(row)) for row in lengths]
    assert bounds.tolist() == [np.cumsum([0, *row, *[0] * (5 - len(row))]).tolist() for row in lengths]
    for row, seqlen, offsets in zip(lengths, packed["q_seqlen"], packed["q_offsets"], strict=True):
        assert seqlen.tolist() == row + [-1] * (5 - len(row))
        assert offsets.tolist() == np.cumsum([0, *row])[: len(row)].tolist() + [-1] * (6 - len(row))
    assert packed["kv_seqlen"].tolist() == packed["q_seqlen"].tolist()
    assert packed["kv_offsets"].tolist() == packed["q_offsets"].tolist()


def test_single_rows_and_invalid_segments():
    assert tokjax.packing.cu_seqlens(np.array([1, 2, 2, 0]), 2).tolist() == [0, 1, 3]
    assert tokjax.packing.segment_lengths(np.zeros((0, 4), np.int32), 2).shape == (0, 2)
    with rejects("a row has 3 segments, more than max_segments=2"):
        tokjax.packing.segment_lengths(np.array([[1, 2, 3]]), 2)
    for row in ([0, 0, 1], [1, 0, 2], [2, 1]):
        with rejects(r"ascending order along a row, with padding \(0\) after"):
            tokjax.packing.cu_seqlens(np.array([row]), 2)
    with rejects(r"segment_ids must have shape \(\.\.\., length\)"):
        tokjax.packing.cu_seqlens(np.int32(1), 2)
    traced = jax.jit(partial(tokjax.packing.segment_lengths, max_segments=2))(jnp.array([[1, 2, 3, 3]]))
    assert traced.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    "count", [tokjax.packing.segment_lengths, tokjax.packing.cu_seqlens, tokjax.packing.cudnn_segments]
)
def test_max_segments_must_be_positive(count):
    with rejects("max_segments must be at least 1, not 0"):
        count(np.zeros((1, 3), np.int32), 0)
