"""Tests of fill in the middle, against an oracle and expected frequencies."""

from collections import Counter
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import objectives as oracle
from tests.support.array_strategies import draw_arrays, shares
from tests.support.ragged_batches import make_full_ragged
from tests.support.rejections import rejects

PRE, MID, SUF = 101, 102, 103

fim = partial(tokjax.objectives.fill_in_the_middle, prefix_id=PRE, middle_id=MID, suffix_id=SUF)


@given(st.data(), st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4), shares, shares)
def test_fill_in_the_middle(data, documents, rate, spm_rate):
    draws = data.draw(draw_arrays((len(documents), 4)))
    ragged = make_full_ragged(documents)
    expected = [
        oracle.reorder_middle_last(*row, rate, spm_rate, PRE, MID, SUF)
        for row in zip(documents, draws, strict=True)
    ]
    flat = [i for document in expected for i in document]
    size = sum(map(len, documents)) + 3 * len(documents)
    apply = partial(fim, rate=rate, spm_rate=spm_rate)
    exact, padded = apply(ragged, draws), apply(ragged, draws, size=size)
    assert exact.ids.tolist() == padded.ids[: len(flat)].tolist() == flat
    assert padded.ids.shape == (size,)
    assert not padded.ids[len(flat) :].any()
    assert (
        exact.row_splits.tolist()
        == padded.row_splits.tolist()
        == np.cumsum([0, *map(len, expected)]).tolist()
    )


def test_all_columns_move_with_their_tokens():
    documents = [[11, 12, 13, 14], [21, 22]]
    draws = np.float32([[0, 0.9, 0.3, 0.7], [0, 0, 0, 0]])
    result = fim(make_full_ragged(documents), draws)
    assert result.ids.tolist() == [PRE, 11, SUF, 14, MID, 12, 13, 21, 22]
    assert result.word_ids.tolist() == [-1, 0, -1, 3, -1, 1, 2, 4, 5]
    assert result.offsets[:, 0].tolist() == [0, 1, 0, 4, 0, 2, 3, 5, 6]
    assert result.special_tokens_mask.tolist() == [1, 0, 1, 1, 1, 1, 0, 0, 1]
    assert result.token_type_ids.tolist() == [0, 0, 0, 0, 0, 1, 2, 1, 2]
    assert result.sequence_ids.tolist() == [-1, 0, -1, -1, -1, -1, 0, 0, -1]


def test_orders_and_splits_over_many_draws():
    """Three tokens have four split positions, and so ten unordered pairs of these."""
    n, text, rate, spm_rate = 40_000, [1, 2, 3], 0.9, 0.25
    draws = tokjax.objectives.draw_uniform(np.random.default_rng(0), (n, 4))
    result = fim(tokjax.ragged_from_rows([text] * n), draws, rate=rate, spm_rate=spm_rate)
    counts = Counter(tuple(row.tolist()) for row in np.split(result.ids, result.row_splits[1:-1]))
    expected = Counter({tuple(text): 1 - rate})
    for pair in product(range(4), repeat=2):
        low, high = sorted(pair)
        prefix, middle, suffix = text[:low], text[low:high], text[high:]
        expected[PRE, *prefix, SUF, *suffix, MID, *middle] += rate * (1 - spm_rate) / 16
        expected[PRE, SUF, *suffix, MID, *prefix, *middle] += rate * spm_rate / 16
    assert counts.keys() == expected.keys()
    for row, share in expected.items():
        assert abs(counts[row] - n * share) < 4 * (n * share) ** 0.5


def test_size_under_jit():
    ragged = jax.tree.map(jnp.asarray, tokjax.ragged_from_rows([[1, 2, 3, 4], [5, 6, 7]]))
    draws = jnp.zeros((2, 4))
    with rejects("unknown under jax.jit; pass size=NUMBER"):
        jax.jit(fim)(ragged, draws)
    with rejects("size is 12, and the documents have 13 ids after the split"):
        fim(ragged, draws, size=12)
    short = jax.jit(partial(fim, size=9))(ragged, draws)
    assert short.row_splits.tolist() == [0, 7, 9]
    assert short.ids.tolist() == [PRE, SUF, 1, 2, 3, 4, MID, PRE, SUF]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix_id": None}, "prefix_id is None"),
        ({"rate": 2}, "rate must be a number, from 0 to 1, not 2"),
        ({"spm_rate": -1}, "spm_rate must be a number, from 0 to 1, not -1"),
        ({"size": -1}, "size must be at least 0, not -1"),
    ],
)
def test_fill_in_the_middle_rejects_invalid_arguments(options, message):
    with rejects(message):
        fim(tokjax.ragged_from_rows([[1]]), np.zeros((1, 4), np.float32), **options)
