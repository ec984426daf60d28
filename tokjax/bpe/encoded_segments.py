"""Token ids of segments of text, with what is needed to compute their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Corrections(NamedTuple):
    """Ids that are of other bytes of a text than their tokens tell.

    Attributes:
        positions: where they stand among the ids of all segments, rising, `int64`, shape `(corrected,)`.
        lengths: how many bytes of a text each is, `int64`.
    """

    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]


_NO_CORRECTIONS = Corrections(*np.zeros((2, 0), np.int64))


class EncodedSegments(NamedTuple):
    """Ids of several pieces of ordinary text, laid end to end.

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
