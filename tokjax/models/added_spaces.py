"""Spaces that a tokenizer adds before texts, and spaces that it leaves out of token spans."""

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
    """Returns segments with a space before each one that is not empty and does not begin with a space."""
    texts = [text if not text or text.startswith(" ") else " " + text for text in segments.texts]
    return segments._replace(texts=texts)


def compute_prefix_corrections(
    encoded: EncodedSegments, segments: Segments, spaced_segments: Segments, byte_lengths: NDArray[np.int64]
) -> Corrections:
    """Computes the length corrections for the first ids of segments that got a space prepended.

    The prepended space is not in the text, so the first token spans one byte less than it has. If the space
    is a separate token, its span is empty.

    Args:
        encoded: ids of the segments with prepended spaces.
        segments: segments as they are in the text.
        spaced_segments: the same segments, with a space before some of them.
        byte_lengths: number of bytes per token id, `int64`, shape `(size,)`.
    """
    has_prefix = (len(new) > len(old) for old, new in zip(segments.texts, spaced_segments.texts, strict=True))
    prefixed = np.flatnonzero(np.fromiter(has_prefix, bool, len(segments.texts)))
    positions = encoded.splits.take(prefixed)
    return Corrections(positions, byte_lengths.take(encoded.ids.take(positions)) - 1)


class TokenSpaces(NamedTuple):
    """Number of spaces at the start and end of each token of a vocabulary.

    Attributes:
        leading: number of spaces at the start of each token, `int64`, shape `(size,)`.
        trailing: number of spaces at the end of each token, `int64`, shape `(size,)`.
        all_spaces: whether a token consists of spaces only, `bool`, shape `(size,)`.
    """

    leading: NDArray[np.int64]
    trailing: NDArray[np.int64]
    all_spaces: NDArray[np.bool_]

    def trim_spans(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        matched: Mapping[int, bytes],
        trim_offsets: TrimOffsets,
    ) -> NDArray[np.int64]:
        """Returns spans without leading and trailing spaces of tokens, like Hugging Face's `trim_offsets`.

        Args:
            ids: token ids, inserted tokens included, `int32`, shape `(n,)`.
            offsets: 1-based half-open byte spans of the tokens, `int64`, shape `(n, 2)`.
            matched: position of each special or added token that was matched in a text, mapped to the bytes
                of its span. All white space is trimmed from these, not only spaces.
            trim_offsets: `"all"`, or `"but_first"` to keep a single space where a text begins.
        """
        starts, stops = offsets[:, 0], offsets[:, 1]
        leading, trailing, all_spaces = (
            self.leading.take(ids),
            self.trailing.take(ids),
            self.all_spaces.take(ids),
        )
        single = leading == 1
        for position, data in matched.items():
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
    """Counts the spaces at the start and end of each token of a vocabulary."""
    leading, trailing = (np.zeros(vocabulary.size, np.int64) for _ in range(2))
    all_spaces = np.zeros(vocabulary.size, bool)
    for id_, token in vocabulary.bytes_by_id.items():
        leading[id_] = len(token) - len(token.lstrip(b" "))
        trailing[id_] = len(token) - len(token.rstrip(b" "))
        all_spaces[id_] = leading[id_] == len(token)
    return TokenSpaces(leading, trailing, all_spaces)
