"""Conversion and checks of the arguments of batching functions: results, rows of ids, and aligned masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.arrays import Array, as_int32, as_mask, is_jax, is_traced, to_host
from tokjax._util.checks import is_iterable
from tokjax.core.ragged import COLUMNS, Ragged, make_row_splits
from tokjax.core.records import MergedWindows, TokenizationBatch, TokenizationResult, Windows
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection


def as_ragged(results: Any, columns: Collection[str] = COLUMNS) -> Ragged:
    """Converts tokenization results to one `Ragged`.

    | argument | rows |
    |---|---|
    | `TokenizationBatch` or `Ragged` | its rows |
    | `TokenizationResult`, or an iterable of them | one row for each result |
    | `Windows` | one row for each window |
    | `MergedWindows` | one row for each text, with the merged values as ids |

    A column that no result has is `None`.

    Args:
        results: the results.
        columns: names of the columns that are needed. Others need not be computed, and may be `None`.

    Raises:
        InvalidArgumentError: the argument is of another type, or only some of the results have a column.
    """
    if isinstance(results, Windows):
        return as_ragged(results.batch, columns)
    if isinstance(results, MergedWindows):
        return _values_to_ragged(results)
    if isinstance(results, TokenizationBatch):
        needed = {name: getattr(results, name) for name in COLUMNS[1:] if name in columns}
        return Ragged(results.ids, results.row_splits, **needed)
    if isinstance(results, Ragged):
        return results
    if isinstance(results, TokenizationResult):
        results = [results]
    if is_jax(results) or hasattr(results, "_fields") or not is_iterable(results):
        raise _make_type_error(results, "the argument")
    rows = list(results)
    for i, row in enumerate(rows):
        if not isinstance(row, TokenizationResult):
            raise _make_type_error(row, f"result {i}")
    needed = {name: _concatenate_column(rows, name) for name in COLUMNS[1:] if name in columns}
    ids = np.concatenate([np.zeros(0, np.int32), *(row.ids for row in rows)])
    return Ragged(ids, make_row_splits(map(len, rows)), **needed)


def separate_chats(results: Any, loss_mask: Any) -> tuple[Any, Any]:
    """Separates encoded chats into results and a loss mask. Other results are returned unchanged.

    Raises:
        InvalidArgumentError: some chats have an assistant mask and others do not.
    """
    if hasattr(results, "assistant_mask") and isinstance(results.result, TokenizationBatch):
        return results.result, results.assistant_mask if loss_mask is None else loss_mask
    chats = [*results] if isinstance(results, (list, tuple)) and not hasattr(results, "_fields") else []
    if not chats or not all(hasattr(chat, "assistant_mask") for chat in chats):
        return results, loss_mask
    if loss_mask is None:
        masks = [chat.assistant_mask for chat in chats]
        unmasked = [i for i, mask in enumerate(masks) if mask is None]
        if unmasked and len(unmasked) < len(masks):
            raise InvalidArgumentError(
                f"chat {unmasked[0]} was encoded without an assistant mask, and others have one; encode all "
                "chats in the same way, or pass loss_mask=MASKS"
            )
        loss_mask = None if unmasked else masks
    return [chat.result for chat in chats], loss_mask


def _make_type_error(value: object, name: str) -> InvalidArgumentError:
    """Returns the error for an argument of an unexpected type, with advice for frequent cases."""
    if hasattr(value, "assistant_mask"):
        advice = "pass its tokens, chat.result"
    elif isinstance(value, TokenizationBatch):
        advice = "pass the batch itself, or all results of several: [*batch, *other]"
    elif hasattr(value, "results"):
        advice = "pass its results, as in quick.results"
    elif is_traced(value):
        advice = "for ids under jax.jit pass tokjax.Ragged(ids, row_splits)"
    else:
        advice = (
            "for rows of plain ids pass tokjax.ragged_from_rows(rows), and for byte spans np.array(spans)"
        )
    return InvalidArgumentError(
        "results must be a TokenizationBatch, a Ragged or a list of TokenizationResult; "
        f"{name} is of type {type(value).__name__}: {advice}"
    )


def _values_to_ragged(merged: Any) -> Ragged:
    values = as_int32("the values of merged windows", merged.values)
    if values.ndim != 1:
        raise InvalidArgumentError(
            f"the values of merged windows have shape {values.shape}; rows need one integer for each token, "
            "shape (n,)"
        )
    return Ragged(values, merged.row_splits, merged.offsets)


def flatten_column(name: str, values: Any, ragged: Ragged) -> Any:
    """Returns a column as one array that is aligned with the flat ids of all rows, shape `(n, ...)`.

    Args:
        name: name of the column, for error messages.
        values: the array itself, or the values of each row: a `Ragged` or a list of rows.
        ragged: rows of tokens.

    Raises:
        InvalidArgumentError: the column has another number of rows or of values.
    """
    if isinstance(values, Ragged):
        lengths, flat = values.lengths, values.ids
    elif is_jax(values) or isinstance(values, np.ndarray):
        lengths, flat = None, values
    else:
        rows = [np.asarray(row) for row in values] if is_iterable(values) else [np.asarray(values)]
        if any(row.ndim == 0 for row in rows):
            raise InvalidArgumentError(
                f"{name} must be an array of shape (n,), aligned with the flat ids of all rows, or a list "
                "with the values of each row"
            )
        lengths = np.array([len(row) for row in rows], np.int64)
        flat = np.concatenate([row for row in rows if len(row)] or [np.zeros(0, np.int32)])
    if lengths is not None and not is_traced(lengths) and not is_traced(ragged.row_splits):
        row_lengths, counts = np.diff(to_host(ragged.row_splits)), to_host(lengths)
        if len(counts) != len(row_lengths):
            raise InvalidArgumentError(
                f"{name} has {len(counts)} rows, and there are {len(row_lengths)} rows of ids; pass the "
                "values of each row"
            )
        if (counts != row_lengths).any():
            row = int(np.flatnonzero(counts != row_lengths)[0])
            raise InvalidArgumentError(
                f"row {row} of {name} has {counts[row]} entries, and row {row} has {row_lengths[row]} ids; "
                "pass one entry for each id"
            )
    if flat.shape[:1] != ragged.ids.shape:
        raise InvalidArgumentError(
            f"{name} has shape {flat.shape}, and the flat ids of all rows have {ragged.ids.shape}; pass one "
            "entry for each id, or a list with the values of each row"
        )
    return flat


def as_tokens(ids: Array, name: str = "ids") -> Any:
    """Returns `ids` as `int32`, and checks that they have a length axis.

    Args:
        ids: integers, shape `(..., length)`.
        name: name of the argument, for error messages.

    Raises:
        InvalidArgumentError: the ids are not integers, do not fit `int32`, or are a scalar.
    """
    return check_length_axis(name, as_int32(name, ids))


def check_length_axis(name: str, array: Any) -> Any:
    """Returns `array`, or raises `InvalidArgumentError` if it is a scalar, without a length axis."""
    if array.ndim == 0:
        raise InvalidArgumentError(f"{name} must have shape (..., length), not ()")
    return array


def check_same_shape(name: str, array: Any, tokens: Any) -> Any:
    """Returns `array`, or raises `InvalidArgumentError` if its shape is not that of the tokens."""
    if array.shape != tokens.shape:
        raise InvalidArgumentError(
            f"{name} has shape {array.shape}, and ids {tokens.shape}; the shapes must be equal"
        )
    return array


def as_aligned_mask(xp: Any, name: str, values: Any, tokens: Any) -> Any:
    """Returns a mask, true where `values` are not 0, and checks that its shape is that of the tokens."""
    return check_same_shape(name, as_mask(xp, name, values), tokens)


def as_aligned_integers(name: str, values: Any, tokens: Any) -> Any:
    """Returns `values` as `int32`, and checks that their shape is that of the tokens."""
    return check_same_shape(name, as_int32(name, values), tokens)


def _concatenate_column(
    rows: list[TokenizationResult], name: str
) -> np.ndarray[tuple[int, ...], np.dtype[np.int32 | np.int64]] | None:
    parts = [getattr(row, name) for row in rows]
    missing = [i for i, part in enumerate(parts) if part is None]
    if len(missing) == len(parts):
        return None
    if missing:
        raise InvalidArgumentError(
            f"result {missing[0]} has no {name}, but others do; encode all texts with the same options"
        )
    return np.concatenate(parts)
