r"""Words of unigram tokenizers, encoded.

The normalizer and the pre-tokenizer make one *sentence* or more of each word, which the model segments. Words
whose characters are replaced separately become sentences on arrays (`unigram_characters.py` has the
replacements). An example with `NFKC` and a `Metaspace` that keeps spaces:

    word         " ﬁ"      "  no"         "yes" at the start of a text
    sentences    "▁fi"     "▁"  "▁no"     "▁yes"

All other words are normalized one by one, exactly as the `tokenizers` library does (`aligned_text.py`).

The key of a word is its UTF-8. A byte before the first word of a segment, and one after the last word if the
normalizer strips whitespace, tells these words from others:

    segment      "yes  no"                        FF yes    20 20 no
    segment after an added token                  FE yes    20 20 no

See docs/performance.md, section "Unigram models".
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.utf8 import find_character_starts, to_characters
from tokjax.models.byte_spans import separate_spans
from tokjax.models.metaspace import BYTE_FORMS, METASPACE, decode_piece
from tokjax.models.unigram_characters import CharacterTable, Kind
from tokjax.models.unigram_viterbi import to_text
from tokjax.pretokenize.aligned_text import AlignedText, Edges
from tokjax.pretokenize.special_tokens import WHITE_SPACE, has_special, move_whitespace, split_at_special

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.core.vocabulary import AddedToken
    from tokjax.models.unigram_viterbi import UnigramModel
    from tokjax.pretokenize.aligned_text import StepNormalizer

    Sentence: TypeAlias = tuple[int, AlignedText]
    """A sentence with -1, or one character that stands for an added token, with the id of the token."""

SEGMENT_EDGE, TEXT_EDGE = 0xFE, 0xFF
"""Bytes before the first word of a segment: `TEXT_EDGE` if the segment begins a text."""
_MARK = ord(METASPACE)
_NOT_ADDED = -1
_SENTENCE_PARTS = re.compile(f"{METASPACE}?[^{METASPACE}]+|{METASPACE}")
_NOT_SPACE = re.compile(f"[^{WHITE_SPACE}]+")
_MARKER = AlignedText(METASPACE, [(0, 0)])
_INVALID = re.compile("[\ud800-\udfff]")
_FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFKC", "NFKD", "NFC", "NFD")


class EncodedWords(NamedTuple):
    """Encoded words, concatenated.

    Attributes:
        ids: token ids, `int32`, shape `(num_tokens,)`.
        spans: 0-based byte spans in the key of the word, `int64`, shape `(num_tokens, 2)`.
        begins: mask of the ids that begin a pre-token, `bool`, shape `(num_tokens,)`.
        counts: number of ids of each word, `int64`, shape `(words,)`.
    """

    ids: NDArray[np.int32]
    spans: NDArray[np.int64]
    begins: NDArray[np.bool_]
    counts: NDArray[np.int64]

    def take(self, words: NDArray[np.int64]) -> EncodedWords:
        """Returns the words at the indices."""
        counts = self.counts.take(words)
        index = concatenate_ranges((np.cumsum(self.counts) - self.counts).take(words), counts)
        return EncodedWords(
            self.ids.take(index), self.spans.take(index, axis=0), self.begins.take(index), counts
        )


class _Words(NamedTuple):
    """Words as characters.

    Attributes:
        codes: code points, without the bytes at edges, shape `(characters,)`.
        spans: 0-based byte span of each character in the key, `int64`, shape `(characters, 2)`.
        splits: start of the characters of each word, `int64`, shape `(words + 1,)`.
        edges: byte before each word, 0 if there is none, `uint8`, shape `(words,)`.
        ends: mask of the words with a byte after them, shape `(words,)`.
    """

    codes: NDArray[np.int64]
    spans: NDArray[np.int64]
    splits: NDArray[np.int64]
    edges: NDArray[np.uint8]
    ends: NDArray[np.bool_]

    def take(self, words: NDArray[np.int64]) -> _Words:
        """Returns the words at the indices."""
        firsts = self.splits.take(words)
        lengths = self.splits.take(words + 1) - firsts
        index = concatenate_ranges(firsts, lengths)
        return _Words(
            self.codes.take(index),
            self.spans.take(index, axis=0),
            make_row_splits(lengths),
            self.edges.take(words),
            self.ends.take(words),
        )

    def reduce_any(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns whether a mask of characters is true anywhere in each word, shape `(words,)`."""
        if not mask.any():
            return np.zeros(len(self.edges), bool)
        return np.logical_or.reduceat(mask, self.splits[:-1])

    def list_texts(self) -> list[str]:
        """Returns the characters of each word."""
        text = self.codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
        return [text[start:stop] for start, stop in itertools.pairwise(self.splits.tolist())]


class _Sentences(NamedTuple):
    """Sentences of several words, and added tokens between them, which have one character.

    Attributes:
        codes: code points, shape `(characters,)`.
        spans: 0-based byte span of each character in the key of the word, shape `(characters, 2)`.
        lengths: number of characters of each sentence, `int64`, shape `(sentences,)`.
        added: id of each added token, or -1, `int64`, shape `(sentences,)`.
        counts: number of sentences of each word, at least 1, `int64`, shape `(words,)`.
    """

    codes: NDArray[np.int64]
    spans: NDArray[np.int64]
    lengths: NDArray[np.int64]
    added: NDArray[np.int64]
    counts: NDArray[np.int64]


class UnigramWords:
    """Encodes words.

    Args:
        model: model.
        normalizer: normalizer.
        prepends: where `▁` is added before a sentence without one.
        splits_whitespace: whether texts are split at whitespace, which is dropped.
        normalized_tokens: name to id and options of the added tokens that are matched in normalized text.
        byte_fallback: whether unknown characters become the tokens of their bytes.
        size: size of the vocabulary. This id stands for a word whose segment has to be encoded as a whole,
            and the next one for a word without tokens.

    Attributes:
        characters: kinds and replacements of characters.
        keeps_spaces: whether whitespace between words is kept.
        strips: whether the normalizer removes whitespace at the end of segments.
        segment_id: id of words whose segment has to be encoded as a whole.
        empty_id: id of words without tokens.
    """

    def __init__(
        self,
        model: UnigramModel,
        normalizer: StepNormalizer,
        *,
        prepends: str,
        splits_whitespace: bool,
        normalized_tokens: Mapping[str, tuple[int, AddedToken]],
        byte_fallback: bool,
        size: int,
    ) -> None:
        self._model, self._normalizer, self._prepends = model, normalizer, prepends
        self._byte_fallback, self._added = byte_fallback, normalized_tokens
        self._added_names = frozenset(normalized_tokens)
        self.segment_id, self.empty_id = size, size + 1
        self.strips = "Strip" in normalizer.types
        self.keeps_spaces = not splits_whitespace
        self.characters = CharacterTable(normalizer, keeps_spaces=self.keeps_spaces)
        self._mark_id = model.ids.get(METASPACE, _NOT_ADDED)
        self._forms = [form for form in _FORMS if form in normalizer.types]

    @cached_property
    def _byte_ids(self) -> NDArray[np.int32]:
        """Id of each byte, if there is byte fallback, `int32`, shape `(256,)`."""
        return np.array([self._model.ids[form] for form in BYTE_FORMS], np.int32)

    def encode(self, keys: Pretokens, *, whole: bool = False) -> EncodedWords:
        """Encodes words.

        Args:
            keys: keys of the words, each with one character or more besides the bytes at edges.
            whole: whether the words are whole segments, which can have added tokens in them.
        """
        words = _read_words(keys, strips=self.strips)
        is_other = np.ones(len(words.edges), bool) if whole else self._flag_others(words)
        plain = self._replace(words.take(np.flatnonzero(~is_other)))
        if self._added and has_special(to_text(plain.codes), self._added_names):
            is_other[~is_other] = [has_special(text, self._added_names) for text in plain.list_texts()]
            plain = self._replace(words.take(np.flatnonzero(~is_other)))
        sentences = _split_sentences(plain)
        if not is_other.any():
            return self._segment(sentences, keys)
        others = words.take(np.flatnonzero(is_other))
        joined = map(np.concatenate, zip(sentences, self._normalize(others, whole=whole), strict=True))
        order = np.argsort(is_other, kind="stable")
        return self._segment(_Sentences(*joined), keys.take(order)).take(np.argsort(order))

    def _flag_others(self, words: _Words) -> NDArray[np.bool_]:
        """Flags the words that arrays can't normalize."""
        kinds = self.characters.find_kinds(words.codes)
        firsts, lasts = words.splits[:-1], words.splits[1:] - 1
        is_other = words.reduce_any(kinds == Kind.OTHER)
        if self._normalizer.trie is not None:
            # "\r\n" is one grapheme, the only one of several characters in ASCII.
            is_other |= words.reduce_any(
                (words.codes == ord("\n")) & np.append(False, words.codes[:-1] == ord("\r"))
            )
        is_mark = kinds == Kind.MARK
        if is_mark.any():
            changes = np.append(False, self.characters.begins_key.take(words.codes[:-1]))
            is_other |= words.reduce_any(is_mark & changes)
            to_check = np.flatnonzero(words.reduce_any(is_mark) & ~is_other)
            is_other[to_check] = [
                not all(unicodedata.is_normalized(form, text) for form in self._forms)
                for text in words.take(to_check).list_texts()
            ]
        is_edge = words.edges > 0
        if "Prepend" in self._normalizer.types:
            is_other |= is_edge
        if self.strips:
            is_other |= is_edge & (kinds.take(firsts) != Kind.PLAIN)
            is_other |= words.ends & (kinds.take(lasts) != Kind.PLAIN)
        if not self.keeps_spaces:
            is_other |= words.reduce_any(kinds == Kind.SPACE)
        strings = self._normalizer.strings
        if strings and has_special("".join(texts := words.list_texts()), strings):
            is_other |= np.array([has_special(text, strings) for text in texts], bool)
        return is_other

    def _replace(self, words: _Words) -> _Words:
        """Normalizes words whose characters are replaced separately, and adds `▁`."""
        codes, counts = self.characters.replace(words.codes)
        spans, splits = words.spans, words.splits
        if counts is not None:
            spans = np.repeat(spans, counts, axis=0)
            splits = make_row_splits(counts).take(splits)
        if self._normalizer.merges_spaces:
            is_space = codes == _MARK
            is_before_space = np.append(is_space[1:], False)
            is_before_space[splits[1:] - 1] = False
            kept = np.flatnonzero(~(is_space & is_before_space))
            if len(kept) < len(codes):
                codes, spans = codes.take(kept), spans.take(kept, axis=0)
                splits = np.searchsorted(kept, splits)
        if self._prepends != "never":
            is_bare = codes.take(splits[:-1]) != _MARK
            if self._prepends == "first":
                is_bare &= words.edges == TEXT_EDGE
            at = splits[:-1][is_bare]
            added = spans[at] if self._mark_id < 0 else spans[at, :1]
            codes, spans = np.insert(codes, at, _MARK), np.insert(spans, at, added, axis=0)
            splits = make_row_splits(np.diff(splits) + is_bare)
        return words._replace(codes=codes, spans=spans, splits=splits)

    def _normalize(self, words: _Words, *, whole: bool) -> _Sentences:
        """Normalizes words one by one. A word whose segment has to be encoded as a whole becomes a marker."""
        texts, spans = words.list_texts(), list(map(tuple, words.spans.tolist()))
        edges, ends, bounds = words.edges.tolist(), words.ends.tolist(), words.splits.tolist()
        rows: list[list[Sentence]] = []
        for i, text in enumerate(texts):
            aligned = AlignedText(_INVALID.sub("\ufffd", text), spans[bounds[i] : bounds[i + 1]])
            sentences = list(self._iter_sentences(aligned, edges[i], ends=ends[i]))
            if not whole and self._needs_segment(text, edges[i], sentences):
                sentences = [(self.segment_id, _MARKER)]
            rows.append(sentences or [(self.empty_id, _MARKER)])
        ids, parts = zip(*itertools.chain.from_iterable(rows), strict=True)
        joined = "".join(part.text for part in parts).encode("utf-32-le")
        all_spans = list(itertools.chain.from_iterable(part.spans for part in parts))
        return _Sentences(
            np.frombuffer(joined, "<u4").astype(np.int64),
            np.array(all_spans, np.int64),
            np.array([len(part.text) for part in parts]),
            np.array(ids),
            np.array(list(map(len, rows))),
        )

    def _needs_segment(self, text: str, edge: int, sentences: list[Sentence]) -> bool:
        """Returns whether the segment of a word has to be encoded as a whole.

        It contains an added token, or the library may shift all spans of the segment, since the normalizer
        removes its first character.
        """
        if any(id_ != _NOT_ADDED for id_, _ in sentences):
            return True
        if edge and self._normalizer.trie is not None:
            kinds = self.characters.find_kinds(np.array(list(map(ord, text)), np.int64))
            return bool(kinds[np.argmax(kinds != Kind.SPACE)] == Kind.OTHER)
        is_first = edge > 0 or not self.keeps_spaces or not sentences
        return not is_first and not sentences[0][1].text.startswith(METASPACE)

    def _iter_sentences(self, text: AlignedText, edge: int, *, ends: bool) -> Iterator[Sentence]:
        """Yields the sentences of a text, and the added tokens in it.

        Args:
            text: characters of the text.
            edge: byte before the word, 0 if there is none.
            ends: whether the segment ends with the word.
        """
        text = self._normalizer.normalize(text, Edges(edge > 0, ends))
        for id_, part in self._split_at_added(text):
            if id_ != _NOT_ADDED:
                yield id_, AlignedText(METASPACE, [(part.spans[0][0], part.spans[-1][1])])
                continue
            bounds = [match.span() for match in _NOT_SPACE.finditer(part.text)]
            for start, stop in [(0, len(part.text))] if self.keeps_spaces else bounds:
                sentence = self._prepend(part.slice(start, stop), edge)
                for match in _SENTENCE_PARTS.finditer(sentence.text):
                    yield _NOT_ADDED, sentence.slice(*match.span())

    def _split_at_added(self, text: AlignedText) -> Iterator[Sentence]:
        """Yields the parts of a normalized text between and at added tokens."""
        start, pieces = 0, split_at_special(text.text, self._added_names)
        flags = {name: options for name, (_, options) in self._added.items()}
        for i, part in enumerate(move_whitespace(pieces, flags)):
            if part:
                id_ = self._added[pieces[i]][0] if i % 2 else _NOT_ADDED
                yield id_, text.slice(start, start + len(part))
            start += len(part)

    def _prepend(self, text: AlignedText, edge: int) -> AlignedText:
        text = text._replace(text=text.text.replace(" ", METASPACE))
        if self._prepends == "first":
            is_prepended = edge == TEXT_EDGE and text.spans[0][0] == 1
        else:
            is_prepended = self._prepends == "always" and (edge > 0 or not self.keeps_spaces)
        return text.prepend(METASPACE) if is_prepended and text.text[0] != METASPACE else text

    def _segment(self, sentences: _Sentences, keys: Pretokens) -> EncodedWords:
        """Segments the sentences of words."""
        ids, lengths, counts = self._model.segment(sentences.codes, sentences.lengths)
        firsts, stops = np.cumsum(counts) - counts, np.cumsum(lengths)
        starts = stops - lengths
        spans = np.stack([sentences.spans[starts, 0], sentences.spans[stops - 1, 1]], axis=1)
        begins = np.zeros(len(ids), bool)
        begins[firsts] = True
        splits = make_row_splits(counts).take(make_row_splits(sentences.counts))
        is_added = sentences.added != _NOT_ADDED
        added = firsts[is_added]
        ids[added] = sentences.added[is_added]
        encoded = EncodedWords(ids, spans, begins, np.diff(splits))
        if self._byte_fallback:
            unknown = np.setdiff1d(np.flatnonzero(ids == self._model.unknown_id), added).tolist()
            texts = {i: to_text(sentences.codes[starts[i] : stops[i]]) for i in unknown}
            encoded = self._write_bytes(encoded, texts)
        text = keys.data.take(concatenate_ranges(keys.starts, keys.lengths)).tobytes()
        origins = np.repeat(np.cumsum(keys.lengths) - keys.lengths, encoded.counts)[:, np.newaxis] + 1
        spans = separate_spans(encoded.spans + origins, encoded.ids, self._get_bytes, {self._mark_id}, text)
        return encoded._replace(spans=spans - origins)

    def _write_bytes(self, words: EncodedWords, texts: Mapping[int, str]) -> EncodedWords:
        """Replaces unknown tokens by those of their bytes, which have the same span.

        Args:
            words: the words.
            texts: characters of the unknown tokens by their indices in the ids, ascending.
        """
        unknown_piece = self._model.pieces[self._model.unknown_id]
        data = {i: text.encode("utf-8") for i, text in texts.items() if text != unknown_piece}
        counts, is_byte = np.ones(len(words.ids), np.int64), np.zeros(len(words.ids), bool)
        counts[list(data)], is_byte[list(data)] = list(map(len, data.values())), True
        index, splits = np.repeat(np.arange(len(counts)), counts), make_row_splits(counts)
        ids, begins = words.ids.take(index), np.zeros(len(index), bool)
        ids[is_byte.take(index)] = self._byte_ids.take(np.frombuffer(b"".join(data.values()), np.uint8))
        begins[splits[:-1]] = words.begins
        word_counts = np.diff(splits.take(make_row_splits(words.counts)))
        return EncodedWords(ids, words.spans.take(index, axis=0), begins, word_counts)

    def _get_bytes(self, id_: int) -> bytes:
        """Returns the bytes of text of a token."""
        pieces = self._model.pieces
        if id_ < len(pieces):
            return decode_piece(pieces[id_])
        return next(name.encode("utf-8") for name, (added_id, _) in self._added.items() if added_id == id_)


def _split_sentences(words: _Words) -> _Sentences:
    """Returns the sentences of words, which begin at each `▁`."""
    is_start = words.codes == _MARK
    is_start[words.splits[:-1]] = True
    starts = np.flatnonzero(is_start)
    counts = np.diff(np.searchsorted(starts, words.splits))
    lengths = np.diff(starts, append=len(words.codes))
    return _Sentences(words.codes, words.spans, lengths, np.full(len(starts), _NOT_ADDED), counts)


def _read_words(keys: Pretokens, *, strips: bool) -> _Words:
    """Reads the characters of words from their keys. If texts are stripped, keys can have a last byte."""
    starts, lengths = keys.starts, keys.lengths
    first_bytes = keys.data.take(starts)
    has_edge = first_bytes >= SEGMENT_EDGE
    ends = strips & (keys.data.take(starts + lengths - 1) >= SEGMENT_EDGE)
    starts, lengths = starts + has_edge, lengths - has_edge - ends
    data = keys.data.take(concatenate_ranges(starts, lengths)).tobytes()
    text = to_characters(data)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
    bounds = find_character_starts(data)
    splits = np.searchsorted(bounds, make_row_splits(lengths))
    shift = np.repeat(bounds.take(splits[:-1]) - has_edge, np.diff(splits))
    spans = np.stack([bounds[:-1] - shift, bounds[1:] - shift], axis=1)
    return _Words(codes, spans, splits, np.where(has_edge, first_bytes, 0).astype(np.uint8), ends)
