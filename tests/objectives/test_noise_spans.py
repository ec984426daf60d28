"""Tests of the noise spans of span corruption: equal random draws, and exact lengths."""

import numpy as np
import pytest

import tokjax
from tokjax.objectives.noise_spans import sample_noise


@pytest.mark.parametrize("minimum", [0.5, 0.1])
def test_equal_draws_give_the_requested_number_of_spans(minimum):
    draws, lengths = np.full((1, 12), 0.5, np.float32), np.array([12], np.int32)
    draws[0, [1, -2]] = minimum
    tokens, spans = np.array([6], np.int32), np.array([3], np.int32)
    [noise] = sample_noise(draws, lengths, tokens, spans, max_counts=(12, 12)).tolist()
    assert sum(noise) == 6
    assert (
        sum(current and not previous for previous, current in zip([False, *noise], noise, strict=False)) == 3
    )
    assert (noise[0], noise[-1]) == (False, True)


def test_exact_lengths_are_accepted():
    ids, draws = np.ones((1, 20), np.int32), np.full((1, 20), 0.3, np.float32)
    options = {"sentinel_ids": [9, 8, 7], "eos_id": 2, "pad_id": 0, "noise_density": 0.5}
    batch = tokjax.objectives.span_corruption(ids, ids, draws, **options)
    (_, inputs), (_, targets) = batch.inputs.shape, batch.targets.shape
    repeated = tokjax.objectives.span_corruption(
        ids, ids, draws, **options, inputs_length=inputs, targets_length=targets
    )
    assert repeated.inputs.tolist() == batch.inputs.tolist()
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=f"inputs_length is {inputs - 1}, and .* can need"
    ):
        tokjax.objectives.span_corruption(ids, ids, draws, **options, inputs_length=inputs - 1)
