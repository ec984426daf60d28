"""The seam between a byte-level BPE tokenizer and the way it turns ordinary text into ids.

Everything above it (special tokens, offsets, masks, batches) asks only for `encode_segments`.

All words of a chunk are looked up at once: a word of up to 15 bytes is itself the key of a table of arrays.
What is not in the table is merged, once, and remembered.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.models._chunks import Chunk, cut_into_words, gather
from tokjax.models._known_words import KnownWords
from tokjax.models._merging import merge_word
from tokjax.utf8 import from_characters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.text.patterns import WordSplitter

FEW_CHARACTERS = 400
"""Up to so many characters in all, a loop over words is quicker than dozens of array calls."""
MAX_KNOWN_TO_LOOP = 1 << 15
"""How many words of short texts it remembers, apart from all others."""


class EncodedSegments(NamedTuple):
    """Ids of several pieces of ordinary text, laid end to end.

    Attributes:
        ids: `int32`, shape `(n,)`.
        splits: where the ids of each segment start, `int64`, shape `(segments + 1,)`.
        tokens_per_word: how many ids each word has, `int64`, shape `(words,)`.
    """

    ids: NDArray[np.int32]
    splits: NDArray[np.int64]
    tokens_per_word: NDArray[np.int64]


class ArrayEngine:
    """Looks up all words of a chunk at once, and merges those that it has not seen."""

    def __init__(self, ranks: Mapping[bytes, int], splitter: WordSplitter) -> None:
        self._ranks = dict(ranks)
        self._splitter = splitter
        self._known_to_loop: dict[str, tuple[int, ...]] = {}

    def encode_segments(self, segments: Sequence[str]) -> EncodedSegments:
        """Encode pieces of ordinary text, each on its own.

        Args:
            segments: characters as `to_characters` gives them.
        """
        if sum(map(len, segments)) <= FEW_CHARACTERS:
            return self._encode_few(segments)
        parts, lengths, words = [np.zeros(0, np.int32)], [0], [np.zeros(0, np.int64)]
        open_length = 0
        for pieces in gather(segments, safe_cuts=self._splitter.name is not None):
            ids, stops, counts = self._encode_chunk(cut_into_words(pieces, self._splitter))
            parts.append(ids)
            words.append(counts)
            for length, ends in zip(np.diff(stops, prepend=0).tolist(), pieces.ends_segment, strict=True):
                open_length += length
                if ends:
                    lengths.append(open_length)
                    open_length = 0
        return EncodedSegments(
            np.concatenate(parts), np.cumsum(np.array(lengths, np.int64)), np.concatenate(words)
        )

    def _encode_few(self, segments: Sequence[str]) -> EncodedSegments:
        """The same by a loop over words, each of them merged when it is first seen."""
        ids: list[int] = []
        counts: list[int] = []
        splits = [0]
        for segment in segments:
            for word in self._splitter.words(segment):
                of_word = self._known_to_loop.get(word) or self._learn_for_loop(word)
                ids += of_word
                counts.append(len(of_word))
            splits.append(len(ids))
        return EncodedSegments(
            np.array(ids, np.int32), np.array(splits, np.int64), np.array(counts, np.int64)
        )

    def _learn_for_loop(self, word: str) -> tuple[int, ...]:
        if len(self._known_to_loop) >= MAX_KNOWN_TO_LOOP:
            self._known_to_loop = {}
        ids = tuple(merge_word(from_characters(word), self._ranks))
        self._known_to_loop[word] = ids
        return ids

    def _encode_chunk(self, chunk: Chunk) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """The ids of a chunk, where those of each piece stop, and how many each word has."""
        values, several, counts, of_several = self._known.ids_of(chunk.words)
        after = np.cumsum(counts - 1)  # how many more ids than words there are up to each of those
        more = int(after[-1]) if len(after) else 0
        ids = np.empty(len(values) + more, np.int32)
        places = np.repeat(several + after + 1 - np.cumsum(counts), counts)
        places += np.arange(len(places))
        one_a_word = np.ones(len(ids), bool)
        one_a_word[places] = False
        one_a_word[several + after - (counts - 1)] = True
        ids[one_a_word] = values
        ids[places] = of_several
        stops = chunk.stops + np.append(0, after)[np.searchsorted(several, chunk.stops)]
        return ids, stops, np.diff(np.flatnonzero(one_a_word), append=len(ids))

    @cached_property
    def _known(self) -> KnownWords:
        return KnownWords(self._ranks)
