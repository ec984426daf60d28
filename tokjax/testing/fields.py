"""Compliance checks for dataset fields.

Parametrize a test of a custom field class with them:

    @pytest.mark.parametrize("check", tokjax.testing.FIELD_CHECKS, ids=lambda check: check.__name__)
    def test_my_field(check):
        check(MyField(tokenizer, ...))

Each check raises an `AssertionError` that names the violated requirement.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.datasets.dataset_types import RawTextDataset, open_dataset
from tokjax.datasets.document_encoding import Documents, encode_documents
from tokjax.datasets.fields.registry import make_field
from tokjax.datasets.writer import write_dataset
from tokjax.errors import DisallowedSpecialTokenError
from tokjax.testing.tokenizers import HARD_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokjax.core.utf8 import Text
    from tokjax.datasets.document_encoding import EncodedDocuments


def check_options(field: Any) -> None:
    """Checks that the type id and the options, as stored in a manifest, reconstruct an equal field."""
    restored = make_field(field.TYPE_ID, json.loads(json.dumps(field.options)), field.tokenizer)
    assert type(restored) is type(field), (
        f"the TYPE_ID {field.TYPE_ID} is registered for {type(restored).__name__}, not {type(field).__name__}"
    )
    assert restored == field, f"the options construct {restored}, not {field}"
    assert restored.options == field.options, f"options change to {restored.options} from {field.options}"


def check_pickling(field: Any) -> None:
    """Checks that a field equals itself after a pickle round trip, as worker processes need."""
    restored = pickle.loads(pickle.dumps(field))
    assert restored == field, f"a pickle round trip changes the field to {restored}"


def check_rows(field: Any) -> None:
    """Checks that the row of a document depends on its text alone, and has the dtype of the field."""
    texts = _select_texts(field)
    rows = _encode_rows(field, texts)
    assert len(rows) == len(texts), f"{len(rows)} rows for {len(texts)} documents"
    for text, row in zip(texts, rows, strict=True):
        [single] = _encode_rows(field, [text])
        assert _are_equal(single, row), f"{text!r:.60} is stored as {single} alone, but as {row} in a batch"
    reversed_rows = _encode_rows(field, texts[::-1])[::-1]
    assert all(_are_equal(*pair) for pair in zip(reversed_rows, rows, strict=True)), (
        "the row of a document depends on the documents before it"
    )
    assert _encode_rows(field, []) == [], "there are rows without documents"


def check_stored(field: Any) -> None:
    """Checks the round trip through files, and that one and two workers write the same bytes."""
    texts = _select_texts(field)
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory, str(workers)) for workers in (1, 2)]
        for workers, path in enumerate(paths, 1):
            write_dataset(texts, field, path, shard_size=64, workers=workers, progress=False)
        one, two = map(open_dataset, paths, [field.tokenizer] * 2)
        assert one.fingerprint == two.fingerprint, "two workers write a different dataset than one"
        assert one.field == field, f"the dataset has the field {one.field}, not {field}"
        rows = _encode_rows(field, texts)
        for index, doc_id in enumerate(one.documents["doc_id"].tolist()):
            row = one[index]
            if isinstance(one, RawTextDataset):
                row = np.frombuffer(one.text_bytes(index), np.uint8)
            read = [row, *(one.column(column.name)[index] for column in field.columns)]
            assert _are_equal(read, rows[doc_id]), f"{texts[doc_id]!r:.60} is read as {read}"


FIELD_CHECKS: tuple[Callable[[Any], None], ...] = (check_options, check_pickling, check_rows, check_stored)
"""All checks of fields. Each takes a field."""


def check_field(field: Any) -> None:
    """Runs all checks of a field.

    Args:
        field: field for `write_dataset`, such as an instance of a subclass of `tokjax.datasets.TokenField`.
            It may reject those of the `HARD_TEXTS` that contain its special tokens.

    Raises:
        AssertionError: the field violates a requirement; the message names it.
        InvalidArgumentError: `write_dataset` rejects the field.
    """
    for check in FIELD_CHECKS:
        check(field)


def _select_texts(field: Any) -> list[Text]:
    """Returns the `HARD_TEXTS` that a field accepts."""
    texts = []
    for text in HARD_TEXTS:
        with suppress(DisallowedSpecialTokenError):
            _encode_texts(field, [text])
            texts.append(text)
    return texts


def _encode_texts(field: Any, texts: Sequence[Text]) -> EncodedDocuments:
    return encode_documents(field, Documents(list(range(len(texts))), list(texts)))


def _encode_rows(field: Any, texts: Sequence[Text]) -> list[list[Any]]:
    """Returns the ids of each document, followed by its values of each side column."""
    encoded = _encode_texts(field, texts)
    items = encoded.items[field.DATA]
    assert items.dtype == field.data_dtype, (
        f"encoded rows have the dtype {items.dtype}, but data_dtype is {field.data_dtype}"
    )
    columns = [items]
    for column in field.columns:
        values = (encoded.items | encoded.documents)[column.name]
        assert values.dtype == column.dtype, f"{column} has values of the dtype {values.dtype}"
        columns.append(values)
    splits = encoded.splits.tolist()
    return [
        [values[i] if len(values) != splits[-1] else values[start:stop] for values in columns]
        for i, (start, stop) in enumerate(zip(splits, splits[1:], strict=False))
    ]


def _are_equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(np.array_equal(*pair) for pair in zip(first, second, strict=True))
