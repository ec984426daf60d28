"""Tests of masked diffusion, against an oracle and expected frequencies."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.oracles import objectives as oracle
from tests.support.array_strategies import draw_arrays, draw_integer_arrays
from tests.support.rejections import rejects
from tokjax.objectives import draw_uniform, masked_diffusion

MASK = 50


def collect_rows(batch):
    return [tuple(column[i].tolist() for column in batch) for i in range(len(batch.ids))]


@given(st.data(), st.integers(0, 3), st.integers(0, 6))
def test_rate_per_row(data, rows, length):
    shape = (rows, length)
    ids, mask, loss_mask = (data.draw(draw_integer_arrays(shape, 0, top)) for top in (9, 1, 1))
    draws, rates = data.draw(draw_arrays(shape)), data.draw(draw_arrays((rows,)))
    batch = masked_diffusion(ids, mask, draws, rates, mask_id=MASK, loss_mask=loss_mask)
    assert [column.dtype for column in batch] == [np.int32, np.int32, np.float32]
    assert collect_rows(batch) == [
        oracle.add_mask_noise(ids[i].tolist(), draws[i], [rates[i]] * length, mask[i] & loss_mask[i], MASK)
        for i in range(rows)
    ]


@given(st.data(), st.integers(0, 3), st.integers(0, 6), st.integers(1, 3))
def test_rate_per_document(data, rows, length, max_segments):
    shape = (rows, length)
    ids, segments = (data.draw(draw_integer_arrays(shape, 0, top)) for top in (9, max_segments))
    draws, rates = data.draw(draw_arrays(shape)), data.draw(draw_arrays((rows, max_segments)))
    batch = masked_diffusion(ids, segments > 0, draws, rates, mask_id=MASK, segment_ids=segments)
    assert collect_rows(batch) == [
        oracle.add_mask_noise(
            ids[i].tolist(), draws[i], [rates[i, s - 1] for s in segments[i]], segments[i] > 0, MASK
        )
        for i in range(rows)
    ]


def test_rates_of_zero_and_one():
    ids = np.array([[1, 2, 3], [4, 5, 6]])
    draws = np.float32([[0, 0.5, 1 - 2**-24]] * 2)
    batch = masked_diffusion(ids, np.ones_like(ids), draws, np.float32([0, 1]), mask_id=MASK)
    assert batch.ids.tolist() == [[1, 2, 3], [MASK] * 3]
    assert batch.weights.tolist() == [[0, 0, 0], [1, 1, 1]]
    padding = masked_diffusion(ids, np.zeros_like(ids), draws, np.float32([1, 1]), mask_id=MASK)
    assert padding.ids.tolist() == ids.tolist()
    assert (padding.labels == -100).all()


def test_shares_and_weights_match_expected_frequencies():
    """A row's share of masked tokens is its rate, and its weights add up to its length in expectation."""
    rates = np.linspace(0.05, 1, 20, dtype=np.float32)
    ids = np.ones((20, 100_000), np.int32)
    draws = draw_uniform(np.random.default_rng(0), ids.shape)
    batch = masked_diffusion(ids, ids, draws, rates, mask_id=MASK)
    error = 4 * (rates * (1 - rates) / 100_000) ** 0.5
    assert (abs((batch.ids == MASK).mean(axis=1) - rates) <= error + 1e-7).all()
    assert (abs(batch.weights.mean(axis=1) - 1) <= error / rates + 1e-5).all()


def test_documents_without_a_rate_are_not_masked_in_jax():
    ids = jnp.array([[1, 2, 3]])
    segments = jnp.array([[1, 2, 3]])
    draws, rates = jnp.zeros((1, 3)), jnp.ones((1, 2))
    batch = masked_diffusion(ids, ids, draws, rates, mask_id=MASK, segment_ids=segments)
    assert batch.ids.tolist() == [[MASK, MASK, 3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_id": None}, "mask_id is None"),
        ({"ignore_index": 0.5}, "ignore_index must be an integer, not 0.5"),
        (
            {"rates": np.float64(0.5)},
            r"rates must be float32 of shape \(\), not float64 of shape \(\); .*draw",
        ),
        ({"rates": np.float32([0.5, 0.5])}, r"float32 of shape \(\), not float32 of shape \(2,\)"),
        ({"rates": np.float32(1.5)}, "rates must be from 0 to 1, but they are from 1.5 to 1.5"),
        ({"rates": np.float32(np.nan)}, "rates must be from 0 to 1, but they are from nan"),
        ({"draws": np.float32([0.5])}, r"draws must be float32 of shape \(2,\), not float32 of shape \(1,\)"),
        ({"attention_mask": [1]}, r"attention_mask has shape \(1,\), and ids \(2,\)"),
        ({"loss_mask": [1]}, r"loss_mask has shape \(1,\)"),
        ({"segment_ids": [1, 1, 1]}, r"segment_ids has shape \(3,\)"),
        ({"segment_ids": [1, 1]}, r"rates must be float32 of shape \(1,\), not float32 of shape \(\)"),
        (
            {"segment_ids": [1, 2], "rates": np.float32([0.5])},
            "segment_ids are from 1 to 2, but rates has 1 per row; pass one rate for each document",
        ),
        ({"segment_ids": [-1, 1], "rates": np.float32([0.5])}, "segment_ids are from -1 to 1"),
        ({"segment_ids": [0, 0], "rates": np.zeros(0, np.float32)}, r"shape \(1,\), not .* shape \(0,\)"),
    ],
)
def test_invalid_arguments_are_rejected(options, message):
    arguments = {
        "attention_mask": [1, 1],
        "draws": np.zeros(2, np.float32),
        "rates": np.float32(0.5),
        "mask_id": MASK,
        **options,
    }
    with rejects(message):
        masked_diffusion(np.array([1, 2]), **arguments)
