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
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.bpe.array_engine import Engine, Places, UnitDict, to_byte_positions
from tokjax.bpe.batched_merging import NO_IDS, PretokenIds
from tokjax.bpe.chunks import (
    Chunk,
    EncodedSegments,
    encode_pieces,
    find_byte_positions,
)
from tokjax.bpe.hash_tables import PADDING_BYTES, Pretokens, make_pretokens
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.utf8 import from_characters
from tokjax.models.unigram_characters import Kind, find_words
from tokjax.models.unigram_words import SEGMENT_EDGE, TEXT_EDGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces, Segments
    from tokjax.models.unigram_words import UnigramWords

_BEGINS, _START_SHIFT, _SPAN_MASK = 1 << 30, 15, (1 << 15) - 1
_NO_EDGE = ord("\n")
_BEFORE_SPACE = re.compile(r"\S(?= )")
_EDGES = {edge: chr(0xDC00 + edge) for edge in (SEGMENT_EDGE, TEXT_EDGE)}
"""The bytes at edges as characters, as `to_characters` returns them."""


class _WordMerger:
    """Computes the entries of the words that a cache does not hold.

    Args:
        words: encoder of words.
        sources: whether entries have spans.
    """

    def __init__(self, words: UnigramWords, *, sources: bool) -> None:
        self._words, self._sources = words, sources

    def compute_ids(self, units: list[str]) -> Iterable[bytes]:
        """Returns the entries of words as bytes."""
        merged = self.merge(make_pretokens(list(map(from_characters, units))))
        data, stops = merged.ids.tobytes(), np.cumsum(4 * merged.counts).tolist()
        return (data[start:stop] for start, stop in zip([0, *stops], stops, strict=False))

    def merge(self, pretokens: Pretokens) -> PretokenIds:
        """Returns the entries of words. Implements `PretokenMerger`."""
        if not len(pretokens.starts):
            return NO_IDS
        encoded = self._words.encode(pretokens)
        if not self._sources:
            return PretokenIds(encoded.ids, encoded.counts)
        packed = np.empty((len(encoded.ids), 2), np.int32)
        packed[:, 0] = encoded.ids
        packed[:, 1] = encoded.spans[:, 0] << _START_SHIFT | encoded.spans[:, 1] | encoded.begins * _BEGINS
        is_long = np.repeat(pretokens.lengths > _SPAN_MASK, encoded.counts)
        packed[is_long, 0] = self._words.segment_id
        return PretokenIds(packed.reshape(-1), 2 * encoded.counts)


class UnigramEngine(Engine):
    """Looks up all words of a chunk together, and encodes those that are not cached.

    Args:
        words: encoder of words.
    """

    def __init__(self, words: UnigramWords) -> None:
        super().__init__(None)
        self._words, self._keeps_spaces, self._strips = words, words.keeps_spaces, words.strips
        self._mergers = [_WordMerger(words, sources=sources) for sources in (False, True)]
        self._plain: tuple[set[str], set[str], re.Pattern[str] | None] = (set(), set(), None)

    @cached_property
    def _caches(self) -> tuple[PretokenCache, PretokenCache]:
        without, with_spans = (PretokenCache({}, merger) for merger in self._mergers)
        return without, with_spans

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another. See `Engine`."""
        encoded = super().encode_segments(segments, threads, sources=sources)
        has_markers = (encoded.ids >= self._words.segment_id).any()
        return self._replace_markers(encoded, segments) if has_markers else encoded

    def find_split(self, text: str, target: int) -> int:
        """Returns an index at or after `target` where a word begins, or the length of the text."""
        for match in _BEFORE_SPACE.finditer(text, max(target - 1, 0)):
            kinds = self._words.characters.find_kinds(np.array([ord(match.group()), ord(" ")]))
            if kinds.tolist() == [Kind.PLAIN, Kind.SPACE]:
                return match.end()
        return len(text)

    def iter_items(self, segments: Segments, chunks: Iterator[Pieces]) -> Iterator[Any]:
        """Yields the pieces of each chunk, and the byte before each piece and after the last."""
        edges = iter(self._list_edges(segments))
        ends_before = True
        for pieces in chunks:
            ends = [ends_before, *pieces.ends_segment]
            piece_edges = [next(edges) if begins else _NO_EDGE for begins in ends[:-1]]
            piece_edges.append(SEGMENT_EDGE if ends[-1] else _NO_EDGE)
            yield pieces, piece_edges
            ends_before = ends[-1]

    def _list_edges(self, segments: Segments) -> list[int]:
        if segments.begins_text is None:
            return [TEXT_EDGE] * len(segments.texts)
        edges: list[int] = np.where(segments.begins_text, TEXT_EDGE, SEGMENT_EDGE).tolist()
        return edges

    def split(self, item: tuple[Pieces, list[int]]) -> Chunk:
        """Returns the words of a chunk."""
        pieces, edges = item
        pieces, encoded = encode_pieces(pieces)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        joined = b"\n".join([b"", *encoded, b""])
        is_ascii = joined.isascii()
        data = np.frombuffer(joined + bytes(PADDING_BYTES), np.uint8).copy()
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
        return Chunk(keys, stops, byte_ends[:-1] + 1)

    def join_units(
        self, ids: PretokenIds, stops: NDArray[np.int64], places: Places | None, *, sources: bool
    ) -> EncodedSegments:
        """Returns the ids of several texts, with word beginnings and spans if `sources` is true."""
        if not sources or places is None:
            return super().join_units(ids, stops, places, sources=sources)
        counts = ids.counts // 2
        token_ids, begins, spans = _unpack(ids.ids, np.repeat(places.starts, counts))
        return EncodedSegments(token_ids, make_row_splits(counts).take(stops), begins, spans)

    def list_units(self, segments: Segments, *, sources: bool) -> tuple[list[list[str]], Places | None]:
        """Returns the keys of the words of each segment, and where the words are if `sources` is true."""
        texts = segments.get_characters()
        rows = list(map(self._list_words, texts, self._list_edges(segments)))
        keys = [row for row, _ in rows]
        if not sources or not texts:
            return keys, None
        starts = to_byte_positions(texts, [[start for start, _ in bounds] for _, bounds in rows])
        return keys, Places(starts - (starts == 0), starts[:0])  # an edge is before each word at 0

    def look_up(self, units: list[str], *, sources: bool) -> list[bytes]:
        """Returns the entries of words. Those of new words are computed together."""
        entries = self._dicts[sources]
        if not all(map(entries.__contains__, units)):
            entries.insert_missing(dict.fromkeys(units))
        return list(map(entries.__getitem__, units))

    @cached_property
    def _dicts(self) -> tuple[UnitDict, UnitDict]:
        without, with_spans = (UnitDict(merger.compute_ids) for merger in self._mergers)
        return without, with_spans

    def _list_words(self, text: str, edge: int) -> tuple[list[str], list[tuple[int, int]]]:
        """Returns the keys of the words of a segment, and their spans in characters."""
        plain, _, expression = self._plain
        if not plain.issuperset(text):
            expression = self._insert_plain(set(text))
        if expression is None:
            kinds = self._words.characters.find_kinds(np.array([0, *map(ord, text), 0]))
            kinds[[0, -1]] = Kind.END
            bounds = (find_words(kinds, keeps_spaces=self._keeps_spaces) - 1).T.tolist()
        else:
            bounds = [match.span() for match in expression.finditer(text)]
        keys = [text[start:stop] for start, stop in bounds]
        if self._strips and bounds and bounds[-1][1] == len(text):
            keys[-1] += _EDGES[SEGMENT_EDGE]
        if bounds and not bounds[0][0]:
            keys[0] = _EDGES[edge] + keys[0]
        return keys, bounds

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

    def _replace_markers(self, encoded: EncodedSegments, segments: Segments) -> EncodedSegments:
        """Removes the markers of words without tokens, and encodes segments that have to be as a whole."""
        is_whole = encoded.ids == self._words.segment_id
        rows = np.unique(np.searchsorted(encoded.splits, np.flatnonzero(is_whole), "right") - 1)
        texts = segments._replace(texts=[segments.texts[row] for row in rows.tolist()]).get_characters()
        edges, last = self._list_edges(segments), _EDGES[SEGMENT_EDGE] * self._strips
        keys = [_EDGES[edges[row]] + text + last for row, text in zip(rows.tolist(), texts, strict=True)]
        whole = self._words.encode(make_pretokens(list(map(from_characters, keys))), whole=True)
        starts, counts = encoded.splits[:-1].copy(), np.diff(encoded.splits)
        starts[rows], counts[rows] = len(encoded.ids) + make_row_splits(whole.counts)[:-1], whole.counts
        ids = np.concatenate([encoded.ids, whole.ids])
        index = concatenate_ranges(starts, counts)
        is_kept = ids.take(index) < self._words.segment_id
        index, splits = index[is_kept], make_row_splits(is_kept).take(make_row_splits(counts))
        if encoded.begins_word is None or encoded.spans is None:
            return EncodedSegments(ids.take(index), splits, None)
        begins = np.concatenate([encoded.begins_word, whole.begins]).take(index)
        spans = np.concatenate([encoded.spans, whole.spans - 1]).take(index, axis=0)
        return EncodedSegments(ids.take(index), splits, begins, spans)


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
