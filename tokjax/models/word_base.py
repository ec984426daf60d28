"""Base classes of tokenizers that split texts into words: normalization, words, vocabulary and decoding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.checks import check_names
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context, keep_last_visible_id
from tokjax.core.vocabulary import Vocabulary, check_role_names, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import SegmentModel
from tokjax.models.word_engine import LongestMatcher, TokenLengths, WordEngine
from tokjax.pretokenize.normalization import map_spans_back
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.pretokenize.word_boundaries import compile_word_expression

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Role
    from tokjax.pretokenize.normalization import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter


class WordModel(SegmentModel):
    """Tokenizer that normalizes texts, splits them into words, and encodes each word.

    Attributes:
        normalizer: normalizer that is applied before a text is split. Special tokens in texts are not
            normalized.
        splitter: name of the rule that splits texts into words.
    """

    normalizer: BertNormalizer
    splitter: Splitter

    @property
    def normalization(self) -> str | None:
        """Name of the normalization, `"bert"`, or `None`."""
        return None if self.normalizer.is_identity else "bert"

    @property
    @abstractmethod
    def _engine(self) -> WordEngine:
        """Engine that finds words and encodes them."""

    @abstractmethod
    def _join_tokens(self, ids: list[int]) -> bytes:
        """Returns the text of tokens, at least one."""

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, already normalized, independently of one another."""
        return self._engine.encode_segments(segments, threads, sources=sources)

    def find_pretokens(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans of the words of a segment, already normalized."""
        return [match.span() for match in compile_word_expression(self.splitter).finditer(text)]


class LongestMatchModel(WordModel):
    """Tokenizer that splits each word from the left into the longest tokens of the vocabulary.

    Attributes:
        continuing_prefix: prefix of tokens that continue a word; `None` if every word is one token.
        max_word_characters: maximum length of a word in characters, or `None`; longer words are unknown.
    """

    continuing_prefix: str | None
    max_word_characters: int | None

    @cached_property
    def _engine(self) -> WordEngine:
        model_tokens, prefix = self.vocabulary.mergeable, self.continuing_prefix
        unknown = self.vocabulary.require_role("unk", "a vocabulary of words")
        initial = {token.decode("utf-8"): id_ for token, id_ in model_tokens.items()}
        continuing = {} if prefix is None else _strip_prefixes(initial, prefix)
        maximum = self.max_word_characters
        words = {
            word.encode("utf-8"): id_
            for word, id_ in initial.items()
            if maximum is None or len(word) <= maximum
        }
        nbytes = self.vocabulary.byte_lengths
        lengths = TokenLengths(nbytes, nbytes - len((prefix or "").encode("utf-8")), unknown)
        matcher = LongestMatcher(initial, continuing, unknown, maximum)
        return WordEngine(self.splitter, words, matcher, lengths)

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

    def _join_tokens(self, ids: list[int]) -> bytes:
        """Concatenates tokens, with spaces between words."""
        first_id, *other_ids = ids
        return b"".join([self._forms[first_id][0], *(self._forms[id_][1] for id_ in other_ids)])


def _strip_prefixes(tokens: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Returns the tokens that continue a word, without their prefix."""
    continuations = {
        token.removeprefix(prefix): id_ for token, id_ in tokens.items() if token.startswith(prefix)
    }
    continuations.pop("", None)
    return continuations


def make_word_vocabulary(
    tokens: Mapping[str, int] | Sequence[str],
    special_tokens: Sequence[str],
    roles: Mapping[Role, str | None],
    *,
    optional_tokens: Collection[str] = ("[PAD]",),
) -> Vocabulary:
    """Makes a vocabulary from tokens that are strings, special tokens included.

    Args:
        tokens: token to id, or a list of all tokens in the order of their ids.
        special_tokens: special tokens in addition to those in `roles`.
        roles: role to token, which becomes special.
        optional_tokens: tokens of `roles` that are ignored if they are not in `tokens`.

    Raises:
        InvalidArgumentError: a token is not a string, is a duplicate, or is missing.
    """
    token_ids = parse_token_mapping(tokens)
    declared: dict[Role, str | None] = {
        role: name
        for role, name in check_role_names(roles).items()
        if name is not None and (name in token_ids or name not in optional_tokens)
    }
    names = dict.fromkeys([*check_special_names(special_tokens), *filter(None, declared.values())])
    for name in names:
        if name not in token_ids:
            raise InvalidArgumentError(
                f"the special token {name!r} is not among the tokens; add it to tokens"
            )
    special = {name: token_ids[name] for name in names}
    ordinary = {token.encode("utf-8"): id_ for token, id_ in token_ids.items() if token not in special}
    return make_vocabulary(ordinary, special, declared)


def parse_token_mapping(tokens: Mapping[str, int] | Sequence[str]) -> dict[str, int]:
    """Returns tokens and their ids. The ids of a list of tokens are their positions.

    Raises:
        InvalidArgumentError: a token is not a string, is empty, is a duplicate, or has a lone surrogate.
    """
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Iterable):
        raise InvalidArgumentError(f"tokens must map tokens to ids, or be a list of them, not {tokens!r}")
    if not isinstance(tokens, Mapping):
        tokens = check_names("tokens", tokens)
    ids = dict(tokens) if isinstance(tokens, Mapping) else {token: i for i, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        duplicates = [token for i, token in enumerate(tokens) if ids[token] != i]
        raise InvalidArgumentError(f"duplicate token {duplicates[0]!r}")
    for token, id_ in ids.items():
        if not isinstance(token, str):
            raise InvalidArgumentError(f"tokens must be strings, and one is {token!r}")
        if not token:
            raise InvalidArgumentError(
                f"the token with id {id_} is empty; a token has at least one character"
            )
        try:
            token.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"token {token!r} has a lone surrogate") from None
    return ids


@protocol.normalize.register(WordModel)
def _normalize(tokenizer: WordModel, text: Text) -> Text:
    return tokenizer.normalizer.normalize(text, tokenizer.vocabulary.split_token_names)


@protocol.map_offsets_to_input.register(WordModel)
def _map_offsets_to_input(tokenizer: WordModel, text: Text, offsets: ArrayLike) -> NDArray[np.int64]:
    spans = np.array(offsets, np.int64).reshape(-1, 2)
    alignment = tokenizer.normalizer.align(text, tokenizer.vocabulary.split_token_names)
    return map_spans_back(alignment, spans)


@protocol.decode_bytes.register(WordModel)
def _decode_bytes(tokenizer: WordModel, ids: ArrayLike, *, skip_special_tokens: bool = False) -> bytes:
    flat = protocol.as_flat_ids(ids)
    tokenizer.vocabulary.check_ids(flat)
    if skip_special_tokens:
        flat = flat[~tokenizer.vocabulary.is_special.take(flat)]
    return tokenizer._join_tokens(flat.tolist()) if len(flat) else b""


protocol.decode_batch.register(WordModel)(protocol.decode_row_by_row)
find_decode_context.register(WordModel)(keep_last_visible_id)
