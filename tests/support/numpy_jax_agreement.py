"""One function in NumPy, eager JAX, jit and vmap: the results must be the same to the bit."""

import zlib
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from tests.support.hypothesis_profiles import is_thorough

EXAMPLES_PER_COMPILATION = 16
EXAMPLES_PER_EAGER_RUN = 64
"""Eager JAX compiles each operation by itself for each new shape, a tenth of a second each."""


def assert_same(expected, actual, kind):
    """Equal in structure, kind, dtype and every value."""
    assert jax.tree.structure(expected) == jax.tree.structure(actual)
    for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        assert isinstance(right, kind)
        assert left.dtype == right.dtype == np.int32
        assert left.shape == right.shape
        assert np.asarray(left).tolist() == np.asarray(right).tolist()


def assert_agrees(function, *arrays):
    """Run one function on NumPy arrays, then on JAX arrays: eager, jitted and vmapped.

    JAX compiles for half a second an example, so it is run on some of them, chosen by their contents.
    """
    expected = function(*arrays)
    for leaf in jax.tree.leaves(expected):
        assert isinstance(leaf, (np.ndarray, np.generic))
    contents = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(arrays))
    drawn = zlib.crc32(contents)
    if drawn % EXAMPLES_PER_COMPILATION == 0:
        assert_agrees_in_jax(function, expected, arrays, eager=drawn % EXAMPLES_PER_EAGER_RUN == 0)
    return expected


@lru_cache(maxsize=16)  # (so that examples of one shape and function compile once)
def make_vmapped(function):
    """By itself, vmap would compile operation by operation."""
    return jax.jit(jax.vmap(function))


def assert_agrees_in_jax(function, expected, arrays, *, eager=None):
    """Eager JAX, which compiles each operation, runs in the thorough profile alone, unless `eager` says."""
    moved = jax.tree.map(jnp.asarray, arrays)
    if is_thorough() if eager is None else eager:
        assert_same(expected, function(*moved), jax.Array)
    assert_same(expected, jax.jit(function)(*moved), jax.Array)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), moved)
    mapped = make_vmapped(function)(*stacked)
    assert_same(expected, jax.tree.map(lambda x: x[1], mapped), jax.Array)
