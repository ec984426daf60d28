"""From documents to what a field stores of them: a function of both alone, which any worker can run."""

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
    """Some documents.

    Attributes:
        doc_ids: the id of each.
        texts: their texts.
    """

    doc_ids: list[int]
    texts: list[Text]


class EncodedDocuments(NamedTuple):
    """What is stored of some documents.

    Attributes:
        data: ids, or bytes of text, end to end, in the dtype of the disk.
        splits: where each document starts in it, `int64`, shape `(documents + 1,)`.
        columns: more numbers of each document, by their names, `int64`, shape `(documents,)`.
        num_dropped: how many ids, or bytes of text, of each were cut off because it was too long, `int64`,
            shape `(documents,)`.
    """

    data: NDArray[Any]
    splits: NDArray[np.int64]
    columns: dict[str, NDArray[np.int64]]
    num_dropped: NDArray[np.int64]


def encode_documents(field: Field, documents: Documents, *, threads: int | None = None) -> EncodedDocuments:
    """Encode documents as a field stores them.

    Args:
        field: what to store.
        documents: what to encode.
        threads: how many share the work, as in `encode_batch_result`.

    Raises:
        DisallowedSpecialTokenError: a document holds a special token that the field disallows.
        InvalidArgumentError: the tokenizer gave an id that its vocabulary does not hold.
    """
    if isinstance(field, RawTextField):
        return _encode_text(field, documents)
    rows = _encode_rows(field, documents, threads)
    num_dropped = np.zeros(len(documents.texts), np.int64)
    if isinstance(field, PackedTokenField):
        rows = _add_bos_and_eos(field, rows._replace(ids=np.asarray(rows.ids).astype(field.data_dtype)))
    elif not isinstance(field, TokenField):  # (a field of one's own puts around documents what it wants)
        rows, num_dropped = apply_tokenizer_template(
            field.tokenizer, rows, add_special_tokens=field.add_special_tokens, max_length=field.max_tokens
        )
    data = np.asarray(rows.ids).astype(field.data_dtype, copy=False)
    return EncodedDocuments(data, np.asarray(rows.row_splits), {}, num_dropped)


def encode_named(
    encode: Callable[[Sequence[Text]], Result], texts: Sequence[Text], get_name: Callable[[int], str]
) -> Result:
    """Encode texts, with errors that name the one that holds what is disallowed.

    Args:
        encode: encodes some.
        texts: all of them.
        get_name: what errors call a text, by its place.

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
    """The ids that a field of ids puts before each document, and those behind it, as far as is known."""
    if isinstance(field, TokenField):
        return [], []
    if not isinstance(field, PackedTokenField):
        return get_template_ids(field.tokenizer, add_special_tokens=field.add_special_tokens)
    table = protocol.get_vocabulary(field.tokenizer)
    bos, eos = table.get_role_id("bos"), table.get_role_id("eos") if field.add_eos_between_docs else None
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
    """The ids of documents, of tokjax's own fields without anything around them."""
    encode = partial(
        _encode_custom if isinstance(field, TokenField) else _encode_plain, field, threads=threads
    )
    rows = encode_named(encode, documents.texts, lambda i: f"document {documents.doc_ids[i]}")
    size = protocol.vocab_size(field.tokenizer)
    if len(rows.ids) and not 0 <= rows.ids.min() <= rows.ids.max() < size:
        raise InvalidArgumentError(
            f"the tokenizer gave ids from {rows.ids.min()} to {rows.ids.max()}, but its vocabulary size is "
            f"{size}; nothing of this batch was written"
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
    """What a field of one's own makes of texts, checked: a manifest must not tell of what is not there."""
    result: object = field.encode_rows(texts, threads=threads)
    name = f"{type(field).__name__}.encode_rows"
    if not isinstance(result, Ragged):
        raise InvalidArgumentError(
            f"{name} must give a Ragged, as ragged_from_rows makes one, not {result!r:.80}"
        )
    try:
        rows = make_ragged(result.ids, result.row_splits)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name} gave no rows of ids: {error}") from error
    if len(rows.lengths) != len(texts):
        raise InvalidArgumentError(f"{name} gave {len(rows.lengths)} rows for {len(texts)} documents")
    return rows


def _add_bos_and_eos(field: PackedTokenField, rows: Ragged) -> Ragged:
    """Rows with the BOS and EOS that the field has around documents."""
    before, after = get_surrounding_ids(field)
    ids, splits = np.asarray(rows.ids), np.asarray(rows.row_splits)
    more = np.arange(len(splits))
    if before:
        ids, splits = np.insert(ids, splits[:-1], before), splits + more
    if after:
        ids, splits = np.insert(ids, splits[1:], after), splits + more
    return rows._replace(ids=ids, row_splits=splits)
