"""What WordPiece and word-level tokenizers share: how they normalise, split and put words together again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core import protocol
from tokjax.core.vocabulary import (
    ROLES,
    Vocabulary,
    make_vocabulary,
    vocabulary_from_json,
    vocabulary_to_json,
)
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.models.base import SegmentModel
from tokjax.models.word_engine import TokenLengths, WordEngine, WordMatcher
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.pretokenize.unicode_normalization import map_spans_back

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.core.utf8 import Text
    from tokjax.pretokenize.bert_normalizer import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter


class WordModel(SegmentModel):
    """A tokenizer that normalises texts, splits them at white space, and looks up the words.

    Attributes:
        normalizer: what is done to a text before it is split; special tokens in it are kept as they are.
    """

    normalizer: BertNormalizer

    @property
    @abstractmethod
    def _splitter(self) -> Splitter:
        """What parts words."""

    @property
    @abstractmethod
    def _prefix(self) -> str | None:
        """What tokens begin with that go on in a word; `None` where every word is a token."""

    @property
    @abstractmethod
    def _max_characters(self) -> int | None:
        """Longer words are unknown."""

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encode stretches of ordinary text, each on its own, normalised already."""
        return self._engine.encode_segments(segments, threads, sources=sources)

    @cached_property
    def _engine(self) -> WordEngine:
        ordinary, prefix = self.vocabulary.ordinary, self._prefix
        unknown = self.vocabulary.require_role("unk", "a vocabulary of words")
        first = {token.decode("utf-8"): id_ for token, id_ in ordinary.items()}
        rest = {} if prefix is None else _strip_prefixes(first, prefix)
        maximum = self._max_characters
        words = {
            word.encode("utf-8"): id_
            for word, id_ in first.items()
            if maximum is None or len(word) <= maximum
        }
        nbytes = self.vocabulary.byte_lengths
        lengths = TokenLengths(nbytes, nbytes - len((prefix or "").encode("utf-8")), unknown)
        return WordEngine(self._splitter, words, WordMatcher(first, rest, unknown, maximum), lengths)

    def _clean_up(self, form: bytes) -> bytes:
        """What a text shows of a token, where it is not the token as it is."""
        return form

    @cached_property
    def _forms(self) -> list[tuple[bytes, bytes]]:
        """By id, the bytes of a token where a text begins with it, and where others stand before it."""
        prefix = None if self._prefix is None else self._prefix.encode("utf-8")
        forms = [(b"", b"")] * self.vocabulary.size
        for id_, token in self.vocabulary.bytes_by_id.items():
            goes_on = prefix is not None and token.startswith(prefix)
            later = token[len(prefix or b"") :] if goes_on else b" " + token
            forms[id_] = self._clean_up(token), self._clean_up(later)
        return forms

    def _join_tokens(self, ids: NDArray[np.int32], *, skip_special_tokens: bool) -> bytes:
        """Words with blanks between them, parts of words glued."""
        if skip_special_tokens:
            ids = ids[~self.vocabulary.is_special.take(ids)]
        if not len(ids):
            return b""
        first, *others = ids.tolist()
        return b"".join([self._forms[first][0], *(self._forms[id_][1] for id_ in others)])


def _strip_prefixes(tokens: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The tokens that go on in a word, without their prefix."""
    continuations = {
        token.removeprefix(prefix): id_ for token, id_ in tokens.items() if token.startswith(prefix)
    }
    continuations.pop("", None)
    return continuations


def make_word_vocabulary(
    tokens: Mapping[str, int] | Sequence[str],
    special_tokens: Sequence[str],
    roles: Mapping[str, str | None],
    *,
    optional_tokens: Collection[str],
) -> Vocabulary:
    """The vocabulary of tokens that are strings, special ones among them.

    Args:
        tokens: token to id, or all tokens in the order of their ids.
        special_tokens: which of them are special, besides those below.
        roles: role to token. A role that no vocabulary knows, as `"mask"`, makes its token special, no more.
        optional_tokens: tokens that are passed over, in a role, where there are none of that name.

    Raises:
        InvalidArgumentError: a token is no string, stands twice or is missing.
    """
    token_ids = parse_token_mapping(tokens)
    declared = {
        role: name
        for role, name in roles.items()
        if name is not None and (name in token_ids or name not in optional_tokens)
    }
    names = dict.fromkeys([*check_special_names(special_tokens), *declared.values()])
    for name in names:
        if name not in token_ids:
            raise InvalidArgumentError(
                f"{name!r} is to be a special token, and tokens has none of that name; add it to tokens"
            )
    special = {name: token_ids[name] for name in names}
    ordinary = {token.encode("utf-8"): id_ for token, id_ in token_ids.items() if token not in special}
    return make_vocabulary(ordinary, special, {role: declared.get(role) for role in ROLES})


def parse_token_mapping(tokens: Mapping[str, int] | Sequence[str]) -> dict[str, int]:
    """Tokens and their ids, checked; by default the ids are the places in a list."""
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Iterable):
        raise InvalidArgumentError(f"tokens must map tokens to ids, or be a list of them, not {tokens!r}")
    ids = dict(tokens) if isinstance(tokens, Mapping) else {token: i for i, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        seen = [token for i, token in enumerate(tokens) if ids[token] != i]
        raise InvalidArgumentError(f"token {seen[0]!r} stands twice")
    for token in ids:
        if not isinstance(token, str):
            raise InvalidArgumentError(f"tokens are strings, and one is {token!r}")
        try:
            token.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"token {token!r} has a lone surrogate") from None
    return ids


def word_vocabulary_to_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """A vocabulary of words as plain JSON values."""
    return {
        "tokens": [
            [token.decode("utf-8"), id_]
            for token, id_ in sorted(vocabulary.ordinary.items(), key=lambda item: item[1])
        ],
        **vocabulary_to_json(vocabulary),
    }


def word_vocabulary_from_json(described: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary that `word_vocabulary_to_json` described.

    Raises:
        TokenizerFormatError: a token stands twice.
    """
    ordinary = {token.encode("utf-8"): id_ for token, id_ in described["tokens"]}
    if len(ordinary) != len(described["tokens"]):
        raise TokenizerFormatError("a token stands twice in 'tokens'")
    return vocabulary_from_json(ordinary, described)


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
    return tokenizer._join_tokens(flat, skip_special_tokens=skip_special_tokens)


protocol.decode_batch.register(WordModel)(protocol.decode_row_by_row)
