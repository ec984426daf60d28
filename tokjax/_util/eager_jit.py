"""Decorators of array functions: one program per eager call, and meshes with explicit axes."""

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

    On a mesh with explicit axes the function runs as `with_auto_axes` describes.

    Args:
        function: a function of pytrees of arrays and of options. Its checks must not read the values of JAX
            arrays.
    """
    function = with_auto_axes(function)

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


def with_auto_axes(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a function so that it accepts arrays that are sharded on a mesh with explicit axes.

    On such a mesh, JAX raises for each operation whose result has no obvious sharding: gathers, scans, slices
    of a sharded axis. The axes are therefore automatic inside of the function, and the compiler chooses how
    to shard. An axis of a result is sharded like the same axis of the first sharded argument if both have
    the same length, and replicated otherwise.

    Args:
        function: a function of pytrees of arrays and of options.
    """

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not _has_jax_array((*args, *kwargs.values())):
            return function(*args, **kwargs)
        import jax  # noqa: PLC0415 (loaded already)

        on_mesh = [leaf for leaf in jax.tree.leaves((args, kwargs)) if _is_on_explicit_mesh(leaf)]
        if not on_mesh:
            return function(*args, **kwargs)
        first = max(on_mesh, key=lambda leaf: any(jax.typeof(leaf).sharding.spec))
        mesh, spec = jax.typeof(first).sharding.mesh, jax.typeof(first).sharding.spec
        partition: Any = jax.sharding.PartitionSpec
        reshard: Any = jax.sharding.reshard

        def restore(leaf: Any) -> Any:
            if not is_jax(leaf):
                return leaf
            sizes = zip(spec, first.shape, leaf.shape, strict=False)
            axes = [name if before == after else None for name, before, after in sizes]
            return reshard(leaf, jax.sharding.NamedSharding(mesh, partition(*axes)))

        types = jax.sharding.AxisType
        automatic = [types.Auto if kind is types.Explicit else kind for kind in mesh.axis_types]
        with jax.sharding.use_abstract_mesh(mesh.update(axis_types=tuple(automatic))):
            args, kwargs = jax.tree.map(
                lambda leaf: reshard(leaf, partition()) if is_jax(leaf) else leaf, (args, kwargs)
            )
            result = function(*args, **kwargs)
        return jax.tree.map(restore, result)  # type: ignore[no-any-return]

    return call


def _is_on_explicit_mesh(leaf: object) -> bool:
    """Returns whether a leaf is a JAX array on a mesh with explicit axes (if JAX supports them)."""
    if not is_jax(leaf):
        return False
    import jax  # noqa: PLC0415 (loaded already)

    axis_types = jax.typeof(leaf).sharding.mesh.axis_types
    return jax.sharding.AxisType.Explicit in axis_types and hasattr(jax.sharding, "use_abstract_mesh")


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
