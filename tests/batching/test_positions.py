"""Tests of positions in padded and packed rows."""

import pytest
from hypothesis import given

import tokjax
from tests.support.array_strategies import draw_integer_arrays
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.numpy_jax_agreement import assert_agrees
from tests.support.rejections import rejects


def count_slowly(mask, segments, offset):
    positions, count = [], 0
    for i, present in enumerate(mask):
        count = 0 if i and segments[i] != segments[i - 1] else count
        positions.append(offset + count if present else max(offset - 1, 0))
        count += int(present)
    return positions


def compute_both(mask, segments):
    return tokjax.compute_positions(mask, offset=2), tokjax.compute_positions(mask, segment_ids=segments)


@get_max_examples(30)
@given(draw_integer_arrays((3, 7), 0, 1), draw_integer_arrays((3, 7), 0, 2))
def test_positions_count_the_tokens_before(mask, segments):
    for offset in (0, 2):
        padded = tokjax.compute_positions(mask, offset=offset)
        packed = tokjax.compute_positions(mask, segment_ids=segments, offset=offset)
        for row in range(3):
            assert padded[row].tolist() == count_slowly(mask[row], [0] * 7, offset)
            assert packed[row].tolist() == count_slowly(mask[row], segments[row], offset)
    assert_agrees(compute_both, mask, segments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"segment_ids": [1]}, r"segment_ids has shape \(1,\)"),
        ({"offset": -1}, "offset must be at least 0, not -1"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    with rejects(message):
        tokjax.compute_positions([1, 1], **arguments)
