"""Tests of batching functions with all integer dtypes, traced scalars and empty arrays."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tokjax
from tests.support.numpy_jax_agreement import assert_agrees_in_jax
from tests.support.ragged_batches import make_full_ragged
from tests.support.rejections import rejects
from tests.support.variants import mark_slow_except

# Older versions of JAX have `enable_x64` in `jax.experimental`.
X64_MODULE = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "int32", "uint32", "int64"]


def apply_to_any_integers(ids, mask, splits):
    return (
        tokjax.causal_lm_labels(ids, mask, segment_ids=mask, loss_mask=mask),
        tokjax.masks.create_attention_mask(splits, 3),
        tokjax.quick.batch_pad_sequences(ids, splits[1:], 2, 9),
        tokjax.pad_ragged(tokjax.Ragged(ids[0, :1], splits), length=2, pad_id=9),
        tokjax.masks.find_document_boundaries(ids[0], 260, max_documents=4),
        tokjax.quick.to_one_based(ids),
    )


@pytest.mark.parametrize("x64", mark_slow_except([False, True], [True]))
@pytest.mark.parametrize("dtype", mark_slow_except(DTYPES, ["uint32"]))
def test_arrays_of_any_integer_dtype(dtype, x64):
    """Runs under strict dtype promotion, with and without x64."""
    ids, mask = np.array([[1, 0, 1], [0, 1, 1]], dtype), np.array([[1, 1, 0], [1, 0, 1]], dtype)
    arrays = ids, mask, np.array([0, 1, 1], dtype)
    with X64_MODULE.enable_x64(x64):
        assert_agrees_in_jax(apply_to_any_integers, apply_to_any_integers(*arrays), arrays)


def test_overflow_is_rejected():
    big = np.array([2**31 + 7, 1])
    for call in (
        lambda: tokjax.causal_lm_labels(big, np.ones(2, int)),
        lambda: tokjax.quick.pad_sequence(big, 2, 0),
        lambda: tokjax.quick.to_one_based(big),
        lambda: tokjax.masks.find_document_boundaries(big, 0),
        lambda: tokjax.pad_ragged(
            tokjax.make_ragged([1], [0, 1], offsets=[(2**31, 2**31 + 1)]), length=1, pad_id=0
        ),
    ):
        with rejects("does not fit int32"):
            call()
    with rejects("integers, not float32"):
        tokjax.quick.pad_sequence(jnp.array([1.5]), 2, 0)


def test_pad_id_and_ignore_index_may_be_traced():
    ragged, ids = tokjax.ragged_from_rows([[5, 6], [7]]), np.array([[5, 6]])
    plan = tokjax.packing.plan_packing(ragged.lengths, 4)

    @jax.jit
    def apply(pad, ignore, ids):
        return (
            tokjax.pad_ragged(ragged, length=2, pad_id=pad).ids,
            tokjax.packing.apply_packing(plan, ragged, pad_id=pad).ids,
            tokjax.quick.pad_sequence(ids[0], 4, pad),
            tokjax.causal_lm_labels(ids, ids, ignore_index=ignore),
            tokjax.causal_lm_labels(np.array([[5, 6]]), np.ones((1, 2)), ignore_index=ignore),
        )

    results = [[[5, 6], [7, 3]], [[5, 6, 7, 3]], [5, 6, 3, 3], [[6, -7]], [[6, -7]]]
    assert [result.tolist() for result in apply(3, -7, ids)] == results


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: tokjax.causal_lm_labels(np.int32(1), np.int32(1)),
            r"ids must have shape \(\.\.\., length\)",
        ),
        (
            lambda: tokjax.causal_lm_labels([[1, 2]], [[1], [1, 2]]),
            "attention_mask must be an array, not",
        ),
        (lambda: tokjax.pad_ragged([[1]], length=2, pad_id=0), r"pass tokjax\.ragged_from_rows\(rows\)"),
    ],
)
def test_non_batches_are_rejected(call, message):
    with rejects(message):
        call()


@pytest.mark.parametrize("rows", mark_slow_except([[], [[]], [[7]], [[], []], [[1, 2, 3], [], [4]]], [[]]))
def test_empty_arrays_in_jax(rows):
    """Random examples may miss shapes with a zero."""
    ragged = make_full_ragged(rows)
    plan = tokjax.packing.plan_packing(ragged.lengths, 2)

    def apply(ragged):
        return (
            tokjax.pad_ragged(ragged, length=2, pad_id=99),
            tokjax.pad_ragged(ragged, length=0, pad_id=99, pad_side="left", truncation="left"),
            tokjax.packing.apply_packing(plan, ragged, pad_id=99),
            tokjax.causal_lm_labels(ragged.ids, ragged.ids),
            tokjax.masks.find_document_boundaries(ragged.ids, 7, max_documents=3),
            tokjax.quick.pad_sequence(ragged.ids, 2, 0),
        )

    assert_agrees_in_jax(apply, apply(ragged), (ragged,))
