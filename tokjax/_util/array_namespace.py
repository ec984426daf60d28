"""NumPy or `jax.numpy`, from the arrays that a function is given.

JAX is never imported here: if no one has imported it, no array can be one of its own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
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
