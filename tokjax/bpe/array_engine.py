"""Array engine of the BPE models: turns segments of ordinary text into token ids.

Special tokens, offsets, masks and batches are handled in the layers above, which call only `encode_segments`.

The pre-tokens of a chunk of text are looked up all at once, in hash tables whose keys are the bytes of the
pre-tokens. Pre-tokens that are not in the tables are merged once, and inserted. See docs/performance.md,
section "Pre-token cache".
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain, islice, repeat, tee
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.parallel import make_token, map_in_parallel
from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.chunks import CHUNK_CHARACTERS, group_segments, split_pieces
from tokjax.bpe.dropout import (
    DROPOUT_CHUNK_CHARACTERS,
    compute_pretoken_keys,
    iter_piece_keys,
    merge_with_dropout,
)
from tokjax.bpe.encoded_segments import EncodedSegments, join_chunks, make_encoded_segments
from tokjax.bpe.hash_tables import make_pretokens
from tokjax.bpe.pretoken_cache import PretokenCache, PretokenIds
from tokjax.bpe.sequential_merging import merge_pretoken
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import from_characters, to_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces, PreTokenizer, Segments
    from tokjax.bpe.dropout import Dropout
    from tokjax.bpe.merge_rules import MergeRules
    from tokjax.bpe.pretoken_cache import CacheLookup

_ID_DTYPE = np.dtype(np.int32)
FEW_CHARACTERS = 11_000
"""Up to this many characters (plus one per text), a Python loop over pre-tokens is used. For so short a text
it is faster than dozens of array calls if most pre-tokens are in the cache."""
_INSERT_BATCH_SIZE, _MAX_PENDING_CHUNKS = 1 << 15, 16
"""Misses are merged and inserted after this many misses, or this many chunks that wait for them."""
_TASKS_PER_THREAD = 8
"""Approximate number of tasks for each thread or process, if the text has enough chunks. A task is several
chunks."""
MAX_DICT_CACHE_CHARACTERS, MAX_DICT_CACHE_PRETOKEN = 1 << 20, 512
"""Limits of a `PretokenDictCache`: characters of all pre-tokens together, and characters of one pre-token."""


class _PreparedChunk(NamedTuple):
    """A chunk whose pre-tokens were looked up, and may have cache misses.

    Attributes:
        stops: number of pre-tokens up to the end of each piece, `int64`, shape `(pieces,)`.
        lookup: the pre-tokens of the chunk, looked up in the cache.
    """

    stops: NDArray[np.int64]
    lookup: CacheLookup


class PretokenDictCache(dict[str, bytes]):
    """Dictionary of pre-tokens and their ids. A missing pre-token is merged when it is looked up.

    The ids of a pre-token are the bytes of an `int32` array: `join_ids` concatenates them to an array several
    times as fast as tuples of integers.

    Args:
        merge: function that returns the ids of a pre-token.
    """

    def __init__(self, merge: Callable[[str], Iterable[int]]) -> None:
        super().__init__()
        self._merge = merge
        self._characters = 0

    def __missing__(self, pretoken: str) -> bytes:
        """Merges a new pre-token, and inserts it if it is short. A full cache is cleared first."""
        ids = ids_to_bytes(self._merge(pretoken))
        if len(pretoken) <= MAX_DICT_CACHE_PRETOKEN:
            self._characters += len(pretoken)
            if self._characters > MAX_DICT_CACHE_CHARACTERS:
                self.clear()
                self._characters = len(pretoken)
            self[pretoken] = ids
        return ids


def ids_to_bytes(ids: Iterable[int]) -> bytes:
    """Returns the bytes of ids as an `int32` array."""
    return np.fromiter(ids, np.int32).tobytes()


def join_ids(parts: Iterable[bytes]) -> NDArray[np.int32]:
    """Concatenates ids, given as the bytes of `int32` arrays. The result is writable, shape `(n,)`."""
    return np.frombuffer(bytearray().join(parts), _ID_DTYPE)


def join_ids_read_only(parts: Iterable[bytes]) -> NDArray[np.int32]:
    """Concatenates ids like `join_ids`. The result is read-only, shape `(n,)`."""
    return np.frombuffer(b"".join(parts), _ID_DTYPE)


def join_ids_to_freeze(parts: Iterable[bytes]) -> NDArray[np.int32]:
    """Concatenates ids like `join_ids`. The result owns its memory, so that `freeze` lasts, shape `(n,)`."""
    return join_ids_read_only(parts).copy()


def count_ids(parts: Iterable[bytes]) -> NDArray[np.int64]:
    """Returns the number of ids of each part, given as the bytes of an `int32` array, shape `(parts,)`."""
    return np.fromiter(map(len, parts), np.int64) // _ID_DTYPE.itemsize


class ArrayEngine:
    """Encodes text with arrays: looks up all pre-tokens of a chunk at once, and merges the misses.

    Args:
        rules: the merge rules of the vocabulary.
        pre_tokenizer: splits text into pre-tokens.
    """

    def __init__(self, rules: MergeRules, pre_tokenizer: PreTokenizer) -> None:
        self._rules = rules
        self._pre_tokenizer = pre_tokenizer
        self._split = pre_tokenizer.split
        self._token = make_token()
        self._characters = 0  # total of the calls that used the loop because the tables were not built yet
        self._dict_cache = PretokenDictCache(self._merge_pretoken)

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,
        *,
        begins_word: bool = True,
        dropout: Dropout | None = None,
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, each separately.

        Args:
            segments: the segments to encode.
            threads: number of threads or processes that share the work.
            begins_word: whether to report which ids begin a pre-token.
            dropout: options of BPE dropout, `None` for none. Then every pre-token is merged, even if it is a
                token.
        """
        if dropout is not None:
            return self._encode_with_dropout(segments, threads, dropout, begins_word=begins_word)
        total = segments.num_characters
        if not segments.texts or total <= FEW_CHARACTERS or self._is_loop_faster(total):
            return self._encode_with_loop(segments, begins_word=begins_word)
        if threads == 1:
            chunks = group_segments(segments, CHUNK_CHARACTERS, self._pre_tokenizer.find_split)
            pieces, to_encode = tee(chunks)
            encoded = self._iter_encoded_chunks(to_encode, begins_word=begins_word)
            return join_chunks(pieces, encoded, total, begins_word=begins_word)
        # Use larger chunks with threads: they contend for the GIL between NumPy calls.
        size = min(2 * CHUNK_CHARACTERS, max(total // (2 * threads), CHUNK_CHARACTERS // 8, 1))
        chunks = group_segments(segments, size, self._pre_tokenizer.find_split)
        # Each thread or process also merges the misses of its chunks. Two of them may merge the same
        # pre-token, which costs less than waiting for each other.
        chunks_per_task = max(min(total // (_TASKS_PER_THREAD * threads * size), _MAX_PENDING_CHUNKS), 1)
        tasks, to_process = tee(
            (task, begins_word) for task in iter(lambda: list(islice(chunks, chunks_per_task)), [])
        )
        parts: Iterator[list[EncodedSegments]] = map_in_parallel(
            self, self._token, "encode_chunks", to_process, threads, total
        )
        all_pieces = chain.from_iterable(task for task, _ in tasks)
        return join_chunks(all_pieces, chain.from_iterable(parts), total, begins_word=begins_word)

    def encode_chunks(self, task: tuple[list[Pieces], bool]) -> list[EncodedSegments]:
        """Encodes the pieces of several chunks.

        Args:
            task: the pieces of each chunk, and whether to report which ids begin a pre-token.
        """
        chunks, begins_word = task
        return list(self._iter_encoded_chunks(chunks, begins_word=begins_word))

    def _encode_with_dropout(
        self, segments: Segments, threads: int, dropout: Dropout, *, begins_word: bool
    ) -> EncodedSegments:
        total = segments.num_characters
        chunks = group_segments(segments, DROPOUT_CHUNK_CHARACTERS, self._pre_tokenizer.find_split)
        pieces, to_encode, to_number = tee(chunks, 3)
        keys = iter_piece_keys(segments, to_number, dropout.seed)
        tasks = zip(to_encode, keys, repeat(dropout.probability), repeat(begins_word))
        encoded: Iterator[EncodedSegments] = map_in_parallel(
            self, self._token, "encode_chunk_with_dropout", tasks, threads, total
        )
        return join_chunks(pieces, encoded, total, begins_word=begins_word)

    def encode_chunk_with_dropout(
        self, task: tuple[Pieces, NDArray[np.uint64], float, bool]
    ) -> EncodedSegments:
        """Encodes the pieces of one chunk with BPE dropout.

        Args:
            task: the pieces, the key of each piece, the probability, and whether to report which ids begin a
                pre-token.
        """
        pieces, piece_keys, probability, begins_word = task
        chunk = split_pieces(pieces, self._pre_tokenizer)
        merged = merge_with_dropout(
            self._merger, chunk.pretokens, compute_pretoken_keys(chunk, piece_keys), probability
        )
        ids = PretokenIds(merged.ids, np.cumsum(merged.counts))
        return make_encoded_segments(ids, chunk.stops, begins_word=begins_word)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the engine with its tables, for worker processes."""
        return _restore_engine, (self._rules, self._pre_tokenizer, self._cache, self._merger)

    def _is_loop_faster(self, characters: int) -> bool:
        """Returns whether the loop is faster than building the tables of the arrays.

        Building the tables can take seconds for a large vocabulary. The loop is faster as long as all calls
        together have encoded no more characters than the vocabulary has symbols, roughly.
        """
        if "_cache" in vars(self):
            return False
        self._characters += characters
        return self._characters <= len(self._rules.symbols)

    def encode_short(self, text: str, before: bytes = b"", after: bytes = b"") -> list[bytes]:
        """Returns the ids of each pre-token of one short text without surrogates, for `join_ids`.

        Args:
            text: the text.
            before: ids to insert before those of the text, as the bytes of an `int32` array.
            after: ids to insert after them.
        """
        return [before, *map(self._dict_cache.__getitem__, self._split(text)), after]

    def _merge_pretoken(self, pretoken: str) -> Iterable[int]:
        """Returns the ids of one pre-token: of a long one by the arrays, if their tables are built."""
        data = from_characters(pretoken)
        if len(pretoken) <= MAX_DICT_CACHE_PRETOKEN or "_cache" not in vars(self):
            return merge_pretoken(data, self._rules)
        (lookup,) = self._cache.insert([self._cache.find(make_pretokens([data]))])
        return self._cache.get_ids(lookup).ids

    def _encode_with_loop(self, segments: Segments, *, begins_word: bool) -> EncodedSegments:
        """Encodes segments like `encode_segments`, with a loop over pre-tokens and the dictionary cache."""
        pretoken_ids: list[bytes] = []
        segment_splits = [0]
        for segment in segments.texts:
            plain = segment if segments.hold_bytes or segment.isascii() else to_characters(segment)
            pretoken_ids += map(self._dict_cache.__getitem__, self._pre_tokenizer.split(plain))
            segment_splits.append(len(pretoken_ids))
        ids = join_ids_to_freeze(pretoken_ids)
        starts = make_row_splits(count_ids(pretoken_ids))
        begins = None
        if begins_word:
            begins = np.zeros(len(ids), bool)
            begins[starts[:-1]] = True
        return EncodedSegments(ids, starts[segment_splits], begins)

    def _iter_encoded_chunks(
        self, chunks: Iterable[Pieces], *, begins_word: bool
    ) -> Iterator[EncodedSegments]:
        """Encodes chunks, and yields them in order.

        The misses of several chunks are merged together, because a large batch costs less per pre-token.
        """
        pending: list[_PreparedChunk] = []
        misses = 0
        for pieces in chunks:
            chunk = split_pieces(pieces, self._pre_tokenizer)
            lookup = self._cache.find(chunk.pretokens)
            pending.append(_PreparedChunk(chunk.stops, lookup))
            misses += len(lookup.misses)
            if not misses or misses >= _INSERT_BATCH_SIZE or len(pending) >= _MAX_PENDING_CHUNKS:
                yield from self._finish_chunks(pending, begins_word=begins_word)
                pending, misses = [], 0
        yield from self._finish_chunks(pending, begins_word=begins_word)

    def _finish_chunks(
        self, pending: list[_PreparedChunk], *, begins_word: bool
    ) -> Iterator[EncodedSegments]:
        """Inserts the misses of chunks, and yields the ids of the chunks."""
        if any(len(chunk.lookup.misses) for chunk in pending):
            lookups = self._cache.insert([chunk.lookup for chunk in pending])
            pending = [
                _PreparedChunk(chunk.stops, lookup) for chunk, lookup in zip(pending, lookups, strict=True)
            ]
        for stops, lookup in pending:
            yield make_encoded_segments(self._cache.get_ids(lookup), stops, begins_word=begins_word)

    @cached_property
    def _cache(self) -> PretokenCache:
        return PretokenCache(self._rules.atomic_ids, self._merger)

    @cached_property
    def _merger(self) -> BatchMerger:
        return BatchMerger(self._rules)


def _restore_engine(
    rules: MergeRules, pre_tokenizer: PreTokenizer, cache: PretokenCache, merger: BatchMerger
) -> ArrayEngine:
    engine = ArrayEngine(rules, pre_tokenizer)
    vars(engine).update(_cache=cache, _merger=merger)
    return engine
