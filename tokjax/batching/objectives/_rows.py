"""Rows of tokens, and of masks beside them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tokjax._namespace import Array, as_int32, as_mask, namespace
from tokjax.errors import InvalidArgumentError


def tokens_of(ids: Array) -> Any:
    """`ids` as `int32`, with an axis for the places of a row."""
    tokens = as_int32("ids", ids)
    if tokens.ndim == 0:
        raise InvalidArgumentError("ids must have shape (..., length), not ()")
    return tokens


def of_the_same_shape(name: str, array: Any, tokens: Any) -> Any:
    """`array`, if it is as large as the tokens."""
    if array.shape != tokens.shape:
        raise InvalidArgumentError(
            f"{name} has shape {array.shape}, and ids {tokens.shape}; they must be equal"
        )
    return array


def mask_beside(xp: Any, name: str, values: Any, tokens: Any) -> Any:
    """True where `values` are not 0, if they are as many as the tokens."""
    return of_the_same_shape(name, as_mask(xp, values), tokens)


def compacted(values: Any, keep: Any, width: int, fill: Any) -> Any:
    """The kept values of each row moved to its front, in order.

    Args:
        values: `int32`, shape `(..., n)`.
        keep: booleans of that shape; at most `width` of a row.
        width: places of each row of the result.
        fill: what stands behind the kept values.

    Returns:
        `int32`, shape `(..., width)`.
    """
    xp = namespace(values, keep, fill)
    *leading, n = values.shape
    rows = math.prod(leading)
    slots = xp.where(keep, xp.cumsum(keep, axis=-1, dtype=np.int32) - np.int32(1), np.int32(width))
    index = (xp.arange(rows)[:, None], slots.reshape(rows, n))  # what is not kept goes past the width
    result = xp.full((rows, width + 1), xp.asarray(fill, dtype=np.int32))
    if xp is np:
        result[index] = values.reshape(rows, n)
    else:
        result = result.at[index].set(values.reshape(rows, n))
    return result[:, :width].reshape(*leading, width)
