"""WordPiece and word-level tokenizers: words are split into the longest pieces, or are tokens themselves.

Texts are split into words as in BERT, at whitespace, or by a custom function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Unpack

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core.encode_options import RoleOptions, accept_options, get_roles
from tokjax.core.json_records import register_record
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, is_encodable
from tokjax.core.vocabulary import Vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.words import DEFAULT_ROLES, WordEngine, WordModel, make_word_vocabulary
from tokjax.pretokenize.normalization import BertNormalizer, bert_normalizer
from tokjax.pretokenize.word_boundaries import Splitter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.bpe.chunks import EncodedSegments, Pieces, Segments

SplitFunction: TypeAlias = Callable[[str], Iterable[str] | Iterable[tuple[int, int]]]
"""Returns the words of a text, or the position of each word: `(start, stop)`, as in `text[start:stop]`."""
OPTIONAL_TOKENS = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
"""Default names of roles that a vocabulary need not have."""
_BERT_ROLES: RoleOptions = {
    **DEFAULT_ROLES,
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "mask_token": "[MASK]",
}
_NO_SPACE_BEFORE = (b".", b"?", b"!", b",", b"n't", b"'m", b"'s", b"'ve", b"'re")
"""Tokens before which the decoder of `tokenizers` removes the space when it cleans up."""


_Pieces: TypeAlias = tuple[dict[str, int], dict[str, int]]
"""Ids of pieces of words, and the number of characters of the longest piece for each first character."""


class LongestMatchModel(WordModel):
    """Tokenizer that splits each word from the left into the longest tokens of the vocabulary.

    Attributes:
        continuing_prefix: prefix of tokens that continue a word; `None` if every word is one token.
        max_word_characters: maximum length of a word in characters, or `None`; longer words are unknown.
    """

    continuing_prefix: str | None
    max_word_characters: int | None

    @cached_property
    def _pieces(self) -> tuple[_Pieces, _Pieces]:
        """Pieces that can begin a word, and those that can continue a word."""
        initial = {token.decode("utf-8"): id_ for token, id_ in self.vocabulary.mergeable.items()}
        prefix = self.continuing_prefix
        return _make_pieces(initial), _make_pieces({} if prefix is None else _strip_prefixes(initial, prefix))

    @cached_property
    def _engine(self) -> WordEngine:
        maximum = self.max_word_characters
        words = {
            word.encode("utf-8"): id_
            for word, id_ in self._pieces[0][0].items()
            if maximum is None or len(word) <= maximum
        }
        nbytes = self.vocabulary.byte_lengths
        continuing = nbytes - len((self.continuing_prefix or "").encode("utf-8"))
        return WordEngine(self._pre_tokenizer, words, self.match, nbytes, continuing, self._unknown)

    def match(self, word: str) -> list[int]:
        """Returns the ids of one word.

        A candidate is at most as long as the longest piece with the same first character. This bounds the
        work per position, so that long words take linear time.
        """
        if self.max_word_characters is not None and len(word) > self.max_word_characters:
            return [self._unknown]
        ids, start = [], 0
        (piece_ids, longest), continuing = self._pieces
        while start < len(word):
            for stop in range(min(start + longest.get(word[start], 0), len(word)), start, -1):
                if word[start:stop] in piece_ids:
                    break
            else:
                return [self._unknown]
            ids.append(piece_ids[word[start:stop]])
            start, (piece_ids, longest) = stop, continuing
        return ids

    def _clean_up(self, form: bytes) -> bytes:
        """Returns the text of a token in decoded text. By default, the token itself."""
        return form

    @cached_property
    def _forms(self) -> list[tuple[bytes, bytes]]:
        """Text of each token in decoded text, by id: at the start of a text, and after another token.

        The second form has a space before it, unless the token continues a word.
        """
        prefix = None if self.continuing_prefix is None else self.continuing_prefix.encode("utf-8")
        forms = [(b"", b"")] * self.vocabulary.size
        for id_, token in self.vocabulary.bytes_by_id.items():
            continues = prefix is not None and token.startswith(prefix)
            continued = token[len(prefix or b"") :] if continues else b" " + token
            forms[id_] = self._clean_up(token), self._clean_up(continued)
        return forms

    def join_tokens(self, ids: list[int]) -> bytes:
        """Concatenates tokens, with spaces between words."""
        first_id, *other_ids = ids
        return b"".join([self._forms[first_id][0], *(self._forms[id_][1] for id_ in other_ids)])


@register_record()
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

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            InvalidArgumentError: an option is invalid.
            MissingSpecialTokenError: the vocabulary has no unknown token.
        """
        super().__post_init__()
        prefix = self.continuing_prefix
        if not isinstance(prefix, str) or not is_encodable(prefix):
            raise InvalidArgumentError(
                f"continuing_prefix must be a string without surrogates, not {prefix!r}"
            )
        check_int("max_word_characters", self.max_word_characters, minimum=1)

    def _clean_up(self, form: bytes) -> bytes:
        if self.cleanup:
            for contraction in _NO_SPACE_BEFORE:
                form = form.replace(b" " + contraction, contraction)
            form = form.replace(b" ' ", b"'").replace(b" do not", b" don't")
        return form


@register_record()
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
        return BertNormalizer(
            clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=self.lowercase
        )

    @property
    def normalization(self) -> str | None:
        """Name of the normalization, `"lowercase"`, or `None`."""
        return "lowercase" if self.lowercase else None


@accept_options(RoleOptions, **_BERT_ROLES)
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
    **roles: Unpack[RoleOptions],
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
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none, except for
            `unk_token="[UNK]"`, and `bos_token="[CLS]"`, `eos_token="[SEP]"`, `pad_token="[PAD]"` and
            `mask_token="[MASK]"` if they are among the tokens. BOS and EOS are also CLS and SEP.

    Raises:
        InvalidArgumentError: a special token is not among the tokens, an id is used twice, or an option is
            invalid.

    >>> from tokjax import encode, encode_result
    >>> tokenizer = wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"])
    >>> encode_result(tokenizer, "Playing chess!").tokens
    ('[CLS]', 'play', '##ing', '[UNK]', '!', '[SEP]')
    """
    names: RoleOptions = {**_BERT_ROLES, **roles}
    names = {"cls_token": names["bos_token"], "sep_token": names["eos_token"], **names}
    vocabulary = make_word_vocabulary(
        tokens, special_tokens, get_roles(names), optional_tokens=OPTIONAL_TOKENS
    )
    normalizer = bert_normalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=clean_text,
        handle_chinese_chars=handle_chinese_chars,
    )
    return WordPieceTokenizer(vocabulary, normalizer, continuing_prefix, max_word_characters, cleanup)


@accept_options(RoleOptions, **DEFAULT_ROLES)
def word_level(
    tokens: Mapping[str, int] | Sequence[str],
    *,
    special_tokens: Sequence[str] = (),
    splitter: Splitter = "whitespace",
    lowercase: bool = False,
    **roles: Unpack[RoleOptions],
) -> WordLevelTokenizer:
    """Makes a word-level tokenizer from the words of a vocabulary.

    Args:
        tokens: token to id, or a list of all tokens in the order of their ids; special tokens included.
        special_tokens: special tokens in addition to those named below. They are encoded from text only where
            that is allowed (`allowed_special`).
        splitter: `"whitespace"`: words are runs of non-whitespace characters; `"bert"`: punctuation marks are
            separate words, too, as in BERT.
        lowercase: whether texts are converted to lower case.
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none, except for
            `unk_token="[UNK]"`, and `pad_token="[PAD]"` if it is among the tokens.

    Raises:
        InvalidArgumentError: a special token is not among the tokens, an id is used twice, or an option is
            invalid.

    >>> from tokjax import encode
    >>> encode(word_level(["[UNK]", "to", "be"]), "to be or not to be").tolist()
    [1, 2, 0, 0, 1, 2]
    """
    vocabulary = make_word_vocabulary(tokens, special_tokens, get_roles(roles, **DEFAULT_ROLES))
    return WordLevelTokenizer(vocabulary, splitter, lowercase)


def _strip_prefixes(tokens: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Returns the tokens that continue a word, without their prefix."""
    continuations = {
        token.removeprefix(prefix): id_ for token, id_ in tokens.items() if token.startswith(prefix)
    }
    continuations.pop("", None)
    return continuations


def _make_pieces(ids: dict[str, int]) -> _Pieces:
    longest: dict[str, int] = {}
    for piece in ids:
        longest[piece[0]] = max(longest.get(piece[0], 0), len(piece))
    return ids, longest


@dataclass(frozen=True, repr=False)
class CallableTokenizer(LongestMatchModel):
    """Tokenizer that splits texts with a custom function. Create it with `from_callable`.

    Decoding puts spaces between words. The tokenizer can be pickled if the function can. It can't be saved to
    a file.

    Attributes:
        vocabulary: token ids and words.
        split: function that splits a text into words.
        name: name that identifies the function in the fingerprint.
    """

    model = "callable"
    normalizer = BertNormalizer(False, False, False, False)
    continuing_prefix = None
    max_word_characters = None

    vocabulary: Vocabulary
    split: SplitFunction = field(repr=False)
    name: str

    @property
    def _pre_tokenizer(self) -> _CallablePreTokenizer:
        return _CallablePreTokenizer(self.split, self.name)

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,  # noqa: ARG002 (the function may not be thread-safe)
        *,
        sources: bool = True,
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another, in one thread."""
        return super().encode_segments(segments, sources=sources)

    def _to_fingerprint_json(self) -> Any:
        if not self.name:
            raise InvalidArgumentError(
                f"the function {self.split!r} has no qualified name to identify it in a fingerprint; "
                "pass from_callable(..., name=NAME)"
            )
        return [self.model, self.name, self.vocabulary]


@accept_options(RoleOptions, **DEFAULT_ROLES)
def from_callable(
    split: SplitFunction,
    tokens: Mapping[str, int] | Sequence[str],
    *,
    name: str | None = None,
    special_tokens: Sequence[str] = (),
    **roles: Unpack[RoleOptions],
) -> CallableTokenizer:
    """Makes a tokenizer that splits texts into words with a custom function.

    Args:
        split: function of a text that returns its words in order, or the position of each word: `(start,
            stop)`, as in `text[start:stop]`. Words must be substrings of the text. Text between words is
            skipped.
        tokens: word to id, or a list of all words in the order of their ids; special tokens included.
        name: name that identifies the function in `fingerprint`, so that a dataset is not opened with a
            tokenizer that splits differently. `None` uses the qualified name of the function. A function
            without one (a lambda, a `partial`) needs `name` for a fingerprint.
        special_tokens: special tokens in addition to those named below.
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none, except for
            `unk_token="[UNK]"`, and `pad_token="[PAD]"` if it is among the tokens.

    Raises:
        InvalidArgumentError: `split` is not callable, a special token is not among the tokens, or an id is
            used twice.

    >>> from tokjax import encode_result
    >>> words = from_callable(str.split, ["[UNK]", "to", "be"])
    >>> encode_result(words, "to be or").offsets.tolist()
    [[1, 3], [4, 6], [7, 9]]
    """
    if not callable(split):
        raise InvalidArgumentError(f"split must be a function of a text, not {split!r}")
    vocabulary = make_word_vocabulary(tokens, special_tokens, get_roles(roles, **DEFAULT_ROLES))
    if name is None:
        qualname = getattr(split, "__qualname__", "")  # has a "<" for lambdas and local functions
        name = (
            ""
            if not qualname or "<" in qualname
            else f"{getattr(split, '__module__', 'builtins')}.{qualname}"
        )
    return CallableTokenizer(vocabulary, split, name)


class _CallablePreTokenizer(NamedTuple):
    """Pre-tokenizer of a function, which gets each text as a whole.

    Attributes:
        split: the function.
        name: its name, for errors.
    """

    split: SplitFunction
    name: str

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans of the words of a text, in characters.

        A word that is a string is located at its first occurrence after the word before it.

        Raises:
            InvalidArgumentError: a word is empty, not in the rest of the text, or of the wrong type.
        """
        word_spans: list[tuple[int, int]] = []
        min_start = 0
        for word in self.split(text):
            start, stop = _find_span(word, text, min_start)
            if not min_start <= start < stop <= len(text):
                raise InvalidArgumentError(
                    f"{self.name or 'the function'} returned the word {word!r}, which is not in the text at "
                    f"or after character {min_start}; return words as they are, in order, or as positions "
                    "(start, stop)"
                )
            word_spans.append((start, stop))
            min_start = stop
        return word_spans

    def find_split(self, text: str, target: int) -> int:  # noqa: ARG002 (part of `PreTokenizer`)
        """Returns the end of the text."""
        return len(text)

    def find_bounds(
        self,
        text: bytes,
        pieces: Pieces,
        ends: NDArray[np.int64],  # noqa: ARG002 (part of `PreTokenizer`)
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the byte positions at which words start and stop, as `PreTokenizer` specifies."""
        firsts = make_row_splits([len(piece) + 1 for piece in pieces.texts]).tolist()
        spans = [
            (first + start, first + stop)
            for first, piece in zip(firsts, pieces.texts, strict=False)
            for start, stop in self.find_spans(piece)
        ]
        starts, stops = find_character_starts(text)[np.array(spans, np.int64).reshape(-1, 2)].T
        return starts, stops


def _find_span(word: Any, text: str, min_start: int) -> tuple[int, int]:
    """Returns the character span of a word; `(-1, -1)` if it is neither a string nor a pair of integers."""
    if isinstance(word, str):
        start = text.find(word, min_start)
        return start, start + len(word)
    if isinstance(word, Sequence) and len(word) == 2 and all(isinstance(bound, int) for bound in word):
        return word[0], word[1]
    return -1, -1
