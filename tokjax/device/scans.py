"""Prefix sums, running maxima and compaction with static shapes, for programs under `jax.jit`.

Masks are scanned in blocks of 32 values. Each block is packed into one number, so that a scan of the blocks
has few values, and the rest is arithmetic on bits:

    mask        0 1 1 0 0 1 0 1    0 0 1 0 0 0 0 0        blocks of 8 instead of 32
    counts                    4                  1
    sums                      0                  4        before each block, by a scan
    result      0 1 2 2 2 3 3 4    4 4 5 5 5 5 5 5        plus the number of bits up to each value
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jax import Array

BITS = 32
"""Number of values of a block that is packed into one number."""


def cumulative_sum(values: Array) -> Array:
    """Returns the sum of all values up to and including each one, `int32`, shape `(n,)`."""
    if values.dtype == np.bool_:
        blocks = pack_bits(values)
        before = jax.lax.cumsum(count_bits(blocks)) - count_bits(blocks)
        return unpack(before[:, None] + count_bits(blocks[:, None] & get_low_bits()), values.shape[0])
    return jax.lax.cumsum(values.astype(jnp.int32))


def running_maximum(values: Array) -> Array:
    """Returns the largest value up to and including each position, shape `(n,)`."""
    return jax.lax.cummax(values)


def find_next(mask: Array) -> Array:
    """Returns the position of the next true value at or after each position, shape `(n,)`.

    Where there is none, it is the last position.
    """
    blocks = pack_bits(mask)
    end = mask.shape[0] - 1
    begins = jnp.arange(blocks.shape[0], dtype=jnp.int32) * BITS
    first = jnp.where(blocks != 0, begins + _get_lowest_bit(blocks), end)
    first = jax.lax.cummin(first, reverse=True)
    after = jnp.pad(first[1:], (0, 1), constant_values=end)
    rest = blocks[:, None] & ~(get_low_bits() >> np.uint32(1))
    return unpack(
        jnp.where(rest != 0, begins[:, None] + _get_lowest_bit(rest), after[:, None]), mask.shape[0]
    )


def _get_lowest_bit(numbers: Array) -> Array:
    """Returns the index of the lowest bit that is set, `int32`."""
    return get_highest_bit(numbers & (~numbers + np.uint32(1)))


def get_highest_bit(numbers: Array) -> Array:
    """Returns the index of the highest bit that is set, `int32`; -1 if none is."""
    return BITS - 1 - jax.lax.clz(numbers).astype(jnp.int32)


def get_low_bits() -> Array:
    """Returns the bits up to and including each one, `uint32`, shape `(32,)`."""
    # Computed, since constant arrays in a branch of a conditional fail under `jax.vmap` in `jax.shard_map`.
    return (np.uint32(2) << jnp.arange(BITS, dtype=jnp.uint32)) - np.uint32(1)


def count_bits(numbers: Array) -> Array:
    """Returns the number of bits that are set, `int32`."""
    return jax.lax.population_count(numbers).astype(jnp.int32)


def pack_bits(mask: Array) -> Array:
    """Packs a mask into `uint32` numbers, shape `(blocks,)`. The first value of a block is the lowest bit."""
    blocks = jnp.pad(mask, (0, -mask.shape[0] % BITS)).reshape(-1, BITS)
    bits = np.uint32(1) << jnp.arange(BITS, dtype=jnp.uint32)
    packed = jnp.where(blocks, bits, np.uint32(0)).sum(axis=1, dtype=jnp.uint32)
    return copy_before_broadcast(packed)


def unpack(values: Array, length: int) -> Array:
    """Returns values of shape `(blocks, 32)` as one array, without those after the last position."""
    return values.reshape(-1)[:length]


_BLOCK = 64
"""Number of values of a block of `compact_rare`."""


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

    def __init__(self, values: Array, before: int, after: int, fill: int | bool | np.int32) -> None:
        self._length, self._before = values.shape[0], before
        self._padded: Array = store(jnp.pad(values, (before, after), constant_values=fill))

    def at(self, distance: int) -> Array:
        """Returns the value `distance` positions after each position (before, if negative)."""
        first = self._before + distance
        return self._padded[first : first + self._length]


def store(*values: Array) -> Any:
    """Returns values that are computed once and stored. XLA would compute them again where they are used."""
    stored: Any = jax.lax.platform_dependent(values, cpu=_store_on_cpu, default=jax.lax.optimization_barrier)
    return stored if len(values) > 1 else stored[0]


def _store_on_cpu(values: tuple[Array, ...]) -> tuple[Array, ...]:
    """Writes nothing to the values, which XLA stores before. It removes barriers for a CPU."""

    def write_nothing(value: Array) -> Array:
        outside = jnp.full(2, value.size, jnp.int32)
        written = value.reshape(-1).at[outside].set(jnp.zeros(2, value.dtype), mode="drop")
        return written.reshape(value.shape)

    return tuple(map(write_nothing, values))


def copy_before_broadcast(values: Array) -> Array:
    """Copies values by a gather, so that XLA does not compute them for each row that they are broadcast to.

    XLA removes barriers for a CPU, and fuses everything but gathers with broadcasts.
    """
    copied: Array = values[jnp.arange(values.shape[0], dtype=jnp.int32)]
    return copied


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
    positions = positions.at[target].set(jnp.arange(length, dtype=jnp.int32), mode="drop")
    return positions, rank[-1]


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
