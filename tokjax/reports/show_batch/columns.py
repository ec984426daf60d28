"""What a batch holds, whatever it is and whatever it calls its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import as_integers, is_traced
from tokjax.core.array_inputs import as_ragged, check_same_shape
from tokjax.core.ragged import ragged_from_rows
from tokjax.core.records import TokenizationBatch, TokenizationResult
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_COLUMN_NAMES = {
    "ids": ("ids", "input_ids", "inputs", "tokens"),
    "row_splits": ("row_splits",),
    "attention_mask": ("attention_mask", "{ids}_mask"),
    "segment_ids": ("segment_ids", "{ids}_segmentation", "{ids}_segment_ids"),
    "positions": ("positions", "position_ids", "{ids}_position", "{ids}_positions"),
    "labels": ("labels", "targets"),
    "label_mask": ("{labels}_mask", "{labels}_segmentation", "{labels}_segment_ids"),
    "loss_mask": ("loss_mask", "loss_weight", "loss_weights"),
}
"""What libraries call each column; `{ids}` and `{labels}` stand for what the batch calls those."""
_MAX_LISTED_KEYS = 12
"""How many keys of a batch an error lists."""


class Columns(NamedTuple):
    """The columns of a batch, on the host.

    Attributes:
        ids: shape `(rows, length)`, or `(n,)` where rows lie end to end.
        splits: where each row starts, and the last one ends, shape `(rows + 1,)`.
        are_ragged: whether the rows have lengths of their own, and so no padding.
        others: the other columns, by the names of tokjax, of the shape of the ids.
        left_out: why the batch's labels are not among them, if they are not.
    """

    ids: NDArray[np.int32]
    splits: NDArray[Any]
    are_ragged: bool
    others: dict[str, NDArray[Any]]
    left_out: str | None

    def get_flags(self, name: str) -> NDArray[np.bool_] | None:
        """Where a column is not 0, shape `(n,)`; `None` without it."""
        column = self.others.get(name)
        return None if column is None else column.reshape(-1) != 0

    def get_integers(self, name: str) -> NDArray[Any] | None:
        """A column of integers, `int64`, shape `(n,)`; `None` without it."""
        column = self.others.get(name)
        return None if column is None else as_integers(name, column, np.int64).reshape(-1)


def read_columns(batch: Any, labels: Any, loss_mask: Any) -> Columns:
    """The columns of a batch, with labels and a loss mask for its own where they are given.

    Raises:
        InvalidArgumentError: there are no ids, or columns are traced or don't fit together.
    """
    found = _get_columns(batch)
    passed = {"labels": labels, "loss_mask": loss_mask}
    if labels is not None:
        found.pop("label_mask", None)  # (it is of the batch's own labels)
    found |= {name: values for name, values in passed.items() if values is not None}
    if any(map(is_traced, found.values())):
        raise InvalidArgumentError(
            "show_batch looks at values, which are not known under jax.jit; call it outside"
        )
    ids, splits, are_ragged = _read_rows(found.pop("ids"), found.pop("row_splits", None))
    others, left_out = {name: _to_host(values) for name, values in found.items()}, None
    if labels is None and "labels" in others and others["labels"].array.shape != ids.shape:
        # Classes of whole rows, or the targets of a decoder.
        shape = others.pop("labels").array.shape
        others.pop("label_mask", None)
        left_out = f"labels of shape {shape} are not shown: ids have shape {ids.shape}"
    fitting = {name: column.check_rows(name, ids, splits) for name, column in others.items()}
    return Columns(ids, splits, are_ragged, fitting, left_out)


def _get_columns(batch: Any) -> dict[str, Any]:
    """What a batch holds, by the names of tokjax; ids at least."""
    if isinstance(batch, (TokenizationBatch, TokenizationResult)):
        return _get_result_columns(batch)
    if hasattr(batch, "__array__"):
        return {"ids": batch}
    is_tuple = isinstance(batch, tuple) and hasattr(batch, "_asdict")
    fields = batch._asdict() if is_tuple else batch
    if not isinstance(fields, Mapping):
        found = _find_named_columns(lambda name: getattr(batch, name, None), [])
        return found if "ids" in found else _get_result_columns(batch)
    found = _find_named_columns(fields.get, [key for key in fields if f"{key}_segment_ids" in fields])
    if "ids" not in found:
        raise InvalidArgumentError(_format_missing_ids(list(fields)))
    return found


def _get_result_columns(results: Any) -> dict[str, Any]:
    ragged = as_ragged(results)
    return {"ids": ragged.ids, "row_splits": ragged.row_splits}


def _find_named_columns(get_value: Callable[[str], Any], extra_id_names: list[str]) -> dict[str, Any]:
    """What has a name of the table, and for each column the first that is there."""
    names: dict[str, str] = {}
    for column, patterns in _COLUMN_NAMES.items():
        candidates = [pattern.format_map({"ids": None, "labels": None} | names) for pattern in patterns]
        if column == "ids":
            candidates += extra_id_names  # (Grain's packing names them as its user does)
        free = (name for name in candidates if name not in names.values() and get_value(name) is not None)
        if (name := next(free, None)) is not None:
            names[column] = name
    return {column: get_value(name) for column, name in names.items()}


def _format_missing_ids(keys: list[Any]) -> str:
    shown = ", ".join(map(repr, keys[:_MAX_LISTED_KEYS])) + (", ..." if len(keys) > _MAX_LISTED_KEYS else "")
    return (
        f"the batch has no ids: it holds {shown or 'nothing'}, and ids are known as "
        f"{', '.join(map(repr, _COLUMN_NAMES['ids']))}; pass them as one of these, as in "
        "show_batch({'ids': ids, 'attention_mask': mask}, tokenizer)"
    )


def _read_rows(values: Any, row_splits: Any) -> tuple[NDArray[np.int32], NDArray[Any], bool]:
    """Ids, where their rows start, and whether these have lengths of their own."""
    column, splits = _to_host(values)
    ids = as_integers("ids", column, np.int32)
    if row_splits is not None:
        splits = np.asarray(row_splits)
    if ids.ndim not in {1, 2} or (splits is not None and (ids.ndim, splits.ndim) != (1, 1)):
        raise InvalidArgumentError(
            f"ids must have shape (rows, length), not {ids.shape}; show one part of the batch at a time"
        )
    if splits is not None:
        return ids, splits, True
    rows, length = ids.shape if ids.ndim == 2 else (1, len(ids))
    return ids, np.arange(rows + 1) * length, False


class _Column(NamedTuple):
    """A column on the host: an array, or rows of unequal length end to end and where each starts."""

    array: NDArray[Any]
    splits: NDArray[Any] | None

    def check_rows(self, name: str, ids: NDArray[Any], splits: NDArray[Any]) -> NDArray[Any]:
        """The array, if its rows are as long as those of the ids."""
        if self.splits is not None and not np.array_equal(self.splits, splits):
            raise InvalidArgumentError(f"the rows of {name} must be as long as those of ids")
        return check_same_shape(name, self.array, ids)  # type: ignore[no-any-return]


def _to_host(values: Any) -> _Column:
    try:
        return _Column(np.asarray(values), None)
    except ValueError:  # NumPy has no arrays of such rows
        ragged = ragged_from_rows(values)
        return _Column(np.asarray(ragged.ids), np.asarray(ragged.row_splits))
