"""Ragged arrays: rows of different lengths as flat columns and row splits; sorting and grouping of rows.

`Ragged` is the common array type of tokjax. Encoders return it and batching functions take it:

    rows          [5, 6]  []  [7]
    ids           [5, 6, 7]
    row_splits    [0, 2, 2, 3]        row i is ids[row_splits[i] : row_splits[i + 1]]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.checks import is_iterable
from tokjax._util.display import short_repr
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax._util.arrays import Array

_COLUMN_SHAPES = {
    "ids": (),
    "offsets": (2,),
    "special_tokens_mask": (),
    "token_type_ids": (),
    "word_ids": (),
    "sequence_ids": (),
}
COLUMNS = tuple(_COLUMN_SHAPES)
"""Names of the columns of a `Ragged`, in order."""
_RAGGED_UNDER_JIT = "call tokjax.Ragged(ids, row_splits) there, which checks nothing"


@short_repr
class Ragged(NamedTuple):
    """Concatenated rows of tokens. Row `i` is `ids[row_splits[i]:row_splits[i + 1]]`.

    A `NamedTuple` of arrays is a JAX pytree without registration, so a `Ragged` can be passed through `jit`,
    `vmap` and `jax.tree.map`. The constructor does not check its arguments; `make_ragged` and
    `ragged_from_rows` do.

    Attributes:
        ids: token ids, `int32`, shape `(n,)`.
        row_splits: bounds of the rows in the columns: ascending integers from 0 to `n`, shape `(rows + 1,)`.
        offsets: 1-based byte spans, shape `(n, 2)`, or `None`.
        special_tokens_mask: 1 on special tokens, shape `(n,)`, or `None`.
        token_type_ids: index of the token's segment of the input, shape `(n,)`, or `None`.
        word_ids: index of the token's word in its text, -1 for inserted tokens, shape `(n,)`, or `None`.
        sequence_ids: index of the token's text in a pair, -1 for inserted tokens, shape `(n,)`, or `None`.
    """

    ids: Array
    row_splits: Array
    offsets: Array | None = None
    special_tokens_mask: Array | None = None
    token_type_ids: Array | None = None
    word_ids: Array | None = None
    sequence_ids: Array | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.row_splits.shape[0]) - 1

    @property
    def lengths(self) -> Array:
        """Number of tokens of each row, shape `(rows,)`."""
        return self.row_splits[1:] - self.row_splits[:-1]


def make_ragged(ids: Any, row_splits: Any, **columns: Any) -> Ragged:
    """Makes a `Ragged` of NumPy arrays, and checks it.

    Args:
        ids: token ids, an array or a list of integers, shape `(n,)`.
        row_splits: bounds of the rows: ascending integers from 0 to `n`, shape `(rows + 1,)`.
        **columns: other columns of `Ragged` by name, shape `(n,)`, or `(n, 2)` for `offsets`.

    Returns:
        A `Ragged` with `int64` row splits and offsets; all other columns are `int32`.

    Raises:
        InvalidArgumentError: a name is not that of a column, a value does not fit its dtype, or the shapes
            are not consistent.

    >>> make_ragged([5, 6, 7], [0, 1, 3]).lengths
    array([1, 2])
    """
    flat = as_integers("ids", ids, np.int32, under_jit=_RAGGED_UNDER_JIT)
    splits = as_integers("row_splits", row_splits, np.int64, under_jit=_RAGGED_UNDER_JIT)
    if splits.ndim != 1 or len(splits) == 0 or splits[0] != 0 or (np.diff(splits) < 0).any():
        shown = np.array2string(splits, threshold=8, edgeitems=3)
        raise InvalidArgumentError(
            f"row_splits must start at 0 and never decrease, shape (rows + 1,); got {shown}"
        )
    if splits[-1] != flat.size:
        raise InvalidArgumentError(
            f"row_splits ends at {splits[-1]}, but there are {flat.size} ids; the two must be equal"
        )
    checked = {}
    for name, column in columns.items():
        if name not in _COLUMN_SHAPES:
            raise InvalidArgumentError(f"Ragged has no column {name!r}; it has {', '.join(COLUMNS)}")
        if column is not None:
            dtype = np.int64 if name == "offsets" else np.int32
            checked[name] = as_integers(name, column, dtype, under_jit=_RAGGED_UNDER_JIT)
    for name, column in {"ids": flat, **checked}.items():
        expected = (flat.size, *_COLUMN_SHAPES[name])
        if column.shape != expected:
            raise InvalidArgumentError(f"{name} must have shape {expected}, not {column.shape}")
    return Ragged(flat, splits, **checked)


def ragged_from_rows(rows: Iterable[Sequence[int] | Array]) -> Ragged:
    """Makes a `Ragged` from rows of ids.

    Args:
        rows: ids of each row, shape `(num_tokens,)`. Without rows, the result is a `Ragged` with 0 rows.

    Raises:
        InvalidArgumentError: a row is not a flat sequence of integers that fit `int32`.

    >>> ragged_from_rows([[5], [], [6, 7]]).row_splits
    array([0, 1, 1, 3])
    """
    if not is_iterable(rows):
        raise InvalidArgumentError(f"rows must be rows of ids, not {rows!r:.80}")
    arrays = [
        as_integers(f"row {i}", row, np.int32, under_jit=_RAGGED_UNDER_JIT) for i, row in enumerate(rows)
    ]
    for i, row in enumerate(arrays):
        if row.ndim != 1:
            raise InvalidArgumentError(f"row {i} has shape {row.shape}; a row is a flat list of ids")
    return make_ragged(np.concatenate([np.zeros(0, np.int32), *arrays]), make_row_splits(map(len, arrays)))


def make_row_splits(lengths: Iterable[int] | Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Computes row splits from row lengths.

    Args:
        lengths: number of tokens of each row, shape `(rows,)`.

    Returns:
        `int64`, shape `(rows + 1,)`, starting with 0.
    """
    counts = lengths if isinstance(lengths, np.ndarray) else np.fromiter(lengths, np.int64)
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def concatenate_ranges(
    starts: np.ndarray[Any, np.dtype[np.int64]] | int, lengths: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Concatenates ranges of integers, without a loop.

    This is the basic step of gathers from flat columns: the indices of all tokens of selected rows.

    Args:
        starts: first number of each range, shape `(num_ranges,)`, or one number for all ranges.
        lengths: number of integers in each range, shape `(num_ranges,)`.

    Returns:
        `int64`, shape `(lengths.sum(),)`.

    >>> concatenate_ranges(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    if len(lengths) and lengths.min() == 0:
        nonempty = np.flatnonzero(lengths)
        lengths = lengths.take(nonempty)
        starts = starts.take(nonempty) if isinstance(starts, np.ndarray) else starts
    if not len(lengths):
        return np.zeros(0, np.int64)
    # The running sum of the differences between neighbours: 1 within a range, a jump between two ranges. This
    # is faster than `np.repeat`, which also holds the GIL.
    stops = np.cumsum(lengths)
    indices = np.ones(int(stops[-1]), np.int64)
    jumps = 1 - lengths[:-1]
    if isinstance(starts, np.ndarray):
        jumps += starts[1:] - starts[:-1]
        indices[0] = starts[0]
    else:
        indices[0] = starts
    indices[stops[:-1]] = jumps
    return np.cumsum(indices, out=indices)


def find_distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the distinct values of an array in ascending order, like `np.unique`.

    The first call of `np.unique` imports `numpy.ma`, which takes as long as compiling a split pattern.

    >>> find_distinct(np.array([7, 2, 7])).tolist()
    [2, 7]
    """
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def argsort_integers(keys: NDArray[np.int64], key_bits: int) -> NDArray[np.int64]:
    """Returns the order that sorts keys, like a stable `np.argsort`.

    Each key and its index are packed into one number. NumPy sorts numbers about three times faster than it
    sorts indices.

    Args:
        keys: integers from 0 to `2**key_bits - 1`, shape `(n,)`.
        key_bits: number of bits of a key.

    >>> argsort_integers(np.array([7, 2, 7, 0]), 3).tolist()
    [3, 1, 0, 2]
    """
    index_bits = len(keys).bit_length()
    if key_bits + index_bits > 63:
        return np.argsort(keys, kind="stable")
    packed = keys << index_bits
    packed |= np.arange(len(keys))
    packed.sort()
    packed &= (1 << index_bits) - 1
    return packed


def group_equal_rows(
    data: NDArray[Any], lengths: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups equal rows of a ragged array.

    Rows with equal hashes are compared in full. If different rows have equal hashes, which is rare, a
    dictionary is used instead.

    Args:
        data: the values of all rows, concatenated, shape `(values,)`.
        lengths: number of values of each row, at least 1, shape `(rows,)`.
        hashes: a hash of each row, of which the highest bits matter most, shape `(rows,)`.

    Returns:
        The index of one row of each group, `int64`, shape `(groups,)`; and for each row the number of its
        group, `int64`, shape `(rows,)`.

    >>> rows, lengths = np.array([5, 6, 5, 5, 6]), np.array([2, 1, 2])
    >>> examples, groups = group_equal_rows(rows, lengths, np.array([9, 0, 9], np.uint64) << np.uint64(60))
    >>> examples.tolist(), groups.tolist()
    ([1, 0], [1, 0, 1])
    """
    if not len(lengths):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    hash_bits = 63 - len(lengths).bit_length()
    hashes = hashes >> np.uint64(64 - hash_bits)
    order = argsort_integers(hashes.view(np.int64), hash_bits)
    hashes, sorted_lengths = hashes.take(order), lengths.take(order)
    starts = np.cumsum(lengths) - lengths
    values = data.take(concatenate_ranges(starts.take(order), sorted_lengths))
    # Each row is compared with the one before it in this order, if both have the same length.
    is_equal = np.diff(sorted_lengths, prepend=0) == 0
    previous = np.arange(len(values)) - np.repeat(np.where(is_equal, sorted_lengths, 0), sorted_lengths)
    sorted_starts = np.cumsum(sorted_lengths) - sorted_lengths
    is_equal &= np.logical_and.reduceat(values == values.take(previous), sorted_starts)
    if ((hashes[1:] == hashes[:-1]) & ~is_equal[1:]).any():
        stops = (starts + lengths).tolist()
        return _group_by_dictionary(
            [data[start:stop].tobytes() for start, stop in zip(starts.tolist(), stops, strict=True)]
        )
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(~is_equal) - 1
    return order[~is_equal], groups


def _group_by_dictionary(rows: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    examples: dict[bytes, int] = {}
    for index, row in enumerate(rows):
        examples.setdefault(row, index)
    numbers = {row: number for number, row in enumerate(examples)}
    groups = np.fromiter(map(numbers.__getitem__, rows), np.int64, len(rows))
    return np.fromiter(examples.values(), np.int64, len(examples)), groups
