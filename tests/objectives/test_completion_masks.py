"""Tests of loss masks for fine-tuning, against an oracle."""

import numpy as np
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import objectives as oracle
from tests.support.array_strategies import draw_integer_arrays
from tests.support.numpy_jax_agreement import assert_agrees
from tests.support.rejections import rejects


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(0, 6))
def test_completion_loss_mask(lengths, width):
    mask = assert_agrees(
        lambda n: tokjax.objectives.completion_loss_mask(n, width), np.array(lengths, np.int32)
    )
    assert mask.tolist() == [[int(i >= n) for i in range(width)] for n in lengths]


templates = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@given(st.data(), st.integers(0, 3), st.integers(0, 12), templates, templates)
def test_assistant_loss_mask(data, batch, length, start, end):
    ids = data.draw(draw_integer_arrays((batch, length), 0, 2))
    actual = tokjax.objectives.assistant_loss_mask(ids, start_ids=start, end_ids=end)
    assert actual.tolist() == [oracle.compute_assistant_mask(row, start, end) for row in ids.tolist()]


def test_invalid_templates_are_rejected():
    for invalid_ids in ([], [[1]]):
        with rejects("start_ids must hold at least one id, shape"):
            tokjax.objectives.assistant_loss_mask(np.array([1]), start_ids=invalid_ids, end_ids=[1])
    with rejects("end_ids must be integers"):
        tokjax.objectives.assistant_loss_mask(np.array([1]), start_ids=[1], end_ids=["a"])
