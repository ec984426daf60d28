"""Tests of batching functions with all integer dtypes, traced scalars and empty arrays."""

import importlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tokjax
from tests.support.numpy_jax_agreement import assert_agrees_in_jax
from tests.support.ragged_batches import make_full_ragged

# Older versions of JAX have `enable_x64` in `jax.experimental`.
X64_MODULE = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "int32", "uint32", "int64"]


FAST_CASES = {("uint32", True)}


@pytest.mark.parametrize(
    ("dtype", "x64"),
    [
        pytest.param(dtype, x64, marks=[] if (dtype, x64) in FAST_CASES else [pytest.mark.slow])
        for x64 in (False, True)
        for dtype in DTYPES
    ],
)
def test_arrays_of_any_integer_dtype(dtype, x64):
    """Runs under strict dtype promotion, with and without x64."""
    ids, mask = np.array([[1, 0, 1], [0, 1, 1]], dtype), np.array([[1, 1, 0], [1, 0, 1]], dtype)
    splits = np.array([0, 1, 1], dtype)
    functions = [
        (lambda i, m: tokjax.causal_lm_labels(i, m, segment_ids=m, loss_mask=m), (ids, mask)),
        (lambda n: tokjax.create_attention_mask(n, 3), (splits,)),
        (lambda i, n: tokjax.batch_pad_sequences(i, n, 2, 9), (ids, splits[1:])),
        (lambda i, s: tokjax.pad_ragged(tokjax.Ragged(i, s), length=2, pad_id=9), (ids[0, :1], splits)),
        (lambda i: tokjax.find_document_boundaries(i, 260, max_documents=4), (ids[0],)),
        (tokjax.to_one_based, (ids,)),
    ]
    with X64_MODULE.enable_x64(x64):
        for function, arrays in functions:
            assert_agrees_in_jax(function, function(*arrays), arrays)


def test_overflow_is_rejected():
    big = np.array([2**31 + 7, 1])
    for call in (
        lambda: tokjax.causal_lm_labels(big, np.ones(2, int)),
        lambda: tokjax.pad_sequence(big, 2, 0),
        lambda: tokjax.to_one_based(big),
        lambda: tokjax.find_document_boundaries(big, 0),
        lambda: tokjax.pad_ragged(
            tokjax.make_ragged([1], [0, 1], offsets=[(2**31, 2**31 + 1)]), length=1, pad_id=0
        ),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="does not fit int32"):
            call()
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="integers, not float32"):
        tokjax.pad_sequence(jnp.array([1.5]), 2, 0)


def test_fill_values_may_be_traced():
    pad = jax.jit(tokjax.pad_sequence, static_argnums=1)
    assert pad(jnp.array([1, 2]), 4, 7).tolist() == [1, 2, 7, 7]
    label = jax.jit(lambda ids, ignore: tokjax.causal_lm_labels(ids, ids, ignore_index=ignore))
    assert label(jnp.array([1, 2]), -5).tolist() == [2, -5]


def test_pad_id_and_ignore_index_may_be_traced():
    ragged = tokjax.ragged_from_rows([[5, 6], [7]])
    padded_ids = jax.jit(lambda pad: tokjax.pad_ragged(ragged, length=2, pad_id=pad).ids)(3)
    assert padded_ids.tolist() == [[5, 6], [7, 3]]
    label = jax.jit(lambda i: tokjax.causal_lm_labels(np.array([[5, 6]]), np.ones((1, 2)), ignore_index=i))
    assert label(-7).tolist() == [[6, -7]]
    plan = tokjax.packing.plan_packing(ragged.lengths, 4)
    assert jax.jit(lambda p: tokjax.packing.apply_packing(plan, ragged, pad_id=p).ids)(3).tolist() == [
        [5, 6, 7, 3]
    ]


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
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        call()


@pytest.mark.parametrize(
    "rows",
    [[], *(pytest.param(x, marks=pytest.mark.slow) for x in ([[]], [[7]], [[], []], [[1, 2, 3], [], [4]]))],
)
def test_empty_arrays_in_jax(rows):
    """Random examples may miss shapes with a zero."""
    ragged = make_full_ragged(rows)
    plan = tokjax.packing.plan_packing(ragged.lengths, 2)
    for function in (
        partial(tokjax.pad_ragged, length=2, pad_id=99),
        partial(tokjax.pad_ragged, length=0, pad_id=99, pad_side="left", truncation="left"),
        partial(tokjax.packing.apply_packing, plan, pad_id=99),
        lambda r: tokjax.causal_lm_labels(r.ids, r.ids),
        lambda r: tokjax.find_document_boundaries(r.ids, 7, max_documents=3),
        lambda r: tokjax.pad_sequence(r.ids, 2, 0),
    ):
        assert_agrees_in_jax(function, function(ragged), (ragged,))
