"""Tests of packing plans and of their parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles.packing import get_pieces
from tests.support.numpy_jax_agreement import assert_agrees

STRATEGIES = ["concat", "first_fit", "best_fit"]

id_rows = st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=7)


def test_seed_shuffles_documents():
    plans = [tokjax.packing.plan_packing([3] * 50, 7, "best_fit", seed=seed) for seed in (0, 0, 1)]
    assert np.array_equal(plans[0].documents, plans[1].documents)
    assert not np.array_equal(plans[0].documents, plans[2].documents)
    assert sorted(plans[0].documents.tolist()) == list(range(50))


@pytest.mark.slow
@given(id_rows, st.integers(1, 6), st.sampled_from(STRATEGIES), st.data())
def test_parts_equal_slices_of_the_full_plan(rows, size, strategy, data):
    ragged = tokjax.ragged_from_rows(rows)
    plan = tokjax.packing.plan_packing(ragged.lengths, size, strategy, overlong="split")
    first = data.draw(st.integers(0, plan.num_blocks - 1))
    stop = data.draw(st.integers(first + 1, plan.num_blocks))
    full = tokjax.packing.apply_packing(plan, ragged, pad_id=99)
    for num_pieces in (None, len(plan.lengths) + 2):
        part = plan.part(first, stop, num_pieces=num_pieces)
        packed = assert_agrees(lambda p, r: tokjax.packing.apply_packing(p, r, pad_id=99), part, ragged)
        for full_column, part_column in zip(full[:5], packed[:5], strict=True):
            assert full_column[first:stop].tolist() == part_column.tolist()
        assert int(packed.total_tokens) == part.total_tokens


def test_parts_of_one_shape_compile_once():
    ragged = jax.tree.map(jnp.asarray, tokjax.ragged_from_rows([[1] * n for n in (3, 1, 4, 1, 5, 2, 6)]))
    plan = tokjax.packing.plan_packing(ragged.lengths, 6, "best_fit", max_segments=3)
    traces = []

    @jax.jit
    def apply(part, ragged):
        traces.append(part)
        return tokjax.packing.apply_packing(part, ragged, pad_id=0)

    for block in range(plan.num_blocks):
        apply(plan.part(block, block + 1, num_pieces=3), ragged)
    assert len(traces) == 1
    assert repr(traces[0]) == "PackingPlan(1 blocks of 6, traced)"


@pytest.mark.parametrize(("first", "stop"), [(0, "1"), (0.0, 1)])
def test_parts_reject_non_integers(first, stop):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="(first|stop) must be an integer"):
        tokjax.packing.plan_packing([1], 1).part(first, stop)


def test_repr_and_empty_plans():
    plan = tokjax.packing.plan_packing([3, 2, 4, 1], 5, "best_fit")
    assert repr(plan) == "PackingPlan(2 blocks of 5, 4 pieces, 10 tokens, 100.00% full)"
    assert tokjax.packing.plan_packing([], 4).total_tokens == 0
    assert tokjax.packing.plan_packing([0, 0], 4, "best_fit").num_blocks == 1


def test_plan_can_have_more_tokens_than_int32_counts():
    plan = tokjax.packing.plan_packing([2**20] * 4096, 2**19, "best_fit", overlong="split")
    assert plan.total_tokens == 2**32
    rows = tokjax.Ragged(np.zeros(0, np.int32), np.arange(4097) * 2**20)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"more than int32 can count; apply plan\.part"
    ):
        tokjax.packing.apply_packing(plan, rows, pad_id=0)


def test_concat_has_no_separator_after_the_last_document():
    plan = tokjax.packing.plan_packing([4, 3], 8, "concat", separators=True)
    assert get_pieces(plan) == [[(0, 0, 5), (1, 0, 3)]]
    assert len(get_pieces(tokjax.packing.plan_packing([4, 3], 8, "best_fit", separators=True))) == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pieces_of_a_block_are_in_the_order_of_documents(strategy):
    lengths = np.random.default_rng(0).integers(1, 5, 5000)
    blocks = get_pieces(tokjax.packing.plan_packing(lengths, 300, strategy))
    assert all(block == sorted(block) for block in blocks)
    assert [block[0] for block in blocks] == sorted(block[0] for block in blocks)


def test_block_size_must_be_positive():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="block_size must be at least 1, not 0"):
        tokjax.packing.plan_packing([1], 0)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([3, 9], {"strategy": "best_fit"}, "document 1 has 9 tokens, more than a block of 8 holds"),
        (
            [8],
            {"strategy": "first_fit", "separators": True},
            "document 0 has 8 tokens and its separator, more",
        ),
        (
            [1, 1, 1],
            {"max_segments": 2},
            "block 0 would hold 3 segments, more than max_segments=2; strategy=",
        ),
        ([1], {"strategy": "worst_fit"}, "strategy must be 'concat', 'first_fit' or 'best_fit', not 'w"),
        ([1], {"overlong": "drop"}, "overlong must be 'error', 'split' or 'truncate', not 'drop'"),
        ([1], {"max_segments": 0}, "max_segments must be at least 1"),
        ([1], {"seed": 0.5}, "seed must be an integer"),
        ([[1]], {}, r"lengths must be non-negative integers, shape \(documents,\)"),
        ([1, -1], {}, "non-negative integers"),
    ],
)
def test_plans_reject_invalid_arguments(lengths, options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.packing.plan_packing(lengths, 8, **options)
