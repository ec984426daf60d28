"""Words to ids by a vocabulary of words and of their parts, with the bytes that each id stands for.

Each different word is matched once: words are their own keys of a table of arrays, as in
`bpe/array_engine.py`.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.threads import map_in_threads
from tokjax.bpe.array_engine import FEW_CHARACTERS, PretokenDictCache
from tokjax.bpe.batch_merging import MergedPretokens
from tokjax.bpe.chunks import (
    CHUNK_CHARACTERS,
    Segments,
    find_split_before_space,
    group_segments,
    split_at_whitespace,
)
from tokjax.bpe.encoded_segments import EncodedChunk, EncodedSegments, join_chunks
from tokjax.bpe.pretoken_cache import PretokenCache, PretokenIds
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, from_characters, to_characters
from tokjax.pretokenize.word_boundaries import compile_word_expression

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces
    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.pretokenize.word_boundaries import Splitter


class WordMatcher:
    """Makes words of the parts that a vocabulary has: always the longest that goes on.

    Args:
        first: what may begin a word, to its id.
        rest: what may follow in it, to its id; without the prefix that tells so.
        unknown: the id of a word that can't be made of these.
        max_characters: longer words are unknown; `None` for no limit.
    """

    def __init__(
        self, first: Mapping[str, int], rest: Mapping[str, int], unknown: int, max_characters: int | None
    ) -> None:
        self._first, self._rest = first, rest
        self._longest_first, self._longest_rest = _find_longest(first), _find_longest(rest)
        self._unknown = [unknown]
        self._max_characters = max_characters

    def merge(self, words: Pretokens) -> MergedPretokens:
        """The ids of words in UTF-8; a byte that is none is a character of its own."""
        of_words = [self.match(to_characters(word)) for word in words.iter_bytes()]
        counts = np.fromiter(map(len, of_words), np.int64, len(of_words))
        return MergedPretokens(
            np.fromiter(chain.from_iterable(of_words), np.int32, int(counts.sum())), counts
        )

    def match(self, word: str) -> list[int]:
        """The ids of one word."""
        if self._max_characters is not None and len(word) > self._max_characters:
            return self._unknown
        ids, start = [], 0
        parts, longest = self._first, self._longest_first
        while start < len(word):
            for stop in range(min(start + longest.get(word[start], 0), len(word)), start, -1):
                if word[start:stop] in parts:
                    break
            else:
                return self._unknown
            ids.append(parts[word[start:stop]])
            start, parts, longest = stop, self._rest, self._longest_rest
        return ids


class TokenLengths(NamedTuple):
    """How many bytes of a word each id of a vocabulary stands for.

    Attributes:
        first: where it begins the word, `int64`, shape `(size,)`.
        rest: where it goes on.
        unknown: the id that stands for a whole word, however long that is.
    """

    first: NDArray[np.int64]
    rest: NDArray[np.int64]
    unknown: int

    def compute_spans(
        self, ids: PretokenIds, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The bytes of each id, shape `(n, 2)`, for words that start at some bytes and are so long."""
        begins = np.append(0, ids.ends[:-1]) if len(ids.ends) else ids.ends
        of_ids = self.rest.take(ids.ids)
        first = ids.ids.take(begins)
        of_ids[begins] = np.where(first == self.unknown, lengths, self.first.take(first))
        spans = np.empty((len(ids.ids), 2), np.int64)
        stops = spans[:, 1]
        np.cumsum(of_ids, out=stops)
        stops += np.repeat(starts - (np.cumsum(lengths) - lengths), np.diff(ids.ends, prepend=0))
        np.subtract(stops, of_ids, out=spans[:, 0])
        return spans


class WordEngine:
    """Looks up all words of a chunk at once, and matches those that it has not seen.

    Args:
        splitter: what parts words.
        words: bytes to id, of words that are a token.
        matcher: what knows the ids of all others.
        lengths: how many bytes each id stands for.
    """

    def __init__(
        self, splitter: Splitter, words: Mapping[bytes, int], matcher: WordMatcher, lengths: TokenLengths
    ) -> None:
        self._splitter = splitter
        # Where a line feed is known, as it never is a word, tables find what they look up for long words.
        self._cache = PretokenCache({**words, b"\n": lengths.unknown}, matcher)
        self._dict_cache = PretokenDictCache(matcher.match)
        self._lengths = lengths

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encode pieces of ordinary text, each on its own.

        Args:
            segments: what to encode.
            threads: how many share the work.
            sources: whether to tell which ids begin a word, and of which bytes each is.
        """
        total = segments.num_characters
        if not segments.texts or total <= FEW_CHARACTERS:
            return self._encode_with_loop(segments, sources=sources)
        encode = partial(self._encode_chunk, sources=sources)
        chunks = map_in_threads(
            encode, group_segments(segments, CHUNK_CHARACTERS, find_split_before_space), threads
        )
        return join_chunks(chunks, total, begins_word=sources)

    def _encode_chunk(self, pieces: Pieces, *, sources: bool) -> EncodedChunk:
        words, stops, ends = split_at_whitespace(pieces, self._splitter)
        (found,) = self._cache.insert([self._cache.find(words)])
        ids = self._cache.get_ids(found)
        piece_starts = np.append(0, ends[:-1] + 1)
        spans = None
        if sources:
            starts = words.starts - np.repeat(piece_starts, np.diff(stops, prepend=0))
            spans = self._lengths.compute_spans(ids, starts, words.lengths)
        return EncodedChunk(pieces, stops, ids, spans, int(ends[-1] - piece_starts[-1]))

    def _encode_with_loop(self, segments: Segments, *, sources: bool) -> EncodedSegments:
        """The same by a loop over words, each of them matched when it is first seen."""
        expression = compile_word_expression(self._splitter)
        of_words: list[tuple[int, ...]] = []
        starts, stops, words = [], [], [0]
        for segment in segments.texts:
            plain = segment if segments.hold_bytes or segment.isascii() else to_characters(segment)
            matches = list(expression.finditer(plain))
            of_words += [self._dict_cache[match.group()] for match in matches]
            words.append(len(of_words))
            if sources:
                at = np.array([match.span() for match in matches], np.int64).reshape(-1, 2)
                if not plain.isascii():
                    at = find_character_starts(from_characters(plain))[at]
                starts.append(at[:, 0])
                stops.append(at[:, 1])
        splits = make_row_splits(map(len, of_words))
        flat = np.fromiter(chain.from_iterable(of_words), np.int32, int(splits[-1]))
        if not sources:
            return EncodedSegments(flat, splits[words], None)
        ids = PretokenIds(flat, splits[1:])
        first = np.concatenate([np.zeros(0, np.int64), *starts])
        lengths = np.concatenate([np.zeros(0, np.int64), *stops]) - first
        return EncodedSegments(
            flat, splits[words], ids.begins_word, self._lengths.compute_spans(ids, first, lengths)
        )


def _find_longest(parts: Mapping[str, int]) -> dict[str, int]:
    """By its first character, the length of the longest part."""
    longest: dict[str, int] = {}
    for part in parts:
        longest[part[0]] = max(longest.get(part[0], 0), len(part))
    return longest
