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
from tokjax.bpe.chunks import CHUNK_CHARACTERS, group_segments, split_pieces
from tokjax.bpe.encoded_segments import EncodedChunk, EncodedSegments, join_chunks
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.bpe.sequential_merging import merge_pretoken
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import from_characters, to_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces, PreTokenizer, Segments
    from tokjax.bpe.merge_rules import MergeRules
    from tokjax.bpe.pretoken_cache import CacheLookup

FEW_CHARACTERS = 3000
"""Up to so many characters (and one more a text), a loop over words is quicker than dozens of array calls."""
_INSERT_BATCH_SIZE, _MAX_PENDING_CHUNKS = 1 << 15, 16
"""After so many new words, or chunks that wait for some, they are learned."""
MAX_DICT_CACHE_CHARACTERS, MAX_DICT_CACHE_PRETOKEN = 1 << 20, 512
"""How many characters of words it remembers, apart from the arrays' words, and how many of one word."""


class _PendingChunk(NamedTuple):
    """A chunk with words that have to be learned.

    Attributes:
        pieces: what is in it.
        stops: how many words there are up to the end of each piece.
        found: the words.
    """

    pieces: Pieces
    stops: NDArray[np.int64]
    found: CacheLookup


class PretokenDictCache(dict[str, tuple[int, ...]]):
    """The ids of words: of any word, since one that is not known is merged when it is asked for.

    Args:
        merge: gives the ids of a word.
    """

    def __init__(self, merge: Callable[[str], Iterable[int]]) -> None:
        super().__init__()
        self._merge = merge
        self._characters = 0

    def __missing__(self, pretoken: str) -> tuple[int, ...]:
        """Merge a word that is new, and remember it if it is short."""
        ids = tuple(self._merge(pretoken))
        if len(pretoken) <= MAX_DICT_CACHE_PRETOKEN:
            self._characters += len(pretoken)
            if self._characters > MAX_DICT_CACHE_CHARACTERS:
                self.clear()
                self._characters = len(pretoken)
            self[pretoken] = ids
        return ids


class ArrayEngine:
    """Looks up all words of a chunk at once, and merges those that it has not seen.

    Args:
        rules: what merges.
        pre_tokenizer: what finds the words.
    """

    def __init__(self, rules: MergeRules, pre_tokenizer: PreTokenizer) -> None:
        self._rules = rules
        self._pre_tokenizer = pre_tokenizer
        self._characters = 0  # of calls that wait for no tables
        self._dict_cache = PretokenDictCache(
            lambda pretoken: merge_pretoken(from_characters(pretoken), rules)
        )

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, begins_word: bool = True
    ) -> EncodedSegments:
        """Encode pieces of ordinary text, each on its own.

        Args:
            segments: what to encode.
            threads: how many share the work.
            begins_word: whether to tell which ids begin a word.
        """
        total = segments.num_characters
        if not segments.texts or total <= FEW_CHARACTERS or self._is_loop_faster(total):
            return self._encode_with_loop(segments, begins_word=begins_word)
        size = CHUNK_CHARACTERS
        if threads > 1:  # Larger ones, since threads wait for one another between calls of NumPy.
            size = min(2 * size, max(total // (2 * threads), size // 8, 1))
        gathered = group_segments(segments, size, self._pre_tokenizer.find_split)
        chunks = map_in_threads(self._look_up, gathered, threads)
        return join_chunks(self._iter_encoded_chunks(chunks), total, begins_word=begins_word)

    def _is_loop_faster(self, characters: int) -> bool:
        """Returns whether the loop is faster than building the arrays' tables, which can take seconds.

        That is so for about as many characters as there are symbols, of all calls together.
        """
        if "_cache" in vars(self):
            return False
        self._characters += characters
        return self._characters <= len(self._rules.symbols)

    def encode_short(self, text: str) -> NDArray[np.int32]:
        """Encode one short text without surrogates, without a column more than its ids."""
        cache = self._dict_cache
        return np.array(
            [id_ for pretoken in self._pre_tokenizer.split(text) for id_ in cache[pretoken]], np.int32
        )

    def _encode_with_loop(self, segments: Segments, *, begins_word: bool) -> EncodedSegments:
        """The same by a loop over words, each of them merged when it is first seen."""
        of_words: list[tuple[int, ...]] = []
        pretokens = [0]
        for segment in segments.texts:
            plain = segment if segments.hold_bytes or segment.isascii() else to_characters(segment)
            of_words += [self._dict_cache[pretoken] for pretoken in self._pre_tokenizer.split(plain)]
            pretokens.append(len(of_words))
        starts = make_row_splits(map(len, of_words))
        ids = np.fromiter(chain.from_iterable(of_words), np.int32, int(starts[-1]))
        begins = None
        if begins_word:
            begins = np.zeros(len(ids), bool)
            begins[starts[:-1]] = True
        return EncodedSegments(ids, starts[pretokens], begins)

    def _look_up(self, pieces: Pieces) -> EncodedChunk | _PendingChunk:
        pretokens, stops = split_pieces(pieces, self._pre_tokenizer)
        found = self._cache.find(pretokens)
        if len(found.misses):
            return _PendingChunk(pieces, stops, found)
        return EncodedChunk(pieces, stops, self._cache.get_ids(found))

    def _iter_encoded_chunks(self, chunks: Iterable[EncodedChunk | _PendingChunk]) -> Iterator[EncodedChunk]:
        """The chunks, in order. The new words of several are learned together, which is quicker."""
        pending: list[EncodedChunk | _PendingChunk] = []
        misses = 0
        for chunk in chunks:
            pending.append(chunk)
            misses += len(chunk.found.misses) if isinstance(chunk, _PendingChunk) else 0
            if not misses or misses >= _INSERT_BATCH_SIZE or len(pending) >= _MAX_PENDING_CHUNKS:
                yield from self._insert_misses(pending)
                pending, misses = [], 0
        yield from self._insert_misses(pending)

    def _insert_misses(self, pending: list[EncodedChunk | _PendingChunk]) -> Iterator[EncodedChunk]:
        inserted = iter(
            self._cache.insert([chunk.found for chunk in pending if isinstance(chunk, _PendingChunk)])
        )
        for chunk in pending:
            if isinstance(chunk, _PendingChunk):
                yield EncodedChunk(chunk.pieces, chunk.stops, self._cache.get_ids(next(inserted)))
            else:
                yield chunk

    @cached_property
    def _cache(self) -> PretokenCache:
        return PretokenCache(self._rules.atomic_ids, BatchMerger(self._rules))
