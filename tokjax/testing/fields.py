"""The contract of fields of datasets: checks for a class of your own.

    @pytest.mark.parametrize("check", tokjax.testing.FIELD_CHECKS, ids=lambda check: check.__name__)
    def test_my_field(check):
        check(MyField(tokenizer, ...))

Each check raises an `AssertionError` that says what is wrong.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.datasets.dataset_types import RawTextDataset
from tokjax.datasets.document_encoding import Documents, encode_documents
from tokjax.datasets.fields import make_field
from tokjax.datasets.opening import open_dataset
from tokjax.datasets.writer import write_dataset
from tokjax.errors import DisallowedSpecialTokenError
from tokjax.testing.tokenizers import HARD_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokjax.core.utf8 import Text
    from tokjax.datasets.document_encoding import EncodedDocuments


def check_options(field: Any) -> None:
    """What the manifest records makes an equal field, which is known by its number."""
    again = make_field(field.TYPE_ID, json.loads(json.dumps(field.options)), field.tokenizer)
    assert type(again) is type(field), f"{type(again).__name__} has the number {field.TYPE_ID} too"
    assert again == field, f"its options make {again}, not {field}"
    assert again.options == field.options, f"options change: {again.options}, not {field.options}"


def check_pickling(field: Any) -> None:
    """It reaches worker processes as it is."""
    again = pickle.loads(pickle.dumps(field))
    assert again == field, f"it becomes {again} when it is pickled"


def check_rows(field: Any) -> None:
    """Each document's row is a function of its text alone, and fits the disk."""
    texts = _select_texts(field)
    together = _encode_rows(field, texts)
    assert len(together) == len(texts), f"{len(together)} rows for {len(texts)} documents"
    for text, row in zip(texts, together, strict=True):
        [alone] = _encode_rows(field, [text])
        assert np.array_equal(alone, row), f"{text!r:.60} is stored as {alone}, among others as {row}"
    assert all(
        np.array_equal(*rows) for rows in zip(_encode_rows(field, texts[::-1])[::-1], together, strict=True)
    ), "what is stored of a document depends on those before it"
    assert _encode_rows(field, []) == [], "no documents, but rows of some"


def check_stored(field: Any) -> None:
    """What is written is read again, and the same bytes come from any number of workers."""
    texts = _select_texts(field)
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory, str(workers)) for workers in (1, 2)]
        for workers, path in enumerate(paths, 1):
            write_dataset(texts, field, path, shard_size=64, workers=workers)
        one, two = map(open_dataset, paths, [field.tokenizer] * 2)
        assert one.fingerprint == two.fingerprint, "two workers write another dataset than one"
        assert one.field == field, f"the dataset says that it is of {one.field}"
        rows = _encode_rows(field, texts)
        for index, doc_id in enumerate(one.documents["doc_id"].tolist()):
            found = one[index]
            if isinstance(one, RawTextDataset):
                found = np.frombuffer(one.text_bytes(index), np.uint8)
            assert np.array_equal(found, rows[doc_id]), f"{texts[doc_id]!r:.60} is read as {found}"


FIELD_CHECKS: tuple[Callable[[Any], None], ...] = (check_options, check_pickling, check_rows, check_stored)
"""All checks of a field, each a function of one."""


def check_field(field: Any) -> None:
    """Run all checks of a field.

    Args:
        field: a field of `write_dataset`, such as an instance of a subclass of `tokjax.datasets.TokenField`. Of
            `HARD_TEXTS` it may refuse those that hold its special tokens.

    Raises:
        AssertionError: it breaks the contract; the message says how.
        InvalidArgumentError: it can't even be written, as `write_dataset` says.
    """
    for check in FIELD_CHECKS:
        check(field)


def _select_texts(field: Any) -> list[Text]:
    """The hard texts that a field takes, and no text at all."""
    return [text for text in HARD_TEXTS if _dataset_type(field, text)]


def _dataset_type(field: Any, text: Text) -> bool:
    try:
        _encode_texts(field, [text])
    except DisallowedSpecialTokenError:
        return False
    return True


def _encode_texts(field: Any, texts: Sequence[Text]) -> EncodedDocuments:
    return encode_documents(field, Documents(list(range(len(texts))), list(texts)))


def _encode_rows(field: Any, texts: Sequence[Text]) -> list[Any]:
    encoded = _encode_texts(field, texts)
    assert encoded.data.dtype == field.data_dtype, (
        f"{encoded.data.dtype}, but the field says {field.data_dtype}"
    )
    return np.split(encoded.data, encoded.splits[1:-1]) if texts else []
