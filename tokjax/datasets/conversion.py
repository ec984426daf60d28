"""Conversion of token files between tokjax datasets and nanoGPT, Megatron, NumPy and PyTorch.

Ids are copied as they are. Files that only hold a stream of ids are split into documents after each EOS id:

    ids        [5, 6, 0, 7, 0, 8]         (0 is the EOS id)
    splits     [0, 3, 5, 6]
    documents  [5, 6, 0], [7, 0], [8]
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from tokjax._util.atomic_files import (
    NotRegularFileError,
    clear_incomplete_directory,
    convert_npy_errors,
    open_atomic_directory,
    read_regular,
    resolve,
    write_atomically,
    write_files_atomically,
)
from tokjax._util.checks import check_int
from tokjax._util.imports import import_optional
from tokjax._util.urls import reject_urls
from tokjax.core import protocol
from tokjax.core.ragged import make_row_splits
from tokjax.datasets.dataset_types import TokenDataset
from tokjax.datasets.document_encoding import Documents, EncodedDocuments
from tokjax.datasets.document_sources import compute_digests
from tokjax.datasets.fields.packed_tokens import PackedTokenField
from tokjax.datasets.shards import ShardWriter
from tokjax.datasets.writer import (
    DATASET,
    DEFAULT_SHARD_SIZE,
    WrittenDataset,
    finish_dataset,
    make_plan,
    summarize_dataset,
)
from tokjax.errors import (
    DatasetExistsError,
    DatasetMismatchError,
    Hint,
    InvalidArgumentError,
    SourceError,
    make_overwrite_hint,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray


TokenFormat: TypeAlias = Literal["nanogpt", "megatron", "npy", "torch"]
_SUFFIXES: dict[str, TokenFormat] = {".bin": "nanogpt", ".idx": "megatron", ".npy": "npy", ".pt": "torch"}
_BATCH_TOKENS = 1 << 22
_LLM_C_HEADERS = {struct.pack("<ii", 20240520, 1): "<u2", struct.pack("<ii", 20240801, 7): "<u4"}
_LLM_C_HEADER_SIZE = 1024
_MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
_MEGATRON_VERSION = 1
_MEGATRON_HEADER = struct.Struct("<9sQBQQ")
_MEGATRON_MAX_LENGTH = (1 << 31) - 1
"""Maximum number of ids in a document: an index stores lengths as `int32`."""
_MEGATRON_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


class _TokenStream(NamedTuple):
    """Token ids that another program wrote.

    Attributes:
        ids: token ids of all documents, concatenated, shape `(num_tokens,)`; possibly a memory map.
        splits: start offset of each document in `ids`, and the end of the last, `int64`, shape
            `(documents + 1,)`; `None` if the file does not record documents.
    """

    ids: NDArray[Any]
    splits: NDArray[np.int64] | None


def convert_dataset(
    path: str | os.PathLike[str],
    tokenizer: Any,
    out: str | os.PathLike[str],
    *,
    format: TokenFormat | None = None,  # noqa: A002 (the usual name of this parameter)
    chunk_tokens: int = 4096,
    shard_size: int = DEFAULT_SHARD_SIZE,
    overwrite: bool = False,
) -> WrittenDataset:
    """Converts a token file of another program into a packed dataset. The ids are stored unchanged.

    | format | file | documents |
    |---|---|---|
    | `"nanogpt"` | `.bin`, `uint16` without a header | end with the tokenizer's EOS token |
    | `"megatron"` | `.idx`, next to its `.bin` | as recorded in the index |
    | `"npy"` | `.npy` of integers, one or two dimensions | rows; in one dimension, as for nanoGPT |
    | `"torch"` | `.pt`, one tensor (needs `torch`) | as for `.npy` |

    Args:
        path: path of the token file.
        tokenizer: tokenizer that produced the ids. It determines the vocabulary size and the EOS token.
        out: path of the dataset directory to write.
        format: format of the file; `None` to detect it from the file name.
        chunk_tokens: number of ids that a loader returns per chunk, as in `PackedTokenField`.
        shard_size: number of ids at which a shard is closed, as in `write_dataset`.
        overwrite: whether to replace an existing dataset, as in `write_dataset`.

    Returns:
        The counts of the dataset, and its path.

    Raises:
        DatasetExistsError: `out` exists, or holds finished shards of an interrupted writer, and `overwrite`
            is not set.
        DatasetMismatchError: an id is not in the tokenizer's vocabulary. Nothing was written.
        SourceError: the file is damaged or has another format.
    """
    reject_urls(path, out)
    stream = _READERS[_detect_format(Path(path), format)](Path(path))
    field = PackedTokenField(
        tokenizer, chunk_tokens, add_eos_between_docs=protocol.eos_id(tokenizer) is not None
    )
    _check_ids(stream.ids, protocol.vocab_size(tokenizer), Path(path))
    plan = make_plan(field, check_int("shard_size", shard_size, minimum=1))
    target = resolve(out)
    with open_atomic_directory(target, DATASET, overwrite=overwrite) as directory:
        clear_incomplete_directory(directory, DATASET, overwrite=overwrite)
        with ShardWriter(directory, field, shard_size, (), lambda _: None, counts_text=False) as writer:
            for documents, encoded in _iter_documents(stream, protocol.eos_id(tokenizer), field.data_dtype):
                writer.add(compute_digests(documents), encoded)
        source = {"converted": str(Path(path).resolve()), "num_bytes": Path(path).stat().st_size}
        manifest = finish_dataset(directory, field, plan, source, writer.shards)
    return summarize_dataset(manifest, target)


def export_dataset(
    dataset: TokenDataset,
    path: str | os.PathLike[str],
    format: TokenFormat | None = None,  # noqa: A002
    *,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Writes the ids of a dataset in the format of another program. `convert_dataset` lists the formats.

    Side columns are not exported: these formats have no place for them.

    Args:
        dataset: open dataset of token ids.
        path: path of the file to write; for `"megatron"` that of the `.idx`, next to which a `.bin` is
            written.
        format: format to write; `None` to detect it from the file name. `"torch"` is not supported:
            `torch.from_numpy` accepts an `.npy`.
        overwrite: whether to replace existing files.

    Returns:
        The paths of the files that were written.

    Raises:
        DatasetExistsError: a file exists and `overwrite` is not set.
        InvalidArgumentError: the format can't represent these ids, or can't be written.
    """
    reject_urls(path)
    if not isinstance(dataset, TokenDataset):
        raise InvalidArgumentError(f"dataset must be a TokenDataset, not a {type(dataset).__name__}")
    target = Path(path)
    kind = _detect_format(target, format)
    if kind == "torch":
        raise InvalidArgumentError(
            "writing a .pt is not supported; write an .npy, which torch.from_numpy(np.load(...)) accepts"
        )
    if kind == "nanogpt" and np.dtype(dataset.manifest.plan.data_dtype).itemsize > 2:
        raise InvalidArgumentError(
            f"nanoGPT's files are uint16, and the vocabulary has {dataset.vocab_size:,} ids; pass "
            "format='megatron' or 'npy'"
        )
    data, index = target.with_suffix(".bin"), target.with_suffix(".idx")
    for file in (data, index) if kind == "megatron" else (target,):
        if file.exists() and not overwrite:
            raise DatasetExistsError(f"{file} exists", hint=make_overwrite_hint("replace it"))
    if kind == "megatron":
        dtype = np.dtype("<u2" if dataset.vocab_size <= 1 << 16 else "<i4")
        _check_megatron_lengths(dataset)
        write_files_atomically(
            [
                (data, lambda file: _write_ids(file, dataset, dtype)),
                (index, lambda file: _write_index(file, dataset, dtype)),
            ]
        )
        return data, index
    dtype = np.dtype("<u2") if kind == "nanogpt" else np.dtype(dataset.manifest.plan.data_dtype)

    def write(file: BinaryIO) -> None:
        if kind == "npy":
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (dataset.num_tokens,)})
        _write_ids(file, dataset, dtype)

    write_atomically(target, write)
    return (target,)


def _detect_format(path: Path, named: str | None) -> TokenFormat:
    kind = named or _SUFFIXES.get(path.suffix)
    if kind not in get_args(TokenFormat):
        cause = (
            f"can't detect a format from the name {path.name!r}" if named is None else f"format is {named!r}"
        )
        formats = f"one of {get_args(TokenFormat)}"
        raise InvalidArgumentError(cause, hint=Hint(f"pass format, {formats}", f"pass --format, {formats}"))
    return kind  # type: ignore[return-value]


def _read_nanogpt(path: Path) -> _TokenStream:
    size = path.stat().st_size
    with path.open("rb") as file:
        dtype = _LLM_C_HEADERS.get(file.read(8))
    if dtype is not None:  # reject it: read as uint16 ids, the header would be noise
        raise SourceError(
            f"{path}: begins with a header of llm.c, whose documents begin with the EOS token; convert the "
            f"output of np.save('ids.npy', np.roll(np.fromfile({path.name!r}, {dtype!r}, "
            f"offset={_LLM_C_HEADER_SIZE}), -1))"
        )
    if size % 2:
        raise SourceError(
            f"{path}: has {size} bytes, an odd number, so it does not hold uint16 ids; it is truncated, or "
            "has another format"
        )
    ids = np.memmap(path, "<u2", "r") if size else np.zeros(0, "<u2")
    return _TokenStream(ids, None)


def _read_npy(path: Path) -> _TokenStream:
    try:
        with convert_npy_errors():
            ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise SourceError(f"{path}: truncated, or not an .npy file: {error}") from error
    if not isinstance(ids, np.ndarray):
        raise SourceError(f"{path}: holds several arrays; save the array of ids as an .npy")
    return _make_stream(ids, path)


def _read_torch(path: Path) -> _TokenStream:
    torch = import_optional("torch", extra="torch", purpose=f"reading {path}")
    try:
        tensor = torch.load(path, weights_only=True, map_location="cpu")
        return _make_stream(tensor.numpy(), path)
    except (AttributeError, TypeError, RuntimeError, EOFError) as error:
        raise SourceError(f"{path}: does not hold one tensor: {error}") from error


def _make_stream(ids: NDArray[Any], path: Path) -> _TokenStream:
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        raise SourceError(
            f"{path}: holds {ids.dtype} of {ids.ndim} dimensions; expected integers of one or two dimensions"
        )
    if ids.ndim == 1:
        return _TokenStream(ids, None)
    return _TokenStream(ids.reshape(-1), np.arange(len(ids) + 1) * ids.shape[1])


def _read_megatron(path: Path) -> _TokenStream:
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
    if len(index) < _MEGATRON_HEADER.size or not index.startswith(_MEGATRON_MAGIC):
        raise SourceError(f"{path}: is not a Megatron index: it does not begin with {_MEGATRON_MAGIC!r}")
    _, version, code, sequences, documents = _MEGATRON_HEADER.unpack_from(index)
    expected_nbytes = _MEGATRON_HEADER.size + 12 * sequences + 8 * documents
    if version != _MEGATRON_VERSION or code not in _MEGATRON_DTYPES or len(index) < expected_nbytes:
        raise SourceError(
            f"{path}: version {version}, dtype {code}, {sequences} sequences in {len(index)} bytes: "
            "truncated, or another kind of index"
        )
    sizes = np.frombuffer(index, "<i4", sequences, _MEGATRON_HEADER.size)
    ends = np.frombuffer(index, "<i8", documents, _MEGATRON_HEADER.size + 12 * sequences)
    dtype = np.dtype(_MEGATRON_DTYPES[code])
    splits = make_row_splits(sizes.astype(np.int64))
    byte_offsets = np.frombuffer(index, "<i8", sequences, _MEGATRON_HEADER.size + 4 * sequences)
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
    return _TokenStream(ids, splits.take(ends) if documents else splits)


_READERS = {"nanogpt": _read_nanogpt, "megatron": _read_megatron, "npy": _read_npy, "torch": _read_torch}


def _check_ids(ids: NDArray[Any], vocab_size: int, path: Path) -> None:
    """Raises `DatasetMismatchError` for an id outside the vocabulary, before anything is written."""
    for start in range(0, len(ids), _BATCH_TOKENS):
        part = ids[start : start + _BATCH_TOKENS]
        if not 0 <= part.min() <= part.max() < vocab_size:
            position = int(np.flatnonzero((part < 0) | (part >= vocab_size))[0])
            raise DatasetMismatchError(
                f"{path} holds the id {part[position]} (at index {start + position}), and the tokenizer's "
                f"vocabulary size is {vocab_size}; pass the tokenizer that produced the ids"
            )


def _iter_documents(
    stream: _TokenStream, eos: int | None, dtype: np.dtype[Any]
) -> Iterator[tuple[Documents, EncodedDocuments]]:
    """Iterates over batches of documents, about `_BATCH_TOKENS` ids each."""
    splits = _find_splits(stream.ids, eos) if stream.splits is None else stream.splits
    first = 0
    while first < len(splits) - 1:
        last = max(int(np.searchsorted(splits, splits[first] + _BATCH_TOKENS, "right")) - 1, first + 1)
        ids = np.array(stream.ids[splits[first] : splits[last]])
        local = splits[first : last + 1] - splits[first]
        data = ids.astype(dtype)
        texts: list[Any] = [data[a:b].tobytes() for a, b in zip(local, local[1:], strict=False)]
        num_dropped = np.zeros(last - first, np.int64)
        yield Documents(list(range(first, last)), texts), EncodedDocuments(data, local, {}, num_dropped, {})
        first = last


def _find_splits(ids: NDArray[Any], eos: int | None) -> NDArray[np.int64]:
    """Returns the start offset of each document, and the end of the last: documents end after each EOS id."""
    parts = [np.zeros(1, np.int64)]
    if eos is not None:
        starts = range(0, len(ids), _BATCH_TOKENS)
        parts += [np.flatnonzero(ids[start : start + _BATCH_TOKENS] == eos) + start + 1 for start in starts]
    splits = np.concatenate(parts)
    return splits if splits[-1] == len(ids) else np.append(splits, len(ids))


def _write_ids(file: BinaryIO, dataset: TokenDataset, dtype: np.dtype[Any]) -> None:
    for start in range(0, dataset.num_tokens, _BATCH_TOKENS):
        stop = min(start + _BATCH_TOKENS, dataset.num_tokens)
        file.write(dataset.read(start, stop).astype(dtype).tobytes())


def _check_megatron_lengths(dataset: TokenDataset) -> None:
    longest = int(dataset.document_lengths.max(initial=0))
    if longest > _MEGATRON_MAX_LENGTH:
        row = int(dataset.document_lengths.argmax())
        raise InvalidArgumentError(
            f"document {row} has {longest:,} ids, and Megatron's index holds lengths up to "
            f"{_MEGATRON_MAX_LENGTH:,}; pass format='npy', or split the document and write the dataset "
            "again"
        )


def _write_index(file: BinaryIO, dataset: TokenDataset, dtype: np.dtype[Any]) -> None:
    code = next(code for code, name in _MEGATRON_DTYPES.items() if np.dtype(name) == dtype)
    count = dataset.num_documents
    file.write(_MEGATRON_HEADER.pack(_MEGATRON_MAGIC, _MEGATRON_VERSION, code, count, count + 1))
    file.write(dataset.document_lengths.astype("<i4").tobytes())
    file.write((dataset.document_splits[:-1] * dtype.itemsize).astype("<i8").tobytes())
    file.write(np.arange(count + 1, dtype="<i8").tobytes())
