"""Blanks that a tokenizer puts before texts, or leaves out of spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokjax.bpe.encoded_segments import Corrections
from tokjax.core.utf8 import count_bytes
from tokjax.pretokenize.special_tokens import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.core.vocabulary import Vocabulary

TrimOffsets = Literal["all", "but_first"]
TRIM_OFFSETS_VALUES: tuple[TrimOffsets | None, ...] = ("all", "but_first", None)


def prepend_spaces(segments: Segments) -> Segments:
    """Segments with a blank before each, unless it begins with one, or is empty."""
    texts = [text if not text or text.startswith(" ") else " " + text for text in segments.texts]
    return segments._replace(texts=texts)


def compute_prefix_corrections(
    encoded: EncodedSegments, segments: Segments, split: Segments, byte_lengths: NDArray[np.int64]
) -> Corrections:
    """What blanks that were put before segments change in the spans of their first ids.

    If such a space is a token by itself, its span is empty.

    Args:
        encoded: the ids.
        segments: the segments.
        split: the same, with a blank before some of them.
        byte_lengths: of each id of the vocabulary.
    """
    has_prefix = (len(new) > len(old) for old, new in zip(segments.texts, split.texts, strict=True))
    prefixed = np.flatnonzero(np.fromiter(has_prefix, bool, len(segments.texts)))
    positions = encoded.splits.take(prefixed)
    return Corrections(positions, byte_lengths.take(encoded.ids.take(positions)) - 1)


class TokenSpaces(NamedTuple):
    """The spaces at the ends of each id of a vocabulary.

    Attributes:
        leading: how many it begins with, `int64`, shape `(size,)`.
        trailing: how many it ends with.
        all_spaces: which tokens are nothing but spaces, `bool`, shape `(size,)`.
    """

    leading: NDArray[np.int64]
    trailing: NDArray[np.int64]
    all_spaces: NDArray[np.bool_]

    def trim_spans(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        found: Mapping[int, bytes],
        trim_offsets: TrimOffsets,
    ) -> NDArray[np.int64]:
        """Returns spans without the spaces at the ends of tokens, as Hugging Face's `trim_offsets`.

        Args:
            ids: of all tokens, `int32`, shape `(n,)`.
            offsets: their 1-based spans, `int64`, shape `(n, 2)`.
            found: positions of special and added tokens that were found in a text, and the bytes of their
                spans. They are trimmed of all white space.
            trim_offsets: `"but_first"` to keep a single space where a text begins.
        """
        starts, stops = offsets[:, 0], offsets[:, 1]
        leading, trailing, all_spaces = (
            self.leading.take(ids),
            self.trailing.take(ids),
            self.all_spaces.take(ids),
        )
        single = leading == 1
        for position, data in found.items():
            text = data.decode("utf-8")
            leading[position] = len(data) - count_bytes(text.lstrip(WHITE_SPACE))
            trailing[position] = len(data) - count_bytes(text.rstrip(WHITE_SPACE))
            all_spaces[position] = leading[position] == len(data)
            single[position] = len(text) - len(text.lstrip(WHITE_SPACE)) == 1
        keeps_space = (starts <= 1) & single & (trim_offsets == "but_first")
        leading[keeps_space] = 0
        first = np.where(all_spaces & ~keeps_space, stops, np.minimum(starts + leading, stops))
        last = np.where(stops > trailing, np.maximum(stops - trailing, first), stops)
        return np.stack([first, np.where(all_spaces, first, last)], axis=1)


def count_token_spaces(vocabulary: Vocabulary) -> TokenSpaces:
    """Returns the spaces at the ends of each id."""
    leading, trailing = (np.zeros(vocabulary.size, np.int64) for _ in range(2))
    all_spaces = np.zeros(vocabulary.size, bool)
    for id_, token in vocabulary.bytes_by_id.items():
        leading[id_] = len(token) - len(token.lstrip(b" "))
        trailing[id_] = len(token) - len(token.rstrip(b" "))
        all_spaces[id_] = leading[id_] == len(token)
    return TokenSpaces(leading, trailing, all_spaces)
