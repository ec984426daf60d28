"""Conversion and checks of the arguments of batching functions: results, rows of ids, and aligned masks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tokjax._util.arrays import Array, as_int32, as_mask, is_jax
from tokjax.core.ragged import COLUMNS, Ragged, make_row_splits
from tokjax.core.records import MergedWindows, TokenizationBatch, TokenizationResult, Windows
from tokjax.errors import InvalidArgumentError


def as_ragged(results: Any) -> Ragged:
    """Converts tokenization results to one `Ragged`.

    | argument | rows |
    |---|---|
    | `TokenizationBatch` or `Ragged` | its rows |
    | `TokenizationResult`, or an iterable of them | one row for each result |
    | `Windows` | one row for each window |
    | `MergedWindows` | one row for each text, with the merged values as ids |

    A column that no result has is `None`.

    Raises:
        InvalidArgumentError: the argument is of another type, or only some of the results have a column.
    """
    if isinstance(results, Windows):
        return as_ragged(results.batch)
    if isinstance(results, MergedWindows):
        return _values_to_ragged(results)
    if isinstance(results, TokenizationBatch):
        return results.ragged
    if isinstance(results, Ragged):
        return results
    if isinstance(results, TokenizationResult):
        results = [results]
    if is_jax(results) or hasattr(results, "_fields") or not isinstance(results, Iterable):
        raise _make_type_error(results, "the argument")
    rows = list(results)
    for i, row in enumerate(rows):
        if not isinstance(row, TokenizationResult):
            raise _make_type_error(row, f"result {i}")
    columns = {name: _concatenate_column(rows, name) for name in COLUMNS[1:]}
    ids = np.concatenate([np.zeros(0, np.int32), *(row.ids for row in rows)])
    return Ragged(ids, make_row_splits(map(len, rows)), **columns)


def _make_type_error(value: object, name: str) -> InvalidArgumentError:
    """Returns the error for an argument of an unexpected type, with advice for frequent cases."""
    if hasattr(value, "assistant_mask"):
        advice = "pass its tokens, chat.result"
    elif isinstance(value, TokenizationBatch):
        advice = "pass the batch itself, or all results of several: [*batch, *other]"
    elif hasattr(value, "results"):
        advice = "pass its results, as in quick.results"
    else:
        advice = "for rows of plain ids pass tokjax.ragged_from_rows(rows)"
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
