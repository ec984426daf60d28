r"""Engine of unigram tokenizers: finds the words of texts, looks them up, and encodes new ones.

Each different word is encoded once (`unigram_words.py`), whatever words are around it:

    text             "the cat\n the ½"
    words            "the"  " cat"  "\n the"  " ½"        with `Metaspace`, which keeps spaces
                     "the"  "cat"   "the"     "½"          with `WhitespaceSplit`, which drops them

Spans do not follow from the ids, since the normalizer changes lengths. So there are two caches: one of ids,
and one in which each id is followed by a number with its span and whether it begins a pre-token:

    bit          30                          15 to 29          0 to 14
    contents     begins a pre-token          start             stop

See docs/performance.md, section "Unigram models".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.parallel import make_token
from tokjax.bpe.array_engine import join_ids_to_freeze
from tokjax.bpe.batched_merging import MergedPretokens
from tokjax.bpe.chunks import encode_pieces, find_byte_positions
from tokjax.bpe.encoded_segments import EncodedSegments, make_encoded_segments
from tokjax.bpe.hash_tables import MAX_PRETOKEN_BYTES, Pretokens, make_pretokens
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, from_characters
from tokjax.models.unigram_characters import Kind, find_words
from tokjax.models.unigram_words import SEGMENT_EDGE, TEXT_EDGE
from tokjax.models.word_engine import WordEngine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces, Segments
    from tokjax.models.unigram_words import UnigramWords

_BEGINS, _START_SHIFT, _SPAN_MASK = 1 << 30, 15, (1 << 15) - 1
_NO_EDGE = ord("\n")
_MAX_LONG_BYTES = 1 << 26
"""Bytes of the long words that a cache holds, at which they are removed."""
_MAX_SHORT_TEXT_WORDS = 1 << 16
_BEFORE_SPACE = re.compile(r"\S(?= )")
_EDGES = {edge: chr(0xDC00 + edge) for edge in (SEGMENT_EDGE, TEXT_EDGE)}
"""The bytes at edges as characters, as `to_characters` returns them."""


class _WordMerger:
    """Computes the entries of the words that a cache does not hold, and holds those of long words.

    Args:
        words: encoder of words.
        sources: whether entries have spans.
    """

    def __init__(self, words: UnigramWords, *, sources: bool) -> None:
        self._words, self._sources = words, sources
        self._long_words: dict[bytes, NDArray[np.int32]] = {}
        self._num_long_bytes = 0

    def merge(self, pretokens: Pretokens) -> MergedPretokens:
        """Returns the entries of words. Implements `PretokenMerger`."""
        if not len(pretokens.starts) or pretokens.lengths.min() <= MAX_PRETOKEN_BYTES:
            return self._encode(pretokens)
        if self._num_long_bytes > _MAX_LONG_BYTES:
            self._long_words, self._num_long_bytes = {}, 0
        keys, found = list(pretokens.iter_bytes()), self._long_words
        new = [key for key in dict.fromkeys(keys) if key not in found]
        if new:
            merged = self._encode(make_pretokens(new))
            found.update(zip(new, np.split(merged.ids, np.cumsum(merged.counts)[:-1]), strict=True))
            self._num_long_bytes += sum(map(len, new))
        parts = [found[key] for key in keys]
        return MergedPretokens(np.concatenate(parts), np.fromiter(map(len, parts), np.int64, len(parts)))

    def _encode(self, pretokens: Pretokens) -> MergedPretokens:
        if not len(pretokens.starts):
            return MergedPretokens(np.zeros(0, np.int32), np.zeros(0, np.int64))
        encoded = self._words.encode(pretokens)
        if not self._sources:
            return MergedPretokens(encoded.ids, encoded.counts)
        packed = np.empty((len(encoded.ids), 2), np.int32)
        packed[:, 0] = encoded.ids
        packed[:, 1] = encoded.spans[:, 0] << _START_SHIFT | encoded.spans[:, 1] | encoded.begins * _BEGINS
        is_long = np.repeat(pretokens.lengths > _SPAN_MASK, encoded.counts)
        packed[is_long, 0] = self._words.segment_id
        return MergedPretokens(packed.reshape(-1), 2 * encoded.counts)


class UnigramEngine(WordEngine):
    """Looks up all words of a chunk together, and encodes those that are not cached.

    Args:
        words: encoder of words.
        splits_whitespace: whether whitespace between words is dropped.
        strips: whether the normalizer removes whitespace at the end of segments.
    """

    def __init__(self, words: UnigramWords, *, splits_whitespace: bool, strips: bool) -> None:
        self._words, self._keeps_spaces, self._strips = words, not splits_whitespace, strips
        self._mergers = [_WordMerger(words, sources=sources) for sources in (False, True)]
        self._caches = [PretokenCache({}, merger) for merger in self._mergers]
        self._short_text_caches: list[dict[str, bytes]] = [{}, {}]
        self._plain: tuple[set[str], set[str], re.Pattern[str] | None] = (set(), set(), None)
        self._token = make_token()

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another. See `WordEngine`."""
        encoded = super().encode_segments(segments, threads, sources=sources)
        is_marker = encoded.ids >= self._words.segment_id
        return self._replace_markers(encoded, segments, is_marker) if is_marker.any() else encoded

    def find_split(self, text: str, target: int) -> int:
        """Returns an index at or after `target` where a word begins, or the length of the text."""
        for match in _BEFORE_SPACE.finditer(text, max(target - 1, 0)):
            kinds = self._words.characters.find_kinds(np.array([ord(match.group()), ord(" ")]))
            if kinds.tolist() == [Kind.PLAIN, Kind.SPACE]:
                return match.end()
        return len(text)

    def _iter_tasks(self, segments: Segments, chunks: Iterable[Pieces], *, sources: bool) -> Iterator[Any]:
        edges = iter(self._list_edges(segments))
        ends_before = True
        for pieces in chunks:
            ends = [ends_before, *pieces.ends_segment]
            piece_edges = [next(edges) if begins else _NO_EDGE for begins in ends[:-1]]
            piece_edges.append(SEGMENT_EDGE if ends[-1] else _NO_EDGE)
            yield pieces, piece_edges, sources
            ends_before = ends[-1]

    def _list_edges(self, segments: Segments) -> list[int]:
        if segments.begins_text is None:
            return [TEXT_EDGE] * len(segments.texts)
        edges: list[int] = np.where(segments.begins_text, TEXT_EDGE, SEGMENT_EDGE).tolist()
        return edges

    def encode_chunk(self, task: Any) -> EncodedSegments:
        """Encodes the pieces of a chunk.

        Args:
            task: the pieces, the byte before each one and after the last, and whether to compute spans.
        """
        pieces, edges, sources = task
        words, stops, starts = self._split(pieces, edges)
        cache = self._caches[sources]
        (lookup,) = cache.insert([cache.find(words)])
        entries = cache.get_ids(lookup)
        if not sources:
            return make_encoded_segments(entries, stops, begins_word=False)
        ends = entries.ends // 2
        word_starts = words.starts - np.repeat(starts, np.diff(stops, prepend=0))
        ids, begins, spans = _unpack(entries.ids, np.repeat(word_starts, np.diff(ends, prepend=0)))
        return EncodedSegments(ids, np.append(0, ends).take(np.append(0, stops)), begins, spans)

    def _split(
        self, pieces: Pieces, edges: list[int]
    ) -> tuple[Pretokens, NDArray[np.int64], NDArray[np.int64]]:
        """Splits the pieces of a chunk into words.

        Returns:
            The keys of the words, the number of words up to the end of each piece, and the byte position of
            each piece.
        """
        pieces, encoded = encode_pieces(pieces)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        joined = b"\n".join([b"", *encoded, b""])
        is_ascii = joined.isascii()
        data = np.frombuffer(joined + bytes(MAX_PRETOKEN_BYTES), np.uint8).copy()
        if is_ascii:
            codes: NDArray[Any] = np.frombuffer(joined, np.uint8)
            ends = make_row_splits(lengths + 1)
        else:
            text = "\n".join(["", *pieces.texts, ""])
            codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
            ends = make_row_splits(np.fromiter(map(len, pieces.texts), np.int64, len(encoded)) + 1)
        kinds = self._words.characters.find_kinds(codes)
        kinds[ends] = Kind.END
        bounds = find_words(kinds, keeps_spaces=self._keeps_spaces)
        stops = np.searchsorted(bounds[0], ends[1:])
        filled = np.flatnonzero(np.diff(stops, prepend=0))
        firsts, lasts = np.append(0, stops)[filled], stops[filled] - 1
        is_first, is_last = bounds[0, firsts] == ends[filled] + 1, bounds[1, lasts] == ends[filled + 1]
        if not is_ascii:
            bounds = find_byte_positions(joined, len(codes)).take(bounds)
        byte_ends = make_row_splits(lengths + 1)
        data[byte_ends] = edges
        has_edge = data.take(byte_ends) >= SEGMENT_EDGE
        bounds[0, firsts] -= is_first & has_edge[filled]
        if self._strips:
            bounds[1, lasts] += is_last & has_edge[filled + 1]
        keys = Pretokens(data, bounds[0], bounds[1] - bounds[0])
        return keys, stops, byte_ends[:-1] + 1

    def _encode_with_loop(self, segments: Segments, *, sources: bool) -> EncodedSegments:
        """Encodes segments with an expression and a dictionary as the cache, as `encode_chunk` does."""
        texts = segments.get_characters()
        rows = [
            self._list_words(text, edge) for text, edge in zip(texts, self._list_edges(segments), strict=True)
        ]
        keys = [key for row in rows for key, _ in row]
        entries = self._look_up(keys, sources=sources)
        flat = join_ids_to_freeze(entries)
        if not sources and len(rows) == 1:
            return EncodedSegments(flat, np.array([0, len(flat)]), None)
        counts = np.fromiter(map(len, entries), np.int64, len(entries)) // (8 if sources else 4)
        splits = make_row_splits(counts)[make_row_splits(map(len, rows))]
        if not sources:
            return EncodedSegments(flat, splits, None)
        starts = [
            find_character_starts(from_characters(text))[[start for _, start in row]]
            if not text.isascii()
            else np.array([start for _, start in row], np.int64)
            for text, row in zip(texts, rows, strict=True)
        ]
        has_edge = np.array([key[0] in _EDGES.values() for key in keys], np.int64)
        all_starts = np.concatenate([np.zeros(0, np.int64), *starts]) - has_edge
        ids, begins, spans = _unpack(flat, np.repeat(all_starts, counts))
        return EncodedSegments(ids, splits, begins, spans)

    def _look_up(self, keys: list[str], *, sources: bool) -> list[bytes]:
        """Returns the entries of words, as bytes of `int32` arrays."""
        cache = self._short_text_caches[sources]
        missing = [key for key in dict.fromkeys(keys) if key not in cache]
        if missing:
            if len(cache) > _MAX_SHORT_TEXT_WORDS:
                cache = self._short_text_caches[sources] = {}
                missing = list(dict.fromkeys(keys))
            merged = self._mergers[sources].merge(make_pretokens(list(map(from_characters, missing))))
            data, stops = merged.ids.tobytes(), (4 * np.cumsum(merged.counts)).tolist()
            cache.update(
                (key, data[start:stop]) for key, start, stop in zip(missing, [0, *stops], stops, strict=False)
            )
        return [cache[key] for key in keys]

    def _list_words(self, text: str, edge: int) -> list[tuple[str, int]]:
        """Returns the keys of the words of a segment, and the characters at which they start."""
        plain, _, expression = self._plain
        if not plain.issuperset(text):
            expression = self._insert_plain(set(text))
        if expression is None:
            kinds = self._words.characters.find_kinds(np.array([0, *map(ord, text), 0]))
            kinds[[0, -1]] = Kind.END
            bounds = (find_words(kinds, keeps_spaces=self._keeps_spaces) - 1).T.tolist()
        else:
            bounds = [match.span() for match in expression.finditer(text)]
        words = [(text[start:stop], start) for start, stop in bounds]
        if self._strips and bounds and bounds[-1][1] == len(text):
            words[-1] = words[-1][0] + _EDGES[SEGMENT_EDGE], words[-1][1]
        if bounds and not bounds[0][0]:
            words[0] = _EDGES[edge] + words[0][0], 0
        return words

    def _insert_plain(self, characters: set[str]) -> re.Pattern[str] | None:
        """Adds characters to those of the expression, if all are plain characters or spaces.

        Returns:
            The expression, or `None` if there are other characters.
        """
        plain, spaces, _ = self._plain
        kinds = self._words.characters.find_kinds(np.array([*map(ord, characters)]))
        if not np.isin(kinds, (Kind.PLAIN, Kind.SPACE)).all():
            return None
        spaces = spaces.union(c for c, kind in zip(characters, kinds, strict=True) if kind == Kind.SPACE)
        members = "".join(map(re.escape, spaces)) or "\ud800"  # which is in no such text
        pattern = f"[{members}]*[^{members}]+|[{members}]+" if self._keeps_spaces else f"[^{members}]+"
        expression = re.compile(pattern)
        self._plain = plain | characters, spaces, expression  # together, for other threads
        return expression

    def _replace_markers(
        self, encoded: EncodedSegments, segments: Segments, is_marker: NDArray[np.bool_]
    ) -> EncodedSegments:
        """Removes the markers of words without tokens, and encodes segments that have to be as a whole."""
        counts = np.diff(encoded.splits) - np.diff(np.append(0, np.cumsum(is_marker)).take(encoded.splits))
        is_whole = encoded.ids == self._words.segment_id
        rows = np.unique(np.searchsorted(encoded.splits, np.flatnonzero(is_whole), "right") - 1)
        edges = self._list_edges(segments)
        texts = segments._replace(texts=[segments.texts[row] for row in rows.tolist()]).get_characters()
        whole = [
            self._words.encode_segment(text, edges[row])
            for text, row in zip(texts, rows.tolist(), strict=True)
        ]
        counts[rows] = [len(part.ids) for part in whole]
        first_tokens, last_tokens = encoded.splits.take(rows), encoded.splits.take(rows + 1)

        def replace(column: NDArray[Any], others: list[NDArray[Any]]) -> NDArray[Any]:
            parts, start = [], 0
            for stop, next_start, other in zip(first_tokens, last_tokens, others, strict=True):
                parts += [column[start:stop][~is_marker[start:stop]], other]
                start = next_start
            return np.concatenate([*parts, column[start:][~is_marker[start:]]])

        ids = replace(encoded.ids, [part.ids for part in whole])
        if encoded.begins_word is None or encoded.spans is None:
            return EncodedSegments(ids, make_row_splits(counts), None)
        begins = replace(encoded.begins_word, [part.begins for part in whole])
        spans = replace(encoded.spans, [part.spans for part in whole])
        return EncodedSegments(ids, make_row_splits(counts), begins, spans)


def _unpack(
    entries: NDArray[np.int32], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
    """Returns the ids of entries, which of them begin a pre-token, and their spans.

    Args:
        entries: ids and packed spans, shape `(2 * num_tokens,)`.
        starts: position of the word of each id, `int64`, shape `(num_tokens,)`.
    """
    bits = entries[1::2]
    spans = np.empty((len(bits), 2), np.int64)
    np.add(bits >> _START_SHIFT & _SPAN_MASK, starts, out=spans[:, 0])
    np.add(bits & _SPAN_MASK, starts, out=spans[:, 1])
    return entries[::2].copy(), bits >= _BEGINS, spans
