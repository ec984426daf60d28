"""WordPiece tokenizers: words are split into the longest pieces of the vocabulary, as in BERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokjax._util.checks import check_bool, check_int
from tokjax.core.json_records import register_record
from tokjax.core.utf8 import is_encodable
from tokjax.core.vocabulary import Vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.word_base import LongestMatchModel, make_word_vocabulary
from tokjax.pretokenize.normalization import BertNormalizer, bert_normalizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


OPTIONAL_TOKENS = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
"""Default names of roles that a vocabulary need not have."""
_NO_SPACE_BEFORE = (b".", b"?", b"!", b",", b"n't", b"'m", b"'s", b"'ve", b"'re")
"""Tokens before which the decoder of `tokenizers` removes the space when it cleans up."""


@dataclass(frozen=True, repr=False)
class WordPieceTokenizer(LongestMatchModel):
    """WordPiece tokenizer. Create it with `wordpiece` and use it through the generic functions.

    The bytes of a token are its form in the vocabulary, including the prefix of tokens that continue a word.
    Decoding puts spaces between words, and joins continuing tokens to the token before. Pickling leaves out
    the caches. Threads can share a tokenizer.

    Attributes:
        vocabulary: token ids and token bytes.
        normalizer: normalizer that is applied before a text is split. Special tokens in texts are not
            normalized.
        continuing_prefix: prefix of tokens that continue a word.
        max_word_characters: maximum length of a word in characters; longer words are unknown.
        cleanup: whether decoding removes the space before punctuation and contractions.
    """

    model = "wordpiece"
    splitter = "bert"

    vocabulary: Vocabulary
    normalizer: BertNormalizer
    continuing_prefix: str
    max_word_characters: int
    cleanup: bool = True

    def _clean_up(self, form: bytes) -> bytes:
        if self.cleanup:
            for contraction in _NO_SPACE_BEFORE:
                form = form.replace(b" " + contraction, contraction)
            form = form.replace(b" ' ", b"'").replace(b" do not", b" don't")
        return form

    def _get_repr_options(self) -> dict[str, Any]:
        return {"normalizer": self.normalizer}


def wordpiece(
    tokens: Mapping[str, int] | Sequence[str],
    *,
    special_tokens: Sequence[str] = (),
    lowercase: bool = True,
    strip_accents: bool | None = None,
    clean_text: bool = True,
    handle_chinese_chars: bool = True,
    continuing_prefix: str = "##",
    max_word_characters: int = 100,
    cleanup: bool = True,
    unk_token: str = "[UNK]",
    bos_token: str | None = "[CLS]",
    eos_token: str | None = "[SEP]",
    pad_token: str | None = "[PAD]",
    mask_token: str | None = "[MASK]",
) -> WordPieceTokenizer:
    """Makes a WordPiece tokenizer from a vocabulary; its ids equal those of BERT for the same vocabulary.

    Texts are normalized, and split at whitespace and around punctuation. Each word is split from the left
    into the longest tokens of the vocabulary. A word that can't be split this way becomes the unknown token,
    with the span of the word.

    Args:
        tokens: token to id, or a list of all tokens in the order of their ids (the lines of a `vocab.txt`);
            special tokens included.
        special_tokens: special tokens in addition to those named below. They are encoded from text only where
            that is allowed (`allowed_special`).
        lowercase: whether texts are converted to lower case.
        strip_accents: whether nonspacing marks are removed; `None` uses the value of `lowercase`, as in BERT.
        clean_text: whether control characters are removed, and all whitespace is replaced by spaces.
        handle_chinese_chars: whether CJK ideographs are separate words.
        continuing_prefix: prefix of tokens that continue a word.
        max_word_characters: maximum length of a word in characters; longer words are unknown.
        cleanup: whether decoding removes the space before `.`, `,`, `!`, `?`, `n't`, `'s` and the like, as
            Hugging Face's libraries do.
        unk_token: token for a word that can't be split into tokens of the vocabulary.
        bos_token: special token to insert at the start of a text, in the roles BOS and CLS. This token and
            the next three are ignored if they have the default name and are not among the tokens.
        eos_token: special token to insert at the end of a text, in the roles EOS and SEP.
        pad_token: special token that pads a batch.
        mask_token: special token for masked language modeling.

    Raises:
        InvalidArgumentError: a special token is not among the tokens, an id is used twice, or an option is
            invalid.

    >>> from tokjax import encode, encode_result
    >>> tokenizer = wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"])
    >>> encode_result(tokenizer, "Playing chess!").tokens
    ('[CLS]', 'play', '##ing', '[UNK]', '!', '[SEP]')
    """
    vocabulary = make_word_vocabulary(
        tokens,
        special_tokens,
        {
            "bos": bos_token,
            "eos": eos_token,
            "pad": pad_token,
            "unk": unk_token,
            "cls": bos_token,
            "sep": eos_token,
            "mask": mask_token,
        },
        optional_tokens=OPTIONAL_TOKENS,
    )
    normalizer = bert_normalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=clean_text,
        handle_chinese_chars=handle_chinese_chars,
    )
    return make_wordpiece(vocabulary, normalizer, continuing_prefix, max_word_characters, cleanup=cleanup)


@register_record(WordPieceTokenizer)
def make_wordpiece(
    vocabulary: Vocabulary,
    normalizer: BertNormalizer,
    continuing_prefix: str,
    max_word_characters: int,
    *,
    cleanup: bool,
) -> WordPieceTokenizer:
    """Makes a tokenizer from a vocabulary.

    Raises:
        InvalidArgumentError: an option is invalid.
        MissingSpecialTokenError: the vocabulary has no unknown token.
    """
    if not isinstance(continuing_prefix, str) or not is_encodable(continuing_prefix):
        raise InvalidArgumentError(
            f"continuing_prefix must be a string without surrogates, not {continuing_prefix!r}"
        )
    check_bool("cleanup", cleanup)
    maximum = check_int("max_word_characters", max_word_characters, minimum=1)
    vocabulary.require_role("unk", "WordPiece")
    return WordPieceTokenizer(vocabulary, normalizer, continuing_prefix, maximum, cleanup)
