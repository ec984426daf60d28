"""What stays of rows, moved together."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokjax._util.array_namespace import namespace
from tokjax._util.arrays import scattered


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
    slots = namespace(values, keep).cumsum(keep, axis=-1, dtype=np.int32) - np.int32(1)
    return scattered(width, fill, slots, values, keep)
