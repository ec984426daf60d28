"""Clipping of spans that overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def clip_spans(spans: NDArray[np.int64], row_splits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns spans that start no earlier than the end of any span before them in the same row.

    Args:
        spans: half-open spans, `int64`, shape `(n, 2)`.
        row_splits: start of each row in `spans`, `int64`, shape `(rows + 1,)`.

    >>> clip_spans(np.array([[0, 2], [0, 2], [0, 3]]), np.array([0, 2, 3])).tolist()
    [[0, 2], [2, 2], [0, 3]]
    """
    if not len(spans):
        return spans
    rows = np.repeat(np.arange(len(row_splits) - 1), np.diff(row_splits))
    # Shift each row beyond the end of the row before, so that one running maximum serves all rows.
    row_shifts = rows * (int(spans.max()) + 1)
    starts, stops = spans[:, 0] + row_shifts, np.maximum.accumulate(spans[:, 1] + row_shifts)
    starts[1:] = np.maximum(starts[1:], stops[:-1])
    return np.stack([starts - row_shifts, stops - row_shifts], axis=1)
