"""What stays of rows, moved together."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokjax._util.arrays import get_namespace, scatter_rows


def compact_rows(values: Any, keep: Any, width: int, fill: Any) -> Any:
    """The kept values of each row moved to its front, in order.

    Args:
        values: `int32`, shape `(..., n)`.
        keep: booleans of that shape; at most `width` of a row.
        width: places of each row of the result.
        fill: what stands behind the kept values.

    Returns:
        `int32`, shape `(..., width)`.
    """
    slots = get_namespace(values, keep).cumsum(keep, axis=-1, dtype=np.int32) - np.int32(1)
    return scatter_rows(width, fill, slots, values, keep)
