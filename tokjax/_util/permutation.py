"""A shuffle that is never written down: where the `i`-th item goes is computed from a key."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_ROUNDS = 4
_MAX_SORTED_SIZE = 1 << 12
_MASK64 = (1 << 64) - 1


def permute(indices: ArrayLike, size: int, *key: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each index goes in the permutation of `range(size)` that a key names.

    The same on every machine, and constant in memory: a large range goes through a Feistel network over a
    rectangle that is hardly larger, walked until the result is below `size`; a small one is sorted by random
    keys.

    Args:
        indices: integers from 0 to `size - 1`, of any shape.
        size: how many items are permuted.
        *key: integers that name the permutation, for instance a seed and an epoch; or `int64` of as many
            entries as there are indices, if each is of a permutation of its own.

    Returns:
        `int64`, of the shape of `indices`; all different if the indices are, and their key is one.

    >>> sorted(permute(np.arange(10), 10, 7).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    >>> permute([2, 2], 10, np.array([7, 8])).tolist() == [int(permute(2, 10, key)) for key in (7, 8)]
    True
    """
    index_array = np.asarray(indices, np.int64)
    flat = index_array.reshape(-1)
    if flat.size and not 0 <= flat.min() <= flat.max() < size:
        raise InvalidArgumentError(f"indices must be from 0 to {size - 1}")
    round_keys = _derive_round_keys(key)
    permuted = _permute_by_sorting if size <= _MAX_SORTED_SIZE else _permute_by_cycle_walking
    return permuted(flat, size, round_keys).reshape(index_array.shape)


def _permute_by_sorting(
    indices: NDArray[np.int64], size: int, round_keys: list[NDArray[np.uint64]]
) -> NDArray[np.int64]:
    """The same for a small range: a row of random keys for each permutation, sorted."""
    _, firsts, rows = np.unique(round_keys[0], return_index=True, return_inverse=True)
    keys = np.arange(size, dtype=np.uint64)[None]
    for round_key in round_keys[:2]:
        keys = _mix(keys ^ round_key[firsts, None])
    return np.argsort(keys, axis=1, kind="stable")[rows, indices]


def _permute_by_cycle_walking(
    indices: NDArray[np.int64], size: int, round_keys: list[NDArray[np.uint64]]
) -> NDArray[np.int64]:
    """The same for a large range."""
    height = math.isqrt(size - 1) + 1
    sides = np.uint64(height), np.uint64(-(-size // height))
    result = _apply_feistel(indices.astype(np.uint64), *sides, round_keys)
    while (outside := result >= size).any():
        outside_keys = [key if len(key) == 1 else key[outside] for key in round_keys]
        result[outside] = _apply_feistel(result[outside], *sides, outside_keys)
    return result.astype(np.int64)


def _apply_feistel(
    values: NDArray[np.uint64], height: np.uint64, width: np.uint64, round_keys: list[NDArray[np.uint64]]
) -> NDArray[np.uint64]:
    """A permutation of a rectangle of numbers: rows and columns are shifted in turn by what the other is."""
    row, column = np.divmod(values, width)
    for row_key, column_key in zip(round_keys[::2], round_keys[1::2], strict=True):
        row = (row + _mix(column ^ row_key) % height) % height
        column = (column + _mix(row ^ column_key) % width) % width
    return row * width + column


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _derive_round_keys(key: tuple[int | NDArray[np.int64], ...]) -> list[NDArray[np.uint64]]:
    """64-bit numbers for each round, one or as many as a part of the key has; each depends on all of it."""
    state = np.zeros(1, np.uint64)
    for part in key:
        bits = np.uint64(part & _MASK64) if isinstance(part, int) else part.astype(np.uint64)
        state = _mix(state ^ bits) + np.uint64(0x9E3779B97F4A7C15)
    keys = []
    for _ in range(2 * _ROUNDS):
        state = state + np.uint64(0x9E3779B97F4A7C15)
        keys.append(_mix(state))
    return keys
