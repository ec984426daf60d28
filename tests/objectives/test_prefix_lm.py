"""Tests of prefix language modelling, against an oracle and expected frequencies."""

import numpy as np
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


def test_all_prefix_lengths_are_equally_likely():
    mask = np.tile([1, 1, 0, 1, 1, 1], (20_000, 1))
    draws = tokjax.objectives.draw_uniform(np.random.default_rng(0), (20_000,))
    counts = np.bincount(tokjax.objectives.prefix_lm(mask, mask, draws).prefix_lengths)
    assert counts[0] == 0
    assert len(counts) == 5
    assert (abs(counts[1:] - 5000) < 4 * 5000**0.5).all()
