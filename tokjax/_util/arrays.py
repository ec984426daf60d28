"""What NumPy and JAX spell differently: scans, look-ups and scatters, the same in both.

On a mesh whose axes are explicit, JAX asks where each result lies. Rows stay where they are: what is done
here to rows is done to each by itself.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    import jax


Array: TypeAlias = "np.ndarray[Any, Any] | jax.Array"
"""An array of either kind. Functions give back the kind that they were given."""


def is_jax(value: object) -> bool:
    """Whether `value` is a JAX array or tracer."""
    if value is None or isinstance(value, (np.ndarray, int)):
        return False  # (asking JAX takes longer)
    jax_module = sys.modules.get("jax")
    return jax_module is not None and isinstance(value, jax_module.Array)


def is_traced(value: object) -> bool:
    """Whether `value` has no concrete contents because it is being traced (`jit`, `vmap`, `grad`)."""
    jax_module = sys.modules.get("jax")
    return jax_module is not None and isinstance(value, jax_module.core.Tracer)


def get_namespace(*values: object) -> Any:
    """`jax.numpy` if any value is a JAX array, else NumPy."""
    if any(is_jax(value) for value in values):
        import jax.numpy as jnp  # noqa: PLC0415 (only reached when JAX is loaded already)

        return jnp
    return np


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """Returns a NumPy array; of a JAX array by an explicit transfer, which `jax.transfer_guard` allows."""
    return np.asarray(sys.modules["jax"].device_get(array) if is_jax(array) else array)


def as_integers(name: str, values: Any, dtype: type[np.integer[Any]]) -> np.ndarray[Any, Any]:
    """`values` as a NumPy array of `dtype`; an error that names `name` where they don't fit it."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidArgumentError(
            f"{name} must be an array of integers, not rows of unequal length"
        ) from None
    if array.dtype == dtype:
        return array
    if array.size == 0 and array.dtype.kind == "f":  # NumPy's dtype of an empty list
        array = array.astype(dtype)
    if array.dtype.kind not in "iub":
        raise InvalidArgumentError(f"{name} must be integers, not {array.dtype}")
    limits = np.iinfo(dtype)
    if array.dtype.itemsize > np.dtype(dtype).itemsize or array.dtype.kind == "u":
        outside = (array > limits.max) | (array < limits.min)
        if outside.any():
            raise InvalidArgumentError(
                f"{name} holds {array[outside].flat[0]}, which does not fit {np.dtype(dtype).name}"
            )
    return array.astype(dtype, copy=False)


def as_int32(name: str, values: Any) -> Any:
    """`values` as an `int32` array of their own kind.

    Host arrays are checked to fit; of JAX arrays only the dtype is known, and must be an integer's.
    """
    if not is_jax(values):
        return as_integers(name, values, np.int32)
    if values.dtype.kind not in "iub":
        raise InvalidArgumentError(f"{name} must be integers, not {values.dtype}")
    return values.astype(np.int32)


def as_mask(xp: Any, name: str, values: Any) -> Any:
    """True where `values` (booleans or numbers, an array or a list) are not 0."""
    try:
        return xp.asarray(values).astype(bool)
    except ValueError:
        raise InvalidArgumentError(f"{name} must be an array, not rows of unequal length") from None


Operand = TypeVar("Operand")
Result = TypeVar("Result")


def apply_cond(
    condition: Any,
    then: Callable[[Operand], Result],
    otherwise: Callable[[Operand], Result],
    operand: Operand,
) -> Result:
    """What one of two functions gives; of traced arrays, the one is chosen when the program runs.

    Args:
        condition: boolean, shape `()`.
        then: takes the operand if it is true.
        otherwise: takes it if not; gives the same shapes and dtypes.
        operand: a pytree of arrays.
    """
    if is_traced(condition):
        import jax  # noqa: PLC0415 (loaded already)

        return jax.lax.cond(condition, then, otherwise, operand)  # type: ignore[no-any-return]
    return then(operand) if condition else otherwise(operand)


def compute_suffix_minimum(values: Array) -> Array:
    """The minimum of each value and all that follow it along the last axis.

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
    """The maximum of each value and all that come before it along the last axis.

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
    """`values` with others at some places; a NumPy array is written to.

    Args:
        values: shape `(n,)`.
        positions: where others go, `int32` below `n`, all different where they count, shape `(m,)`.
        new: what goes there, shape `(m,)`.
        where: which of the places count, `bool`, shape `(m,)`.
    """
    if isinstance(values, np.ndarray):
        values[positions[where]] = new[where]
        return values
    xp = get_namespace(values)
    outside = values.shape[0]
    return values.at[xp.where(where, positions, outside)].set(new, mode="drop")


def vmap_rows(function: Callable[..., Result], num_axes: int) -> Callable[..., Result]:
    """A function of JAX arrays of one row, for arrays with more axes before those of a row."""
    import jax  # noqa: PLC0415 (loaded already)

    for _ in range(num_axes):
        function = jax.vmap(function)
    return function


def scatter_rows(width: int, fill: Any, positions: Any, new: Any, where: Any) -> Any:
    """Rows that hold one value, and others at some places.

    Args:
        width: places of each row of the result.
        fill: what stands where nothing is put.
        positions: where in its row each new value goes, `int32`, all different where they count, `(..., m)`.
        new: what goes there, `(..., m)`.
        where: which of them count, `bool`, `(..., m)`.

    Returns:
        `int32`, shape `(..., width)`.
    """
    xp = get_namespace(positions, new, where, fill)
    filler = xp.asarray(fill, dtype=np.int32)
    if xp is not np:

        def scatter_row(*row: Any) -> Any:
            return scatter(xp.full(width, filler), *row)

        return vmap_rows(scatter_row, positions.ndim - 1)(positions, new, where)
    leading = positions.shape[:-1]
    first = width * np.arange(math.prod(leading)).reshape(*leading, 1)
    result = np.full((math.prod(leading) * width,), filler)
    flat = (array.reshape(-1) for array in (first + positions, new, where))
    return scatter(result, *flat).reshape(*leading, width)


def prepend_axes(ndim: int, array: Any) -> Any:
    """`array` with axes of 1 before its own, `ndim` in all: users of JAX can forbid that it adds them."""
    return array.reshape((1,) * (ndim - array.ndim) + array.shape)


def positions(xp: Any, length: int, ndim: int) -> Any:
    """0, 1, 2 and so on along the last of `ndim` axes: `int32`, `(1, ..., length)`."""
    return prepend_axes(ndim, xp.arange(length, dtype=np.int32))


def as_size(xp: Any, length: Any) -> Any:
    """Returns a length as an `int32` scalar.

    Args:
        xp: NumPy or `jax.numpy`.
        length: an integer, or a symbolic dimension of `jax.export`.
    """
    return np.int32(length) if isinstance(length, int) else xp.asarray(length, dtype=np.int32)


def bit_length(length: Any) -> int:
    """Returns how many bits a length has; 31 of a symbolic dimension, which is enough for any `int32`."""
    return length.bit_length() if isinstance(length, int) else 31


def count_below(rows: Any, bounds: Any) -> Any:
    """How many values of each row are less than each bound.

    Args:
        rows: integers, rising along each row, `(..., n)`.
        bounds: the same for all rows, `(m,)`.

    Returns:
        `int32`, shape `(..., m)`.
    """
    xp = get_namespace(rows, bounds)
    length, bounds = rows.shape[-1], prepend_axes(rows.ndim, bounds)
    found = xp.zeros((*rows.shape[:-1], bounds.shape[-1]), np.int32)
    size = as_size(xp, length)
    for step in (2**power for power in reversed(range(bit_length(length)))):
        further = found + np.int32(step)
        last = xp.take_along_axis(rows, xp.minimum(further, size) - np.int32(1), axis=-1)
        found = xp.where((further <= size) & (last < bounds), further, found)
    return found


def gather(table: Any, index: Any) -> Any:
    """`table[index]`; where `index` lies on a mesh with explicit axes, the result lies there too.

    Args:
        table: shape `(n, ...)`.
        index: integers from 0 below `n`, of any shape.
    """
    xp = get_namespace(table, index)
    if xp is np:
        return np.take(table, index, axis=0)
    table, index = xp.asarray(table), xp.asarray(index)
    return table.at[index].get(mode="clip", **_get_out_sharding(table, index))


def _get_out_sharding(table: Any, index: Any) -> dict[str, Any]:
    """Where a look-up is to lie, if one of the arrays lies on a mesh with explicit axes: as the index does.

    Of a table that is spread itself, each device gets all that is looked up.
    """
    import jax  # noqa: PLC0415 (loaded already)

    index_sharding, table_sharding = jax.typeof(index).sharding, jax.typeof(table).sharding
    explicit = jax.sharding.AxisType.Explicit
    if explicit in index_sharding.mesh.axis_types:
        return {"out_sharding": index_sharding}
    if explicit in table_sharding.mesh.axis_types:
        everywhere = jax.sharding.PartitionSpec()  # type: ignore[no-untyped-call]
        return {"out_sharding": jax.sharding.NamedSharding(table_sharding.mesh, everywhere)}
    return {}


def take_or_fill(name: str, flat: Array, index: Array, present: Array, fill: int) -> Array:
    """`flat[index]` where `present`, else `fill`; an empty `flat` gives `fill` throughout.

    Args:
        name: what `flat` is, for errors.
        flat: `(n, ...)`.
        index: integers of any shape; its values matter only where `present`.
        present: booleans, of the shape of `index`.
        fill: the value of the absent places.

    Returns:
        `int32`, of the shape of `index`, then the trailing axes of `flat`.
    """
    xp = get_namespace(flat, index, fill)
    filler = xp.asarray(fill, dtype=np.int32)
    trailing = flat.shape[1:]
    if flat.shape[0] == 0:
        return xp.broadcast_to(filler, index.shape + trailing) + xp.zeros((), np.int32)  # type: ignore[no-any-return]
    found = as_int32(name, gather(flat, xp.where(present, index, 0)))
    shaped = present.reshape(present.shape + (1,) * len(trailing))
    return xp.where(shaped, found, filler)  # type: ignore[no-any-return]
