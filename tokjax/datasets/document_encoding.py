"""Encoding of documents into the arrays that a field stores.

Encoding is a pure function of the field and the documents, so that any worker can run it on any batch and the
bytes on disk are the same. A batch of two documents in a `PackedTokenField` with EOS id 0:

    documents  doc_ids [7, 8]   texts ["Hi", "é"]
    encoded    data [73, 106, 0, 196, 170, 0]   splits [0, 3, 6]   num_dropped [0, 0]

A column per token goes through the same steps as the ids: it is surrounded by the fill value where the field
adds special tokens, and truncated where ids are truncated.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax.core import protocol
from tokjax.core.ragged import Ragged, concatenate_ranges, make_ragged, make_row_splits
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.corpus.sources import ReadingReport
from tokjax.datasets.columns import LOSS_MASK, compute_byte_lengths, convert_values
from tokjax.datasets.fields.base import RowsWithColumns, TokenField
from tokjax.datasets.fields.conversation import ChatField, ConversationField
from tokjax.datasets.fields.preference import PreferenceField
from tokjax.datasets.fields.text_fields import (
    BucketedTokenField,
    PackedTokenField,
    RawTextField,
    TokenizedTextField,
)
from tokjax.encoding.encode import apply_tokenizer_template, get_template_ids
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tokjax.core.records import TokenizationBatch
    from tokjax.core.utf8 import Text
    from tokjax.datasets.columns import Column
    from tokjax.datasets.fields.registry import Field


Result = TypeVar("Result")
_ERRORS_OF_TEXTS = (DisallowedSpecialTokenError, InvalidArgumentError)


class Documents(NamedTuple):
    """Batch of documents.

    Attributes:
        doc_ids: id of each document, from 0 to 2**64 - 1; `None` for documents of files, which are numbered
            when they are written.
        contents: text of each document, or its ids, `int32`, shape `(num_ids,)`.
        values: for each document, the value of each column that comes from records, in the dtype of the
            column, shape `(num_values,)` per token and `()` per document; empty without such columns.
        get_location: function of the index of a document that returns its file and position, for error
            messages; `None` for the id of the document.
        first: index of the first document, for `get_location`.
        report: report on the documents and on bad records among them, for documents of iterables.
    """

    doc_ids: list[int] | None
    contents: list[Any]
    values: Sequence[tuple[NDArray[Any], ...]] = ()
    get_location: Callable[[int], str] | None = None
    first: int = 0
    report: ReadingReport = ReadingReport()

    @property
    def read_nbytes(self) -> int:
        """Number of bytes of files that are read for these documents: they are in memory."""
        return 0

    def get_name(self, index: int) -> str:
        """Returns the name of a document for error messages."""
        if self.get_location is not None:
            return self.get_location(self.first + index)
        return f"document {self.first + index if self.doc_ids is None else self.doc_ids[index]}"

    def skip(self, count: int) -> Documents:
        """Returns the documents without the first ones."""
        return self.take(count, len(self.contents))._replace(report=self.report)

    def take(self, start: int, stop: int) -> Documents:
        """Returns the documents from `start` to `stop`."""
        doc_ids = None if self.doc_ids is None else self.doc_ids[start:stop]
        contents, values = self.contents[start:stop], self.values[start:stop]
        return Documents(doc_ids, contents, values, self.get_location, self.first + start)

    def get_values(self, index: int) -> list[NDArray[Any]]:
        """Returns the values of each document for one of the columns that come from records."""
        return [values[index] for values in self.values]


class EncodedDocuments(NamedTuple):
    """Stored form of a batch of documents: columns by the names of their files.

    Attributes:
        items: ids, or bytes of text, of all documents, concatenated, and side columns per token, in their
            dtypes, shape `(items,)`.
        documents: number of items, and other columns per document, shape `(documents,)`.
        num_dropped: number of ids, or bytes of text, that were truncated from each document because it was
            too long, `int64`, shape `(documents,)`.
        is_kept: whether each document is stored, `bool`, shape `(documents,)`; `None` if all are. The others
            have no items.
    """

    items: dict[str, NDArray[Any]]
    documents: dict[str, NDArray[Any]]
    num_dropped: NDArray[np.int64]
    is_kept: NDArray[np.bool_] | None = None

    @property
    def splits(self) -> NDArray[np.int64]:
        """Start offset of each document in the items, and its end, `int64`, shape `(documents + 1,)`."""
        return make_row_splits(self.documents["byte_length" if "text" in self.items else "num_tokens"])


def encode_documents(field: Field, documents: Documents, *, threads: int | None = None) -> EncodedDocuments:
    """Encodes documents as a field stores them.

    Args:
        field: field that determines the stored form.
        documents: documents to encode.
        threads: number of threads that share the work, as in `encode_batch_result`.

    Returns:
        The stored form of the documents.

    Raises:
        DisallowedSpecialTokenError: a document holds a special token that the field disallows.
        InvalidArgumentError: the tokenizer returned an id outside its vocabulary, the values of a side column
            do not match the ids of their document, or no token of a document counts in the loss.
    """
    if isinstance(field, RawTextField):
        return _encode_text(field, documents)
    plain, computed, left_out = _encode_rows(field, documents, threads)
    _check_ids(field, plain, documents)
    rows, num_dropped = plain, np.zeros(len(documents.contents), np.int64)
    if isinstance(field, PackedTokenField):
        rows = _add_bos_and_eos(field, rows._replace(ids=np.asarray(rows.ids).astype(field.data_dtype)))
    elif isinstance(field, (TokenizedTextField, BucketedTokenField, ChatField)):
        add_special = not isinstance(field, ChatField) and field.add_special_tokens
        rows, num_dropped = apply_tokenizer_template(
            field.tokenizer, rows, add_special_tokens=add_special, max_length=field.max_tokens
        )
    items = {field.DATA: np.asarray(rows.ids).astype(field.data_dtype, copy=False)}
    encoded = EncodedDocuments(
        items, {"num_tokens": np.asarray(rows.lengths)}, num_dropped + np.asarray(left_out)
    )
    if field.columns:
        around = tuple(map(len, get_surrounding_ids(field)))
        layout = _Layout(np.asarray(plain.lengths, np.int64), num_dropped, *around)
        records = (documents.get_values(i) for i in itertools.count())
        for column in field.columns:
            values = next(records) if column.source == "record" else computed[column.name]
            per = encoded.items if column.per == "token" else encoded.documents
            per[column.name] = _compute_side_column(column, values, documents, layout)
    if isinstance(field, ConversationField) and field.without_targets != "keep":
        return _drop_without_targets(field, documents, encoded)
    return encoded


def _drop_without_targets(
    field: ConversationField, documents: Documents, encoded: EncodedDocuments
) -> EncodedDocuments:
    """Removes the documents that train nothing, or raises `InvalidArgumentError` for the first of them."""
    is_kept = _find_trainable(field, encoded)
    if is_kept.all():
        return encoded
    if field.without_targets == "raise":
        i = int(is_kept.argmin())
        limit = f" within max_tokens={field.max_tokens}" if encoded.num_dropped[i] else ""
        raise InvalidArgumentError(
            f"{documents.get_name(i)} has no token to train on: there is no answer of the assistant{limit}; "
            "pass without_targets='drop' to leave such documents out, or 'keep' to store them"
        )
    lengths = encoded.documents["num_tokens"]
    is_kept_token = np.repeat(is_kept, lengths)
    return encoded._replace(
        items={name: values[is_kept_token] for name, values in encoded.items.items()},
        documents=encoded.documents | {"num_tokens": lengths * is_kept},
        is_kept=is_kept,
    )


def _find_trainable(field: ConversationField, encoded: EncodedDocuments) -> NDArray[np.bool_]:
    """Returns whether each document, or both sides of each pair, have a target: `bool`, `(documents,)`.

    The first token of a side is predicted from nothing, so it is never a target.
    """
    lengths = encoded.documents["num_tokens"]
    num_documents, num_sides = len(lengths), 1
    sides = np.repeat(np.arange(num_documents), lengths)
    if isinstance(field, PreferenceField):
        num_sides = 2
        sides = 2 * sides + encoded.items["rejected"]
    is_first = np.diff(sides, prepend=-1) != 0
    is_target = encoded.items[LOSS_MASK] & ~is_first
    counts = np.bincount(sides[is_target], minlength=num_documents * num_sides)
    has_targets: NDArray[np.bool_] = counts.reshape(num_documents, num_sides).min(axis=1) > 0
    return has_targets


def encode_named(
    encode: Callable[[Sequence[Text]], Result], texts: Sequence[Text], get_name: Callable[[int], str]
) -> Result:
    """Encodes texts, and names the text in the error if one is invalid or has a disallowed special token.

    Args:
        encode: function that encodes several texts.
        texts: texts to encode.
        get_name: function that returns the name of a text in errors, by its index.

    Returns:
        The result of `encode(texts)`.

    Raises:
        DisallowedSpecialTokenError: a text holds a special token that is disallowed.
        InvalidArgumentError: a text is invalid.
    """
    try:
        return encode(texts)
    except _ERRORS_OF_TEXTS:
        for i, text in enumerate(texts):
            try:
                encode([text])
            except _ERRORS_OF_TEXTS as error:
                raise type(error)(f"in {get_name(i)}, {error.message}", hint=error.hint) from None
        raise


class _Layout(NamedTuple):
    """Lengths of documents before and after special tokens are added and long documents truncated.

    A document that is truncated loses tokens at the end of its text, not the special tokens after it:

        before the text | text, kept | text, dropped | after the text

    Attributes:
        lengths: number of ids of each document without special tokens, `int64`, shape `(documents,)`.
        num_dropped: number of ids that each document loses, `int64`, shape `(documents,)`.
        num_before: number of special tokens before each document.
        num_after: number of special tokens after each document.
    """

    lengths: NDArray[np.int64]
    num_dropped: NDArray[np.int64]
    num_before: int
    num_after: int

    @property
    def full_lengths(self) -> NDArray[np.int64]:
        """Number of ids of each document with special tokens, before truncation: shape `(documents,)`."""
        return self.lengths + self.num_before + self.num_after

    def store(self, values: NDArray[Any], counts: NDArray[np.int64], fill: Any) -> NDArray[Any]:
        """Returns values of all documents as they are stored.

        Args:
            values: values, concatenated.
            counts: number of values of each document, of `lengths` or of `full_lengths`, which has those of
                special tokens.
            fill: value of special tokens.
        """
        splits = make_row_splits(self.full_lengths)
        starts = np.where(counts == self.full_lengths, 0, self.num_before) + splits[:-1]
        stored = np.full(int(splits[-1]), fill, values.dtype)
        stored[concatenate_ranges(starts, counts)] = values
        if not self.num_dropped.any():
            return stored
        is_kept = np.ones(len(stored), bool)
        starts = splits[1:] - self.num_after - self.num_dropped
        is_kept[concatenate_ranges(starts, self.num_dropped)] = False
        return stored[is_kept]


def _compute_side_column(column: Column, values: Any, documents: Documents, layout: _Layout) -> NDArray[Any]:
    """Returns the values of a side column as they are stored, except that booleans are not packed.

    Args:
        column: side column.
        values: values that the field computed, for ids without special tokens; values of each document, for
            a column that comes from records.
        documents: documents of the values.
        layout: lengths of the documents.
    """
    counts = layout.lengths
    if column.source != "record":
        values = _convert_computed(column, values, documents, counts)
    elif column.per == "document":
        return np.array(values, column.dtype).reshape(-1)
    else:
        counts = np.fromiter(map(len, values), np.int64, len(values))
        values = np.concatenate([np.zeros(0, column.dtype), *values])
        _check_counts(column, counts, documents, layout)
    return layout.store(values, counts, column.fill) if column.per == "token" else values


def _check_counts(column: Column, counts: NDArray[np.int64], documents: Documents, layout: _Layout) -> None:
    """Raises `InvalidArgumentError` unless records have a value for each id, or for each stored id."""
    is_wrong = (counts != layout.lengths) & (counts != layout.full_lengths)
    if is_wrong.any():
        i = int(is_wrong.argmax())
        has_special = layout.num_before + layout.num_after
        more = f", or {layout.full_lengths[i]} with special tokens" if has_special else ""
        raise InvalidArgumentError(
            f"{documents.get_name(i)}, column {column.name!r}: {counts[i]} values for {layout.lengths[i]} "
            f"ids; pass one value for each id{more}. Its batch was not written"
        )


def _convert_computed(
    column: Column, values: NDArray[Any], documents: Documents, lengths: NDArray[np.int64]
) -> NDArray[Any]:
    """Returns computed values in the dtype of their column. The error for a value names its document."""
    try:
        return convert_values(column, values, f"column {column.name!r}")
    except InvalidArgumentError:
        counts = lengths if column.per == "token" else np.ones_like(lengths)
        splits = make_row_splits(counts)
        for i, (start, stop) in enumerate(zip(splits, splits[1:], strict=False)):
            convert_values(column, values[start:stop], f"{documents.get_name(i)}, column {column.name!r}")
        raise


def get_surrounding_ids(field: Any) -> tuple[list[int], list[int]]:
    """Returns the ids that a token field adds before and after each document; empty for custom fields."""
    if isinstance(field, TokenField):
        return [], []
    if not isinstance(field, PackedTokenField):
        return get_template_ids(field.tokenizer, add_special_tokens=field.add_special_tokens)
    vocabulary = protocol.get_vocabulary(field.tokenizer)
    bos = vocabulary.get_role_id("bos")
    eos = vocabulary.get_role_id("eos") if field.add_eos_between_docs else None
    return [] if bos is None else [bos], [] if eos is None else [eos]


def _encode_text(field: RawTextField, documents: Documents) -> EncodedDocuments:
    contents = documents.contents
    _reject_ids(contents, "RawTextField stores texts; pass a field that stores ids")
    characters = [to_characters(text) for text in contents]
    truncated = [text[: field.max_chars] for text in characters]
    data = [from_characters(text) for text in truncated]
    columns = {
        "byte_length": np.fromiter(map(len, data), np.int64, len(data)),
        "char_length": np.fromiter(map(len, truncated), np.int64, len(data)),
    }
    dropped_lengths = (
        len(from_characters(text[len(part) :])) for text, part in zip(characters, truncated, strict=True)
    )
    for index, column in enumerate(field.columns):
        columns[column.name] = np.array(documents.get_values(index), column.dtype).reshape(-1)
    num_dropped = np.fromiter(dropped_lengths, np.int64, len(data))
    return EncodedDocuments({field.DATA: np.frombuffer(b"".join(data), np.uint8)}, columns, num_dropped)


def _reject_ids(contents: list[Any], reason: str) -> None:
    if any(isinstance(content, np.ndarray) for content in contents):
        raise InvalidArgumentError(f"the records have ids instead of texts, and {reason}")


def _encode_rows(field: Any, documents: Documents, threads: int | None) -> RowsWithColumns:
    """Encodes documents into rows of ids; without special tokens, except for custom fields."""
    contents = documents.contents
    if contents and all(isinstance(content, np.ndarray) for content in contents):
        _reject_computed(field)
        return RowsWithColumns(Ragged(np.concatenate(contents), make_row_splits(map(len, contents))), {}, 0)
    _reject_ids(contents, "others have texts; write separate datasets and merge them")
    is_custom = isinstance(field, TokenField)
    encode: Any = partial(field.encode_rows if is_custom else partial(_encode_plain, field), threads=threads)
    encoded = encode_named(encode, contents, documents.get_name)
    return _check_custom_rows(field, encoded, len(contents)) if is_custom else encoded


def _check_ids(field: Any, rows: Ragged, documents: Documents) -> None:
    """Raises `InvalidArgumentError` for an id that is not in the vocabulary."""
    ids, size = np.asarray(rows.ids), protocol.vocab_size(field.tokenizer)
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
        position = int(((ids < 0) | (ids >= size)).argmax())
        document = int(np.searchsorted(rows.row_splits, position, "right")) - 1
        raise InvalidArgumentError(
            f"{documents.get_name(document)} has the id {ids[position]}, but the vocabulary size of the "
            f"tokenizer is {size}; its batch was not written"
        )


def _reject_computed(field: Any) -> None:
    """Raises an error for a field that can't store records of ids, because it computes something of texts."""
    if isinstance(field, TokenField):
        raise InvalidArgumentError(
            f"the records have ids, and {type(field).__name__} encodes texts; pass a built-in field such as "
            "PackedTokenField"
        )
    for column in field.columns:
        if column.source != "record":
            raise InvalidArgumentError(
                f"column {column.name!r} has source={column.source!r}, which needs texts, and the records "
                "have ids; pass texts, or values with source='record'"
            )


def _encode_plain(field: Any, texts: Sequence[Text], *, threads: int | None) -> RowsWithColumns:
    columns = [column.name for column in field.columns if column.source == "byte_lengths"]
    batch = protocol.encode_texts(
        field.tokenizer,
        texts,
        add_special_tokens=False,
        return_offsets=bool(columns),
        return_masks=False,
        allowed_special=field.allowed_special,
        disallowed_special=field.disallowed_special,
        threads=threads,
    )
    rows, computed = Ragged(batch.ragged.ids, batch.ragged.row_splits), {}
    if columns:
        offsets = _get_input_offsets(field, texts, batch)
        computed = dict.fromkeys(columns, compute_byte_lengths(offsets, np.asarray(rows.row_splits)))
    return RowsWithColumns(rows, computed, 0)


def _get_input_offsets(field: Any, texts: Sequence[Text], batch: TokenizationBatch) -> NDArray[np.int64]:
    """Returns offsets into the texts as they were passed, not as normalized, shape `(num_ids, 2)`."""
    if batch.offsets is None:
        raise InvalidArgumentError(
            f"{type(field.tokenizer).__name__} does not compute offsets, which source='byte_lengths' needs"
        )
    return np.asarray(protocol.map_offsets_to_input(field.tokenizer, texts, batch).offsets)


def _check_custom_rows(field: TokenField, result: Any, num_documents: int) -> RowsWithColumns:
    """Returns the result of `encode_rows`, checked so that the manifest matches the stored data."""
    name = f"{type(field).__name__}.encode_rows"
    columns: dict[str, Any] = {}
    num_dropped: Any = None
    if isinstance(result, RowsWithColumns):
        columns, num_dropped, result = dict(result.columns), result.num_dropped, result.rows
    expected = {column.name: column for column in field.columns if column.source == "field"}
    if columns.keys() != expected.keys():
        raise InvalidArgumentError(
            f"{name} returned the columns {sorted(columns)}, and the columns of the field with "
            f"source='field' are {sorted(expected)}; return RowsWithColumns(rows, columns)"
        )
    if not isinstance(result, Ragged):
        raise InvalidArgumentError(
            f"{name} must return a Ragged, such as ragged_from_rows(rows), not {result!r:.80}"
        )
    try:
        rows = make_ragged(result.ids, result.row_splits)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name} returned an invalid Ragged: {error}") from error
    if len(rows.lengths) != num_documents:
        raise InvalidArgumentError(f"{name} returned {len(rows.lengths)} rows for {num_documents} documents")
    for column, values in columns.items():
        size = len(rows.ids) if expected[column].per == "token" else num_documents
        if np.shape(values) != (size,):
            raise InvalidArgumentError(
                f"{name} returned column {column!r} with shape {np.shape(values)}; it must be ({size},), one "
                f"value per {expected[column].per}"
            )
    if num_dropped is None:
        num_dropped = np.zeros(num_documents, np.int64)
    num_dropped = as_integers(f"num_dropped of {name}", num_dropped, np.int64)
    if num_dropped.shape != (num_documents,) or (num_dropped < 0).any():
        raise InvalidArgumentError(
            f"{name} returned num_dropped with shape {num_dropped.shape} and minimum "
            f"{num_dropped.min(initial=0)}; it must be ({num_documents},), one count per document"
        )
    return RowsWithColumns(
        rows, {column: np.asarray(values) for column, values in columns.items()}, num_dropped
    )


def _add_bos_and_eos(field: PackedTokenField, rows: Ragged) -> Ragged:
    """Returns rows with the BOS and EOS ids that the field adds around each document."""
    before, after = get_surrounding_ids(field)
    ids, splits = np.asarray(rows.ids), np.asarray(rows.row_splits)
    shifts = np.arange(len(splits))
    if before:
        ids, splits = np.insert(ids, splits[:-1], before), splits + shifts
    if after:
        ids, splits = np.insert(ids, splits[1:], after), splits + shifts
    return rows._replace(ids=ids, row_splits=splits)
