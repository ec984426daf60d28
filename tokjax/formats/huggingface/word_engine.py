r"""Words of texts looked up in arrays, for tokenizers that run on the `tokenizers` library.

Many pipelines, such as those of T5, XLM-R and ALBERT, encode each word of a text separately: the normalizer
and the pre-tokenizer do the same to a word whatever the other words are. Then each different word is encoded
once, and all later occurrences are one lookup in a cache:

    text             "the cat\n the ½"
    words            "the"  " cat"  "\n the"  " ½"        with `Metaspace`, which keeps spaces
                     "the"  "cat"   "the"     "½"          with `WhitespaceSplit`, which drops them
    cache            word to the number of its entry
    entry            ids, spans in the word, and which ids begin a pre-token

`find_word_rules` decides by the steps of a pipeline. Each character of a text has a *kind*, which is found by
normalizing the character once (`character_kinds.py`). A character of kind `HAZARD`, or a mark, a format
character or a removed character next to whitespace, can change the words around it. These words are encoded
together, as one word:

    text             "the cat\u0600 sat on"          with `NFKC` and `Metaspace`, which keeps spaces
    words            "the"  " cat\u0600 sat"  " on"

An added token that is matched wherever it is written, such as a user-defined symbol of ALBERT, is a separate
word. The words around it are encoded as those at the end and the start of a text:

    text             "the cat.(sat)"      with the added tokens ".", "(" and ")"
    words            "the"  " cat"  "."  "("  "sat"  ")"

The library encodes texts in which a character that can change words is at the start or the end (anywhere if
the model drops unknown characters), and those with other added tokens or very long words. (If the normalizer
removes the first character of a text, the library shifts all spans of the text.)

Most new words of unigram models are encoded on arrays (`unigram_words.py`), and all others by the library,
many in one text.

See docs/performance.md, section "Tokenizers on the `tokenizers` library".
"""

from __future__ import annotations

from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.locks import ThreadLock
from tokjax.bpe.batched_merging import MergedPretokens
from tokjax.bpe.encoded_segments import EncodedSegments, concatenate_segments
from tokjax.bpe.hash_tables import MAX_PRETOKEN_BYTES, Pretokens
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.utf8 import count_bytes, find_character_starts, find_starts_in_utf8
from tokjax.formats.huggingface.character_kinds import (
    METASPACE,
    CharacterKinds,
    Kind,
    is_ordinary_character,
)
from tokjax.formats.huggingface.definition import get_steps
from tokjax.formats.huggingface.dropped_characters import has_byte_affix
from tokjax.formats.huggingface.unigram_words import (
    FEW_WORDS,
    SentenceRules,
    build_unigram_words,
    find_normalized_added_names,
)
from tokjax.formats.huggingface.word_bounds import find_words, insert_words
from tokjax.formats.huggingface.word_entries import Entries, EntryTable, concatenate_entries
from tokjax.pretokenize.special_tokens import WHITE_SPACE, has_special, split_at_special

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.formats.huggingface.unigram_words import UnigramWords

    Locate = Callable[[str, Any], NDArray[np.int64]]

_GROUP_CHARACTERS = 1 << 21
_WORDS_PER_TEXT = 1 << 10
_MAX_ENTRIES = 1 << 21
_MAX_TOKENS = 1 << 24
"""Numbers of entries, and of their ids, at which the cache is emptied."""
_MAX_WORD_BYTES = (1 << 16) - 1
"""Maximum length of a word. Spans of entries are `uint16`."""
_MAX_LONG_WORD_BYTES = 1 << 26
"""Number of bytes of the words that are kept beside the cache, at which both are emptied."""
_PIECES_PER_WORD = 8
"""The library encodes one word per this number of pieces before the arrays of a unigram model are built,
which takes about as long."""
_LOCAL_STEPS = {
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "StripAccents",
    "Nmt",
    "Precompiled",
    "BertNormalizer",
}
"""Types of normalizer steps that change each character, or each grapheme, separately."""
_MANY_SPACES = {"Regex": " {2,}"}
_WORD_BEFORE = "a"
"""The word before others that are encoded in one text, if they include the whitespace before them."""


class WordRules(NamedTuple):
    """How a pipeline separates words.

    Attributes:
        sentences: how it makes sentences of words.
        strips_start: whether it removes whitespace before a text.
        restarts: whether it encodes the text after an added token as it would encode this text alone.
        joins: whether the words around a character that can change them can be encoded together. If the model
            drops unknown characters, the last of these words can have a word id, but no ids.
    """

    sentences: SentenceRules
    strips_start: bool
    restarts: bool
    joins: bool


def find_word_rules(contents: Mapping[str, Any]) -> WordRules | None:
    """Returns how a definition separates words, or `None` if its words can't be encoded separately.

    Args:
        contents: parsed `tokenizer.json`, with or without the vocabulary of the model.
    """
    splits = get_steps(contents, "pre_tokenizer")
    keeps_spaces = _find_whether_spaces_are_kept(splits)
    trims = any(step.get("trim_offsets") for step in get_steps(contents, "post_processor"))
    model = contents["model"]
    raises = model.get("type") == "Unigram" and model.get("unk_id") is None  # for unknown characters
    if keeps_spaces is None or trims or raises or model.get("dropout") or has_byte_affix(model):
        return None
    steps = get_steps(contents, "normalizer")
    strips = [step for step in steps if step.get("type") == "Strip"]
    strips_end = any(step.get("strip_right") for step in strips)
    if keeps_spaces and strips and not strips_end:
        return None
    merged_spaces = {" "}
    if keeps_spaces:  # `WhitespaceSplit` does not split at "▁"
        merged_spaces = {" ", METASPACE} if strips_end else set()
    if not all(_is_local(step, merged_spaces) for step in steps):
        return None
    first = list(takewhile(_replaces_string, steps))
    sentences = SentenceRules(
        keeps_spaces,
        merges_spaces=any(step.get("pattern") == _MANY_SPACES for step in steps),
        strips=bool(strips),
        replaced_strings=frozenset(step["pattern"]["String"] for step in first),
        replaces_strings=any(map(_replaces_string, steps[len(first) :])),
    )
    return WordRules(
        sentences,
        strips_start=any(step.get("strip_left") for step in strips),
        restarts=all(step.get("prepend_scheme") != "first" for step in splits),
        joins=model.get("type") == "Unigram" or bool(model.get("unk_token")),
    )


def _find_whether_spaces_are_kept(steps: Sequence[Mapping[str, Any]]) -> bool | None:
    """Returns whether words include the whitespace before them; `None` for other pre-tokenizers."""
    types = [step.get("type") for step in steps]
    metaspaces = [step for step in steps if step.get("type") == "Metaspace"]
    if any(step.get("replacement") != METASPACE for step in metaspaces):
        return None
    if types == ["Metaspace"] and metaspaces[0].get("split", True):
        return True
    # With the scheme "first", only the first word of a text gets a space.
    schemes = {step.get("prepend_scheme", "always") for step in metaspaces}
    if types in (["WhitespaceSplit"], ["WhitespaceSplit", "Metaspace"]) and "first" not in schemes:
        return False
    return None


def _replaces_string(step: Mapping[str, Any]) -> bool:
    """Returns whether a normalizer step replaces a string other than repeated spaces."""
    return step.get("type") == "Replace" and step.get("pattern") != _MANY_SPACES


def _is_local(step: Mapping[str, Any], merged_spaces: Collection[str]) -> bool:
    """Returns whether a normalizer step changes each word separately.

    Args:
        step: the step.
        merged_spaces: what a step may replace repeated spaces by.
    """
    if step.get("type") != "Replace":
        return step.get("type") in {*_LOCAL_STEPS, "Strip"}
    if step.get("pattern") == _MANY_SPACES:
        return step.get("content") in merged_spaces
    pattern, content = (step.get("pattern") or {}).get("String"), step.get("content")
    if not (isinstance(pattern, str) and pattern and isinstance(content, str) and content):
        return False
    return not _has_space(pattern + content) and all(map(is_ordinary_character, content))


def has_unsuitable_added_token(library: Any) -> bool:
    """Returns whether an added token prevents that words are encoded separately.

    Such a token contains whitespace, as it is written or normalized, or is normalized to nothing, or is found
    in the word that is encoded before others.

    Args:
        library: the library's `Tokenizer`.
    """
    names = {token.content for token in library.get_added_tokens_decoder().values()}
    normalized = find_normalized_added_names(library)
    if "" in normalized or any(map(_has_space, names | normalized)):
        return True
    word = library.normalizer.normalize_str(_WORD_BEFORE) if library.normalizer else _WORD_BEFORE
    return _WORD_BEFORE in names or has_special(word, normalized)


def _has_space(text: str) -> bool:
    return any(character in WHITE_SPACE or character == METASPACE for character in text)


class WordEngine:
    """Encodes texts by looking up their words.

    Args:
        library: the library's `Tokenizer`.
        rules: how its pipeline separates words.
        locate: function that returns the byte spans of an encoding, 1-based, without overlaps.
        unknown_id: id of the unknown token, if any.
    """

    def __init__(self, library: Any, rules: WordRules, locate: Locate, unknown_id: int | None) -> None:
        self._rules = rules
        added_tokens: dict[int, Any] = library.get_added_tokens_decoder()
        plain = {
            token.content: id_ for id_, token in added_tokens.items() if rules.restarts and _is_plain(token)
        }
        self._plain_numbers = {name: number for number, name in enumerate(plain)}
        self._plain_names = frozenset(plain)
        self._other_names = frozenset(token.content for token in added_tokens.values()) - self._plain_names
        # An added token that is matched in a normalized text is known by its id only. The unknown token also
        # has this id in words without a match.
        added_ids = np.array(
            [
                id_
                for id_, token in added_tokens.items()
                if token.content not in plain and (id_ != unknown_id or token.normalized)
            ],
            np.int32,
        )
        self._kinds = CharacterKinds(
            library.normalizer, keeps_spaces=rules.sentences.keeps_spaces, strips=rules.sentences.strips
        )
        self._lock = ThreadLock()
        self._words = _WordEncoder(library, rules, locate, added_ids, plain, self._kinds)
        self._cache = PretokenCache({}, self._words)

    def encode(self, texts: Sequence[str], *, sources: bool) -> tuple[EncodedSegments, NDArray[np.bool_]]:
        """Encodes texts without lone surrogates.

        Args:
            texts: texts.
            sources: whether to compute word beginnings and spans.

        Returns:
            The ids of all texts, and a mask of the texts that have to be encoded by the library instead,
            shape `(texts,)`. These texts have no ids.
        """
        parts, hazards, first = [], [], 0
        sizes = make_row_splits(map(len, texts))
        while first < len(texts):
            stop = int(np.searchsorted(sizes, sizes[first] + _GROUP_CHARACTERS, "right"))
            part, hazard = self._encode_group(texts[first : max(stop, first + 1)], sources=sources)
            parts.append(part)
            hazards.append(hazard)
            first = max(stop, first + 1)
        return concatenate_segments(parts), np.concatenate([np.zeros(0, bool), *hazards])

    def _encode_group(
        self, texts: Sequence[str], *, sources: bool
    ) -> tuple[EncodedSegments, NDArray[np.bool_]]:
        words = self._find_words(texts)
        is_hazard, rows = words.is_hazard, words.rows
        kept = np.flatnonzero(~is_hazard[rows])
        numbers = words.numbers.take(kept)
        is_ordinary = numbers < 0
        numbers[is_ordinary], entries = self._look_up(words.pretokens.take(kept[is_ordinary]))
        is_hazard[rows[kept[entries.is_hazard.take(numbers)]]] = True
        remaining = ~is_hazard[rows[kept]]
        kept, numbers = kept[remaining], numbers[remaining]
        word_splits = np.searchsorted(rows[kept], np.arange(len(texts) + 1))
        if not sources:
            return entries.gather_ids(numbers, word_splits), is_hazard
        return entries.gather(numbers, words.starts[kept], word_splits), is_hazard

    def _find_words(self, texts: Sequence[str]) -> _FoundWords:
        joined = "\n".join([*texts, ""])
        data = joined.encode("utf-8")
        is_ascii = len(data) == len(joined)
        codes = (
            np.frombuffer(data, np.uint8) if is_ascii else np.frombuffer(joined.encode("utf-32-le"), "<u4")
        )
        splits = make_row_splits(len(text) + 1 for text in texts)
        kinds = self._kinds.find(codes)
        kinds[splits[1:] - 1] = Kind.END
        added, added_numbers = self._find_plain_tokens(joined)
        kinds[concatenate_ranges(added[0], added[1] - added[0])] = Kind.END
        words, hazards = find_words(
            kinds,
            keeps_spaces=self._rules.sentences.keeps_spaces,
            strips_start=self._rules.strips_start,
            joins=self._rules.joins,
        )
        words, numbers = insert_words(words, added, added_numbers)
        text_bytes = np.frombuffer(data + bytes(MAX_PRETOKEN_BYTES), np.uint8)
        byte_positions = np.append(find_starts_in_utf8(text_bytes[: len(data)]), len(data))
        starts, stops = byte_positions.take(words)
        rows = np.searchsorted(splits, words[0], "right") - 1
        is_hazard = np.array([has_special(text, self._other_names) for text in texts], bool)
        is_hazard[np.searchsorted(splits, hazards, "right") - 1] = True
        is_hazard[rows[stops - starts > _MAX_WORD_BYTES]] = True
        starts_in_text = starts - byte_positions.take(splits)[rows]
        return _FoundWords(
            Pretokens(text_bytes, starts, stops - starts), numbers, rows, starts_in_text, is_hazard
        )

    def _find_plain_tokens(self, joined: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Finds the added tokens that are separate words.

        Args:
            joined: texts, joined by characters that are not in the tokens.

        Returns:
            The starts and stops of the tokens in characters, `int64`, shape `(2, tokens)`, and the numbers of
            their entries, `int64`, shape `(tokens,)`.
        """
        has_tokens = self._plain_names and has_special(joined, self._plain_names)
        pieces = split_at_special(joined, self._plain_names) if has_tokens else [joined]
        bounds = make_row_splits(map(len, pieces))
        numbers = [self._plain_numbers[name] for name in pieces[1::2]]
        return np.stack([bounds[1:-1:2], bounds[2::2]]), np.array(numbers, np.int64)

    def _look_up(self, pretokens: Pretokens) -> tuple[NDArray[np.int64], Entries]:
        """Returns the entries of words, and all entries."""
        with self._lock.current:
            if self._words.is_full:
                self._words.reset()
                self._cache = PretokenCache({}, self._words)
            [lookup] = self._cache.insert([self._cache.find(pretokens)])
            return self._cache.get_ids(lookup).ids.astype(np.int64), self._words.table.entries


class _FoundWords(NamedTuple):
    """Words of several texts, and the added tokens that are separate words.

    Attributes:
        pretokens: words in UTF-8.
        numbers: number of the entry of each added token, and -1 for other words, `int64`, shape `(words,)`.
        rows: index of the text of each word, `int64`, shape `(words,)`.
        starts: byte position of each word in its text, 0-based, `int64`, shape `(words,)`.
        is_hazard: mask of the texts that the library has to encode, shape `(texts,)`.
    """

    pretokens: Pretokens
    numbers: NDArray[np.int64]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    is_hazard: NDArray[np.bool_]


class _WordEncoder:
    """Encodes words, on arrays or with the library. The "id" of a word is the number of its entry."""

    def __init__(
        self,
        library: Any,
        rules: WordRules,
        locate: Locate,
        added_ids: NDArray[np.int32],
        plain: Mapping[str, int],
        kinds: CharacterKinds,
    ) -> None:
        self._library = library
        self._rules = rules
        self._locate = locate
        self._added_ids = added_ids
        self._plain_entries = _make_plain_entries(plain)
        self._kinds = kinds
        self._num_by_library = 0
        self.reset()

    def reset(self) -> None:
        """Removes all entries of words. Those that threads have read remain valid.

        The first entries are those of the added tokens that are separate words.
        """
        self.table = EntryTable()
        self.table.append(self._plain_entries)
        self.num_long_bytes = 0
        self._long_words: dict[bytes, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether there are so many entries that they have to be removed."""
        is_long = self.num_long_bytes > _MAX_LONG_WORD_BYTES
        return is_long or len(self.table) > _MAX_ENTRIES or self.table.num_tokens > _MAX_TOKENS

    @cached_property
    def _unigram(self) -> UnigramWords | None:
        return build_unigram_words(self._library, self._rules.sentences, self._kinds, self._added_ids)

    def merge(self, pretokens: Pretokens) -> MergedPretokens:
        """Encodes words, and returns the numbers of their entries. Implements `PretokenMerger`."""
        if not len(pretokens.starts) or pretokens.lengths.min() <= MAX_PRETOKEN_BYTES:
            return _make_merged(self._encode(pretokens))
        # The cache holds no long words.
        words = list(pretokens.iter_bytes())
        is_new = np.array([word not in self._long_words for word in words], bool)
        new = np.flatnonzero(is_new)
        self.num_long_bytes += int(pretokens.lengths.take(new).sum())
        self._long_words |= zip(
            [words[i] for i in new.tolist()], self._encode(pretokens.take(new)).tolist(), strict=True
        )
        return _make_merged(np.array([self._long_words[word] for word in words], np.int32))

    def _encode(self, pretokens: Pretokens) -> NDArray[np.int32]:
        """Encodes words, and returns the numbers of their entries."""
        num_words = len(pretokens.starts)
        numbers = np.empty(num_words, np.int32)
        others = np.arange(num_words)
        unigram = self._get_unigram(num_words)
        if unigram is not None:
            encoded, entries = unigram.encode(pretokens)
            numbers[encoded] = len(self.table) + np.arange(len(encoded))
            self.table.append(entries)
            others = np.delete(others, encoded)
        if len(others):
            numbers[others] = self._encode_by_library(pretokens.take(others))
        return numbers

    def _get_unigram(self, num_words: int) -> UnigramWords | None:
        """Returns the encoder of words on arrays, if there is one and if it pays off for these words."""
        num_before = self._library.get_vocab_size() // _PIECES_PER_WORD
        is_worth = num_words >= FEW_WORDS and self._num_by_library + num_words > num_before
        return self._unigram if is_worth else None

    def _encode_by_library(self, pretokens: Pretokens) -> NDArray[np.int64]:
        """Encodes words with the library, and returns the numbers of their entries."""
        self._num_by_library += len(pretokens.starts)
        words = [word.decode("utf-8") for word in pretokens.iter_bytes()]
        follows = self._flag_followers(words)
        groups = [*np.flatnonzero(~follows)[:, None], *_split_to_groups(np.flatnonzero(follows))]
        texts = [
            self._join([words[i] for i in group.tolist()], follow=bool(follows[group[0]])) for group in groups
        ]
        encodings = self._library.encode_batch([joined.text for joined in texts], add_special_tokens=False)
        parts = [self._make_entries(*item) for item in zip(texts, encodings, strict=True)]
        numbers = np.empty(len(words), np.int64)
        numbers[np.concatenate(groups)] = len(self.table) + np.arange(len(words))
        self.table.append(concatenate_entries(parts))
        return numbers

    def _is_removed(self, word: str) -> bool:
        """Returns whether the normalizer removes a word."""
        return self._rules.sentences.strips and not self._library.normalizer.normalize_str(word)

    def _flag_followers(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Flags the words that are encoded alike after any other words.

        If words include the whitespace before them, the first word of a text has none, and whitespace at the
        end of a text is a word. These two are encoded alone.
        """
        if not self._rules.sentences.keeps_spaces:
            return np.ones(len(words), bool)
        firsts, lasts = ("".join([word[i] for word in words]).encode("utf-32-le") for i in (0, -1))
        first_kinds, last_kinds = (self._kinds.find(np.frombuffer(codes, "<u4")) for codes in (firsts, lasts))
        follows: NDArray[np.bool_] = (first_kinds == Kind.WHITESPACE) & (last_kinds != Kind.WHITESPACE)
        return follows

    def _join(self, words: list[str], *, follow: bool) -> _JoinedWords:
        """Joins words to one text, after another word if they `follow` others."""
        before, separator = (_WORD_BEFORE, "") if self._rules.sentences.keeps_spaces and follow else ("", " ")
        sizes = np.fromiter(map(len, words), np.int64, len(words)) + len(separator)
        return _JoinedWords(
            words, before + separator.join(words), len(before) + np.cumsum(sizes) - sizes, follow
        )

    def _make_entries(self, joined: _JoinedWords, encoding: Any) -> Entries:
        """Makes the entries of joined words from their encoding."""
        words, text, starts, follow = joined
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        ids = np.array(encoding.ids, np.int32)
        pretokens = np.array(encoding.word_ids, np.int64)
        steps = np.diff(pretokens, prepend=-1)
        # A pre-token is in the word in which it starts, whatever the library reports for its other tokens.
        firsts = np.flatnonzero(steps)
        word_of_token = np.searchsorted(starts, offsets[firsts, 0], "right") - 1
        word_of_token = np.repeat(word_of_token, np.diff(firsts, append=len(ids)))
        is_first = np.diff(word_of_token, prepend=-2) > 0
        # A pre-token without ids would make the word ids of the tokens after it larger.
        is_irregular = (steps > 1) | (is_first & (steps != 1)) | np.isin(ids, self._added_ids)
        # The words are in order, and only the first pre-token can be the word before them.
        is_irregular |= np.diff(word_of_token, prepend=-1) < 0
        is_irregular |= (word_of_token < 0) & (pretokens > 0)
        if is_irregular.any() and len(words) > 1:
            # An added token can change the words after it: find the words with added tokens.
            half = len(words) // 2
            halves = [self._join(part, follow=follow) for part in (words[:half], words[half:])]
            encodings = [self._library.encode(part.text, add_special_tokens=False) for part in halves]
            return concatenate_entries(list(map(self._make_entries, halves, encodings)))
        kept = np.flatnonzero(word_of_token >= 0)
        splits = np.searchsorted(word_of_token[kept], np.arange(len(words) + 1))
        # A word without ids has a word id, too, but not whitespace that is removed at the end of a text.
        is_hazard = np.array(
            [
                not size and not self._is_removed(word)
                for word, size in zip(words, np.diff(splits), strict=True)
            ],
            bool,
        )
        is_hazard |= is_irregular.any()
        byte_starts = starts if text.isascii() else find_character_starts(text).take(starts)
        spans = (self._locate(text, encoding) - 1)[kept] - byte_starts[word_of_token[kept], None]
        # Words whose spans are those of other words depend on the words around them.
        word_bytes = np.fromiter(map(count_bytes, words), np.int64, len(words))
        leaves = (spans[:, 0] < 0) | (spans[:, 1] > word_bytes[word_of_token[kept]])
        is_hazard[word_of_token[kept[leaves]]] = True
        return Entries(ids[kept], spans, (steps > 0)[kept], splits, is_hazard)


class _JoinedWords(NamedTuple):
    """Words that are encoded in one text.

    Attributes:
        words: the words.
        text: the words, with another word before them or spaces between them.
        starts: index of the first character of each word in `text`, `int64`, shape `(words,)`.
        follow: whether another word is before them, if words include the whitespace before them.
    """

    words: list[str]
    text: str
    starts: NDArray[np.int64]
    follow: bool


def _is_plain(token: Any) -> bool:
    """Returns whether an added token is matched wherever it is written, with none of the text around it."""
    has_rule = token.special or token.normalized or token.lstrip or token.rstrip or token.single_word
    return not has_rule and count_bytes(token.content) <= _MAX_WORD_BYTES


def _make_plain_entries(ids: Mapping[str, int]) -> Entries:
    """Makes the entries of the added tokens that are separate words, from their names and ids."""
    stops = np.fromiter(map(count_bytes, ids), np.int64, len(ids))
    return Entries(
        np.fromiter(ids.values(), np.int32, len(ids)),
        np.stack([np.zeros_like(stops), stops], axis=1),
        np.ones(len(ids), bool),
        np.arange(len(ids) + 1),
        np.zeros(len(ids), bool),
    )


def _make_merged(numbers: NDArray[np.int32]) -> MergedPretokens:
    return MergedPretokens(numbers, np.ones(len(numbers), np.int64))


def _split_to_groups(indices: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Splits indices into groups of at most `_WORDS_PER_TEXT`."""
    return [indices[first : first + _WORDS_PER_TEXT] for first in range(0, len(indices), _WORDS_PER_TEXT)]
