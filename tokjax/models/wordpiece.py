"""WordPiece: words are made of the longest parts that the vocabulary has, as BERT's tokenizer does."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from tokjax._util.checks import check_int
from tokjax.core.utf8 import is_encodable
from tokjax.errors import InvalidArgumentError
from tokjax.models.format_errors import as_format_errors
from tokjax.models.word_base import (
    WordModel,
    make_word_vocabulary,
    word_vocabulary_from_json,
    word_vocabulary_to_json,
)
from tokjax.pretokenize.bert_normalizer import BertNormalizer, bert_normalizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Vocabulary
    from tokjax.pretokenize.word_boundaries import Splitter

_OPTIONAL_TOKENS = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
_NO_SPACE_BEFORE = (b".", b"?", b"!", b",", b"n't", b"'m", b"'s", b"'ve", b"'re")
"""What the decoder of the library `tokenizers` puts no blank before, where it cleans up."""


@dataclass(frozen=True, repr=False)
class WordPieceTokenizer(WordModel):
    """A WordPiece tokenizer. Make one with `wordpiece`; use it through the generic functions.

    The bytes of a token are its form in the vocabulary, the prefix of those that go on in a word included;
    decoding puts blanks between words, and glues what goes on. It pickles without its caches, and threads can
    share it.

    Attributes:
        vocabulary: ids and bytes.
        normalizer: what is done to a text before it is split; special tokens in it are kept as they are.
        continuing_prefix: what tokens begin with that go on in a word.
        max_word_characters: longer words are unknown.
        cleanup: whether decoding leaves out the blank before punctuation and the ends of contractions.
    """

    model = "wordpiece"

    vocabulary: Vocabulary
    normalizer: BertNormalizer
    continuing_prefix: str
    max_word_characters: int
    cleanup: bool = True

    @property
    def normalization(self) -> str | None:
        """What is done to a text before it is split."""
        return None if self.normalizer.is_identity else "bert"

    @property
    def _splitter(self) -> Splitter:
        return "bert"

    @property
    def _prefix(self) -> str | None:
        return self.continuing_prefix

    @property
    def _max_characters(self) -> int | None:
        return self.max_word_characters

    def _clean_up(self, form: bytes) -> bytes:
        if self.cleanup:
            for contraction in _NO_SPACE_BEFORE:
                form = form.replace(b" " + contraction, contraction)
            form = form.replace(b" ' ", b"'").replace(b" do not", b" don't")
        return form

    def _describe(self) -> dict[str, Any]:
        return to_json(self)

    def _shown(self) -> dict[str, Any]:
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
    """A WordPiece tokenizer from the tokens of a vocabulary; its ids are those of BERT for the same ones.

    Texts are normalised, split at white space and around punctuation, and each word is made of the longest
    tokens from the left. A word for which there are none is the unknown token, with the word's span.

    Args:
        tokens: token to id, or all tokens in the order of their ids (the lines of a `vocab.txt`). Special
            tokens are among them.
        special_tokens: which tokens are special besides those named below. They are never made from text
            that is not allowed to.
        lowercase: each character becomes its lower case.
        strip_accents: nonspacing marks are dropped; `None` for what `lowercase` says, as for BERT.
        clean_text: control characters are dropped, and all white space becomes blanks.
        handle_chinese_chars: CJK ideographs become words of their own.
        continuing_prefix: what tokens begin with that go on in a word.
        max_word_characters: longer words are unknown.
        cleanup: whether decoding removes the space before `.`, `,`, `!`, `?`, `n't`, `'s` and the like, as in
            Hugging Face's libraries.
        unk_token: stands for a word that the vocabulary can't express.
        bos_token: begins a text. (This one and the next three are left out where `tokens` has none of the
            default name.)
        eos_token: ends a text.
        pad_token: pads a batch.
        mask_token: a special token without a role of its own here.

    Raises:
        InvalidArgumentError: a special token is not among the tokens, an id is used twice, or an option
            makes no sense.

    >>> from tokjax import encode, encode_result
    >>> tokenizer = wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"])
    >>> encode_result(tokenizer, "Playing chess!").tokens
    ('[CLS]', 'play', '##ing', '[UNK]', '!', '[SEP]')
    """
    table = make_word_vocabulary(
        tokens,
        special_tokens,
        {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token, "mask": mask_token},
        optional_tokens=_OPTIONAL_TOKENS,
    )
    normalizer = bert_normalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=clean_text,
        handle_chinese_chars=handle_chinese_chars,
    )
    return make_wordpiece(table, normalizer, continuing_prefix, max_word_characters, cleanup=cleanup)


def to_json(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    """What defines the tokenizer, as plain JSON values."""
    return {
        "model": WordPieceTokenizer.model,
        **asdict(tokenizer.normalizer),
        "continuing_prefix": tokenizer.continuing_prefix,
        "max_word_characters": tokenizer.max_word_characters,
        "cleanup": tokenizer.cleanup,
        **word_vocabulary_to_json(tokenizer.vocabulary),
    }


def from_json(described: Mapping[str, Any]) -> WordPieceTokenizer:
    """The tokenizer that `to_json` described.

    Raises:
        TokenizerFormatError: a field is missing or of the wrong type, or the values make no tokenizer.
    """
    with as_format_errors():
        return make_wordpiece(
            word_vocabulary_from_json(described),
            BertNormalizer(**{step.name: described[step.name] for step in fields(BertNormalizer)}),
            described["continuing_prefix"],
            described["max_word_characters"],
            cleanup=described["cleanup"],
        )


def make_wordpiece(
    vocabulary: Vocabulary,
    normalizer: BertNormalizer,
    continuing_prefix: str,
    max_word_characters: int,
    *,
    cleanup: bool,
) -> WordPieceTokenizer:
    """The tokenizer of a vocabulary that is there already.

    Raises:
        InvalidArgumentError: an option makes no sense.
        MissingSpecialTokenError: the vocabulary has no token for the unknown.
    """
    if not isinstance(continuing_prefix, str) or not is_encodable(continuing_prefix):
        raise InvalidArgumentError(
            f"continuing_prefix must be a string without surrogates, not {continuing_prefix!r}"
        )
    if not isinstance(cleanup, bool):
        raise InvalidArgumentError(f"cleanup must be True or False, not {cleanup!r}")
    maximum = check_int("max_word_characters", max_word_characters, minimum=1)
    vocabulary.require_role("unk", "WordPiece")
    return WordPieceTokenizer(vocabulary, normalizer, continuing_prefix, maximum, cleanup)
