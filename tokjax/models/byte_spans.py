"""Non-overlapping spans for tokens to which another library gives the same characters.

Libraries report spans in whole characters, so the tokens of one character share its span. Here, spans are
in bytes, and they do not overlap:

    text    tokens                            library's spans, in bytes      spans here
    "日"     bytes E6 97 A5                    [1, 4)  [1, 4)  [1, 4)         [1, 2)  [2, 3)  [3, 4)
    "日"     "▁" (added prefix), "日"           [1, 4)  [1, 4)                 [1, 1)  [1, 4)
    "½"     "1", "⁄", "2" (normalized)        [1, 3)  [1, 3)  [1, 3)         [1, 3)  [3, 3)  [3, 3)

In the first row the tokens are the bytes of the text, so each gets its own bytes. In the second the prefix is
not in the text, so its span is empty. In the third the tokens have other bytes than the text: the first token
gets all of them, and the others get an empty span after it.

See docs/performance.md, section "SentencePiece".
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

    Spans that overlap form a run. Prefix tokens at the start of a run get an empty span. If the bytes of the
    other tokens, concatenated, are the bytes that the run spans, each token gets its own bytes. Otherwise,
    each token gets the part of its span that the tokens before it leave over.

    Args:
        spans: 1-based half-open byte spans of the tokens of a text, rounded outward to whole characters,
            `int64`, shape `(n, 2)`.
        ids: token ids, `int32`, shape `(n,)`.
        pieces: bytes that each id stands for in a text, by id; empty where they are unknown.
        prefixes: ids of tokens that the tokenizer adds before texts.
        text: the text.

    >>> spans = np.array([[1, 4], [1, 4], [1, 4], [1, 4]])
    >>> pieces = [b"\x97", b"\xa5", b"\xe6", b" "]
    >>> separate_spans(spans, np.array([3, 2, 0, 1]), pieces, {3}, "日".encode()).tolist()
    [[1, 1], [1, 2], [2, 3], [3, 4]]
    """
    # A run ends between two neighbours if all spans up to the first end before all spans from the second on
    # start. Comparing only the two is not enough: a trimmed span may start after the next one.
    max_stops = np.maximum.accumulate(spans[:, 1])
    min_starts = np.minimum.accumulate(spans[::-1, 0])[::-1]
    overlaps_next = min_starts[1:] < max_stops[:-1]
    if not overlaps_next.any():
        return spans
    separate = spans.copy()
    run_bounds = np.flatnonzero(~overlaps_next) + 1
    firsts, stops = np.append(0, run_bounds), np.append(run_bounds, len(spans))
    long_runs = np.flatnonzero(stops - firsts > 1)
    for first, stop in zip(firsts[long_runs].tolist(), stops[long_runs].tolist(), strict=True):
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
    """Returns the spans of one run of overlapping spans, as described in `separate_spans`."""
    begin, end = min(start for start, _ in spans), max(stop for _, stop in spans)
    # The token of a prefix may also be part of the text. It is a prefix only if the next token starts at the
    # same character, or before.
    num_prefixes = 0
    while (
        num_prefixes < len(ids) - 1
        and ids[num_prefixes] in prefixes
        and spans[num_prefixes + 1][0] <= spans[num_prefixes][0]
    ):
        num_prefixes += 1
    empty = [(begin, begin)] * num_prefixes
    token_bytes = [pieces[id_] for id_ in ids[num_prefixes:]]
    if b"".join(token_bytes) == text[begin - 1 : end - 1]:
        bounds = list(accumulate(map(len, token_bytes), initial=begin))
        return empty + list(zip(bounds, bounds[1:], strict=False))
    clipped, max_stop = [], begin
    for start, stop in spans[num_prefixes:]:
        clipped_start = max_stop
        if stop > start:  # an empty span may be after the next token: it takes no bytes
            clipped_start, max_stop = max(start, max_stop), max(stop, max_stop)
        clipped.append((clipped_start, max_stop))
    return empty + clipped


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
