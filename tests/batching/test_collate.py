"""Every batching function against its oracle, and in NumPy, eager JAX, jit and vmap alike."""

import importlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import batching as oracle
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.numpy_jax_agreement import assert_agrees, assert_agrees_in_jax, assert_same

# (older versions of JAX keep the switch there)
HAS_X64 = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
ids = st.integers(0, 9)
id_rows = st.lists(st.lists(ids, max_size=7), max_size=6)


def full_ragged(rows):
    """A ragged batch with every column."""
    n = sum(map(len, rows))
    stops = np.arange(2, n + 2)
    return tokjax.make_ragged(
        [i for row in rows for i in row],
        np.cumsum([0, *map(len, rows)]),
        offsets=np.stack([stops - 1, stops], axis=1),
        special_tokens_mask=np.arange(n) % 2,
        token_type_ids=np.arange(n) % 3,
        word_ids=np.arange(n),
        sequence_ids=-(np.arange(n) % 2),
    )


@given(id_rows, st.integers(0, 8), st.sampled_from(["left", "right"]), st.sampled_from(["left", "right"]))
def test_pad_ragged(rows, length, pad_side, truncation):
    pad = partial(tokjax.pad_ragged, length=length, pad_id=99, pad_side=pad_side, truncation=truncation)
    padded = assert_agrees(pad, full_ragged(rows))
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
def test_collate_finds_the_length(rows):
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
        ({"buckets": [1, 2]}, r"longest row has 3 tokens, and no bucket of \[1, 2\] holds it"),
        ({"buckets": []}, "no bucket"),
        ({"length": 4, "multiple_of": 2}, "without buckets and multiple_of"),
        ({"buckets": [4], "multiple_of": 2}, "not both"),
        ({"multiple_of": 0}, "multiple_of must be at least 1"),
        ({"length": -1}, "length must be at least 0"),
        ({"pad_side": "middle"}, "pad_side must be"),
        ({"truncation": "middle"}, "truncation must be"),
        ({"columns": ["colour"]}, "columns must be some of ids, offsets"),
        ({"columns": "ids"}, "columns must be"),
    ],
)
def test_collate_rejects_invalid_arguments(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.collate_padded_batch(tokjax.ragged_from_rows([[1], [1, 2, 3]]), pad_id=0, **options)


def test_non_results_are_rejected():
    for wrong in ([[1, 2], [3]], np.array([[1, 2]]), jnp.array([1]), 3):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="ragged_from_rows"):
            tokjax.collate_padded_batch(wrong, pad_id=0)
    results = [tokjax.TokenizationResult([1], ["a"], offsets=[(1, 2)]), tokjax.TokenizationResult([1], ["a"])]
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="result 1 has no offsets, but others do"):
        tokjax.collate_padded_batch(results, pad_id=0)


def test_lengths_are_unknown_under_jit():
    ragged = jax.tree.map(jnp.asarray, tokjax.ragged_from_rows([[1], [1, 2, 3]]))
    for function, message in (
        (lambda r: tokjax.collate_padded_batch(r, pad_id=0), "pad_ragged"),
        (lambda r: tokjax.pad_ragged(r, length=2, pad_id=0, truncation=None), "truncation='right'"),
        (lambda r: tokjax.pack_blocks(r, block_size=2, pad_id=0), "plan on the host"),
        (lambda r: tokjax.find_document_boundaries(r.ids, 0), "max_documents=NUMBER"),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            jax.jit(function)(ragged)


@given(st.lists(ids, max_size=9), st.integers(0, 9))
def test_pad_sequence(row, length):
    padded = assert_agrees(
        partial(tokjax.pad_sequence, max_length=length, pad_value=7), np.array(row, np.int32)
    )
    assert padded.tolist() == oracle.pad_rows([row], length, 7)[0][0]


@given(st.integers(0, 4), st.integers(0, 5), st.integers(0, 7), st.data())
def test_batch_pad_sequences(batch, width, length, data):
    tokens = np.arange(batch * width, dtype=np.int32).reshape(batch, width)
    lengths = np.array(
        data.draw(st.lists(st.integers(0, width + 2), min_size=batch, max_size=batch)), np.int32
    )
    padded = assert_agrees(
        partial(tokjax.batch_pad_sequences, max_length=length, pad_value=7), tokens, lengths
    )
    rows = [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    assert padded.tolist() == oracle.pad_rows(rows, length, 7)[0]


def to_rectangle(batch, length, elements):
    return st.lists(st.lists(elements, min_size=length, max_size=length), min_size=batch, max_size=batch)


@given(st.data(), st.integers(0, 3), st.integers(0, 7))
def test_causal_lm_labels(data, batch, length):
    tokens, mask, segments, counted = (
        data.draw(to_rectangle(batch, length, st.integers(0, top))) for top in (9, 1, 2, 1)
    )
    arrays = [np.array(x, np.int32).reshape(batch, length) for x in (tokens, mask, segments, counted)]
    plain = assert_agrees(tokjax.causal_lm_labels, *arrays[:2])
    assert plain.tolist() == oracle.shift_labels(tokens, mask)
    full = assert_agrees(
        lambda i, m, s, c: tokjax.causal_lm_labels(i, m, segment_ids=s, loss_mask=c, ignore_index=-1), *arrays
    )
    assert full.tolist() == oracle.shift_labels(tokens, mask, -1, segments, counted)


def test_labels_by_mask_and_never_by_value():
    eos = 5  # also the pad id
    labels = tokjax.causal_lm_labels(np.array([[1, 2, eos, eos, eos]]), np.array([[1, 1, 1, 0, 0]]))
    assert labels.tolist() == [[2, eos, -100, -100, -100]]
    holes = tokjax.causal_lm_labels(np.array([1, 2, 3, 4]), np.array([1, 0, 0, 1]))
    assert holes.tolist() == [4, -100, -100, -100]
    one = tokjax.causal_lm_labels(np.array([[7]]), np.array([[1]]))
    assert one.tolist() == [[-100]]
    from_disk = tokjax.causal_lm_labels(np.array([[1, 65535]], np.uint16), np.array([[True, True]]))
    assert from_disk.tolist() == [[65535, -100]]


def test_labels_refuse_other_shapes():
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"attention_mask has shape \(3,\), and ids \(2,\)"
    ):
        tokjax.causal_lm_labels(np.zeros(2, int), np.zeros(3, int))
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="segment_ids"):
        tokjax.causal_lm_labels(np.zeros(2, int), np.zeros(2, int), segment_ids=np.zeros(1, int))


@given(id_rows, st.integers(1, 6), st.none() | st.just(50))
def test_packing(rows, block_size, eos_id):
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


def test_a_plan_is_an_argument_too():
    ragged = tokjax.ragged_from_rows([[1, 2], [3]])
    plan = tokjax.packing.plan_packing(ragged.lengths, 2, separators=True)
    apply = partial(tokjax.packing.apply_packing, pad_id=0, eos_id=9)
    assert assert_agrees(apply, plan, ragged).ids.tolist() == [[1, 2], [9, 3]]


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "int32", "uint32", "int64"]
FEW = {("uint8", False), ("uint32", True)}


@pytest.mark.parametrize(
    ("dtype", "x64"),
    [
        pytest.param(dtype, x64, marks=[] if (dtype, x64) in FEW else [pytest.mark.slow])
        for x64 in (False, True)
        for dtype in DTYPES
    ],
)
def test_arrays_of_any_integer_dtype(dtype, x64):
    """Under strict promotion, with and without 64 bits."""
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
    with HAS_X64.enable_x64(x64):
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


def test_iterators_of_options():
    ragged = full_ragged([[1, 2], [3]])
    padded = tokjax.collate_padded_batch(ragged, pad_id=0, columns=iter(["offsets"]), buckets=iter([1, 3]))
    assert padded.offsets.shape == (2, 3, 2)


def test_packing_rejects_invalid_arguments():
    ragged = tokjax.ragged_from_rows([[1, 2], [3]])
    plan = tokjax.packing.plan_packing(ragged.lengths, 2, separators=True)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="pass eos_id"):
        tokjax.packing.apply_packing(plan, ragged, pad_id=0)
    for rows in ([[1]], [[1, 2], [3, 4]]):
        other = tokjax.ragged_from_rows(rows)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="made for rows of 3 tokens in total"):
            jax.jit(lambda r: tokjax.packing.apply_packing(plan, r, pad_id=0, eos_id=1))(other)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="more than int32 can count"):
        tokjax.packing.plan_packing([2**62] * 4, 4)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="block_size must be at least 1, not 0"):
        tokjax.packing.plan_packing([1], 0)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="non-negative integers"):
        tokjax.packing.plan_packing([1, -1], 4)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="more than int32 can count"):
        tokjax.packing.plan_packing([0], 2**31)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="strategy must be"):
        tokjax.packing.plan_packing([1], 4, "worst_fit")


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(0, 6))
def test_create_attention_mask(lengths, width):
    mask = assert_agrees(lambda n: tokjax.create_attention_mask(n, width), np.array(lengths, np.int32))
    assert mask.tolist() == [[1] * min(n, width) + [0] * (width - min(n, width)) for n in lengths]


def test_create_causal_mask():
    mask = tokjax.create_causal_mask(3)
    assert mask.dtype == np.float32
    assert (mask == np.triu(np.full((3, 3), -np.inf), 1)).all()
    scores = jax.jit(lambda x: jax.nn.softmax(x + tokjax.create_causal_mask(3)))(jnp.zeros((3, 3)))
    assert np.allclose(scores, np.tril(np.ones((3, 3))) / np.array([[1], [2], [3]]))
    assert tokjax.create_causal_mask(0).shape == (0, 0)


@get_max_examples(40)  # (each with another shape is compiled anew)
@given(st.lists(st.integers(0, 2), max_size=8), st.integers(0, 3))
def test_find_document_boundaries(row, spare):
    expected = oracle.find_boundaries(row, 0)
    array = np.array(row, np.int32)
    found = tokjax.find_document_boundaries(array, 0)
    assert found.dtype == np.int32
    assert found.shape == (len(expected), 2)
    assert [tuple(pair) for pair in found.tolist()] == expected
    assert tokjax.find_document_boundaries(jnp.asarray(array), 0).tolist() == found.tolist()
    find = partial(tokjax.find_document_boundaries, eos_token=0, max_documents=len(expected) + spare)
    padded = assert_agrees(find, array)
    assert padded[: len(expected)].tolist() == found.tolist()
    assert (padded[len(expected) :] == len(row)).all()


def test_one_based_ids_out_of_range():
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="holds 2147483647, and 2147483648 does not fit"
    ):
        tokjax.to_one_based(np.array([0, 2**31 - 1]))
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="index is 1099511627776, which does not fit"
    ):
        tokjax.to_one_based(np.array([0]), ignore_index=2**40)


def test_rows_at_large_offsets():
    ids = np.broadcast_to(np.int32(7), 3_000_000_000)
    far = tokjax.Ragged(ids, np.array([2_999_999_997, 2_999_999_999, 3_000_000_000]))
    assert tokjax.collate_padded_batch(far, pad_id=0).ids.tolist() == [[7, 7], [7, 0]]


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


def test_ids_of_padding_may_be_traced():
    ragged = tokjax.ragged_from_rows([[5, 6], [7]])
    found = jax.jit(lambda pad: tokjax.pad_ragged(ragged, length=2, pad_id=pad).ids)(3)
    assert found.tolist() == [[5, 6], [7, 3]]
    label = jax.jit(lambda i: tokjax.causal_lm_labels(np.array([[5, 6]]), np.ones((1, 2)), ignore_index=i))
    assert label(-7).tolist() == [[6, -7]]
    plan = tokjax.packing.plan_packing(ragged.lengths, 4)
    assert jax.jit(lambda p: tokjax.packing.apply_packing(plan, ragged, pad_id=p).ids)(3).tolist() == [
        [5, 6, 7, 3]
    ]


def test_too_many_documents():
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="there are 3 documents, more than max_documents=2"
    ):
        tokjax.find_document_boundaries(np.array([0, 0, 1]), 0, max_documents=2)


@given(st.lists(st.integers(-1, 5), max_size=5))
def test_one_based_ids(row):
    array = np.array(row, np.int32)
    one_based = assert_agrees(partial(tokjax.to_one_based, ignore_index=-1), array)
    assert one_based.tolist() == [i if i == -1 else i + 1 for i in row]
    assert assert_agrees(partial(tokjax.to_zero_based, ignore_index=-1), one_based).tolist() == row


@pytest.mark.parametrize(
    "rows",
    [[], [[]], [[7]], *(pytest.param(x, marks=pytest.mark.slow) for x in ([[], []], [[1, 2, 3], [], [4]]))],
)
def test_the_edges_in_jax(rows):
    """Shapes with a zero in them, which a sample of examples may miss."""
    ragged = full_ragged(rows)
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
