"""Conversion of token files of other programs into datasets, and back: nanoGPT, Megatron, NumPy, ArrayRecord.

Ids are copied as they are. Files that only hold a stream of ids are split into documents after each EOS id:

    ids        [5, 6, 0, 7, 0, 8]         (0 is the EOS id)
    splits     [0, 3, 5, 6]
    documents  [5, 6, 0], [7, 0], [8]

Each format has a function that reads a file as a `TokenStream`, and one that returns the files to write. A
record of an ArrayRecord file, for Grain and MaxText, is a `tf.train.Example` with one document.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from tokjax._util.atomic_files import (
    NotRegularFileError,
    check_path,
    convert_npy_errors,
    open_regular,
    read_regular,
    resolve,
    write_files_atomically,
)
from tokjax._util.checks import check_int
from tokjax._util.urls import reject_urls
from tokjax.core import protocol
from tokjax.core.ragged import make_row_splits
from tokjax.corpus.array_record import (
    count_records,
    iter_records,
    open_array_record_writer,
    serialize_example,
)
from tokjax.corpus.decompression import open_source
from tokjax.datasets.dataset_types import RawTextDataset, TokenDataset
from tokjax.datasets.document_encoding import Documents, EncodedDocuments
from tokjax.datasets.document_sources import SourceHash, compute_digests
from tokjax.datasets.fields.text_fields import PackedTokenField
from tokjax.datasets.shard_writing import ShardWriter
from tokjax.datasets.writer import DEFAULT_SHARD_SIZE, WrittenDataset, finish_dataset, make_plan, write_once
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

    from tokjax.datasets.manifest import Manifest, Shard


_BATCH_TOKENS = 1 << 22
"""Number of ids that are read or written at once."""


Files: TypeAlias = "list[tuple[Path, Callable[[BinaryIO], object]]]"
"""Path of each file to write, and the function that writes its contents."""
TokenFormat: TypeAlias = Literal["nanogpt", "megatron", "npy", "array_record"]
_OTHER_WAYS = {
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


def _make_stream(ids: NDArray[Any], splits: NDArray[np.int64]) -> TokenStream:
    """Returns the stream of an array, which may be a memory map.

    Args:
        ids: token ids of all documents, concatenated, shape `(num_tokens,)`.
        splits: start offset of each document, and the end of the last, `int64`, shape `(documents + 1,)`.
    """
    return TokenStream(lambda start, stop: ids[start:stop], splits)


def _iter_ranges(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yields the bounds of consecutive ranges of at most `_BATCH_TOKENS` ids."""
    for first in range(start, stop, _BATCH_TOKENS):
        yield first, min(first + _BATCH_TOKENS, stop)


def _split_after(ids: NDArray[Any], eos: int | None) -> NDArray[np.int64]:
    """Returns the splits of documents that end after each EOS id; one document if `eos` is `None`."""
    ranges = () if eos is None else _iter_ranges(0, len(ids))
    ends = [np.flatnonzero(ids[start:stop] == eos) + start + 1 for start, stop in ranges]
    return np.unique(np.concatenate([[0], *ends, [len(ids)]]))


def _check_ids(stream: TokenStream, vocab_size: int, path: Path) -> None:
    """Raises `DatasetMismatchError` for an id outside the vocabulary, before anything is written."""
    for start, stop in _iter_ranges(0, stream.num_ids):
        part = stream.read(start, stop)
        if not 0 <= part.min() <= part.max() < vocab_size:
            position = int(np.flatnonzero((part < 0) | (part >= vocab_size))[0])
            raise DatasetMismatchError(
                f"{path} holds the id {part[position]} (at index {start + position}), and the tokenizer's "
                f"vocabulary size is {vocab_size}; pass the tokenizer that produced the ids"
            )


def _iter_documents(
    stream: TokenStream, dtype: np.dtype[Any], first: int = 0, stop: int | None = None
) -> Iterator[tuple[Documents, EncodedDocuments]]:
    """Iterates over batches of documents, about `_BATCH_TOKENS` ids each.

    Args:
        stream: token ids and their documents.
        dtype: dtype of the ids in the batches.
        first: index of the first document.
        stop: index after the last document; `None` for all.
    """
    splits = stream.splits[: None if stop is None else stop + 1]
    while first < len(splits) - 1:
        last = max(int(np.searchsorted(splits, splits[first] + _BATCH_TOKENS, "right")) - 1, first + 1)
        data = np.array(stream.read(int(splits[first]), int(splits[last])), dtype)
        local = splits[first : last + 1] - splits[first]
        texts: list[Any] = [data[a:b].tobytes() for a, b in zip(local, local[1:], strict=False)]
        columns, num_dropped = {"num_tokens": np.diff(local)}, np.zeros(last - first, np.int64)
        encoded = EncodedDocuments({"tokens": data}, columns, num_dropped)
        yield Documents(list(range(first, last)), texts), encoded
        first = last


def _write_ids(file: BinaryIO, dataset: TokenDataset, dtype: np.dtype[Any]) -> None:
    """Writes the ids of a dataset to an open file, without a header."""
    ranges = _iter_ranges(0, dataset.num_tokens)
    file.writelines(dataset.read(first, last).astype(dtype).tobytes() for first, last in ranges)


def _read_npy(path: Path, tokenizer: Any) -> TokenStream:
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


def _plan_npy(dataset: TokenDataset, target: Path) -> Files:
    """Returns the file of an array of one dimension."""
    dtype = np.dtype(dataset.manifest.plan.data_dtype)

    def write(file: BinaryIO) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (dataset.num_tokens,)})
        _write_ids(file, dataset, dtype)

    return [(target, write)]


def _split_rows(ids: NDArray[Any], path: Path, tokenizer: Any) -> TokenStream:
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        raise SourceError(
            f"{path}: holds {ids.dtype} of {ids.ndim} dimensions; expected integers of one or two dimensions"
        )
    if ids.ndim == 1:
        return _make_stream(ids, _split_after(ids, protocol.eos_id(tokenizer)))
    return _make_stream(ids.reshape(-1), np.arange(len(ids) + 1) * ids.shape[1])


def _detect_format(path: Path, named: str | None) -> TokenFormat:
    """Returns the format that the caller named, or else the usual format of files with this suffix.

    Raises:
        InvalidArgumentError: there is no such format, or the suffix indicates none.
    """
    kind = named or _SUFFIXES.get(path.suffix)
    if kind in _OTHER_WAYS:
        raise InvalidArgumentError(f"the format {kind!r} is not read or written; {_OTHER_WAYS[kind]}")
    if kind not in get_args(TokenFormat):
        cause = (
            f"can't detect a format from the name {path.name!r}" if named is None else f"format is {named!r}"
        )
        formats = f"one of {get_args(TokenFormat)}"
        raise InvalidArgumentError(cause, hint=Hint(f"pass format, {formats}", f"pass --format, {formats}"))
    return kind  # type: ignore[return-value]


def _read_nanogpt(path: Path, tokenizer: Any) -> TokenStream:
    """Opens a file of ids.

    Raises:
        SourceError: the file has an odd number of bytes, or the header of llm.c, or ids of another dtype.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(4) in _LLM_C_HEADERS:  # (read as uint16 ids, the header would be noise)
            raise SourceError(f"{path}: begins with a header of llm.c; {_OTHER_WAYS['llm.c']}")
    if size % 2:
        raise SourceError(
            f"{path}: has {size} bytes, an odd number, so it does not hold uint16 ids; it is truncated, or "
            "has another format"
        )
    ids = np.memmap(path, _UINT16, "r") if size else np.zeros(0, _UINT16)
    _reject_uint32(ids[:_INSPECTED_IDS], protocol.vocab_size(tokenizer), path)
    return _make_stream(ids, _split_after(ids, protocol.eos_id(tokenizer)))


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


def _plan_nanogpt(dataset: TokenDataset, target: Path) -> Files:
    """Returns the file of ids.

    Raises:
        InvalidArgumentError: `uint16` does not hold all ids of the vocabulary.
    """
    if np.dtype(dataset.manifest.plan.data_dtype).itemsize > 2:
        raise InvalidArgumentError(
            f"nanoGPT's files are uint16, and the vocabulary has {dataset.vocab_size:,} ids; pass "
            "format='megatron' or 'npy'"
        )
    return [(target, lambda file: _write_ids(file, dataset, _UINT16))]


def _has_megatron_index(data: Path) -> bool:
    """Returns whether a `.bin` has an index of Megatron next to it."""
    try:
        with open_regular(data.with_suffix(".idx")) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (FileNotFoundError, NotRegularFileError):
        return False


def _read_megatron(path: Path, tokenizer: Any) -> TokenStream:  # noqa: ARG001 (the index has the documents)
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
    return _make_stream(ids, splits.take(ends) if documents else splits)


def _plan_megatron(dataset: TokenDataset, target: Path) -> Files:
    """Returns the files of the ids and of their index.

    Raises:
        InvalidArgumentError: a document is too long for the index.
    """
    dtype = np.dtype("<u2" if dataset.vocab_size <= 1 << 16 else "<i4")
    _check_lengths(dataset)
    return [
        (target.with_suffix(".bin"), lambda file: _write_ids(file, dataset, dtype)),
        (target.with_suffix(".idx"), lambda file: _write_index(file, dataset, dtype)),
    ]


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


_IDS = "input_ids"
"""Name of the feature that holds the ids of a document."""
_TEXT = "text"
"""Name of the feature that holds the text of a document, which is MaxText's default."""
_RECORD_OPTIONS = "group_size:1"
"""One record per compressed block, as Grain requires for random access."""


def _read_array_record(path: Path, tokenizer: Any) -> TokenStream:  # noqa: ARG001 (the records are the documents)
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


def _plan_array_record(
    dataset: TokenDataset | RawTextDataset, target: Path, max_tokens: int | None = None
) -> Files:
    """Returns the file of the documents of a dataset as records.

    Args:
        dataset: dataset of token ids or texts.
        target: path of the file.
        max_tokens: maximum number of ids of a record; longer documents are split. `None` for no limit.
    """

    def write_records(file: BinaryIO) -> None:
        with open_array_record_writer(target, file, _RECORD_OPTIONS) as writer:
            if isinstance(dataset, RawTextDataset):
                for row in range(dataset.num_documents):
                    writer.write(serialize_example(_TEXT, dataset.text_bytes(row)))
            else:
                for ids in _iter_ids(dataset, max_tokens):
                    writer.write(serialize_example(_IDS, ids))

    return [(target, write_records)]


def _iter_ids(dataset: TokenDataset, max_tokens: int | None) -> Iterator[NDArray[np.int32]]:
    for row in range(dataset.num_documents):
        ids = dataset.document(row)
        step = max_tokens or max(len(ids), 1)
        for start in range(0, max(len(ids), 1), step):
            yield ids[start : start + step]


class _Format(NamedTuple):
    """Format of token files.

    Attributes:
        suffix: suffix of the names of its files.
        read: function of a path and the tokenizer that opens a file.
        plan: function of a dataset and a path that returns the files to write.
    """

    suffix: str
    read: Callable[[Path, Any], TokenStream]
    plan: Callable[..., Files]


_FORMATS: dict[str, _Format] = {
    "nanogpt": _Format(".bin", _read_nanogpt, _plan_nanogpt),
    "megatron": _Format(".idx", _read_megatron, _plan_megatron),
    "npy": _Format(".npy", _read_npy, _plan_npy),
    "array_record": _Format(".array_record", _read_array_record, _plan_array_record),
}
_SUFFIXES = {".pt": "torch"} | {each.suffix: name for name, each in _FORMATS.items()}


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
    | `"megatron"` | `.idx` or `.bin`, next to each other | as recorded in the index |
    | `"npy"` | `.npy` of integers, one or two dimensions | rows; in one dimension, as for nanoGPT |
    | `"array_record"` | `.array_record` with `input_ids` (needs `tokjax[arrayrecord]`) | its records |

    Args:
        path: path of the token file.
        tokenizer: tokenizer that produced the ids. It determines the vocabulary size and the EOS token.
        out: path of the dataset directory to write.
        format: format of the file; `None` to detect it from the file name, and for a `.bin` from the header
            of an `.idx` of the same name.
        chunk_tokens: number of ids that a loader returns per chunk, as in `PackedTokenField`.
        shard_size: number of ids at which a shard is closed, as in `write_dataset`.
        overwrite: whether to replace an existing dataset, as in `write_dataset`.

    Returns:
        The counts of the dataset, and its path.

    Raises:
        DatasetExistsError: `out` holds another dataset, or finished shards of another interrupted writer, and
            `overwrite` is not set. The same dataset is left unchanged.
        FileNotFoundError: the path does not exist.
        DatasetMismatchError: an id is not in the tokenizer's vocabulary. Nothing was written.
        InvalidArgumentError: the path is that of a directory, a pipe or a device.
        SourceError: the file is damaged or has another format.
    """
    reject_urls(path, out)
    source = check_path(path)
    kind = _detect_contents(source, format)
    if source.exists():
        open_source(source).close()  # (raises an error unless it is a regular file)
    stream = _FORMATS[kind].read(source, tokenizer)
    field = PackedTokenField(
        tokenizer, chunk_tokens, add_eos_between_docs=protocol.eos_id(tokenizer) is not None
    )
    _check_ids(stream, protocol.vocab_size(tokenizer), source)
    plan = make_plan(field, check_int("shard_size", shard_size, minimum=1))
    described = {
        "converted": str(source.resolve()),
        "num_bytes": source.stat().st_size if source.is_file() else 0,
    }

    def is_same(manifest: Manifest) -> bool:
        return (manifest.plan, manifest.source) == (plan, described) and _have_same_documents(
            manifest.shards, stream, field.data_dtype
        )

    def write(directory: Path) -> Manifest:
        with ShardWriter(directory, field, shard_size, counts_text=False).open() as writer:
            for documents, encoded in _iter_documents(stream, field.data_dtype):
                writer.add(compute_digests(documents), encoded)
        return finish_dataset(directory, field, plan, described, writer.shards)

    return write_once(resolve(out), is_same, write, overwrite=overwrite)


def _have_same_documents(shards: Sequence[Shard], stream: TokenStream, dtype: np.dtype[Any]) -> bool:
    """Returns whether the documents of shards are those of a stream, by their digests."""
    stops = np.cumsum([0, *(shard.num_documents for shard in shards)]).tolist()
    if stops[-1] != len(stream.splits) - 1:
        return False
    digest = SourceHash()
    for shard, start, stop in zip(shards, stops, stops[1:], strict=False):
        for documents, _ in _iter_documents(stream, dtype, start, stop):
            digest.add(compute_digests(documents))
        if digest.pop() != shard.source_sha256:
            return False
    return True


def _detect_contents(path: Path, named: TokenFormat | None) -> TokenFormat:
    """Returns the format that the caller named, or that the contents or the name of a file indicate."""
    if named is None and not (path.exists() or path.with_suffix(".bin").exists()):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    is_cache = named is None and (path / "shard_ledger.json").is_file()
    kind = _detect_format(path, "levanter" if is_cache else named)
    return "megatron" if named is None and kind == "nanogpt" and _has_megatron_index(path) else kind


def export_dataset(
    dataset: TokenDataset | RawTextDataset,
    path: str | os.PathLike[str],
    format: TokenFormat | None = None,  # noqa: A002 (the usual name of this parameter)
    *,
    max_tokens: int | None = None,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Writes the ids of a dataset in the format of another program. `convert_dataset` lists the formats.

    `"array_record"` (needs `tokjax[arrayrecord]`) writes an ArrayRecord file for Grain and MaxText: one
    record per document, a `tf.train.Example` with the ids in the feature `input_ids`, or of a dataset of
    texts, with the text in the feature `text`. Side columns are not exported.

    Args:
        dataset: open dataset of token ids; for `"array_record"` also of texts.
        path: path of the file to write; for `"megatron"` that of the `.idx`, next to which a `.bin` is
            written.
        format: format to write; `None` to detect it from the file name.
        max_tokens: for `"array_record"`, maximum number of ids of a record; longer documents become several
            records. `None` for no limit.
        overwrite: whether to replace existing files.

    Returns:
        The paths of the files that were written.

    Raises:
        DatasetExistsError: a file exists and `overwrite` is not set.
        InvalidArgumentError: the format can't represent these ids.
    """
    reject_urls(path)
    target = check_path(path)
    kind = _detect_format(target, format)
    holds_ids, writes_records = isinstance(dataset, TokenDataset), kind == "array_record"
    if not holds_ids and not (writes_records and isinstance(dataset, RawTextDataset)):
        raise InvalidArgumentError(
            f"dataset must be a TokenDataset, not a {type(dataset).__name__}, to write the format {kind!r}"
        )
    options = {}
    if max_tokens is not None:
        if not (holds_ids and writes_records):
            raise InvalidArgumentError(
                f"max_tokens is for format='array_record' and datasets of ids, and the format is {kind!r}, "
                f"of a {type(dataset).__name__}"
            )
        options["max_tokens"] = check_int("max_tokens", max_tokens, minimum=1)
    files = _FORMATS[kind].plan(dataset, target, **options)
    for file, _ in files:
        if file.exists() and not overwrite:
            raise DatasetExistsError(f"{file} exists", hint=make_overwrite_hint("replace it"))
    write_files_atomically(files)
    return tuple(file for file, _ in files)
