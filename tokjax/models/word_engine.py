"""Engine of WordPiece and word-level tokenizers: finds words in chunks of text and looks up their ids.

Example, with the tokens `un`, `##able` and `to`:

    text                unable to
    words               start 0, length 6       start 7, length 2       whitespace is skipped
    cache lookup        miss                    hit
    longest match       un|able                                         once for each distinct word
    ids                 un      ##able          to
    lengths in text     2       4               2                       "##" is not in the text
    spans               0,2     2,6             7,9                     start of the word + running sum

Each distinct word is matched once and then cached. Words are keys of array hash tables, as pre-tokens of BPE
are (`bpe/pretoken_cache.py`), so that all words of a chunk are looked up together. Short texts take a loop
over words with a dictionary, because one NumPy call costs more than a few words do.

See docs/performance.md, section "WordPiece and word-level tokenizers".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain, tee
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.parallel import make_token, map_in_parallel
from tokjax.bpe.array_engine import PretokenDictCache, count_ids, join_ids_to_freeze
from tokjax.bpe.batched_merging import MergedPretokens
from tokjax.bpe.chunks import (
    CHUNK_CHARACTERS,
    Segments,
    find_split_before_space,
    group_segments,
    split_at_whitespace,
)
from tokjax.bpe.encoded_segments import EncodedSegments, join_chunks, make_encoded_segments
from tokjax.bpe.pretoken_cache import PretokenCache, PretokenIds
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, from_characters, to_characters
from tokjax.pretokenize.word_boundaries import compile_word_expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces
    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.pretokenize.word_boundaries import Splitter


FEW_CHARACTERS = 3000
"""Up to this many characters, a Python loop over words, or another library, is faster than array calls. The
loop of BPE is faster for longer texts, too (`array_engine.FEW_CHARACTERS`)."""


class WordMatcher(ABC):
    """Splits words into tokens."""

    @abstractmethod
    def match(self, word: str) -> Sequence[int]:
        """Returns the ids of one word, at least one."""

    def merge(self, words: Pretokens) -> MergedPretokens:
        """Returns the ids of words in UTF-8. A byte that is not valid UTF-8 is matched as one character.

        Implements `PretokenMerger`.
        """
        ids_by_word = [self.match(to_characters(word)) for word in words.iter_bytes()]
        counts = np.fromiter(map(len, ids_by_word), np.int64, len(ids_by_word))
        return MergedPretokens(
            np.fromiter(chain.from_iterable(ids_by_word), np.int32, int(counts.sum())), counts
        )


class LongestMatcher(WordMatcher):
    """Splits words into pieces of a vocabulary: from the left, always the longest piece that fits.

    Args:
        initial: pieces that can begin a word, to their ids.
        continuing: pieces that can continue a word, without their prefix, to their ids.
        unknown: id of a word that can't be split into these pieces.
        max_characters: maximum length of a word in characters, longer words are unknown; `None` for no limit.
    """

    def __init__(
        self,
        initial: Mapping[str, int],
        continuing: Mapping[str, int],
        unknown: int,
        max_characters: int | None,
    ) -> None:
        self._initial, self._continuing = initial, continuing
        self._longest_initial, self._longest_continuing = _find_longest(initial), _find_longest(continuing)
        self._unknown = [unknown]
        self._max_characters = max_characters

    def match(self, word: str) -> list[int]:
        """Returns the ids of one word.

        A candidate is at most as long as the longest piece with the same first character. This bounds the
        work per position, so that long words take linear time.
        """
        if self._max_characters is not None and len(word) > self._max_characters:
            return self._unknown
        ids, start = [], 0
        piece_ids, longest = self._initial, self._longest_initial
        while start < len(word):
            for stop in range(min(start + longest.get(word[start], 0), len(word)), start, -1):
                if word[start:stop] in piece_ids:
                    break
            else:
                return self._unknown
            ids.append(piece_ids[word[start:stop]])
            start, piece_ids, longest = stop, self._continuing, self._longest_continuing
        return ids


class TokenLengths(NamedTuple):
    """Number of bytes of a word that each token stands for.

    Attributes:
        initial: length of each token at the start of a word, `int64`, shape `(size,)`.
        continuing: length of each token inside a word, without its prefix, `int64`, shape `(size,)`.
        unknown: id that stands for a whole word of any length.
    """

    initial: NDArray[np.int64]
    continuing: NDArray[np.int64]
    unknown: int

    def compute_spans(
        self, ids: PretokenIds, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Computes the byte span of each id.

        The tokens of a word, concatenated, are the word. So one running sum of token lengths over all words
        gives the ends of tokens, as if there were nothing between words. Adding the distance between that sum
        and the actual start of each word gives the spans in the text.

        Args:
            ids: ids of words.
            starts: byte position of each word, 0-based, `int64`, shape `(words,)`.
            lengths: number of bytes of each word, `int64`, shape `(words,)`.

        Returns:
            0-based half-open byte spans, `int64`, shape `(n, 2)`.
        """
        word_firsts = np.append(0, ids.ends[:-1]) if len(ids.ends) else ids.ends
        lengths_by_id = self.continuing.take(ids.ids)
        first_ids = ids.ids.take(word_firsts)
        lengths_by_id[word_firsts] = np.where(
            first_ids == self.unknown, lengths, self.initial.take(first_ids)
        )
        spans = np.empty((len(ids.ids), 2), np.int64)
        stops = spans[:, 1]
        np.cumsum(lengths_by_id, out=stops)
        stops += np.repeat(starts - (np.cumsum(lengths) - lengths), np.diff(ids.ends, prepend=0))
        np.subtract(stops, lengths_by_id, out=spans[:, 0])
        return spans


class WordEngine:
    """Looks up all words of a chunk together, and matches those that are not cached.

    Args:
        splitter: name of the rule that splits texts into words.
        words: word in UTF-8 to id, for words that are a token.
        matcher: matcher for all other words.
        lengths: number of bytes that each token stands for.
    """

    def __init__(
        self, splitter: Splitter, words: Mapping[bytes, int], matcher: WordMatcher, lengths: TokenLengths
    ) -> None:
        self.splitter = splitter
        # The tables look up a long word under the key of a line feed first, and discard that result (see
        # `HashTables.find`). No word is a line feed; it is a key so that these lookups are hits.
        self._cache = PretokenCache({**words, b"\n": lengths.unknown}, matcher)
        self._dict_cache = PretokenDictCache(matcher.match)
        self._lengths = lengths
        self._token = make_token()

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another.

        Args:
            segments: segments of text, already normalized.
            threads: number of threads or processes that share the work.
            sources: whether to compute word beginnings and spans.
        """
        total = segments.num_characters
        if not segments.texts or total <= FEW_CHARACTERS:
            return self._encode_with_loop(segments, sources=sources)
        pieces, to_encode = tee(group_segments(segments, CHUNK_CHARACTERS, self.find_split))
        tasks = self._iter_tasks(segments, to_encode, sources=sources)
        chunks = map_in_parallel(self, self._token, "encode_chunk", tasks, threads, total)
        return join_chunks(pieces, chunks, total, begins_word=sources)

    def find_split(self, text: str, target: int) -> int:
        """Returns an index at or after `target` where a text may be split, or its length."""
        return find_split_before_space(text, target)

    def _iter_tasks(self, segments: Segments, chunks: Iterable[Pieces], *, sources: bool) -> Iterator[Any]:  # noqa: ARG002 (used by overriding methods)
        """Yields the arguments of `encode_chunk` for the chunks of segments."""
        return ((chunk, sources) for chunk in chunks)

    def encode_chunk(self, task: tuple[Pieces, bool]) -> EncodedSegments:
        """Encodes the pieces of a chunk.

        Args:
            task: the pieces, and whether to compute word beginnings and spans.
        """
        pieces, sources = task
        words, stops, ends = split_at_whitespace(pieces, self.splitter)
        (lookup,) = self._cache.insert([self._cache.find(words)])
        ids = self._cache.get_ids(lookup)
        piece_starts = np.append(0, ends[:-1] + 1)  # after the newline that ends the piece before
        spans = None
        if sources:
            # Spans are relative to the piece, as a piece can be anywhere in a chunk.
            starts = words.starts - np.repeat(piece_starts, np.diff(stops, prepend=0))
            spans = self._lengths.compute_spans(ids, starts, words.lengths)
        return make_encoded_segments(ids, stops, begins_word=sources, spans=spans)

    def _encode_with_loop(self, segments: Segments, *, sources: bool) -> EncodedSegments:
        """Encodes segments with a loop over words and a dictionary as the cache.

        For few words this is faster than `encode_chunk`, and gives the same result.
        """
        expression = compile_word_expression(self.splitter)
        ids_by_word: list[bytes] = []
        starts, stops, word_splits = [], [], [0]
        for segment in segments.texts:
            characters = segment if segments.hold_bytes or segment.isascii() else to_characters(segment)
            matches = list(expression.finditer(characters))
            ids_by_word += [self._dict_cache[match.group()] for match in matches]
            word_splits.append(len(ids_by_word))
            if sources:
                spans = np.array([match.span() for match in matches], np.int64).reshape(-1, 2)
                if not characters.isascii():
                    spans = find_character_starts(from_characters(characters))[spans]
                starts.append(spans[:, 0])
                stops.append(spans[:, 1])
        flat, splits = join_ids_to_freeze(ids_by_word), make_row_splits(count_ids(ids_by_word))
        if not sources:
            return EncodedSegments(flat, splits[word_splits], None)
        ids = PretokenIds(flat, splits[1:])
        all_starts = np.concatenate([np.zeros(0, np.int64), *starts])
        lengths = np.concatenate([np.zeros(0, np.int64), *stops]) - all_starts
        return EncodedSegments(
            flat, splits[word_splits], ids.begins_word, self._lengths.compute_spans(ids, all_starts, lengths)
        )


def _find_longest(pieces: Mapping[str, int]) -> dict[str, int]:
    """Returns the length of the longest piece for each first character."""
    longest: dict[str, int] = {}
    for piece in pieces:
        longest[piece[0]] = max(longest.get(piece[0], 0), len(piece))
    return longest
