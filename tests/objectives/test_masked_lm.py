"""Tests of masked language modelling, against an oracle and transformers."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import objectives as oracle
from tests.support.array_strategies import draw_arrays, draw_integer_arrays, shares
from tests.support.rejections import rejects

MASK, VOCABULARY = 50, 20


def compute_expected(ids, draws, eligible, words, **options):
    rows = [
        oracle.mask_row(*row, {"mask_id": MASK, **options})
        for row in zip(ids.tolist(), draws, eligible, words, strict=True)
    ]
    return [row[0] for row in rows], [row[1] for row in rows]


@given(st.data(), st.integers(0, 3), st.integers(0, 8), shares, shares, shares, st.booleans())
def test_masked_lm(data, batch, length, probability, mask_share, random_share, has_words):
    shape = (batch, length)
    random_share = min(random_share, 1 - mask_share)
    options = {"probability": probability, "mask_share": mask_share, "random_share": random_share}
    draws = data.draw(draw_arrays((batch, 3, length)))
    ids, special, mask = (data.draw(draw_integer_arrays(shape, 0, maximum)) for maximum in (9, 1, 1))
    groups, pool = [[[i] for i in range(length)]] * batch, range(VOCABULARY)
    columns = {"vocab_size": VOCABULARY}
    if has_words:
        words, sequences = (data.draw(draw_integer_arrays(shape, *ends)) for ends in ((-1, 2), (0, 1)))
        groups = [oracle.group_words(*row) for row in zip(words.tolist(), sequences.tolist(), strict=True)]
        pool = [7, 3, 30]
        columns = {"replacement_ids": pool, "word_ids": words, "sequence_ids": sequences}
    expected = compute_expected(ids, draws, (special == 0) & (mask == 1), groups, pool=pool, **options)
    masks = {"special_tokens_mask": special, "attention_mask": mask}
    actual = tokjax.objectives.masked_lm(ids, draws, mask_id=MASK, **masks, **columns, **options)
    assert (actual.ids.tolist(), actual.labels.tolist()) == expected


class ReplayGenerator:
    """Generator for transformers' collator, which returns prescribed random numbers."""

    def __init__(self, trials, numbers):
        self.trials, self.numbers = trials, numbers

    def binomial(self, *trial, size):
        return (self.trials.pop(0) < trial[1]).astype(int).reshape(size)

    def integers(self, *, low, high, size, **_):
        assert (low, high) == (0, VOCABULARY)
        return self.numbers.reshape(size)


class FakeTokenizer:
    """Tokenizer of which transformers' collator needs the mask token and the size."""

    mask_token, mask_token_id = "[MASK]", MASK

    def __len__(self):
        return VOCABULARY


def test_masked_lm_agrees_with_transformers():
    transformers = pytest.importorskip("transformers")
    rng = np.random.default_rng(1)
    ids, special = rng.integers(0, VOCABULARY, (64, 128)), rng.integers(0, 2, (64, 128))
    draws = tokjax.objectives.draw_uniform(rng, (64, 3, 128))
    options = {"mask_id": MASK, "vocab_size": VOCABULARY, "probability": 0.25}
    ours = tokjax.objectives.masked_lm(ids, draws, special_tokens_mask=special, **options)
    choices, actions, numbers = np.moveaxis(draws.astype(np.float64), 1, 0)
    replaced = (ours.labels != -100) & (actions >= 0.8) & (actions < 0.9)
    assert replaced.sum() > 50
    collator = transformers.DataCollatorForLanguageModeling(
        FakeTokenizer(), mlm_probability=0.25, return_tensors="np"
    )
    trials = [choices, actions, (actions - 0.8) / 0.2]
    collator.generator = ReplayGenerator(trials, np.floor(numbers[replaced] * VOCABULARY))
    theirs = collator.numpy_mask_tokens(ids.copy(), special_tokens_mask=special)
    assert all(map(np.array_equal, ours, theirs))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_id": None}, r"mask_id is None: .* with tokjax\.with_roles\(tokenizer, mask_token=NAME\), or"),
        ({"ignore_index": 2**31}, "ignore_index is 2147483648"),
        ({"probability": 1.5}, "probability must be a number, from 0 to 1, not 1.5"),
        ({"mask_share": float("nan")}, "mask_share must be a number"),
        ({"mask_share": 0.9, "random_share": 0.2}, "are 0.9 and 0.2, more than 1 in total"),
        ({"vocab_size": None}, "pass either vocab_size or replacement_ids.*or random_share=0"),
        ({"replacement_ids": [1]}, "pass either vocab_size or replacement_ids"),
        ({"vocab_size": 0}, "vocab_size must be at least 1, not 0"),
        ({"vocab_size": None, "replacement_ids": []}, r"at least one id, .*, not shape \(0,\)"),
        ({"special_tokens_mask": [0, 0, 0]}, r"special_tokens_mask has shape \(3,\), and ids \(2,\)"),
        ({"attention_mask": [[0, 0]]}, r"attention_mask has shape \(1, 2\), and ids \(2,\)"),
        ({"word_ids": np.zeros(3, int)}, r"word_ids has shape \(3,\)"),
        ({"word_ids": np.zeros(2, int), "sequence_ids": np.zeros(1, int)}, r"sequence_ids has shape \(1,\)"),
    ],
)
def test_masked_lm_rejects_invalid_arguments(options, message):
    arguments = {"mask_id": 4, "vocab_size": 9, "special_tokens_mask": [0, 0], **options}
    with rejects(message):
        tokjax.objectives.masked_lm(np.array([1, 2]), np.zeros((3, 2), np.float32), **arguments)


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (np.zeros((3, 2)), r"float32 of shape \(3, 2\), not float64 of shape \(3, 2\); .*draw_uniform"),
        (
            np.zeros((2, 3), np.float32),
            r"not float32 of shape \(2, 3\); generate them with draw_uniform",
        ),
        (jnp.zeros((2, 3)), r"not float32 of shape \(2, 3\)"),
        (np.ones((3, 2), np.float32), "they are from 1.0 to 1.0"),
        (np.full((3, 2), -0.5, np.float32), "from 0 to 0.99999994, but they are from -0.5"),
        (np.full((3, 2), np.nan, np.float32), "from nan to nan"),
    ],
)
def test_invalid_draws_are_rejected(draws, message):
    with rejects(message):
        tokjax.objectives.masked_lm(
            np.array([1, 2]), draws, mask_id=4, vocab_size=9, special_tokens_mask=[0, 0]
        )


def test_scalar_ids_are_rejected():
    with rejects(r"ids must have shape \(..., length\), not \(\)"):
        tokjax.objectives.prefix_lm(np.int32(3), np.int32(1), np.float32(0))


@pytest.mark.parametrize("size", [1, 2, 50_257, 2**24, 2**24 + 3, 2**31 - 1])
def test_random_ids_are_below_vocab_size(size):
    """Two of the sizes, 2**24 + 3 and 2**31 - 1, are rounded up by float32."""
    draws = np.full((3, 1), 1 - 2**-24, np.float32)
    options = {"mask_share": 0, "random_share": 1, "special_tokens_mask": [0], "mask_id": 0}
    draws[0] = 0
    actual = tokjax.objectives.masked_lm(np.array([5]), draws, vocab_size=size, **options)
    assert size * (1 - 2**-22) - 1 <= actual.ids[0] < size
