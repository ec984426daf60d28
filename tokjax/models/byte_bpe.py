"""Byte-level BPE: any text is encoded, nothing is unknown, and decoding gives the same bytes back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax.bpe import array_engine
from tokjax.bpe.merge_rules import (
    MergeRules,
    make_rules_from_merges,
    make_rules_from_ranks,
    parse_merge_pairs,
)
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.core import protocol
from tokjax.core.utf8 import is_encodable
from tokjax.core.vocabulary import (
    AddedToken,
    Vocabulary,
    make_vocabulary,
    vocabulary_from_json,
    vocabulary_to_json,
)
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.models.added_spaces import (
    TRIM_OFFSETS_VALUES,
    TokenSpaces,
    TrimOffsets,
    compute_prefix_corrections,
    count_token_spaces,
    prepend_spaces,
)
from tokjax.models.base import SegmentModel, encode_ids
from tokjax.models.format_errors import as_format_errors
from tokjax.pretokenize.patterns import make_pattern_splitter
from tokjax.pretokenize.special_tokens import check_special_names, find_shared_prefixes
from tokjax.pretokenize.unicode_normalization import align_nfc, map_spans_back, to_nfc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text

Normalizer = Literal["nfc"]
_DEFAULTS: dict[str, Any] = {
    "merges": None,
    "ignore_merges": True,
    "add_prefix_space": False,
    "trim_offsets": None,
}


@dataclass(frozen=True, repr=False)
class ByteLevelBPE(SegmentModel):
    """A byte-level BPE tokenizer. Make one with `byte_level_bpe`; use it through the generic functions.

    Equal tokenizers have equal vocabularies, patterns and normalizers. It pickles without its caches, and
    threads can share it.

    Attributes:
        vocabulary: ids and bytes; an ordinary token's id is its rank.
        pattern: the name of a published split pattern, or a regular expression.
        normalizer: `"nfc"` if texts are normalised before they are split (special tokens in them are kept as
            they are), else `None`.
        merges: the pairs of tokens that merge, in order; `None` if any two do that make a token, the lowest
            id first.
        ignore_merges: whether a word that is a token is that token even if merging would not arrive there.
        add_prefix_space: whether a blank is put before text that does not begin with one: before a whole text,
            and behind each special token that is found.
        trim_offsets: which spans leave out the blanks at the ends of a token: `"all"`, or `"but_first"` for all but
            those of a token at the beginning of a text that begins with one blank; `None` for none.
    """

    model = "byte_level_bpe"

    vocabulary: Vocabulary
    pattern: str
    normalizer: Normalizer | None = None
    merges: tuple[tuple[bytes, bytes], ...] | None = field(default=None, repr=False)
    ignore_merges: bool = True
    add_prefix_space: bool = False
    trim_offsets: TrimOffsets | None = None

    @property
    def normalization(self) -> str | None:
        """What is done to a text before it is split."""
        return self.normalizer

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encode stretches of ordinary text, each on its own, normalised already."""
        if not self.add_prefix_space:
            return self._engine.encode_segments(segments, threads, begins_word=sources)
        split = prepend_spaces(segments)
        encoded = self._engine.encode_segments(split, threads, begins_word=sources)
        if not sources:
            return encoded
        corrections = compute_prefix_corrections(encoded, segments, split, self.vocabulary.byte_lengths)
        return encoded._replace(corrections=corrections)

    def adjust_offsets(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], found: Mapping[int, bytes]
    ) -> NDArray[np.int64]:
        """Returns spans of shape `(n, 2)`, without spaces if they are to be trimmed."""
        return (
            offsets
            if self.trim_offsets is None
            else self._token_spaces.trim_spans(ids, offsets, found, self.trim_offsets)
        )

    @cached_property
    def _engine(self) -> array_engine.ArrayEngine:
        return array_engine.ArrayEngine(self.rules, PatternPreTokenizer(make_pattern_splitter(self.pattern)))

    @cached_property
    def rules(self) -> MergeRules:
        """What merges."""
        if self.merges is None:
            return make_rules_from_ranks(self.vocabulary.ordinary)
        return make_rules_from_merges(self.vocabulary.ordinary, self.merges, ignore_merges=self.ignore_merges)

    @cached_property
    def _token_spaces(self) -> TokenSpaces:
        return count_token_spaces(self.vocabulary)

    def _get_simple_text(self, text: Text) -> str | None:
        """The text itself if it is short, nothing changes it, and no special token can be in it."""
        if len(text) > array_engine.FEW_CHARACTERS or self.add_prefix_space:
            return None
        if isinstance(text, bytes):
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError:
                return None
        for beginning in self._special_beginnings:  # (quicker than any())
            if beginning in text:
                return None
        return text if text.isascii() or (self.normalizer is None and is_encodable(text)) else None

    @cached_property
    def _special_beginnings(self) -> tuple[str, ...]:
        return find_shared_prefixes(self.vocabulary.split_token_names)

    def _described(self) -> Any:
        return to_json(self) | {"pattern": make_pattern_splitter(self.pattern).expression}

    def _shown(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("normalizer", "add_prefix_space", "trim_offsets")}
        shown = {"pattern": self.pattern} | {name: value for name, value in options.items() if value}
        if self.merges is not None:
            shown |= {"merges": len(self.merges), "ignore_merges": self.ignore_merges}
        return shown


def byte_level_bpe(
    ranks: Mapping[bytes, int],
    *,
    pattern: str = "gpt2",
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
    """A byte-level BPE tokenizer from ranks and a pattern; its ids are tiktoken's for the same two.

    With `merges` they are those of Hugging Face's tokenizers.

    Args:
        ranks: bytes to id, every single byte among them; of two merges, the lower id comes first, unless
            `merges` says otherwise.
        pattern: `"gpt2"`, `"cl100k"`, `"o200k"`, `"llama3"`, `"qwen2"`, `"tekken"`, `"whitespace"`, or a
            regular expression. Text that an expression leaves unmatched is split off as words of its own.
        special_tokens: name to id. They are never merged, and never made from text that is not allowed to.
        bos_token: which special token begins a text, if any.
        eos_token: which special token ends a text, if any.
        pad_token: which special token pads a batch, if any.
        unk_token: which special token stands for the unknown, if any; byte-level encoding never makes it.
        normalizer: `"nfc"`, `None`, or `"auto"`: `"nfc"` for `"qwen2"`, whose published tokenizer does so,
            and `None` for all others.
        merges: the pairs of tokens that merge, in order; `None` if any two do that make a token.
        ignore_merges: whether a word that is a token is that token even if merging would not arrive there (as
            `ignore_merges` in a `tokenizer.json`). `None` for yes without `merges`, and no with them.
        add_prefix_space: whether a blank is put before text that does not begin with one.
        trim_offsets: which spans leave out the blanks at the ends of a token: `"all"`, or `"but_first"` for all but
            those of a token at the beginning of a text that begins with one blank; `None` for none.
        added_tokens: tokens of `ranks`, as text, that are found in a text wherever they stand, before it is
            split.

    Raises:
        InvalidArgumentError: a single byte without a rank, an id that is used twice, a role for a token
            that is not special, a pattern that is neither a name nor an expression, or merges that make no
            sense.

    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)} | {b"he": 256, b"llo": 257})
    >>> protocol.encode(tokenizer, "he!").tolist()
    [256, 33]
    """
    if not isinstance(ranks, Mapping):
        raise InvalidArgumentError(f"ranks must map tokens to ids, not be a {type(ranks).__name__}")
    table = make_vocabulary(
        ranks,
        special_tokens,
        {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token},
        added_tokens=dict.fromkeys(check_special_names(added_tokens, "added_tokens"), AddedToken()),
    )
    return make_byte_level_bpe(
        table,
        pattern,
        normalizer,
        merges=merges,
        ignore_merges=ignore_merges,
        add_prefix_space=add_prefix_space,
        trim_offsets=trim_offsets,
    )


def to_json(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    """What defines the tokenizer, as plain JSON values, bytes in base64."""
    table = tokenizer.vocabulary
    options = {
        "merges": None if tokenizer.merges is None else [_as_ids(table, pair) for pair in tokenizer.merges],
        "ignore_merges": tokenizer.ignore_merges,
        "add_prefix_space": tokenizer.add_prefix_space,
        "trim_offsets": tokenizer.trim_offsets,
    }
    return {
        "model": ByteLevelBPE.model,
        "pattern": tokenizer.pattern,
        "normalizer": tokenizer.normalizer,
        "ranks": [
            [base64.b64encode(token).decode("ascii"), id_]
            for token, id_ in sorted(table.ordinary.items(), key=lambda item: item[1])
        ],
        **vocabulary_to_json(table),
        **{name: value for name, value in options.items() if value != _DEFAULTS[name]},
    }


def from_json(described: Mapping[str, Any]) -> ByteLevelBPE:
    """The tokenizer that `to_json` described.

    Raises:
        TokenizerFormatError: a field is missing or of the wrong type, or the values make no tokenizer.
    """
    with as_format_errors():
        ranks = {base64.b64decode(token, validate=True): id_ for token, id_ in described["ranks"]}
        if len(ranks) != len(described["ranks"]):
            raise TokenizerFormatError("a token stands twice in 'ranks'")
        table = vocabulary_from_json(ranks, described)
        options = _DEFAULTS | {name: described[name] for name in _DEFAULTS if name in described}
        if options["merges"] is not None:
            options["merges"] = [(table.get_bytes(a), table.get_bytes(b)) for a, b in options["merges"]]
        if described["normalizer"] == "auto":
            raise TokenizerFormatError("normalizer must be 'nfc' or null, not 'auto'")
        return make_byte_level_bpe(table, described["pattern"], described["normalizer"], **options)


def make_byte_level_bpe(
    vocabulary: Vocabulary,
    pattern: str,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    *,
    merges: Sequence[tuple[bytes, bytes]] | None = None,
    ignore_merges: bool | None = None,
    add_prefix_space: bool = False,
    trim_offsets: TrimOffsets | None = None,
) -> ByteLevelBPE:
    """The tokenizer of a vocabulary that is there already. The arguments are those of `byte_level_bpe`.

    Raises:
        InvalidArgumentError: they make no sense.
    """
    missing = [i for i in range(256) if bytes([i]) not in vocabulary.ordinary]
    if missing:
        raise InvalidArgumentError(
            f"ranks must hold every single byte, and has none for {bytes(missing[:1])!r} "
            f"({len(missing)} of 256 missing)"
        )
    if normalizer not in ("auto", "nfc", None):
        raise InvalidArgumentError(f"normalizer must be 'auto', 'nfc' or None, not {normalizer!r}")
    if trim_offsets not in TRIM_OFFSETS_VALUES:
        raise InvalidArgumentError(f"trim_offsets must be 'all', 'but_first' or None, not {trim_offsets!r}")
    for name, value in (("ignore_merges", ignore_merges), ("add_prefix_space", add_prefix_space)):
        if value not in (None, True, False) or (name == "add_prefix_space" and not isinstance(value, bool)):
            raise InvalidArgumentError(f"{name} must be True or False, not {value!r}")
    if merges is None and ignore_merges is False:
        raise InvalidArgumentError("ignore_merges=False needs merges: without them any token stays whole")
    make_pattern_splitter(pattern)
    if normalizer == "auto":
        normalizer = "nfc" if pattern == "qwen2" else None
    tokenizer = ByteLevelBPE(
        vocabulary,
        pattern,
        normalizer,
        None if merges is None else parse_merge_pairs(merges, bytes),
        ignore_merges=merges is None if ignore_merges is None else ignore_merges,
        add_prefix_space=add_prefix_space,
        trim_offsets=trim_offsets,
    )
    tokenizer.rules  # noqa: B018 (an error where merges make no sense)
    return tokenizer


def _as_ids(vocabulary: Vocabulary, pair: tuple[bytes, bytes]) -> list[int]:
    return [vocabulary.ordinary[part] for part in pair]


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
    plain = allowed_special == () and disallowed_special == "all"
    simple = tokenizer._get_simple_text(text) if plain and isinstance(text, (str, bytes)) else None
    if simple is not None:
        ids = tokenizer._engine.encode_short(simple)
        before, after = tokenizer.vocabulary.template_token_ids if add_special_tokens else ((), ())
        return np.array([*before, *ids.tolist(), *after], np.int32) if before or after else ids
    return encode_ids(
        tokenizer,
        text,
        add_special_tokens=add_special_tokens,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
