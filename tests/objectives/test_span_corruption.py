"""Tests of span corruption and of denoiser mixtures, against an oracle and the definitions of T5."""

import math
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import objectives as oracle
from tests.support.array_strategies import draw_arrays, draw_integer_arrays
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.numpy_jax_agreement import assert_agrees_in_jax
from tests.support.rejections import rejects
from tokjax.objectives import Denoiser

EOS, PAD, START = 50, 51, 52
SENTINELS = list(range(100, 80, -1))
corrupt = partial(tokjax.objectives.span_corruption, sentinel_ids=SENTINELS, eos_id=EOS, pad_id=PAD)
mix = partial(tokjax.objectives.denoising_mixture, sentinel_ids=SENTINELS, eos_id=EOS, pad_id=PAD)

densities = st.sampled_from([0.0, 0.15, 0.3, 0.5, 0.9, 0.999, 1.0])
span_lengths = st.sampled_from([1.0, 1.5, 2.0, 3.0, 64.0])


def check_rows(batch, rows):
    """Checks that the batch holds these inputs and targets, and padding after them."""
    for i, (inputs, targets) in enumerate(rows):
        for sequence, ids, mask in (
            (inputs, batch.inputs[i], batch.inputs_mask[i]),
            (targets, batch.targets[i], batch.targets_mask[i]),
        ):
            rest = len(ids) - len(sequence)
            assert ids.tolist() == sequence + [PAD] * rest
            assert mask.tolist() == [1] * len(sequence) + [0] * rest
        assert batch.decoder_inputs[i, 1:].tolist() == batch.targets[i, :-1].tolist()


def get_tokens(ids, mask):
    return [id_ for id_, valid in zip(ids, mask, strict=True) if valid]


@given(st.data(), st.integers(0, 3), st.integers(0, 14), densities, span_lengths)
def test_span_corruption(data, batch, length, density, span_length):
    ids, mask = (data.draw(draw_integer_arrays((batch, length), 0, maximum)) for maximum in (9, 1))
    draws = data.draw(draw_arrays((batch, length)))
    options = {"noise_density": density, "mean_noise_span_length": span_length}
    actual = corrupt(ids, mask, draws, **options)
    lengths = tokjax.objectives.span_corruption_lengths(length, **options)
    assert actual.inputs.shape == (batch, lengths.inputs_length)
    assert actual.targets.shape == (batch, lengths.targets_length)
    texts = [get_tokens(*row) for row in zip(ids.tolist(), mask.tolist(), strict=True)]
    kinds, zeros = [Denoiser(density, span_length)], np.zeros((batch, 1), np.float32)
    mixture = mix(ids, mask, np.concatenate([draws, zeros], axis=1), denoisers=kinds)
    assert all(map(np.array_equal, actual[:5], mixture[:5]))
    for i, text in enumerate(texts):
        if text:
            inputs = get_tokens(actual.inputs[i].tolist(), actual.inputs_mask[i])
            targets = get_tokens(actual.targets[i].tolist(), actual.targets_mask[i])
            assert oracle.recombine(inputs, targets, SENTINELS, EOS) == text


mix_two = partial(mix, denoisers=[Denoiser(0.3, 2, mode_id=60), Denoiser(0, None)])


@get_max_examples(30)
@given(draw_integer_arrays((2, 9), 0, 9), draw_integer_arrays((2, 9), 0, 1), draw_arrays((2, 10)))
def test_numpy_and_jax_agree(ids, mask, draws):
    """Has one shape and one set of options, so that JAX compiles it once for all examples."""
    assert_agrees_in_jax(mix_two, mix_two(ids, mask, draws), (ids, mask, draws))


def test_wider_outputs_are_padded():
    ids = np.array([[1, 2, 3, 4]])
    draws = np.zeros((1, 4), np.float32)
    short = corrupt(ids, ids, draws, decoder_start_id=START)
    long = corrupt(ids, ids, draws, decoder_start_id=START, inputs_length=9, targets_length=8)
    assert long.inputs.tolist() == [short.inputs[0].tolist() + [PAD] * 4]
    assert long.targets.tolist() == [short.targets[0].tolist() + [PAD] * 5]
    assert long.targets_mask.sum() == short.targets_mask.sum()
    assert long.decoder_inputs[0, :3].tolist() == [START, *short.targets[0, :2].tolist()]


def test_all_noise_masks_are_equally_likely():
    """Four of eight tokens are noise, in two spans. There are nine such masks."""
    n = 18_000
    ids = np.tile(np.arange(8, dtype=np.int32), (n, 1))
    draws = tokjax.objectives.draw_uniform(np.random.default_rng(0), ids.shape)
    actual = corrupt(ids, np.ones_like(ids), draws, noise_density=0.5, mean_noise_span_length=2)
    counts = Counter(map(tuple, actual.inputs.tolist()))
    assert len(counts) == 9
    assert all(abs(count - n / 9) < 4 * (n / 9) ** 0.5 for count in counts.values())


@pytest.mark.parametrize(
    ("density", "span_length"), [(0.15, 3.0), (0.15, 8.0), (0.5, 3.0), (0.5, 64.0), (0.3, 2.5)]
)
def test_lengths_equal_those_of_t5(density, span_length):
    options = {"noise_density": density, "mean_noise_span_length": span_length}
    minimum = int(span_length / density)  # T5's helper counts no spans below this, but its mask has one
    for inputs_length in (*range(minimum, minimum + 100), 512, 1024, 4096):
        actual = tokjax.objectives.compute_input_and_target_lengths(inputs_length, **options)
        tokens, targets = oracle.t5_random_spans_helper(inputs_length, density, span_length, np.float32)
        assert actual.tokens_length == tokens
        assert targets - actual.targets_length in ({0, 1} if density == 0.5 else {0})
        assert actual == tokjax.objectives.span_corruption_lengths(actual.tokens_length, **options)
        assert actual.inputs_length <= inputs_length


@given(st.integers(3, 40), st.sampled_from([0.0, 0.1, 0.15, 0.5, 0.8]), span_lengths)
def test_computed_length_is_the_maximum_that_fits(inputs_length, density, span_length):
    options = {"noise_density": density, "mean_noise_span_length": span_length}
    actual = tokjax.objectives.compute_input_and_target_lengths(inputs_length, **options)
    fitting = [
        n
        for n in range(40 * inputs_length)
        if tokjax.objectives.span_corruption_lengths(n, **options).inputs_length <= inputs_length
    ]
    assert max(fitting) - actual.tokens_length in ({0, 1} if density == 0.5 else {0})


def test_lengths_reject_invalid_arguments():
    with rejects("inputs_length must be at least 3, not 2"):
        tokjax.objectives.compute_input_and_target_lengths(2)
    with rejects("tokens fit inputs_length=512; choose"):
        tokjax.objectives.compute_input_and_target_lengths(512, noise_density=1)
    with rejects("tokens_length must be at least 0, not -1"):
        tokjax.objectives.span_corruption_lengths(-1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_density": 1.1}, "noise_density must be a number, from 0 to 1, not 1.1"),
        ({"mean_noise_span_length": 0.5}, "mean_noise_span_length must be .* at least 1, not 0.5"),
        ({"mean_noise_span_length": None}, "mean_noise_span_length must be .* at least 1, not None"),
        (
            {"mean_noise_span_length": math.inf},
            "must be a number, at least 1, not inf",
        ),
        ({"eos_id": None}, "eos_id is None"),
        ({"pad_id": 2**31}, "pad_id is 2147483648"),
        ({"decoder_start_id": 1.5}, "decoder_start_id must be an integer"),
        (
            {"sentinel_ids": []},
            r"rows of 40 tokens can have 2 noise spans, .* has shape \(0,\)",
        ),
        ({"sentinel_ids": [7]}, "pass at least 2 sentinel ids, shorter rows, or a larger mean_noise"),
        ({"sentinel_ids": [[7, 8]]}, r"has shape \(1, 2\)"),
        ({"inputs_length": 36}, "inputs_length is 36, and rows of 40 tokens can need 37; pass at least"),
        ({"targets_length": 8}, "targets_length is 8, and rows of 40 tokens can need 9.*compute_input_and"),
        ({"targets_length": 0}, "targets_length is 0"),
    ],
)
def test_span_corruption_rejects_invalid_arguments(options, message):
    ids, draws = jnp.ones((1, 40), jnp.int32), jnp.zeros((1, 40))
    for function in (partial(corrupt, **options), jax.jit(partial(corrupt, **options))):
        with rejects(message):
            function(ids, ids, draws)


def test_mismatched_shapes_are_rejected():
    ids, draws = np.ones((2, 3), int), np.zeros((2, 3), np.float32)
    with rejects(r"attention_mask has shape \(3,\)"):
        corrupt(ids, ids[0], draws)
    with rejects(r"float32 of shape \(2, 4\), not"):
        mix(ids, ids, draws, denoisers=[Denoiser(0.15, 3)])


# Mixtures

denoisers = st.builds(
    Denoiser,
    noise_density=densities,
    mean_noise_span_length=st.none() | span_lengths,
    weight=st.sampled_from([0.5, 1.0, 3.0]),
    mode_id=st.none() | st.integers(60, 63),
)


def choose_denoiser(draw, kinds):
    """Returns the index of the first denoiser whose cumulative share of the weights is more than the draw."""
    total = sum(kind.weight for kind in kinds)
    return next(
        i
        for i in range(len(kinds))
        if i == len(kinds) - 1 or draw < np.float32(sum(kind.weight for kind in kinds[: i + 1]) / total)
    )


@given(st.data(), st.integers(0, 3), st.integers(0, 10), st.lists(denoisers, min_size=1, max_size=4))
def test_denoising_mixture(data, batch, length, kinds):
    ids, mask = (data.draw(draw_integer_arrays((batch, length), 0, maximum)) for maximum in (9, 1))
    draws = data.draw(draw_arrays((batch, length + 1)))
    actual = mix(ids, mask, draws, denoisers=kinds, decoder_start_id=START)
    chosen = [choose_denoiser(row[-1], kinds) for row in draws]
    assert actual.denoisers.tolist() == chosen
    rows = [
        oracle.corrupt_row(
            get_tokens(*row[:2]),
            row[2][:-1],
            kind.noise_density,
            kind.mean_noise_span_length or math.inf,
            SENTINELS,
            EOS,
            kind.mode_id,
        )
        for row, kind in zip(
            zip(ids.tolist(), mask.tolist(), draws, strict=True), (kinds[i] for i in chosen), strict=True
        )
    ]
    check_rows(actual, rows)
    assert (actual.decoder_inputs[:, 0] == START).all()


def test_ul2_denoisers():
    """Those of table 1 of the paper: the mean length of spans, and the share of noise."""
    kinds = [(kind.mean_noise_span_length, kind.noise_density) for kind in tokjax.objectives.UL2_DENOISERS]
    assert kinds == [(3, 0.15), (8, 0.15), (None, 0.25), (3, 0.5), (8, 0.5), (64, 0.15), (64, 0.5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.5, 3), "noise_density must be a number, from 0 to 1, not 1.5"),
        ((0.5, 0), "mean_noise_span_length must be a number, at least 1, not 0"),
        ((0.5, 3, 0), "weight must be more than 0; omit"),
        ((0.5, 3, -1), "weight must be a number, at least 0, not -1"),
        ((0.5, 3, 1, "R"), "mode_id must be an integer, not 'R'"),
    ],
)
def test_denoisers_reject_invalid_arguments(arguments, message):
    with rejects(message):
        Denoiser(*arguments)


def test_mixtures_reject_invalid_arguments():
    ids, draws = np.ones((1, 3), int), np.zeros((1, 4), np.float32)
    with rejects("denoisers is empty; pass at least one"):
        mix(ids, ids, draws, denoisers=[])
    with rejects(r"and \(0.15, 3\) is not a Denoiser"):
        mix(ids, ids, draws, denoisers=[(0.15, 3)])
    with rejects("inputs_length is 4, .* can need 5"):
        mix(ids, ids, draws, denoisers=[Denoiser(0.15, 3), Denoiser(0.15, 3, mode_id=4)], inputs_length=4)
