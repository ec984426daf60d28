"""Token ids of segments of text, with what is needed to compute their offsets."""

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
    """PretokenIds that are of other bytes of a text than their tokens tell.

    Attributes:
        positions: where they stand among the ids of all segments, rising, `int64`, shape `(corrected,)`.
        lengths: how many bytes of a text each is, `int64`.
    """

    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]


_NO_CORRECTIONS = Corrections(*np.zeros((2, 0), np.int64))


class EncodedSegments(NamedTuple):
    """PretokenIds of several pieces of ordinary text, laid end to end.

    Attributes:
        ids: `int32`, shape `(n,)`.
        splits: where the ids of each segment start, `int64`, shape `(segments + 1,)`.
        begins_word: which ids begin a word, `bool`, shape `(n,)`; `None` if that was not asked for.
        spans: 0-based byte spans of the ids, each in its segment, `int64`, shape `(n, 2)`; `None` where the
            bytes of the tokens, end to end, are the segment.
        corrections: of which of them that is not quite so.
    """

    ids: NDArray[np.int32]
    splits: NDArray[np.int64]
    begins_word: NDArray[np.bool_] | None
    spans: NDArray[np.int64] | None = None
    corrections: Corrections = _NO_CORRECTIONS


class EncodedChunk(NamedTuple):
    """The ids of a chunk of segments.

    Attributes:
        pieces: what is in the chunk.
        stops: how many pre-tokens there are up to the end of each piece, `int64`, shape `(pieces,)`.
        ids: those of the pre-tokens.
        spans: 0-based byte spans of the ids, each in its piece, `int64`, shape `(n, 2)`; `None` where the
            bytes of the tokens, concatenated, are the piece.
        last_nbytes: how many bytes the last piece has, for spans of the chunks that continue its segment.
    """

    pieces: Pieces
    stops: NDArray[np.int64]
    ids: PretokenIds
    spans: NDArray[np.int64] | None = None
    last_nbytes: int = 0

    @property
    def splits(self) -> NDArray[np.int64]:
        """How many ids there are up to the end of each piece, `int64`, shape `(pieces,)`."""
        return np.append(0, self.ids.ends).take(self.stops)


def join_chunks(chunks: Iterable[EncodedChunk], total: int, *, begins_word: bool) -> EncodedSegments:
    """Concatenates the ids of chunks, whose pieces make up whole segments.

    Args:
        chunks: in order. Their spans, if any, are changed in place.
        total: how many characters all pieces have, and one more for each piece, about.
        begins_word: whether to report which ids begin a word.
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
            if len(splits) > 1:  # (the last piece begins a segment)
                nbytes_before = 0
            nbytes_before = 0 if chunk.pieces.ends_segment[-1] else nbytes_before + chunk.last_nbytes
    return EncodedSegments(
        ids.finish(),
        np.concatenate(all_splits),
        begins.finish() if begins_word else None,
        spans.finish().reshape(-1, 2) if has_spans else None,
    )
