"""Word-level tokenizers: a word is an id, and all words that the vocabulary lacks are one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokjax.errors import InvalidArgumentError
from tokjax.models.format_errors import as_format_errors
from tokjax.models.word_base import (
    WordModel,
    make_word_vocabulary,
    word_vocabulary_from_json,
    word_vocabulary_to_json,
)
from tokjax.pretokenize.bert_normalizer import BertNormalizer
from tokjax.pretokenize.word_boundaries import SPLITTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Vocabulary
    from tokjax.pretokenize.word_boundaries import Splitter

_OPTIONAL_TOKENS = ("[PAD]",)


@dataclass(frozen=True, repr=False)
class WordLevelTokenizer(WordModel):
    """A word-level tokenizer. Make one with `word_level`; use it through the generic functions.

    Decoding puts blanks between words. It pickles without its caches, and threads can share it.

    Attributes:
        vocabulary: ids and bytes.
        splitter: `"whitespace"`: words are runs of characters that are no white space; `"bert"`: punctuation
            marks are words, too.
        lowercase: whether each character becomes its lower case.
    """

    model = "word_level"

    vocabulary: Vocabulary
    splitter: Splitter
    lowercase: bool

    @property
    def normalizer(self) -> BertNormalizer:  # type: ignore[override]
        """What is done to a text before it is split."""
        return _make_lowercase_normalizer(self.lowercase)

    @property
    def normalization(self) -> str | None:
        """What is done to a text before it is split, in a word."""
        return "lowercase" if self.lowercase else None

    @property
    def _splitter(self) -> Splitter:
        return self.splitter

    @property
    def _prefix(self) -> None:
        return None

    @property
    def _max_characters(self) -> None:
        return None

    def _describe(self) -> dict[str, Any]:
        return to_json(self)

    def _shown(self) -> dict[str, Any]:
        return {"splitter": self.splitter} | ({"lowercase": True} if self.lowercase else {})


def word_level(
    tokens: Mapping[str, int] | Sequence[str],
    *,
    special_tokens: Sequence[str] = (),
    splitter: Splitter = "whitespace",
    lowercase: bool = False,
    unk_token: str = "[UNK]",
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "[PAD]",
) -> WordLevelTokenizer:
    """A word-level tokenizer from the words of a vocabulary.

    Args:
        tokens: token to id, or all tokens in the order of their ids. Special tokens are among them.
        special_tokens: which tokens are special besides those named below. They are never made from text
            that is not allowed to.
        splitter: `"whitespace"`: words are runs of characters that are no white space; `"bert"`: punctuation
            marks are words, too, as for BERT.
        lowercase: each character becomes its lower case.
        unk_token: stands for a word that the vocabulary lacks, with that word's span.
        bos_token: begins a text, if any does.
        eos_token: ends a text, if any does.
        pad_token: pads a batch. (It is left out where `tokens` has none of the default name.)

    Raises:
        InvalidArgumentError: a special token is not among the tokens, an id is used twice, or an option
            makes no sense.

    >>> from tokjax import encode
    >>> encode(word_level(["[UNK]", "to", "be"]), "to be or not to be").tolist()
    [1, 2, 0, 0, 1, 2]
    """
    table = make_word_vocabulary(
        tokens,
        special_tokens,
        {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token},
        optional_tokens=_OPTIONAL_TOKENS,
    )
    return make_word_level(table, splitter, lowercase)


def to_json(tokenizer: WordLevelTokenizer) -> dict[str, Any]:
    """What defines the tokenizer, as plain JSON values."""
    return {
        "model": WordLevelTokenizer.model,
        "splitter": tokenizer.splitter,
        "lowercase": tokenizer.lowercase,
        **word_vocabulary_to_json(tokenizer.vocabulary),
    }


def from_json(described: Mapping[str, Any]) -> WordLevelTokenizer:
    """The tokenizer that `to_json` described.

    Raises:
        TokenizerFormatError: a field is missing or of the wrong type, or the values make no tokenizer.
    """
    with as_format_errors():
        return make_word_level(
            word_vocabulary_from_json(described), described["splitter"], described["lowercase"]
        )


def make_word_level(vocabulary: Vocabulary, splitter: Splitter, lowercase: bool) -> WordLevelTokenizer:
    """The tokenizer of a vocabulary that is there already.

    Raises:
        InvalidArgumentError: an option makes no sense.
        MissingSpecialTokenError: the vocabulary has no token for the unknown.
    """
    if splitter not in SPLITTERS:
        raise InvalidArgumentError(f"splitter must be {' or '.join(map(repr, SPLITTERS))}, not {splitter!r}")
    vocabulary.require_role("unk", "a vocabulary of words")
    _make_lowercase_normalizer(lowercase)  # an error for what is neither True nor False
    return WordLevelTokenizer(vocabulary, splitter, lowercase)


def _make_lowercase_normalizer(lowercase: bool) -> BertNormalizer:
    return BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=lowercase
    )
