"""Base class of the built-in tokenizers: encodes text segments, then adds special tokens, offsets and masks.

A text is split at the special and added tokens that are matched in it. Each stretch of text between them is
a *segment*. The model encodes segments independently of one another. Assembly then builds the rows:

    text       "Hi<eos>you"
    segments   "Hi", "you"               encoded by the model
    matched    "<eos>"                   special token in the text
    row        <bos> Hi <eos> you        <bos> is inserted by the template

A model subclasses `SegmentModel` and implements `encode_segments`. Everything else is shared, and is in this
module and in `tokjax.models.assembly`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, Unpack

import numpy as np

from tokjax._util.atomic_files import compute_json_checksum
from tokjax._util.cache_exchange import is_copying_to_worker
from tokjax._util.checks import MANY_TEXTS_ADVICE, check_choice, check_text, check_texts
from tokjax._util.display import render_html
from tokjax._util.threads import resolve_num_threads
from tokjax.bpe.array_engine import join_ids
from tokjax.bpe.chunks import EncodedSegments, Segments, as_segments
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context, keep_last_visible_id
from tokjax.core.json_records import get_hints, is_record, list_choices, to_json_values
from tokjax.core.protocol import PreTokens, group_by_word, pre_tokenize
from tokjax.core.ragged import Ragged
from tokjax.core.records import ResultMetadata, TokenizationBatch, make_batch_without_copy
from tokjax.core.utf8 import (
    count_bytes,
    encode_segment,
    from_characters,
    to_characters,
)
from tokjax.core.vocabulary import drop_lookup_roles, share_names
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.assembly import (
    RowLayout,
    assemble,
    compute_concatenated_offsets,
    compute_offsets_from_spans,
    compute_word_ids,
    insert_around,
)
from tokjax.models.method_hints import MethodHints
from tokjax.pretokenize.special_tokens import (
    move_whitespace,
    reject_special_in_texts,
    resolve_special,
    split_at_special,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.encode_options import Special, SpecialOptions
    from tokjax.core.records import OffsetsReference
    from tokjax.core.template import Template
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.models.assembly import AssembledRows


_NOTHING = np.zeros(0, np.int64)
_SOURCE_COLUMNS = ("offsets", "word_ids", "sequence_ids")
_MASK_COLUMNS = ("special_tokens_mask", "token_type_ids")


class SegmentModel(MethodHints, ABC):
    """Base class of tokenizers that encode segments of ordinary text: frozen dataclasses with a vocabulary.

    A subclass implements `encode_segments`, and inherits `get_vocabulary`, `encode_texts` and all functions
    that are built on these, pickling and `fingerprint`. A subclass declared with
    `@dataclass(frozen=True, repr=False)` also inherits a `repr` with the vocabulary size and the special
    tokens. A subclass that normalizes texts also registers `normalize` and `map_offsets_to_input`.

    Attributes:
        model: name of the type of tokenizer, as in the metadata of results.
        vocabulary: token ids and token bytes.
    """

    model: ClassVar[str]
    vocabulary: Vocabulary
    _engine: Any
    """Engine of a subclass that does not implement `encode_segments`."""

    def replace_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Returns a copy with another vocabulary, or the tokenizer itself if it has this one."""
        return self if vocabulary is self.vocabulary else self._change(vocabulary=vocabulary)

    def _change(self, **values: Any) -> Self:
        """Returns a copy in which some fields have other values, which are known to be valid."""
        changed = object.__new__(type(self))
        vars(changed).update(self._get_fields() | values)
        return changed

    def _get_fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _to_fingerprint_json(self) -> Any:
        """Returns values that define the tokenizer; the fingerprint is their checksum.

        By default the tokenizer, as it is saved, or `None` for types that can't be saved: the fingerprint
        then covers the type and the vocabulary. Such a type with other options must override it, or
        tokenizers that differ only in these options get the same fingerprint. It is called on a copy of the
        tokenizer without `LOOKUP_ROLES`.
        """
        return self if is_record(self) else None

    def _get_repr_options(self) -> Mapping[str, Any]:
        """Returns the options that `repr` shows between the vocabulary size and the special tokens.

        By default, those that differ from their default. Of tuples with `repr=False`, it is the length.
        """
        values = {each: getattr(self, each.name) for each in fields(self)[1:]}  # type: ignore[arg-type]
        return {
            each.name: value if each.repr else len(value)
            for each, value in values.items()
            if value != each.default and (each.repr or isinstance(value, tuple))
        }

    @cached_property
    def _fingerprint(self) -> str:
        definition = self.replace_vocabulary(drop_lookup_roles(self.vocabulary))._to_fingerprint_json()
        if definition is None:
            return protocol.fingerprint.dispatch(object)(self)
        return compute_json_checksum(definition, to_json_values)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles and copies the dataclass fields, and leaves out cached properties.

        The copy of a worker process also gets the engine, whose tables take time to build.
        """
        state = self._get_fields()
        if is_copying_to_worker() and "_engine" in vars(self):
            state["_engine"] = vars(self)["_engine"]
        return state

    _repr_html_ = render_html

    def __repr__(self) -> str:
        """Returns the vocabulary size, the options and the special tokens."""
        options = "".join(f"{name}={value!r}, " for name, value in self._get_repr_options().items())
        return (
            f"{type(self).__name__}(vocab_size={self.vocabulary.size}, {options}"
            f"special_tokens={self.vocabulary.special_repr})"
        )

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            InvalidArgumentError: an option is none of the values that its annotation allows.
        """
        hints = get_hints(type(self))
        for field in fields(self):  # type: ignore[arg-type]
            if choices := list_choices(hints[field.name]):
                check_choice(field.name, getattr(self, field.name), choices)

    @property
    def why_no_pretokens(self) -> str:
        """Reason for which `pre_tokenize` raises an error; empty if the word ids number pre-tokens."""
        return "it encodes a text as a whole"

    @property
    def normalization(self) -> str | None:
        """Name of the normalization that is applied before a text is split, or `None`."""
        return None

    @property
    def offsets_reference(self) -> OffsetsReference:
        """The text that offsets refer to: the input text, or the output of `normalize`.

        By default, the input text if the tokenizer does not normalize. A model that normalizes inside
        `encode_segments`, and returns spans in the original segments, overrides this with `"input_text"`.
        """
        return "input_text" if self.normalization is None else "tokenizer_normalized_text"

    @property
    def made_names(self) -> frozenset[str]:
        """Special tokens that the model can make of text, other than the unknown token."""
        return self.vocabulary.unmatched_names

    @property
    def text_byte_lengths(self) -> NDArray[np.int64]:
        """Number of text bytes per token id, `int64`, shape `(size,)`.

        It is used where the model returns no spans.
        """
        return self.vocabulary.byte_lengths

    @cached_property
    def _normalized_names(self) -> Mapping[str, str]:
        """Special tokens that normalization changes as ordinary text, such as `[CLS]` to `[cls]`.

        Offsets refer to the result of `normalize`, which leaves out special tokens. So this has only those
        whose number of bytes does not change.
        """
        names = self.vocabulary.special_names
        normalized = {name: "".join(_normalize_piece(self, part, False) for part in name) for name in names}
        changed = {old: new for old, new in normalized.items() if old != new}
        return {old: new for old, new in changed.items() if count_bytes(old) == count_bytes(new)}

    @cached_property
    def result_metadata(self) -> ResultMetadata:
        """Metadata of results, unless a caller passes normalized texts."""
        return ResultMetadata(self.model, self.normalization, self.offsets_reference)

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another.

        Args:
            segments: segments of text, already normalized.
            threads: number of threads.
            sources: whether to compute word beginnings and spans, which offsets and word ids need.
        """
        encoded: EncodedSegments = self._engine.encode_segments(segments, threads, sources=sources)
        return encoded

    def encode_short(
        self,
        text: Any,  # noqa: ARG002 (used by overriding methods)
        *,
        add_special_tokens: bool,  # noqa: ARG002
    ) -> list[bytes] | None:
        """Returns the ids of a short text for `join_ids`, or `None` if another path has to encode it."""
        return None

    @property
    def symbols(self) -> frozenset[str]:
        """Names of tokens that the model itself matches in any segment. By default there are none."""
        return frozenset()

    @property
    def matched_special(self) -> frozenset[str]:
        """Special tokens that the model itself matches in segments. By default there are none."""
        return frozenset()

    def match_less(self, names: frozenset[str]) -> Self:  # noqa: ARG002 (used by overriding methods)
        """Returns a tokenizer that does not match some of `matched_special`."""
        return self

    def find_split_names(self, allowed: frozenset[str]) -> frozenset[str]:
        """Returns the special and added tokens at which texts are split; the model gets what is between them.

        Returns a cached set of the vocabulary where possible, so that the caches of that set are used.

        Args:
            allowed: special tokens to recognize.
        """
        vocabulary = self.vocabulary
        if not allowed:
            return vocabulary.added_names
        names = (
            vocabulary.split_token_names
            if allowed == vocabulary.special_names
            else allowed | vocabulary.added_names
        )
        return share_names(names - vocabulary.unmatched_names if vocabulary.unmatched_names else names)

    def select_encoder(
        self,
        allowed_special: Special = (),
        disallowed_special: Special = "all",  # noqa: ARG002 (used by overriding methods)
    ) -> Callable[..., EncodedSegments]:
        """Returns `encode_segments` of the tokenizer that `select_model` returns."""
        return self.select_model(allowed_special).encode_segments

    def select_model(self, allowed_special: Special) -> Self:
        """Returns the tokenizer that encodes segments: one that makes no special token that is not allowed.

        Args:
            allowed_special: special tokens to recognize, names or `"all"`.
        """
        names = self.matched_special
        if not names:  # the most frequent case
            return self
        excluded = names.difference(names if allowed_special == "all" else allowed_special)
        if not excluded:
            return self
        kept: tuple[frozenset[str], Self] | None = vars(self).get("_model_without")
        if kept is None or kept[0] != excluded:
            # Only one is kept, since usually all special tokens are allowed, or none.
            kept = vars(self)["_model_without"] = excluded, self.match_less(excluded)
        return kept[1]

    def adjust_offsets(
        self,
        ids: NDArray[np.int32],  # noqa: ARG002 (used by overriding methods)
        offsets: NDArray[np.int64],
        matched: Mapping[int, bytes],  # noqa: ARG002 (same reason)
    ) -> NDArray[np.int64]:
        """Returns the spans to report for tokens; by default, those of the bytes that the tokens stand for.

        Args:
            ids: token ids, inserted tokens included, `int32`, shape `(n,)`.
            offsets: 1-based half-open byte spans of the tokens, `int64`, shape `(n, 2)`.
            matched: position of each special or added token that was matched in a text, mapped to the bytes
                of its span.
        """
        return offsets


@protocol.get_vocabulary.register(SegmentModel)
def _vocabulary(tokenizer: SegmentModel) -> Vocabulary:
    return tokenizer.vocabulary


@protocol.fingerprint.register(SegmentModel)
def _fingerprint(tokenizer: SegmentModel) -> str:
    return tokenizer._fingerprint


class JoiningModel(SegmentModel):
    """Base class of tokenizers whose decoding does more than to concatenate tokens."""

    @abstractmethod
    def join_tokens(self, ids: list[int]) -> bytes:
        """Returns the text of tokens, at least one."""

    @property
    def is_skipped(self) -> NDArray[np.bool_]:
        """Mask of the ids that decoding with `skip_special_tokens` leaves out, `bool`, shape `(size,)`."""
        return self.vocabulary.is_skipped


@protocol.decode_bytes.register(JoiningModel)
def _decode_bytes(tokenizer: JoiningModel, ids: ArrayLike, *, skip_special_tokens: bool = False) -> bytes:
    flat = protocol.as_flat_ids(ids)
    tokenizer.vocabulary.check_ids(flat)
    if skip_special_tokens:
        flat = flat[~tokenizer.is_skipped.take(flat)]
    return tokenizer.join_tokens(flat.tolist()) if len(flat) else b""


find_decode_context.register(JoiningModel)(keep_last_visible_id)


class SplitRows(NamedTuple):
    """Texts split at special and added tokens.

    Attributes:
        segments: ordinary text of all rows, in order.
        rows: special and added tokens between and around the segments.
        matched: bytes of text that each matched token spans, in the order of `rows.matched_ids`.
    """

    segments: Segments
    rows: RowLayout
    matched: Sequence[bytes] = ()


def split_rows(
    tokenizer: SegmentModel,
    texts: Sequence[Text],
    *,
    add_special_tokens: bool,
    assume_normalized: bool = False,
    **special: Unpack[SpecialOptions],
) -> SplitRows:
    """Splits texts at special and added tokens.

    Args:
        tokenizer: tokenizer that will encode the segments.
        texts: texts, one per row.
        add_special_tokens: whether to insert the special tokens of the template.
        assume_normalized: whether the texts are normalized already.
        **special: `allowed_special` and `disallowed_special`, as in `encode_batch_result`.

    Raises:
        DisallowedSpecialTokenError: a text contains a disallowed special token.
    """
    vocabulary = tokenizer.vocabulary
    allowed, disallowed = resolve_special(vocabulary.special_names, **special)
    has_view = tokenizer.offsets_reference == "tokenizer_normalized_text"
    ordinary_names = vocabulary.special_names - allowed - disallowed if has_view else frozenset()
    segments = as_segments(texts)
    reject_special_in_texts(segments.texts, disallowed)
    before, after = vocabulary.template_token_ids if add_special_tokens else ((), ())
    names: list[str] = []
    matched_texts: list[str] = []
    per_row = np.zeros(len(texts), np.int64)
    if split_names := tokenizer.find_split_names(allowed):
        # Each text becomes a list [segment, token, segment, token, ..., segment].
        pieces = [split_at_special(text, split_names) for text in segments.texts]
        names = [name for row in pieces for name in row[1::2]]
        pieces = [move_whitespace(row, vocabulary.added_tokens) for row in pieces]
        matched_texts = [piece for row in pieces for piece in row[1::2]]
        per_row = np.array([len(row) // 2 for row in pieces], np.int64)
        begins_text = np.zeros(len(names) + len(per_row), bool)
        begins_text[np.cumsum(per_row + 1) - per_row - 1] = True
        segment_texts = [piece for row in pieces for piece in row[::2]]
        segments = segments._replace(texts=segment_texts, begins_text=begins_text)
    if has_view and not assume_normalized:
        normalize = partial(_normalize_piece, tokenizer, hold_bytes=segments.hold_bytes)
        segments = segments._replace(texts=list(map(normalize, segments.texts)))
        matched_texts = list(map(normalize, matched_texts))
    segments = _normalize_names(tokenizer, segments, ordinary_names)
    if not names:
        return SplitRows(segments, RowLayout(_NOTHING, _NOTHING, per_row, before, after))
    matched = [encode_segment(text, segments.hold_bytes) for text in matched_texts]
    ids, nbytes = [*map(vocabulary.get_id, names)], [*map(len, matched)]
    rows = RowLayout(np.array(ids, np.int64), np.array(nbytes, np.int64), per_row, before, after)
    return SplitRows(segments, rows, matched)


def _normalize_piece(tokenizer: SegmentModel, piece: str, hold_bytes: bool) -> str:
    """Normalizes a piece of a text, except for the special tokens in it."""
    if not hold_bytes:
        return protocol.normalize(tokenizer, piece)  # type: ignore[return-value]
    return to_characters(protocol.normalize(tokenizer, from_characters(piece)))


def _normalize_names(tokenizer: SegmentModel, segments: Segments, names: frozenset[str]) -> Segments:
    """Normalizes special tokens that are ordinary text in these segments, which `normalize` leaves out."""
    changed = {old: new for old, new in tokenizer._normalized_names.items() if old in names} if names else {}
    if not changed:
        return segments
    rows = (split_at_special(text, frozenset(changed)) for text in segments.texts)
    return segments._replace(texts=["".join(changed.get(piece, piece) for piece in row) for row in rows])


def _reject_made_tokens(
    tokenizer: SegmentModel, ids: NDArray[np.int32], **special: Unpack[SpecialOptions]
) -> None:
    """Raises an error if the model has made a special token of text that is not allowed."""
    vocabulary, names = tokenizer.vocabulary, tokenizer.made_names
    if not names or not (is_special := vocabulary.is_special.take(ids)).any():
        return
    allowed, disallowed = resolve_special(vocabulary.special_names, **special)
    made = set(ids[is_special].tolist()) - {vocabulary.special[name] for name in allowed}
    for name in sorted(names - allowed):
        if vocabulary.get_id(name) not in made:
            continue
        if name in disallowed and name not in vocabulary.unmatched_names:
            raise DisallowedSpecialTokenError(
                f"a text becomes the special token {name!r} when it is normalized, which is not allowed; to "
                f"match it, pass allowed_special={{{name!r}}}"
            )
        raise InvalidArgumentError(
            f"a text contains {name!r}, which this model encodes as a special token even where ordinary "
            "text is requested; allow it with allowed_special=, or disallow it"
        )


@protocol.find_matched_names.register(SegmentModel)
def _find_matched_names(tokenizer: SegmentModel) -> frozenset[str]:
    return tokenizer.vocabulary.added_names | tokenizer.symbols


@protocol.make_special.register(SegmentModel)
def _make_special(tokenizer: SegmentModel, names: frozenset[str]) -> SegmentModel:
    old = tokenizer.vocabulary
    ids = {name: old.get_id(name) for name in names}
    moved = set(ids.values())
    duplicates = {name: id_ for name, id_ in old.duplicate_token_ids.items() if name not in names}
    duplicates |= {name: ids[name] for name in names & tokenizer.symbols}
    ordinary = {token: id_ for token, id_ in old.ordinary.items() if id_ not in moved}
    special = {**old.special, **ids}
    vocabulary = old.change(ordinary=ordinary, special=special, duplicate_token_ids=duplicates)
    if merges := getattr(tokenizer, "merges", None):  # text must not become one of them
        forms = {*names, *map(str.encode, names)}
        kept = tuple(each for each in merges if forms.isdisjoint((*each, each[0] + each[1])))
        tokenizer = tokenizer._change(merges=kept)
    return tokenizer.replace_vocabulary(vocabulary)


@protocol.encode_texts.register(SegmentModel)
def _encode_texts(
    tokenizer: SegmentModel,
    texts: Sequence[Text],
    *,
    add_special_tokens: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,
    threads: int | None = None,
    **special: Unpack[SpecialOptions],
) -> TokenizationBatch:
    check_texts(texts)
    split = split_rows(
        tokenizer,
        texts,
        add_special_tokens=add_special_tokens,
        assume_normalized=assume_normalized,
        **special,
    )
    num_threads = resolve_num_threads(threads)
    encode_segments = tokenizer.select_encoder(**special)
    encoded = encode_segments(split.segments, num_threads, sources=bool(return_offsets))
    _reject_made_tokens(tokenizer, encoded.ids, **special)
    return make_batch(
        tokenizer,
        split,
        encoded,
        return_offsets=return_offsets,
        return_masks=return_masks,
        assume_normalized=assume_normalized,
        threads=num_threads,
    )


@protocol.encode.register(SegmentModel)
def encode_ids(
    tokenizer: SegmentModel,
    text: Text,
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> NDArray[np.int32]:
    """Encodes one text to ids, as `encode` does, without building a batch and its records."""
    if allowed_special == () and disallowed_special == "all":
        short = tokenizer.encode_short(text, add_special_tokens=add_special_tokens)
        if short is not None:
            return join_ids(short)
    check_text(text, "text", MANY_TEXTS_ADVICE)
    special: Any = {"allowed_special": allowed_special, "disallowed_special": disallowed_special}
    if protocol.encode_texts.dispatch(type(tokenizer)) is not _encode_texts:
        encode = protocol.encode.dispatch(object)
        return encode(tokenizer, text, add_special_tokens=add_special_tokens, **special)
    segments, rows, _ = split_rows(tokenizer, [text], add_special_tokens=add_special_tokens, **special)
    encoded = tokenizer.select_encoder(allowed_special, disallowed_special)(segments, sources=False)
    _reject_made_tokens(tokenizer, encoded.ids, **special)
    if len(segments.texts) == 1 and not rows.before and not rows.after:
        return encoded.ids
    return insert_around(encoded.ids, rows) if len(segments.texts) == 1 else assemble(encoded, rows).ids


@pre_tokenize.register(SegmentModel)
def _pre_tokenize(tokenizer: SegmentModel, text: Text, **special: Any) -> PreTokens:
    if tokenizer.why_no_pretokens:
        raise UnsupportedTokenizerError(
            f"a {type(tokenizer).__name__} has no pre-tokens: {tokenizer.why_no_pretokens}; the word_ids of "
            "encode_result number the words of a text for every tokenizer"
        )
    return group_by_word(tokenizer, text, **special)


def make_batch(
    tokenizer: SegmentModel,
    split: SplitRows,
    encoded: EncodedSegments,
    *,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,
    threads: int = 1,
) -> TokenizationBatch:
    """Makes a batch from rows whose segments were encoded.

    Args:
        tokenizer: tokenizer that encoded the segments.
        split: rows, split into segments.
        encoded: ids of the segments, with their sources if `return_offsets`.
        return_offsets: as in `encode_batch_result`.
        return_masks: as in `encode_batch_result`.
        assume_normalized: as in `encode_batch_result`.
        threads: number of threads.
    """
    assembled = assemble(encoded, split.rows)
    nbytes = np.zeros(0, np.int64)
    if return_offsets and encoded.spans is not None and split.matched:
        nbytes = np.fromiter(map(len, split.segments.encode()), np.int64)
    metadata = tokenizer.result_metadata
    if assume_normalized:
        metadata = dataclasses.replace(metadata, offsets_reference="input_text")
    return make_batch_without_copy(
        Ragged(assembled.ids, assembled.row_splits),
        metadata,
        tokenizer.vocabulary.get_token_strings,
        has_attention_mask=return_masks,
        lazy=(_SOURCE_COLUMNS if return_offsets else ()) + (_MASK_COLUMNS if return_masks else ()),
        compute=_Columns(tokenizer, split.rows, split.matched, encoded, assembled, nbytes, threads).compute,
    )


class _Columns(NamedTuple):
    """Columns of a batch, which are computed when they are first read. The texts are not needed any more.

    Attributes:
        tokenizer: tokenizer that encoded the segments.
        rows: special and added tokens between and around the segments.
        matched: bytes of text that each matched token spans.
        encoded: ids of the segments, with their sources if these are columns.
        assembled: ids of all rows.
        nbytes: number of bytes of each segment, if its ids have spans and tokens were matched.
        threads: number of threads.
    """

    tokenizer: SegmentModel
    rows: RowLayout
    matched: Sequence[bytes]
    encoded: EncodedSegments
    assembled: AssembledRows
    nbytes: NDArray[np.int64]
    threads: int

    def compute(self, name: str) -> NDArray[Any]:
        """Computes a column, shape `(n,)`, or `(n, 2)` for offsets."""
        if name == "offsets":
            return self._compute_offsets()
        if name == "word_ids":
            assert self.encoded.begins_word is not None
            return compute_word_ids(self.assembled, self.encoded.begins_word)
        if name == "token_type_ids":
            return _compute_type_ids(self.tokenizer.vocabulary.template, self.rows, self.assembled)
        column = np.zeros(len(self.assembled.ids), np.int32)  # sequence ids
        if name == "special_tokens_mask":  # ids of ordinary text can be special too: `[UNK]` is
            column += self.tokenizer.vocabulary.is_special.take(self.assembled.ids)
        column[self.assembled.inserted_positions] = 1 if name == "special_tokens_mask" else -1
        return column

    def _compute_offsets(self) -> NDArray[np.int64]:
        assembled, encoded, rows = self.assembled, self.encoded, self.rows
        if encoded.spans is None:
            nbytes = self.tokenizer.text_byte_lengths
            offsets = compute_concatenated_offsets(assembled, encoded.lengths, rows, nbytes, self.threads)
        else:
            offsets = compute_offsets_from_spans(assembled, encoded, rows, self.nbytes)
        matched = dict(zip(assembled.matched_positions.tolist(), self.matched, strict=True))
        return self.tokenizer.adjust_offsets(assembled.ids, offsets, matched)


def _compute_type_ids(template: Template, rows: RowLayout, assembled: AssembledRows) -> NDArray[np.int32]:
    """Computes token type ids of texts and of the template's tokens around them, `int32`, shape `(n,)`."""
    before, after = template.around_text
    token_type_ids = np.full(len(assembled.ids), template.single[len(before)].type_id, np.int32)
    if len(assembled.inserted_positions):
        inserted = np.array([piece.type_id for piece in (*before, *after)])
        token_type_ids[assembled.inserted_positions] = np.tile(inserted, len(rows.matched_per_row))
    return token_type_ids
