"""Tests of the noise spans of span corruption: equal random draws."""

import numpy as np
import pytest

from tokjax.objectives.denoising_batches import sample_noise


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
