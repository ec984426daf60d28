"""Byte spans of tokens of other libraries, without overlaps.

Libraries report spans in whole characters, so the tokens of one character share its span. Here, spans are
in bytes, and they do not overlap:

    text    tokens                            library's spans, in bytes      spans here
    "日"     bytes E6 97 A5                    [1, 4)  [1, 4)  [1, 4)         [1, 2)  [2, 3)  [3, 4)
    "日"     "▁" (added prefix), "日"           [1, 4)  [1, 4)                 [1, 1)  [1, 4)
    "½"     "1", "⁄", "2" (normalized)        [1, 3)  [1, 3)  [1, 3)         [1, 3)  [3, 3)  [3, 3)

In the first row the tokens are the bytes of the text, so each gets its own bytes. In the second the prefix is
not in the text, so its span is empty. In the third the tokens have other bytes than the text: the first token
gets all of them, and the others get an empty span after it.

For SentencePiece pieces, spans are computed from the normalized text. The library reports, for each byte of
it, the *origin*: the position in the text of the character that it came from. Consecutive bytes with the same
origin are a *group*: one character, or all characters that replace one, or one that replaces several. A piece
is located by its length alone, because the pieces, concatenated, are the normalized text. Its span is rounded
outward to whole groups.

Example: "½ a", with a normalizer that replaces "½" by "1⁄2", and adds a space ("▁", 3 bytes) before texts.

    normalized bytes     ▁ ▁ ▁   1 ⁄ ⁄ ⁄ 2   ▁ ▁ ▁   a        (zero byte)
    position             0 1 2   3 4 5 6 7   8 9 10  11       12
    origins              0 0 0   0 0 0 0 0   2 2 2   3        4
    begins_group         ^       ^           ^       ^        ^

    pieces               ▁1        ⁄         2         ▁a
    lengths              4         3         1         4
    starts, stops        0,4       4,7       7,8       8,12
    spans                0,2       0,2       0,2       2,4
    after `clip_spans`   0,2       2,2       2,2       2,4

The added space has the origin of the first character; it is a separate group so that a piece "▁" has an empty
span. A byte piece of a character that was not changed has the span of its byte, not of its group.

See docs/performance.md, section "SentencePiece".
"""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray


def separate_spans(
    spans: NDArray[np.int64],
    ids: NDArray[np.int32],
    get_bytes: Callable[[int], bytes],
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
        get_bytes: function that returns the bytes that an id stands for in a text, or `b""` if unknown.
        prefixes: ids of tokens that the tokenizer adds before texts.
        text: the text.

    >>> spans = np.array([[1, 4], [1, 4], [1, 4], [1, 4]])
    >>> pieces = [b"\x97", b"\xa5", b"\xe6", b" "]
    >>> separate_spans(spans, np.array([3, 2, 0, 1]), pieces.__getitem__, {3}, "日".encode()).tolist()
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
        separate[first:stop] = _separate_run(run, run_ids, get_bytes, prefixes, text)
    return separate


def _separate_run(
    spans: list[list[int]],
    ids: list[int],
    get_bytes: Callable[[int], bytes],
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
    token_bytes = list(map(get_bytes, ids[num_prefixes:]))
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


SPACE = "\u2581".encode()
"""Mark that replaces whitespace in normalized text, unless the model has `escape_whitespaces=False`."""


class SpaceRules(NamedTuple):
    """How a model treats whitespace.

    Attributes:
        mark: bytes that replace whitespace in normalized text.
        is_suffix: whether the mark ends a word; otherwise it begins one.
        is_added: whether a mark that is not in the text is added before it (after it, if `is_suffix`).
        are_merged: whether spaces at the start and end of a text and repeated spaces are removed.
    """

    mark: bytes
    is_suffix: bool
    is_added: bool
    are_merged: bool


class NormalizedTexts(NamedTuple):
    """Normalized texts, concatenated, with a zero byte after each.

    Attributes:
        texts: the normalized texts, in UTF-8.
        data: bytes of the texts, `uint8`, shape `(n,)`.
        origins: position in its text that each byte came from, 0-based; for the zero byte after a text, the
            end of the part of the text that was kept; `int64`, shape `(n,)`.
        splits: start of each text in `data`, `int64`, shape `(texts + 1,)`.
        begins_group: whether the origin of a byte differs from that of the byte before, `bool`, shape `(n,)`.
    """

    texts: list[bytes]
    data: NDArray[np.uint8]
    origins: NDArray[np.int64]
    splits: NDArray[np.int64]
    begins_group: NDArray[np.bool_]


def normalize_texts(processor: Any, texts: Sequence[bytes], spaces: SpaceRules) -> NormalizedTexts:
    """Normalizes texts.

    Args:
        processor: `SentencePieceProcessor` of the model.
        texts: texts in UTF-8.
        spaces: how the model treats whitespace.
    """
    pairs = [processor.normalize(text, with_offsets=True) for text in texts]
    data = np.frombuffer(b"\0".join([*(text for text, _ in pairs), b""]), np.uint8)
    # The origins of an empty text are missing.
    origins = np.fromiter(
        chain.from_iterable(positions or [0] for _, positions in pairs), np.int64, len(data)
    )
    splits = make_row_splits([len(text) + 1 for text, _ in pairs])
    begins = np.ones(len(data), bool)
    np.not_equal(origins[1:], origins[:-1], out=begins[1:])
    begins[splits[:-1]] = True
    begins[splits[1:] - 1] = True  # the zero bytes, which end the last group of each text
    if spaces.is_added and not spaces.is_suffix:
        # The added mark has the origin of the first character: begin a new group after it.
        mark = np.frombuffer(spaces.mark, np.uint8)
        positions = splits[:-1, None] + np.arange(len(mark))
        has_mark = (data.take(positions, mode="clip") == mark).all(axis=1)
        begins[splits[:-1][has_mark] + len(mark)] = True
    return NormalizedTexts([text for text, _ in pairs], data, origins, splits, begins)


def compute_piece_stops(
    texts: NormalizedTexts, lengths: NDArray[np.int64], row_splits: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Computes the end of each piece in the concatenated normalized texts, `int64`, shape `(n,)`.

    Args:
        texts: normalized texts of the pieces.
        lengths: number of bytes of normalized text of each piece, `int64`, shape `(n,)`.
        row_splits: start of the pieces of each text, `int64`, shape `(texts + 1,)`.
    """
    piece_splits = make_row_splits(lengths)
    sizes = np.diff(piece_splits[row_splits])
    assert np.array_equal(sizes, np.diff(texts.splits) - 1), (
        "the pieces, concatenated, are not the normalized text"
    )
    # Each text before this one adds a zero byte.
    return piece_splits[1:] + np.repeat(np.arange(len(sizes)), np.diff(row_splits))


def compute_piece_spans(
    sources: Sequence[bytes],
    texts: NormalizedTexts,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    is_byte: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Computes the byte span of each piece in its source text, rounded outward to whole groups.

    Byte pieces of a group that is the same in the source get the span of their byte instead.

    Args:
        sources: texts before normalization, in UTF-8.
        texts: the same texts, normalized.
        starts: start of each piece in the normalized texts, `int64`, shape `(n,)`.
        stops: end of each piece in the normalized texts, `int64`, shape `(n,)`.
        is_byte: whether a piece stands for a single byte, `bool`, shape `(n,)`.

    Returns:
        0-based half-open spans, `int64`, shape `(n, 2)`.
    """
    groups = np.flatnonzero(texts.begins_group)
    first, last = texts.origins.take(starts), texts.origins.take(stops)
    # A piece that stops inside a group ends where the next group begins.
    inside = np.flatnonzero(~texts.begins_group.take(stops))
    last[inside] = texts.origins[groups[np.searchsorted(groups, stops[inside], "right")]]
    single = np.flatnonzero(is_byte)
    if len(single):
        group_indices = np.searchsorted(groups, starts[single], "right") - 1
        unchanged = single[_is_unchanged(sources, texts, groups[group_indices], groups[group_indices + 1])]
        offset_in_group = starts[unchanged] - groups[np.searchsorted(groups, starts[unchanged], "right") - 1]
        first[unchanged] += offset_in_group
        # The last byte of a group keeps the end of the group, which may include removed whitespace.
        last[unchanged] = np.where(
            texts.begins_group[stops[unchanged]], last[unchanged], first[unchanged] + 1
        )
    return np.stack([first, last], axis=1)


def _is_unchanged(
    sources: Sequence[bytes], texts: NormalizedTexts, starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns whether groups have the same bytes in their source texts, `bool`, shape `(groups,)`.

    Args:
        sources: texts before normalization, in UTF-8.
        texts: the same texts, normalized.
        starts: start of each group in the normalized texts, `int64`, shape `(groups,)`.
        stops: end of each group in the normalized texts, `int64`, shape `(groups,)`.
    """
    joined = np.frombuffer(b"".join(sources), np.uint8)
    base = make_row_splits([len(source) for source in sources])
    base = base[np.searchsorted(texts.splits, starts, "right") - 1]
    lengths = stops - starts
    fits = texts.origins[starts] + lengths <= texts.origins[stops]
    positions = concatenate_ranges(base + texts.origins[starts], lengths)
    same = joined.take(positions, mode="clip") == texts.data.take(concatenate_ranges(starts, lengths))
    return fits & np.logical_and.reduceat(same, np.cumsum(lengths) - lengths)


def flag_piece_word_beginnings(
    texts: NormalizedTexts,
    starts: NDArray[np.int64],
    row_splits: NDArray[np.int64],
    spaces: SpaceRules,
) -> NDArray[np.bool_]:
    """Flags the pieces that begin a word: the first of each text, and those next to whitespace.

    A piece begins a word if it begins with the mark, or, if the mark is a suffix, if it comes after the mark.

    Args:
        texts: normalized texts of the pieces.
        starts: start of each piece in the normalized texts, `int64`, shape `(n,)`.
        row_splits: start of the pieces of each text, `int64`, shape `(texts + 1,)`.
        spaces: how the model treats whitespace.

    Returns:
        `bool`, shape `(n,)`.
    """
    mark = np.frombuffer(spaces.mark, np.uint8)
    mark_starts = starts - (len(mark) if spaces.is_suffix else 0)
    begins: NDArray[np.bool_] = texts.data.take(mark_starts, mode="clip") == mark[0]
    candidates = np.flatnonzero(begins)
    positions = mark_starts.take(candidates)[:, None] + np.arange(len(mark))
    begins[candidates] = (texts.data.take(positions, mode="clip") == mark).all(axis=1)
    begins[row_splits[:-1][np.diff(row_splits) > 0]] = True
    return begins
