"""The seam between a byte-level BPE tokenizer and the way it turns ordinary text into ids.

Everything above it (special tokens, offsets, masks, batches) asks only for `encode_segments`.

All words of a chunk are looked up at once: a word of up to 15 bytes is itself the key of a table of arrays.
What is not in the table is merged, once, and remembered.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.models._batch_merging import BatchMerger, MergedWords
from tokjax.models._chunks import Chunk, cut_into_words, gather
from tokjax.models._merging import merge_word
from tokjax.models._word_table import ABSENT, WordTable
from tokjax.utf8 import from_characters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.text.patterns import WordSplitter

FEW_CHARACTERS = 400
"""Up to so many characters in all, a loop over words is quicker than dozens of array calls."""
MAX_KNOWN_WORDS = 1 << 19
"""How many words an engine remembers before it forgets them all."""
MAX_KNOWN_TOKENS = 1 << 22
"""How many ids of words of several tokens it remembers at most, about."""
MAX_KNOWN_TO_LOOP = 1 << 15
"""How many words of short texts it remembers, apart from all others."""
MAX_KNOWN_LENGTH = 128
"""Longer words, in bytes, are not remembered: they seldom come twice, and take room."""
_SHORT, _MEDIUM = 7, 15
_FEW, _WIDEST = 32, 63  # fewer words, or longer ones, are merged one by one
_ELSEWHERE = np.uint64(0xFF)  # the key of longer words in the table of short ones: no word has this length
_MANY = -2
"""Values up to this are words of several tokens (or of none): -2 is the first entry of `_Several`."""


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


class _Several:
    """The ids of words that are not one token: entry `i` is `pool[first[i] : first[i] + count[i]]`."""

    def __init__(self) -> None:
        self.first, self.count = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self.pool = np.zeros(4096, np.int32)
        self.used, self.pooled = 1, 0  # entry 0 is no token at all: the end of a piece

    def add(self, merged: MergedWords) -> NDArray[np.int32]:
        """Remember the ids of words; the values that stand for them."""
        entries = np.arange(self.used, self.used + len(merged.counts))
        self.first = _with_room(self.first, self.used + len(entries))
        self.count = _with_room(self.count, self.used + len(entries))
        self.pool = _with_room(self.pool, self.pooled + len(merged.ids))
        self.pool[self.pooled : self.pooled + len(merged.ids)] = merged.ids
        self.first[entries] = self.pooled + np.cumsum(merged.counts) - merged.counts
        self.count[entries] = merged.counts
        self.used += len(entries)
        self.pooled += len(merged.ids)
        return (_MANY - entries).astype(np.int32)


class _Known:
    """All words that an engine remembers."""

    def __init__(self) -> None:
        self.short = WordTable(two_keys=False)
        self.medium = WordTable(two_keys=True)
        self.long: dict[bytes, int] = {}
        self.several = _Several()
        self.vocabulary = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to forget."""
        words = len(self.short) + len(self.medium) + len(self.long)
        return words > self.vocabulary + MAX_KNOWN_WORDS or self.several.pooled > MAX_KNOWN_TOKENS


class _Keys(NamedTuple):
    """Words of one table, and their places among the words of a chunk (`None` for all of them)."""

    head: NDArray[np.uint64]
    tail: NDArray[np.uint64]
    places: NDArray[np.int64] | None


class ArrayEngine:
    """Looks up all words of a chunk at once, and merges those that it has not seen."""

    def __init__(self, ranks: Mapping[bytes, int], splitter: WordSplitter) -> None:
        self._ranks = dict(ranks)
        self._splitter = splitter
        self._lock = threading.Lock()
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
        known = self._room()
        values = self._values(chunk, known)
        values[chunk.ends] = _MANY
        several = np.flatnonzero(values < 0)
        entries = _MANY - values[several]
        counts = known.several.count.take(entries)
        first, pool = known.several.first.take(entries), known.several.pool
        tokens = np.ones(len(values), np.int64)
        tokens[several] = counts
        ids = np.repeat(values, tokens)
        shift = np.cumsum(counts - 1)
        begin = several + shift - (counts - 1)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        ids[np.repeat(begin, counts) + within] = pool.take(np.repeat(first, counts) + within)
        where = np.searchsorted(several, chunk.ends)
        stops = chunk.ends + shift[where] + 1
        return ids, stops, np.delete(tokens, chunk.ends)

    def _values(self, chunk: Chunk, known: _Known) -> NDArray[np.int32]:
        """What stands for each word: an id, or `_MANY` minus the entry of its ids."""
        begin, lengths = chunk.starts[:-1], np.diff(chunk.starts)
        eight = np.ndarray((len(chunk.data) - 7,), "<u8", chunk.data, 0, (1,))  # from any position
        tail = _with_length(eight.take(begin), lengths)
        longer = np.flatnonzero(lengths > _SHORT)
        tail[longer] = _ELSEWHERE
        values = known.short.find(tail, tail)
        self._learn(chunk, known, known.short, _Keys(tail, tail, None), values)
        if len(longer):
            self._fill_longer(chunk, known, eight, longer, values)
        return values

    def _fill_longer(
        self,
        chunk: Chunk,
        known: _Known,
        eight: NDArray[np.uint64],
        longer: NDArray[np.int64],
        values: NDArray[np.int32],
    ) -> None:
        begin, lengths = chunk.starts[longer], chunk.starts[longer + 1] - chunk.starts[longer]
        medium = np.flatnonzero(lengths <= _MEDIUM)
        places, at = longer[medium], begin[medium]
        head, tail = eight.take(at), _with_length(eight.take(at + 8), lengths[medium])
        found = known.medium.find(head, tail)
        self._learn(chunk, known, known.medium, _Keys(head, tail, places), found)
        values[places] = found
        if len(medium) == len(longer):
            return
        long = np.flatnonzero(lengths > _MEDIUM)
        text = chunk.data.tobytes()
        bounds = zip(begin[long].tolist(), (begin[long] + lengths[long]).tolist(), strict=True)
        words = [text[start:stop] for start, stop in bounds]
        values[longer[long]] = self._long_values(words, known)

    def _learn(
        self, chunk: Chunk, known: _Known, table: WordTable, keys: _Keys, values: NDArray[np.int32]
    ) -> None:
        """Merge the words that were not found, each once, remember them, and fill in their values."""
        absent = np.flatnonzero(values == ABSENT)
        if not len(absent):
            return
        tail = keys.tail[absent]
        head = tail if keys.head is keys.tail else keys.head[absent]
        example, which = _different(head, tail)
        places = absent[example] if keys.places is None else keys.places[absent[example]]
        begin = chunk.starts[places]
        new = self._remember(self._merge(chunk.data, begin, chunk.starts[places + 1] - begin), known)
        table.add(head[example], tail[example], new)
        values[absent] = new[which]

    def _long_values(self, words: list[bytes], known: _Known) -> list[int]:
        """The values of words that are in no table."""
        new = list(dict.fromkeys(word for word in words if word not in known.long))
        values = {word: self._ranks[word] for word in new if word in self._ranks}
        by_width: dict[int, list[bytes]] = {}
        for word in new:
            if word not in values:
                by_width.setdefault(len(word).bit_length(), []).append(word)
        for alike in by_width.values():
            lengths = np.fromiter(map(len, alike), np.int64, len(alike))
            data = np.frombuffer(b"".join(alike), np.uint8)
            found = self._remember(self._merge(data, np.cumsum(lengths) - lengths, lengths), known)
            values |= zip(alike, found.tolist(), strict=True)
        known.long |= {word: value for word, value in values.items() if len(word) <= MAX_KNOWN_LENGTH}
        return [values[word] if word in values else known.long[word] for word in words]

    def _merge(
        self, data: NDArray[np.uint8], begin: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> MergedWords:
        """The ids of words of about one length that are no tokens themselves."""
        if len(begin) >= _FEW and lengths.max() <= _WIDEST:
            return self._batch_merger.merge(data, begin, lengths)
        bounds = zip(begin.tolist(), (begin + lengths).tolist(), strict=True)
        merged = [merge_word(data[start:stop].tobytes(), self._ranks) for start, stop in bounds]
        counts = np.fromiter(map(len, merged), np.int64, len(merged))
        return MergedWords(np.array([id_ for ids in merged for id_ in ids], np.int32), counts)

    @cached_property
    def _known(self) -> _Known:
        return self._vocabulary()

    @cached_property
    def _batch_merger(self) -> BatchMerger:
        return BatchMerger(self._ranks)

    def _remember(self, merged: MergedWords, known: _Known) -> NDArray[np.int32]:
        with self._lock:
            return known.several.add(merged)

    def _room(self) -> _Known:
        """What is known; nothing but the vocabulary, after a time when too much was."""
        known = self._known
        if known.is_full:
            known = self._known = self._vocabulary()
        return known

    def _vocabulary(self) -> _Known:
        """A word that is a token is that token: all of them are known from the first."""
        known = _Known()
        key = np.array([_ELSEWHERE])
        known.short.add(key, key, np.full(1, _MANY, np.int32))
        tokens = [token for token in self._ranks if len(token) <= _MEDIUM]
        ids = np.fromiter(map(self._ranks.__getitem__, tokens), np.int32, len(tokens))
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        padded = b"".join(token.ljust(16, b"\0") for token in tokens)
        head, tail = np.frombuffer(padded, "<u8").reshape(-1, 2).T
        short = lengths <= _SHORT
        for table, which, key in ((known.short, short, head), (known.medium, ~short, tail)):
            table.add(head[which], _with_length(key[which], lengths[which]), ids[which])
        known.vocabulary = len(known.short) + len(known.medium)
        return known


def _with_length(key: NDArray[np.uint64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The last bytes of words of up to 15, those past the 8th or all, and their lengths, in one number."""
    sizes = lengths.view(np.uint64)
    key <<= np.uint64(64) - ((sizes & np.uint64(7)) << np.uint64(3))
    key |= sizes
    return key


def _different(
    head: NDArray[np.uint64], tail: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One place of each different key, and for all places which of those it is like."""
    order = np.argsort(tail) if head is tail else np.lexsort((tail, head))
    new = np.ones(len(order), bool)
    sorted_head, sorted_tail = head[order], tail[order]
    new[1:] = (sorted_tail[1:] != sorted_tail[:-1]) | (sorted_head[1:] != sorted_head[:-1])
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    return order[new], which


def _with_room(array: NDArray[Any], size: int) -> NDArray[Any]:
    if size <= len(array):
        return array
    grown = np.zeros(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown
