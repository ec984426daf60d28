"""Tests of the segments and positions of the sides of preference pairs."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.numpy_jax_agreement import assert_agrees, assert_agrees_in_jax
from tests.support.rejections import rejects
from tests.support.variants import mark_slow_except
from tokjax.packing import split_preference_pairs

WIDTH = 20
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=3)


def split_slowly(row):
    """Returns pair, side, segment and position of each token, for the lengths of the sides of pairs."""
    columns = [], [], [], []
    for pair, lengths in enumerate(row, 1):
        for side, length in enumerate(lengths):
            for position in range(length):
                values = pair, side, 2 * pair - 1 + side, position
                for column, value in zip(columns, values, strict=True):
                    column.append(value)
    return [column + [0] * (WIDTH - len(column)) for column in columns]


@given(st.lists(pairs, min_size=2, max_size=2))
def test_sides_are_separate(rows):
    segments, rejected, expected_segments, expected_positions = np.array(
        [split_slowly(row) for row in rows], np.int32
    ).swapaxes(0, 1)
    actual = assert_agrees(split_preference_pairs, segments, rejected)
    assert actual.segment_ids.tolist() == expected_segments.tolist()
    assert actual.positions.tolist() == expected_positions.tolist()
    as_booleans = split_preference_pairs(segments, rejected.astype(bool))
    assert as_booleans.positions.tolist() == expected_positions.tolist()


@pytest.mark.parametrize("shape", mark_slow_except([(0, 3), (3, 0), (5,), (2, 1, 3)], [(0, 3)]))
def test_shapes(shape):
    arrays = np.ones(shape, np.int32), np.zeros(shape, np.int32)
    expected = split_preference_pairs(*arrays)
    assert expected.positions.shape == shape
    assert_agrees_in_jax(split_preference_pairs, expected, arrays, eager=True)


def test_shapes_must_be_equal():
    with rejects(r"rejected has shape \(2,\), and ids \(3,\)"):
        split_preference_pairs(np.ones(3, np.int32), np.ones(2))
