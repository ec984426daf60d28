"""What stays of rows, moved together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tokjax._namespace import namespace, put


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
    slots = (xp.cumsum(keep, axis=-1, dtype=np.int32) - np.int32(1)).reshape(rows, n)
    places = slots + np.int32(width) * xp.arange(rows, dtype=np.int32)[:, None]
    result = xp.full(rows * width, xp.asarray(fill, dtype=np.int32))
    result = put(result, *(array.reshape(-1) for array in (places, values, keep)))
    return result.reshape(*leading, width)
