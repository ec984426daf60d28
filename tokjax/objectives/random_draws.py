"""Random numbers as an array: made by NumPy or by JAX, used alike by both.

Draws are only compared with constants, and multiplied once. That is exact, or rounded in one way, on every
device, so that the same draws give the same integers everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.arrays import Array, get_namespace, is_jax
from tokjax._util.checks import check_int
from tokjax._util.eager_jit import jit_eager
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    import jax


def draw_uniform(source: np.random.Generator | jax.Array, shape: Sequence[int]) -> Array:
    """The draws that an objective takes.

    Args:
        source: a NumPy `Generator`, which moves on, or a JAX key, which is used up: split it first. An
            integer is refused, as it doesn't say which of the two is meant.
        shape: the shape of the draws, as the objective's documentation gives it.

    Returns:
        `float32` in `[0, 1)`, a NumPy array from a `Generator` and a JAX array from a key. The two differ in
        their values; one and the same array has the same effect in NumPy and in JAX.

    Raises:
        InvalidArgumentError: `source` is neither.

    >>> draw_uniform(np.random.default_rng(0), (2, 3)).shape
    (2, 3)
    """
    if not isinstance(shape, Sequence):
        raise InvalidArgumentError(f"shape must be a tuple, such as (8, 512), not {shape!r}")
    size = tuple(check_int("shape", n, minimum=0) for n in shape)
    if isinstance(source, np.random.Generator):
        return source.random(size, dtype=np.float32)
    if not _is_key(source):
        raise InvalidArgumentError(
            f"source must be a NumPy Generator or a JAX key, not {source!r}; pass "
            "np.random.default_rng(SEED) or jax.random.key(SEED)"
        )
    if source.ndim != _count_key_axes(source):
        raise InvalidArgumentError(
            f"source must be one key, and these are keys of shape {source.shape}; pass one, as keys[0] is"
        )
    return _draw_uniform(source, size)


@jit_eager
def _draw_uniform(key: jax.Array, size: tuple[int, ...]) -> jax.Array:
    import jax  # noqa: PLC0415 (loaded already)

    return jax.random.uniform(key, size, np.float32)


def check_draws(draws: Array, shape: tuple[int, ...]) -> Array:
    """`draws`, if they are `float32` of that shape; those of NumPy are checked to lie in `[0, 1)` too."""
    values: Any = draws if is_jax(draws) else np.asarray(draws)
    if values.dtype != np.float32 or values.shape != shape:
        raise InvalidArgumentError(
            f"draws must be float32 of shape {shape}, not {values.dtype} of shape {values.shape}; make them "
            f"with draw_uniform(source, {shape})"
        )
    if not is_jax(values) and values.size and not (values.min() >= 0 and values.max() < 1):
        raise InvalidArgumentError(
            f"draws must be at least 0 and below 1; these go from {values.min()} to {values.max()}"
        )
    return values  # type: ignore[no-any-return]


def draws_to_integers(draws: Array, limit: Any) -> Any:
    """Integers from 0 to `limit - 1`, as evenly as 24 bits can be dealt out.

    Args:
        draws: `float32` in `[0, 1)`, of any shape.
        limit: integers of at least 1, of a shape that broadcasts.

    Returns:
        `int32`.
    """
    xp = get_namespace(draws, limit)
    limits = xp.asarray(limit, dtype=np.int32)
    scaled = (draws * limits.astype(np.float32)).astype(np.int32)
    return xp.minimum(scaled, limits - np.int32(1))  # past 2**24 the limit may be rounded up


def _count_key_axes(key: Any) -> int:
    """0 of a typed key, 1 of one that is an array of its words."""
    return int(key.dtype == np.uint32)


def _is_key(source: object) -> bool:
    if not is_jax(source):
        return False
    import jax  # noqa: PLC0415 (loaded already)

    dtype = source.dtype  # type: ignore[attr-defined]
    return jax.numpy.issubdtype(dtype, jax.dtypes.prng_key) or dtype == np.uint32
