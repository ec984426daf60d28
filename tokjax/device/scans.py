"""Prefix sums, running maxima and compaction with static shapes, for programs under `jax.jit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jax import Array

_BLOCK = 2048
"""Number of values of a block. Sums within blocks and sums of blocks take two short scans instead of a long
one, which is several times faster on a CPU."""


def cumulative_sum(values: Array) -> Array:
    """Returns the sum of all values up to and including each one, `int32`, shape `(n,)`."""
    counts = values.astype(jnp.int32)
    length = counts.shape[0]
    if length <= _BLOCK:
        return jnp.cumsum(counts)
    blocks = jnp.pad(counts, (0, -length % _BLOCK)).reshape(-1, _BLOCK)
    within = jax.lax.associative_scan(jnp.add, blocks, axis=1)
    totals = within[:, -1]
    return (within + (cumulative_sum(totals) - totals)[:, None]).reshape(-1)[:length]


def running_maximum(values: Array) -> Array:
    """Returns the largest value up to and including each position, shape `(n,)`."""
    return jax.lax.associative_scan(jnp.maximum, values)


def following_minimum(values: Array) -> Array:
    """Returns the smallest value from each position on, shape `(n,)`."""
    return jax.lax.associative_scan(jnp.minimum, values, reverse=True)


def shift(values: Array, count: int, fill: int | bool) -> Array:
    """Returns the value `count` positions before each one (after, if negative), or `fill` outside."""
    length = values.shape[0]
    padding = jnp.full(min(abs(count), length), fill, values.dtype)
    if count >= 0:
        return jnp.concatenate([padding, values[: length - count]]) if count < length else padding
    return jnp.concatenate([values[-count:], padding]) if -count < length else padding


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
