"""Hash tables without collisions: built on the host, looked up under `jax.jit` with two gathers.

A key is a row of 32-bit numbers. Its first hash gives its group, and every group has a pilot: a number that
moves all keys of the group to slots that are free. The second hash and the pilot give the slot. So a lookup
reads one pilot and one slot, and compares the key. For example, with groups of two keys:

    group   keys    second hashes   slots with pilot 0   with pilot 1   with pilot 2
      0     a, b        5, 9           3, 7 (free)
      1     c, d        2, 5           1, 3 (3 is used)     4, 7            0, 6 (free)

A free slot has 0 in the last column, which holds the value plus 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from tokjax.device.scans import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from numpy.typing import NDArray

ABSENT = -1
_GROUP_SIZE = 4
"""Mean number of keys of a group, at most."""
_LOAD = 0.75
"""Maximum share of slots that are used."""
_MAX_PILOT = 1 << 14
_MAX_SEEDS = 64
_MULTIPLIER = np.uint32(0x9E3779B1)


class HashTable(NamedTuple):
    """Hash table, a pytree of arrays. The numbers of groups and slots are powers of two.

    Attributes:
        pilots: pilot of each group, `uint32`, shape `(groups,)`.
        slots: columns of the key and value of each slot, `uint32`, shape `(slots, columns)`.
        seed: start value of the hashes, `uint32`, shape `()`.
    """

    pilots: Any
    slots: Any
    seed: Any


def build_table(keys: NDArray[np.uint32], values: NDArray[np.int64]) -> HashTable:
    """Builds a table on the host.

    Args:
        keys: different keys, `uint32`, shape `(n, columns)`.
        values: values from 0 to `2**32 - 2`, shape `(n,)`.
    """
    count, columns = keys.shape
    num_groups = _round_up(count / _GROUP_SIZE)
    num_slots = _round_up(count / _LOAD)
    for attempt in range(_MAX_SEEDS):
        seed = np.uint32(0x9E3779B9 + 0x61C88647 * attempt & 0xFFFFFFFF)
        pilots = np.zeros(num_groups, np.uint32)
        slots = _place(keys, pilots, num_slots, seed)
        if slots is not None:
            break
    else:
        raise AssertionError("no hash function places all keys")
    table = np.zeros((num_slots, columns + 1), np.uint32)
    table[slots, :columns] = keys
    table[slots, columns] = values + 1
    return HashTable(pilots, table, seed)


def find(table: HashTable, keys: Sequence[Array]) -> Array:
    """Returns the value of each key, `ABSENT` for keys that are not in the table.

    Args:
        table: the table.
        keys: the columns of the keys, `uint32`, of one shape.

    Returns:
        Values, `int32` (as bits of `uint32`), of the shape of the keys.
    """
    first, second = compute_hashes(keys, table.seed)
    pilots = table.pilots[_get_group(first, len(table.pilots))]
    num_slots, columns = table.slots.shape
    # Gathers of single numbers, which XLA fuses with the comparison. It would copy rows. The indices are
    # unsigned, since JAX would look for negative ones otherwise.
    at = store(_get_slot(second, pilots, num_slots) * np.uint32(columns))
    flat = table.slots.reshape(-1)
    found = flat[at + np.uint32(columns - 1)]
    for column, key in enumerate(keys):
        found = jnp.where(flat[at + np.uint32(column)] == key, found, np.uint32(0))
    result: Array = found.astype(jnp.int32) - 1
    return result


def compute_hashes(keys: Sequence[Any], seed: Any) -> tuple[Any, Any]:
    """Returns two independent hashes of keys, `uint32`. Works on arrays of NumPy and JAX."""
    first, second = seed, ~seed
    for key in keys:
        first = (first ^ key) * np.uint32(0x85EBCA6B)
        first = first ^ (first >> np.uint32(15))
        second = (second ^ key) * np.uint32(0xC2B2AE35)
        second = second ^ (second >> np.uint32(13))
    return first, second


def _round_up(count: float) -> int:
    """Returns the smallest power of two that is at least 2 and at least this number."""
    return 1 << max(int(np.ceil(np.log2(max(count, 1)))), 1)


def _get_group(first: Any, num_groups: int) -> Any:
    return first & np.uint32(num_groups - 1)


def _get_slot(second: Any, pilots: Any, num_slots: int) -> Any:
    shift = np.uint32(33 - num_slots.bit_length())
    return ((second ^ pilots) * _MULTIPLIER) >> shift


def _place(
    keys: NDArray[np.uint32], pilots: NDArray[np.uint32], num_slots: int, seed: np.uint32
) -> NDArray[np.uint32] | None:
    """Returns the slot of each key and sets the pilots, or returns `None` if a group finds no free slots.

    Large groups are placed first, while most slots are free. All groups of one size try a pilot at once.
    Those whose slots are free keep them, the others try the next pilot.
    """
    with np.errstate(over="ignore"):
        first, second = compute_hashes(list(keys.T), seed)
        groups = _get_group(first, len(pilots))
        order = np.argsort(groups, kind="stable")
        counts = np.bincount(groups, minlength=len(pilots))
        begins = np.cumsum(counts) - counts
        slots = np.zeros(len(keys), np.uint32)
        is_used, claims = np.zeros(num_slots, bool), np.zeros(num_slots, np.int64)
        for size in range(counts.max(initial=0), 0, -1):
            remaining = np.flatnonzero(counts == size)
            members = order[begins[remaining, None] + np.arange(size)]
            for pilot in range(_MAX_PILOT):
                if not len(remaining):
                    break
                tried = _get_slot(second[members], np.uint32(pilot), num_slots)
                ordered = np.sort(tried, axis=1)
                fits = ~is_used[tried].any(axis=1) & (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
                # Of groups that want the same slot, at most one gets it.
                claims[tried[fits]] = remaining[fits, None]
                fits &= (claims[tried] == remaining[:, None]).all(axis=1)
                is_used[tried[fits]] = True
                slots[members[fits]] = tried[fits]
                pilots[remaining[fits]] = pilot
                remaining, members = remaining[~fits], members[~fits]
            if len(remaining):
                return None
    return slots
