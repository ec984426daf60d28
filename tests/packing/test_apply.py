"""Tests of `apply_packing` against a loop, and of invalid plans."""

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import batching as oracle
from tests.support.numpy_jax_agreement import assert_agrees, assert_same

ids = st.integers(0, 9)


id_rows = st.lists(st.lists(ids, max_size=7), max_size=6)


@given(id_rows, st.integers(1, 6), st.none() | st.just(50))
def test_apply_packing(rows, block_size, eos_id):
    ragged = tokjax.ragged_from_rows(rows)
    plan = tokjax.packing.plan_packing([len(row) for row in rows], block_size, separators=eos_id is not None)
    packed = assert_agrees(lambda r: tokjax.packing.apply_packing(plan, r, pad_id=99, eos_id=eos_id), ragged)
    columns, total = oracle.pack_rows(rows, block_size, 99, eos_id)
    assert [c.tolist() for c in packed[:-1]] == columns
    assert packed.total_tokens == total == plan.total_tokens
    assert plan.num_blocks == len(packed.ids) == max(1, -(-total // block_size))
    assert plan.fill_rate == total / (plan.num_blocks * block_size)
    assert_same(
        packed, tokjax.pack_blocks(ragged, block_size=block_size, pad_id=99, eos_id=eos_id), np.ndarray
    )


def test_a_plan_may_be_a_traced_argument():
    ragged = tokjax.ragged_from_rows([[1, 2], [3]])
    plan = tokjax.packing.plan_packing(ragged.lengths, 2, separators=True)
    apply = partial(tokjax.packing.apply_packing, pad_id=0, eos_id=9)
    assert assert_agrees(apply, plan, ragged).ids.tolist() == [[1, 2], [9, 3]]


def test_packing_rejects_invalid_arguments():
    ragged = tokjax.ragged_from_rows([[1, 2], [3]])
    plan = tokjax.packing.plan_packing(ragged.lengths, 2, separators=True)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="pass eos_id"):
        tokjax.packing.apply_packing(plan, ragged, pad_id=0)
    for rows in ([[1]], [[1, 2], [3, 4]]):
        other = tokjax.ragged_from_rows(rows)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="made for rows of 3 tokens in all"):
            jax.jit(lambda r: tokjax.packing.apply_packing(plan, r, pad_id=0, eos_id=1))(other)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="more than int32 can count"):
        tokjax.packing.plan_packing([2**62] * 4, 4)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="block_size must be at least 1, not 0"):
        tokjax.packing.plan_packing([1], 0)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="integers from 0"):
        tokjax.packing.plan_packing([1, -1], 4)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="more than int32 can count"):
        tokjax.packing.plan_packing([0], 2**31)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="strategy must be"):
        tokjax.packing.plan_packing([1], 4, "worst_fit")
