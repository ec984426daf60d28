"""Byte-level BPE tokenizers: any text can be encoded, and decoding returns the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax._util.checks import check_bool, check_choice
from tokjax.bpe import array_engine
from tokjax.bpe.merge_rules import (
    MergeRules,
    make_rules_from_merges,
    make_rules_from_ranks,
    parse_merge_pairs,
)
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.core import protocol
from tokjax.core.json_records import register_record
from tokjax.core.records import make_result_without_copy
from tokjax.core.utf8 import is_encodable
from tokjax.core.vocabulary import AddedToken, Vocabulary, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import SegmentModel, encode_ids
from tokjax.models.metaspace import (
    TRIM_OFFSETS_VALUES,
    TokenSpaces,
    TrimOffsets,
    compute_prefix_corrections,
    count_token_spaces,
    prepend_spaces,
)
from tokjax.models.short_text_columns import ShortTextColumns
from tokjax.pretokenize.normalization import align_nfc, map_spans_back, to_nfc
from tokjax.pretokenize.patterns import Pattern, make_pattern_splitter
from tokjax.pretokenize.special_tokens import check_special_names, find_shared_prefixes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.dropout import Dropout
    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.core.protocol import Special
    from tokjax.core.records import TokenizationResult
    from tokjax.core.utf8 import Text

Normalizer = Literal["nfc"]


@dataclass(frozen=True, repr=False)
class ByteLevelBPE(SegmentModel):
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
    """

    model = "byte_level_bpe"

    vocabulary: Vocabulary
    pattern: Pattern
    normalizer: Normalizer | None = None
    merges: tuple[tuple[bytes, bytes], ...] | None = field(default=None, repr=False)
    ignore_merges: bool = True
    add_prefix_space: bool = False
    trim_offsets: TrimOffsets | None = None

    @property
    def normalization(self) -> str | None:
        """Name of the normalization, `"nfc"`, or `None`."""
        return self.normalizer

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,
        *,
        sources: bool = True,
        dropout: Dropout | None = None,
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, already normalized, independently of one another."""
        if not self.add_prefix_space:
            return self._engine.encode_segments(segments, threads, begins_word=sources, dropout=dropout)
        split = prepend_spaces(segments)
        encoded = self._engine.encode_segments(split, threads, begins_word=sources, dropout=dropout)
        if not sources:
            return encoded
        corrections = compute_prefix_corrections(encoded, segments, split, self.vocabulary.byte_lengths)
        return encoded._replace(corrections=corrections)

    def find_pretokens(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans of the pre-tokens of a segment: the parts that the pattern splits it into."""
        prefix = "" if not self.add_prefix_space or not text or text.startswith(" ") else " "
        bounds = accumulate(map(len, make_pattern_splitter(self.pattern).split(prefix + text)), initial=0)
        return list(pairwise(max(bound - len(prefix), 0) for bound in bounds))

    def adjust_offsets(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], matched: Mapping[int, bytes]
    ) -> NDArray[np.int64]:
        """Returns the spans to report, shape `(n, 2)`: without spaces if `trim_offsets` is set."""
        return (
            offsets
            if self.trim_offsets is None
            else self._token_spaces.trim_spans(ids, offsets, matched, self.trim_offsets)
        )

    @cached_property
    def _engine(self) -> array_engine.ArrayEngine:
        return array_engine.ArrayEngine(self.rules, PatternPreTokenizer(make_pattern_splitter(self.pattern)))

    @cached_property
    def rules(self) -> MergeRules:
        """Merge rules of the tokenizer, built when first used."""
        if self.merges is None:
            return make_rules_from_ranks(self.vocabulary.ordinary)
        return make_rules_from_merges(self.vocabulary.ordinary, self.merges, ignore_merges=self.ignore_merges)

    @cached_property
    def _token_spaces(self) -> TokenSpaces:
        return count_token_spaces(self.vocabulary)

    def _get_simple_text(self, text: Any) -> str | None:
        """Returns a text that can take the fast path for short texts, else `None`.

        The text must be short, unchanged by normalization, and free of characters that could begin a special
        or added token.
        """
        if type(self) is not ByteLevelBPE:
            return None  # a subclass may encode differently
        if not isinstance(text, str):
            if not isinstance(text, bytes):
                return None  # an error message follows
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError:
                return None
        if len(text) > array_engine.FEW_CHARACTERS or self.add_prefix_space:
            return None
        for beginning in self._special_beginnings:  # faster than any()
            if beginning in text:
                return None
        return text if text.isascii() or (self.normalizer is None and is_encodable(text)) else None

    @cached_property
    def _special_beginnings(self) -> tuple[str, ...]:
        return find_shared_prefixes(self.vocabulary.split_token_names)

    @cached_property
    def _template_ids(self) -> tuple[bytes, bytes]:
        """Ids that the template inserts before and after a text, as the bytes of `int32` arrays."""
        before, after = map(array_engine.ids_to_bytes, self.vocabulary.template_token_ids)
        return before, after

    def _to_fingerprint_json(self) -> Any:
        return replace(self, pattern=make_pattern_splitter(self.pattern).expression)

    def _get_repr_options(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("normalizer", "add_prefix_space", "trim_offsets")}
        repr_options = {"pattern": self.pattern} | {name: value for name, value in options.items() if value}
        if self.merges is not None:
            repr_options |= {"merges": len(self.merges), "ignore_merges": self.ignore_merges}
        return repr_options


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
    return make_byte_level_bpe(
        vocabulary,
        pattern,
        normalizer,
        merges=merges,
        ignore_merges=ignore_merges,
        add_prefix_space=add_prefix_space,
        trim_offsets=trim_offsets,
    )


@register_record(ByteLevelBPE)
def make_byte_level_bpe(
    vocabulary: Vocabulary,
    pattern: Pattern,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    *,
    merges: Sequence[tuple[bytes, bytes]] | None = None,
    ignore_merges: bool | None = None,
    add_prefix_space: bool = False,
    trim_offsets: TrimOffsets | None = None,
) -> ByteLevelBPE:
    """Makes a tokenizer from a vocabulary. The other arguments are those of `byte_level_bpe`.

    Raises:
        InvalidArgumentError: an argument is invalid.
    """
    missing = [i for i in range(256) if bytes([i]) not in vocabulary.ordinary]
    if missing:
        raise InvalidArgumentError(
            f"ranks must contain every single byte, and has no {bytes(missing[:1])!r} "
            f"({len(missing)} of 256 missing)"
        )
    check_choice("normalizer", normalizer, ("auto", "nfc", None))
    check_choice("trim_offsets", trim_offsets, TRIM_OFFSETS_VALUES)
    check_choice("ignore_merges", ignore_merges, (True, False, None))
    check_bool("add_prefix_space", add_prefix_space)
    if merges is None and ignore_merges is False:
        raise InvalidArgumentError(
            "ignore_merges=False needs merges; pass merges=[...], or leave ignore_merges out"
        )
    pattern = make_pattern_splitter(pattern).pattern
    if normalizer == "auto":
        normalizer = get_default_normalizer(pattern)
    tokenizer = ByteLevelBPE(
        vocabulary,
        pattern,
        normalizer,
        None if merges is None else parse_merge_pairs(merges, bytes),
        ignore_merges=merges is None if ignore_merges is None else ignore_merges,
        add_prefix_space=add_prefix_space,
        trim_offsets=trim_offsets,
    )
    tokenizer.rules  # noqa: B018 (raises if the merges are invalid)
    return tokenizer


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


@protocol.encode.register(ByteLevelBPE)
def _encode(
    tokenizer: ByteLevelBPE,
    text: Text,
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> NDArray[np.int32]:
    if allowed_special == () and disallowed_special == "all":
        simple = tokenizer._get_simple_text(text)
        if simple is not None:
            before, after = tokenizer._template_ids if add_special_tokens else (b"", b"")
            return array_engine.join_ids(tokenizer._engine.encode_short(simple, before, after))
    return encode_ids(
        tokenizer,
        text,
        add_special_tokens=add_special_tokens,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )


@protocol.encode_short_result.register(ByteLevelBPE)
def _encode_short_result(
    tokenizer: ByteLevelBPE, text: Text, *, add_special_tokens: bool, return_offsets: bool, return_masks: bool
) -> TokenizationResult | None:
    simple = tokenizer._get_simple_text(text)
    if simple is None:
        return None
    before, after = tokenizer._template_ids if add_special_tokens else (b"", b"")
    ids = array_engine.join_ids_read_only(tokenizer._engine.encode_short(simple, before, after))
    columns = ShortTextColumns(tokenizer, text, ids, add_special_tokens, return_offsets, return_masks)
    return make_result_without_copy(ids, tokenizer.result_metadata, columns)
