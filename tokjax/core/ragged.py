"""`Ragged`: rows of different lengths as flat columns, the one array type that everything here speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
"""The names of the columns of a `Ragged`, in their order."""


class Ragged(NamedTuple):
    """Rows of tokens laid end to end; row `i` is `ids[row_splits[i]:row_splits[i + 1]]`.

    A `NamedTuple` of arrays, so it is a JAX pytree as it stands and goes through `jit`, `vmap` and
    `jax.tree.map`. It checks nothing; `make_ragged` and `ragged_from_rows` do.

    Attributes:
        ids: `int32`, shape `(n,)`.
        row_splits: integers, shape `(rows + 1,)`, from 0 to `n`, never falling.
        offsets: 1-based byte spans, shape `(n, 2)`, or `None`.
        special_tokens_mask: 1 on special tokens, shape `(n,)`, or `None`.
        token_type_ids: which segment of the input a token is of, shape `(n,)`, or `None`.
        word_ids: which word of its text a token is of, -1 for inserted tokens, shape `(n,)`, or `None`.
        sequence_ids: which text of a pair a token is of, -1 for inserted tokens, `(n,)`, or `None`.
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
        """How many rows there are."""
        return int(self.row_splits.shape[0]) - 1

    @property
    def lengths(self) -> Array:
        """The number of tokens of each row, shape `(rows,)`."""
        return self.row_splits[1:] - self.row_splits[:-1]


def make_ragged(ids: Any, row_splits: Any, **columns: Any) -> Ragged:
    """A checked `Ragged` of NumPy arrays, from anything that NumPy can read.

    Args:
        ids: integers, shape `(n,)`.
        row_splits: integers, shape `(rows + 1,)`, from 0 to `n`, never falling.
        **columns: any of the other columns of `Ragged`, `(n,)` or `(n, 2)` for `offsets`.

    Returns:
        `int32` ids and masks, `int64` row splits and offsets.

    Raises:
        InvalidArgumentError: a column that `Ragged` does not have, or shapes that do not fit together.

    >>> make_ragged([5, 6, 7], [0, 1, 3]).lengths
    array([1, 2])
    """
    flat = as_integers("ids", ids, np.int32)
    splits = as_integers("row_splits", row_splits, np.int64)
    if splits.ndim != 1 or len(splits) == 0 or splits[0] != 0 or (np.diff(splits) < 0).any():
        raise InvalidArgumentError(
            f"row_splits must start at 0 and never fall, shape (rows + 1,); got {_format_array(splits)}"
        )
    if splits[-1] != len(flat):
        raise InvalidArgumentError(
            f"row_splits ends at {splits[-1]}, but there are {len(flat)} ids; the two must be equal"
        )
    checked = {}
    for name, column in columns.items():
        if name not in _COLUMN_SHAPES:
            raise InvalidArgumentError(f"Ragged has no column {name!r}; it has {', '.join(COLUMNS)}")
        if column is not None:
            dtype = np.int64 if name == "offsets" else np.int32
            checked[name] = as_integers(name, column, dtype)
    for name, column in {"ids": flat, **checked}.items():
        expected = (len(flat), *_COLUMN_SHAPES[name])
        if column.shape != expected:
            raise InvalidArgumentError(f"{name} must have shape {expected}, not {column.shape}")
    return Ragged(flat, splits, **checked)


def ragged_from_rows(rows: Iterable[Sequence[int] | Array]) -> Ragged:
    """Rows of ids, joined.

    Args:
        rows: one sequence of ids a row, shape `(tokens,)`; none at all is a `Ragged` of no rows.

    >>> ragged_from_rows([[5], [], [6, 7]]).row_splits
    array([0, 1, 1, 3])
    """
    arrays = [as_integers(f"row {i}", row, np.int32) for i, row in enumerate(rows)]
    for i, row in enumerate(arrays):
        if row.ndim != 1:
            raise InvalidArgumentError(f"row {i} has shape {row.shape}; a row is a flat list of ids")
    return make_ragged(np.concatenate([np.zeros(0, np.int32), *arrays]), make_row_splits(map(len, arrays)))


def make_row_splits(lengths: Iterable[int] | Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Row splits from row lengths: `int64`, one entry more than rows, starting at 0."""
    counts = lengths if isinstance(lengths, np.ndarray) else np.fromiter(lengths, np.int64)
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def concatenate_ranges(
    starts: np.ndarray[Any, np.dtype[np.int64]] | int, lengths: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Ranges of some lengths, laid end to end.

    Args:
        starts: the first number of each range, shape `(concatenate_ranges,)`, or one for all of them.
        lengths: how many numbers each range has, shape `(concatenate_ranges,)`.

    >>> concatenate_ranges(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    indices: np.ndarray[Any, np.dtype[np.int64]] = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    indices += np.arange(len(indices))
    return indices


def _format_array(array: np.ndarray[Any, Any]) -> str:
    return np.array2string(array, threshold=8, edgeitems=3)
