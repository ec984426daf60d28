"""What stays of rows, moved together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tokjax._namespace import namespace


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
