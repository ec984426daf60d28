"""Records for the token ids of text segments, and the information that their offsets are computed from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.bpe.growable_array import GrowableArray

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces
    from tokjax.bpe.pretoken_cache import PretokenIds


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


class EncodedChunk(NamedTuple):
    """The token ids of a chunk of text.

    Attributes:
        pieces: the pieces of text in the chunk.
        stops: number of pre-tokens up to the end of each piece, `int64`, shape `(pieces,)`.
        ids: the ids of the pre-tokens.
        spans: 0-based byte spans of the ids in their pieces, `int64`, shape `(num_tokens, 2)`; `None` if the
            bytes of the tokens, concatenated, are the piece.
        last_nbytes: number of bytes of the last piece, for the spans of chunks that continue its segment.
    """

    pieces: Pieces
    stops: NDArray[np.int64]
    ids: PretokenIds
    spans: NDArray[np.int64] | None = None
    last_nbytes: int = 0

    @property
    def splits(self) -> NDArray[np.int64]:
        """Number of ids up to the end of each piece, `int64`, shape `(pieces,)`."""
        return np.append(0, self.ids.ends).take(self.stops)


def join_chunks(chunks: Iterable[EncodedChunk], total: int, *, begins_word: bool) -> EncodedSegments:
    """Concatenates the ids of chunks, whose pieces together are complete segments.

    Args:
        chunks: the chunks, in order. Their spans, if any, are changed in place.
        total: approximate number of characters of all pieces, plus one per piece.
        begins_word: whether to report which ids begin a pre-token.
    """
    ids, begins, spans = GrowableArray(np.int32), GrowableArray(np.bool_), GrowableArray(np.int64)
    all_splits, characters = [np.zeros(1, np.int64)], 0
    has_spans, nbytes_before = False, 0
    for chunk in chunks:
        characters += chunk.pieces.num_characters
        done = characters / total
        splits = chunk.splits
        all_splits.append(splits[chunk.pieces.ends_segment] + len(ids))
        ids.append(chunk.ids.ids, done)
        if begins_word:
            begins.append(chunk.ids.begins_word, done)
        if chunk.spans is not None:
            has_spans = True
            chunk.spans[: splits[0]] += nbytes_before
            spans.append(chunk.spans.reshape(-1), done)
            if len(splits) > 1:  # the last piece begins a segment
                nbytes_before = 0
            nbytes_before = 0 if chunk.pieces.ends_segment[-1] else nbytes_before + chunk.last_nbytes
    return EncodedSegments(
        ids.finish(),
        np.concatenate(all_splits),
        begins.finish() if begins_word else None,
        spans.finish().reshape(-1, 2) if has_spans else None,
    )
