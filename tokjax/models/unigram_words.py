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
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.utf8 import find_character_starts, from_characters, to_characters
from tokjax.core.vocabulary import AddedToken
from tokjax.models.byte_spans import separate_spans
from tokjax.models.metaspace import BYTE_FORMS, METASPACE
from tokjax.models.unigram_characters import CharacterTable, Kind
from tokjax.models.unigram_viterbi import to_text
from tokjax.pretokenize.aligned_text import Edges, align_characters
from tokjax.pretokenize.special_tokens import WHITE_SPACE, has_special, move_whitespace, split_at_special

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.models.unigram_viterbi import UnigramModel
    from tokjax.pretokenize.aligned_text import AlignedText, StepNormalizer

SEGMENT_EDGE, TEXT_EDGE = 0xFE, 0xFF
"""Bytes before the first word of a segment: `TEXT_EDGE` if the segment begins a text."""
_MARK = ord(METASPACE)
_SENTENCE_PARTS = re.compile(f"{METASPACE}?[^{METASPACE}]+|{METASPACE}")
_NOT_SPACE = re.compile(f"[^{WHITE_SPACE}]+")


class NormalizedToken(NamedTuple):
    """Added token that is matched in normalized text.

    Attributes:
        id: its id.
        lstrip: include whitespace before the token.
        rstrip: include whitespace after the token.
    """

    id: int
    lstrip: bool = False
    rstrip: bool = False


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


@dataclass(frozen=True)
class SentenceRules:
    """How a tokenizer makes sentences of texts.

    Attributes:
        normalizer: normalizer.
        prepends: where `▁` is added before a sentence without one.
        splits_whitespace: whether texts are split at whitespace, which is dropped.
        normalized_tokens: name after normalization to token, of the added tokens that are matched in
            normalized text.
    """

    normalizer: StepNormalizer
    prepends: str
    splits_whitespace: bool
    normalized_tokens: dict[str, NormalizedToken]

    def iter_sentences(
        self, text: AlignedText, edge: int, *, ends: bool
    ) -> Iterator[tuple[int | None, AlignedText]]:
        """Yields the sentences of a text, and added tokens in it with their ids.

        Args:
            text: characters of the text.
            edge: byte before the word, 0 if there is none.
            ends: whether the segment ends with the word.
        """
        text = self.normalizer.normalize(text, Edges(edge > 0, ends))
        for id_, part in self._split_at_added(text):
            if id_ is not None:
                yield id_, part
                continue
            bounds = [match.span() for match in _NOT_SPACE.finditer(part.text)]
            for start, stop in bounds if self.splits_whitespace else [(0, len(part.text))]:
                sentence = self._prepend(part.slice(start, stop), edge)
                for match in _SENTENCE_PARTS.finditer(sentence.text):
                    yield None, sentence.slice(*match.span())

    def _split_at_added(self, text: AlignedText) -> Iterator[tuple[int | None, AlignedText]]:
        """Yields the parts of a normalized text between and at added tokens."""
        tokens, start = self.normalized_tokens, 0
        pieces = split_at_special(text.text, frozenset(tokens))
        flags = {name: AddedToken(token.lstrip, token.rstrip) for name, token in tokens.items()}
        for i, part in enumerate(move_whitespace(pieces, flags)):
            if part:
                yield tokens[pieces[i]].id if i % 2 else None, text.slice(start, start + len(part))
            start += len(part)

    def _prepend(self, text: AlignedText, edge: int) -> AlignedText:
        text = text._replace(text=text.text.replace(" ", METASPACE))
        if self.prepends == "first":
            is_prepended = edge == TEXT_EDGE and text.spans[0][0] == 0
        else:
            is_prepended = self.prepends == "always" and (edge > 0 or self.splits_whitespace)
        return text.prepend(METASPACE) if is_prepended and text.text[0] != METASPACE else text


class UnigramWords:
    """Encodes words.

    Args:
        model: model.
        rules: how the tokenizer makes sentences.
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

    def __init__(self, model: UnigramModel, rules: SentenceRules, *, byte_fallback: bool, size: int) -> None:
        self._model, self._pieces = model, model.pieces
        self._unknown = model.pieces[model.unknown_id]
        self._byte_fallback, self._rules = byte_fallback, rules
        self.segment_id, self.empty_id = size, size + 1
        self.strips = "Strip" in rules.normalizer.types
        self.keeps_spaces = not rules.splits_whitespace
        self.characters = CharacterTable(rules.normalizer, keeps_spaces=self.keeps_spaces)
        forms: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFKC", "NFKD", "NFC", "NFD")
        self._forms = [form for form in forms if form in rules.normalizer.types]

    @cached_property
    def _byte_ids(self) -> NDArray[np.int32]:
        """Id of each byte, if there is byte fallback, `int32`, shape `(256,)`."""
        ids = {piece: id_ for id_, piece in enumerate(self._pieces)}
        return np.array([ids[form] for form in BYTE_FORMS], np.int32)

    @cached_property
    def _span_bytes(self) -> list[bytes]:
        """Bytes of the text span of each id, for `separate_spans`."""
        forms = {form: bytes([byte]) for byte, form in enumerate(BYTE_FORMS)}
        names = {token.id: name for name, token in self._rules.normalized_tokens.items()}
        all_forms = [*self._pieces, *itertools.repeat("", self.segment_id - len(self._pieces))]
        return [
            forms.get(form) or (form or names.get(id_, "")).encode("utf-8")
            for id_, form in enumerate(all_forms)
        ]

    @cached_property
    def _prefix_ids(self) -> frozenset[int]:
        """Ids of the tokens that are added before texts."""
        return frozenset(id_ for id_, piece in enumerate(self._pieces) if piece in (" ", METASPACE))

    @cached_property
    def _has_prefix(self) -> bool:
        return METASPACE in self._pieces

    def encode(self, keys: Pretokens) -> EncodedWords:
        """Encodes words.

        Args:
            keys: keys of the words, each with one character or more besides the bytes at edges.
        """
        words = _read_words(keys, strips=self.strips)
        is_other = self._flag_others(words)
        selected = np.flatnonzero(~is_other)
        parts, order = [], []
        if len(selected):
            encoded, is_exact = self._encode_on_arrays(words.take(selected))
            if not is_exact.all():
                is_other[selected[~is_exact]] = True
                selected, encoded = selected[is_exact], encoded.take(np.flatnonzero(is_exact))
            parts.append(encoded)
            order.append(selected)
        others = np.flatnonzero(is_other)
        if len(others):
            parts.append(self._encode_one_by_one(words.take(others)))
            order.append(others)
        if len(parts) == 1:
            return parts[0]
        joined = EncodedWords(*map(np.concatenate, zip(*parts, strict=True)))
        return joined.take(np.argsort(np.concatenate(order)))

    def _flag_others(self, words: _Words) -> NDArray[np.bool_]:
        """Flags the words that arrays can't encode."""
        kinds = self.characters.find_kinds(words.codes)
        firsts, lasts = words.splits[:-1], words.splits[1:] - 1
        normalizer = self._rules.normalizer
        is_other = words.reduce_any(~self.characters.are_replaced(words.codes))
        if normalizer.trie is not None:
            # "\r\n" is one grapheme, the only one of several characters in ASCII.
            is_other |= words.reduce_any(
                (words.codes == ord("\n")) & np.append(False, words.codes[:-1] == ord("\r"))
            )
        is_mark = kinds == Kind.MARK
        if is_mark.any():
            changes = np.append(False, self.characters.begin_keys(words.codes[:-1]))
            is_other |= words.reduce_any(is_mark & changes)
            if self._forms:
                to_check = np.flatnonzero(words.reduce_any(is_mark) & ~is_other)
                is_other[to_check] = [
                    not all(unicodedata.is_normalized(form, text) for form in self._forms)
                    for text in words.take(to_check).list_texts()
                ]
        is_edge = words.edges > 0
        if "Prepend" in normalizer.types or not self._has_prefix:
            is_other |= is_edge | (not self._has_prefix)
        if self.strips:
            is_other |= is_edge & (kinds.take(firsts) != Kind.PLAIN)
            is_other |= words.ends & (kinds.take(lasts) != Kind.PLAIN)
        if self._rules.splits_whitespace:
            is_other |= words.reduce_any(kinds == Kind.SPACE)
        strings = normalizer.first_strings
        if strings and has_special("".join(texts := words.list_texts()), strings):
            is_other |= np.array([has_special(text, strings) for text in texts], bool)
        return is_other

    def _encode_on_arrays(self, words: _Words) -> tuple[EncodedWords, NDArray[np.bool_]]:
        """Encodes words whose characters are replaced separately.

        Returns:
            The words, and a mask of those that are exact.
        """
        codes, counts = self.characters.replace(words.codes)
        spans, splits = words.spans, words.splits
        if counts is not None:
            spans = np.repeat(spans, counts, axis=0)
            splits = make_row_splits(counts).take(splits)
        if self._rules.normalizer.merges_spaces:
            is_space = codes == _MARK
            is_before_space = np.append(is_space[1:], False)
            is_before_space[splits[1:] - 1] = False
            kept = np.flatnonzero(~(is_space & is_before_space))
            if len(kept) < len(codes):
                codes, spans = codes.take(kept), spans.take(kept, axis=0)
                splits = np.searchsorted(kept, splits)
        prepends = self._rules.prepends
        if prepends != "never":
            is_bare = codes.take(splits[:-1]) != _MARK
            if prepends == "first":
                is_bare &= words.edges == TEXT_EDGE
            at = splits[:-1][is_bare]
            codes, spans = np.insert(codes, at, _MARK), np.insert(spans, at, spans[at, :1], axis=0)
            splits = make_row_splits(np.diff(splits) + is_bare)
        is_start = codes == _MARK
        is_start[splits[:-1]] = True
        starts = np.flatnonzero(is_start)
        ids, lengths, counts = self._model.segment(codes, np.diff(starts, append=len(codes)))
        word_counts = np.add.reduceat(counts, np.searchsorted(starts, splits[:-1]))
        begins = np.zeros(len(ids), bool)
        begins[np.cumsum(counts) - counts] = True
        stops = np.cumsum(lengths)
        token_spans = np.stack([spans[:, 0].take(stops - lengths), spans[:, 1].take(stops - 1)], axis=1)
        # Of several tokens from one character, the first one has its span.
        token_spans[1:, 0] = np.maximum(token_spans[1:, 0], token_spans[:-1, 1] * ~begins[1:])
        encoded = EncodedWords(ids, token_spans, begins, word_counts)
        is_exact = np.ones(len(words.edges), bool)
        if self._byte_fallback:  # the spans of bytes are those of the text only if it was not changed
            is_exact = ~np.logical_or.reduceat(
                ids == self._model.unknown_id, make_row_splits(word_counts)[:-1]
            )
        names = frozenset(self._rules.normalized_tokens)
        if names and has_special(text := to_text(codes), names):
            is_exact &= [
                not has_special(text[start:stop], names)
                for start, stop in itertools.pairwise(splits.tolist())
            ]
        return encoded, is_exact

    def _encode_one_by_one(self, words: _Words) -> EncodedWords:
        """Encodes words after normalizing each one separately."""
        texts, edges = words.list_texts(), words.edges.tolist()
        sentences = [
            list(self._rules.iter_sentences(align_characters(text), edge, ends=ends))
            for text, edge, ends in zip(texts, edges, words.ends.tolist(), strict=True)
        ]
        encoded = self._segment(sentences)
        parts = []
        for i, (text, edge) in enumerate(zip(texts, edges, strict=True)):
            if self._needs_segment(text, edge, sentences[i]):
                parts.append(_make_marker(self.segment_id))
            elif not sentences[i]:
                parts.append(_make_marker(self.empty_id))
            else:
                part = encoded[i]
                parts.append(part._replace(spans=self._locate(part, from_characters(text)) + bool(edge)))
        return EncodedWords(*map(np.concatenate, zip(*parts, strict=True)))

    def encode_segment(self, text: str, edge: int) -> EncodedWords:
        """Encodes a segment as a whole, with added tokens in it. Its spans are those in the segment."""
        sentences = list(self._rules.iter_sentences(align_characters(text), edge, ends=True))
        [encoded] = self._segment([sentences])
        return encoded._replace(spans=self._locate(encoded, from_characters(text)))

    def _needs_segment(self, text: str, edge: int, sentences: list[tuple[int | None, AlignedText]]) -> bool:
        """Returns whether the segment of a word has to be encoded as a whole.

        It contains an added token, or the library may shift all spans of the segment, since the normalizer
        removes its first character.
        """
        if any(id_ is not None for id_, _ in sentences):
            return True
        if edge and self._rules.normalizer.trie is not None:
            kinds = self.characters.find_kinds(np.array(list(map(ord, text)), np.int64))
            return bool(kinds[np.argmax(kinds != Kind.SPACE)] == Kind.OTHER)
        is_first = edge > 0 or self._rules.splits_whitespace or not sentences
        return not is_first and not sentences[0][1].text.startswith(METASPACE)

    def _segment(self, sentences: list[list[tuple[int | None, AlignedText]]]) -> list[EncodedWords]:
        """Segments the sentences of each word. The spans are those of characters, and may overlap."""
        to_segment = [text.text for row in sentences for id_, text in row if id_ is None]
        codes = np.frombuffer("".join(to_segment).encode("utf-32-le"), "<u4")
        lengths = np.fromiter(map(len, to_segment), np.int64, len(to_segment))
        ids, token_lengths, counts = (part.tolist() for part in self._model.segment(codes, lengths))
        tokens, next_count = iter(zip(ids, token_lengths, strict=True)), iter(counts)
        return [self._list_tokens(row, tokens, next_count) for row in sentences]

    def _list_tokens(
        self,
        sentences: list[tuple[int | None, AlignedText]],
        tokens: Iterator[tuple[int, int]],
        counts: Iterator[int],
    ) -> EncodedWords:
        """Returns the tokens of one word."""
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        begins: list[bool] = []
        for added_id, (text, origins) in sentences:
            first, start = len(ids), 0
            if added_id is not None:
                ids.append(added_id)
                spans.append((origins[0][0], origins[-1][1]))
            for id_, length in itertools.islice(tokens, next(counts)) if added_id is None else ():
                span = origins[start][0], origins[start + length - 1][1]
                piece = text[start : start + length]
                token_ids = self._find_byte_ids(piece) if id_ == self._model.unknown_id else [id_]
                ids += token_ids
                spans += [span] * len(token_ids)
                start += length
            begins += [True] + [False] * (len(ids) - first - 1)
        return EncodedWords(
            np.array(ids, np.int32),
            np.array(spans, np.int64).reshape(-1, 2),
            np.array(begins, bool),
            np.array([len(ids)]),
        )

    def _find_byte_ids(self, text: str) -> list[int]:
        """Returns the ids of unknown characters: their bytes, or the unknown piece."""
        if not self._byte_fallback or text == self._unknown:
            return [self._model.unknown_id]
        return [int(self._byte_ids[byte]) for byte in text.encode("utf-8")]

    def _locate(self, encoded: EncodedWords, text: bytes) -> NDArray[np.int64]:
        """Returns the spans of the tokens of a text without overlaps."""
        return separate_spans(encoded.spans + 1, encoded.ids, self._span_bytes, self._prefix_ids, text) - 1


def _make_marker(id_: int) -> EncodedWords:
    return EncodedWords(
        np.array([id_], np.int32), np.zeros((1, 2), np.int64), np.ones(1, bool), np.ones(1, np.int64)
    )


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
