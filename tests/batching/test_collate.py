"""Tests of collation and padding against reference loops, in NumPy, eager JAX, jit and vmap."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import batching as oracle
from tests.support.numpy_jax_agreement import assert_agrees, assert_agrees_in_jax, assert_same
from tests.support.ragged_batches import make_full_ragged
from tests.support.rejections import rejects

ids = st.integers(0, 9)
id_rows = st.lists(st.lists(ids, max_size=7), max_size=6)


def test_batch_to_dict_omits_missing_columns():
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows([[1, 2]]), block_size=2, pad_id=0)
    columns = tokjax.batch_to_dict(blocks)
    assert columns.keys() == {"ids", "attention_mask", "segment_ids", "positions", "document_ids"}
    assert all(getattr(blocks, name) is column for name, column in columns.items())
    assert not any(leaf is None for leaf in jax.tree.leaves(columns, is_leaf=lambda leaf: leaf is None))
    with rejects("such as PackedBlocks, not list$"):
        tokjax.batch_to_dict([1])


@given(id_rows, st.integers(0, 8), st.sampled_from(["left", "right"]), st.sampled_from(["left", "right"]))
def test_pad_ragged(rows, length, pad_side, truncation):
    pad = partial(tokjax.pad_ragged, length=length, pad_id=99, pad_side=pad_side, truncation=truncation)
    padded = assert_agrees(pad, make_full_ragged(rows))
    expected_ids, expected_mask = oracle.pad_rows(rows, length, 99, pad_side, truncation)
    assert padded.ids.tolist() == expected_ids
    assert padded.attention_mask.tolist() == expected_mask
    present = padded.attention_mask == 1
    assert (padded.special_tokens_mask[~present] == 1).all()
    assert (padded.offsets[~present] == 0).all()
    assert (padded.word_ids[~present] == -1).all()
    assert (padded.token_type_ids[~present] == 0).all()
    assert (padded.offsets[present][:, 0] - 1 == padded.word_ids[present]).all()
    assert (padded.special_tokens_mask[present] == padded.word_ids[present] % 2).all()


@given(id_rows)
def test_collate_selects_the_length(rows):
    longest = max(map(len, rows), default=0)
    ragged = tokjax.ragged_from_rows(rows)
    assert tokjax.collate_padded_batch(ragged, pad_id=0).ids.shape == (len(rows), longest)
    assert tokjax.collate_padded_batch(ragged, pad_id=0, multiple_of=4).ids.shape[1] == -(-longest // 4) * 4
    assert tokjax.collate_padded_batch(ragged, pad_id=0, buckets=[8, 2, 4]).ids.shape[1] in (2, 4, 8)
    assert tokjax.collate_padded_batch(ragged, pad_id=0, length=9).ids.shape[1] == 9


def test_collate_options(tokenizer):
    batch = tokjax.encode_batch_result(tokenizer, ["low low", "lower"])
    as_list = tokjax.collate_padded_batch(list(batch), pad_id=257)
    assert_same(tokjax.collate_padded_batch(batch, pad_id=257), as_list, np.ndarray)
    unmarked = tokjax.collate_padded_batch(
        tokjax.ragged_from_rows([[1, 2], [3]]),
        pad_id=0,
        mark_pad_as_special=False,
        columns=["special_tokens_mask"],
    )
    assert unmarked.special_tokens_mask.tolist() == [[0, 0], [0, 0]]
    assert unmarked.token_type_ids is None
    truncated = tokjax.collate_padded_batch(
        tokjax.ragged_from_rows([[1, 2, 3]]), pad_id=0, buckets=[2], truncation="left"
    )
    assert truncated.ids.tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 2}, "row 1 has 3 tokens, more than the length 2; pass truncation="),
        ({"buckets": [1, 2]}, r"longest row has 3 tokens and does not fit any bucket of \[1, 2\]"),
        ({"buckets": []}, "at least one bucket"),
        ({"length": 4, "multiple_of": 2}, "without buckets and multiple_of"),
        ({"buckets": [4], "multiple_of": 2}, "not both"),
        ({"multiple_of": 0}, "multiple_of must be at least 1"),
        ({"length": -1}, "length must be at least 0"),
        ({"pad_side": "middle"}, "pad_side must be"),
        ({"truncation": "middle"}, "truncation must be"),
        ({"columns": ["colour"]}, "a name in columns must be 'ids', 'offsets', .* not 'colour'"),
        ({"columns": "ids"}, "columns must be"),
    ],
)
def test_collate_rejects_invalid_arguments(options, message):
    with rejects(message):
        tokjax.collate_padded_batch(tokjax.ragged_from_rows([[1], [1, 2, 3]]), pad_id=0, **options)


def test_non_results_are_rejected():
    for wrong in ([[1, 2], [3]], np.array([[1, 2]]), jnp.array([1]), 3):
        with rejects("ragged_from_rows"):
            tokjax.collate_padded_batch(wrong, pad_id=0)
    results = [tokjax.TokenizationResult([1], ["a"], offsets=[(1, 2)]), tokjax.TokenizationResult([1], ["a"])]
    with rejects("result 1 has no offsets, but others do"):
        tokjax.collate_padded_batch(results, pad_id=0)


def test_lengths_are_unknown_under_jit(tokenizer):
    ragged = jax.tree.map(jnp.asarray, tokjax.ragged_from_rows([[1], [1, 2, 3]]))
    for function, message in (
        (lambda r: tokjax.collate_padded_batch(r, pad_id=0), "pad_ragged"),
        (lambda r: tokjax.pad_ragged(r, length=2, pad_id=0, truncation=None), "truncation='right'"),
        (
            lambda r: tokjax.pad_ragged([r.ids], length=2, pad_id=0),
            r"for ids under jax.jit pass tokjax.Ragged\(ids, row_splits\)",
        ),
        (lambda r: tokjax.pack_blocks(r, block_size=2, pad_id=0), "plan on the host"),
        (lambda r: tokjax.masks.find_document_boundaries(r.ids, 0), "max_documents=NUMBER"),
        (lambda r: tokjax.make_ragged(*r[:2]), r"values of ids are .*call tokjax.Ragged\(ids, row_splits\)"),
        (lambda r: tokjax.ragged_from_rows([r.ids, [*r.ids]]), "values of row 0 are unknown under jax.jit"),
        (lambda r: tokjax.decode(tokenizer, [*r.ids]), "values of ids .*call tokjax.device.decode_jit"),
        (lambda r: tokjax.decode_bytes(tokenizer, r.ids), "decode on the host"),
        (lambda r: tokjax.decode_batch(tokenizer, r), "decode on the host"),
        (lambda r: tokjax.decode_batch(tokenizer, r.ids[None]), "decode on the host"),
        (lambda r: tokjax.decode_step(tokenizer, tokjax.DecodeState(), r.ids[0]), "decode on the host"),
        (lambda r: tokjax.id_to_token(tokenizer, r.ids[0]), "value of id is unknown under jax.jit; pass a"),
        (lambda r: tokjax.pad_ragged(r, length=r.ids[0], pad_id=0), "value of length .* static_argnames"),
        (lambda r: tokjax.LengthBuckets.fit(r.lengths, 2), "choose the bucket on the host"),
    ):
        with rejects(message):
            jax.jit(function)(ragged)


def pad_side_columns(ragged, flat, pairs):
    columns = {"log_probs": flat, "pairs": pairs, "loss_mask": flat > 0}
    options = {"pad_side": "left", "columns": ["ids"], "side_columns": columns}
    return tokjax.pad_ragged(ragged, length=4, pad_id=0, **options)


def test_side_columns():
    """Floats per token are padded with 0, in their dtype, as arrays or rows, and also in JAX."""
    rows = [[0.5, -0.25], [], [1.0, 2.0, -3.0, 4.0, 5.0]]
    ragged = jax.tree.map(np.int32, tokjax.ragged_from_rows([[7] * len(row) for row in rows]))
    flat = np.float32([value for row in rows for value in row])
    pairs = np.stack([flat, flat], axis=1).astype(np.float16)
    batch = pad_side_columns(ragged, flat, pairs)
    expected = [[0.0] * (4 - len(row)) + row[:4] for row in rows]
    assert batch.columns["log_probs"].tolist() == expected
    assert batch.columns["pairs"].tolist() == np.float16(expected)[..., None].repeat(2, -1).tolist()
    assert batch.loss_mask.tolist() == [[int(value > 0) for value in row] for row in expected]
    by_rows = tokjax.collate_padded_batch(
        ragged, pad_id=0, length=4, truncation="right", pad_side="left", side_columns={"log_probs": rows}
    )
    assert np.array_equal(by_rows.columns["log_probs"], batch.columns["log_probs"])
    dtypes = (np.int32, np.float32, np.float16)
    assert_agrees_in_jax(pad_side_columns, batch, (ragged, flat, pairs), dtypes=dtypes)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"x": [[0.5], [0.5]]}, "row 1 of x has 1 entries, and row 1 has 2 ids"),
        ({"x": [[0.5]]}, "x has 1 rows, and there are 2 rows of ids"),
        ({"x": np.ones(2)}, r"x has shape \(2,\), and the flat ids of all rows have \(3,\)"),
        ({"x": np.array(["a", "b", "c"])}, "x must be numbers, not <U1"),
        ({"offsets": np.ones(3)}, "offsets is no side column"),
    ],
)
def test_invalid_side_columns_are_rejected(column, message):
    with rejects(message):
        tokjax.collate_padded_batch(tokjax.ragged_from_rows([[1], [2, 3]]), pad_id=0, side_columns=column)


def test_rows_are_copied_one_by_one_or_together(tokenizer):
    """Long rows, results whose columns differ, and results without offsets give the batch of a plain loop."""
    texts = ["a b" * 400, "", "c" * 700]
    batch = tokjax.encode_batch_result(tokenizer, texts)
    for pad_side, truncation, length in (("left", None, None), ("right", "left", 600), ("left", "right", 9)):
        for results in (batch, [*batch]):
            padded = tokjax.collate_padded_batch(
                results, pad_id=9, length=length, pad_side=pad_side, truncation=truncation
            )
            width = padded.ids.shape[1]
            for row, result in enumerate(batch):
                kept = slice(-width, None) if truncation == "left" else slice(width)
                count = min(len(result), width)
                at = slice(count) if pad_side == "right" else slice(width - count, None)
                assert np.array_equal(padded.ids[row, at], result.ids[kept])
                assert np.array_equal(padded.offsets[row, at], result.offsets[kept])
                assert padded.attention_mask[row].sum() == padded.attention_mask[row, at].sum() == count
                assert (np.delete(padded.ids[row], at) == 9).all()


@given(st.lists(ids, max_size=9), st.integers(0, 9))
def test_pad_sequence(row, length):
    padded = assert_agrees(
        partial(tokjax.quick.pad_sequence, max_length=length, pad_value=7), np.array(row, np.int32)
    )
    assert padded.tolist() == oracle.pad_rows([row], length, 7)[0][0]


@given(st.integers(0, 4), st.integers(0, 5), st.integers(0, 7), st.data())
def test_batch_pad_sequences(batch, width, length, data):
    tokens = np.arange(batch * width, dtype=np.int32).reshape(batch, width)
    lengths = np.array(
        data.draw(st.lists(st.integers(0, width + 2), min_size=batch, max_size=batch)), np.int32
    )
    padded = assert_agrees(
        partial(tokjax.quick.batch_pad_sequences, max_length=length, pad_value=7), tokens, lengths
    )
    rows = [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    assert padded.tolist() == oracle.pad_rows(rows, length, 7)[0]


def test_options_may_be_iterators():
    ragged = make_full_ragged([[1, 2], [3]])
    padded = tokjax.collate_padded_batch(ragged, pad_id=0, columns=iter(["offsets"]), buckets=iter([1, 3]))
    assert padded.offsets.shape == (2, 3, 2)


def test_rows_at_large_offsets():
    ids = np.broadcast_to(np.int32(7), 3_000_000_000)
    ragged = tokjax.Ragged(ids, np.array([2_999_999_997, 2_999_999_999, 3_000_000_000]))
    assert tokjax.collate_padded_batch(ragged, pad_id=0).ids.tolist() == [[7, 7], [7, 0]]
