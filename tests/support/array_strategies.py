"""Hypothesis strategies for the draws of objectives, and for the arrays beside them."""

import numpy as np
from hypothesis import strategies as st

shares = st.sampled_from([0.0, 0.1, 0.15, 0.5, 0.9, 1.0])


def draw_arrays(shape):
    """Draws of a shape, often equal to each other or to a bound."""
    some = st.sampled_from([0.0, 0.1, 0.15, 0.5, 0.8, 0.9, 1 - 2**-24])
    any_ = st.integers(0, 2**24 - 1).map(lambda bits: bits / 2**24)
    size = int(np.prod(shape))
    return st.lists(some | any_, min_size=size, max_size=size).map(
        lambda values: np.array(values, np.float32).reshape(shape)
    )


def draw_integer_arrays(shape, minimum, maximum):
    size = int(np.prod(shape))
    return st.lists(st.integers(minimum, maximum), min_size=size, max_size=size).map(
        lambda values: np.array(values, np.int32).reshape(shape)
    )
