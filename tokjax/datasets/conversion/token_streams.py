"""Token ids that another program wrote, and their documents.

Ids are copied as they are. Files that only hold a stream of ids are split into documents after each EOS id:

    ids        [5, 6, 0, 7, 0, 8]         (0 is the EOS id)
    splits     [0, 3, 5, 6]
    documents  [5, 6, 0], [7, 0], [8]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.datasets.document_encoding import Documents, EncodedDocuments
from tokjax.errors import DatasetExistsError, DatasetMismatchError, make_overwrite_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset

BATCH_TOKENS = 1 << 22
"""Number of ids that are read or written at once."""


class TokenStream(NamedTuple):
    """Token ids that another program wrote. They are read when they are needed.

    Attributes:
        read: function that returns the ids `[start, stop)`, integers, shape `(stop - start,)`.
        splits: start offset of each document in the ids, and the end of the last, `int64`, shape
            `(documents + 1,)`.
    """

    read: Callable[[int, int], NDArray[Any]]
    splits: NDArray[np.int64]

    @property
    def num_ids(self) -> int:
        """Total number of ids."""
        return int(self.splits[-1])


def make_stream(ids: NDArray[Any], splits: NDArray[np.int64]) -> TokenStream:
    """Returns the stream of an array, which may be a memory map.

    Args:
        ids: token ids of all documents, concatenated, shape `(num_tokens,)`.
        splits: start offset of each document, and the end of the last, `int64`, shape `(documents + 1,)`.
    """
    return TokenStream(lambda start, stop: ids[start:stop], splits)


def iter_ranges(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yields the bounds of consecutive ranges of at most `BATCH_TOKENS` ids."""
    for first in range(start, stop, BATCH_TOKENS):
        yield first, min(first + BATCH_TOKENS, stop)


def split_after(ids: NDArray[Any], eos: int | None) -> NDArray[np.int64]:
    """Returns the splits of documents that end after each EOS id; one document if `eos` is `None`."""
    ranges = () if eos is None else iter_ranges(0, len(ids))
    ends = [np.flatnonzero(ids[start:stop] == eos) + start + 1 for start, stop in ranges]
    return np.unique(np.concatenate([[0], *ends, [len(ids)]]))


def check_ids(stream: TokenStream, vocab_size: int, path: Path) -> None:
    """Raises `DatasetMismatchError` for an id outside the vocabulary, before anything is written."""
    for start, stop in iter_ranges(0, stream.num_ids):
        part = stream.read(start, stop)
        if not 0 <= part.min() <= part.max() < vocab_size:
            position = int(np.flatnonzero((part < 0) | (part >= vocab_size))[0])
            raise DatasetMismatchError(
                f"{path} holds the id {part[position]} (at index {start + position}), and the tokenizer's "
                f"vocabulary size is {vocab_size}; pass the tokenizer that produced the ids"
            )


def iter_documents(
    stream: TokenStream, dtype: np.dtype[Any], first: int = 0, stop: int | None = None
) -> Iterator[tuple[Documents, EncodedDocuments]]:
    """Iterates over batches of documents, about `BATCH_TOKENS` ids each.

    Args:
        stream: token ids and their documents.
        dtype: dtype of the ids in the batches.
        first: index of the first document.
        stop: index after the last document; `None` for all.
    """
    splits = stream.splits[: None if stop is None else stop + 1]
    while first < len(splits) - 1:
        last = max(int(np.searchsorted(splits, splits[first] + BATCH_TOKENS, "right")) - 1, first + 1)
        data = np.array(stream.read(int(splits[first]), int(splits[last])), dtype)
        local = splits[first : last + 1] - splits[first]
        texts: list[Any] = [data[a:b].tobytes() for a, b in zip(local, local[1:], strict=False)]
        num_dropped = np.zeros(last - first, np.int64)
        yield Documents(list(range(first, last)), texts), EncodedDocuments(data, local, {}, num_dropped, {})
        first = last


def check_absent(files: Sequence[Path], *, overwrite: bool) -> None:
    """Raises `DatasetExistsError` if a file exists and may not be replaced."""
    for file in files:
        if file.exists() and not overwrite:
            raise DatasetExistsError(f"{file} exists", hint=make_overwrite_hint("replace it"))


def write_ids(file: BinaryIO, dataset: TokenDataset, dtype: np.dtype[Any], start: int, stop: int) -> None:
    """Writes the ids `[start, stop)` of a dataset to an open file, without a header."""
    ranges = iter_ranges(start, stop)
    file.writelines(dataset.read(first, last).astype(dtype).tobytes() for first, last in ranges)
