"""ArrayRecord files for Grain and MaxText: each record is a `tf.train.Example` with a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.atomic_files import write_atomically
from tokjax.core.ragged import make_row_splits
from tokjax.corpus.array_record import (
    count_records,
    iter_records,
    open_array_record_writer,
    serialize_example,
)
from tokjax.datasets.conversion.token_streams import TokenStream, check_absent
from tokjax.datasets.dataset_types import RawTextDataset
from tokjax.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset

_IDS = "input_ids"
"""Name of the feature that holds the ids of a document."""
_TEXT = "text"
"""Name of the feature that holds the text of a document, which is MaxText's default."""
_OPTIONS = "group_size:1"
"""One record per compressed block, as Grain requires for random access."""


def read(path: Path, tokenizer: Any) -> TokenStream:  # noqa: ARG001 (the records are the documents)
    """Reads the lengths of all records, and opens the file.

    Raises:
        SourceError: the file is damaged, or a record has no ids.
    """
    num_records = count_records(path)
    splits = make_row_splits([len(ids) for ids in _iter_records_of_ids(path, 0, num_records)])

    def read_ids(start: int, stop: int) -> NDArray[np.int64]:
        first = int(np.searchsorted(splits, start, "right")) - 1
        last = int(np.searchsorted(splits, stop, "left"))
        rows = _iter_records_of_ids(path, first, last)
        return np.concatenate([np.zeros(0, np.int64), *rows])[start - splits[first] :][: stop - start]

    return TokenStream(read_ids, splits)


def _iter_records_of_ids(path: Path, start: int, stop: int) -> Iterator[NDArray[np.int64]]:
    """Yields the ids of the records `[start, stop)`."""
    for location, record in iter_records(path, start, stop):
        if isinstance(record, SourceError):
            raise record
        ids = record.get(_IDS, ())
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int64:
            raise SourceError(
                f"{location}: there are no integers in the feature {_IDS!r}, of {list(record)[:20]}; for "
                "another feature, or texts, pass the file to write_dataset"
            )
        yield ids


def write(
    dataset: TokenDataset | RawTextDataset, target: Path, *, overwrite: bool, max_tokens: int | None = None
) -> tuple[Path, ...]:
    """Writes the documents of a dataset as records, and returns the path of the file.

    Args:
        dataset: dataset of token ids or texts.
        target: path of the file.
        overwrite: whether to replace an existing file.
        max_tokens: maximum number of ids of a record; longer documents are split. `None` for no limit.
    """
    check_absent([target], overwrite=overwrite)

    def write_records(file: BinaryIO) -> None:
        with open_array_record_writer(target, file, _OPTIONS) as writer:
            if isinstance(dataset, RawTextDataset):
                for row in range(dataset.num_documents):
                    writer.write(serialize_example(_TEXT, dataset.text_bytes(row)))
            else:
                for ids in _iter_ids(dataset, max_tokens):
                    writer.write(serialize_example(_IDS, ids))

    write_atomically(target, write_records)
    return (target,)


def _iter_ids(dataset: TokenDataset, max_tokens: int | None) -> Iterator[NDArray[np.int32]]:
    for row in range(dataset.num_documents):
        ids = dataset.document(row)
        step = max_tokens or max(len(ids), 1)
        for start in range(0, max(len(ids), 1), step):
            yield ids[start : start + step]
