"""The seam between a BPE tokenizer and the way it turns ordinary text into ids.

Everything above it (special tokens, offsets, masks, batches) asks only for `encode_segments`.

All words of a chunk are looked up at once: a word of up to 128 bytes is itself the key of a table of arrays.
What is not in the table is merged, once, and remembered.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.threads import map_in_threads
from tokjax.bpe.batch_merging import BatchMerger
from tokjax.bpe.chunks import CHUNK_CHARACTERS, cut_into_words, gather
from tokjax.bpe.encoded_segments import EncodedSegments
from tokjax.bpe.growable_array import Growing
from tokjax.bpe.pretoken_cache import KnownWords
from tokjax.bpe.sequential_merging import merge_word
from tokjax.core.ragged import splits_from_lengths
from tokjax.core.utf8 import from_characters, to_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Cutter, Pieces, Segments
    from tokjax.bpe.merge_rules import MergeRules
    from tokjax.bpe.pretoken_cache import Found, Ids

FEW_CHARACTERS = 3000
"""Up to so many characters (and one more a text), a loop over words is quicker than dozens of array calls."""
_LEARN_AT_ONCE, _MOST_HELD = 1 << 15, 16
"""After so many new words, or chunks that wait for some, they are learned."""
MAX_KNOWN_TO_LOOP, LONGEST_KNOWN_TO_LOOP = 1 << 20, 512
"""How many characters of words it remembers, apart from the arrays' words, and how many of one word."""


class _Waiting(NamedTuple):
    """A chunk with words that have to be learned.

    Attributes:
        pieces: what is in it.
        stops: how many words there are up to the end of each piece.
        found: the words.
    """

    pieces: Pieces
    stops: NDArray[np.int64]
    found: Found


class _Ready(NamedTuple):
    """A chunk of which all words are known.

    Attributes:
        pieces: what is in it.
        stops: how many words there are up to the end of each piece.
        ids: those of the words.
    """

    pieces: Pieces
    stops: NDArray[np.int64]
    ids: Ids

    @property
    def ends_of_segments(self) -> NDArray[np.int64]:
        """How many ids there are up to the end of each segment that ends here."""
        up_to = np.append(0, self.ids.ends)
        return up_to.take(self.stops[self.pieces.ends_segment])


class KnownToLoop(dict[str, tuple[int, ...]]):
    """The ids of words: of any word, since one that is not known is merged when it is asked for.

    Args:
        merge: gives the ids of a word.
    """

    def __init__(self, merge: Callable[[str], Iterable[int]]) -> None:
        super().__init__()
        self._merge = merge
        self._characters = 0

    def __missing__(self, word: str) -> tuple[int, ...]:
        """Merge a word that is new, and remember it if it is short."""
        ids = tuple(self._merge(word))
        if len(word) <= LONGEST_KNOWN_TO_LOOP:
            self._characters += len(word)
            if self._characters > MAX_KNOWN_TO_LOOP:
                self.clear()
                self._characters = len(word)
            self[word] = ids
        return ids


class ArrayEngine:
    """Looks up all words of a chunk at once, and merges those that it has not seen.

    Args:
        rules: what merges.
        cutter: what finds the words.
    """

    def __init__(self, rules: MergeRules, cutter: Cutter) -> None:
        self._rules = rules
        self._cutter = cutter
        self._characters = 0  # of calls that wait for no tables
        self._known_to_loop = KnownToLoop(lambda word: merge_word(from_characters(word), rules))

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, begins_word: bool = True
    ) -> EncodedSegments:
        """Encode pieces of ordinary text, each on its own.

        Args:
            segments: what to encode.
            threads: how many share the work.
            begins_word: whether to tell which ids begin a word.
        """
        total = sum(map(len, segments.texts)) + len(segments.texts)
        if not segments.texts or total <= FEW_CHARACTERS or self._tables_cost_more(total):
            return self._encode_few(segments, begins_word=begins_word)
        size = CHUNK_CHARACTERS
        if threads > 1:  # Larger ones, since threads wait for one another between calls of NumPy.
            size = min(2 * size, max(total // (2 * threads), size // 8, 1))
        gathered = gather(segments, size, self._cutter.cut)
        chunks = map_in_threads(self._look_up, gathered, threads)
        ids, begins = Growing(np.int32), Growing(np.bool_)
        splits, done = [np.zeros(1, np.int64)], 0
        for chunk in self._all_ready(chunks):
            done += sum(map(len, chunk.pieces.texts)) + len(chunk.pieces.texts)
            splits.append(chunk.ends_of_segments + len(ids))
            ids.append(chunk.ids.ids, done / total)
            if begins_word:
                begins.append(chunk.ids.begins_word, done / total)
        return EncodedSegments(ids.array(), np.concatenate(splits), begins.array() if begins_word else None)

    def _tables_cost_more(self, characters: int) -> bool:
        """Returns whether the loop is faster than building the arrays' tables, which can take seconds.

        That is so for about as many characters as there are symbols, of all calls together.
        """
        if "_known" in vars(self):
            return False
        self._characters += characters
        return self._characters <= len(self._rules.symbols)

    def encode_short(self, text: str) -> NDArray[np.int32]:
        """Encode one short text without surrogates, without a column more than its ids."""
        known = self._known_to_loop
        return np.array([id_ for word in self._cutter.words(text) for id_ in known[word]], np.int32)

    def _encode_few(self, segments: Segments, *, begins_word: bool) -> EncodedSegments:
        """The same by a loop over words, each of them merged when it is first seen."""
        of_words: list[tuple[int, ...]] = []
        words = [0]
        for segment in segments.texts:
            plain = segment if segments.hold_bytes or segment.isascii() else to_characters(segment)
            of_words += [self._known_to_loop[word] for word in self._cutter.words(plain)]
            words.append(len(of_words))
        starts = splits_from_lengths(map(len, of_words))
        ids = np.fromiter(chain.from_iterable(of_words), np.int32, int(starts[-1]))
        begins = None
        if begins_word:
            begins = np.zeros(len(ids), bool)
            begins[starts[:-1]] = True
        return EncodedSegments(ids, starts[words], begins)

    def _look_up(self, pieces: Pieces) -> _Ready | _Waiting:
        words, stops = cut_into_words(pieces, self._cutter)
        found = self._known.find(words)
        if len(found.absent):
            return _Waiting(pieces, stops, found)
        return _Ready(pieces, stops, self._known.ids_of(found))

    def _all_ready(self, chunks: Iterable[_Ready | _Waiting]) -> Iterator[_Ready]:
        """The chunks, in order. The new words of several are learned together, which is quicker."""
        held: list[_Ready | _Waiting] = []
        absent = 0
        for chunk in chunks:
            held.append(chunk)
            absent += len(chunk.found.absent) if isinstance(chunk, _Waiting) else 0
            if not absent or absent >= _LEARN_AT_ONCE or len(held) >= _MOST_HELD:
                yield from self._made_ready(held)
                held, absent = [], 0
        yield from self._made_ready(held)

    def _made_ready(self, held: list[_Ready | _Waiting]) -> Iterator[_Ready]:
        learned = iter(self._known.learn([chunk.found for chunk in held if isinstance(chunk, _Waiting)]))
        for chunk in held:
            if isinstance(chunk, _Waiting):
                yield _Ready(chunk.pieces, chunk.stops, self._known.ids_of(next(learned)))
            else:
                yield chunk

    @cached_property
    def _known(self) -> KnownWords:
        return KnownWords(self._rules.whole, BatchMerger(self._rules))
