"""Byte-level BPE tokenizers: any text can be encoded, and decoding returns the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax.bpe.array_engine import join_ids_read_only
from tokjax.bpe.dropout import Dropout
from tokjax.bpe.merge_rules import (
    MergeRules,
    make_rules_from_merges,
    make_rules_from_ranks,
    parse_merge_pairs,
)
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.core import protocol
from tokjax.core.json_records import register_record
from tokjax.core.protocol import PreTokens, group_by_word, pre_tokenize
from tokjax.core.records import freeze, make_result_without_copy
from tokjax.core.vocabulary import AddedToken, Vocabulary, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.bpe_base import BPEModel
from tokjax.models.metaspace import (
    TokenSpaces,
    TrimOffsets,
    compute_prefix_corrections,
    count_token_spaces,
    prepend_spaces,
)
from tokjax.pretokenize.normalization import align_nfc, map_spans_back, to_nfc
from tokjax.pretokenize.patterns import Pattern, make_pattern_splitter
from tokjax.pretokenize.special_tokens import check_special_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import EncodedSegments, Segments
    from tokjax.core.records import TokenizationResult
    from tokjax.core.utf8 import Text

Normalizer = Literal["nfc"]


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
        corrections = compute_prefix_corrections(encoded, segments, split, self.vocabulary.byte_lengths)
        return encoded._replace(corrections=corrections)

    def adjust_offsets(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], matched: Mapping[int, bytes]
    ) -> NDArray[np.int64]:
        """Returns the spans to report, shape `(n, 2)`: without spaces if `trim_offsets` is set."""
        return (
            offsets
            if self.trim_offsets is None
            else self._token_spaces.trim_spans(ids, offsets, matched, self.trim_offsets)
        )

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
    def _token_spaces(self) -> TokenSpaces:
        return count_token_spaces(self.vocabulary)

    def _prepare_short(self, text: str) -> str | None:
        if self.add_prefix_space or (self.normalizer is not None and not text.isascii()):
            return None
        return text

    def _to_fingerprint_json(self) -> Any:
        return self._change(pattern=make_pattern_splitter(self.pattern).expression)


def byte_level_bpe(
    ranks: Mapping[bytes, int],
    *,
    pattern: Pattern = "gpt2",
    special_tokens: Mapping[str, int] | None = None,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    merges: Sequence[tuple[bytes, bytes]] | None = None,
    ignore_merges: bool | None = None,
    add_prefix_space: bool = False,
    trim_offsets: TrimOffsets | None = None,
    added_tokens: Sequence[str] = (),
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
        bos_token: special token to insert at the start of a text, if any.
        eos_token: special token to insert at the end of a text, if any.
        pad_token: special token that pads a batch, if any.
        unk_token: special token for unknown text, if any; byte-level encoding never produces it.
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
        {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token},
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
    tokenizer: ByteLevelBPE, text: Text, *, add_special_tokens: bool, return_offsets: bool, return_masks: bool
) -> TokenizationResult | None:
    """Encodes a text in which no special or added token is matched.

    Offsets are computed without a batch, because most callers read them. All other columns are those of a
    batch of one text.
    """
    parts = tokenizer.encode_short(text, add_special_tokens=add_special_tokens)
    if parts is None:
        return None
    ids = join_ids_read_only(parts)
    encode_batch = cache(
        partial(
            protocol.encode_texts,
            tokenizer,
            [text],
            add_special_tokens=add_special_tokens,
            return_offsets=return_offsets,
            return_masks=return_masks,
        )
    )

    def compute(name: str) -> Any:
        if name == "offsets" and return_offsets:
            return _compute_short_offsets(tokenizer, ids, add_special_tokens)
        return getattr(encode_batch()[0], name)

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
protocol.encode.register(ByteLevelBPE, protocol.encode.dispatch(BPEModel))
