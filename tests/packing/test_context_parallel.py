"""Tests of the orders for context parallelism, against lists of the tokens of each device."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import batching as oracle
from tests.support.numpy_jax_agreement import assert_agrees_in_jax
from tests.support.rejections import rejects
from tests.support.variants import mark_slow_except
from tokjax.packing import reorder_for_context_parallel, restore_context_parallel_order

strategies = st.sampled_from(["dual_chunk", "striped"])


@given(st.integers(0, 3), st.integers(1, 5), st.integers(0, 4), strategies)
def test_orders(rows, cp_size, size, strategy):
    length = size * cp_size * (2 if strategy == "dual_chunk" else 1)
    ids = np.arange(rows * length, dtype=np.int32).reshape(rows, length)
    actual = reorder_for_context_parallel(ids, cp_size, strategy=strategy)
    assert actual.tolist() == [oracle.reorder_for_devices(row, cp_size, strategy) for row in ids.tolist()]
    assert restore_context_parallel_order(actual, cp_size, strategy=strategy).tolist() == ids.tolist()


def reorder_in_all_ways(ids):
    orders = [
        reorder_for_context_parallel(ids, 3),
        reorder_for_context_parallel(ids, 3, strategy="striped"),
        reorder_for_context_parallel(ids, 1),
    ]
    restored = [
        restore_context_parallel_order(ids, 3),
        restore_context_parallel_order(ids, 3, strategy="striped"),
    ]
    return orders + restored


@pytest.mark.parametrize("shape", mark_slow_except([(2, 12), (6,), (2, 0), (0, 6)], [(2, 12)]))
def test_orders_agree_in_jax(shape):
    ids = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    assert_agrees_in_jax(reorder_in_all_ways, reorder_in_all_ways(ids), (ids,), eager=True)


@given(st.integers(1, 4), strategies, st.integers(0, 2), st.sampled_from(["bool", "uint8", "float32"]))
def test_any_axis_and_dtype(cp_size, strategy, axis, dtype):
    shape = [3, 5, 2]
    shape[axis] = 4 * cp_size
    array = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    moved = np.moveaxis(array, axis, -1)
    for given_axis in (axis, axis - 3):
        options = {"strategy": strategy, "axis": given_axis}
        actual = reorder_for_context_parallel(array, cp_size, **options)
        assert actual.dtype == array.dtype
        expected = reorder_for_context_parallel(moved, cp_size, strategy=strategy)
        assert np.array_equal(np.moveaxis(actual, axis, -1), expected)
        assert np.array_equal(restore_context_parallel_order(actual, cp_size, **options), array)


def test_orders_of_other_libraries():
    """Compares with the example in MaxText's code, and with stripes of one token for four devices."""
    assert reorder_for_context_parallel(np.arange(8), 2).tolist() == [0, 1, 6, 7, 2, 3, 4, 5]
    stripes = reorder_for_context_parallel(np.arange(16), 4, strategy="striped")
    assert stripes.reshape(4, 4)[1].tolist() == [1, 5, 9, 13]


def test_batches_keep_their_types():
    rows = tokjax.ragged_from_rows([[1, 2, 3, 4, 5], [6, 7], [8]])
    blocks = tokjax.pack_blocks(rows, block_size=4, pad_id=0)
    for batch in (blocks, jax.device_put(blocks)):
        reordered = reorder_for_context_parallel(batch, 2)
        assert isinstance(reordered, tokjax.PackedBlocks)
        assert type(reordered.ids) is type(batch.ids)
        assert reordered.loss_mask is None
        assert reordered.ids.tolist() == [[1, 4, 2, 3], [5, 8, 6, 7]]
        assert reordered.segment_ids.tolist() == [[1, 1, 1, 1], [1, 3, 2, 2]]
        restored = restore_context_parallel_order(reordered, 2)
        assert all(map(np.array_equal, jax.tree.leaves(restored), jax.tree.leaves(blocks)))
    nested = reorder_for_context_parallel({"a": [blocks.ids, (blocks.positions,)]}, 2, strategy="striped")
    assert json.dumps(jax.tree.map(np.ndarray.tolist, nested)) == json.dumps(
        {"a": [[[1, 3, 2, 4], [5, 7, 6, 8]], [[[0, 2, 1, 3], [0, 1, 0, 0]]]]}
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: reorder_for_context_parallel(np.zeros((2, 6)), 2),
            r"length 6 \(axis -1 of shape \(2, 6\)\) is not divisible by 4, .*cp_size=2; pad the rows to",
        ),
        (
            lambda: restore_context_parallel_order(jnp.zeros(7), 2, strategy="striped"),
            r"length 7 .* divisible by 2, as strategy='striped' needs",
        ),
        (lambda: reorder_for_context_parallel(np.zeros(4), 2, axis=1), r"shape \(4,\) has no axis 1; pass"),
        (lambda: reorder_for_context_parallel(np.zeros(4), 0), "cp_size must be at least 1, not 0"),
        (lambda: reorder_for_context_parallel(np.zeros(4), 1.0), "cp_size must be an integer, not 1.0"),
        (
            lambda: reorder_for_context_parallel(np.zeros(4), 1, strategy="zigzag"),
            "strategy must be 'dual_chunk' or 'striped', not 'zigzag'",
        ),
        (
            lambda: reorder_for_context_parallel([1, 2], 1),
            r"must be an array, or a dict, .* not 1; use jax\.tree\.map",
        ),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with rejects(message):
        call()
