"""NumPy or `jax.numpy`, from the arrays that a function is given.

JAX is never imported here: if no one has imported it, no array can be one of its own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    import jax

Operand = TypeVar("Operand")
Result = TypeVar("Result")

Array: TypeAlias = "np.ndarray[Any, Any] | jax.Array"
"""An array of either kind. Functions give back the kind that they were given."""


def is_jax(value: object) -> bool:
    """Whether `value` is a JAX array or tracer."""
    jax_module = sys.modules.get("jax")
    return jax_module is not None and isinstance(value, jax_module.Array)


def is_traced(value: object) -> bool:
    """Whether `value` has no concrete contents because it is being traced (`jit`, `vmap`, `grad`)."""
    jax_module = sys.modules.get("jax")
    return jax_module is not None and isinstance(value, jax_module.core.Tracer)


def namespace(*values: object) -> Any:
    """`jax.numpy` if any value is a JAX array, else NumPy."""
    if any(is_jax(value) for value in values):
        import jax.numpy as jnp  # noqa: PLC0415 (only reached when JAX is loaded already)

        return jnp
    return np


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


def as_mask(xp: Any, values: Any) -> Any:
    """True where `values` (booleans or numbers, an array or a list) are not 0."""
    return xp.asarray(values).astype(bool)


def either(
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


def suffix_minimum(values: Array) -> Array:
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


def prefix_maximum(values: Array) -> Array:
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


def put(values: Array, places: Any, new: Any, where: Any) -> Array:
    """`values` with others at some places; a NumPy array is written to.

    Args:
        values: shape `(n,)`.
        places: where others go, `int32` below `n`, all different where they count, shape `(m,)`.
        new: what goes there, shape `(m,)`.
        where: which of the places count, `bool`, shape `(m,)`.
    """
    if isinstance(values, np.ndarray):
        values[places[where]] = new[where]
        return values
    xp = namespace(values)
    outside = values.shape[0]
    return values.at[xp.where(where, places, outside)].set(new, mode="drop")


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
    xp = namespace(flat, index, fill)
    filler = xp.asarray(fill, dtype=np.int32)
    trailing = flat.shape[1:]
    if flat.shape[0] == 0:
        return xp.broadcast_to(filler, index.shape + trailing) + xp.zeros((), np.int32)  # type: ignore[no-any-return]
    taken = as_int32(name, xp.take(flat, xp.where(present, index, 0), axis=0))
    shaped = present.reshape(present.shape + (1,) * len(trailing))
    return xp.where(shaped, taken, filler)  # type: ignore[no-any-return]
