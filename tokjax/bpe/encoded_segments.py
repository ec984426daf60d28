"""Records for the token ids of text segments, and the growable arrays that chunks are joined in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import encode_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces
    from tokjax.bpe.pretoken_cache import PretokenIds


Scalar = TypeVar("Scalar", bound=np.generic)
_MARGIN = 1.1


class GrowableArray(Generic[Scalar]):
    """One-dimensional array that grows by appended parts.

    Concatenating a list of parts needs memory for the parts and for the result. This needs about half of
    that, which saves time as well, since memory is slow when it is used for the first time.

    Args:
        dtype: the scalar type of the array.
    """

    def __init__(self, dtype: type[Scalar]) -> None:
        self._array: NDArray[Any] = np.empty(0, dtype)
        self._size = 0

    def __len__(self) -> int:
        """Returns the number of elements."""
        return self._size

    def append(self, part: NDArray[Scalar], done: float) -> None:
        """Appends a part.

        Args:
            part: the elements to append, shape `(n,)`.
            done: approximate share of all elements that the array then holds, above 0 and at most 1. The
                capacity of the array is chosen by it.
        """
        size = self._size + len(part)
        if size > len(self._array):
            capacity = size if done >= 1 else int(_MARGIN * size / done)
            grown = np.empty(capacity, self._array.dtype)
            grown[: self._size] = self._array[: self._size]
            self._array = grown
        self._array[self._size : size] = part
        self._size = size

    def finish(self) -> NDArray[Scalar]:
        """Returns the array. Nothing can be appended afterwards."""
        self._array.resize(self._size, refcheck=False)  # frees the unused capacity without a copy
        return self._array


class Corrections(NamedTuple):
    """Overrides for tokens whose bytes differ in length from the text that they span.

    Attributes:
        positions: indices of these tokens in the ids of all segments, ascending, `int64`, shape
            `(corrected,)`.
        lengths: number of bytes of text that each of them spans, `int64`, shape `(corrected,)`.
    """

    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]


_NO_CORRECTIONS = Corrections(*np.zeros((2, 0), np.int64))


class EncodedSegments(NamedTuple):
    """Token ids of several segments of ordinary text, concatenated.

    Attributes:
        ids: token ids, `int32`, shape `(num_tokens,)`.
        splits: index of the first id of each segment, then the number of ids, `int64`, shape
            `(segments + 1,)`.
        begins_word: mask of the ids that begin a pre-token, `bool`, shape `(num_tokens,)`; `None` if it was
            not requested.
        spans: 0-based byte spans of the ids in their segments, `int64`, shape `(num_tokens, 2)`; `None` if
            the bytes of the tokens, concatenated, are the segment.
        corrections: overrides for tokens whose bytes differ from the text that they span, where `spans` is
            `None`.
    """

    ids: NDArray[np.int32]
    splits: NDArray[np.int64]
    begins_word: NDArray[np.bool_] | None
    spans: NDArray[np.int64] | None = None
    corrections: Corrections = _NO_CORRECTIONS


def make_encoded_segments(
    ids: PretokenIds,
    stops: NDArray[np.int64],
    *,
    begins_word: bool,
    spans: NDArray[np.int64] | None = None,
) -> EncodedSegments:
    """Makes the record of the pieces of a chunk from the ids of its pre-tokens.

    Args:
        ids: the ids of the pre-tokens.
        stops: number of pre-tokens up to the end of each piece, `int64`, shape `(pieces,)`.
        begins_word: whether to report which ids begin a pre-token.
        spans: as in `EncodedSegments`, in the pieces.
    """
    splits = np.append(0, ids.ends).take(np.append(0, stops))
    return EncodedSegments(ids.ids, splits, ids.begins_word if begins_word else None, spans)


def join_chunks(
    pieces: Iterable[Pieces], chunks: Iterable[EncodedSegments], total: int, *, begins_word: bool
) -> EncodedSegments:
    """Concatenates the ids of chunks, whose pieces together are complete segments.

    Args:
        pieces: the pieces of each chunk, in order.
        chunks: the ids of the pieces of each chunk. Their spans, if any, are changed in place.
        total: approximate number of characters of all pieces, plus one per piece.
        begins_word: whether to report which ids begin a pre-token.
    """
    ids, begins, spans = GrowableArray(np.int32), GrowableArray(np.bool_), GrowableArray(np.int64)
    all_splits, characters = [np.zeros(1, np.int64)], 0
    has_spans, nbytes_before = False, 0
    for chunk_pieces, chunk in zip(pieces, chunks, strict=True):
        characters += chunk_pieces.num_characters
        done = characters / total
        all_splits.append(chunk.splits[1:][chunk_pieces.ends_segment] + len(ids))
        ids.append(chunk.ids, done)
        if chunk.begins_word is not None:
            begins.append(chunk.begins_word, done)
        if chunk.spans is not None:
            has_spans = True
            chunk.spans[: chunk.splits[1]] += nbytes_before
            spans.append(chunk.spans.reshape(-1), done)
            if len(chunk_pieces.texts) > 1:  # the last piece begins a segment
                nbytes_before = 0
            if chunk_pieces.ends_segment[-1]:
                nbytes_before = 0
            else:
                nbytes_before += len(encode_segment(chunk_pieces.texts[-1], chunk_pieces.hold_bytes))
    return EncodedSegments(
        ids.finish(),
        np.concatenate(all_splits),
        begins.finish() if begins_word else None,
        spans.finish().reshape(-1, 2) if has_spans else None,
    )


def concatenate_segments(parts: Sequence[EncodedSegments]) -> EncodedSegments:
    """Concatenates the ids of several groups of segments, at least one, without corrections."""
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([part.ids for part in parts])
    splits = make_row_splits(np.concatenate([np.diff(part.splits) for part in parts]))
    begins = [part.begins_word for part in parts if part.begins_word is not None]
    spans = [part.spans for part in parts if part.spans is not None]
    if not begins:
        return EncodedSegments(ids, splits, None)
    return EncodedSegments(ids, splits, np.concatenate(begins), np.concatenate(spans))
