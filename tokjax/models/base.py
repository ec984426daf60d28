"""What all models of tokjax's own have in common: they encode ordinary text, and the rest is put around it.

Special tokens are found in the text, or refused, or inserted; rows are put together; offsets and masks are
made: here, once, for every model.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, Unpack

import numpy as np

from tokjax._util.checks import MANY_TEXTS_ADVICE, check_text, check_texts
from tokjax._util.threads import resolve_num_threads
from tokjax.bpe.chunks import as_segments
from tokjax.core import protocol
from tokjax.core.ragged import Ragged
from tokjax.core.records import ResultMetadata, TokenizationBatch, make_batch_without_copy
from tokjax.core.template import Template, make_template
from tokjax.core.utf8 import count_bytes, from_characters, to_characters, to_utf8
from tokjax.errors import UnsupportedTokenizerError
from tokjax.models.assembly import (
    RowLayout,
    assemble,
    compute_concatenated_sources,
    compute_sources_from_spans,
)
from tokjax.models.tokenizer_record import TokenizerRecord
from tokjax.pretokenize.special_tokens import (
    move_white_space,
    reject_special_in_texts,
    resolve_special,
    split_at_special,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.core.encode_options import SpecialOptions
    from tokjax.core.protocol import Special
    from tokjax.core.records import OffsetsReference
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.models.assembly import AssembledRows


class SegmentModel(TokenizerRecord, ABC):
    """A tokenizer that says what becomes of ordinary text.

    A type that inherits from it has `get_vocabulary`, `encode_texts` and all that follows from them.
    One that normalises texts also registers `normalize` and `map_offsets_to_input`.

    Attributes:
        model: the kind of tokenizer, as its results' metadata name it.
        vocabulary: ids and bytes.
    """

    model: ClassVar[str]

    @property
    def normalization(self) -> str | None:
        """What is done to a text before it is split, in a word; `None` if nothing is."""
        return None

    @property
    def offsets_reference(self) -> OffsetsReference:
        """What offsets are places in: the text as given, or as `normalize` gives it.

        A model that normalises segments by itself, and whose spans are of the segments as they were, says
        `"input_text"`.
        """
        return "input_text" if self.normalization is None else "tokenizer_normalized_text"

    @property
    def lengths_in_text(self) -> NDArray[np.int64]:
        """How many bytes of a text each id is, where models give no spans: `int64`, shape `(size,)`."""
        return self.vocabulary.byte_lengths

    @abstractmethod
    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encode stretches of ordinary text, each on its own, normalised already.

        Args:
            segments: what to encode.
            threads: how many share the work.
            sources: whether to tell which ids begin a word, and of which bytes each is.
        """

    def adjust_offsets(
        self,
        ids: NDArray[np.int32],  # noqa: ARG002 (models that override this look at them)
        offsets: NDArray[np.int64],
        found: Mapping[int, bytes],  # noqa: ARG002 (likewise)
    ) -> NDArray[np.int64]:
        """Returns the spans that tokens are given: by default, those of the bytes that they are made of.

        Args:
            ids: of all tokens, inserted ones among them, `int32`, shape `(n,)`.
            offsets: their 1-based spans, `int64`, shape `(n, 2)`.
            found: positions of special and added tokens that were found in a text, and the bytes of their
                spans.
        """
        return offsets


class SplitRows(NamedTuple):
    """Texts, parted at special and added tokens.

    Attributes:
        segments: the ordinary text of all rows.
        rows: the tokens between and around the segments.
        found: the bytes of text that each token between the segments spans.
    """

    segments: Segments
    rows: RowLayout
    found: Sequence[bytes] = ()


def split_rows(
    tokenizer: SegmentModel,
    texts: Sequence[Text],
    *,
    add_special_tokens: bool,
    assume_normalized: bool = False,
    **special: Unpack[SpecialOptions],
) -> SplitRows:
    """The segments of ordinary text of all rows, and the tokens between and around them.

    Raises:
        DisallowedSpecialTokenError: a text holds a special token that is disallowed.
    """
    table = tokenizer.vocabulary
    allowed, disallowed = resolve_special(table.special_names, **special)
    normalizes = tokenizer.offsets_reference == "tokenizer_normalized_text" and not assume_normalized
    segments = as_segments(texts)
    reject_special_in_texts(segments.texts, disallowed)
    before, after = table.template_token_ids if add_special_tokens else ((), ())
    split_token_names = _get_split_tokens(table, allowed)
    if not split_token_names:
        if normalizes:
            segments = as_segments([protocol.normalize(tokenizer, text) for text in texts])
        nothing = np.zeros(0, np.int64)
        return SplitRows(segments, RowLayout(nothing, nothing, np.zeros(len(texts), np.int64), before, after))
    pieces = [split_at_special(text, split_token_names) for text in segments.texts]
    found_ids = np.array([table.get_id(name) for row in pieces for name in row[1::2]], np.int64)
    if table.added_tokens:
        pieces = [move_white_space(row, table.added_tokens) for row in pieces]
    if normalizes:
        pieces = [
            [_normalize_piece(tokenizer, piece, segments.hold_bytes) for piece in row] for row in pieces
        ]
    as_bytes = from_characters if segments.hold_bytes else to_utf8
    found = [as_bytes(piece) for row in pieces for piece in row[1::2]]
    per_row = np.array([len(row) // 2 for row in pieces], np.int64)
    begins_text = np.zeros(int(per_row.sum()) + len(per_row), bool)
    begins_text[np.cumsum(per_row + 1) - per_row - 1] = True
    stretches = [piece for row in pieces for piece in row[::2]]
    segments = segments._replace(texts=stretches, begins_text=begins_text)
    found_nbytes = np.fromiter(map(len, found), np.int64, len(found))
    return SplitRows(segments, RowLayout(found_ids, found_nbytes, per_row, before, after), found)


def _normalize_piece(tokenizer: SegmentModel, piece: str, hold_bytes: bool) -> str:
    """Returns a piece of a text, normalized but for the special tokens in it."""
    if not hold_bytes:
        return protocol.normalize(tokenizer, piece)  # type: ignore[return-value]
    return to_characters(protocol.normalize(tokenizer, from_characters(piece)))


def _get_split_tokens(vocabulary: Vocabulary, allowed: frozenset[str]) -> frozenset[str]:
    """Returns the tokens at which a text is split; one of the vocabulary's own sets where it can."""
    if not allowed:
        return vocabulary.added_names
    return (
        vocabulary.split_token_names
        if allowed == vocabulary.special_names
        else allowed | vocabulary.added_names
    )


@protocol.encode_texts.register(SegmentModel)
def _encode_texts(
    tokenizer: SegmentModel,
    texts: Sequence[Text],
    *,
    add_special_tokens: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    threads: int | None = None,
) -> TokenizationBatch:
    check_texts(texts)
    split = split_rows(
        tokenizer,
        texts,
        add_special_tokens=add_special_tokens,
        assume_normalized=assume_normalized,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
    count = resolve_num_threads(threads)
    encoded = tokenizer.encode_segments(split.segments, count, sources=return_offsets)
    return make_batch(
        tokenizer,
        split,
        encoded,
        return_offsets=return_offsets,
        return_masks=return_masks,
        assume_normalized=assume_normalized,
        threads=count,
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
    """What `encode` does for these models, without a batch and its records."""
    check_text(text, "text", MANY_TEXTS_ADVICE)
    segments, rows, _ = split_rows(
        tokenizer,
        [text],
        add_special_tokens=add_special_tokens,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
    encoded = tokenizer.encode_segments(segments, sources=False)
    if len(segments.texts) == 1 and not rows.before and not rows.after:
        return encoded.ids
    return assemble(encoded, rows).ids


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
    """The batch of rows whose ordinary text was encoded.

    Args:
        tokenizer: what encoded it.
        split: the rows.
        encoded: the ids of their segments, with their sources if offsets are to be returned.
        return_offsets: as in `encode_batch_result`.
        return_masks: as in `encode_batch_result`.
        assume_normalized: as in `encode_batch_result`.
        threads: how many share the work.
    """
    assembled = assemble(encoded, split.rows)
    columns: dict[str, NDArray[np.int32] | NDArray[np.int64]] = {}
    if return_offsets:
        columns |= _compute_source_columns(tokenizer, split, encoded, assembled, threads)
    if return_masks:
        columns |= _compute_mask_columns(tokenizer.vocabulary, split.rows, assembled)
    metadata = ResultMetadata(
        tokenizer.model,
        tokenizer.normalization,
        "input_text" if assume_normalized else tokenizer.offsets_reference,
    )
    ragged = Ragged(assembled.ids, assembled.row_splits, **columns)
    return make_batch_without_copy(
        ragged, metadata, tokenizer.vocabulary.get_token_strings, has_attention_mask=return_masks
    )


def _compute_source_columns(
    tokenizer: SegmentModel,
    split: SplitRows,
    encoded: EncodedSegments,
    assembled: AssembledRows,
    threads: int,
) -> dict[str, NDArray[np.int32] | NDArray[np.int64]]:
    """`offsets`, `word_ids` and `sequence_ids`."""
    if encoded.spans is None:
        lengths = tokenizer.lengths_in_text
        offsets, word_ids = compute_concatenated_sources(assembled, encoded, split.rows, lengths, threads)
    else:
        texts, hold_bytes, _ = split.segments
        sizes = (len(from_characters(text)) if hold_bytes else count_bytes(text) for text in texts)
        nbytes = np.fromiter(sizes, np.int64, len(texts))
        offsets, word_ids = compute_sources_from_spans(assembled, encoded, split.rows, nbytes)
    sequence_ids = np.zeros(len(assembled.ids), np.int32)
    sequence_ids[assembled.inserted] = -1
    found = dict(zip(assembled.found.tolist(), split.found, strict=True))
    offsets = tokenizer.adjust_offsets(assembled.ids, offsets, found)
    return {"offsets": offsets, "word_ids": word_ids, "sequence_ids": sequence_ids}


def _compute_mask_columns(
    vocabulary: Vocabulary, rows: RowLayout, assembled: AssembledRows
) -> dict[str, NDArray[np.int32] | NDArray[np.int64]]:
    """`special_tokens_mask` and `token_type_ids`. What ordinary text became may be special too: `[UNK]`."""
    special_tokens_mask = np.zeros(len(assembled.ids), np.int32)
    special_tokens_mask[assembled.special_positions] = vocabulary.is_special.take(
        assembled.ids.take(assembled.special_positions)
    )
    unknown = vocabulary.get_role_id("unk")
    if unknown is not None:
        special_tokens_mask[assembled.ids == unknown] = 1
    return {
        "special_tokens_mask": special_tokens_mask,
        "token_type_ids": _compute_type_ids(vocabulary.template, rows, assembled),
    }


def _compute_type_ids(template: Template, rows: RowLayout, assembled: AssembledRows) -> NDArray[np.int32]:
    """Those of texts, and of what the template has around them."""
    before, after = template.around_text
    type_id = template.single[len(before)].type_id
    token_type_ids = np.full(len(assembled.ids), type_id, np.int32)
    if len(assembled.inserted) and any(piece.type_id for piece in template.single):
        num_rows = len(rows.found_per_row)
        inserted = np.split(assembled.inserted, [num_rows * len(before)])
        for positions, places in zip(inserted, (before, after), strict=True):
            token_type_ids[positions] = np.tile([piece.type_id for piece in places], num_rows)
    return token_type_ids


Model = TypeVar("Model", bound=SegmentModel)


def with_template(
    tokenizer: Model, single: str | Sequence[str], pair: str | Sequence[str] | None = None
) -> Model:
    """The tokenizer, putting other special tokens around texts.

    Args:
        tokenizer: one of tokjax's own.
        single: what a text alone becomes, as in `make_template`.
        pair: what a pair of texts becomes; `None` for what follows from `single`.

    Raises:
        InvalidArgumentError: the template names no special token of the tokenizer's, or a text is missing.
        UnsupportedTokenizerError: the tokenizer is none of tokjax's own.

    >>> from tokjax import encode_result, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "me"])
    >>> encode_result(with_template(bert, "$A [SEP]"), "me").tokens
    ('me', '[SEP]')
    """
    if not isinstance(tokenizer, SegmentModel):
        raise UnsupportedTokenizerError(
            f"with_template takes a tokenizer of tokjax's own, not {type(tokenizer).__name__}"
        )
    return replace_template(tokenizer, make_template(single, pair))


def replace_template(tokenizer: Model, template: Template | None) -> Model:
    """The tokenizer with a template, or with the one that follows from its BOS and EOS."""
    if template is not None:
        template.check_tokens(tokenizer.vocabulary.special)
    vocabulary = dataclasses.replace(tokenizer.vocabulary, explicit_template=template)
    changed: Any = dataclasses.replace(tokenizer, vocabulary=vocabulary)  # type: ignore[type-var]
    return changed  # type: ignore[no-any-return]
