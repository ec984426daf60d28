"""Compliance check for array functions: equal results in NumPy, eager JAX, `jit` and `vmap`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def check_array_function(function: Callable[..., Any], *arrays: Any) -> None:
    """Checks that the results of a function are bit-identical in NumPy, in eager JAX, under `jit` and `vmap`.

    All array functions of `tokjax` guarantee this. Run the check on a custom one, such as an objective that
    is a function of ids and random draws.

    Args:
        function: function of arrays or pytrees of arrays that returns a pytree of arrays. Bind its other
            arguments with `functools.partial`.
        *arrays: arguments of the function: NumPy arrays of any shapes, or pytrees of them.

    Raises:
        AssertionError: the function modifies its arguments, returns NumPy arrays for JAX arrays or the
            reverse, or its result differs in structure, shape, dtype or value; the message names the case.
            Note that JAX has no `int64` and `float64` by default, so the function must not return them.
            Errors of the function are not caught.

    >>> check_array_function(lambda ids: ids[..., ::-1], np.arange(6, dtype=np.int32).reshape(2, 3))
    """
    import jax  # noqa: PLC0415 (`import tokjax.testing` loads no JAX)
    import jax.numpy as jnp  # noqa: PLC0415

    for index, leaf in enumerate(jax.tree.leaves(arrays)):
        assert isinstance(leaf, np.ndarray), (
            f"array {index} is a {type(leaf).__name__}, not a NumPy array; bind other arguments with "
            "functools.partial"
        )
    before = jax.tree.map(np.copy, arrays)
    expected = function(*arrays)
    assert jax.tree.leaves(expected), f"the function returns no arrays, but {expected!r:.80}"
    check_same("the arguments after the call", before, arrays, np.ndarray)
    check_same("NumPy, second call", expected, function(*arrays), (np.ndarray, np.generic))
    device_arrays = jax.tree.map(jnp.asarray, arrays)
    check_same("eager JAX", expected, function(*device_arrays), jax.Array)
    check_same("jax.jit", expected, jax.jit(function)(*device_arrays), jax.Array)
    stacked = jax.tree.map(lambda array: jnp.stack([array, array]), device_arrays)
    mapped = jax.jit(jax.vmap(function))(*stacked)
    for row in (0, 1):
        part = jax.tree.map(lambda array: array[row], mapped)  # noqa: B023 (called here)
        check_same("jax.vmap", expected, part, jax.Array)


def check_same(case: str, expected: Any, actual: Any, array_type: Any) -> None:
    """Checks that two pytrees have the same structure, shapes, dtypes and values.

    Args:
        case: description of the compared operation, for error messages.
        expected: expected pytree.
        actual: pytree to check.
        array_type: required type of the arrays in `actual`, as in `isinstance`.

    Raises:
        AssertionError: the pytrees differ.
    """
    import jax  # noqa: PLC0415

    expected_structure, structure = jax.tree.structure(expected), jax.tree.structure(actual)
    assert str(expected_structure) == str(structure), (
        f"{case}: the structure is {structure}, not {expected_structure}"
    )
    leaves = zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True)
    for index, (left, right) in enumerate(leaves):
        label = f"{case}: array {index}"
        assert isinstance(right, array_type), f"{label} is a {type(right).__name__}"
        described = [f"{array.dtype}{list(array.shape)}" for array in (left, right)]
        assert described[0] == described[1], f"{label} is {described[1]}, not {described[0]}"
        # Bytes are compared, so that `nan` equals itself and `0.0` differs from `-0.0`.
        same = np.asarray(left).tobytes() == np.asarray(right).tobytes()
        assert same, f"{label} is {np.asarray(right)}, not {np.asarray(left)}"
