"""Word-level tokenizers: each word of the vocabulary is a token, all others are unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokjax._util.checks import check_choice
from tokjax.core.json_records import register_record
from tokjax.core.vocabulary import Vocabulary
from tokjax.models.word_base import LongestMatchModel, make_word_vocabulary
from tokjax.pretokenize.normalization import BertNormalizer
from tokjax.pretokenize.word_boundaries import SPLITTERS, Splitter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, repr=False)
class WordLevelTokenizer(LongestMatchModel):
    """Word-level tokenizer. Create it with `word_level` and use it through the generic functions.

    Decoding puts spaces between words. Pickling leaves out the caches. Threads can share a tokenizer.

    Attributes:
        vocabulary: token ids and token bytes.
        splitter: `"whitespace"`: words are runs of non-whitespace characters; `"bert"`: punctuation marks are
            separate words, too.
        lowercase: whether texts are converted to lower case.
    """

    model = "word_level"
    continuing_prefix = None
    max_word_characters = None

    vocabulary: Vocabulary
    splitter: Splitter
    lowercase: bool

    @property
    def normalizer(self) -> BertNormalizer:  # type: ignore[override]
        """Normalizer that is applied before a text is split."""
        return _make_lowercase_normalizer(self.lowercase)

    @property
    def normalization(self) -> str | None:
        """Name of the normalization, `"lowercase"`, or `None`."""
        return "lowercase" if self.lowercase else None

    def _get_repr_options(self) -> dict[str, Any]:
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
    """Makes a word-level tokenizer from the words of a vocabulary.

    Args:
        tokens: token to id, or a list of all tokens in the order of their ids; special tokens included.
        special_tokens: special tokens in addition to those named below. They are encoded from text only where
            that is allowed (`allowed_special`).
        splitter: `"whitespace"`: words are runs of non-whitespace characters; `"bert"`: punctuation marks are
            separate words, too, as in BERT.
        lowercase: whether texts are converted to lower case.
        unk_token: token for a word that is not in the vocabulary; it has the span of that word.
        bos_token: special token to insert at the start of a text, if any.
        eos_token: special token to insert at the end of a text, if any.
        pad_token: special token that pads a batch. It is ignored if it has the default name and is not among
            the tokens.

    Raises:
        InvalidArgumentError: a special token is not among the tokens, an id is used twice, or an option is
            invalid.

    >>> from tokjax import encode
    >>> encode(word_level(["[UNK]", "to", "be"]), "to be or not to be").tolist()
    [1, 2, 0, 0, 1, 2]
    """
    vocabulary = make_word_vocabulary(
        tokens,
        special_tokens,
        {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token},
    )
    return make_word_level(vocabulary, splitter, lowercase)


@register_record(WordLevelTokenizer)
def make_word_level(vocabulary: Vocabulary, splitter: Splitter, lowercase: bool) -> WordLevelTokenizer:
    """Makes a tokenizer from a vocabulary.

    Raises:
        InvalidArgumentError: an option is invalid.
        MissingSpecialTokenError: the vocabulary has no unknown token.
    """
    check_choice("splitter", splitter, SPLITTERS)
    vocabulary.require_role("unk", "a vocabulary of words")
    _make_lowercase_normalizer(lowercase)  # raises unless it is True or False
    return WordLevelTokenizer(vocabulary, splitter, lowercase)


def _make_lowercase_normalizer(lowercase: bool) -> BertNormalizer:
    return BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=lowercase
    )
