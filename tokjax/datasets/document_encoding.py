"""Encoding of documents into the arrays that a field stores.

Encoding is a pure function of the field and the documents, so that any worker can run it on any batch and the
bytes on disk are the same. A batch of two documents in a `PackedTokenField` with EOS id 0:

    documents  doc_ids [7, 8]   texts ["Hi", "é"]
    encoded    data [73, 106, 0, 196, 170, 0]   splits [0, 3, 6]   num_dropped [0, 0]
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from tokjax.core import protocol
from tokjax.core.ragged import Ragged, make_ragged
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.datasets.fields import PackedTokenField, RawTextField, TokenField
from tokjax.encoding.encode import apply_tokenizer_template, get_template_ids
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text
    from tokjax.datasets.fields import Field


Result = TypeVar("Result")


class Documents(NamedTuple):
    """Batch of documents.

    Attributes:
        doc_ids: id of each document, from 0 to 2**64 - 1.
        texts: text of each document.
    """

    doc_ids: list[int]
    texts: list[Text]


class EncodedDocuments(NamedTuple):
    """Stored form of a batch of documents.

    Attributes:
        data: ids, or bytes of text, of all documents, concatenated, in the dtype of the file, shape
            `(items,)`.
        splits: start offset of each document in `data`, and its end, `int64`, shape `(documents + 1,)`.
        columns: additional numbers per document, by column name, `int64`, shape `(documents,)`.
        num_dropped: number of ids, or bytes of text, that were truncated from each document because it was
            too long, `int64`, shape `(documents,)`.
    """

    data: NDArray[Any]
    splits: NDArray[np.int64]
    columns: dict[str, NDArray[np.int64]]
    num_dropped: NDArray[np.int64]


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
        InvalidArgumentError: the tokenizer returned an id outside its vocabulary.
    """
    if isinstance(field, RawTextField):
        return _encode_text(field, documents)
    rows = _encode_rows(field, documents, threads)
    num_dropped = np.zeros(len(documents.texts), np.int64)
    if isinstance(field, PackedTokenField):
        rows = _add_bos_and_eos(field, rows._replace(ids=np.asarray(rows.ids).astype(field.data_dtype)))
    elif not isinstance(field, TokenField):  # (a custom field adds its own special tokens)
        rows, num_dropped = apply_tokenizer_template(
            field.tokenizer, rows, add_special_tokens=field.add_special_tokens, max_length=field.max_tokens
        )
    data = np.asarray(rows.ids).astype(field.data_dtype, copy=False)
    return EncodedDocuments(data, np.asarray(rows.row_splits), {}, num_dropped)


def encode_named(
    encode: Callable[[Sequence[Text]], Result], texts: Sequence[Text], get_name: Callable[[int], str]
) -> Result:
    """Encodes texts, and names the text with a disallowed special token in the error.

    Args:
        encode: function that encodes several texts.
        texts: texts to encode.
        get_name: function that returns the name of a text in errors, by its index.

    Returns:
        The result of `encode(texts)`.

    Raises:
        DisallowedSpecialTokenError: a text holds a special token that is disallowed.
    """
    try:
        return encode(texts)
    except DisallowedSpecialTokenError:
        for i, text in enumerate(texts):
            try:
                encode([text])
            except DisallowedSpecialTokenError as error:
                raise DisallowedSpecialTokenError(
                    f"in {get_name(i)}, {error.message}", hint=error.hint
                ) from None
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
    characters = [to_characters(text) for text in documents.texts]
    truncated = [text[: field.max_chars] for text in characters]
    data = [from_characters(text) for text in truncated]
    splits = np.fromiter(accumulate(map(len, data), initial=0), np.int64, len(data) + 1)
    lengths = np.fromiter(map(len, truncated), np.int64, len(truncated))
    dropped_lengths = (
        len(from_characters(text[len(part) :])) for text, part in zip(characters, truncated, strict=True)
    )
    num_dropped = np.fromiter(dropped_lengths, np.int64, len(truncated))
    return EncodedDocuments(
        np.frombuffer(b"".join(data), np.uint8), splits, {"char_length": lengths}, num_dropped
    )


def _encode_rows(field: Any, documents: Documents, threads: int | None) -> Ragged:
    """Encodes documents into rows of ids; without special tokens, except for custom fields."""
    encode = partial(
        _encode_custom if isinstance(field, TokenField) else _encode_plain, field, threads=threads
    )
    rows = encode_named(encode, documents.texts, lambda i: f"document {documents.doc_ids[i]}")
    size = protocol.vocab_size(field.tokenizer)
    if len(rows.ids) and not 0 <= rows.ids.min() <= rows.ids.max() < size:
        raise InvalidArgumentError(
            f"the tokenizer returned ids from {rows.ids.min()} to {rows.ids.max()}, but its vocabulary size "
            f"is {size}; this batch was not written"
        )
    return rows


def _encode_plain(field: Any, texts: Sequence[Text], *, threads: int | None) -> Ragged:
    batch = protocol.encode_texts(
        field.tokenizer,
        texts,
        add_special_tokens=False,
        return_offsets=False,
        return_masks=False,
        allowed_special=field.allowed_special,
        disallowed_special=field.disallowed_special,
        threads=threads,
    )
    return batch.ragged


def _encode_custom(field: TokenField, texts: Sequence[Text], *, threads: int | None) -> Ragged:
    """Returns the rows of a custom field, checked so that the manifest matches the stored data."""
    result: object = field.encode_rows(texts, threads=threads)
    name = f"{type(field).__name__}.encode_rows"
    if not isinstance(result, Ragged):
        raise InvalidArgumentError(
            f"{name} must return a Ragged, such as ragged_from_rows(rows), not {result!r:.80}"
        )
    try:
        rows = make_ragged(result.ids, result.row_splits)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name} returned an invalid Ragged: {error}") from error
    if len(rows.lengths) != len(texts):
        raise InvalidArgumentError(f"{name} returned {len(rows.lengths)} rows for {len(texts)} documents")
    return rows


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
