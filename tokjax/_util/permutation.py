"""Format-preserving permutation: computes position `i` of a shuffle from a key, without storing the shuffle.

A loader that shuffles 10 billion chunks needs only the indices of the next batch, after a resume too. An
array of all indices would take 80 GB, so `permute` evaluates a keyed bijection of `range(size)` at single
indices.

Large ranges use an unbalanced Feistel network with cycle walking, an algorithm of format-preserving
encryption. The index is written as a row and a column of a rectangle with at least `size` cells. For a
range of 10 and the key 100, the rectangle has 4 rows and 3 columns:

    index 7 = row 2 * 3 + column 1                      0  1  2
                                                        3  4  5
    each of 4 rounds                                    6 [7] 8
      row    <- (row + hash(column, key)) mod 4         9  .  .     cells 10 and 11 are outside of range(10)
      column <- (column + hash(row, key)) mod 3

    index 7 -> cell 11 -> cell 4, the result            permute again until the cell is inside

Each half of a round shifts one coordinate by an amount that depends only on the other one. So it is
invertible, and any number of rounds is a bijection of the cells. Cycle walking makes it a bijection of
`range(size)`: the walk from an index follows its cycle of cells, which returns to the index itself, so it
reaches a cell inside, and no two indices reach the same cell. The rectangle is nearly a square, with fewer
than `sqrt(size)` extra cells, so walks are short.

Small ranges are sorted by random keys instead: four rounds over a few cells do not produce all permutations
equally often. Both ways compute with integers alone, so the result is the same on every machine. See
docs/determinism.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_ROUNDS = 4
_MAX_SORTED_SIZE = 1 << 12
"""Size of the largest range that is permuted by sorting."""
MASK64 = (1 << 64) - 1
# The constants of splitmix64: the increment of its counter, and the factors of its finalizer.
INCREMENT = 0x9E3779B97F4A7C15
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def permute(indices: ArrayLike, size: int, *key: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the image of each index under a pseudorandom permutation of `range(size)`.

    The result is the same on every machine. The memory depends on the number of indices, not on `size`.

    Args:
        indices: integers from 0 to `size - 1`, of any shape.
        size: number of items that are permuted.
        *key: integers that select the permutation, for instance a seed and an epoch. An `int64` array, shape
            `(indices.size,)`, selects a separate permutation for each index.

    Returns:
        `int64`, the shape of `indices`. Distinct indices have distinct images under the same key.

    Raises:
        InvalidArgumentError: an index is not in `range(size)`.

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
    permute_flat = _permute_by_sorting if size <= _MAX_SORTED_SIZE else _permute_by_cycle_walking
    return permute_flat(flat, size, round_keys).reshape(index_array.shape)


def _permute_by_sorting(
    indices: NDArray[np.int64], size: int, round_keys: list[NDArray[np.uint64]]
) -> NDArray[np.int64]:
    """Permutes a small range: sorts one row of random keys for each distinct permutation.

    Args:
        indices: integers from 0 to `size - 1`, shape `(n,)`.
        size: number of items that are permuted.
        round_keys: see `_derive_round_keys`.
    """
    # All round keys derive from one state, and the first one is a bijection of it. So keys with equal first
    # round keys are equal.
    _, firsts, rows = np.unique(round_keys[0], return_index=True, return_inverse=True)
    keys = np.arange(size, dtype=np.uint64)[None]
    for round_key in round_keys[:2]:
        keys = mix_bits(keys ^ round_key[firsts, None])
    return np.argsort(keys, axis=1, kind="stable")[rows, indices]


def _permute_by_cycle_walking(
    indices: NDArray[np.int64], size: int, round_keys: list[NDArray[np.uint64]]
) -> NDArray[np.int64]:
    """Permutes a large range: see the example at the head of the module.

    Args:
        indices: integers from 0 to `size - 1`, shape `(n,)`.
        size: number of items that are permuted.
        round_keys: see `_derive_round_keys`.
    """
    height = math.isqrt(size - 1) + 1
    sides = np.uint64(height), np.uint64(-(-size // height))
    result = _apply_feistel(indices.astype(np.uint64), *sides, round_keys)
    # Cycle walking: about one cell in sqrt(size) is outside the range, so a second step is rare.
    while (outside := result >= size).any():
        outside_keys = [key if len(key) == 1 else key[outside] for key in round_keys]
        result[outside] = _apply_feistel(result[outside], *sides, outside_keys)
    return result.astype(np.int64)


def _apply_feistel(
    values: NDArray[np.uint64], height: np.uint64, width: np.uint64, round_keys: list[NDArray[np.uint64]]
) -> NDArray[np.uint64]:
    """Permutes the cells of a rectangle: rows and columns are shifted in turn by a hash of the other.

    Args:
        values: numbers of cells, from 0 to `height * width - 1`, shape `(n,)`.
        height: number of rows.
        width: number of columns.
        round_keys: two keys for each round, of shape `(1,)` or `(n,)`.
    """
    row, column = np.divmod(values, width)
    for row_key, column_key in zip(round_keys[::2], round_keys[1::2], strict=True):
        row = (row + mix_bits(column ^ row_key) % height) % height
        column = (column + mix_bits(row ^ column_key) % width) % width
    return row * width + column


def mix_bits(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hashes 64-bit integers with the finalizer of splitmix64, a bijection."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FACTORS[0])
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_FACTORS[1])
    return values ^ (values >> np.uint64(31))


def mix_int(value: int) -> int:
    """Hashes one 64-bit integer, as `mix_bits` does.

    >>> mix_int(7) == int(mix_bits(np.array([7], np.uint64))[0])
    True
    """
    value = ((value ^ (value >> 30)) * _FACTORS[0]) & MASK64
    value = ((value ^ (value >> 27)) * _FACTORS[1]) & MASK64
    return value ^ (value >> 31)


def _derive_round_keys(key: tuple[int | NDArray[np.int64], ...]) -> list[NDArray[np.uint64]]:
    """Derives two 64-bit keys for each round. Each depends on all parts of the key.

    Args:
        key: integers, or `int64` arrays of shape `(n,)`.

    Returns:
        Arrays of shape `(n,)` if a part of the key is an array, otherwise `(1,)`.
    """
    state = np.zeros(1, np.uint64)
    for part in key:
        bits = np.uint64(part & MASK64) if isinstance(part, int) else part.astype(np.uint64)
        state = mix_bits(state ^ bits) + np.uint64(INCREMENT)
    keys = []
    for _ in range(2 * _ROUNDS):
        state = state + np.uint64(INCREMENT)
        keys.append(mix_bits(state))
    return keys
