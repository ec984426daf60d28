"""Tests of prefix language modelling, against an oracle."""

from hypothesis import given, strategies as st

import tokjax
from tests.oracles import objectives as oracle
from tests.support.array_strategies import draw_arrays, draw_integer_arrays


@given(st.data(), st.integers(0, 3), st.integers(0, 6))
def test_prefix_lm(data, batch, length):
    ids, mask = (data.draw(draw_integer_arrays((batch, length), 0, maximum)) for maximum in (9, 1))
    draws = data.draw(draw_arrays((batch,)))
    actual = tokjax.objectives.prefix_lm(ids, mask, draws)
    rows = [oracle.split_row(*row) for row in zip(ids.tolist(), mask.tolist(), draws, strict=True)]
    assert actual.labels.tolist() == [row[0] for row in rows]
    assert actual.prefix_mask.tolist() == [row[1] for row in rows]
    assert actual.prefix_lengths.tolist() == [row[2] for row in rows]
