"""Spans that do not overlap, where the library that encoded a text gives several tokens the same characters.

text "日", bytes 1 to 3        library     here
byte tokens E6 97 A5          [1, 4) x3   [1, 2) [2, 3) [3, 4)
"▁", put there, and "日"       [1, 4) x2   [1, 1) [1, 4)
"½" as the tokens 1 ⁄ 2       [1, 3) x3   [1, 3) [3, 3) [3, 3)
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray


def separate_spans(
    spans: NDArray[np.int64],
    ids: NDArray[np.int32],
    pieces: Sequence[bytes],
    prefixes: Collection[int],
    text: bytes,
) -> NDArray[np.int64]:
    r"""Returns byte spans without overlaps.

    Spans that overlap make a run. Prefixes at its beginning are empty. If the bytes of the other tokens are
    those that the run spans, each token gets its own bytes; otherwise each gets what those before it leave.

    Args:
        spans: of the tokens of a text, 1-based, rounded outward to characters, `(n, 2)`.
        ids: the tokens, `int32`, shape `(n,)`.
        pieces: the bytes of each id, as far as they are known.
        prefixes: ids of what the tokenizer puts before texts.
        text: the text.

    >>> spans = np.array([[1, 4], [1, 4], [1, 4], [1, 4]])
    >>> pieces = [b"\x97", b"\xa5", b"\xe6", b" "]
    >>> separate_spans(spans, np.array([3, 2, 0, 1]), pieces, {3}, "日".encode()).tolist()
    [[1, 1], [1, 2], [2, 3], [3, 4]]
    """
    reach = np.maximum.accumulate(spans[:, 1])
    ahead = np.minimum.accumulate(spans[::-1, 0])[::-1]  # (trimmed spans may begin after the next one)
    joins = ahead[1:] < reach[:-1]
    if not joins.any():
        return spans
    separate = spans.copy()
    apart = np.flatnonzero(~joins) + 1
    firsts, stops = np.append(0, apart), np.append(apart, len(spans))
    several = np.flatnonzero(stops - firsts > 1)
    for first, stop in zip(firsts[several].tolist(), stops[several].tolist(), strict=True):
        run, run_ids = spans[first:stop].tolist(), ids[first:stop].tolist()
        separate[first:stop] = _separate_run(run, run_ids, pieces, prefixes, text)
    return separate


def _separate_run(
    spans: list[list[int]],
    ids: list[int],
    pieces: Sequence[bytes],
    prefixes: Collection[int],
    text: bytes,
) -> list[tuple[int, int]]:
    begin, end = min(start for start, _ in spans), max(stop for _, stop in spans)
    skipped = 0
    while skipped < len(ids) - 1 and ids[skipped] in prefixes and spans[skipped + 1][0] <= spans[skipped][0]:
        skipped += 1
    empty = [(begin, begin)] * skipped
    of_tokens = [pieces[id_] for id_ in ids[skipped:]]
    if b"".join(of_tokens) == text[begin - 1 : end - 1]:
        bounds = list(accumulate(map(len, of_tokens), initial=begin))
        return empty + list(zip(bounds, bounds[1:], strict=False))
    rest, reach = [], begin
    for start, stop in spans[skipped:]:
        before = reach
        if stop > start:  # (an empty one may be beyond the next token)
            before, reach = max(start, reach), max(stop, reach)
        rest.append((before, reach))
    return empty + rest


def clip_spans(spans: NDArray[np.int64], row_splits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns spans that begin no earlier than those before them in their row end.

    Args:
        spans: `int64`, shape `(n, 2)`.
        row_splits: where the spans of each row start, `int64`, shape `(rows + 1,)`.

    >>> clip_spans(np.array([[0, 2], [0, 2], [0, 3]]), np.array([0, 2, 3])).tolist()
    [[0, 2], [2, 2], [0, 3]]
    """
    if not len(spans):
        return spans
    rows = np.repeat(np.arange(len(row_splits) - 1), np.diff(row_splits))
    base = rows * (int(spans.max()) + 1)  # so that no row reaches into the next
    starts, reach = spans[:, 0] + base, np.maximum.accumulate(spans[:, 1] + base)
    starts[1:] = np.maximum(starts[1:], reach[:-1])
    return np.stack([starts - base, reach - base], axis=1)
