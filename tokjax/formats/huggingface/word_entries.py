"""Encoded words, for tokenizers whose words are encoded separately: ids, spans and word beginnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.bpe.encoded_segments import EncodedSegments
from tokjax.bpe.hash_tables import append_rows
from tokjax.core.ragged import concatenate_ranges, make_row_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Entries(NamedTuple):
    """Encoded words, concatenated.

    Attributes:
        ids: token ids, `int32`, shape `(num_tokens,)`.
        spans: 0-based byte spans in the word, `int64`, or `uint16` in an `EntryTable`, shape
            `(num_tokens, 2)`.
        begins: mask of the ids that begin a pre-token, `bool`, shape `(num_tokens,)`.
        splits: start of the ids of each word, `int64`, shape `(words + 1,)`.
        is_hazard: mask of the words that have to be encoded with their text, `bool`, shape `(words,)`.
    """

    ids: NDArray[np.int32]
    spans: NDArray[np.integer[Any]]
    begins: NDArray[np.bool_]
    splits: NDArray[np.int64]
    is_hazard: NDArray[np.bool_]

    def gather(
        self, numbers: NDArray[np.int64], starts: NDArray[np.int64], word_splits: NDArray[np.int64]
    ) -> EncodedSegments:
        """Returns the ids of texts.

        Args:
            numbers: number of the entry of each word of the texts, `int64`, shape `(words,)`.
            starts: byte position of each word in its text, 0-based, `int64`, shape `(words,)`.
            word_splits: start of the words of each text, `int64`, shape `(texts + 1,)`.
        """
        ids, spans, begins, splits, _ = self.take(numbers)
        spans_in_text = spans + np.repeat(starts, np.diff(splits))[:, None]
        return EncodedSegments(ids, splits[word_splits], begins, spans_in_text)

    def gather_ids(self, numbers: NDArray[np.int64], word_splits: NDArray[np.int64]) -> EncodedSegments:
        """Returns the ids of texts as `gather`, without spans and word beginnings."""
        firsts = self.splits.take(numbers)
        counts = self.splits.take(numbers + 1) - firsts
        ids = self.ids.take(concatenate_ranges(firsts, counts))
        return EncodedSegments(ids, make_row_splits(counts)[word_splits], None)

    def take(self, words: NDArray[np.int64]) -> Entries:
        """Returns the entries of the words at the indices."""
        firsts = self.splits.take(words)
        counts = self.splits.take(words + 1) - firsts
        tokens = concatenate_ranges(firsts, counts)
        return Entries(
            self.ids.take(tokens),
            self.spans.take(tokens, axis=0),
            self.begins.take(tokens),
            make_row_splits(counts),
            self.is_hazard.take(words),
        )


NO_ENTRIES = Entries(
    np.zeros(0, np.int32),
    np.zeros((0, 2), np.int64),
    np.zeros(0, bool),
    np.zeros(1, np.int64),
    np.zeros(0, bool),
)


def concatenate_entries(parts: Sequence[Entries]) -> Entries:
    """Concatenates the entries of several groups of words, at least one group."""
    ids, spans, begins, splits, is_hazard = zip(*parts, strict=True)
    return Entries(
        np.concatenate(ids),
        np.concatenate(spans),
        np.concatenate(begins),
        make_row_splits(np.concatenate([np.diff(part) for part in splits])),
        np.concatenate(is_hazard),
    )


class EntryTable:
    """Entries of words of less than 2^16 bytes. Threads can read them while another one appends more."""

    def __init__(self) -> None:
        self._columns = NO_ENTRIES._replace(spans=NO_ENTRIES.spans.astype(np.uint16))
        self._num_tokens: int = 0
        self._num_words: int = 0

    def __len__(self) -> int:
        """Returns the number of words."""
        return self._num_words

    @property
    def num_tokens(self) -> int:
        """Number of ids."""
        return self._num_tokens

    @property
    def entries(self) -> Entries:
        """All entries. Arrays with unused rows at their ends."""
        return self._columns

    def append(self, part: Entries) -> None:
        """Appends the entries of more words."""
        ids, spans, begins, splits, is_hazard = self._columns
        self._columns = Entries(
            append_rows(ids, self._num_tokens, part.ids),
            append_rows(spans, self._num_tokens, part.spans),
            append_rows(begins, self._num_tokens, part.begins),
            append_rows(splits, self._num_words + 1, part.splits[1:] + self._num_tokens),
            append_rows(is_hazard, self._num_words, part.is_hazard),
        )
        self._num_tokens += len(part.ids)
        self._num_words += len(part.is_hazard)
