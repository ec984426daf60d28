"""Assertions that a function returns bit-identical results in NumPy, eager JAX, jit and vmap."""

import zlib
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from tests.support.hypothesis_profiles import is_thorough

EXAMPLES_PER_COMPILATION = 16
EXAMPLES_PER_EAGER_RUN = 64
"""Eager JAX compiles each operation separately for each new shape, at a tenth of a second each."""


def assert_same(expected, actual, kind, dtypes=(np.int32,)):
    """Asserts that two pytrees have equal structures, shapes, dtypes and bits, and leaves of a type."""
    assert jax.tree.structure(expected) == jax.tree.structure(actual)
    for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        assert isinstance(right, kind)
        assert left.dtype == right.dtype
        assert left.dtype in dtypes
        assert left.shape == right.shape
        bits = [np.asarray(leaf).view(f"i{leaf.dtype.itemsize}").tolist() for leaf in (left, right)]
        assert bits[0] == bits[1]


def assert_agrees(function, *arrays, dtypes=(np.int32,)):
    """Runs a function on NumPy arrays, and asserts that eager, jitted and vmapped JAX return the same.

    JAX compiles for half a second per example. It therefore runs on a sample of the examples, selected by a
    hash of their contents.

    Returns:
        The result of NumPy.
    """
    expected = function(*arrays)
    for leaf in jax.tree.leaves(expected):
        assert isinstance(leaf, (np.ndarray, np.generic))
    contents = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(arrays))
    digest = zlib.crc32(contents)
    if digest % EXAMPLES_PER_COMPILATION == 0:
        eager = digest % EXAMPLES_PER_EAGER_RUN == 0
        assert_agrees_in_jax(function, expected, arrays, eager=eager, dtypes=dtypes)
    return expected


@lru_cache(maxsize=16)  # (examples of one shape and function compile once)
def make_vmapped(function):
    """Returns the function vmapped and jitted: without jit, vmap would compile each operation separately."""
    return jax.jit(jax.vmap(function))


def assert_agrees_in_jax(function, expected, arrays, *, eager=None, dtypes=(np.int32,)):
    """Asserts that jitted and vmapped JAX, and optionally eager JAX, return the expected result.

    Args:
        function: the function to run.
        expected: result of NumPy.
        arrays: arguments of the function.
        eager: whether to run eager JAX, which compiles each operation; by default only in the thorough
            profile.
        dtypes: dtypes that leaves of the result may have.
    """
    jax_arrays = jax.tree.map(jnp.asarray, arrays)
    if is_thorough() if eager is None else eager:
        assert_same(expected, function(*jax_arrays), jax.Array, dtypes)
    assert_same(expected, jax.jit(function)(*jax_arrays), jax.Array, dtypes)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), jax_arrays)
    mapped = make_vmapped(function)(*stacked)
    assert_same(expected, jax.tree.map(lambda x: x[1], mapped), jax.Array, dtypes)
