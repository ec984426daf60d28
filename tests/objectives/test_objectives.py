"""Tests of random draws, prefix language modelling, fill in the middle and loss masks, against oracles."""

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
from tests.support.array_strategies import draw_arrays, draw_integer_arrays, shares
from tests.support.numpy_jax_agreement import assert_agrees

# Draws


def test_draws_from_generators_and_keys():
    for source in (np.random.default_rng(3), jax.random.key(3), jax.random.PRNGKey(3)):
        draws = tokjax.objectives.draw_uniform(source, (1000, 100))
        assert draws.shape == (1000, 100)
        assert draws.dtype == np.float32
        assert isinstance(draws, np.ndarray) == isinstance(source, np.random.Generator)
        assert 0 <= draws.min() < 1e-4
        assert 0.9999 < draws.max() < 1
        assert abs(float(draws.mean()) - 0.5) < 0.004
    traced = jax.jit(lambda key: tokjax.objectives.draw_uniform(key, (3,)))(jax.random.key(1))
    assert traced.tolist() == tokjax.objectives.draw_uniform(jax.random.key(1), (3,)).tolist()


@pytest.mark.parametrize("source", [0, None, np.random, np.array([0, 1], np.uint32), jnp.array([1.5])])
def test_other_sources_of_draws_are_rejected(source):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="a JAX key, not .*default_rng"):
        tokjax.objectives.draw_uniform(source, (2,))


def test_shape_of_draws():
    rng = np.random.default_rng(0)
    assert tokjax.objectives.draw_uniform(rng, ()).shape == ()
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="shape must be at least 0, not -1"):
        tokjax.objectives.draw_uniform(rng, (-1,))
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"must be a tuple, such as \(8, 512\), not 5"
    ):
        tokjax.objectives.draw_uniform(rng, 5)
    for keys in (jax.random.split(jax.random.key(0), 3), jax.random.split(jax.random.PRNGKey(0), 3)):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"a single key, not keys of shape \(3"):
            tokjax.objectives.draw_uniform(keys, (2,))


# Prefix language modelling


@given(st.data(), st.integers(0, 3), st.integers(0, 6))
def test_prefix_lm(data, batch, length):
    ids, mask = (data.draw(draw_integer_arrays((batch, length), 0, maximum)) for maximum in (9, 1))
    draws = data.draw(draw_arrays((batch,)))
    found = tokjax.objectives.prefix_lm(ids, mask, draws)
    rows = [oracle.split_row(*row) for row in zip(ids.tolist(), mask.tolist(), draws, strict=True)]
    assert found.labels.tolist() == [row[0] for row in rows]
    assert found.prefix_mask.tolist() == [row[1] for row in rows]
    assert found.prefix_lengths.tolist() == [row[2] for row in rows]


def test_all_prefix_lengths_are_equally_likely():
    ids = np.ones((20_000, 6), np.int32)
    mask = np.array([[1, 1, 0, 1, 1, 1]] * 20_000)
    found = tokjax.objectives.prefix_lm(
        ids, mask, tokjax.objectives.draw_uniform(np.random.default_rng(0), (20_000,))
    )
    counts = np.bincount(found.prefix_lengths)
    assert counts[0] == 0
    assert (abs(counts[1:] - 5000) < 4 * 5000**0.5).all()
    assert len(counts) == 5
    assert ((found.labels != -100).sum(1) == 5 - found.prefix_lengths).all()


# Fill in the middle

PRE, MID, SUF = 101, 102, 103
fim = partial(tokjax.objectives.fill_in_the_middle, prefix_id=PRE, middle_id=MID, suffix_id=SUF)


def make_full_ragged(documents):
    """Makes a `Ragged` with all columns, whose values show the position of their token in its document."""
    flat = [i for document in documents for i in document]
    position = np.array([i for document in documents for i in range(len(document))], int)
    return tokjax.make_ragged(
        flat,
        np.cumsum([0, *map(len, documents)]),
        offsets=np.stack([position + 1, position + 2], axis=1),
        special_tokens_mask=position % 2,
        token_type_ids=position + 5,
        word_ids=position,
        sequence_ids=position * 0,
    )


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
    assert result.word_ids.tolist() == [-1, 0, -1, 3, -1, 1, 2, 0, 1]
    assert result.offsets[:, 0].tolist() == [0, 1, 0, 4, 0, 2, 3, 1, 2]
    assert result.special_tokens_mask.tolist() == [1, 0, 1, 1, 1, 1, 0, 0, 1]
    assert result.token_type_ids.tolist() == [0, 5, 0, 8, 0, 6, 7, 5, 6]
    assert result.sequence_ids.tolist() == [-1, 0, -1, 0, -1, 0, 0, 0, 0]


def test_orders_and_splits_over_many_draws():
    """Compares frequencies: three tokens have four split positions, and so ten unordered pairs of these."""
    n = 20_000
    ragged = tokjax.ragged_from_rows([[1, 2, 3]] * n)
    draws = tokjax.objectives.draw_uniform(np.random.default_rng(0), (n, 4))
    for spm_rate, order in ((0, order_psm), (1, order_spm)):
        result = fim(ragged, draws, rate=0.9, spm_rate=spm_rate)
        rows = np.split(result.ids, result.row_splits[1:-1])
        counts = Counter(tuple(row.tolist()) for row in rows if len(row) == 6)
        changed = counts.total()
        assert abs(changed - 0.9 * n) < 4 * (0.9 * 0.1 * n) ** 0.5
        expected = Counter()
        for low, high in product(range(4), repeat=2):
            parts = [1, 2, 3][: min(low, high)], [1, 2, 3][min(low, high) : max(low, high)]
            expected[tuple(order(*parts, [1, 2, 3][max(low, high) :]))] += 1 / 16
        assert counts.keys() == expected.keys()
        for row, share in expected.items():
            assert abs(counts[row] - changed * share) < 4 * (changed * share) ** 0.5
    both = fim(ragged, draws, rate=1, spm_rate=0.25)
    # With a non-empty prefix, the second id is the suffix id in SPM order only.
    spm = (both.ids.reshape(n, 6)[:, 1] == SUF) & (draws[:, 2:].min(1) >= 0.25)
    assert abs(spm.sum() - 0.25 * 0.75**2 * n) < 4 * (0.25 * 0.75**2 * n) ** 0.5


def order_psm(prefix, middle, suffix):
    return [PRE, *prefix, SUF, *suffix, MID, *middle]


def order_spm(prefix, middle, suffix):
    return [PRE, SUF, *suffix, MID, *prefix, *middle]


def test_size_under_jit():
    ragged = jax.tree.map(jnp.asarray, tokjax.ragged_from_rows([[1, 2, 3, 4], [5, 6, 7]]))
    draws = jnp.zeros((2, 4))
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="unknown under jax.jit; pass size=NUMBER"):
        jax.jit(fim)(ragged, draws)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="size is 12, and the documents have 13 ids after the split"
    ):
        fim(ragged, draws, size=12)
    short = jax.jit(partial(fim, size=9))(ragged, draws)
    assert short.row_splits.tolist() == [0, 7, 9]
    assert short.ids.tolist() == [PRE, SUF, 1, 2, 3, 4, MID, PRE, SUF]


def test_documents_can_be_packed_afterwards():
    ragged = tokjax.ragged_from_rows([[1, 2, 3, 4], [5, 6, 7]])
    result = fim(ragged, np.float32([[0, 0.9, 0.5, 0.5], [0.9, 0, 0, 0]]))
    packed = tokjax.pack_blocks(result, block_size=12, pad_id=0, eos_id=9)
    assert packed.ids.tolist() == [[PRE, 1, 2, SUF, 3, 4, MID, 9, 5, 6, 7, 0]]


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
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        fim(tokjax.ragged_from_rows([[1]]), np.zeros((1, 4), np.float32), **options)


# Fine-tuning


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(0, 6))
def test_completion_loss_mask(lengths, width):
    mask = assert_agrees(
        lambda n: tokjax.objectives.completion_loss_mask(n, width), np.array(lengths, np.int32)
    )
    assert mask.tolist() == [[int(i >= n) for i in range(width)] for n in lengths]


templates = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@given(st.data(), st.integers(0, 3), st.integers(0, 12), templates, templates)
def test_assistant_loss_mask(data, batch, length, start, end):
    ids = data.draw(draw_integer_arrays((batch, length), 0, 2))
    found = tokjax.objectives.assistant_loss_mask(ids, start_ids=start, end_ids=end)
    assert found.tolist() == [oracle.compute_assistant_mask(row, start, end) for row in ids.tolist()]


def test_only_answers_have_labels():
    im_start, user, assistant, newline, im_end = 1, 2, 3, 4, 5
    ids = np.array([[im_start, user, newline, 11, im_end, im_start, assistant, newline, 21, 22, im_end, 0]])
    mask = tokjax.objectives.assistant_loss_mask(
        ids, start_ids=[im_start, assistant, newline], end_ids=[im_end]
    )
    labels = tokjax.causal_lm_labels(ids, ids, loss_mask=mask)
    assert labels[labels != -100].tolist() == [21, 22, im_end]
    prompt = tokjax.causal_lm_labels(
        ids, ids, loss_mask=tokjax.objectives.completion_loss_mask(np.array([8]), 12)
    )
    assert prompt.tolist() == labels.tolist()


def test_answer_without_end_stops_at_the_next_start():
    mask = tokjax.objectives.assistant_loss_mask(
        np.array([8, 1, 5, 6, 8, 1, 7, 9, 3]), start_ids=[8, 1], end_ids=[9]
    )
    assert mask.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0]
    mask = tokjax.objectives.assistant_loss_mask(np.array([8, 1, 5, 8, 1, 6]), start_ids=[8, 1], end_ids=[8])
    assert mask.tolist() == [0, 0, 1, 1, 0, 1]  # a start is also an end here


def test_invalid_templates_are_rejected():
    for invalid_ids in ([], [[1]]):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="start_ids must hold at least one id, shape"
        ):
            tokjax.objectives.assistant_loss_mask(np.array([1]), start_ids=invalid_ids, end_ids=[1])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="end_ids must be integers"):
        tokjax.objectives.assistant_loss_mask(np.array([1]), start_ids=[1], end_ids=["a"])
