"""Which bytes of a text each SentencePiece piece came from, and where words begin.

The library tells for each byte of a normalised text at which byte of the text it comes from. Bytes that come
from one place are a *group*: a character, or the several that one of them became (`½` is `1⁄2`), or the one
that became of several. Between its first piece and its last nothing of a normalised text is left out, so the
pieces' lengths alone say which groups each of them is made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

SPACE = "\u2581".encode()
"""What stands for white space in a normalised text, unless the model says otherwise."""


class SpaceRules(NamedTuple):
    """What a model does with white space.

    Attributes:
        mark: what stands for it in normalised text.
        is_suffix: whether it ends a word; otherwise it begins one.
        is_added: whether one is put before a text (or after it, as a suffix) that is not in it.
    """

    mark: bytes
    is_suffix: bool
    is_added: bool


class NormalizedTexts(NamedTuple):
    """Normalised texts, laid end to end, with one zero behind each.

    Attributes:
        data: their bytes, `uint8`, shape `(n,)`.
        origins: the place in its text that each byte comes from, 0-based; for the zero behind a text, where
            what became of the text ends; `int64`, shape `(n,)`.
        splits: where each of them starts, `int64`, shape `(texts + 1,)`.
        begins_group: which bytes come from another place than the byte before, `bool`, shape `(n,)`.
    """

    data: NDArray[np.uint8]
    origins: NDArray[np.int64]
    splits: NDArray[np.int64]
    begins_group: NDArray[np.bool_]


def normalize_texts(
    normalize: Callable[[bytes], tuple[bytes, list[int]]], texts: Sequence[bytes], spaces: SpaceRules
) -> NormalizedTexts:
    """Texts as the library normalises them.

    Args:
        normalize: gives a normalised text, and the origin of each of its bytes and of its end.
        texts: what to normalise.
        spaces: the model's rules for white space.
    """
    pairs = [normalize(text) for text in texts]
    normalized = [text for text, _ in pairs]
    splits = make_row_splits([len(text) + 1 for text in normalized])
    data = np.frombuffer(b"\0".join([*normalized, b""]), np.uint8)
    origins = np.concatenate([np.zeros(0, np.int64), *(np.array(positions or [0]) for _, positions in pairs)])
    begins = np.ones(len(data), bool)
    np.not_equal(origins[1:], origins[:-1], out=begins[1:])
    begins[splits[:-1]] = True
    begins[splits[1:] - 1] = True
    if spaces.is_added and not spaces.is_suffix:  # what was added comes from where the first character does
        has_mark = np.array([text.startswith(spaces.mark) for text in normalized], bool)
        begins[splits[:-1][has_mark] + len(spaces.mark)] = True
    return NormalizedTexts(data, origins, splits, begins)


def compute_piece_stops(
    texts: NormalizedTexts, lengths: NDArray[np.int64], row_splits: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where each piece stops in the normalised texts.

    Args:
        texts: what the pieces are of.
        lengths: of the pieces, in bytes of normalised text, `int64`, shape `(n,)`.
        row_splits: where the pieces of each text start, `int64`, shape `(texts + 1,)`.
    """
    up_to = make_row_splits(lengths)
    sizes = np.diff(up_to[row_splits])
    assert np.array_equal(sizes, np.diff(texts.splits) - 1), "pieces don't make up the normalised text"
    return up_to[1:] + np.repeat(np.arange(len(sizes)), np.diff(row_splits))


def compute_piece_spans(
    sources: Sequence[bytes],
    texts: NormalizedTexts,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    is_byte: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """0-based byte spans in the source of each piece, rounded outward to whole groups.

    Of a group that is the same in its source, though, single bytes have spans of their own.

    Args:
        sources: the texts before they were normalised.
        texts: the same, normalised.
        starts: where each piece starts in the normalised texts, `int64`, shape `(n,)`.
        stops: where each piece stops.
        is_byte: which pieces stand for single bytes.

    Returns:
        `int64`, shape `(n, 2)`.
    """
    groups = np.flatnonzero(texts.begins_group)
    first, last = texts.origins.take(starts), texts.origins.take(stops)
    inside = np.flatnonzero(~texts.begins_group.take(stops))
    last[inside] = texts.origins[groups[np.searchsorted(groups, stops[inside], "right")]]
    single = np.flatnonzero(is_byte)
    if len(single):
        at = np.searchsorted(groups, starts[single], "right") - 1
        own = single[_is_unchanged(sources, texts, groups[at], groups[at + 1])]
        offset = starts[own] - groups[np.searchsorted(groups, starts[own], "right") - 1]
        first[own] += offset
        last[own] = np.where(texts.begins_group[stops[own]], last[own], first[own] + 1)
    return np.stack([first, last], axis=1)


def _is_unchanged(
    sources: Sequence[bytes], texts: NormalizedTexts, starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which groups, of one byte or more, are the same in their sources."""
    joined = np.frombuffer(b"".join(sources), np.uint8)
    base = make_row_splits([len(source) for source in sources])
    base = base[np.searchsorted(texts.splits, starts, "right") - 1]
    lengths = stops - starts
    fits = texts.origins[starts] + lengths <= texts.origins[stops]
    positions = concatenate_ranges(base + texts.origins[starts], lengths)
    same = joined.take(positions, mode="clip") == texts.data.take(concatenate_ranges(starts, lengths))
    return fits & np.logical_and.reduceat(same, np.cumsum(lengths) - lengths)


def flag_word_beginnings(
    texts: NormalizedTexts,
    starts: NDArray[np.int64],
    row_splits: NDArray[np.int64],
    spaces: SpaceRules,
) -> NDArray[np.bool_]:
    """Which pieces begin a word: the first of each text, and those that white space is at the beginning of.

    Args:
        texts: what the pieces are of.
        starts: where each piece starts, `int64`, shape `(n,)`.
        row_splits: where the pieces of each text start, `int64`, shape `(texts + 1,)`.
        spaces: the model's rules for white space; after which a word begins, if it is a suffix.
    """
    mark = np.frombuffer(spaces.mark, np.uint8)
    from_here = starts - (len(mark) if spaces.is_suffix else 0)
    positions = from_here[:, None] + np.arange(len(mark))
    begins: NDArray[np.bool_] = (texts.data.take(positions, mode="clip") == mark).all(axis=1)
    begins[row_splits[:-1][np.diff(row_splits) > 0]] = True
    return begins
