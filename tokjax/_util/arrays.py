"""Array operations that NumPy and JAX spell differently, and decorators of functions that work with both.

Each function takes NumPy or JAX arrays, and returns an array of the same library with the same values. The
functions that take rows compute each row separately, so that rows on different devices stay there.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import jax


Array: TypeAlias = "np.ndarray[Any, Any] | jax.Array"
"""A NumPy or a JAX array. Functions return an array of the library that their arguments belong to."""


def is_jax(value: object) -> bool:
    """Returns whether `value` is a JAX array or tracer."""
    if value is None or isinstance(value, (np.ndarray, int)):
        return False  # fast path: `isinstance` with JAX's metaclass takes longer
    jax_module = sys.modules.get("jax")
    return jax_module is not None and isinstance(value, jax_module.Array)


def is_traced(value: object) -> bool:
    """Returns whether `value` is a tracer (of `jit`, `vmap` or `grad`), which has no concrete values."""
    jax_module = sys.modules.get("jax")
    return jax_module is not None and isinstance(value, jax_module.core.Tracer)


def get_namespace(*values: object) -> Any:
    """Returns `jax.numpy` if any value is a JAX array, otherwise NumPy."""
    if any(is_jax(value) for value in values):
        import jax.numpy as jnp  # noqa: PLC0415 (JAX is loaded already)

        return jnp
    return np


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """Returns a NumPy array. A JAX array is transferred explicitly, which `jax.transfer_guard` allows."""
    return np.asarray(sys.modules["jax"].device_get(array) if is_jax(array) else array)


def as_known(
    name: str, values: Any, under_jit: str = "call the function outside of it"
) -> np.ndarray[Any, Any]:
    """Returns integers as a NumPy array of the dtype that NumPy chooses, with the errors of `as_integers`."""
    try:
        return np.asarray(values)
    except TypeError as error:
        if not type(error).__module__.startswith("jax"):
            raise
        raise InvalidArgumentError(f"the values of {name} are unknown under jax.jit; {under_jit}") from None
    except ValueError:
        raise InvalidArgumentError(f"{name} must be an array, not rows of unequal length") from None


def as_integers(
    name: str,
    values: Any,
    dtype: type[np.integer[Any]],
    *,
    under_jit: str = "call the function outside of it",
) -> np.ndarray[Any, Any]:
    """Returns `values` as a NumPy array of an integer dtype.

    Args:
        name: name of the argument, for error messages.
        values: integers, an array or nested lists of any shape.
        dtype: integer dtype of the result.
        under_jit: what to do under `jax.jit`, where the values are unknown, for the error message.

    Raises:
        InvalidArgumentError: the values are not integers, do not fit the dtype, have rows of unequal length,
            or are traced.
    """
    array = as_known(name, values, under_jit)
    if array.dtype == dtype:
        return array
    if array.size == 0 and array.dtype.kind == "f":  # NumPy reads an empty list as float64
        array = array.astype(dtype)
    if array.dtype.kind not in "iu":
        raise InvalidArgumentError(f"{name} must be integers, not {array.dtype}")
    limits = np.iinfo(dtype)
    may_exceed = array.dtype.itemsize > np.dtype(dtype).itemsize or array.dtype.kind == "u"
    if may_exceed and array.size and (array.max() > limits.max or array.min() < limits.min):
        outside = (array > limits.max) | (array < limits.min)
        raise InvalidArgumentError(
            f"{name} holds {array[outside].flat[0]}, which does not fit {np.dtype(dtype).name}"
        )
    return array.astype(dtype, copy=False)


def as_int32(name: str, values: Any) -> Any:
    """Returns `values` as an `int32` array of NumPy, or of JAX if they are a JAX array.

    Values on the host are checked to fit `int32`. Of a JAX array only the dtype is checked, since its values
    may be traced.

    Args:
        name: name of the argument, for error messages.
        values: integers of any shape.

    Raises:
        InvalidArgumentError: the values are not integers, or do not fit `int32`.
    """
    if not is_jax(values):
        return as_integers(name, values, np.int32)
    if values.dtype.kind not in "iu":
        raise InvalidArgumentError(f"{name} must be integers, not {values.dtype}")
    return values.astype(np.int32)


def as_mask(xp: Any, name: str, values: Any) -> Any:
    """Returns a boolean array that is true where `values` are not 0.

    Args:
        xp: NumPy or `jax.numpy`.
        name: name of the argument, for error messages.
        values: booleans or numbers, an array or nested lists of any shape.
    """
    try:
        return xp.asarray(values).astype(bool)
    except ValueError:
        raise InvalidArgumentError(f"{name} must be an array, not rows of unequal length") from None


Operand = TypeVar("Operand")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def apply_cond(
    condition: Any,
    then: Callable[[Operand], Result],
    otherwise: Callable[[Operand], Result],
    operand: Operand,
) -> Result:
    """Applies one of two functions. For a traced condition the choice is made when the program runs.

    Args:
        condition: boolean, shape `()`.
        then: function of the operand, applied if the condition is true.
        otherwise: function of the operand, applied otherwise; must return the same shapes and dtypes.
        operand: a pytree of arrays.
    """
    if is_traced(condition):
        import jax  # noqa: PLC0415 (loaded already)

        return jax.lax.cond(condition, then, otherwise, operand)  # type: ignore[no-any-return]
    return then(operand) if condition else otherwise(operand)


def compute_suffix_minimum(values: Array) -> Array:
    """Computes the minimum of each value and all values after it along the last axis.

    Args:
        values: integers, shape `(..., length)`.

    Returns:
        An array of the same kind, shape and dtype.
    """
    if not isinstance(values, np.ndarray):
        import jax  # noqa: PLC0415 (loaded already)

        return jax.lax.cummin(values, axis=values.ndim - 1, reverse=True)
    return np.minimum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]


def compute_prefix_maximum(values: Array) -> Array:
    """Computes the maximum of each value and all values before it along the last axis.

    Args:
        values: integers, shape `(..., length)`.

    Returns:
        An array of the same kind, shape and dtype.
    """
    if isinstance(values, np.ndarray):
        return np.maximum.accumulate(values, axis=-1)
    import jax  # noqa: PLC0415 (loaded already)

    return jax.lax.cummax(values, axis=values.ndim - 1)


def scatter(values: Array, positions: Any, new: Any, where: Any) -> Array:
    """Returns `values` with new values at some positions. A NumPy array is modified.

    Args:
        values: shape `(n,)`.
        positions: positions of the new values, `int32` below `n`, shape `(m,)`; distinct where `where` is
            true.
        new: new values, shape `(m,)`.
        where: which of the positions are written, `bool`, shape `(m,)`.
    """
    if isinstance(values, np.ndarray):
        values[positions[where]] = new[where]
        return values
    xp = get_namespace(values)
    # Shapes are static under jit, so nothing can be left out: ignored positions point past the end and are
    # dropped.
    outside = values.shape[0]
    return values.at[xp.where(where, positions, outside)].set(new, mode="drop")


def vmap_rows(function: Callable[..., Result], num_axes: int) -> Callable[..., Result]:
    """Makes a function of one row work on arrays with leading axes.

    Args:
        function: function of JAX arrays of one row.
        num_axes: number of leading axes to map over.
    """
    import jax  # noqa: PLC0415 (loaded already)

    for _ in range(num_axes):
        function = jax.vmap(function)
    return function


def scatter_rows(width: int, fill: Any, positions: Any, new: Any, where: Any) -> Any:
    """Returns rows of a fill value with new values at some positions.

    Args:
        width: length of each row of the result.
        fill: integer at all other positions.
        positions: position of each new value in its row, `int32`, shape `(..., m)`; distinct within a row
            where `where` is true.
        new: new values, shape `(..., m)`.
        where: which of the positions are written, `bool`, shape `(..., m)`.

    Returns:
        `int32`, shape `(..., width)`.
    """
    xp = get_namespace(positions, new, where, fill)
    filler = xp.asarray(fill, dtype=np.int32)
    if xp is not np:

        def scatter_row(*row: Any) -> Any:
            return scatter(xp.full(width, filler), *row)

        return vmap_rows(scatter_row, positions.ndim - 1)(positions, new, where)
    # NumPy has no vmap: scatter into one flat array, in which row i begins at i * width.
    leading = positions.shape[:-1]
    first = width * np.arange(math.prod(leading)).reshape(*leading, 1)
    result = np.full((math.prod(leading) * width,), filler)
    flat = (array.reshape(-1) for array in (first + positions, new, where))
    return scatter(result, *flat).reshape(*leading, width)


def prepend_axes(ndim: int, array: Any) -> Any:
    """Returns `array` with `ndim` axes, by prepending axes of length 1.

    JAX raises for implicit rank promotion if a user sets `jax_numpy_rank_promotion="raise"`.
    """
    return array.reshape((1,) * (ndim - array.ndim) + array.shape)


def make_positions(xp: Any, length: int, ndim: int) -> Any:
    """Returns the positions 0, 1, ..., `length - 1` along the last of `ndim` axes.

    Args:
        xp: NumPy or `jax.numpy`.
        length: number of positions.
        ndim: number of axes of the result.

    Returns:
        `int32`, shape `(1, ..., 1, length)`.
    """
    return prepend_axes(ndim, xp.arange(length, dtype=np.int32))


def as_size(xp: Any, length: Any) -> Any:
    """Returns a length as an `int32` scalar.

    Args:
        xp: NumPy or `jax.numpy`.
        length: an integer, or a symbolic dimension of `jax.export`.
    """
    return np.int32(length) if isinstance(length, int) else xp.asarray(length, dtype=np.int32)


def count_bits(length: Any) -> int:
    """Returns the number of bits of a length, or 31 for a symbolic dimension: enough for any `int32`."""
    return length.bit_length() if isinstance(length, int) else 31


def count_below(rows: Any, bounds: Any) -> Any:
    """Counts the values of each row that are less than each bound.

    This is a binary search of all rows at once: the count is built from its highest bit to its lowest. A bit
    is set if the row has that many values and the last of them is less than the bound. Unlike `searchsorted`,
    it needs no loop over rows.

    Args:
        rows: integers in ascending order along each row, shape `(..., n)`.
        bounds: integers, the same for all rows, shape `(m,)`.

    Returns:
        `int32`, shape `(..., m)`.
    """
    xp = get_namespace(rows, bounds)
    length, bounds = rows.shape[-1], prepend_axes(rows.ndim, bounds)
    count = xp.zeros((*rows.shape[:-1], bounds.shape[-1]), np.int32)
    size = as_size(xp, length)
    for step in (2**power for power in reversed(range(count_bits(length)))):
        larger_count = count + np.int32(step)
        last = xp.take_along_axis(rows, xp.minimum(larger_count, size) - np.int32(1), axis=-1)
        count = xp.where((larger_count <= size) & (last < bounds), larger_count, count)
    return count


def gather(table: Any, index: Any) -> Any:
    """Returns `table[index]`.

    Args:
        table: shape `(n, ...)`.
        index: integers from 0 to `n - 1`, of any shape.
    """
    xp = get_namespace(table, index)
    if xp is np:
        return np.take(table, index, axis=0)
    return xp.asarray(table).at[xp.asarray(index)].get(mode="clip")


def take_or_fill(
    name: str, flat: Array, index: Array, present: Array, fill: int, dtype: Any = np.int32
) -> Array:
    """Returns `flat[index]` where `present` is true, and `fill` elsewhere. `flat` may be empty.

    Args:
        name: name of `flat`, for error messages.
        flat: integers, or values of `dtype`, shape `(n, ...)`.
        index: integers of any shape; ignored where `present` is false.
        present: booleans, the shape of `index`.
        fill: integer for the positions where `present` is false.
        dtype: dtype of the result.

    Returns:
        Values of `dtype`, the shape of `index` followed by the trailing axes of `flat`.
    """
    xp = get_namespace(flat, index, fill)
    filler = xp.asarray(fill, dtype=dtype)
    trailing = flat.shape[1:]
    if flat.shape[0] == 0:
        return xp.full(index.shape + trailing, filler)  # type: ignore[no-any-return]
    values = gather(flat, xp.where(present, index, 0))
    if dtype is np.int32:
        values = as_int32(name, values)
    mask = present.reshape(present.shape + (1,) * len(trailing))
    return xp.where(mask, values, filler)  # type: ignore[no-any-return]


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
