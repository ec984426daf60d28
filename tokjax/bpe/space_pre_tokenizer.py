"""Where words begin in text that no pattern splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def begins_after_blanks(is_blank: NDArray[np.bool_], splits: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which symbols begin a word: the first of each text, and blanks behind what is none.

    Args:
        is_blank: of the symbols of all texts, end to end, shape `(n,)`.
        splits: where each text starts, `int64`, shape `(texts + 1,)`.
    """
    begins = np.zeros(len(is_blank), bool)
    begins[1:] = is_blank[1:] & ~is_blank[:-1]
    begins[splits[:-1][np.diff(splits) > 0]] = True
    return begins
