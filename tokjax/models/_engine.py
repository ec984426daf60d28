"""The seam between a byte-level BPE tokenizer and the way it turns ordinary text into ids.

Everything above it (special tokens, offsets, masks, batches) asks only for `encode_segments`.

All words of a chunk are looked up at once: a word of up to 15 bytes is itself the key of a table of arrays.
What is not in the table is merged, once, and remembered.
"""

from __future__ import annotations

from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._threads import map_in_threads
from tokjax.models._chunks import CHUNK_CHARACTERS, cut_into_words, gather
from tokjax.models._known_words import KnownWords
from tokjax.models._merging import merge_word
from tokjax.ragged import splits_from_lengths
from tokjax.utf8 import from_characters, to_characters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.models._chunks import Pieces, Segments
    from tokjax.text.patterns import WordSplitter

FEW_CHARACTERS = 3000
"""Up to so many characters in all, a loop over words is quicker than dozens of array calls."""
MAX_KNOWN_TO_LOOP = 1 << 15
"""How many words of short texts it remembers, apart from all others."""


class EncodedSegments(NamedTuple):
    """Ids of several pieces of ordinary text, laid end to end.

    Attributes:
        ids: `int32`, shape `(n,)`.
        splits: where the ids of each segment start, `int64`, shape `(segments + 1,)`.
        begins_word: which ids begin a word, `bool`, shape `(n,)`.
    """

    ids: NDArray[np.int32]
    splits: NDArray[np.int64]
    begins_word: NDArray[np.bool_]


class _EncodedChunk(NamedTuple):
    """Ids of the pieces of a chunk, which ids begin a word, and where the ids of each piece stop."""

    ids: NDArray[np.int32]
    begins_word: NDArray[np.bool_]
    stops: NDArray[np.int64]


class _KnownToLoop(dict[str, tuple[int, ...]]):
    """The ids of words: of any word, since one that is not known is merged when it is asked for."""

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        super().__init__()
        self._ranks = ranks

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(self) >= MAX_KNOWN_TO_LOOP:
            self.clear()
        ids = tuple(merge_word(from_characters(word), self._ranks))
        self[word] = ids
        return ids


class ArrayEngine:
    """Looks up all words of a chunk at once, and merges those that it has not seen."""

    def __init__(self, ranks: Mapping[bytes, int], splitter: WordSplitter) -> None:
        self._ranks = ranks
        self._splitter = splitter
        self._known_to_loop = _KnownToLoop(ranks)

    def encode_segments(self, segments: Segments, threads: int = 1) -> EncodedSegments:
        """Encode pieces of ordinary text, each on its own.

        Args:
            segments: what to encode.
            threads: how many share the work.
        """
        characters = sum(map(len, segments.texts))
        if not segments.texts or characters <= FEW_CHARACTERS:
            return self._encode_few(segments)
        size = CHUNK_CHARACTERS
        if threads > 1:  # Larger ones, since threads wait for one another between calls of NumPy.
            size = min(2 * size, max(characters // (2 * threads), size // 8))
        gathered = list(gather(segments, size, safe_cuts=self._splitter.name is not None))
        chunks = list(map_in_threads(partial(self._encode_chunk, self._known), gathered, threads))
        ends_segment = np.concatenate([pieces.ends_segment for pieces in gathered])
        sizes = np.cumsum([len(chunk.ids) for chunk in chunks])
        stops = np.concatenate([c.stops + size - len(c.ids) for c, size in zip(chunks, sizes, strict=True)])
        return EncodedSegments(
            np.concatenate([chunk.ids for chunk in chunks]),
            np.append(0, stops[ends_segment]),
            np.concatenate([chunk.begins_word for chunk in chunks]),
        )

    def encode_short(self, text: str) -> NDArray[np.int32]:
        """Encode one short text of ASCII characters, without a column more than its ids."""
        known = self._known_to_loop
        return np.array([id_ for word in self._splitter.words(text) for id_ in known[word]], np.int32)

    def _encode_few(self, segments: Segments) -> EncodedSegments:
        """The same by a loop over words, each of them merged when it is first seen."""
        of_words: list[tuple[int, ...]] = []
        words = [0]
        for segment in segments.texts:
            plain = segment if segments.hold_bytes or segment.isascii() else to_characters(segment)
            of_words += [self._known_to_loop[word] for word in self._splitter.words(plain)]
            words.append(len(of_words))
        starts = splits_from_lengths(map(len, of_words))
        ids = np.fromiter(chain.from_iterable(of_words), np.int32, int(starts[-1]))
        begins_word = np.zeros(len(ids), bool)
        begins_word[starts[:-1]] = True
        return EncodedSegments(ids, starts[words], begins_word)

    def _encode_chunk(self, known: KnownWords, pieces: Pieces) -> _EncodedChunk:
        chunk = cut_into_words(pieces, self._splitter)
        ids, begins_word, several, surplus = known.ids_of(chunk.words)
        stops = chunk.stops + np.append(0, surplus)[np.searchsorted(several, chunk.stops)]
        return _EncodedChunk(ids, begins_word, stops)

    @cached_property
    def _known(self) -> KnownWords:
        return KnownWords(self._ranks)
