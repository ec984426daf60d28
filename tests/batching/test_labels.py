"""Tests of `causal_lm_labels`, and of 1-based ids."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import batching as oracle
from tests.support.numpy_jax_agreement import assert_agrees


def draw_rectangles(batch, length, elements):
    return st.lists(st.lists(elements, min_size=length, max_size=length), min_size=batch, max_size=batch)


@given(st.data(), st.integers(0, 3), st.integers(0, 7))
def test_causal_lm_labels(data, batch, length):
    tokens, mask, segments, loss_mask = (
        data.draw(draw_rectangles(batch, length, st.integers(0, top))) for top in (9, 1, 2, 1)
    )
    arrays = [np.array(x, np.int32).reshape(batch, length) for x in (tokens, mask, segments, loss_mask)]
    labels = assert_agrees(tokjax.causal_lm_labels, *arrays[:2])
    assert labels.tolist() == oracle.shift_labels(tokens, mask)
    masked_labels = assert_agrees(
        lambda i, m, s, c: tokjax.causal_lm_labels(i, m, segment_ids=s, loss_mask=c, ignore_index=-1), *arrays
    )
    assert masked_labels.tolist() == oracle.shift_labels(tokens, mask, -1, segments, loss_mask)


def test_labels_use_the_mask_and_not_the_pad_id():
    eos = 5  # also the pad id
    labels = tokjax.causal_lm_labels(np.array([[1, 2, eos, eos, eos]]), np.array([[1, 1, 1, 0, 0]]))
    assert labels.tolist() == [[2, eos, -100, -100, -100]]
    gaps = tokjax.causal_lm_labels(np.array([1, 2, 3, 4]), np.array([1, 0, 0, 1]))
    assert gaps.tolist() == [4, -100, -100, -100]
    single = tokjax.causal_lm_labels(np.array([[7]]), np.array([[1]]))
    assert single.tolist() == [[-100]]
    from_disk = tokjax.causal_lm_labels(np.array([[1, 65535]], np.uint16), np.array([[True, True]]))
    assert from_disk.tolist() == [[65535, -100]]


def test_labels_reject_mismatched_shapes():
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"attention_mask has shape \(3,\), and ids \(2,\)"
    ):
        tokjax.causal_lm_labels(np.zeros(2, int), np.zeros(3, int))
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="segment_ids"):
        tokjax.causal_lm_labels(np.zeros(2, int), np.zeros(2, int), segment_ids=np.zeros(1, int))


def test_one_based_ids_that_overflow_are_rejected():
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="contains 2147483647, and 2147483648 does not fit"
    ):
        tokjax.to_one_based(np.array([0, 2**31 - 1]))
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="index is 1099511627776, which does not fit"
    ):
        tokjax.to_one_based(np.array([0]), ignore_index=2**40)


@given(st.lists(st.integers(-1, 5), max_size=5))
def test_one_based_ids(row):
    array = np.array(row, np.int32)
    one_based = assert_agrees(partial(tokjax.to_one_based, ignore_index=-1), array)
    assert one_based.tolist() == [i if i == -1 else i + 1 for i in row]
    assert assert_agrees(partial(tokjax.to_zero_based, ignore_index=-1), one_based).tolist() == row
