"""Prefix sums, running maxima and compaction with static shapes, for programs under `jax.jit`.

Masks are scanned in blocks of 32 values. Each block is packed into one number, so that a scan of the blocks
has few values, and the rest is arithmetic on bits:

    mask        0 1 1 0 0 1 0 1    0 0 1 0 0 0 0 0        blocks of 8 instead of 32
    counts                    4                  1
    sums                      0                  4        before each block, by a scan
    result      0 1 2 2 2 3 3 4    4 4 5 5 5 5 5 5        plus the number of bits up to each value
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jax import Array

BITS = 32
"""Number of values of a block that is packed into one number."""
ALIGNMENT = 128
"""Long arrays have a multiple of this many values. XLA reads and writes several values at once then."""


def cumulative_sum(values: Array) -> Array:
    """Returns the sum of all values up to and including each one, `int32`, shape `(n,)`."""
    if values.dtype == np.bool_:
        packed = pack(values)
        sums = packed.before[:, None] + _count_bits(packed.blocks[:, None] & _get_low_bits())
        return unpack(sums, values.shape[0])
    return _scan(values.astype(jnp.int32), (jax.lax.cumsum, jnp.add, jnp.sum, 0))


def running_maximum(values: Array) -> Array:
    """Returns the largest value up to and including each position, `int32`, shape `(n,)`."""
    lowest = np.iinfo(np.int32).min
    return _scan(values.astype(jnp.int32), (jax.lax.cummax, jnp.maximum, jnp.max, lowest))


_ROW = 16
"""Number of values of a row of a scan. XLA adds up all values before each one, which it does well for few."""
_MAX_TRIANGLE = 256
"""Maximum number of values for which one reduction computes all results: few programs to compile."""


def _scan(values: Array, operation: tuple[Any, Any, Any, int]) -> Array:
    """Scans rows of values, and the last results of all rows.

    Args:
        values: the values, shape `(n,)`.
        operation: scan of an axis, result of two results, result of all values of an axis, and of no values.
    """
    scan, combine, reduce, empty = operation
    length = values.shape[0]
    if length <= _MAX_TRIANGLE:
        number = jnp.arange(length, dtype=jnp.int32)
        triangle = jnp.where(number <= number[:, None], values, empty)
        result: Array = store(reduce(triangle, axis=1))
        return result
    padded = jnp.pad(values, (0, -length % _ROW), constant_values=empty)
    inner = store(scan(padded.reshape(-1, _ROW), axis=1))
    last = _scan(inner[:, -1], operation)
    before = store(jnp.pad(last[:-1], (1, 0), constant_values=empty))
    return unpack(combine(before[:, None], inner), length)


def take_next(mask: Array, values: Array) -> Array:
    """Returns the value at the next true position at or after each position, shape `(n,)`.

    Where there is none, it is the last value.
    """
    blocks = pack_bits(mask)
    end = mask.shape[0] - 1
    begins = jnp.arange(blocks.shape[0], dtype=jnp.int32) * BITS
    first = jnp.where(blocks != 0, begins + _get_lowest_bit(blocks), end)
    first = -running_maximum(-first[::-1])[::-1]
    after = store(values[jnp.pad(first[1:], (0, 1), constant_values=end)])
    rest = blocks[:, None] & ~(_get_low_bits() >> np.uint32(1))
    # Small numbers, since they are stored.
    bit = store(jnp.where(rest != 0, _get_lowest_bit(rest), BITS).astype(jnp.uint8))
    at = jnp.minimum(begins[:, None] + bit.astype(jnp.int32), end)
    return unpack(jnp.where(bit == BITS, after[:, None], values[at]), mask.shape[0])


def _get_lowest_bit(numbers: Array) -> Array:
    """Returns the index of the lowest bit that is set, `int32`."""
    # The exponent of the bit as a number, which is faster than counting zeros on a CPU.
    lowest = (numbers & (~numbers + np.uint32(1))).astype(jnp.int32).astype(jnp.float32)
    return (jax.lax.bitcast_convert_type(lowest, jnp.int32) >> 23 & 0xFF) - 127


def _get_low_bits() -> Array:
    """Returns the bits up to and including each one, `uint32`, shape `(32,)`."""
    # Computed, since constant arrays in a branch of a conditional fail under `jax.vmap` in `jax.shard_map`.
    return (np.uint32(2) << jnp.arange(BITS, dtype=jnp.uint32)) - np.uint32(1)


def _count_bits(numbers: Array) -> Array:
    """Returns the number of bits that are set, `int32`."""
    return jax.lax.population_count(numbers).astype(jnp.int32)


def pack_bits(mask: Array) -> Array:
    """Packs a mask into `uint32` numbers, shape `(blocks,)`. The first value of a block is the lowest bit."""
    blocks = jnp.pad(mask, (0, -mask.shape[0] % BITS)).reshape(-1, BITS)
    # Four values are one number. The multiplication moves their bits next to each other.
    quads = jax.lax.bitcast_convert_type(blocks.astype(jnp.uint8).reshape(-1, 4), jnp.uint32)
    quads = (quads * np.uint32(0x10204080)) >> np.uint32(28)
    shifts = np.uint32(4) * jnp.arange(BITS // 4, dtype=jnp.uint32)
    packed: Array = store((quads.reshape(-1, BITS // 4) << shifts).sum(axis=1, dtype=jnp.uint32))
    return packed


def unpack(values: Array, length: int) -> Array:
    """Returns values of shape `(blocks, 32)` as one array, without those after the last position."""
    return values.reshape(-1)[:length]


class Neighbors:
    """Values at a distance from each position, as slices of one array.

    The first values follow the last one, and the last values precede the first one. With a constant there
    instead, XLA would decide at each value whether it is one of them.

    Args:
        values: values, stored, shape `(n,)`.
        before: largest distance to values before a position.
        after: largest distance to values after a position.
    """

    def __init__(self, values: Array, before: int, after: int) -> None:
        self._length, self._before = values.shape[0], before
        after += -(before + self._length + after) % ALIGNMENT
        if self._length < max(before, after):
            wrapped = values[jnp.arange(-before, self._length + after) % self._length]
        else:
            wrapped = jnp.concatenate([values[self._length - before :], values, values[:after]])
        self._wrapped: Array = store(wrapped)

    def at(self, distance: int) -> Array:
        """Returns the value `distance` positions after each position (before, if negative)."""
        first = self._before + distance
        return self._wrapped[first : first + self._length]


def store(*values: Array) -> Any:
    """Returns values that are computed once and stored on a CPU.

    XLA would compute them again for each value that is read, in the middle of a gather for example, where the
    processor computes one value at a time. On a GPU, computing them again is faster than reading them.
    """
    stored: Any = jax.lax.platform_dependent(values, cpu=_store_on_cpu, default=lambda values: values)
    return stored if len(values) > 1 else stored[0]


def _store_on_cpu(values: tuple[Array, ...]) -> tuple[Array, ...]:
    """Writes no value to the arrays. XLA stores what is written to, but removes barriers for a CPU."""

    def write_nothing(value: Array) -> Array:
        outside = jnp.full(2, value.size, jnp.int32)
        written = value.reshape(-1).at[outside].set(jnp.zeros(2, value.dtype), mode="drop")
        return written.reshape(value.shape)

    return tuple(map(write_nothing, values))


def copy_before_broadcast(values: Array) -> Array:
    """Copies values by a gather, so that XLA does not compute them for each row that they are broadcast to.

    The same as `store` for short arrays, in loops of many iterations: one operation instead of three.
    """
    copied: Array = values[jnp.arange(values.shape[0], dtype=jnp.int32)]
    return copied


class Packed(NamedTuple):
    """A mask in blocks of 32 values, and how many of them are true.

    Attributes:
        blocks: the values, the first one as the lowest bit, `uint32`, shape `(blocks,)`.
        before: number of true values before each block, `int32`, shape `(blocks,)`.
        num_true: number of true values, `int32`, shape `()`.
    """

    blocks: Array
    before: Array
    num_true: Array


def pack(mask: Array) -> Packed:
    """Packs a mask and counts its true values."""
    blocks = pack_bits(mask)
    counts = _count_bits(blocks)
    sums = cumulative_sum(counts)
    return Packed(blocks, store(sums - counts), sums[-1])


def count_before(packed: Packed, positions: Array) -> Array:
    """Returns the number of true values before each position; positions are up to the number of values."""
    block = jnp.minimum(positions // BITS, packed.blocks.shape[0] - 1)
    bit = positions - block * BITS
    lower = jnp.where(bit < BITS, ~(~np.uint32(0) << bit.astype(jnp.uint32)), ~np.uint32(0))
    return packed.before[block] + _count_bits(packed.blocks[block] & lower)


def find_true(packed: Packed, capacity: int, fill: int) -> Array:
    """Returns the positions where a mask is true, in ascending order.

    Faster than `compact` for long masks, since only the blocks and the results are scanned.

    Args:
        packed: the mask.
        capacity: number of positions to return. Further ones are dropped.
        fill: value after the last position.

    Returns:
        Positions, `int32`, shape `(capacity,)`.
    """
    # First the block of each result, then the bit in the block. For example, with blocks of 8 values:
    #     mask      0 1 1 0 0 1 0 1    0 0 0 0 0 0 0 0    0 0 1 0 0 0 0 0
    #     chosen    0 and 2, the blocks that have true values; their first results are 0 and 4
    #     block     0 0 0 0 2
    #     bit       1 2 5 7 2
    has_any = packed.blocks != 0
    chosen, _ = compact(has_any, packed.blocks.shape[0], 0)
    block = store(chosen.at[number_segments(packed.before, has_any, capacity)].get(mode="clip"))
    result = jnp.arange(capacity, dtype=jnp.int32)
    bit = _select_bit(packed.blocks[block], (result - packed.before[block]).astype(jnp.uint32))
    return jnp.where(result < packed.num_true, block * BITS + bit, fill)


def number_segments(begins: Array, is_used: Array, capacity: int) -> Array:
    """Returns the number of the segment of each position, `int32`, shape `(capacity,)`.

    Args:
        begins: first position of each segment, in ascending order.
        is_used: which segments have positions. Only these are counted.
        capacity: number of positions. Segments that begin later are dropped.
    """
    is_begin = make_mask(begins, is_used, capacity)
    numbers: Array = store(cumulative_sum(is_begin) - 1)
    return numbers


def make_mask(positions: Array, is_used: Array, length: int) -> Array:
    """Returns a mask of the used positions, which are different, `bool`, shape `(length,)`."""
    at = _move_unused(positions, is_used, length)
    return jnp.zeros(length, bool).at[at].set(True, mode="drop", unique_indices=True)


def _move_unused(indices: Array, is_used: Array, length: int) -> Array:
    """Returns indices to write to an array of some length. The unused ones are moved after its end.

    All are different, since a GPU writes to equal ones one after the other. They are unsigned, since JAX
    would look for negative ones otherwise.
    """
    unused = np.uint32(length) + jnp.arange(indices.shape[0], dtype=jnp.uint32)
    return jnp.where(is_used, indices.astype(jnp.uint32), unused)


def _select_bit(numbers: Array, rank: Array) -> Array:
    """Returns the index of the set bit that has `rank` set bits below it, `int32`."""
    position = jnp.zeros(numbers.shape, jnp.uint32)
    for width in (16, 8, 4, 2, 1):
        count = jax.lax.population_count(numbers >> position & np.uint32((1 << width) - 1))
        is_above = rank >= count
        rank = rank - jnp.where(is_above, count, np.uint32(0))
        position = position + jnp.where(is_above, np.uint32(width), np.uint32(0))
    return position.astype(jnp.int32)


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
    number = jnp.arange(mask.shape[0], dtype=jnp.int32)
    target = _move_unused(rank - 1, mask, capacity)
    positions = jnp.full(capacity, fill, jnp.int32)
    return positions.at[target].set(number, mode="drop", unique_indices=True), rank[-1]
