"""Tests of attention masks: against loops, and in attention of packed and padded rows."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import batching as oracle
from tests.support import tiny_transformer
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.numpy_jax_agreement import assert_agrees
from tests.support.rejections import rejects
from tests.support.variants import mark_slow_except

LENGTH = 6
mask_rows = st.lists(
    st.lists(st.integers(0, 1), min_size=LENGTH, max_size=LENGTH), min_size=1, max_size=3
).map(lambda rows: np.array(rows, np.int32))


def to_integers(function):
    """Returns the function with its mask as `int32`, which `assert_agrees` compares."""
    return lambda *arrays: function(*arrays).astype(np.int32)


def compute_mask_in_loop(length, attends):
    return [[int(attends(query, key)) for key in range(length)] for query in range(length)]


@given(
    mask_rows,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 1, 2, 5]),
)
def test_make_attention_mask(drawn, has_padding, has_segments, has_prefix, causal, window):
    segment_ids = np.cumsum(drawn, axis=1, dtype=np.int32)
    in_prefix = drawn[:, ::-1].copy()
    all_arrays = {
        "attention_mask": drawn if has_padding else None,
        "segment_ids": segment_ids if has_segments else None,
        "in_prefix": in_prefix if has_prefix else None,
    }
    named = {name: array for name, array in all_arrays.items() if array is not None}
    if not named or (window and not causal):
        return

    def make(*arrays):
        columns = dict(zip(named, arrays, strict=True))
        return tokjax.masks.make_attention_mask(**columns, causal=causal, window=window)

    mask = assert_agrees(to_integers(make), *named.values())
    for row in range(len(drawn)):

        def attends(query, key, row=row):
            is_causal = key <= query and (window is None or query - key < window)
            ok = not causal or is_causal or (has_prefix and in_prefix[row, key])
            ok = ok and (not has_segments or segment_ids[row, query] == segment_ids[row, key])
            return bool(ok and (not has_padding or drawn[row, key]))

        expected = compute_mask_in_loop(LENGTH, attends)
        for query, keys in enumerate(expected):
            if has_padding and not drawn[row, query]:
                keys[query] = 1
        assert all(map(any, expected))
        assert mask[row, 0].tolist() == expected


def test_masks_of_one_kind():
    assert tokjax.masks.causal_mask(3).astype(int).tolist() == [compute_mask_in_loop(3, lambda q, k: k <= q)]
    assert tokjax.masks.sliding_window_mask(5, 2).astype(int).tolist() == [
        compute_mask_in_loop(5, lambda q, k: q - 2 < k <= q)
    ]
    ids = np.array([1, 1, 2, 0], np.int32)
    mask = assert_agrees(to_integers(tokjax.masks.segment_mask), ids, ids[::-1].copy())
    assert mask.tolist() == [[[int(q == k) for k in ids[::-1]] for q in ids]]
    assert tokjax.masks.padding_mask(np.array([[1, 0]])).tolist() == [[[[True, False]]]]
    prefix = tokjax.masks.prefix_mask(tokjax.masks.create_attention_mask(np.array([2]), 3))
    assert prefix.astype(int).tolist() == [[compute_mask_in_loop(3, lambda q, k: k < 2 or k <= q)]]


def test_every_query_attends_to_a_key():
    left_padded = np.array([[0, 0, 1, 1]])
    mask = tokjax.masks.make_attention_mask(attention_mask=left_padded)
    assert mask.any(axis=-1).all()
    assert mask[0, 0].astype(int).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    empty = np.zeros((2, 1, 1, 3), bool)
    assert tokjax.masks.unmask_empty_rows(empty).astype(int).tolist() == [[np.eye(3).tolist()]] * 2
    with rejects(r"mask must have shape \(..., length, length\)"):
        tokjax.masks.unmask_empty_rows(np.zeros((2, 3), bool))


@pytest.mark.parametrize("dtype", mark_slow_except(["float16", "bfloat16", "float32"], ["bfloat16"]))
def test_additive_masks_give_no_nan(dtype):
    dtype = jnp.dtype(dtype)
    mask = np.array([[True, False], [False, False]])
    eager = tokjax.masks.additive_mask(mask, dtype)
    traced = jax.jit(partial(tokjax.masks.additive_mask, dtype=dtype))(jnp.asarray(mask))
    assert eager.dtype == traced.dtype == dtype
    assert np.asarray(traced).tolist() == eager.tolist()
    assert eager[0, 0] == 0
    assert float(eager[0, 1]) == float(jnp.finfo(dtype).min) / 2
    added = jax.jit(lambda mask: mask + jnp.asarray(-100, dtype))(traced)
    for array in (added, jax.nn.softmax(added, axis=-1)):
        assert np.isfinite(np.asarray(array, np.float32)).all()


@pytest.mark.parametrize("dtype", [np.int32, "foo"])
def test_non_float_dtypes_are_rejected(dtype):
    with rejects(f"dtype must be one of float16, .*, not {dtype!r}"):
        tokjax.masks.additive_mask(np.ones(2, bool), dtype)


def test_float64_becomes_float32_in_jax():
    mask = np.array([True, False])
    assert tokjax.masks.additive_mask(mask, np.float64).tolist() == [0, np.finfo(np.float64).min / 2]
    on_device = tokjax.masks.additive_mask(jnp.asarray(mask), np.float64)
    assert on_device.tolist() == tokjax.masks.additive_mask(mask).tolist()


def test_bfloat16_by_name_without_jax():
    code = (
        "import sys, tokjax; mask = tokjax.masks.additive_mask([True], 'bfloat16'); "
        "print(mask.dtype, 'jax' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["bfloat16", "False"]


def test_jitted_mask_has_no_constant_of_all_queries_and_keys():
    mask = jax.jit(lambda s: tokjax.masks.make_attention_mask(segment_ids=s, in_prefix=s == 1, window=7))
    assert len(mask.lower(jnp.ones((1, 1024), jnp.int32)).as_text()) < 20_000


def test_invalid_masks_are_rejected():
    with rejects("pass attention_mask, segment_ids or in_prefix"):
        tokjax.masks.make_attention_mask()
    with rejects(r"have the same shape .*, and these have .*\(2, 3\), .*\(2, 4\)"):
        tokjax.masks.make_attention_mask(
            attention_mask=np.ones((2, 3)), segment_ids=np.ones((2, 4), np.int32)
        )
    for array in (np.int32(1), [[1], [1, 2]]):
        for mask in (tokjax.masks.padding_mask, tokjax.masks.prefix_mask, tokjax.masks.segment_mask):
            with rejects(r"have shape \(\.\.\., length\)|unequal"):
                mask(array)
    with rejects(r"have shapes \(2, 3\) and \(4, 3\), which must be equal"):
        tokjax.masks.segment_mask(np.ones((2, 3), np.int32), np.ones((4, 3), np.int32))
    with rejects("pass causal=True"):
        tokjax.masks.make_attention_mask(attention_mask=np.ones((1, 2)), causal=False, window=2)
    with rejects("window must be at least 1"):
        tokjax.masks.sliding_window_mask(3, 0)


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(0)
    return [rng.integers(1, 20, n).astype(np.int32).tolist() for n in (5, 9, 3, 12, 7, 4, 2, 8)]


@pytest.mark.parametrize("options", mark_slow_except([{}, {"causal": False}, {"window": 3}], [{}]), ids=str)
def test_packing_preserves_outputs_and_gradients(documents, options):
    params = tiny_transformer.init_parameters(20, 16)
    ragged = tokjax.ragged_from_rows(documents)
    packed = tokjax.pack_blocks(ragged, block_size=16, pad_id=0, strategy="best_fit")
    num_empty = len(documents) - len(packed.ids)  # equal shapes compile once
    blocks = jax.tree.map(lambda column: jnp.asarray(np.pad(column, ((0, num_empty), (0, 0)))), packed)
    padded = jax.tree.map(jnp.asarray, tokjax.collate_padded_batch(ragged, pad_id=0, length=16))

    @jax.jit
    @partial(jax.grad, has_aux=True)
    def compute_gradient(params, batch):
        return tiny_transformer.total_loss(params, *batch)[0], tiny_transformer.logits(params, *batch[:3])

    packed_batch = tiny_transformer.packed_batch(blocks, **options)
    packed_gradients, packed_logits = compute_gradient(params, packed_batch)
    padded_gradients, padded_logits = compute_gradient(
        params, tiny_transformer.padded_batch(padded, **options)
    )
    packed_logits, padded_logits = np.asarray(packed_logits), np.asarray(padded_logits)
    for row, document in enumerate(documents):
        row_mask = np.asarray((blocks.document_ids == row) & (blocks.attention_mask == 1))
        np.testing.assert_allclose(packed_logits[row_mask], padded_logits[row, : len(document)], atol=2e-5)
    gradients = map(jax.tree.leaves, (packed_gradients, padded_gradients))
    for packed_gradient, padded_gradient in zip(*gradients, strict=True):
        np.testing.assert_allclose(packed_gradient, padded_gradient, atol=5e-4, rtol=1e-4)
    # Without segments the outputs change: the comparison above can fail.
    ids, positions, _, labels = packed_batch
    leaking = tokjax.masks.make_attention_mask(attention_mask=blocks.attention_mask)
    _, leaking_logits = compute_gradient(params, (ids, positions, leaking, labels))
    assert np.abs(leaking_logits - packed_logits).max() > 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:jax.experimental.pallas.ops.gpu.attention is deprecated")
def test_segment_ids_in_a_pallas_kernel(documents):
    """Compares a Pallas kernel that takes segment ids with attention that takes the mask."""
    mha = pytest.importorskip("jax.experimental.pallas.ops.gpu.attention").mha
    rows = tokjax.ragged_from_rows([document * 3 for document in documents])
    blocks = tokjax.pack_blocks(rows, block_size=64, pad_id=0, strategy="best_fit")
    q, k, v = jax.random.normal(jax.random.key(0), (3, *blocks.ids.shape, 2, 16))
    segments = jnp.asarray(blocks.segment_ids)
    by_kernel = mha(q, k, v, segments, sm_scale=0.25, causal=True, interpret=True)
    mask = jnp.asarray(tokjax.masks.make_attention_mask(segment_ids=blocks.segment_ids))
    by_mask = jax.nn.dot_product_attention(q, k, v, mask=mask, scale=0.25)
    present = blocks.attention_mask == 1
    np.testing.assert_allclose(np.asarray(by_kernel)[present], np.asarray(by_mask)[present], atol=1e-5)


def test_lengths_in_dot_product_attention(documents):
    padded = tokjax.collate_padded_batch(tokjax.ragged_from_rows(documents), pad_id=0, length=16)
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows(documents), block_size=64, pad_id=0)
    assert blocks.lengths.tolist() == [sum(map(len, documents))]
    q, k, v = jax.random.normal(jax.random.key(0), (3, *padded.ids.shape, 2, 8))
    lengths = jnp.asarray(padded.attention_mask.sum(axis=1, dtype=np.int32))
    mask = jnp.asarray(tokjax.masks.make_attention_mask(attention_mask=padded.attention_mask))
    attend = partial(jax.nn.dot_product_attention, q, k, v)
    by_lengths, by_mask = jax.jit(
        lambda: (attend(key_value_seq_lengths=lengths, is_causal=True), attend(mask=mask))
    )()
    present = padded.attention_mask == 1
    np.testing.assert_allclose(np.asarray(by_lengths)[present], np.asarray(by_mask)[present], atol=1e-5)


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(0, 6))
def test_create_attention_mask(lengths, width):
    mask = assert_agrees(lambda n: tokjax.masks.create_attention_mask(n, width), np.array(lengths, np.int32))
    assert mask.tolist() == [[1] * min(n, width) + [0] * (width - min(n, width)) for n in lengths]


def test_create_causal_mask():
    mask = tokjax.masks.create_causal_mask(3)
    assert mask.dtype == np.float32
    assert (mask == np.triu(np.full((3, 3), -np.inf), 1)).all()
    scores = jax.jit(lambda x: jax.nn.softmax(x + tokjax.masks.create_causal_mask(3)))(jnp.zeros((3, 3)))
    assert np.allclose(scores, np.tril(np.ones((3, 3))) / np.array([[1], [2], [3]]))
    assert tokjax.masks.create_causal_mask(0).shape == (0, 0)


@get_max_examples(40)
@given(st.lists(st.integers(0, 2), min_size=8, max_size=8) | st.just([]), st.integers(0, 3))
def test_find_document_boundaries(row, spare):
    expected = oracle.find_boundaries(row, 0)
    array = np.array(row, np.int32)
    boundaries = tokjax.masks.find_document_boundaries(array, 0)
    assert boundaries.dtype == np.int32
    assert boundaries.shape == (len(expected), 2)
    assert [tuple(pair) for pair in boundaries.tolist()] == expected
    assert tokjax.masks.find_document_boundaries(jnp.asarray(array), 0).tolist() == boundaries.tolist()
    find = partial(tokjax.masks.find_document_boundaries, eos_token=0, max_documents=len(expected) + spare)
    padded = assert_agrees(find, array)
    assert padded[: len(expected)].tolist() == boundaries.tolist()
    assert (padded[len(expected) :] == len(row)).all()


def test_too_many_documents_are_rejected():
    with rejects("there are 3 documents, more than max_documents=2"):
        tokjax.masks.find_document_boundaries(np.array([0, 0, 1]), 0, max_documents=2)
