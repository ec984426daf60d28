"""Tokenizers that split texts into words: their base class, engine and vocabulary; and classic BPE.

Example, with the tokens `un`, `##able` and `to`:

    text                unable to
    words               start 0, length 6       start 7, length 2       whitespace is skipped
    cache lookup        miss                    hit
    longest match       un|able                                         once for each distinct word
    ids                 un      ##able          to
    lengths in text     2       4               2                       "##" is not in the text
    spans               0,2     2,6             7,9                     start of the word + running sum

In classic BPE, the characters of each word are merged. The end of a word can be marked by `</w>`, in one of
two ways. With the merges `l o`, `lo w` and those of the table, for the text "low lo":

    end_of_word    symbols of "low"      merges                tokens
    "suffix"       l  o  w</w>           lo w</w>              low</w>   l  o</w>
    "symbol"       l  o  w  </w>         low </w>, lo </w>     low</w>   lo</w>
    None           l  o  w                                     low       lo

`"suffix"` is the way of OpenAI's GPT and CLIP, XLM and FlauBERT; `"symbol"` that of the first version of
subword-nmt and of KeemenaSubwords.jl.

See docs/performance.md, section "WordPiece and word-level tokenizers".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from tokjax._util.checks import check_names, is_iterable
from tokjax.bpe.array_engine import Engine, Places, UnitDict, ids_to_bytes, to_byte_positions
from tokjax.bpe.batched_merging import PretokenIds
from tokjax.bpe.merge_rules import MAX_MERGES, check_merges, parse_merge_pairs
from tokjax.bpe.pre_tokenizers import WordPreTokenizer
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.bpe.sequential_merging import merge_by_heap
from tokjax.core import protocol
from tokjax.core.encode_options import RoleOptions, accept_options, get_roles
from tokjax.core.json_records import register_record
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.core.vocabulary import MAX_ID, Vocabulary, check_role_names, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import JoiningModel
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode, map_unicode_to_bytes
from tokjax.pretokenize.normalization import BertNormalizer, bert_normalizer, map_spans_back
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.pretokenize.word_boundaries import Splitter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import EncodedSegments, Segments
    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Role

Merges = Sequence[tuple[str, str]]
EndOfWord = Literal["suffix", "symbol"]
Unknown = Literal["token", "word"]
END_OF_WORD = "</w>"
"""Mark of the end of a word in tokens."""
_MAX_CHARACTER_BYTES = 4


class WordEngine(Engine):
    """Engine whose units are words.

    Args:
        pre_tokenizer: finds the words.
        words: word in UTF-8 to id, for words that are a token.
        match: function that returns the ids of any other word, at least one.
        initial: number of bytes of a word that each token stands for at its start, `int64`, shape `(size,)`.
        continuing: the same inside a word, without the prefix of the token.
        unknown: id that stands for a whole word of any length.
    """

    def __init__(
        self,
        pre_tokenizer: Any,
        words: Mapping[bytes, int],
        match: Callable[[str], Sequence[int]],
        initial: NDArray[np.int64],
        continuing: NDArray[np.int64],
        unknown: int,
    ) -> None:
        super().__init__(pre_tokenizer, len(words))
        self._find_spans: Callable[[str], Sequence[tuple[int, int]]] = pre_tokenizer.find_spans
        self._words, self._match = words, match
        self._initial, self._continuing, self._unknown = initial, continuing, unknown

    @cached_property
    def _caches(self) -> tuple[PretokenCache, PretokenCache]:
        # The tables look up a long word under the key of a line feed first, and discard that result (see
        # `HashTables.find`). No word is a line feed; it is a key so that these lookups are hits.
        return (PretokenCache({**self._words, b"\n": self._unknown}, self),) * 2

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
        return encoded._replace(spans=self._compute_spans(ids, *places))

    def _compute_spans(
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
        lengths_by_id = self._continuing.take(ids.ids)
        first_ids = ids.ids.take(word_firsts)
        lengths_by_id[word_firsts] = np.where(
            first_ids == self._unknown, lengths, self._initial.take(first_ids)
        )
        spans = np.empty((len(ids.ids), 2), np.int64)
        stops = spans[:, 1]
        np.cumsum(lengths_by_id, out=stops)
        stops += np.repeat(starts - (np.cumsum(lengths) - lengths), ids.counts)
        np.subtract(stops, lengths_by_id, out=spans[:, 0])
        return spans


class WordModel(JoiningModel):
    """Tokenizer that normalizes texts, splits them into words, and encodes each word.

    Attributes:
        normalizer: normalizer that is applied before a text is split. Special tokens in texts are not
            normalized.
        splitter: name of the rule that splits texts into words.
    """

    why_no_pretokens = ""

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
    def _pre_tokenizer(self) -> Any:
        """Pre-tokenizer of the engine, with a method `find_spans` for the words of a text in characters."""
        return WordPreTokenizer(self.splitter)


DEFAULT_ROLES: RoleOptions = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
"""Roles of vocabularies of words or characters, if the tokenizer declares no others."""


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


@register_record()
@dataclass(frozen=True, repr=False)
class WordBPE(WordModel):
    """Classic BPE tokenizer. Create it with `word_bpe` and use it through the generic functions.

    All occurrences of the pair of lowest rank in a word merge before the next pair is chosen, as in
    subword-nmt. The bytes of a token are its form in the vocabulary, including `</w>`. Decoding writes
    a space after each token that ends a word but the last. Without a mark, the spaces between words are lost.
    Pickling leaves out the caches. Threads can share a tokenizer.

    Attributes:
        vocabulary: token ids and tokens in written form.
        merges: pairs of tokens that merge, in order of priority.
        normalizer: normalizer that is applied before a text is split. Special tokens in texts are not
            normalized.
        splitter: `"whitespace"`: words are runs of non-whitespace characters; `"bert"`: punctuation marks are
            separate words, too.
        end_of_word: mark of the end of a word: `"suffix"`: `</w>` is part of the last character; `"symbol"`:
            `</w>` is a symbol after the last character; `None`: no mark.
        byte_level: whether words are merged from bytes, written as in GPT-2, not from characters.
        unknown: text that becomes one unknown token: `"token"`: each token that is not in the vocabulary;
            `"word"`: each word that has such a token.
    """

    model = "word_bpe"

    vocabulary: Vocabulary
    merges: Merges = field(repr=False)
    normalizer: BertNormalizer
    splitter: Splitter
    end_of_word: EndOfWord | None
    byte_level: bool
    unknown: Unknown

    def __post_init__(self) -> None:
        """Checks the fields.

        Raises:
            InvalidArgumentError: a field is invalid.
            MissingSpecialTokenError: the vocabulary has no unknown token.
        """
        super().__post_init__()
        vars(self)["merges"] = parse_merge_pairs(self.merges, str)
        if len(self.merges) > MAX_MERGES:
            raise InvalidArgumentError(
                f"there are {len(self.merges):,} merges; at most {MAX_MERGES:,} are supported"
            )
        check_merges(self.merges, partial(_find_merge_problem, self.end_of_word))
        longest = self._max_token_bytes
        if self.vocabulary.size + longest > MAX_ID:  # ids of the engine, which stores them in as many bits
            raise InvalidArgumentError(
                f"the vocabulary is too large: {self.vocabulary.size:,} ids and the {longest:,} bytes of the "
                f"longest token together exceed {MAX_ID:,}"
            )

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, already normalized, independently of one another."""
        encoded = super().encode_segments(segments, threads, sources=sources)
        ids = np.where(encoded.ids < self.vocabulary.size, encoded.ids, np.int32(self._unknown))
        return encoded._replace(ids=ids)

    @cached_property
    def _engine(self) -> WordEngine:
        # Ids from the size of the vocabulary on are used inside of the engine: the first is that of an
        # unknown word, the others are those of unknown tokens of 0, 1, 2 ... bytes.
        unknown_word = self.vocabulary.size
        known = np.zeros(unknown_word + 1, np.int64)
        for form, id_ in self.vocabulary.ordinary.items():
            known[id_] = self._count_text_bytes(form.decode("utf-8"))
        lengths = np.append(known, np.arange(self._max_token_bytes + 1))
        return WordEngine(self._pre_tokenizer, {}, self.match, lengths, lengths, unknown_word)

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {form.decode("utf-8"): id_ for form, id_ in self.vocabulary.ordinary.items()}

    def match(self, word: str) -> list[int]:
        """Returns the ids of one word inside of the engine."""
        tokens = merge_symbols(self.get_symbols(word), self._ranks)
        unknown_word, get_id = self.vocabulary.size, self._ids.get
        if self.unknown == "word" and not all(token in self._ids for token in tokens):
            return [unknown_word]
        return [get_id(token, unknown_word + 1 + self._count_text_bytes(token)) for token in tokens]

    @property
    def _max_token_bytes(self) -> int:
        """Maximum number of text bytes of a token, in the vocabulary or not."""
        longest = max((self._count_text_bytes(left + right) for left, right in self.merges), default=0)
        return max(longest, _MAX_CHARACTER_BYTES)

    def get_symbols(self, word: str) -> list[str]:
        """Returns the symbols that a word is merged from: characters or bytes, and the end of the word."""
        symbols = list(map_bytes_to_unicode(from_characters(word)) if self.byte_level else word)
        if self.end_of_word == "symbol":
            symbols.append(END_OF_WORD)
        elif self.end_of_word is not None:
            symbols[-1] += END_OF_WORD
        return symbols

    def _count_text_bytes(self, token: str) -> int:
        """Returns the number of bytes of text that a token, as merges make it, stands for."""
        text = token.removesuffix(END_OF_WORD) if self.end_of_word else token
        return len(text) if self.byte_level else len(from_characters(text))

    @cached_property
    def _forms(self) -> list[tuple[bytes, bytes]]:
        """Text of each token in decoded text, by id: before another token, and at the end of a text."""
        forms = [(b"", b"")] * self.vocabulary.size
        for name, id_ in self.vocabulary.special.items():
            forms[id_] = (name.encode("utf-8"),) * 2
        for token, id_ in self.vocabulary.ordinary.items():
            form = token.decode("utf-8")
            ends_word = self.end_of_word is not None and form.endswith(END_OF_WORD)
            text = form.removesuffix(END_OF_WORD) if ends_word else form
            data = (map_unicode_to_bytes(text) if self.byte_level else None) or text.encode("utf-8")
            forms[id_] = data + b" " * ends_word, data
        return forms

    def join_tokens(self, ids: list[int]) -> bytes:
        """Returns the text of tokens, at least one."""
        *other_ids, last_id = ids
        return b"".join([*(self._forms[id_][0] for id_ in other_ids), self._forms[last_id][1]])


def merge_symbols(symbols: list[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Merges all occurrences of the pair of lowest rank, from left to right, until no pair has a rank.

    >>> merge_symbols(list("abab"), {("a", "b"): 0, ("ab", "ab"): 1})
    ['abab']
    """
    text, starts = "".join(symbols), [0, *accumulate(map(len, symbols))]
    starts = merge_by_heap(text, starts[:-1], lambda *pair: ranks.get(pair), together=True)
    return [text[start:stop] for start, stop in pairwise([*starts, len(text)])]


@accept_options(RoleOptions, unk_token="<unk>")
def word_bpe(
    tokens: Mapping[str, int] | Sequence[str],
    merges: Sequence[tuple[str, str]],
    *,
    end_of_word: EndOfWord | None = "suffix",
    splitter: Splitter = "whitespace",
    unknown: Unknown = "token",
    byte_level: bool = False,
    lowercase: bool = False,
    strip_accents: bool | None = None,
    special_tokens: Sequence[str] = (),
    **roles: Unpack[RoleOptions],
) -> WordBPE:
    """Makes a classic BPE tokenizer, as in OpenAI's GPT, XLM, FlauBERT and subword-nmt.

    Args:
        tokens: token to id, or a list of all tokens in the order of their ids; special tokens included.
        merges: pairs of tokens that merge, in order of priority. They may make tokens that are not in
            `tokens`.
        end_of_word: mark of the end of a word: `"suffix"`: `</w>` is part of the last character; `"symbol"`:
            `</w>` is a symbol after the last character; `None`: no mark.
        splitter: `"whitespace"`: words are runs of non-whitespace characters; `"bert"`: punctuation marks and
            CJK ideographs are separate words, too, and control characters are removed, as in BERT.
        unknown: text that becomes one unknown token: `"token"`: each token that is not in the vocabulary;
            `"word"`: each word that has such a token.
        byte_level: whether words are merged from bytes, not from characters. The tokens are then written as
            in GPT-2's files.
        lowercase: whether texts are converted to lower case.
        strip_accents: whether nonspacing marks are removed; `None` uses the value of `lowercase`.
        special_tokens: special tokens in addition to those named below. They are encoded from text only where
            that is allowed (`allowed_special`).
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none, except for
            `unk_token="<unk>"`.

    Raises:
        InvalidArgumentError: a special token is not among the tokens, an id is used twice, a merge is a
            duplicate or makes `</w>` from text, or an option is invalid.

    >>> from tokjax import encode_result
    >>> tokens = ["<unk>", "l", "o", "w</w>", "lo", "low</w>"]
    >>> tokenizer = word_bpe(tokens, [("l", "o"), ("lo", "w</w>")])
    >>> encode_result(tokenizer, "low lö").tokens
    ('low</w>', 'l', '<unk>')
    """
    vocabulary = make_word_vocabulary(
        tokens, special_tokens, get_roles(roles, unk_token="<unk>"), optional_tokens=()
    )
    normalizer = bert_normalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=splitter == "bert",
        handle_chinese_chars=splitter == "bert",
    )
    return WordBPE(vocabulary, merges, normalizer, splitter, end_of_word, byte_level, unknown)


def _find_merge_problem(end_of_word: EndOfWord | None, left: str, right: str) -> str | None:
    if not left or not right:
        return "a part is empty"
    if end_of_word and (left + right).endswith(END_OF_WORD) and not right.endswith(END_OF_WORD):
        return f"it makes {END_OF_WORD!r} from text; pass end_of_word=None if tokens do not mark an end"
    return None


def merge_order_is_unique(merges: Merges) -> bool:
    """Returns whether merging all occurrences of a pair together equals merging the leftmost one first.

    It does if each token is used only after the last merge that makes it. `tokenizers` merges one occurrence
    at a time.
    """
    last_rank = {left + right: rank for rank, (left, right) in enumerate(merges)}
    return all(last_rank.get(part, -1) < rank for rank, pair in enumerate(merges) for part in pair)
