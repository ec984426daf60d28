"""Byte-level BPE tokenizers: any text can be encoded, and decoding returns the same bytes.

Also the base class of BPE tokenizers, with their engine, dropout and a fast path for short texts, and the
treatment of spaces at the start and end of tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

import numpy as np

from tokjax._util.checks import check_float, check_int
from tokjax.bpe.array_engine import ArrayEngine, DropoutEngine, ids_to_bytes, join_ids_read_only
from tokjax.bpe.dropout import Dropout
from tokjax.bpe.merge_rules import (
    MergeRules,
    make_rules_from_merges,
    make_rules_from_ranks,
    parse_merge_pairs,
)
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.core import protocol
from tokjax.core.encode_options import RoleOptions, accept_options, get_roles
from tokjax.core.json_records import register_record
from tokjax.core.protocol import PreTokens, group_by_word, pre_tokenize
from tokjax.core.records import freeze, make_result_without_copy
from tokjax.core.utf8 import count_bytes, is_encodable
from tokjax.core.vocabulary import AddedToken, Vocabulary, make_vocabulary
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.base import SegmentModel
from tokjax.pretokenize.normalization import align_nfc, map_spans_back, to_nfc
from tokjax.pretokenize.patterns import Pattern, make_pattern_splitter
from tokjax.pretokenize.special_tokens import WHITE_SPACE, check_special_names, find_shared_prefixes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import EncodedSegments, Segments
    from tokjax.bpe.pre_tokenizers import FillingPreTokenizer
    from tokjax.core.records import TokenizationResult
    from tokjax.core.utf8 import Text

BPE = TypeVar("BPE", bound="BPEModel")
Normalizer = Literal["nfc"]
TrimOffsets = Literal["all", "but_first"]
_MAX_SEED = 2**64 - 1


class BPEModel(SegmentModel):
    """Tokenizer that merges the pre-tokens of a text.

    Attributes:
        dropout: probability that a merge is dropped in a step, and the seed of these decisions; `None`
            without dropout. See `with_dropout`.
    """

    dropout: Dropout | None

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            InvalidArgumentError: an option is invalid.
        """
        super().__post_init__()
        if self.dropout is not None:
            if not isinstance(self.dropout, (tuple, list)) or len(self.dropout) != len(Dropout._fields):
                raise InvalidArgumentError(
                    f"dropout must be a probability and a seed, or None, not {self.dropout!r}; call "
                    "with_dropout(tokenizer, PROBABILITY, seed=SEED)"
                )
            probability = check_float("dropout", self.dropout[0], minimum=0, maximum=1)
            seed = check_int("seed", self.dropout[1], minimum=0, maximum=_MAX_SEED)
            vars(self)["dropout"] = Dropout(probability, seed)

    @property
    @abstractmethod
    def rules(self) -> MergeRules:
        """Merge rules of the tokenizer, built when first used."""

    @abstractmethod
    def _make_pre_tokenizer(self) -> FillingPreTokenizer:
        """Returns the pre-tokenizer of the engine."""

    @cached_property
    def _plain_engine(self) -> ArrayEngine:
        """Engine without dropout."""
        return ArrayEngine(self.rules, self._make_pre_tokenizer())

    @cached_property
    def _engine(self) -> ArrayEngine:
        # With probability 0 nothing is random, and pre-tokens that are tokens need no merging.
        if self.dropout is None or not self.dropout.probability:
            return self._plain_engine
        return DropoutEngine(self._plain_engine, self.dropout)

    @abstractmethod
    def _prepare_short(self, text: str) -> str | None:
        """Returns a short text as the engine encodes it, or `None` if it needs more than `replace`.

        The text has no lone surrogates, and no special or added token begins in it.
        """

    def encode_short(self, text: Any, *, add_special_tokens: bool) -> list[bytes] | None:
        """Returns the ids of a short text for `join_ids`, or `None` if another path has to encode it."""
        if not self._has_short_path:
            return None
        if isinstance(text, bytes):
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError:
                return None
        if not isinstance(text, str) or len(text) > ArrayEngine.few_characters:
            return None  # an error message may follow
        for beginning in self._special_beginnings:  # faster than any()
            if beginning in text:
                return None
        prepared = self._prepare_short(text) if text.isascii() or is_encodable(text) else None
        if prepared is None:
            return None
        before, after = self._template_ids if add_special_tokens else (b"", b"")
        return self._engine.encode_short(prepared, before, after)

    @cached_property
    def _has_short_path(self) -> bool:
        # A subclass of a type may encode differently.
        return self.dropout is None and "_prepare_short" in vars(type(self))

    @cached_property
    def _special_beginnings(self) -> tuple[str, ...]:
        return find_shared_prefixes(self.vocabulary.split_token_names)

    @cached_property
    def _template_ids(self) -> tuple[bytes, bytes]:
        """Ids that the template inserts before and after a text, as the bytes of `int32` arrays."""
        before, after = map(ids_to_bytes, self.vocabulary.template_token_ids)
        return before, after


def with_dropout(tokenizer: BPE, dropout: float, *, seed: int) -> BPE:
    """Returns a BPE tokenizer that encodes like another one, but with BPE dropout.

    BPE dropout (Provilkov et al., 2020) regularizes training by random segmentations: in each step of merging
    a pre-token, each possible merge is dropped with a probability. Decoding does not change. The result can
    be used wherever a tokenizer can. It shares the tables of `tokenizer` and is made in microseconds, so make
    one per epoch, each with another seed.

    The segmentation of a text is a pure function of `tokenizer`, text, `dropout` and `seed`. It does not
    depend on other texts, threads or processes. The occurrences of a pre-token are segmented independently,
    in one text and in different ones; equal texts are segmented alike.

    Args:
        tokenizer: a `ByteLevelBPE` or `MetaspaceBPE`; its `ignore_merges` has no effect with dropout. A
            dropout that it has is replaced.
        dropout: probability, from 0 to 1; 0.1 is usual. With 0, the ids are those of `tokenizer`. With 1,
            nothing is merged: each byte is a token, or each character of the vocabulary for a `MetaspaceBPE`.
        seed: seed of the random decisions, from 0 to 2**64 - 1.

    Raises:
        InvalidArgumentError: an option is invalid.
        UnsupportedTokenizerError: the tokenizer has another type.

    >>> from tokjax import byte_level_bpe, tokenize
    >>> ranks = {bytes([i]): i for i in range(256)} | {b"lo": 256, b"low": 257}
    >>> tokenizer = byte_level_bpe(ranks)
    >>> tokenize(tokenizer, "low low low")
    ['low', ' ', 'low', ' ', 'low']
    >>> tokenize(with_dropout(tokenizer, 0.3, seed=1), "low low low")
    ['l', 'o', 'w', ' ', 'low', ' ', 'low']
    """
    if not isinstance(tokenizer, BPEModel):
        raise UnsupportedTokenizerError(
            f"with_dropout needs a ByteLevelBPE or MetaspaceBPE, not a {type(tokenizer).__name__}; for a "
            "SentencePiece model use sample_encode"
        )
    changed = tokenizer._change(dropout=Dropout(dropout, seed), _plain_engine=tokenizer._plain_engine)
    BPEModel.__post_init__(changed)
    return changed


def prepend_spaces(segments: Segments) -> Segments:
    """Returns segments with a space before each one that is not empty and does not begin with a space."""
    texts = [text if not text or text.startswith(" ") else " " + text for text in segments.texts]
    return segments._replace(texts=texts)


def compute_text_lengths(
    encoded: EncodedSegments, segments: Segments, spaced_segments: Segments, byte_lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Computes the number of bytes of text of each id, `int64`, if some segments got a space prepended.

    The prepended space is not in the text, so the first token spans one byte less than it has. If the space
    is a separate token, its span is empty.

    Args:
        encoded: ids of the segments with prepended spaces.
        segments: segments as they are in the text.
        spaced_segments: the same segments, with a space before some of them.
        byte_lengths: number of bytes per token id, `int64`, shape `(size,)`.
    """
    has_prefix = (len(new) > len(old) for old, new in zip(segments.texts, spaced_segments.texts, strict=True))
    lengths = byte_lengths.take(encoded.ids)
    lengths[encoded.splits[:-1][np.fromiter(has_prefix, bool, len(segments.texts))]] -= 1
    return lengths


def trim_spans(
    spaces: NDArray[np.int64],
    offsets: NDArray[np.int64],
    matched: Mapping[int, bytes],
    trim_offsets: TrimOffsets,
) -> NDArray[np.int64]:
    """Returns spans without leading and trailing spaces of tokens, like Hugging Face's `trim_offsets`.

    Args:
        spaces: number of leading and of trailing spaces of each token, and of its bytes, `int64`, shape
            `(3, n)`, which changes.
        offsets: 1-based half-open byte spans of the tokens, `int64`, shape `(n, 2)`.
        matched: position of each special or added token that was matched in a text, mapped to the bytes of
            its span. All whitespace is trimmed from these, not only spaces.
        trim_offsets: `"all"`, or `"but_first"` to keep a single space where a text begins.
    """
    starts, stops = offsets[:, 0], offsets[:, 1]
    leading, trailing, nbytes = spaces
    single = leading == 1
    for position, data in matched.items():
        text = data.decode("utf-8")
        leading[position] = len(data) - count_bytes(text.lstrip(WHITE_SPACE))
        trailing[position] = len(data) - count_bytes(text.rstrip(WHITE_SPACE))
        nbytes[position] = len(data)
        single[position] = len(text) - len(text.lstrip(WHITE_SPACE)) == 1
    all_spaces = leading == nbytes
    keeps_space = (starts <= 1) & single & (trim_offsets == "but_first")
    leading[keeps_space] = 0
    first = np.where(all_spaces & ~keeps_space, stops, np.minimum(starts + leading, stops))
    last = np.where(stops > trailing, np.maximum(stops - trailing, first), stops)
    return np.stack([first, np.where(all_spaces, first, last)], axis=1)


@register_record()
@dataclass(frozen=True, repr=False)
class ByteLevelBPE(BPEModel):
    """Byte-level BPE tokenizer. Create it with `byte_level_bpe` and use it through the generic functions.

    Tokenizers with equal fields are equal. Pickling leaves out the caches. Threads can share a tokenizer.

    Attributes:
        vocabulary: token ids and token bytes; the id of an ordinary token is its rank.
        pattern: name of a published split pattern, a regular expression, or several of these.
        normalizer: `"nfc"` if texts are normalized to NFC before they are split, else `None`. Special tokens
            in texts are not normalized.
        merges: pairs of tokens that merge, in order of priority. With `None`, any two tokens merge whose
            concatenation is a token, the lowest id first.
        ignore_merges: whether a pre-token that is a token is encoded as that token, even if the merges would
            not produce it.
        add_prefix_space: whether a space is added before text that does not begin with one, at the start of a
            text and after each special token that is matched in it.
        trim_offsets: tokens whose spans leave out leading and trailing spaces: `"all"`, `"but_first"` (all
            but a token at the start of a text that begins with a single space), or `None`.
        dropout: probability and seed of BPE dropout, or `None`; see `with_dropout`.
    """

    model = "byte_level_bpe"

    vocabulary: Vocabulary
    pattern: Pattern
    normalizer: Normalizer | Literal["auto"] | None = "auto"
    merges: Sequence[tuple[bytes, bytes]] | None = field(default=None, repr=False)
    ignore_merges: bool | None = None
    add_prefix_space: bool = False
    trim_offsets: TrimOffsets | None = None
    dropout: Dropout | None = None

    def __post_init__(self) -> None:
        """Checks the fields, and replaces values that stand for others, as `byte_level_bpe` describes.

        Raises:
            InvalidArgumentError: a field is invalid.
        """
        super().__post_init__()
        missing = [i for i in range(256) if bytes([i]) not in self.vocabulary.ordinary]
        if missing:
            raise InvalidArgumentError(
                f"ranks must contain every single byte, and has no {bytes(missing[:1])!r} "
                f"({len(missing)} of 256 missing)"
            )
        if self.merges is None and self.ignore_merges is False:
            raise InvalidArgumentError(
                "ignore_merges=False needs merges; pass merges=[...], or leave ignore_merges out"
            )
        fields = vars(self)
        fields["pattern"] = make_pattern_splitter(self.pattern).pattern
        if self.normalizer == "auto":
            fields["normalizer"] = get_default_normalizer(self.pattern)
        if self.ignore_merges is None:
            fields["ignore_merges"] = self.merges is None
        if self.merges is not None:
            fields["merges"] = parse_merge_pairs(self.merges, bytes)
        self.rules  # noqa: B018 (raises if the merges are invalid)

    @property
    def normalization(self) -> str | None:
        """Name of the normalization, `"nfc"`, or `None`."""
        return self.normalizer

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, already normalized, independently of one another."""
        split = prepend_spaces(segments) if self.add_prefix_space else segments
        encoded = self._engine.encode_segments(split, threads, sources=sources)
        if not sources or not self.add_prefix_space:
            return encoded
        lengths = compute_text_lengths(encoded, segments, split, self.vocabulary.byte_lengths)
        return encoded._replace(lengths=lengths)

    def adjust_offsets(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], matched: Mapping[int, bytes]
    ) -> NDArray[np.int64]:
        """Returns the spans to report, shape `(n, 2)`: without spaces if `trim_offsets` is set."""
        if self.trim_offsets is None:
            return offsets
        return trim_spans(self._token_spaces.take(ids, axis=1), offsets, matched, self.trim_offsets)

    def _make_pre_tokenizer(self) -> PatternPreTokenizer:
        return PatternPreTokenizer(make_pattern_splitter(self.pattern))

    @cached_property
    def rules(self) -> MergeRules:
        """Merge rules of the tokenizer, built when first used."""
        if self.merges is None:
            return make_rules_from_ranks(self.vocabulary.ordinary)
        ignore_merges = bool(self.ignore_merges)
        return make_rules_from_merges(self.vocabulary.ordinary, self.merges, ignore_merges=ignore_merges)

    @cached_property
    def _token_spaces(self) -> NDArray[np.int64]:
        """Number of spaces at the start and end of each token, and of bytes, `int64`, shape `(3, size)`."""
        spaces = np.zeros((3, self.vocabulary.size), np.int64)
        for id_, token in self.vocabulary.bytes_by_id.items():
            nbytes = len(token)
            spaces[:, id_] = nbytes - len(token.lstrip(b" ")), nbytes - len(token.rstrip(b" ")), nbytes
        return spaces

    def _prepare_short(self, text: str) -> str | None:
        if self.add_prefix_space or (self.normalizer is not None and not text.isascii()):
            return None
        return text

    def _to_fingerprint_json(self) -> Any:
        return self._change(pattern=make_pattern_splitter(self.pattern).expression)


@accept_options(RoleOptions)
def byte_level_bpe(
    ranks: Mapping[bytes, int],
    *,
    pattern: Pattern = "gpt2",
    special_tokens: Mapping[str, int] | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    merges: Sequence[tuple[bytes, bytes]] | None = None,
    ignore_merges: bool | None = None,
    add_prefix_space: bool = False,
    trim_offsets: TrimOffsets | None = None,
    added_tokens: Sequence[str] = (),
    **roles: Unpack[RoleOptions],
) -> ByteLevelBPE:
    """Makes a byte-level BPE tokenizer from token ranks and a split pattern.

    The ids equal those of tiktoken for the same ranks and pattern; with `merges`, they equal those of Hugging
    Face's `tokenizers`.

    Args:
        ranks: token bytes to id. All 256 single bytes must be present. The lower id merges first, unless
            `merges` gives another order.
        pattern: the split pattern: `"gpt2"`, `"cl100k"`, `"llama3"`, `"qwen2"`, `"qwen3_5"`, `"o200k"`,
            `"tekken"`, `"kimi_k2"`, `"starcoder"`, `"deepseek_v3"`, `"whitespace"`, a regular expression in
            the syntax of the `regex` package (sets may be nested), or a tuple of these, of which each one
            splits the pre-tokens of the one before it. Text that an expression does not match becomes
            separate pre-tokens.
        special_tokens: name to id. Special tokens are never merged. They are encoded from text only where
            that is allowed (`allowed_special`).
        normalizer: `"nfc"`, `None`, or `"auto"`: `"nfc"` for `"qwen2"` and `"qwen3_5"`, as in their published
            tokenizers, and `None` for all other patterns.
        merges: pairs of tokens that merge, in order of priority; `None` merges any two tokens whose
            concatenation is a token.
        ignore_merges: whether a pre-token that is a token is encoded as that token, even if the merges would
            not produce it (as `ignore_merges` in a `tokenizer.json`). `None` is `True` without `merges`, and
            `False` with `merges`.
        add_prefix_space: whether a space is added before text that does not begin with one.
        trim_offsets: tokens whose spans leave out leading and trailing spaces: `"all"`, `"but_first"` (all
            but a token at the start of a text that begins with a single space), or `None`.
        added_tokens: tokens of `ranks`, as text, that are matched anywhere in a text before it is split.
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none.

    Raises:
        InvalidArgumentError: a single byte has no rank, an id is used twice, a role names a token that is not
            special, the pattern is neither a name nor a regular expression, or the merges are invalid.

    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)} | {b"he": 256, b"llo": 257})
    >>> protocol.encode(tokenizer, "he!").tolist()
    [256, 33]
    """
    if not isinstance(ranks, Mapping):
        raise InvalidArgumentError(f"ranks must map tokens to ids, not be a {type(ranks).__name__}")
    vocabulary = make_vocabulary(
        ranks,
        special_tokens,
        get_roles(roles),
        added_tokens=dict.fromkeys(check_special_names(added_tokens, "added_tokens"), AddedToken()),
    )
    return ByteLevelBPE(
        vocabulary, pattern, normalizer, merges, ignore_merges, add_prefix_space, trim_offsets
    )


def get_default_normalizer(pattern: Pattern) -> Normalizer | None:
    """Returns the normalizer of the tokenizers that were published with a named pattern."""
    return "nfc" if pattern in ("qwen2", "qwen3_5") else None


def get_normalize(tokenizer: ByteLevelBPE) -> Callable[[Text], Text] | None:
    """Returns the function that normalizes texts before they are split, or `None`. It pickles."""
    return None if tokenizer.normalizer is None else partial(protocol.normalize, tokenizer)


@protocol.normalize.register(ByteLevelBPE)
def _normalize(tokenizer: ByteLevelBPE, text: Text) -> Text:
    if tokenizer.normalizer is None:
        return text
    return to_nfc(text, tokenizer.vocabulary.split_token_names)


@protocol.map_offsets_to_input.register(ByteLevelBPE)
def _map_offsets_to_input(tokenizer: ByteLevelBPE, text: Text, offsets: ArrayLike) -> NDArray[np.int64]:
    spans = np.array(offsets, np.int64).reshape(-1, 2)
    if tokenizer.normalizer is None:
        return spans
    return map_spans_back(align_nfc(text, tokenizer.vocabulary.split_token_names), spans)


@protocol.encode_short_result.register(ByteLevelBPE)
def _encode_short_result(
    tokenizer: ByteLevelBPE,
    text: Text,
    *,
    add_special_tokens: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
) -> TokenizationResult | None:
    """Encodes a text in which no special or added token is matched.

    Offsets are computed without a batch, because most callers read them. All other columns are those of a
    batch of one text.
    """
    parts = tokenizer.encode_short(text, add_special_tokens=add_special_tokens)
    if parts is None:
        return None
    ids = join_ids_read_only(parts)
    results: list[TokenizationResult] = []

    def compute(name: str) -> Any:
        if name == "offsets" and return_offsets:
            return _compute_short_offsets(tokenizer, ids, add_special_tokens)
        if not results:
            flags: Any = {"return_offsets": return_offsets, "return_masks": return_masks}
            options = {"add_special_tokens": add_special_tokens} | flags
            results.extend(protocol.encode_texts(tokenizer, [text], **options))
        return getattr(results[0], name)

    return make_result_without_copy(ids, tokenizer.result_metadata, compute)


def _compute_short_offsets(
    tokenizer: ByteLevelBPE, ids: NDArray[np.int32], add_special_tokens: bool
) -> NDArray[np.int64]:
    """Computes the offsets as running sums of token lengths, as `tokjax.models.assembly` describes."""
    before, after = map(len, tokenizer.vocabulary.template_token_ids) if add_special_tokens else (0, 0)
    stop = len(ids) - after
    lengths = tokenizer.text_byte_lengths.take(ids)
    lengths[:before] = lengths[stop:] = 0
    offsets = np.empty((len(ids), 2), np.int64)
    np.cumsum(lengths, out=offsets[:, 1])
    np.subtract(offsets[:, 1], lengths, out=offsets[:, 0])
    offsets += 1
    offsets[:before] = offsets[stop:] = 0  # the sentinel
    return freeze(tokenizer.adjust_offsets(ids, offsets, {}))


@pre_tokenize.register(ByteLevelBPE)
def _pre_tokenize(tokenizer: ByteLevelBPE, text: Text, **special: Any) -> PreTokens:
    untrimmed = tokenizer._change(trim_offsets=None, _plain_engine=tokenizer._plain_engine)
    return group_by_word(untrimmed, text, **special)


# `encode` finds the function of the type itself faster than that of a base class.
protocol.encode.register(ByteLevelBPE, protocol.encode.dispatch(SegmentModel))
