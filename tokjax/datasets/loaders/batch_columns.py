"""Side columns in the batches of loaders: aligned with the ids, and padded with the fill value.

Two documents in a padded batch, with a column `weights` per token (fill value 0) and `score` per document:

    ids        5 6 7 <pad>      columns["weights"]   0.5 1.0 1.0 0.0      columns["score"]   0.9
               8 9 <pad> <pad>                       2.0 2.0 0.0 0.0                         0.1

A column `loss_mask` becomes the `loss_mask` of the batch. In packed batches, a column per document is
repeated for the tokens of the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.checks import check_names
from tokjax.batching.collate import PaddedBatch, pad_ragged
from tokjax.core.ragged import ragged_from_rows
from tokjax.datasets.columns import LOSS_MASK, cast_values, check_cast
from tokjax.errors import DatasetMismatchError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray

    from tokjax.datasets.columns import Column
    from tokjax.datasets.dataset import Dataset

ColumnChoice: TypeAlias = "Sequence[str] | Mapping[str, DTypeLike] | None"
"""Names of the columns that a loader loads, or their dtypes by name; `None` for all columns."""

_PADDED_COLUMNS = ("ids", "attention_mask")


class BatchColumn(NamedTuple):
    """Side column in the batches of a loader.

    Attributes:
        column: description of the column in the datasets.
        dtype: dtype in batches.
    """

    column: Column
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    def cast(self, values: Any) -> NDArray[Any]:
        """Returns values of the column in the dtype of the batches."""
        return cast_values(self.name, np.asarray(values), self.dtype)

    def make_filled(self, *shape: int) -> NDArray[Any]:
        """Returns an array of the value on padding: the fill value, and 0 for a loss mask."""
        return np.full(shape, 0 if self.name == LOSS_MASK else self.column.fill, self.dtype)


def choose_columns(datasets: Sequence[Dataset], choice: ColumnChoice) -> tuple[BatchColumn, ...]:
    """Returns the columns of the batches of a loader.

    Args:
        datasets: datasets of the loader.
        choice: columns to load.

    Raises:
        DatasetMismatchError: the datasets have different columns, or different columns of a name.
        InvalidArgumentError: no dataset has one of the columns, or it can't be cast.
    """
    first = datasets[0]
    chosen = [column.name for column in first.columns] if choice is None else check_names("columns", choice)
    dtypes = choice if isinstance(choice, Mapping) else {}
    for dataset in datasets[1:]:
        names, other_names = (sorted(each.name for each in data.columns) for data in (first, dataset))
        if choice is None and names != other_names:
            raise DatasetMismatchError(
                f"{first.location} has the columns {names}, and {dataset.location} has {other_names}; pass "
                "columns=[...] with columns that all datasets have"
            )
        for name in chosen:
            column, other = first.get_column(name), dataset.get_column(name)
            if (column.dtype, column.per, column.fill) != (other.dtype, other.per, other.fill):
                raise DatasetMismatchError(
                    f"{first.location} has {column}, and {dataset.location} has {other}; their dtype, per "
                    "and fill must be equal"
                )
    return tuple(_choose_dtype(first.get_column(name), dtypes.get(name)) for name in chosen)


def _choose_dtype(column: Column, dtype: DTypeLike | None) -> BatchColumn:
    """Returns a column with its dtype in batches: by default the stored one, of at most 32 bits."""
    stored = np.dtype(column.dtype)
    if column.name == LOSS_MASK:
        if dtype is not None and check_cast(column.name, np.int32, dtype) != np.int32:
            raise InvalidArgumentError(f"the column {LOSS_MASK!r} is int32 in batches; got {dtype!r}")
        return BatchColumn(column, stored)
    if dtype is None:
        dtype = f"{stored.kind}4" if stored.itemsize > 4 else stored
    batch_column = BatchColumn(column, check_cast(column.name, stored, dtype))
    cast_values(column.name, np.array([column.fill], stored), batch_column.dtype)
    return batch_column


def split_loss_mask(columns: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Returns the fields `loss_mask` and `columns` of a batch, without those that are `None`."""
    others = {name: values for name, values in columns.items() if name != LOSS_MASK}
    fields: dict[str, Any] = {"columns": others} if others else {}
    if LOSS_MASK in columns:
        fields["loss_mask"] = (columns[LOSS_MASK] != 0).astype(np.int32)
    return fields


class DocumentRow(NamedTuple):
    """Document for one row of a padded batch.

    Attributes:
        ids: token ids, `int32`, shape `(num_tokens,)`.
        values: value of each column, in its stored dtype: of shape `(num_tokens,)` per token, and `()` per
            document.
    """

    ids: NDArray[np.int32]
    values: tuple[Any, ...]


def pad_rows(
    rows: Sequence[DocumentRow | None], columns: Sequence[BatchColumn], *, length: int, pad_id: int
) -> PaddedBatch:
    """Returns a padded batch of documents, with their side columns.

    Args:
        rows: documents; `None` for empty rows.
        columns: side columns of the documents.
        length: number of tokens per row of the batch, at least that of the longest document.
        pad_id: id on padding.
    """
    empty = np.zeros(0, np.int32)
    ids = [empty if row is None else row.ids for row in rows]
    batch = pad_ragged(ragged_from_rows(ids), length=length, pad_id=pad_id, columns=_PADDED_COLUMNS)
    if not columns:
        return batch
    is_token = np.asarray(batch.attention_mask, bool)
    is_document = np.array([row is not None for row in rows], bool)
    padded = {}
    for i, column in enumerate(columns):
        present = [row.values[i] for row in rows if row is not None]
        if column.column.per == "token":
            values = column.make_filled(*is_token.shape)
            values[is_token] = column.cast(np.concatenate([np.zeros(0, column.column.dtype), *present]))
        else:
            values = column.make_filled(len(rows))
            values[is_document] = column.cast(np.array(present, column.column.dtype))
        padded[column.name] = values
    return batch._replace(**split_loss_mask(padded))
