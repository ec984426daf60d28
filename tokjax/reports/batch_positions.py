"""Reading of a batch of any supported type: one flat view of the positions of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import as_integers, is_traced
from tokjax.core.array_inputs import as_ragged, check_same_shape
from tokjax.core.ragged import Ragged, ragged_from_rows
from tokjax.core.records import TokenizationBatch, TokenizationResult
from tokjax.datasets.loaders.packed import TokenChunks
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
"""Names of each column in the supported libraries, in order of preference.

`{ids}` and `{labels}` are replaced by the names that the batch has for these columns.
"""
_MAX_LISTED_KEYS = 12
"""Maximum number of keys of a batch that an error message lists."""


class BatchPositions(NamedTuple):
    """Columns of a batch with its rows concatenated. A column that the batch does not have is `None`.

    Attributes:
        ids: token ids, `int32`, shape `(n,)`.
        splits: start of each row and end of the last one, shape `(num_rows + 1,)`.
        is_token: whether each position is a token, not padding, `bool`, shape `(n,)`.
        has_padding_info: whether the batch distinguishes padding from tokens; if not, `is_token` is true
            everywhere.
        segments: segment ids, shape `(n,)`.
        labels: labels, shape `(n,)`.
        has_label: whether each label is not ignored, `bool`, shape `(n,)`.
        in_loss: whether the loss mask is nonzero, `bool`, shape `(n,)`.
        omission_note: the reason why labels of the batch are not shown; `None` if none were omitted.
    """

    ids: NDArray[np.int32]
    splits: NDArray[Any]
    is_token: NDArray[np.bool_]
    has_padding_info: bool
    segments: NDArray[Any] | None
    labels: NDArray[Any] | None
    has_label: NDArray[np.bool_] | None
    in_loss: NDArray[np.bool_] | None
    omission_note: str | None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.splits) - 1

    def iter_statuses(self, start: int, stop: int) -> Iterator[TokenStatus]:
        """Yields the status of each position from `start` to `stop`; that of all padding is the same."""
        is_token = self.is_token[start:stop]
        columns = (
            is_token if column is None else is_token * column[start:stop]
            for column in (None, self.segments, self.has_label, self.in_loss)
        )
        return map(TokenStatus, *(column.tolist() for column in columns))


class TokenStatus(NamedTuple):
    """Status of one position, which the symbols around a token show.

    Without segments, labels or a loss mask, `segment`, `has_label` and `in_loss` equal `is_token`.

    Attributes:
        is_token: whether the position is a token, not padding.
        segment: segment id; 0 for padding.
        has_label: whether the label is not ignored.
        in_loss: whether the loss mask is nonzero.
    """

    is_token: bool
    segment: int
    has_label: bool
    in_loss: bool


def read_positions(batch: Any, labels: Any, loss_mask: Any, ignore_index: int) -> BatchPositions:
    """Reads the positions of a batch. The arguments are those of `show_batch`.

    Raises:
        InvalidArgumentError: the batch has no ids, a column is traced, or shapes of columns don't match.
    """
    columns = _collect_columns(batch, labels, loss_mask)
    ids, splits, is_ragged = _read_rows(columns.pop("ids"), columns.pop("row_splits", None))
    others, omission_note = {name: _to_host(values) for name, values in columns.items()}, None
    if labels is None and "labels" in others and others["labels"][0].shape != ids.shape:
        # These are classes of rows, or targets of a decoder.
        shape = others.pop("labels")[0].shape
        others.pop("label_mask", None)
        omission_note = f"labels of shape {shape} are not shown: ids have shape {ids.shape}"
    for name, (array, row_splits) in others.items():
        if row_splits is not None and not np.array_equal(row_splits, splits):
            raise InvalidArgumentError(f"the rows of {name} must be as long as those of ids")
        check_same_shape(name, array, ids)
    flat = {name: array.reshape(-1) for name, (array, _) in others.items()}
    flags = {name: column != 0 for name, column in flat.items()}
    segments, positions, targets = (
        as_integers(name, flat[name], np.int64) if name in flat else None
        for name in ("segment_ids", "positions", "labels")
    )
    is_token = flags.get("attention_mask")
    if is_token is None and segments is not None:
        # Levanter counts segments from 0, and marks padding with -1.
        is_token = segments != (-1 if (segments < 0).any() else 0)
    has_padding_info = is_ragged or is_token is not None or isinstance(batch, TokenChunks)
    if is_token is None:
        is_token = np.ones(ids.size, np.bool_)
    if segments is None and positions is not None:
        segments = _find_segments(positions, splits, is_token)
    has_label = None if targets is None else (targets != ignore_index) & flags.get("label_mask", True)
    return BatchPositions(
        ids=ids.reshape(-1),
        splits=splits,
        is_token=is_token,
        has_padding_info=has_padding_info,
        segments=segments,
        labels=targets,
        has_label=has_label,
        in_loss=flags.get("loss_mask"),
        omission_note=omission_note,
    )


def _collect_columns(batch: Any, labels: Any, loss_mask: Any) -> dict[str, Any]:
    """Returns the columns of a batch by name, with the labels and the loss mask that replace its own."""
    rows = batch if isinstance(batch, list) else []
    columns = {} if any(map(is_traced, rows)) else _get_columns(batch)
    replacements = {"labels": labels, "loss_mask": loss_mask}
    if labels is not None:
        columns.pop("label_mask", None)  # It belongs to the labels of the batch, which are replaced.
    columns |= {name: values for name, values in replacements.items() if values is not None}
    if any(map(is_traced, (*rows, *columns.values()))):
        raise InvalidArgumentError(
            "show_batch needs concrete values, and arrays under jax.jit have none; call it outside of jit"
        )
    return columns


def _get_columns(batch: Any) -> dict[str, Any]:
    """Returns the columns of a batch by their names in tokjax, always with `ids`."""
    if isinstance(batch, (TokenizationBatch, TokenizationResult)):
        return _get_result_columns(batch)
    if hasattr(batch, "__array__"):
        return {"ids": batch}
    is_tuple = isinstance(batch, tuple) and hasattr(batch, "_asdict")
    fields = batch._asdict() if is_tuple else batch
    if not isinstance(fields, Mapping):
        columns = _find_named_columns(lambda name: getattr(batch, name, None), [])
        return columns if "ids" in columns else _get_result_columns(batch)
    columns = _find_named_columns(fields.get, [key for key in fields if f"{key}_segment_ids" in fields])
    if "ids" not in columns:
        raise InvalidArgumentError(_format_missing_ids(list(fields)))
    return columns


def _get_result_columns(results: Any) -> dict[str, Any]:
    ragged = as_ragged(results)
    return {"ids": ragged.ids, "row_splits": ragged.row_splits}


def _find_named_columns(get_value: Callable[[str], Any], extra_id_names: list[str]) -> dict[str, Any]:
    """Finds each column under the first of its names in `_COLUMN_NAMES` that the batch has.

    Args:
        get_value: function that returns the value of a name, or `None` if the batch does not have it.
        extra_id_names: names to try for the ids after those of the table.
    """
    names: dict[str, str] = {}
    for column, patterns in _COLUMN_NAMES.items():
        candidates = [pattern.format_map({"ids": None, "labels": None} | names) for pattern in patterns]
        if column == "ids":
            candidates += extra_id_names  # Grain's packing keeps the feature names of its user.
        unused = (name for name in candidates if name not in names.values() and get_value(name) is not None)
        if (name := next(unused, None)) is not None:
            names[column] = name
    return {column: get_value(name) for column, name in names.items()}


def _format_missing_ids(keys: list[Any]) -> str:
    shown = ", ".join(map(repr, keys[:_MAX_LISTED_KEYS])) + (", ..." if len(keys) > _MAX_LISTED_KEYS else "")
    return (
        f"the batch has no ids: it has {shown or 'no columns'}; name the ids one of "
        f"{', '.join(map(repr, _COLUMN_NAMES['ids']))}, for example "
        "show_batch({'ids': ids, 'attention_mask': mask}, tokenizer)"
    )


def _read_rows(values: Any, row_splits: Any) -> tuple[NDArray[np.int32], NDArray[Any], bool]:
    """Returns the ids, the start of each row and the end of the last one, and whether rows are ragged."""
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


def _to_host(values: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Returns a column as an array, and the bounds of its rows if they are concatenated."""
    if not isinstance(values, Ragged):
        try:
            return np.asarray(values), None
        except ValueError:  # The rows have different lengths.
            values = ragged_from_rows(values)
    return np.asarray(values.ids), np.asarray(values.row_splits)


def _find_segments(
    positions: NDArray[Any], splits: NDArray[Any], is_token: NDArray[np.bool_]
) -> NDArray[Any]:
    """Derives segment ids from position ids, as models do that get no segment ids.

    A segment begins at each token whose position is not one more than that of the token before, and at the
    first token of each row:

        positions  0 1 2 0 1 5 6 (padding)
        segments   1 1 1 2 2 3 3 0

    Returns:
        Segment ids, counted from 1 in each row, 0 on padding, `int64`, shape `(n,)`.
    """
    rows = np.repeat(np.arange(len(splits) - 1), np.diff(splits))[is_token]
    begins_row = np.diff(rows, prepend=-1) > 0
    begins_segment = begins_row | (np.diff(positions[is_token], prepend=0) != 1)
    number = np.cumsum(begins_segment)  # Counted through all rows.
    segments = np.zeros(len(is_token), np.int64)
    segments[is_token] = number - np.maximum.accumulate(np.where(begins_row, number - 1, 0))
    return segments
