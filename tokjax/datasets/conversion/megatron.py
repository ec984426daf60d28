"""Megatron's `.idx` with its `.bin`: ids without a header, and an index with their dtype and documents."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.atomic_files import NotRegularFileError, open_regular, read_regular, write_files_atomically
from tokjax.core.ragged import make_row_splits
from tokjax.datasets.conversion.token_streams import TokenStream, check_absent, make_stream, write_ids
from tokjax.errors import InvalidArgumentError, SourceError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from tokjax.datasets.dataset_types import TokenDataset

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEADER = struct.Struct("<9sQBQQ")
_MAX_LENGTH = (1 << 31) - 1
"""Maximum number of ids in a document: an index stores lengths as `int32`."""
_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


def has_index(data: Path) -> bool:
    """Returns whether a `.bin` has an index of Megatron next to it."""
    try:
        with open_regular(data.with_suffix(".idx")) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (FileNotFoundError, NotRegularFileError):
        return False


def read(path: Path, tokenizer: Any) -> TokenStream:  # noqa: ARG001 (the index has the documents)
    """Opens an index and its ids.

    Raises:
        SourceError: a file is missing or damaged, or both do not match.
    """
    data = path.with_suffix(".bin")
    try:
        index = read_regular(path.with_suffix(".idx"))
    except FileNotFoundError:
        if not data.exists():
            raise
        raise SourceError(
            f"{data}: {path.stem}.idx is missing; the program that wrote it may have been stopped"
        ) from None
    except NotRegularFileError:
        raise SourceError(f"{path}: is not a regular file") from None
    if len(index) < _HEADER.size or not index.startswith(_MAGIC):
        raise SourceError(f"{path}: is not a Megatron index: it does not begin with {_MAGIC!r}")
    _, version, code, sequences, documents = _HEADER.unpack_from(index)
    expected_nbytes = _HEADER.size + 12 * sequences + 8 * documents
    if version != _VERSION or code not in _DTYPES or len(index) < expected_nbytes:
        raise SourceError(
            f"{path}: version {version}, dtype {code}, {sequences} sequences in {len(index)} bytes: "
            "truncated, or another kind of index"
        )
    sizes = np.frombuffer(index, "<i4", sequences, _HEADER.size)
    ends = np.frombuffer(index, "<i8", documents, _HEADER.size + 12 * sequences)
    dtype = np.dtype(_DTYPES[code])
    splits = make_row_splits(sizes.astype(np.int64))
    byte_offsets = np.frombuffer(index, "<i8", sequences, _HEADER.size + 4 * sequences)
    is_consistent = (sizes >= 0).all() and np.array_equal(byte_offsets, splits[:-1] * dtype.itemsize)
    if documents:
        is_consistent &= ends[0] == 0 and ends[-1] == sequences and (np.diff(ends) >= 0).all()
    if not is_consistent:
        raise SourceError(f"{path}: its sizes, offsets and documents are inconsistent: damaged")
    if data.stat().st_size != splits[-1] * dtype.itemsize:
        raise SourceError(
            f"{data}: has {data.stat().st_size} bytes, {path.name} says {splits[-1]} ids of {dtype}"
        )
    ids = np.memmap(data, dtype, "r") if splits[-1] else np.zeros(0, dtype)
    return make_stream(ids, splits.take(ends) if documents else splits)


def write(dataset: TokenDataset, target: Path, *, overwrite: bool) -> tuple[Path, ...]:
    """Writes the ids of a dataset and their index, and returns the paths of both files.

    Raises:
        InvalidArgumentError: a document is too long for the index.
    """
    data, index = target.with_suffix(".bin"), target.with_suffix(".idx")
    check_absent([data, index], overwrite=overwrite)
    dtype = np.dtype("<u2" if dataset.vocab_size <= 1 << 16 else "<i4")
    _check_lengths(dataset)
    write_files_atomically(
        [
            (data, lambda file: write_ids(file, dataset, dtype, 0, dataset.num_tokens)),
            (index, lambda file: _write_index(file, dataset, dtype)),
        ]
    )
    return data, index


def _check_lengths(dataset: TokenDataset) -> None:
    longest = int(dataset.document_lengths.max(initial=0))
    if longest > _MAX_LENGTH:
        row = int(dataset.document_lengths.argmax())
        raise InvalidArgumentError(
            f"document {row} has {longest:,} ids, and Megatron's index holds lengths up to "
            f"{_MAX_LENGTH:,}; pass format='npy', or split the document and write the dataset again"
        )


def _write_index(file: BinaryIO, dataset: TokenDataset, dtype: np.dtype[Any]) -> None:
    code = next(code for code, name in _DTYPES.items() if np.dtype(name) == dtype)
    count = dataset.num_documents
    file.write(_HEADER.pack(_MAGIC, _VERSION, code, count, count + 1))
    file.write(dataset.document_lengths.astype("<i4").tobytes())
    file.write((dataset.document_splits[:-1] * dtype.itemsize).astype("<i8").tobytes())
    file.write(np.arange(count + 1, dtype="<i8").tobytes())
