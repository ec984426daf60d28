"""The contract of functions of arrays: the same in NumPy and in JAX, however JAX runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def check_array_function(function: Callable[..., Any], *arrays: Any) -> None:
    """Check that a function gives the same to the bit in NumPy, in eager JAX, under `jit` and under `vmap`.

    That is what all functions of `tokjax` over arrays promise, and what makes one of your own fit beside
    them: an objective, say, that is a function of ids and draws.

    Args:
        function: takes arrays, and pytrees of arrays, and gives a pytree of them. What is not an array has to
            be bound to it before (`functools.partial`).
        *arrays: what it is called with: NumPy arrays of any shapes, or pytrees of them.

    Raises:
        AssertionError: it changes what it is given, gives another kind of array than it is given, or gives
            another structure, shape, dtype or value in one of the ways to run it; the message says which.
            (So it must give no `int64` or `float64`, which JAX has not unless it is told to.) Errors of its
            own go through.

    >>> check_array_function(lambda ids: ids[..., ::-1], np.arange(6, dtype=np.int32).reshape(2, 3))
    """
    import jax  # noqa: PLC0415 (`import tokjax.testing` loads no JAX)
    import jax.numpy as jnp  # noqa: PLC0415

    for index, leaf in enumerate(jax.tree.leaves(arrays)):
        assert isinstance(leaf, np.ndarray), (
            f"array {index} is a {type(leaf).__name__}, not an array of NumPy; bind what is no array"
        )
    before = jax.tree.map(np.copy, arrays)
    expected = function(*arrays)
    assert jax.tree.leaves(expected), f"it gives no array, but {expected!r:.80}"
    check_same("what it was given, after the call", before, arrays, np.ndarray)
    check_same("NumPy, called again", expected, function(*arrays), (np.ndarray, np.generic))
    device_arrays = jax.tree.map(jnp.asarray, arrays)
    check_same("eager JAX", expected, function(*device_arrays), jax.Array)
    check_same("jax.jit", expected, jax.jit(function)(*device_arrays), jax.Array)
    stacked = jax.tree.map(lambda array: jnp.stack([array, array]), device_arrays)
    mapped = jax.jit(jax.vmap(function))(*stacked)
    for row in (0, 1):
        part = jax.tree.map(lambda array: array[row], mapped)  # noqa: B023 (called here)
        check_same("jax.vmap", expected, part, jax.Array)


def check_same(way: str, expected: Any, found: Any, kind: Any) -> None:
    """Checks that two pytrees have the same structure, shapes, dtypes and values, and arrays of one kind."""
    import jax  # noqa: PLC0415

    wanted, structure = jax.tree.structure(expected), jax.tree.structure(found)
    assert str(wanted) == str(structure), f"{way}: the structure is {structure}, not {wanted}"
    leaves = zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True)
    for index, (left, right) in enumerate(leaves):
        what = f"{way}: array {index}"
        assert isinstance(right, kind), f"{what} is a {type(right).__name__}"
        described = [f"{array.dtype}{list(array.shape)}" for array in (left, right)]
        assert described[0] == described[1], f"{what} is {described[1]}, not {described[0]}"
        same = np.asarray(left).tobytes() == np.asarray(right).tobytes()
        assert same, f"{what} is {np.asarray(right)}, not {np.asarray(left)}"
