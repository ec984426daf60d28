"""Words of unigram tokenizers, encoded on arrays.

A pipeline whose words can be encoded separately (`word_engine.py`) makes one *sentence* or more of each word,
which the model segments. Here, the sentences of many words are made without the library, if the normalizer
replaces each character by one character. An example with `NFKC` and a `Metaspace` that keeps spaces:

    word         " ﬁ"      "  no"         "yes" at the start of a text
    sentences    -         "▁"  "▁no"     "▁yes"

The first word is left to the library, since the normalizer makes two characters of one. The library also
normalizes the words that are not ASCII, many in one text. Those that become something else than their
replaced characters are left to it, and so are words in which the normalizer replaces a string or makes an
added token.

See docs/performance.md, section "Unigram models".
"""

from __future__ import annotations

import itertools
import json
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.utf8 import find_starts_in_utf8
from tokjax.formats.huggingface.character_kinds import METASPACE
from tokjax.formats.huggingface.word_entries import NO_ENTRIES, Entries
from tokjax.pretokenize.special_tokens import has_special
from tokjax.unigram.viterbi import UnigramModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.formats.huggingface.character_kinds import CharacterKinds

FEW_WORDS = 64
"""For fewer words, the library is faster: one step of the search costs about as much as one character of each
of these words by the library. So of each call, all but this number of words must be at least as long as the
longest one."""
_NORMALIZED_TOGETHER = 256
_NUM_BYTES = 256
_MARK = ord(METASPACE)
_MAX_ASCII = 127


class SentenceRules(NamedTuple):
    """How a pipeline makes sentences of words.

    Attributes:
        keeps_spaces: whether a word includes the whitespace before it.
        merges_spaces: whether repeated whitespace becomes one `▁`, and not one pre-token per character.
        strips: whether the normalizer removes whitespace around a text.
        replaced_strings: strings that the normalizer replaces before all other changes.
        replaces_strings: whether it replaces strings later.
    """

    keeps_spaces: bool
    merges_spaces: bool
    strips: bool
    replaced_strings: frozenset[str]
    replaces_strings: bool


class _Words(NamedTuple):
    """Words as characters.

    Attributes:
        codes: code points of all words, shape `(characters,)`.
        replacements: code points of the sentences, of which -1 needs the library, shape `(characters,)`.
        widths: number of bytes of each character in the word, `int64`, shape `(characters,)`.
        splits: start of the characters of each word, `int64`, shape `(words + 1,)`.
        skipped: number of bytes of each word before its characters, `int64`, shape `(words,)`.
    """

    codes: NDArray[np.int64]
    replacements: NDArray[np.int64]
    widths: NDArray[np.int64]
    splits: NDArray[np.int64]
    skipped: NDArray[np.int64]

    def take(self, words: NDArray[np.int64]) -> _Words:
        """Returns the words at the indices."""
        firsts = self.splits.take(words)
        lengths = self.splits.take(words + 1) - firsts
        index = concatenate_ranges(firsts, lengths)
        return _Words(
            self.codes.take(index),
            self.replacements.take(index),
            self.widths.take(index),
            make_row_splits(lengths),
            self.skipped.take(words),
        )

    def reduce_any(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns whether a mask of characters is true anywhere in each word, shape `(words,)`."""
        return np.logical_or.reduceat(mask, self.splits[:-1])


class UnigramWords:
    """Encodes those words that need nothing but the model. Make it with `build_unigram_words`.

    Args:
        model: model.
        byte_ids: id of each byte, for unknown characters; `None` without byte fallback.
        library: the library's `Tokenizer`.
        rules: how its pipeline makes sentences.
        kinds: kinds of characters.
        added_ids: ids that are those of added tokens.
        added_names: added tokens that are matched in normalized texts, normalized.
    """

    def __init__(
        self,
        model: UnigramModel,
        byte_ids: NDArray[np.int32] | None,
        library: Any,
        rules: SentenceRules,
        kinds: CharacterKinds,
        added_ids: NDArray[np.int32],
        added_names: frozenset[str],
    ) -> None:
        self._model = model
        self._byte_ids = byte_ids
        self._has_prefix = library.token_to_id(METASPACE) is not None
        self._unknown_length = len(library.id_to_token(model.unknown_id))
        self._normalizer = library.normalizer
        [(first, _)] = library.pre_tokenizer.pre_tokenize_str("a")
        self._prepends = first != "a"
        self._rules = rules
        self._kinds = kinds
        self._added_ids = added_ids
        self._added_names = added_names

    def encode(self, pretokens: Pretokens) -> tuple[NDArray[np.int64], Entries]:
        """Encodes words.

        Args:
            pretokens: words in UTF-8, whose characters have known kinds.

        Returns:
            The indices of the words that are encoded, and their entries, in this order.
        """
        words = self._read_words(pretokens)
        selected = self._select(words)
        lengths = np.diff(words.splits).take(selected)
        if len(lengths) < FEW_WORDS:
            return selected[:0], NO_ENTRIES
        selected = selected[lengths <= np.partition(lengths, -FEW_WORDS)[-FEW_WORDS]]
        words = words.take(selected)
        is_other = self._find_other_sentences(words)
        if is_other.any():
            same = np.flatnonzero(~is_other)
            selected, words = selected.take(same), words.take(same)
        if not len(selected):
            return selected, NO_ENTRIES
        entries, is_exact = self._segment(words)
        if is_exact.all():
            return selected, entries
        exact = np.flatnonzero(is_exact)
        return selected.take(exact), entries.take(exact)

    def _read_words(self, pretokens: Pretokens) -> _Words:
        data = pretokens.data.take(concatenate_ranges(pretokens.starts, pretokens.lengths))
        codes = np.frombuffer(data.tobytes().decode("utf-8").encode("utf-32-le"), "<u4").astype(np.int64)
        byte_starts = find_starts_in_utf8(data)
        splits = np.searchsorted(byte_starts, make_row_splits(pretokens.lengths))
        replacements = self._kinds.find_replacements(codes).astype(np.int64)
        widths = np.diff(byte_starts, append=len(data))
        return _Words(codes, replacements, widths, splits, np.zeros(len(splits) - 1, np.int64))

    def _select(self, words: _Words) -> NDArray[np.int64]:
        """Returns the indices of the words whose characters are replaced separately."""
        is_line_end = (words.codes == ord("\r")) & np.append(words.codes[1:] == ord("\n"), False)
        # `Precompiled` changes "\r\n" as one grapheme, the only one of several characters in ASCII.
        needs_library = words.reduce_any((words.replacements < 0) | is_line_end)
        is_mark = words.replacements == _MARK
        follows_letter = is_mark & np.append(False, ~is_mark[:-1])
        follows_letter[words.splits[:-1]] = False
        needs_library |= words.reduce_any(follows_letter)  # several words, joined
        if self._rules.merges_spaces or self._rules.strips:
            needs_library |= words.replacements.take(words.splits[1:] - 1) == _MARK
        if self._prepends and not self._has_prefix:
            needs_library |= words.replacements.take(words.splits[:-1]) != _MARK
        return np.flatnonzero(~needs_library)

    def _find_other_sentences(self, words: _Words) -> NDArray[np.bool_]:
        """Returns a mask of the words whose sentences are not their replacements, shape `(words,)`.

        Either the normalizer changes characters together, or the result contains an added token.
        """
        is_other = _find_words_with(self._added_names, words.replacements, words.splits)
        is_other |= _find_words_with(self._rules.replaced_strings, words.codes, words.splits)
        if self._normalizer is None:
            return is_other
        is_replaced = (words.codes > _MAX_ASCII) | (words.replacements > _MAX_ASCII)
        is_space = words.replacements == _MARK
        needs_check = words.reduce_any(is_replaced & ~is_space) | self._rules.replaces_strings
        if self._rules.merges_spaces:
            needs_check |= words.replacements.take(words.splits[:-1] + 1, mode="clip") == _MARK
        to_check = np.flatnonzero(needs_check & ~is_other)
        if not len(to_check):
            return is_other
        checked = words.take(to_check)
        sources = _split_text(checked.codes, checked.splits)
        if self._rules.merges_spaces:
            checked = _merge_spaces(checked)
        pairs = list(zip(sources, _split_text(checked.replacements, checked.splits), strict=True))
        is_other[to_check] = [
            changed
            for first in range(0, len(pairs), _NORMALIZED_TOGETHER)
            for changed in self._flag_changed(pairs[first : first + _NORMALIZED_TOGETHER])
        ]
        return is_other

    def _flag_changed(self, pairs: list[tuple[str, str]]) -> list[bool]:
        """Flags the words that are not normalized to the expected sentence, character by character.

        Args:
            pairs: words and their expected sentences, at least one.
        """
        # After a step that composes characters and one that decomposes them, the sentence can be as expected,
        # but not the spans.
        if not all(unicodedata.is_normalized("NFC", text) for pair in pairs for text in pair):
            return self._flag_halves(pairs)
        texts, expected = (f"|{'|'.join(column)}|" for column in zip(*pairs, strict=True))
        if self._normalizer.normalize_str(texts).replace(" ", METASPACE) == expected:
            return [False] * len(pairs)
        return self._flag_halves(pairs)

    def _flag_halves(self, pairs: list[tuple[str, str]]) -> list[bool]:
        """Flags words some of which are not normalized to the expected sentence."""
        if len(pairs) == 1:
            return [True]
        half = len(pairs) // 2
        return self._flag_changed(pairs[:half]) + self._flag_changed(pairs[half:])

    def _segment(self, words: _Words) -> tuple[Entries, NDArray[np.bool_]]:
        """Segments words.

        Returns:
            Their entries, and a mask of the words whose entries are those of the library, shape `(words,)`.
        """
        if self._rules.merges_spaces:
            words = _merge_spaces(words)
        if self._prepends:
            words = self._add_prefixes(words)
        firsts = words.splits[:-1]
        is_start = words.replacements == _MARK
        is_start[firsts] = True
        sentence_lengths = np.diff(np.flatnonzero(is_start), append=len(words.codes))
        ids, lengths, counts = self._model.segment(words.replacements, sentence_lengths)
        first_sentences = np.searchsorted(np.flatnonzero(is_start), firsts)
        word_counts = np.add.reduceat(counts, first_sentences)
        begins = np.zeros(len(ids), bool)
        begins[np.cumsum(counts) - counts] = True
        bounds = make_row_splits(words.widths)
        stops = bounds.take(np.cumsum(lengths))
        spans = np.stack([np.append(0, stops[:-1]), stops], axis=1)
        spans += np.repeat(words.skipped - bounds.take(firsts), word_counts)[:, None]
        splits = make_row_splits(word_counts)
        entries = Entries(ids, spans, begins, splits, np.zeros(len(firsts), bool))
        is_exact = np.ones(len(firsts), bool)
        if self._byte_ids is not None and (ids == self._model.unknown_id).any():
            is_exact = ~self._flag_changed_unknown(words, entries, lengths)
            entries = self._replace_by_bytes(words, entries)
        is_exact &= ~np.logical_or.reduceat(np.isin(entries.ids, self._added_ids), entries.splits[:-1])
        return entries, is_exact

    def _add_prefixes(self, words: _Words) -> _Words:
        """Inserts `▁` before the words that do not begin with whitespace, of no bytes."""
        firsts = words.splits[:-1]
        is_bare = words.replacements.take(firsts) != _MARK
        at = firsts[is_bare]
        return _Words(
            np.insert(words.codes, at, _MARK),
            np.insert(words.replacements, at, _MARK),
            np.insert(words.widths, at, 0),
            make_row_splits(np.diff(words.splits) + is_bare),
            words.skipped,
        )

    def _flag_changed_unknown(
        self, words: _Words, entries: Entries, lengths: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Flags words with unknown characters that the normalizer replaced, or that are the unknown piece."""
        is_unknown = entries.ids == self._model.unknown_id
        is_piece = is_unknown & (lengths == self._unknown_length)
        is_changed = np.repeat(is_unknown, lengths) & (
            (words.codes != words.replacements) | (words.widths == 0)
        )
        return words.reduce_any(is_changed) | np.logical_or.reduceat(is_piece, entries.splits[:-1])

    def _replace_by_bytes(self, words: _Words, entries: Entries) -> Entries:
        """Replaces unknown characters by the tokens of their bytes."""
        assert self._byte_ids is not None
        num_bytes = entries.spans[:, 1] - entries.spans[:, 0]
        is_unknown = entries.ids == self._model.unknown_id
        counts = np.where(is_unknown, num_bytes, 1)
        ids, begins = np.repeat(entries.ids, counts), np.repeat(entries.begins, counts)
        spans = np.repeat(entries.spans, counts, axis=0)
        index, are_bytes = concatenate_ranges(0, counts), np.repeat(is_unknown, counts)
        spans[are_bytes, 0] += index[are_bytes]
        spans[are_bytes, 1] = spans[are_bytes, 0] + 1
        text = _to_text(words.codes[words.widths > 0]).encode("utf-8")
        bytes_ = np.frombuffer(text, np.uint8)[np.repeat(is_unknown, num_bytes)]
        ids[are_bytes] = self._byte_ids.take(bytes_)
        splits = make_row_splits(counts).take(entries.splits)
        return Entries(ids, spans, begins & (index == 0), splits, entries.is_hazard)


def build_unigram_words(
    library: Any, rules: SentenceRules, kinds: CharacterKinds, added_ids: NDArray[np.int32]
) -> UnigramWords | None:
    """Builds the encoder of the words of a tokenizer.

    Args:
        library: the library's `Tokenizer`.
        rules: how its pipeline makes sentences.
        kinds: kinds of characters.
        added_ids: ids that are those of added tokens.

    Returns:
        The encoder. `None` for other models than Unigram, and for models with some of the byte pieces only,
        or with huge scores.
    """
    # The scores as the library parsed them: it rounds some of those in a file differently than Python does.
    model = json.loads(library.to_str())["model"]
    if model["type"] != "Unigram":
        return None
    pieces, scores = zip(*model["vocab"], strict=True)
    byte_ids = _find_byte_ids(pieces) if model.get("byte_fallback") else []
    if len(byte_ids) not in (0, _NUM_BYTES):
        return None
    try:
        segmenter = UnigramModel(pieces, scores, model["unk_id"])
    except ValueError:
        return None
    names = find_normalized_added_names(library)
    return UnigramWords(
        segmenter, np.array(byte_ids, np.int32) if byte_ids else None, library, rules, kinds, added_ids, names
    )


def _merge_spaces(words: _Words) -> _Words:
    """Returns words that end with another character, without whitespace before other whitespace."""
    is_space = words.replacements == _MARK
    is_skipped = is_space & np.append(is_space[1:], False)
    if not is_skipped.any():
        return words
    kept = np.flatnonzero(~is_skipped)
    return _Words(
        words.codes.take(kept),
        words.replacements.take(kept),
        words.widths.take(kept),
        np.searchsorted(kept, words.splits),
        words.skipped + np.add.reduceat(words.widths * is_skipped, words.splits[:-1]),
    )


def _to_text(codes: NDArray[np.int64]) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le")


def _split_text(codes: NDArray[np.int64], splits: NDArray[np.int64]) -> list[str]:
    """Returns the words of a text from its code points and the starts of the words."""
    text = _to_text(codes)
    return [text[start:stop] for start, stop in itertools.pairwise(splits.tolist())]


def _find_words_with(
    strings: frozenset[str], codes: NDArray[np.int64], splits: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns a mask of the words that contain one of several strings, shape `(words,)`."""
    if not strings or not has_special(_to_text(codes), strings):
        return np.zeros(len(splits) - 1, bool)
    return np.array([has_special(word, strings) for word in _split_text(codes, splits)], bool)


def _find_byte_ids(pieces: Sequence[str]) -> list[int]:
    """Returns the ids of those bytes that are pieces, in order."""
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    return [ids[name] for byte in range(_NUM_BYTES) if (name := f"<0x{byte:02X}>") in ids]


def find_normalized_added_names(library: Any) -> frozenset[str]:
    """Returns the added tokens that are matched in normalized texts, normalized."""
    added_tokens: dict[int, Any] = library.get_added_tokens_decoder()
    names = [token.content for token in added_tokens.values() if token.normalized]
    return frozenset(library.normalizer.normalize_str(name) if library.normalizer else name for name in names)
