"""Compilation of eager calls with JAX arrays, each as one program."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from tokjax._util.arrays import is_jax, is_traced

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _ArrayLeaf:
    """Sentinel for leaves that are JAX arrays, in the static description of a call."""


def jit_eager(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a function so that an eager call with JAX arrays runs as one jitted program.

    Without it, eager JAX would compile each operation for each new shape, and copy each constant to the
    device, which `jax.transfer_guard("disallow")` forbids.

    | arguments | how the function runs |
    |---|---|
    | JAX arrays and hashable options | under `jax.jit`; arrays are traced, other arguments are static |
    | tracers | unchanged, as part of the program that is being traced |
    | NumPy arrays, or NumPy and JAX arrays together | unchanged; values are checked on the host |
    | an option that is not hashable | unchanged |

    Args:
        function: a function of pytrees of arrays and of options. Its checks must not read the values of JAX
            arrays.
    """

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not _has_jax_array((*args, *kwargs.values())):
            return function(*args, **kwargs)
        import jax  # noqa: PLC0415 (loaded already)

        leaves, structure = jax.tree.flatten((args, kwargs))
        if any(is_traced(leaf) or isinstance(leaf, np.ndarray) for leaf in leaves):
            return function(*args, **kwargs)
        # The key includes the type: 1, 1.0 and True are equal, but options are checked by their types.
        static = tuple((_ArrayLeaf, None) if is_jax(leaf) else (type(leaf), leaf) for leaf in leaves)
        try:
            hash(static)
        except TypeError:
            return function(*args, **kwargs)
        arrays = [leaf for leaf in leaves if is_jax(leaf)]
        result: Result = _get_jitted_call()(function, structure, static, arrays)
        return result

    return call


def _has_jax_array(values: tuple[Any, ...]) -> bool:
    """Returns whether a value is a JAX array, or a tuple (such as a batch) that contains one."""
    if "jax" not in sys.modules:
        return False
    return any(is_jax(value) or (isinstance(value, tuple) and _has_jax_array(value)) for value in values)


@functools.cache
def _get_jitted_call() -> Any:
    import jax  # noqa: PLC0415 (loaded already)

    def run(
        function: Callable[..., Any],
        structure: Any,
        static: tuple[tuple[type, Hashable], ...],
        arrays: list[Any],
    ) -> Any:
        traced = iter(arrays)
        leaves = [next(traced) if kind is _ArrayLeaf else value for kind, value in static]
        args, kwargs = jax.tree.unflatten(structure, leaves)
        return function(*args, **kwargs)

    return jax.jit(run, static_argnums=(0, 1, 2))
