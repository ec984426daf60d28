"""Byte spans and word beginnings of SentencePiece pieces.

The library reports, for each byte of a normalized text, the *origin*: the position in the text of the
character that it came from. Consecutive bytes with the same origin are a *group*: one character, or all
characters that replace one, or one that replaces several. A piece is located by its length alone, because the
pieces, concatenated, are the normalized text. Its span is rounded outward to whole groups.

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

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
        data: bytes of the texts, `uint8`, shape `(n,)`.
        origins: position in its text that each byte came from, 0-based; for the zero byte after a text, the
            end of the part of the text that was kept; `int64`, shape `(n,)`.
        splits: start of each text in `data`, `int64`, shape `(texts + 1,)`.
        begins_group: whether the origin of a byte differs from that of the byte before, `bool`, shape `(n,)`.
    """

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
    return NormalizedTexts(data, origins, splits, begins)


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
