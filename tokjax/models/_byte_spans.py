"""Spans of tokens that are parts of one character, by the bytes that each of them is."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def exact_spans(
    spans: NDArray[np.int64], ids: NDArray[np.int32], pieces: Sequence[bytes], text: bytes
) -> NDArray[np.int64]:
    r"""Byte spans, taken apart where several of them are of one character.

    Tokens whose spans overlap make a run. Where their bytes, end to end, are what the run spans,
    each gets its own.

    Args:
        spans: of all tokens of a text, 1-based, rounded outward to characters, `(n, 2)`.
        ids: theirs.
        pieces: the bytes that each id is, as far as that is known.
        text: the text.

    >>> spans = np.array([[1, 4], [1, 4], [1, 4]])
    >>> exact_spans(spans, np.array([2, 0, 1]), [b"\x97", b"\xa5", b"\xe6"], "日".encode()).tolist()
    [[1, 2], [2, 3], [3, 4]]
    """
    joins = spans[1:, 0] < spans[:-1, 1]
    if not joins.any():
        return spans
    exact = spans.copy()
    apart = np.flatnonzero(~joins) + 1
    firsts, stops = np.append(0, apart), np.append(apart, len(spans))
    several = np.flatnonzero(stops - firsts > 1)
    for first, stop in zip(firsts[several].tolist(), stops[several].tolist(), strict=True):
        run, begin = [pieces[id_] for id_ in ids[first:stop].tolist()], int(spans[first, 0])
        if b"".join(run) == text[begin - 1 : int(spans[stop - 1, 1]) - 1]:
            bounds = list(accumulate(map(len, run), initial=begin))
            exact[first:stop] = np.stack([bounds[:-1], bounds[1:]], axis=1)
    return exact
