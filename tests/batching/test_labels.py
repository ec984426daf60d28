"""Tests of `causal_lm_labels`, and of 1-based ids."""

from functools import partial

import jax
import numpy as np
import optax
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import batching as oracle
from tests.support.array_strategies import draw_integer_arrays
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.numpy_jax_agreement import assert_agrees, assert_agrees_in_jax
from tests.support.rejections import rejects


def draw_rectangles(batch, length, elements):
    return st.lists(st.lists(elements, min_size=length, max_size=length), min_size=batch, max_size=batch)


@given(st.data(), st.integers(0, 3), st.integers(0, 7))
def test_causal_lm_labels(data, batch, length):
    tokens, mask, segments, loss_mask = (
        data.draw(draw_rectangles(batch, length, st.integers(0, top))) for top in (9, 1, 2, 1)
    )
    arrays = [np.array(x, np.int32).reshape(batch, length) for x in (tokens, mask, segments, loss_mask)]
    labels = tokjax.causal_lm_labels(*arrays[:2])
    assert labels.tolist() == oracle.shift_labels(tokens, mask)
    columns = {"segment_ids": arrays[2], "loss_mask": arrays[3]}
    masked_labels = tokjax.causal_lm_labels(*arrays[:2], ignore_index=-1, **columns)
    assert masked_labels.tolist() == oracle.shift_labels(tokens, mask, -1, segments, loss_mask)


@given(st.data(), st.integers(0, 3), st.integers(0, 7), st.integers(1, 4))
def test_multi_token_labels(data, batch, length, count):
    columns = [data.draw(draw_rectangles(batch, length, st.integers(0, top))) for top in (9, 1, 2, 1)]
    tokens, mask, segments, loss_mask = columns
    arrays = [np.array(x, np.int32).reshape(batch, length) for x in columns]
    labels = tokjax.multi_token_labels(*arrays[:2], count)
    assert labels.shape == (batch, count, length)
    rows = zip(tokens, mask, strict=True)
    assert labels.tolist() == [oracle.look_ahead(*row, count) for row in rows]
    assert (labels[:, 0] == tokjax.causal_lm_labels(*arrays[:2])).all()
    columns = {"segment_ids": arrays[2], "loss_mask": arrays[3]}
    restricted = tokjax.multi_token_labels(*arrays[:2], count, ignore_index=-1, **columns)
    rows = zip(tokens, mask, segments, loss_mask, strict=True)
    assert restricted.tolist() == [oracle.look_ahead(i, m, count, -1, s, c) for i, m, s, c in rows]


def make_all_labels(ids, mask, segments, loss_mask):
    """Returns labels of contiguous rows (which take another path), and of rows with gaps."""
    columns = {"segment_ids": segments, "loss_mask": loss_mask}
    return [
        *(tokjax.multi_token_labels(ids, m, 3, **columns) for m in (segments > 0, mask)),
        tokjax.causal_lm_labels(ids, mask),
        tokjax.causal_lm_labels(ids, mask, ignore_index=-1, **columns),
        tokjax.quick.to_zero_based(tokjax.quick.to_one_based(ids, ignore_index=-1), ignore_index=-1),
    ]


@get_max_examples(20)
@given(*(draw_integer_arrays((3, 6), 0, top) for top in (9, 1, 2, 1)))
def test_labels_agree_in_jax(ids, mask, segments, loss_mask):
    segments = -np.sort(-segments)
    arrays = (ids, mask, segments, loss_mask)
    all_labels = make_all_labels(*arrays)
    assert_agrees_in_jax(make_all_labels, all_labels, arrays)
    for labels, valid in zip(all_labels[:2], (segments > 0, mask), strict=True):
        rows = zip(*(a.tolist() for a in (ids, valid, segments, loss_mask)), strict=True)
        assert labels.tolist() == [oracle.look_ahead(i, m, 3, -100, s, c) for i, m, s, c in rows]


def test_multi_token_labels_of_packed_rows():
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows([[1, 2, 3], [4, 5]]), block_size=6, pad_id=0)
    labels = tokjax.multi_token_labels(blocks.ids, blocks.attention_mask, 2, segment_ids=blocks.segment_ids)
    assert labels.tolist() == [[[2, 3, -100, 5, -100, -100], [3, -100, -100, -100, -100, -100]]]
    with rejects("num_future_tokens must be at least 1, not 0"):
        tokjax.multi_token_labels(np.array([1]), np.array([1]), 0)
    with rejects("segment_ids has shape"):
        tokjax.multi_token_labels(np.zeros(2, int), np.zeros(2, int), 2, segment_ids=np.zeros(1, int))


def test_labels_reject_mismatched_shapes():
    with rejects(r"attention_mask has shape \(3,\), and ids \(2,\)"):
        tokjax.causal_lm_labels(np.zeros(2, int), np.zeros(3, int))
    with rejects("segment_ids"):
        tokjax.causal_lm_labels(np.zeros(2, int), np.zeros(2, int), segment_ids=np.zeros(1, int))


def test_one_based_ids_that_overflow_are_rejected():
    with rejects("contains 2147483647, and 2147483648 does not fit"):
        tokjax.quick.to_one_based(np.array([0, 2**31 - 1]))
    with rejects("index is 1099511627776, which does not fit"):
        tokjax.quick.to_one_based(np.array([0]), ignore_index=2**40)


@given(st.lists(st.integers(-1, 5), max_size=5))
def test_one_based_ids(row):
    array = np.array(row, np.int32)
    one_based = tokjax.quick.to_one_based(array, ignore_index=-1)
    assert one_based.tolist() == [i if i == -1 else i + 1 for i in row]
    assert tokjax.quick.to_zero_based(one_based, ignore_index=-1).tolist() == row


get_weights = partial(tokjax.label_weights, ignore_index=-1)
LOGITS = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(axis=-1, keepdims=True))


@jax.jit
def compute_loss(labels, weights):
    return (optax.softmax_cross_entropy_with_integer_labels(LOGITS, labels) * weights).sum()


@get_max_examples(20)
@given(draw_integer_arrays((2, 5), -1, 6))
def test_label_weights(labels):
    """The loss of safe labels and weights is that of the labels that are ids, in NumPy and in JAX."""
    safe, weights = assert_agrees(get_weights, labels, dtypes=(np.int32, np.float32))
    assert weights.dtype == np.float32
    assert weights.tolist() == (labels >= 0).astype(int).tolist()
    assert safe.tolist() == np.maximum(labels, 0).tolist()
    expected = -sum(
        LOG_PROBS[row, i, labels[row, i]] for row, i in zip(*np.nonzero(labels >= 0), strict=True)
    )
    np.testing.assert_allclose(compute_loss(safe, weights), expected, atol=1e-5)


def test_labels_that_are_no_ids():
    with rejects("labels contains -1, which is neither an id nor ignore_index=-100"):
        tokjax.label_weights(np.array([2, -100, -1]))
    assert tokjax.label_weights(jax.numpy.array([2, -100, -1]))[1].tolist() == [1, 0, 0]
    for ids in (np.array([True]), jax.numpy.array([True])):
        for get in (tokjax.label_weights, lambda ids: tokjax.causal_lm_labels(ids, ids)):
            with rejects("must be integers, not bool"):
                get(ids)
    with rejects("row 0 must be integers, not bool"):
        tokjax.ragged_from_rows([[True]])
