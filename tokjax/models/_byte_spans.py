"""Spans of tokens that are parts of one character, by the bytes that each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def exact_spans(spans: NDArray[np.int64], nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Byte spans, taken apart where several of them are of one character.

    Tokens whose spans overlap the next one's make a run. Where their bytes add up to what the run spans, each
    gets its own.

    Args:
        spans: of all tokens of a text, rounded outward to characters, `(n, 2)`.
        nbytes: how many bytes of the text each token is, 0 where that is not known.

    >>> exact_spans(np.array([[1, 4], [1, 4], [1, 4]]), np.array([1, 1, 1])).tolist()
    [[1, 2], [2, 3], [3, 4]]
    """
    if not len(spans):
        return spans
    apart = np.ones(len(spans), bool)
    apart[1:] = spans[1:, 0] >= spans[:-1, 1]
    if apart.all():
        return spans
    first = np.flatnonzero(apart)
    last = np.append(first[1:], len(spans)) - 1
    run = np.cumsum(apart) - 1
    whole = np.add.reduceat(nbytes, first)
    fits = (whole == spans[last, 1] - spans[first, 0]) & (np.minimum.reduceat(nbytes, first) > 0)
    stops = np.cumsum(nbytes)
    stops += (spans[first, 0] - (stops[first] - nbytes[first]))[run]
    return np.where(fits[run][:, None], np.stack([stops - nbytes, stops], axis=1), spans)
