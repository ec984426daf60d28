"""Tests that objectives agree in NumPy, eager JAX, jit and vmap, for empty shapes too."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.array_strategies import draw_arrays, draw_integer_arrays
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.numpy_jax_agreement import assert_agrees_in_jax
from tests.support.variants import mark_slow_except

# Each case has one shape and one function object, so that JAX compiles it once for all examples.


def apply_masking(ids, draws, special, mask, words, sequences):
    masks = {"special_tokens_mask": special, "attention_mask": mask}
    plain = tokjax.objectives.masked_lm(ids, draws, mask_id=50, vocab_size=50_257, probability=0.5, **masks)
    pool = {"replacement_ids": [30, 40, 50], "mask_share": 0.1, "random_share": 0.6}
    texts = {"word_ids": words, "sequence_ids": sequences}
    return plain, tokjax.objectives.masked_lm(
        ids, draws, mask_id=51, probability=0.9, **masks, **pool, **texts
    )


def add_noise(ids, mask, draws, rates, segments):
    """Masks with one rate per row, and with one per segment."""
    plain = tokjax.objectives.masked_diffusion(ids, mask, draws, rates[:, 0], mask_id=50)
    options = {"segment_ids": segments, "loss_mask": mask, "mask_id": 51, "ignore_index": -1}
    return plain, tokjax.objectives.masked_diffusion(ids, mask, draws, rates, **options)


def hash_ngrams(ids, segments):
    """Hashes with products beyond 2**32 and sums beyond 2**64, for small, large and prime tables."""
    options = {"multipliers": [2**64 - 59, 0x9E3779B97F4A7C15, 3_000_000_019], "pad_id": 128_000}
    tables = [(3, 1), (1, 97), (2, 2**16), (3, 2**31 - 1)], [(2, 646_403), (3, 2**30 + 3)]
    return [
        tokjax.objectives.ngram_hash_ids(ids, tables=tables[0], segment_ids=segments, **options),
        tokjax.objectives.ngram_hash_ids(ids, tables=tables[1], combine="add", **options),
    ]


def measure_bits(nll, labels):
    num_bytes = tokjax.objectives.label_byte_lengths(labels, np.arange(7), ignore_index=-1)
    flat = nll.reshape(-1), num_bytes.reshape(-1)
    return num_bytes, tokjax.objectives.bits_per_byte(nll, num_bytes), tokjax.objectives.bits_per_byte(*flat)


def apply_all(ids, mask, draws, rates, word_draws):
    num_bytes = tokjax.objectives.label_byte_lengths(ids, np.arange(20))
    words = {"special_tokens_mask": 1 - mask, "word_ids": ids, "sequence_ids": mask}
    sentinels = {"sentinel_ids": [77, 78, 79], "eos_id": 5, "pad_id": 6}
    return (
        ANSWERS(ids),
        tokjax.objectives.masked_lm(ids, word_draws, mask_id=1, vocab_size=9, **words),
        tokjax.objectives.prefix_lm(ids, mask, rates[..., 0]),
        tokjax.objectives.span_corruption(ids, mask, draws, noise_density=0.5, **sentinels),
        tokjax.multi_token_labels(ids, mask, 2, segment_ids=mask),
        tokjax.objectives.masked_diffusion(ids, mask, draws, rates, mask_id=1, segment_ids=mask),
        tokjax.objectives.masked_diffusion(ids, mask, draws, rates[..., 0], mask_id=1),
        tokjax.objectives.ngram_hash_ids(ids, tables=[(2, 9)], multipliers=[3, 5], pad_id=0),
        num_bytes,
        tokjax.objectives.bits_per_byte(draws, num_bytes),
    )


LOSSES = st.lists(st.floats(0, 40, width=32, allow_subnormal=False), min_size=39, max_size=39).map(
    lambda values: np.array(values, np.float32).reshape(3, 13)
)
ANSWERS = partial(tokjax.objectives.assistant_loss_mask, start_ids=[1, 1], end_ids=[0, 2])
IN_JAX = {
    "masked": (
        apply_masking,
        [draw_arrays((2, 3, 6)) if i == 1 else draw_integer_arrays((2, 6), -1, 1) for i in range(6)],
    ),
    "prefix": (
        tokjax.objectives.prefix_lm,
        [draw_integer_arrays((3, 5), 0, 9), draw_integer_arrays((3, 5), 0, 1), draw_arrays((3,))],
    ),
    "answers": (ANSWERS, [draw_integer_arrays((2, 9), 0, 2)]),
    "diffusion": (
        add_noise,
        [
            draw_integer_arrays((2, 7), 0, 9),
            draw_integer_arrays((2, 7), 0, 1),
            draw_arrays((2, 7)),
            draw_arrays((2, 3)),
            draw_integer_arrays((2, 7), 0, 3),
        ],
    ),
    "n-grams": (hash_ngrams, [draw_integer_arrays((2, 6), 0, 2**31 - 1), draw_integer_arrays((2, 6), 0, 1)]),
    "bits per byte": (measure_bits, [LOSSES, draw_integer_arrays((3, 13), -1, 6)]),
}
WITH_FLOATS = {"diffusion", "bits per byte"}


@pytest.mark.parametrize("case", IN_JAX)
@get_max_examples(20)
@given(data=st.data())
def test_objectives_agree_in_jax(case, data):
    function, strategies = IN_JAX[case]
    arrays = [data.draw(strategy) for strategy in strategies]
    dtypes = (np.int32, np.float32) if case in WITH_FLOATS else (np.int32,)
    assert_agrees_in_jax(function, function(*arrays), arrays, dtypes=dtypes)


MIDDLE_LAST = partial(
    tokjax.objectives.fill_in_the_middle, prefix_id=101, middle_id=102, suffix_id=103, size=19, rate=0.8
)


@get_max_examples(20)
@given(draws=draw_arrays((4, 4)))
def test_fill_in_the_middle_agrees_in_jax(draws):
    column = np.arange(10, dtype=np.int32)
    ragged = tokjax.Ragged(
        column, np.array([0, 5, 5, 7, 10], np.int32), np.stack([column, column], 1), *[column] * 4
    )
    assert_agrees_in_jax(MIDDLE_LAST, MIDDLE_LAST(ragged, draws), (ragged, draws))


@pytest.mark.parametrize("shape", mark_slow_except([(0, 3), (3, 0), (1,), (2, 1, 3)], [(3, 0)]))
def test_empty_and_unbatched_shapes_agree_in_jax(shape):
    """Tests shapes without tokens, without rows, and with no or two batch axes."""
    *rows, length = shape
    rng = np.random.default_rng(0)
    ids = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    draws = [tokjax.objectives.draw_uniform(rng, (*rows, *more)) for more in ((length,), (2,), (3, length))]
    arrays = (ids, np.ones_like(ids), *draws)
    assert_agrees_in_jax(apply_all, apply_all(*arrays), arrays, dtypes=(np.int32, np.float32))
