"""Hash tables of two-choice buckets: built on the host, looked up under `jax.jit` with two gathers.

A key is a row of 32-bit numbers. It is in one of two buckets, which two hashes of the key give. A bucket is a
row of an array with the columns of all its slots side by side, so a lookup reads two rows. A free slot has 0
in the last column, which holds the value plus 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from numpy.typing import NDArray

ABSENT = -1
_SLOTS = 4
"""Slots of a bucket."""
_LOAD = 0.5
"""Maximum share of slots that are used when a table is first built."""
_MAX_SEEDS = 64


class BucketTable(NamedTuple):
    """Hash table, a pytree of two arrays.

    Attributes:
        buckets: columns of all slots of each bucket, `uint32`, shape `(buckets, slots * columns)`.
        seed: start value of the hashes, `uint32`, shape `()`.
    """

    buckets: Any
    seed: Any


def build_table(keys: NDArray[np.uint32], values: NDArray[np.int64]) -> BucketTable:
    """Builds a table on the host.

    Args:
        keys: different keys, `uint32`, shape `(n, columns)`.
        values: values from 0 to `2**32 - 2`, shape `(n,)`.
    """
    count, columns = keys.shape
    bits = max(int(np.ceil(np.log2(max(count, 1) / (_LOAD * _SLOTS)))), 0)
    for attempt in range(_MAX_SEEDS):
        seed = np.uint32(0x9E3779B9 + 0x61C88647 * attempt & 0xFFFFFFFF)
        slots = _place(keys, 1 << bits, seed)
        if slots is not None:
            break
        bits += attempt % 2
    else:
        raise AssertionError("no hash function places all keys")
    table = np.zeros(((1 << bits) * _SLOTS, columns + 1), np.uint32)
    table[slots, :columns] = keys
    table[slots, columns] = values + 1
    # Column-major within a bucket: the slots of one column are beside each other.
    buckets = table.reshape(-1, _SLOTS, columns + 1).swapaxes(1, 2).reshape(1 << bits, -1)
    return BucketTable(np.ascontiguousarray(buckets), seed)


def find(table: BucketTable, keys: Sequence[Array]) -> Array:
    """Returns the value of each key, `ABSENT` for keys that are not in the table.

    Args:
        table: the table.
        keys: the columns of the keys, `uint32`, of one shape.

    Returns:
        Values, `int32` (as bits of `uint32`), of the shape of the keys.
    """
    columns = len(keys)
    mask = jnp.uint32(table.buckets.shape[0] - 1)
    found = jnp.zeros(keys[0].shape, jnp.uint32)
    for hashes in _compute_hashes(keys, table.seed):
        rows = table.buckets[(hashes & mask).astype(jnp.int32)]
        rows = rows.reshape(*rows.shape[:-1], columns + 1, _SLOTS)
        same = jnp.ones((*rows.shape[:-2], _SLOTS), bool)
        for column in range(columns):
            same &= rows[..., column, :] == keys[column][..., None]
        found = jnp.maximum(found, jnp.where(same, rows[..., columns, :], np.uint32(0)).max(axis=-1))
    return found.astype(jnp.int32) - 1


def _compute_hashes(keys: Sequence[Any], seed: Any) -> tuple[Any, Any]:
    """Returns two hashes of keys. Works on arrays of NumPy and JAX."""
    state = seed
    for key in keys:
        state = (state ^ key) * np.uint32(0x85EBCA6B)
        state = state ^ (state >> np.uint32(15))
    first = state * np.uint32(0xC2B2AE35)
    first = first ^ (first >> np.uint32(13))
    second = (first + np.uint32(0x7F4A7C15)) * np.uint32(0x27D4EB2F)
    return first, second ^ (second >> np.uint32(15))


def _place(keys: NDArray[np.uint32], size: int, seed: np.uint32) -> NDArray[np.int64] | None:
    """Returns the slot of each key, or `None` if both buckets of a key are full.

    All keys that remain choose a bucket at once, the emptier one of their two. Those that come first fill
    its slots, the others choose again.
    """
    with np.errstate(over="ignore"):
        choices = np.stack(_compute_hashes(list(keys.T), seed), axis=1) & np.uint32(size - 1)
    used = np.zeros(size, np.int64)
    slots = np.full(len(keys), -1)
    remaining = np.arange(len(keys))
    while len(remaining):
        own = choices[remaining].astype(np.int64)
        better = used[own].argmin(axis=1)
        bucket = own[np.arange(len(own)), better]
        if (used[bucket] >= _SLOTS).any():
            return None
        # At most one key per bucket and round, so that keys are spread evenly over their two buckets.
        _, first = np.unique(bucket, return_index=True)
        slots[remaining[first]] = bucket[first] * _SLOTS + used[bucket[first]]
        used[bucket[first]] += 1
        remaining = np.delete(remaining, first)
    return slots
