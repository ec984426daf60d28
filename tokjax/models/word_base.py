"""Base class of tokenizers that split texts into words: normalization, engine, and vocabulary.

Example, with the tokens `un`, `##able` and `to`:

    text                unable to
    words               start 0, length 6       start 7, length 2       whitespace is skipped
    cache lookup        miss                    hit
    longest match       un|able                                         once for each distinct word
    ids                 un      ##able          to
    lengths in text     2       4               2                       "##" is not in the text
    spans               0,2     2,6             7,9                     start of the word + running sum

See docs/performance.md, section "WordPiece and word-level tokenizers".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokjax._util.checks import check_names, is_iterable
from tokjax.bpe.array_engine import Engine, Places, UnitDict, ids_to_bytes, to_byte_positions
from tokjax.bpe.batched_merging import PretokenIds
from tokjax.bpe.chunks import EncodedSegments, PreTokenizer
from tokjax.bpe.pre_tokenizers import WordPreTokenizer
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.core import protocol
from tokjax.core.protocol import group_by_word, pre_tokenize
from tokjax.core.utf8 import to_characters
from tokjax.core.vocabulary import Vocabulary, check_role_names, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import JoiningModel
from tokjax.pretokenize.normalization import map_spans_back
from tokjax.pretokenize.special_tokens import check_special_names

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Role
    from tokjax.pretokenize.normalization import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter


class WordSplitter(PreTokenizer, Protocol):
    """Pre-tokenizer of words."""

    def find_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """Returns the spans of the words of a text, in characters."""


class TokenLengths(NamedTuple):
    """Number of bytes of a word that each token stands for.

    Attributes:
        initial: length of each token at the start of a word, `int64`, shape `(size,)`.
        continuing: length of each token inside a word, without its prefix, `int64`, shape `(size,)`.
        unknown: id that stands for a whole word of any length.
    """

    initial: NDArray[np.int64]
    continuing: NDArray[np.int64]
    unknown: int

    def compute_spans(
        self, ids: PretokenIds, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Computes the byte span of each id.

        The tokens of a word, concatenated, are the word. So one running sum of token lengths over all words
        gives the ends of tokens, as if there were nothing between words. Adding the distance between that sum
        and the actual start of each word gives the spans in the text.

        Args:
            ids: ids of words.
            starts: byte position of each word, 0-based, `int64`, shape `(words,)`.
            lengths: number of bytes of each word, `int64`, shape `(words,)`.

        Returns:
            0-based half-open byte spans, `int64`, shape `(n, 2)`.
        """
        word_firsts = np.cumsum(ids.counts) - ids.counts
        lengths_by_id = self.continuing.take(ids.ids)
        first_ids = ids.ids.take(word_firsts)
        lengths_by_id[word_firsts] = np.where(
            first_ids == self.unknown, lengths, self.initial.take(first_ids)
        )
        spans = np.empty((len(ids.ids), 2), np.int64)
        stops = spans[:, 1]
        np.cumsum(lengths_by_id, out=stops)
        stops += np.repeat(starts - (np.cumsum(lengths) - lengths), ids.counts)
        np.subtract(stops, lengths_by_id, out=spans[:, 0])
        return spans


class WordEngine(Engine):
    """Engine whose units are words.

    Args:
        pre_tokenizer: finds the words.
        words: word in UTF-8 to id, for words that are a token.
        match: function that returns the ids of any other word, at least one.
        lengths: number of bytes that each token stands for.
    """

    def __init__(
        self,
        pre_tokenizer: WordSplitter,
        words: Mapping[bytes, int],
        match: Callable[[str], Sequence[int]],
        lengths: TokenLengths,
    ) -> None:
        super().__init__(pre_tokenizer, len(words))
        self._find_spans = pre_tokenizer.find_spans
        self._words, self._match, self._lengths = words, match, lengths

    @cached_property
    def _caches(self) -> tuple[PretokenCache, PretokenCache]:
        # The tables look up a long word under the key of a line feed first, and discard that result (see
        # `HashTables.find`). No word is a line feed; it is a key so that these lookups are hits.
        return (PretokenCache({**self._words, b"\n": self._lengths.unknown}, self),) * 2

    def list_units(self, segments: Segments, *, sources: bool) -> tuple[list[list[str]], Places | None]:
        """Returns the words of each segment, and where they are if `sources` is true."""
        texts = segments.get_characters()
        rows = list(map(self._find_spans, texts))
        words = [[text[start:stop] for start, stop in row] for text, row in zip(texts, rows, strict=True)]
        if not sources or not texts:
            return words, None
        starts, stops = to_byte_positions(texts, rows).reshape(-1, 2).T
        return words, Places(starts, stops - starts)

    @cached_property
    def _dicts(self) -> tuple[UnitDict, UnitDict]:
        return (UnitDict(lambda words: map(ids_to_bytes, map(self._match, words))),) * 2

    def merge(self, words: Pretokens) -> PretokenIds:
        """Returns the ids of words in UTF-8. A byte that is not valid UTF-8 is matched as one character.

        Implements `PretokenMerger`.
        """
        ids_by_word = [self._match(to_characters(word)) for word in words.iter_bytes()]
        counts = np.fromiter(map(len, ids_by_word), np.int64, len(ids_by_word))
        return PretokenIds(np.fromiter(chain.from_iterable(ids_by_word), np.int32, int(counts.sum())), counts)

    def join_units(
        self, ids: PretokenIds, stops: NDArray[np.int64], places: Places | None, *, sources: bool
    ) -> EncodedSegments:
        """Returns the ids of several texts, with word beginnings and spans if `sources` is true."""
        encoded = super().join_units(ids, stops, places, sources=sources)
        if not sources or places is None:
            return encoded
        return encoded._replace(spans=self._lengths.compute_spans(ids, *places))


class WordModel(JoiningModel):
    """Tokenizer that normalizes texts, splits them into words, and encodes each word.

    Attributes:
        normalizer: normalizer that is applied before a text is split. Special tokens in texts are not
            normalized.
        splitter: name of the rule that splits texts into words.
    """

    normalizer: BertNormalizer
    splitter: Splitter

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            InvalidArgumentError: an option is invalid.
            MissingSpecialTokenError: the vocabulary has no unknown token.
        """
        super().__post_init__()
        self._unknown  # noqa: B018 (raises if there is none)

    @property
    def _unknown(self) -> int:
        return self.vocabulary.require_role("unk", "a vocabulary of words")

    @property
    def normalization(self) -> str | None:
        """Name of the normalization, `"bert"`, or `None`."""
        return None if self.normalizer.is_identity else "bert"

    @property
    @abstractmethod
    def _engine(self) -> WordEngine:
        """Engine that finds words and encodes them."""

    @property
    def _pre_tokenizer(self) -> WordSplitter:
        """Pre-tokenizer of the engine."""
        return WordPreTokenizer(self.splitter)

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, already normalized, independently of one another."""
        return self._engine.encode_segments(segments, threads, sources=sources)


pre_tokenize.register(WordModel)(group_by_word)


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
            advice = [f", or pass another {role}_token" for role, each in declared.items() if each == name]
            raise InvalidArgumentError(
                f"the special token {name!r} is not among the tokens; add it to tokens, or to the "
                f"special_tokens of a trainer{''.join(advice[:1])}"
            )
    special = {name: token_ids[name] for name in names}
    ordinary = {token.encode("utf-8"): id_ for token, id_ in token_ids.items() if token not in special}
    return make_vocabulary(ordinary, special, declared)


def parse_token_mapping(tokens: Mapping[str, int] | Sequence[str]) -> dict[str, int]:
    """Returns tokens and their ids. The ids of a list of tokens are their positions.

    Raises:
        InvalidArgumentError: a token is not a string, is empty, is a duplicate, or has a lone surrogate.
    """
    if isinstance(tokens, (str, bytes)) or not is_iterable(tokens):
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
