"""Engines: they turn segments of ordinary text into token ids.

Special tokens, offsets, masks and batches are handled in the layers above, which call only `encode_segments`.

All engines work alike, whatever a unit is, and however its ids are computed:

    text                 "unable to to"
    units                unable    to    to        pre-tokens or words
    look-up              miss      hit   hit       all units of a chunk of text together
    compute              un ##able                 each different miss once: merge, match, or search
    ids                  un ##able to    to

The keys of the hash tables are the bytes of units. A short text takes a loop over its units with a
dictionary, which is faster than dozens of array calls. See docs/performance.md, section "Pre-token cache".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from itertools import accumulate, chain, islice, tee
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.parallel import make_token, map_in_parallel
from tokjax.bpe.batched_merging import BatchMerger, PretokenIds
from tokjax.bpe.chunks import CHUNK_CHARACTERS, EncodedSegments, group_segments, join_chunks, split_pieces
from tokjax.bpe.dropout import compute_pretoken_keys, iter_piece_keys, merge_with_dropout
from tokjax.bpe.hash_tables import make_pretokens
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.bpe.sequential_merging import merge_pretoken
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, from_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Chunk, Pieces, Segments
    from tokjax.bpe.dropout import Dropout
    from tokjax.bpe.merge_rules import MergeRules
    from tokjax.bpe.pre_tokenizers import FillingPreTokenizer

_ID_DTYPE = np.dtype(np.int32)
_MAX_TASK_CHUNKS, _TASKS_PER_THREAD = 16, 8
"""A task is up to so many chunks, and there are about so many tasks for each thread or process."""
MAX_DICT_CACHE_CHARACTERS, MAX_DICT_CACHE_UNIT = 1 << 20, 512
"""Limits of a `UnitDict`: characters of all units together, and characters of one unit."""


class UnitDict(dict[str, bytes]):
    """Dictionary of units and their ids. The ids of a missing unit are computed when it is looked up.

    The ids of a unit are the bytes of an `int32` array: `join_ids` concatenates them to an array several
    times as fast as tuples of integers.

    Args:
        compute: function that returns the ids of units.
    """

    def __init__(self, compute: Callable[[list[str]], Iterable[bytes]]) -> None:
        super().__init__()
        self._compute = compute
        self._characters = 0

    def __missing__(self, unit: str) -> bytes:
        """Computes the ids of a new unit, and inserts it if it is short."""
        [ids] = self._compute([unit])
        if len(unit) <= MAX_DICT_CACHE_UNIT:
            self._insert(unit, ids)
        return ids

    def insert_missing(self, units: Iterable[str]) -> None:
        """Computes the ids of those short units that are missing, together."""
        missing = [unit for unit in units if unit not in self and len(unit) <= MAX_DICT_CACHE_UNIT]
        if missing:
            for unit, ids in zip(missing, self._compute(missing), strict=True):
                self._insert(unit, ids)

    def _insert(self, unit: str, ids: bytes) -> None:
        """Inserts a unit. A full dictionary is cleared first."""
        self._characters += len(unit)
        if self._characters > MAX_DICT_CACHE_CHARACTERS:
            self.clear()
            self._characters = len(unit)
        self[unit] = ids


def ids_to_bytes(ids: Iterable[int]) -> bytes:
    """Returns the bytes of ids as an `int32` array."""
    return np.fromiter(ids, np.int32).tobytes()


def join_ids(parts: Iterable[bytes]) -> NDArray[np.int32]:
    """Concatenates ids, given as the bytes of `int32` arrays. The result is writable, shape `(n,)`."""
    return np.frombuffer(bytearray().join(parts), _ID_DTYPE)


def join_ids_read_only(parts: Iterable[bytes]) -> NDArray[np.int32]:
    """Concatenates ids like `join_ids`. The result is read-only, shape `(n,)`."""
    return np.frombuffer(b"".join(parts), _ID_DTYPE)


def to_byte_positions(texts: Sequence[str], rows: Iterable[Sequence[Any]]) -> NDArray[np.int64]:
    """Converts positions in characters to positions in bytes.

    Args:
        texts: at least one text, as `to_characters` returns it.
        rows: positions in each text, integers or tuples of them.

    Returns:
        The positions in all texts, `int64`, shape `(n,)`.
    """
    parts = []
    for text, row in zip(texts, rows, strict=True):
        positions = np.array(row, np.int64).reshape(-1)
        parts.append(positions if text.isascii() else find_character_starts(from_characters(text))[positions])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Places(NamedTuple):
    """Where units are in their texts.

    Attributes:
        starts: byte position of each unit, `int64`, shape `(units,)`.
        lengths: number of bytes of each unit, of the same shape; empty if the engine does not need it.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


class Engine(ABC):
    """Looks up all units of a chunk of text together, and computes the ids of those that are new once.

    Args:
        pre_tokenizer: finds the units.
        table_characters: number of characters that all calls together may encode with the loop before the
            hash tables are built, which takes about as long.

    Attributes:
        few_characters: up to this many characters (plus one per text), the loop is used.
        chunk_characters: number of characters per chunk.
    """

    few_characters = 3000
    chunk_characters = CHUNK_CHARACTERS

    def __init__(self, pre_tokenizer: Any, table_characters: int = 0) -> None:
        self.pre_tokenizer = pre_tokenizer
        self._table_characters, self._characters = table_characters, 0
        self._token = make_token()

    @property
    @abstractmethod
    def _caches(self) -> tuple[PretokenCache, PretokenCache]:
        """Caches of units without and with their spans, or the same twice; built when first used."""

    @property
    @abstractmethod
    def _dicts(self) -> tuple[UnitDict, UnitDict]:
        """The same for short texts."""

    @abstractmethod
    def list_units(self, segments: Segments, *, sources: bool) -> tuple[list[list[str]], Places | None]:
        """Returns the keys of the units of each segment, and where the units are if `sources` is true."""

    def find_split(self, text: str, target: int) -> int:
        """Returns an index at or after `target` where a text may be split, or its length."""
        index: int = self.pre_tokenizer.find_split(text, target)
        return index

    def iter_items(self, segments: Segments, chunks: Iterator[Pieces]) -> Iterator[Any]:  # noqa: ARG002 (used by overriding methods)
        """Yields what `split` needs for each chunk; by default its pieces."""
        return chunks

    def split(self, item: Any) -> Chunk:
        """Returns the units of a chunk."""
        return split_pieces(item, self.pre_tokenizer)

    def join_units(
        self,
        ids: PretokenIds,
        stops: NDArray[np.int64],
        places: Places | None,  # noqa: ARG002 (used by overriding methods)
        *,
        sources: bool,
    ) -> EncodedSegments:
        """Returns the ids of several texts, of which some begin a unit if `sources` is true.

        Args:
            ids: the ids of the units.
            stops: 0, and the number of units up to the end of each text, `int64`, shape `(texts + 1,)`.
            places: where the units are in their texts, for engines that report spans.
            sources: as in `encode_segments`.
        """
        starts = make_row_splits(ids.counts)
        begins = None
        if sources:
            begins = np.zeros(len(ids.ids), bool)
            begins[starts[:-1]] = True
        return EncodedSegments(ids.ids, starts.take(stops), begins)

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, already normalized, each separately.

        Args:
            segments: the segments to encode.
            threads: number of threads or processes that share the work.
            sources: whether to report which ids begin a unit, and spans if they do not follow from the ids.
        """
        total = segments.num_characters
        if total <= max(self.few_characters, 0) or self._is_loop_faster(total):
            return self._encode_with_loop(segments, sources=sources)
        size = self.chunk_characters
        if threads > 1:  # larger chunks: threads contend for the GIL between NumPy calls
            size = min(2 * size, max(total // (2 * threads), size // 8, 1))
        pieces, chunks = tee(group_segments(segments, size, self.find_split))
        items = self.iter_items(segments, chunks)
        encoded = self.iter_encoded(items, sources=sources)
        if threads > 1:
            num_chunks = max(min(total // (_TASKS_PER_THREAD * threads * size), _MAX_TASK_CHUNKS), 1)
            tasks = ((task, sources) for task in iter(lambda: list(islice(items, num_chunks)), []))
            parts = map_in_parallel(self, self._token, "encode_items", tasks, threads, total)
            encoded = chain.from_iterable(parts)
        return join_chunks(pieces, encoded)

    def encode_items(self, task: tuple[list[Any], bool]) -> list[EncodedSegments]:
        """Encodes several chunks.

        Two threads or processes may compute the ids of the same unit, which costs less than waiting for each
        other.

        Args:
            task: what `split` needs for each chunk, and `sources` as in `encode_segments`.
        """
        return list(self.iter_encoded(iter(task[0]), sources=task[1]))

    def iter_encoded(self, items: Iterator[Any], *, sources: bool) -> Iterator[EncodedSegments]:
        """Yields the encoded pieces of each chunk."""
        chunks, to_encode = tee(map(self.split, items))
        all_ids = self._caches[sources].encode(chunk.pretokens for chunk in to_encode)
        for ids, chunk in zip(all_ids, chunks, strict=True):
            places = self.find_places(chunk) if sources else None
            yield self.join_units(ids, np.append(0, chunk.stops), places, sources=sources)

    def find_places(self, chunk: Chunk) -> Places | None:
        """Returns where units are, for engines that report spans."""
        return Places(chunk.compute_starts(), chunk.pretokens.lengths)

    def look_up(self, units: list[str], *, sources: bool) -> list[bytes]:
        """Returns the ids of units from the dictionary."""
        return list(map(self._dicts[sources].__getitem__, units))

    def _encode_with_loop(self, segments: Segments, *, sources: bool) -> EncodedSegments:
        """Encodes segments like `encode_segments`, with a loop over units and the dictionary."""
        rows, places = self.list_units(segments, sources=sources)
        entries = self.look_up(list(chain.from_iterable(rows)), sources=sources)
        if not sources:
            remaining = iter(entries)
            entries = [b"".join(islice(remaining, len(row))) for row in rows]
        ids = join_ids_read_only(entries).copy()  # owns its memory, so that `freeze` lasts
        if not sources:
            splits = [0, *accumulate(len(entry) // _ID_DTYPE.itemsize for entry in entries)]
            return EncodedSegments(ids, np.array(splits, np.int64), None)
        stops = np.array([0, *accumulate(map(len, rows))], np.int64)
        counts = np.fromiter(map(len, entries), np.int64, len(entries)) // _ID_DTYPE.itemsize
        return self.join_units(PretokenIds(ids, counts), stops, places, sources=True)

    def _is_loop_faster(self, characters: int) -> bool:
        """Returns whether the loop is faster than building the tables.

        Building the tables can take seconds for a large vocabulary.
        """
        if "_caches" in vars(self):
            return False
        self._characters += characters
        return self._characters <= self._table_characters

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the engine with its tables, for worker processes."""
        self._caches  # noqa: B018 (builds them once, not in each process)
        return {name: value for name, value in vars(self).items() if name != "_dicts"}


class ArrayEngine(Engine):
    """Engine of BPE models: its units are pre-tokens, which are merged.

    Args:
        rules: the merge rules of the vocabulary.
        pre_tokenizer: splits text into pre-tokens.
    """

    few_characters = 11_000

    def __init__(self, rules: MergeRules, pre_tokenizer: FillingPreTokenizer) -> None:
        super().__init__(pre_tokenizer, len(rules.symbols))
        self.rules, self._split = rules, pre_tokenizer.split

    def encode_short(self, text: str, before: bytes = b"", after: bytes = b"") -> list[bytes]:
        """Returns the ids of each pre-token of one short text without surrogates, for `join_ids`.

        Args:
            text: the text.
            before: ids to insert before those of the text, as the bytes of an `int32` array.
            after: ids to insert after them.
        """
        return [before, *map(self._dicts[0].__getitem__, self._split(text)), after]

    def list_units(self, segments: Segments, *, sources: bool) -> tuple[list[list[str]], None]:  # noqa: ARG002
        """Returns the pre-tokens of each segment. Their positions follow from the ids."""
        return list(map(self._split, segments.get_characters())), None

    def find_places(self, chunk: Chunk) -> None:
        """Returns nothing: spans follow from the ids."""

    @cached_property
    def _dicts(self) -> tuple[UnitDict, UnitDict]:
        return (UnitDict(self._merge),) * 2

    def _merge(self, units: list[str]) -> Iterable[bytes]:
        """Returns the ids of pre-tokens: of a long one by the arrays, if their tables are built."""
        for unit in units:
            data = from_characters(unit)
            if len(unit) <= MAX_DICT_CACHE_UNIT or "_caches" not in vars(self):
                yield ids_to_bytes(merge_pretoken(data, self.rules))
            else:
                [ids] = self._caches[0].encode([make_pretokens([data])])
                yield ids.ids.tobytes()

    @cached_property
    def _caches(self) -> tuple[PretokenCache, PretokenCache]:
        return (PretokenCache(self.rules.atomic_ids, self.merger),) * 2

    @cached_property
    def merger(self) -> BatchMerger:
        """Merger of the vocabulary, built when first used."""
        return BatchMerger(self.rules)


class DropoutEngine(ArrayEngine):
    """Engine of BPE models with dropout: each pre-token is merged, even if it is a token, and none is cached.

    Args:
        engine: engine without dropout, whose tables are shared.
        dropout: options of dropout.
    """

    few_characters = -1
    chunk_characters = 1 << 18  # fewer than without dropout, because a round reads several arrays
    _caches: Any = None

    def __init__(self, engine: ArrayEngine, dropout: Dropout) -> None:
        super().__init__(engine.rules, engine.pre_tokenizer)
        self._dropout, self._table_characters = dropout, -1
        vars(self)["merger"] = engine.merger

    def iter_items(self, segments: Segments, chunks: Iterator[Pieces]) -> Iterator[Any]:
        """Yields the pieces of each chunk, and the key of each piece."""
        pieces, to_number = tee(chunks)
        return zip(pieces, iter_piece_keys(segments, to_number, self._dropout.seed), strict=True)

    def iter_encoded(self, items: Iterator[Any], *, sources: bool) -> Iterator[EncodedSegments]:
        """Yields the encoded pieces of each chunk."""
        for pieces, piece_keys in items:
            chunk = self.split(pieces)
            keys = compute_pretoken_keys(chunk, piece_keys)
            merged = merge_with_dropout(self.merger, chunk.pretokens, keys, self._dropout.probability)
            yield self.join_units(merged, np.append(0, chunk.stops), None, sources=sources)
