"""The seam between a byte-level BPE tokenizer and the way it turns ordinary text into ids.

Everything above it (special tokens, offsets, masks, batches) asks only for `encode_segments`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.models._merging import merge_word
from tokjax.utf8 import from_characters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.text.patterns import WordSplitter

MAX_CACHED_WORDS = 1 << 19
"""How many words an engine remembers before it forgets them all."""
MAX_CACHED_LENGTH = 64
"""Longer words, in characters, are not remembered: they seldom come twice, and take room."""


class EncodedSegments(NamedTuple):
    """Ids of several pieces of ordinary text, laid end to end.

    Attributes:
        ids: `int32`, shape `(n,)`.
        splits: where the ids of each segment start, `int64`, shape `(segments + 1,)`.
        tokens_per_word: how many ids each word has, `int32`, shape `(words,)`.
        word_splits: where the words of each segment start, `int64`, shape `(segments + 1,)`.
    """

    ids: NDArray[np.int32]
    splits: NDArray[np.int64]
    tokens_per_word: NDArray[np.int32]
    word_splits: NDArray[np.int64]


class WordCacheEngine:
    """Splits with a regular expression, and merges each word the first time that it is seen."""

    def __init__(self, ranks: Mapping[bytes, int], splitter: WordSplitter) -> None:
        self._ranks = dict(ranks)
        self._splitter = splitter
        self._known: dict[str, tuple[int, ...]] = {}

    def encode_segments(self, segments: Sequence[str]) -> EncodedSegments:
        """Encode pieces of ordinary text, each on its own.

        Args:
            segments: characters as `to_characters` gives them.
        """
        ids: list[int] = []
        counts: list[int] = []
        splits, word_splits = [0], [0]
        for segment in segments:
            for word in self._splitter.words(segment):
                word_ids = self._known.get(word) or self._learn(word)
                ids += word_ids
                counts.append(len(word_ids))
            splits.append(len(ids))
            word_splits.append(len(counts))
        return EncodedSegments(
            np.array(ids, np.int32),
            np.array(splits, np.int64),
            np.array(counts, np.int32),
            np.array(word_splits, np.int64),
        )

    def _learn(self, word: str) -> tuple[int, ...]:
        ids = tuple(merge_word(from_characters(word), self._ranks))
        if len(word) <= MAX_CACHED_LENGTH:
            if len(self._known) >= MAX_CACHED_WORDS:
                self._known = {}
            self._known[word] = ids
        return ids
