"""Prefix sums, running maxima and compaction with static shapes, for programs under `jax.jit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jax import Array


def cumulative_sum(values: Array) -> Array:
    """Returns the sum of all values up to and including each one, `int32`, shape `(n,)`."""
    sums: Array = jax.lax.associative_scan(jnp.add, values.astype(jnp.int32))
    return sums


_BLOCK = 64
"""Number of values of a block of `compact_rare`."""


def running_maximum(values: Array) -> Array:
    """Returns the largest value up to and including each position, shape `(n,)`."""
    maxima: Array = jax.lax.associative_scan(jnp.maximum, values)
    return maxima


def following_minimum(values: Array) -> Array:
    """Returns the smallest value from each position on, shape `(n,)`."""
    minima: Array = jax.lax.associative_scan(jnp.minimum, values, reverse=True)
    return minima


class Neighbors:
    """Values at a distance from each position, as slices of one padded array.

    XLA reads the slices in one pass, together with what is computed from them. It would copy every shifted
    array if each of them were padded separately.

    Args:
        values: values, shape `(n,)`.
        before: largest distance to values before a position.
        after: largest distance to values after a position.
        fill: value outside of the array.
    """

    def __init__(self, values: Array, before: int, after: int, fill: int | bool) -> None:
        self._length, self._before = values.shape[0], before
        self._padded: Array = store(jnp.pad(values, (before, after), constant_values=fill))

    def at(self, distance: int) -> Array:
        """Returns the value `distance` positions after each position (before, if negative)."""
        first = self._before + distance
        return self._padded[first : first + self._length]


def store(*values: Array) -> Any:
    """Returns values that are computed once and stored. XLA would compute them again where they are used."""
    stored: Any = jax.lax.optimization_barrier(values)  # type: ignore[no-untyped-call]
    return stored if len(values) > 1 else stored[0]


def compact(mask: Array, capacity: int, fill: int) -> tuple[Array, Array]:
    """Returns the positions where a mask is true, in ascending order, and their number.

    Args:
        mask: `bool`, shape `(n,)`.
        capacity: number of positions to return. Further ones are dropped.
        fill: value after the last position.

    Returns:
        Positions, `int32`, shape `(capacity,)`, and the number of true values, `int32`, shape `()`.
    """
    rank = cumulative_sum(mask)
    length = mask.shape[0]
    target = jnp.where(mask, rank - 1, capacity)
    positions = jnp.full(capacity, fill, jnp.int32)
    positions = positions.at[target].set(
        jnp.arange(length, dtype=jnp.int32), mode="drop", unique_indices=False
    )
    return positions, rank[-1] if length else jnp.int32(0)


def compact_rare(mask: Array, capacity: int, fill: int) -> tuple[Array, Array]:
    """Returns the same as `compact`, faster for masks that are rarely true."""
    # First the blocks that have a true value are found, then the values within these.
    length = mask.shape[0]
    if length <= 2 * _BLOCK or capacity * _BLOCK >= length:
        return compact(mask, capacity, fill)
    blocks = jnp.pad(mask, (0, -length % _BLOCK)).reshape(-1, _BLOCK)
    num_blocks = blocks.shape[0]
    chosen, _ = compact(blocks.any(axis=1), capacity, num_blocks)
    rows = blocks.at[chosen].get(mode="fill", fill_value=False)
    inner, _ = compact(rows.reshape(-1), capacity, capacity * _BLOCK)
    block = chosen.at[inner // _BLOCK].get(mode="fill", fill_value=num_blocks)
    positions = jnp.where(inner < capacity * _BLOCK, block * _BLOCK + inner % _BLOCK, fill)
    return positions, mask.sum(dtype=jnp.int32)
