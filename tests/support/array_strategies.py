"""Hypothesis strategies for arrays of random draws and of integers."""

import numpy as np
from hypothesis import strategies as st

shares = st.sampled_from([0.0, 0.1, 0.15, 0.5, 0.9, 1.0])


def draw_arrays(shape):
    """Draws random numbers in [0, 1), which are often equal to each other or to a common threshold."""
    thresholds = st.sampled_from([0.0, 0.1, 0.15, 0.5, 0.8, 0.9, 1 - 2**-24])
    uniform = st.integers(0, 2**24 - 1).map(lambda bits: bits / 2**24)
    size = int(np.prod(shape))
    return st.lists(thresholds | uniform, min_size=size, max_size=size).map(
        lambda values: np.array(values, np.float32).reshape(shape)
    )


def draw_integer_arrays(shape, minimum, maximum):
    size = int(np.prod(shape))
    return st.lists(st.integers(minimum, maximum), min_size=size, max_size=size).map(
        lambda values: np.array(values, np.int32).reshape(shape)
    )
