"""NumPy or `jax.numpy`, from the arrays that a function is given.

JAX is never imported here: if no one has imported it, no array can be one of its own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import jax

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


def take_or_fill(flat: Array, index: Array, present: Array, fill: int) -> Array:
    """`flat[index]` where `present`, else `fill`; an empty `flat` gives `fill` throughout.

    Args:
        flat: `(n, ...)`.
        index: integers of any shape; its values matter only where `present`.
        present: booleans, of the shape of `index`.
        fill: the value of the absent places.

    Returns:
        `int32`, of the shape of `index`, then the trailing axes of `flat`.
    """
    xp = namespace(flat, index)
    trailing = flat.shape[1:]
    if flat.shape[0] == 0:
        return xp.full(index.shape + trailing, fill, dtype=np.int32)  # type: ignore[no-any-return]
    taken = xp.take(flat, xp.where(present, index, 0), axis=0).astype(np.int32)
    shaped = present.reshape(present.shape + (1,) * len(trailing))
    return xp.where(shaped, taken, np.int32(fill))  # type: ignore[no-any-return]
