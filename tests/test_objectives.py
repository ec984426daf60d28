"""Every objective against its oracle, in NumPy, eager JAX, jit and vmap alike, and over many draws."""

from collections import Counter
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokjax
from tests.agreement import agree, agree_in_jax
from tests.oracles import objectives as oracle

shares = st.sampled_from([0.0, 0.1, 0.15, 0.5, 0.9, 1.0])


def draw_arrays(shape):
    """Draws of a shape, often equal to each other or to a bound."""
    some = st.sampled_from([0.0, 0.1, 0.15, 0.5, 0.8, 0.9, 1 - 2**-24])
    any_ = st.integers(0, 2**24 - 1).map(lambda bits: bits / 2**24)
    size = int(np.prod(shape))
    return st.lists(some | any_, min_size=size, max_size=size).map(
        lambda values: np.array(values, np.float32).reshape(shape)
    )


def integer_arrays(shape, least, most):
    size = int(np.prod(shape))
    return st.lists(st.integers(least, most), min_size=size, max_size=size).map(
        lambda values: np.array(values, np.int32).reshape(shape)
    )


# Draws


def test_draws_of_either_source():
    for source in (np.random.default_rng(3), jax.random.key(3), jax.random.PRNGKey(3)):
        draws = tokjax.draw_uniform(source, (1000, 100))
        assert draws.shape == (1000, 100)
        assert draws.dtype == np.float32
        assert isinstance(draws, np.ndarray) == isinstance(source, np.random.Generator)
        assert 0 <= draws.min() < 1e-4
        assert 0.9999 < draws.max() < 1
        assert abs(float(draws.mean()) - 0.5) < 0.004
    traced = jax.jit(lambda key: tokjax.draw_uniform(key, (3,)))(jax.random.key(1))
    assert traced.tolist() == tokjax.draw_uniform(jax.random.key(1), (3,)).tolist()


@pytest.mark.parametrize("source", [0, None, np.random, np.array([0, 1], np.uint32), jnp.array([1.5])])
def test_draws_of_something_else(source):
    with pytest.raises(tokjax.InvalidArgumentError, match="a JAX key, not .*default_rng"):
        tokjax.draw_uniform(source, (2,))


def test_shapes_of_draws():
    rng = np.random.default_rng(0)
    assert tokjax.draw_uniform(rng, ()).shape == ()
    with pytest.raises(tokjax.InvalidArgumentError, match="shape must be at least 0, not -1"):
        tokjax.draw_uniform(rng, (-1,))


# Masked language modelling

MASK, VOCABULARY = 50, 20


def expected_masking(ids, draws, may, words, **options):
    rows = [
        oracle.mask_row(*row, {"mask_id": MASK, "pool": range(VOCABULARY), **options})
        for row in zip(ids.tolist(), draws, may, words, strict=True)
    ]
    return [row[0] for row in rows], [row[1] for row in rows]


@given(st.data(), st.integers(0, 3), st.integers(0, 6), shares, shares, shares)
def test_masked_lm(data, batch, length, probability, mask_share, random_share):
    shape = (batch, length)
    random_share = min(random_share, 1 - mask_share)
    options = {"probability": probability, "mask_share": mask_share, "random_share": random_share}
    draws = data.draw(draw_arrays((batch, 3, length)))
    ids, special, mask = (data.draw(integer_arrays(shape, 0, most)) for most in (9, 1, 1))
    single = [[[i] for i in range(length)]] * batch
    expected = expected_masking(ids, draws, (special == 0) & (mask == 1), single, **options)
    found = tokjax.masked_lm(
        ids,
        draws,
        special_tokens_mask=special,
        attention_mask=mask,
        mask_id=MASK,
        vocab_size=VOCABULARY,
        **options,
    )
    assert (found.ids.tolist(), found.labels.tolist()) == expected


@given(st.data(), st.integers(0, 2), st.integers(0, 8), shares)
def test_masked_lm_of_words(data, batch, length, probability):
    shape = (batch, length)
    draws = data.draw(draw_arrays((batch, 3, length)))
    ids, special, sequences = (data.draw(integer_arrays(shape, 0, most)) for most in (9, 1, 1))
    words = data.draw(integer_arrays(shape, -1, 2))
    options = {"probability": probability, "mask_share": 0.5, "random_share": 0.4}
    pool = [7, 3, 30]
    expected = expected_masking(
        ids,
        draws,
        special == 0,
        [oracle.words_of(*row) for row in zip(words.tolist(), sequences.tolist(), strict=True)],
        pool=pool,
        **options,
    )
    found = tokjax.masked_lm(
        ids,
        draws,
        special_tokens_mask=special,
        word_ids=words,
        sequence_ids=sequences,
        mask_id=MASK,
        replacement_ids=pool,
        **options,
    )
    assert (found.ids.tolist(), found.labels.tolist()) == expected


def test_words_are_chosen_as_a_whole():
    rng = np.random.default_rng(5)
    words = np.sort(rng.integers(-1, 40, (500, 100)))
    ids = rng.integers(0, 1000, words.shape)
    found = tokjax.masked_lm(
        ids,
        tokjax.draw_uniform(rng, (500, 3, 100)),
        mask_id=-5,
        vocab_size=1000,
        special_tokens_mask=np.zeros_like(ids),
        word_ids=words,
    )
    chosen = found.labels != -100
    same = (words[:, 1:] == words[:, :-1]) & (words[:, 1:] >= 0)
    assert (chosen[:, 1:] == chosen[:, :-1])[same].all()
    assert not chosen[words == -1].any()
    assert abs(chosen[words >= 0].mean() - 0.15) < 0.01
    hidden = (found.ids == -5)[chosen]
    assert abs(hidden.mean() - 0.8) < 0.01
    parts = chosen[:, 1:] & chosen[:, :-1] & same
    alike = (found.ids[:, 1:] == -5) == (found.ids[:, :-1] == -5)
    assert abs(alike[parts].mean() - (0.8**2 + 0.2**2)) < 0.02  # each token of a word by itself


def test_shares_over_many_draws():
    rng = np.random.default_rng(0)
    ids = np.full((1000, 1000), 7, np.int32)
    special = np.zeros_like(ids)
    special[:, 0] = 1
    found = tokjax.masked_lm(
        ids,
        tokjax.draw_uniform(rng, (1000, 3, 1000)),
        mask_id=MASK,
        vocab_size=VOCABULARY,
        special_tokens_mask=special,
    )
    chosen = found.labels == 7
    assert ((found.labels == -100) | chosen).all()
    assert (found.ids[~chosen] == 7).all()
    assert not chosen[:, 0].any()
    n = chosen.sum()
    assert abs(n / 999_000 - 0.15) < 4 * (0.15 * 0.85 / 999_000) ** 0.5
    counts = np.bincount(found.ids[chosen], minlength=MASK + 1)
    expected = np.full(VOCABULARY, 0.1 / VOCABULARY)
    expected[7] += 0.1
    for share, count in zip([0.8, *expected], [counts[MASK], *counts[:VOCABULARY]], strict=True):
        assert abs(count - n * share) < 4 * (n * share) ** 0.5


class Replayed:
    """Stands for the generator of transformers' collator: its trials and numbers come from given draws."""

    def __init__(self, trials, numbers):
        self.trials, self.numbers = list(trials), numbers

    def binomial(self, *trial, size):
        assert self.trials[0].shape == size
        return (self.trials.pop(0) < trial[1]).astype(int)

    def integers(self, **kind):
        assert (kind["low"], kind["high"], kind["size"]) == (0, VOCABULARY, len(self.numbers))
        return self.numbers


class NamesOnly:
    """Stands for a tokenizer of transformers."""

    mask_token, mask_token_id = "[MASK]", MASK

    def __len__(self):
        return VOCABULARY


def test_masked_lm_is_that_of_transformers():
    from transformers import DataCollatorForLanguageModeling

    rng = np.random.default_rng(1)
    ids, special = rng.integers(0, VOCABULARY, (64, 128)), rng.integers(0, 2, (64, 128))
    draws = tokjax.draw_uniform(rng, (64, 3, 128))
    ours = tokjax.masked_lm(
        ids, draws, mask_id=MASK, vocab_size=VOCABULARY, special_tokens_mask=special, probability=0.25
    )
    collator = DataCollatorForLanguageModeling(NamesOnly(), mlm_probability=0.25, return_tensors="np")
    choosing, treating, replacing = np.moveaxis(draws.astype(np.float64), 1, 0)
    replaced = (ours.labels != -100) & (treating >= 0.8) & (treating < 0.9)
    collator.generator = Replayed(
        [choosing, treating, (treating - 0.8) / 0.2], np.floor(replacing[replaced] * VOCABULARY)
    )
    theirs = collator.numpy_mask_tokens(ids.copy(), special_tokens_mask=special)
    assert replaced.sum() > 50
    assert ours.ids.tolist() == theirs[0].tolist()
    assert ours.labels.tolist() == theirs[1].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_id": None}, "mask_id is None"),
        ({"ignore_index": 2**31}, "ignore_index is 2147483648"),
        ({"probability": 1.5}, "probability must be a number, from 0 to 1, not 1.5"),
        ({"mask_share": float("nan")}, "mask_share must be a number"),
        ({"mask_share": 0.9, "random_share": 0.2}, "are 0.9 and 0.2, more than 1 together"),
        ({"vocab_size": None}, "give vocab_size or replacement_ids, one of the two.*or random_share=0"),
        ({"replacement_ids": [1]}, "one of the two"),
        ({"vocab_size": 0}, "vocab_size must be at least 1, not 0"),
        ({"vocab_size": None, "replacement_ids": []}, r"at least one id, not shape \(0,\)"),
        ({"special_tokens_mask": [0, 0, 0]}, r"special_tokens_mask has shape \(3,\), and ids \(2,\)"),
        ({"attention_mask": [[0, 0]]}, r"attention_mask has shape \(1, 2\), and ids \(2,\)"),
        ({"word_ids": np.zeros(3, int)}, r"word_ids has shape \(3,\)"),
        ({"word_ids": np.zeros(2, int), "sequence_ids": np.zeros(1, int)}, r"sequence_ids has shape \(1,\)"),
    ],
)
def test_masked_lm_refuses(options, message):
    given = {"mask_id": 4, "vocab_size": 9, "special_tokens_mask": [0, 0], **options}
    with pytest.raises(tokjax.InvalidArgumentError, match=message):
        tokjax.masked_lm(np.array([1, 2]), np.zeros((3, 2), np.float32), **given)


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (np.zeros((3, 2)), r"float32 of shape \(3, 2\), not float64 of shape \(3, 2\); .*draw_uniform"),
        (
            np.zeros((2, 3), np.float32),
            r"not float32 of shape \(2, 3\); make them with draw_uniform",
        ),
        (jnp.zeros((2, 3)), r"not float32 of shape \(2, 3\)"),
        (np.ones((3, 2), np.float32), "these go from 1.0 to 1.0"),
        (np.full((3, 2), -0.5, np.float32), "at least 0 and below 1; these go from -0.5"),
        (np.full((3, 2), np.nan, np.float32), "from nan to nan"),
    ],
)
def test_draws_that_do_not_fit(draws, message):
    with pytest.raises(tokjax.InvalidArgumentError, match=message):
        tokjax.masked_lm(np.array([1, 2]), draws, mask_id=4, vocab_size=9, special_tokens_mask=[0, 0])


def test_ids_that_are_no_row():
    with pytest.raises(tokjax.InvalidArgumentError, match=r"ids must have shape \(..., length\), not \(\)"):
        tokjax.prefix_lm(np.int32(3), np.int32(1), np.float32(0))


def test_all_tokens_may_become_the_mask():
    ids = np.array([5, 6])
    draws = np.full((3, 2), 0.99, np.float32)
    found = tokjax.masked_lm(
        ids,
        draws,
        mask_id=4,
        special_tokens_mask=[0, 0],
        probability=1,
        mask_share=1,
        random_share=0,
    )
    assert found.ids.tolist() == [4, 4]
    assert found.labels.tolist() == [5, 6]


# Prefix language modelling


@given(st.data(), st.integers(0, 3), st.integers(0, 6))
def test_prefix_lm(data, batch, length):
    ids, mask = (data.draw(integer_arrays((batch, length), 0, most)) for most in (9, 1))
    draws = data.draw(draw_arrays((batch,)))
    found = tokjax.prefix_lm(ids, mask, draws)
    rows = [oracle.split_row(*row) for row in zip(ids.tolist(), mask.tolist(), draws, strict=True)]
    assert found.labels.tolist() == [row[0] for row in rows]
    assert found.prefix_mask.tolist() == [row[1] for row in rows]
    assert found.prefix_lengths.tolist() == [row[2] for row in rows]


def test_all_splits_are_equally_likely():
    ids = np.ones((20_000, 6), np.int32)
    mask = np.array([[1, 1, 0, 1, 1, 1]] * 20_000)
    found = tokjax.prefix_lm(ids, mask, tokjax.draw_uniform(np.random.default_rng(0), (20_000,)))
    counts = np.bincount(found.prefix_lengths)
    assert counts[0] == 0
    assert (abs(counts[1:] - 5000) < 4 * 5000**0.5).all()
    assert len(counts) == 5
    assert ((found.labels != -100).sum(1) == 5 - found.prefix_lengths).all()


# Fill in the middle

PRE, MID, SUF = 101, 102, 103
fim = partial(tokjax.fill_in_the_middle, prefix_id=PRE, middle_id=MID, suffix_id=SUF)


def full_ragged(documents):
    """Every column says which token of its document it is beside."""
    flat = [i for document in documents for i in document]
    place = np.array([i for document in documents for i in range(len(document))], int)
    return tokjax.make_ragged(
        flat,
        np.cumsum([0, *map(len, documents)]),
        offsets=np.stack([place + 1, place + 2], axis=1),
        special_tokens_mask=place % 2,
        token_type_ids=place + 5,
        word_ids=place,
        sequence_ids=place * 0,
    )


@given(st.data(), st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4), shares, shares)
def test_fill_in_the_middle(data, documents, rate, spm_rate):
    draws = data.draw(draw_arrays((len(documents), 4)))
    ragged = full_ragged(documents)
    expected = [
        oracle.middle_last(*row, rate, spm_rate, PRE, MID, SUF) for row in zip(documents, draws, strict=True)
    ]
    flat = [i for document in expected for i in document]
    size = sum(map(len, documents)) + 3 * len(documents)
    cut = partial(fim, rate=rate, spm_rate=spm_rate)
    exact, filled = cut(ragged, draws), cut(ragged, draws, size=size)
    assert exact.ids.tolist() == filled.ids[: len(flat)].tolist() == flat
    assert filled.ids.shape == (size,)
    assert not filled.ids[len(flat) :].any()
    assert (
        exact.row_splits.tolist()
        == filled.row_splits.tolist()
        == np.cumsum([0, *map(len, expected)]).tolist()
    )


def test_columns_go_with_their_tokens():
    documents = [[11, 12, 13, 14], [21, 22]]
    draws = np.float32([[0, 0.9, 0.3, 0.7], [0, 0, 0, 0]])
    cut = fim(full_ragged(documents), draws)
    assert cut.ids.tolist() == [PRE, 11, SUF, 14, MID, 12, 13, 21, 22]
    assert cut.word_ids.tolist() == [-1, 0, -1, 3, -1, 1, 2, 0, 1]
    assert cut.offsets[:, 0].tolist() == [0, 1, 0, 4, 0, 2, 3, 1, 2]
    assert cut.special_tokens_mask.tolist() == [1, 0, 1, 1, 1, 1, 0, 0, 1]
    assert cut.token_type_ids.tolist() == [0, 5, 0, 8, 0, 6, 7, 5, 6]
    assert cut.sequence_ids.tolist() == [-1, 0, -1, 0, -1, 0, 0, 0, 0]


def test_orders_and_cuts_over_many_draws():
    """Three tokens are cut at two of four places, of which ten pairs are told apart."""
    n = 20_000
    ragged = tokjax.ragged_from_rows([[1, 2, 3]] * n)
    draws = tokjax.draw_uniform(np.random.default_rng(0), (n, 4))
    for spm_rate, order in ((0, psm_order), (1, spm_order)):
        cut = fim(ragged, draws, rate=0.9, spm_rate=spm_rate)
        rows = np.split(cut.ids, cut.row_splits[1:-1])
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
    spm = (both.ids.reshape(n, 6)[:, 1] == SUF) & (draws[:, 2:].min(1) >= 0.25)  # where PSM has a token
    assert abs(spm.sum() - 0.25 * 0.75**2 * n) < 4 * (0.25 * 0.75**2 * n) ** 0.5


def psm_order(prefix, middle, suffix):
    return [PRE, *prefix, SUF, *suffix, MID, *middle]


def spm_order(prefix, middle, suffix):
    return [PRE, SUF, *suffix, MID, *prefix, *middle]


def test_sizes_under_jit():
    ragged = jax.tree.map(jnp.asarray, tokjax.ragged_from_rows([[1, 2, 3, 4], [5, 6, 7]]))
    draws = jnp.zeros((2, 4))
    with pytest.raises(tokjax.InvalidArgumentError, match="not known under jax.jit; pass size=NUMBER"):
        jax.jit(fim)(ragged, draws)
    with pytest.raises(tokjax.InvalidArgumentError, match="size is 12, and the documents have 13 ids now"):
        fim(ragged, draws, size=12)
    short = jax.jit(partial(fim, size=9))(ragged, draws)
    assert short.row_splits.tolist() == [0, 7, 9]
    assert short.ids.tolist() == [PRE, SUF, 1, 2, 3, 4, MID, PRE, SUF]


def test_documents_before_packing():
    ragged = tokjax.ragged_from_rows([[1, 2, 3, 4], [5, 6, 7]])
    cut = fim(ragged, np.float32([[0, 0.9, 0.5, 0.5], [0.9, 0, 0, 0]]))
    packed = tokjax.pack_blocks(cut, block_size=12, pad_id=0, eos_id=9)
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
def test_fill_in_the_middle_refuses(options, message):
    with pytest.raises(tokjax.InvalidArgumentError, match=message):
        fim(tokjax.ragged_from_rows([[1]]), np.zeros((1, 4), np.float32), **options)


# Fine-tuning


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(0, 6))
def test_completion_loss_mask(lengths, width):
    mask = agree(lambda n: tokjax.completion_loss_mask(n, width), np.array(lengths, np.int32))
    assert mask.tolist() == [[int(i >= n) for i in range(width)] for n in lengths]


templates = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@given(st.data(), st.integers(0, 3), st.integers(0, 12), templates, templates)
def test_assistant_loss_mask(data, batch, length, start, end):
    ids = data.draw(integer_arrays((batch, length), 0, 2))
    found = tokjax.assistant_loss_mask(ids, start_ids=start, end_ids=end)
    assert found.tolist() == [oracle.assistant_mask(row, start, end) for row in ids.tolist()]


def test_only_answers_are_labels():
    im_start, user, assistant, newline, im_end = 1, 2, 3, 4, 5
    ids = np.array([[im_start, user, newline, 11, im_end, im_start, assistant, newline, 21, 22, im_end, 0]])
    mask = tokjax.assistant_loss_mask(ids, start_ids=[im_start, assistant, newline], end_ids=[im_end])
    labels = tokjax.causal_lm_labels(ids, ids, loss_mask=mask)
    assert labels[labels != -100].tolist() == [21, 22, im_end]
    prompt = tokjax.causal_lm_labels(ids, ids, loss_mask=tokjax.completion_loss_mask(np.array([8]), 12))
    assert prompt.tolist() == labels.tolist()


def test_templates_are_refused():
    for wrong in ([], [[1]]):
        with pytest.raises(tokjax.InvalidArgumentError, match="start_ids must be at least one id, shape"):
            tokjax.assistant_loss_mask(np.array([1]), start_ids=wrong, end_ids=[1])
    with pytest.raises(tokjax.InvalidArgumentError, match="end_ids must be integers"):
        tokjax.assistant_loss_mask(np.array([1]), start_ids=[1], end_ids=["a"])


# In JAX. Each case has one shape, and its function is one object, so that it is compiled once.


def masked_by_all(ids, draws, special, mask, words, sequences):
    masks = {"special_tokens_mask": special, "attention_mask": mask}
    found = tokjax.masked_lm(
        ids, draws, mask_id=MASK, vocab_size=VOCABULARY, probability=0.5, word_ids=words, **masks
    )
    pool = {"replacement_ids": words, "sequence_ids": sequences} if ids.ndim == 1 else {"vocab_size": 50_257}
    return found, tokjax.masked_lm(ids, draws, mask_id=MASK, probability=0.9, mask_share=0.1, **masks, **pool)


ANSWERS = partial(tokjax.assistant_loss_mask, start_ids=[1, 1], end_ids=[0, 2])
IN_JAX = {
    "masked": (
        masked_by_all,
        [draw_arrays((2, 3, 6)) if i == 1 else integer_arrays((2, 6), 0, 1) for i in range(6)],
    ),
    "masked row": (
        masked_by_all,
        [draw_arrays((3, 6)) if i == 1 else integer_arrays((6,), -1, 1) for i in range(6)],
    ),
    "prefix": (
        tokjax.prefix_lm,
        [integer_arrays((3, 5), 0, 9), integer_arrays((3, 5), 0, 1), draw_arrays((3,))],
    ),
    "answers": (ANSWERS, [integer_arrays((2, 9), 0, 2)]),
}


@pytest.mark.parametrize("case", IN_JAX)
@settings(max_examples=30)
@given(data=st.data())
def test_objectives_are_the_same_in_jax(case, data):
    function, strategies = IN_JAX[case]
    arrays = [data.draw(strategy) for strategy in strategies]
    agree_in_jax(function, function(*arrays), arrays)


fim_of_size = partial(fim, size=19, rate=0.8)


@settings(max_examples=30)
@given(draws=draw_arrays((4, 4)))
def test_the_middle_is_the_same_in_jax(draws):
    ragged = full_ragged([[1, 2, 3, 4, 5], [], [6, 7], [8, 9, 10]])
    filled = jax.tree.map(lambda column: column.astype(np.int32), ragged)
    agree_in_jax(fim_of_size, fim_of_size(filled, draws), (filled, draws))


def test_objectives_shard_over_devices():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 50, (8, 32)), rng.integers(0, 2, (8, 32))
    hide = partial(tokjax.masked_lm, mask_id=99, vocab_size=50)
    corrupt = partial(
        tokjax.denoising_mixture,
        denoisers=tokjax.UL2_DENOISERS,
        sentinel_ids=range(100, 120),
        eos_id=60,
        pad_id=61,
    )
    cases = [
        (lambda i, m, d: hide(i, d, special_tokens_mask=m), (8, 3, 32)),
        (corrupt, (8, 33)),
        (tokjax.prefix_lm, (8,)),
    ]
    for function, shape in cases:
        arrays = (ids.astype(np.int32), mask.astype(np.int32), tokjax.draw_uniform(rng, shape))
        expected = function(*arrays)
        found = jax.jit(function, in_shardings=sharding)(*jax.device_put(arrays, sharding))
        for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
            assert left.tolist() == right.tolist()
            assert len(right.sharding.device_set) == 4


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0), (2, 2, 3)])
def test_the_edges_in_jax(shape):
    """Shapes with a zero, no or two axes of rows in them."""
    *rows, length = shape
    rng = np.random.default_rng(0)
    ids = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    mask = np.ones_like(ids)
    answers = partial(tokjax.assistant_loss_mask, start_ids=[1], end_ids=[2])
    agree_in_jax(answers, answers(ids), (ids,))
    for function, draw_shape in [
        (
            lambda i, m, d: tokjax.masked_lm(i, d, mask_id=1, vocab_size=9, special_tokens_mask=m),
            (3, length),
        ),
        (
            lambda i, m, d: tokjax.masked_lm(
                i, d, mask_id=1, vocab_size=9, special_tokens_mask=1 - m, word_ids=i, sequence_ids=m
            ),
            (3, length),
        ),
        (tokjax.prefix_lm, ()),
        (
            partial(tokjax.span_corruption, sentinel_ids=[77, 78, 79], eos_id=5, pad_id=6, noise_density=0.5),
            (length,),
        ),
    ]:
        arrays = (ids, mask, tokjax.draw_uniform(rng, (*rows, *draw_shape)))
        agree_in_jax(function, function(*arrays), arrays)
