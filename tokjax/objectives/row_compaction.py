"""Row compaction: moves the selected values of each row to its front."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokjax._util.arrays import get_namespace, scatter_rows


def compact_rows(values: Any, keep: Any, width: int, fill: Any) -> Any:
    """Moves the selected values of each row to its front, in order, and fills the rest.

    Args:
        values: values, `int32`, shape `(..., n)`.
        keep: mask of the values to select, booleans, shape `(..., n)`; at most `width` of each row.
        width: length of the resulting rows.
        fill: value after the selected ones.

    Returns:
        Compacted rows, `int32`, shape `(..., width)`.
    """
    slots = get_namespace(values, keep).cumsum(keep, axis=-1, dtype=np.int32) - np.int32(1)
    return scatter_rows(width, fill, slots, values, keep)
