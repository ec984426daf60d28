"""Random access to a column of a dataset that has a value per token, memory-mapped.

The values of a token are found by its position in the stream of all ids. A range of positions may extend over
several shards, and is read with one contiguous read per shard:

    positions       0 1 2 3 4 5 6 | 7 8 9
    shard           shard-00000   | shard-00001
    range [5, 9)              5 6 | 7 8
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, SupportsIndex

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax.datasets.columns import cast_values, check_cast
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from tokjax.datasets.columns import Column


class ShardSlice(NamedTuple):
    """Entries `[start, stop)` of a file of a shard."""

    shard: int
    start: int
    stop: int


class ColumnFiles(Protocol):
    """Part of a `Dataset` that a `TokenColumn` needs.

    `_item_starts` has the start of each shard in the stream of tokens, and the end, shape `(shards + 1,)`.
    """

    _item_starts: NDArray[np.int64]

    def __len__(self) -> int:
        """Returns the number of documents."""

    def _find_document(self, row: SupportsIndex) -> tuple[int, int, int]:
        """Returns the shard of a document, and the start and end of its tokens in the shard."""

    def _read_column(self, shard: int, column: Column, start: int, stop: int) -> NDArray[Any]:
        """Returns values `[start, stop)` of a column of a shard, in its dtype, shape `(stop - start,)`."""

    def _read_column_slices(self, column: Column, slices: Sequence[ShardSlice]) -> Iterable[NDArray[Any]]:
        """Returns values of a column, in its dtype."""


class TokenColumn:
    """Side column with a value per token. `column[i]` has the values of document `i`.

    Attributes:
        dataset: dataset of the column.
        description: description of the column.
        dtype: dtype of the values that are returned.
    """

    def __init__(self, dataset: ColumnFiles, description: Column, dtype: DTypeLike | None = None) -> None:
        self.dataset = dataset
        self.description = description
        target = description.dtype if dtype is None else dtype
        self.dtype = check_cast(description.name, description.dtype, target)

    def __len__(self) -> int:
        """Returns the number of documents."""
        return len(self.dataset)

    def __repr__(self) -> str:
        """Returns the name, the dtype and the dataset."""
        return f"TokenColumn({self.description.name!r}, {self.dtype.name}, {self.dataset!r})"

    def __getitem__(self, row: SupportsIndex) -> NDArray[Any]:
        """Returns the values of one document, shape `(num_tokens,)`, aligned with `dataset.document(row)`."""
        shard, start, stop = self.dataset._find_document(row)
        return self._cast(self.dataset._read_column(shard, self.description, start, stop))

    def _read_rows(self, rows: Sequence[int]) -> list[NDArray[Any]]:
        """Returns the values of several documents, as `column[row]` does."""
        slices = [ShardSlice(*self.dataset._find_document(row)) for row in rows]
        return list(map(self._cast, self.dataset._read_column_slices(self.description, slices)))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Returns the values of tokens `[start, stop)` of all documents, shape `(stop - start,)`."""
        return self.read_ranges([start], [stop - start])

    def read_ranges(self, starts: ArrayLike, lengths: ArrayLike) -> NDArray[Any]:
        """Returns the values of ranges of the concatenated documents, concatenated.

        Args:
            starts: position of the first token of each range, integers, shape `(n,)`.
            lengths: number of tokens of each range, integers, shape `(n,)`.

        Returns:
            Values in `dtype`, shape `(lengths.sum(),)`.

        Raises:
            InvalidArgumentError: a range extends beyond the tokens of the dataset.
        """
        firsts, counts = as_integers("starts", starts, np.int64), as_integers("lengths", lengths, np.int64)
        splits = self.dataset._item_starts
        is_outside = (firsts < 0) | (counts < 0) | (firsts > int(splits[-1]) - counts)
        if is_outside.any():
            first, count = firsts[is_outside][0], counts[is_outside][0]
            raise InvalidArgumentError(
                f"range [{first}, {first + count}) is out of range: the dataset has {splits[-1]} tokens"
            )
        shards = np.searchsorted(splits, firsts, "right") - 1
        slices = []
        for shard, first, count in zip(shards.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            end = first + count
            while first < end:
                begin, stop = int(splits[shard]), min(end, int(splits[shard + 1]))
                slices.append(ShardSlice(shard, first - begin, stop - begin))
                first, shard = stop, shard + 1  # noqa: PLW2901
        values = np.empty(int(counts.sum()), self.description.dtype)
        position = 0
        for part in self.dataset._read_column_slices(self.description, slices):
            values[position : position + len(part)] = part
            position += len(part)
        return self._cast(values)

    def _cast(self, values: NDArray[Any]) -> NDArray[Any]:
        return cast_values(self.description.name, values, self.dtype)
