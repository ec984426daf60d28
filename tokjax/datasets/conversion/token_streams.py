"""Token ids that another program wrote, and their documents: nanoGPT's `.bin`, `.npy`, Megatron's index.

Ids are copied as they are. Files that only hold a stream of ids are split into documents after each EOS id:

    ids        [5, 6, 0, 7, 0, 8]         (0 is the EOS id)
    splits     [0, 3, 5, 6]
    documents  [5, 6, 0], [7, 0], [8]
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from tokjax._util.atomic_files import (
    NotRegularFileError,
    convert_npy_errors,
    open_regular,
    read_regular,
    write_atomically,
    write_files_atomically,
)
from tokjax.core import protocol
from tokjax.core.ragged import make_row_splits
from tokjax.datasets.document_encoding import Documents, EncodedDocuments
from tokjax.errors import (
    DatasetExistsError,
    DatasetMismatchError,
    Hint,
    InvalidArgumentError,
    SourceError,
    make_overwrite_hint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset


BATCH_TOKENS = 1 << 22
"""Number of ids that are read or written at once."""


TokenFormat: TypeAlias = Literal["nanogpt", "megatron", "npy", "array_record"]
_SUFFIXES = {
    ".bin": "nanogpt",
    ".idx": "megatron",
    ".npy": "npy",
    ".pt": "torch",
    ".array_record": "array_record",
}
OTHER_WAYS = {
    "llm.c": "pass the documents of numpy.fromfile(PATH, 'uint16', offset=1024) to write_dataset, each as "
    "{'ids': DOCUMENT}",
    "levanter": "pass the rows of its input_ids, which tensorstore reads, to write_dataset, each as {'ids': "
    "ROW}; Levanter trains on the batches of a loader",
    "torch": "numpy.save('ids.npy', torch.load(PATH, weights_only=True).numpy()) writes a file to convert, "
    "and torch.from_numpy(numpy.load('ids.npy')) reads an exported one",
}
"""What to do with files of formats that other libraries read better."""
_UINT16 = np.dtype("<u2")
_LLM_C_HEADERS = [number.to_bytes(4, "little") for number in (20240520, 20240801)]
"""First bytes of llm.c's files for GPT-2 and for Llama 3."""
_INSPECTED_IDS = 1 << 16
_MIN_INSPECTED_IDS = 64
"""Number of ids from which a regular pattern is no coincidence."""
_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEADER = struct.Struct("<9sQBQQ")
_MAX_LENGTH = (1 << 31) - 1
"""Maximum number of ids in a document: an index stores lengths as `int32`."""
_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


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
        columns, num_dropped = {"num_tokens": np.diff(local)}, np.zeros(last - first, np.int64)
        encoded = EncodedDocuments({"tokens": data}, columns, num_dropped)
        yield Documents(list(range(first, last)), texts), encoded
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


def read_npy(path: Path, tokenizer: Any) -> TokenStream:
    """Opens an `.npy` file.

    Raises:
        SourceError: the file is damaged, or is not one array of integers of one or two dimensions.
    """
    try:
        with convert_npy_errors():
            ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise SourceError(f"{path}: truncated, or not an .npy file: {error}") from error
    if not isinstance(ids, np.ndarray):
        raise SourceError(f"{path}: holds several arrays; save the array of ids as an .npy")
    return _split_rows(ids, path, tokenizer)


def write_npy(dataset: TokenDataset, target: Path, *, overwrite: bool) -> tuple[Path, ...]:
    """Writes the ids of a dataset as an array of one dimension, and returns the path of the file."""
    check_absent([target], overwrite=overwrite)
    dtype = np.dtype(dataset.manifest.plan.data_dtype)

    def write(file: BinaryIO) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (dataset.num_tokens,)})
        write_ids(file, dataset, dtype, 0, dataset.num_tokens)

    write_atomically(target, write)
    return (target,)


def _split_rows(ids: NDArray[Any], path: Path, tokenizer: Any) -> TokenStream:
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        raise SourceError(
            f"{path}: holds {ids.dtype} of {ids.ndim} dimensions; expected integers of one or two dimensions"
        )
    if ids.ndim == 1:
        return make_stream(ids, split_after(ids, protocol.eos_id(tokenizer)))
    return make_stream(ids.reshape(-1), np.arange(len(ids) + 1) * ids.shape[1])


def detect_format(path: Path, named: str | None) -> TokenFormat:
    """Returns the format that the caller named, or else the usual format of files with this suffix.

    Raises:
        InvalidArgumentError: there is no such format, or the suffix indicates none.
    """
    kind = named or _SUFFIXES.get(path.suffix)
    if kind in OTHER_WAYS:
        raise InvalidArgumentError(f"the format {kind!r} is not read or written; {OTHER_WAYS[kind]}")
    if kind not in get_args(TokenFormat):
        cause = (
            f"can't detect a format from the name {path.name!r}" if named is None else f"format is {named!r}"
        )
        formats = f"one of {get_args(TokenFormat)}"
        raise InvalidArgumentError(cause, hint=Hint(f"pass format, {formats}", f"pass --format, {formats}"))
    return kind  # type: ignore[return-value]


def read_nanogpt(path: Path, tokenizer: Any) -> TokenStream:
    """Opens a file of ids.

    Raises:
        SourceError: the file has an odd number of bytes, or the header of llm.c, or ids of another dtype.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(4) in _LLM_C_HEADERS:  # (read as uint16 ids, the header would be noise)
            raise SourceError(f"{path}: begins with a header of llm.c; {OTHER_WAYS['llm.c']}")
    if size % 2:
        raise SourceError(
            f"{path}: has {size} bytes, an odd number, so it does not hold uint16 ids; it is truncated, or "
            "has another format"
        )
    ids = np.memmap(path, _UINT16, "r") if size else np.zeros(0, _UINT16)
    _reject_uint32(ids[:_INSPECTED_IDS], protocol.vocab_size(tokenizer), path)
    return make_stream(ids, split_after(ids, protocol.eos_id(tokenizer)))


def _reject_uint32(numbers: NDArray[np.uint16], vocab_size: int, path: Path) -> None:
    """Raises `SourceError` for the first ids of a file if they are probably `uint32`.

    Read as `uint16`, each of them is its low half, and its high half, which is small: 7, 0 is the id 7.
    """
    maximum = (vocab_size - 1) >> 16
    low, high = numbers[::2], numbers[1::2]
    if len(numbers) >= _MIN_INSPECTED_IDS and high.max() <= maximum < np.median(low):
        raise SourceError(
            f"{path}: every second of its first {len(numbers):,} numbers is at most {maximum}, so its ids "
            "are probably uint32, and files of nanoGPT are uint16; convert the file that "
            f"numpy.save('ids.npy', numpy.fromfile({str(path)!r}, 'uint32')) writes"
        )


def write_nanogpt(dataset: TokenDataset, target: Path, *, overwrite: bool) -> tuple[Path, ...]:
    """Writes the ids of a dataset, and returns the path of the file.

    Raises:
        InvalidArgumentError: `uint16` does not hold all ids of the vocabulary.
    """
    if np.dtype(dataset.manifest.plan.data_dtype).itemsize > 2:
        raise InvalidArgumentError(
            f"nanoGPT's files are uint16, and the vocabulary has {dataset.vocab_size:,} ids; pass "
            "format='megatron' or 'npy'"
        )
    check_absent([target], overwrite=overwrite)
    write_atomically(target, lambda file: write_ids(file, dataset, _UINT16, 0, dataset.num_tokens))
    return (target,)


def has_megatron_index(data: Path) -> bool:
    """Returns whether a `.bin` has an index of Megatron next to it."""
    try:
        with open_regular(data.with_suffix(".idx")) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (FileNotFoundError, NotRegularFileError):
        return False


def read_megatron(path: Path, tokenizer: Any) -> TokenStream:  # noqa: ARG001 (the index has the documents)
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


def write_megatron(dataset: TokenDataset, target: Path, *, overwrite: bool) -> tuple[Path, ...]:
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
