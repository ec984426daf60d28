"""Chunks of litdata: samples, which are texts or arrays, or dicts, lists or tuples of them.

The `index.json` of the directory describes the samples of all chunks:

    data_spec       {"type": "builtins.dict", "context": ["text", "id"], "children_spec": [leaf, leaf]}
    data_format     ["str", "int"]
    record          {"text": "low", "id": 7}

A sample that is a single text or array has the name `"text"` or `"ids"`. The values of nested dicts have
names with dots, and those of lists and tuples have numbers. Only values that are asked for are decoded, and
never pickles or images. The library that writes these chunks is not used to read them: it needs PyTorch,
torchvision and clients of object stores.

Recent versions write dicts of plain values as an Arrow file at the end of the chunk, with equal numbers of
rows in all record batches but the last. The offsets of samples are then not used:

    number of samples       uint32
    other bytes
    Arrow file
    size of the Arrow file  uint32
    magic                   8 bytes
"""

from __future__ import annotations

import json
import os
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.atomic_files import read_regular
from tokjax._util.imports import import_optional
from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import open_decompressed, open_source
from tokjax.corpus.sample_shards import iter_samples, make_damage_error, open_shard, split_values
from tokjax.corpus.shard_index import INDEX_FILE
from tokjax.corpus.tables import (
    get_column,
    iter_records as iter_records_of_arrays,
    list_columns,
    report_table_damage,
)
from tokjax.errors import Hint, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_ARROW_END = struct.Struct("<I8s")
"""Size of an Arrow file, and the magic after it."""
_ARROW_MAGIC = b"LDARW01\0"
_LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
"""Structure of a sample that is a single value."""
_DTYPES = {
    "numpy": dict(enumerate(["<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"])),
    "tensor": {
        **dict.fromkeys([0, 1], "<f4"),
        **dict.fromkeys([2, 3], "<f8"),
        **dict.fromkeys([8, 9], "<f2"),
        11: "<u1",
        12: "<i1",
        **dict.fromkeys([13, 14], "<i2"),
        **dict.fromkeys([15, 16], "<i4"),
        **dict.fromkeys([17, 18], "<i8"),
        19: "?",
        20: "<u2",
    },
}
"""NumPy dtypes by the numbers that litdata gives to the dtypes of NumPy and of PyTorch."""


class _Index(NamedTuple):
    """Description of the samples of a directory.

    Attributes:
        values: the name of each value of a sample, and its data format.
        is_tokens: whether samples are arrays of ids without a header, for litdata's `TokensLoader`.
    """

    values: tuple[tuple[str, str], ...]
    is_tokens: bool


def measure(path: Path) -> tuple[int, int, bool]:
    """Returns the number of samples of a chunk, its size before compression, and if it has random access.

    Raises:
        SourceError: the chunk or its index is damaged or missing.
    """
    _read_index(path)  # (raises an error if the chunk can't be read)
    arrow = _find_arrow_file(path)
    if arrow is not None:
        with report_table_damage(path, "arrow", []):
            return _open_table(path, arrow).num_rows, path.stat().st_size, True
    with open_shard(path, open_decompressed(path)) as shard:
        return shard.num_samples, shard.nbytes, True


def iter_records(
    path: Path, start: int, stop: int, choose: Callable[[list[str]], list[str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields `(location, record)` for the samples `[start, stop)` of a chunk.

    Args:
        path: the path of the chunk. Its index is in the same directory.
        start: the number of the first sample.
        stop: the number after that of the last sample.
        choose: function of the names of all values that returns those to read.

    Raises:
        SourceError: the chunk or its index is damaged or missing, or a chosen value has a format that is not
            supported.
    """
    index = _read_index(path)
    arrow = _find_arrow_file(path)
    if arrow is not None:
        with report_table_damage(path, "arrow", []):
            yield from _iter_rows(_open_table(path, arrow), path, start, stop, choose)
        return
    chosen = set(choose([name for name, _ in index.values]))
    decoders = [
        (i, name, _make_decoder(data_format, f"{get_path_or_url(path)}: the value {name!r}"))
        for i, (name, data_format) in enumerate(index.values)
        if name in chosen
    ]
    sizes = [None] * len(index.values)
    with open_shard(path, open_decompressed(path)) as shard:
        for location, sample in iter_samples(shard, start, stop):
            values = [sample] if index.is_tokens else split_values(sample, sizes, location)
            try:
                record = {name: decode(values[i]) for i, name, decode in decoders}
            except (ValueError, KeyError, struct.error) as error:
                raise SourceError(f"{location}: a value is damaged: {error}") from error
            yield location, record


class _ArrowFile(NamedTuple):
    """Position of the Arrow file in a chunk.

    Attributes:
        num_samples: number of samples, according to the first bytes of the chunk.
        start: position of its first byte.
        nbytes: its size in bytes.
    """

    num_samples: int
    start: int
    nbytes: int


def _find_arrow_file(path: Path) -> _ArrowFile | None:
    """Returns the position of the Arrow file at the end of a chunk, or `None` if there is none."""
    with open_source(path) as file:
        head = file.read(4)
        stop = file.seek(0, os.SEEK_END) - _ARROW_END.size
        if stop < len(head):
            return None
        file.seek(stop)
        nbytes, magic = _ARROW_END.unpack(file.read(_ARROW_END.size))
    if magic != _ARROW_MAGIC:
        return None
    if nbytes > stop - len(head):
        raise make_damage_error(path, f"its Arrow file has {nbytes} bytes, and {stop} are before its end")
    return _ArrowFile(int.from_bytes(head, "little"), stop - nbytes, nbytes)


class _Table(NamedTuple):
    """Open Arrow file of a chunk.

    Attributes:
        reader: `pyarrow.ipc.RecordBatchFileReader`.
        num_rows: total number of rows.
        batch_rows: number of rows of all record batches but the last.
    """

    reader: Any
    num_rows: int
    batch_rows: int


def _open_table(path: Path, arrow: _ArrowFile) -> _Table:
    pyarrow, ipc = (
        import_optional(name, extra="parquet", purpose=f"reading {get_path_or_url(path)}")
        for name in ("pyarrow", "pyarrow.ipc")
    )
    data = np.memmap(path, np.uint8, "r", arrow.start, arrow.nbytes)
    reader = ipc.open_file(pyarrow.BufferReader(pyarrow.py_buffer(data)))
    last = reader.num_record_batches - 1
    batch_rows, last_rows = (reader.get_batch(i).num_rows if last >= 0 else 0 for i in (0, last))
    num_rows = batch_rows * max(last, 0) + last_rows
    if num_rows != arrow.num_samples:
        raise make_damage_error(path, f"it has {arrow.num_samples} samples, and {num_rows} rows")
    return _Table(reader, num_rows, batch_rows)


def _iter_rows(
    table: _Table, path: Path, start: int, stop: int, choose: Callable[[list[str]], list[str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    names = choose(list_columns(table.reader.schema))
    for i in range(start // table.batch_rows, -(-stop // table.batch_rows)):
        first = i * table.batch_rows
        batch = table.reader.get_batch(i)
        if batch.num_rows != min(table.batch_rows, table.num_rows - first):
            raise make_damage_error(path, f"its record batch {i} has {batch.num_rows} rows")
        skipped = max(start - first, 0)
        arrays = [get_column(batch, name) for name in names]
        for array in arrays:
            array.validate(full=True)  # (offsets of a damaged file may be outside of its buffers)
        rows = iter_records_of_arrays(
            names, [array.slice(skipped, stop - first - skipped) for array in arrays]
        )
        for row, record in enumerate(rows, first + skipped):
            yield f"{get_path_or_url(path)}, sample {row}", record


def _read_index(path: Path) -> _Index:
    """Returns the index of the directory of a chunk. It is kept for the next chunk."""
    index = path.with_name(INDEX_FILE)
    try:
        status = index.stat()
    except FileNotFoundError:
        raise SourceError(
            f"{get_path_or_url(path)}: is a chunk of litdata, according to its name, and there is no "
            f"{INDEX_FILE} in its directory"
        ) from None
    return _read_index_of_version(index, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4)
def _read_index_of_version(path: Path, size: int, modified_ns: int) -> _Index:  # noqa: ARG001 (keys)
    try:
        config = json.loads(read_regular(path))["config"]
        formats, loader = config["data_format"], config.get("item_loader")
        compression, encryption = config.get("compression"), config.get("encryption")
        spec = json.loads(config["data_spec"])[1] if config["data_spec"] else _LEAF
        names = list(_iter_names(spec, ""))
        if len(names) != len(formats) or not all(isinstance(text, str) for text in formats):
            raise ValueError(f"there are {len(names)} names and the formats {formats!r:.80}")
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise make_damage_error(path, f"its description can't be read: {error!r}") from error
    if encryption or compression:
        problem = "encrypted" if encryption else f"compressed with {compression!r}"
        raise SourceError(
            f"{path}: its chunks are {problem}, and only litdata can read them",
            hint=Hint(f"pass the iterable litdata.StreamingDataset({str(path.parent)!r})", ""),
        )
    if names == [""]:
        names = ["text" if formats[0] in ("str", "text") else "ids"]
    return _Index(tuple(zip(names, formats, strict=True)), loader == "TokensLoader")


def _iter_names(spec: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yields the name of each value of a sample."""
    children = spec["children_spec"]
    if spec["type"] is None:
        yield prefix.removesuffix(".")
        return
    keys = json.loads(spec["context"]) if spec["type"].endswith("dict") else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _iter_names(child, f"{prefix}{key}.")


def _make_decoder(data_format: str, name: str) -> Callable[[bytes], Any]:
    """Returns the function that decodes values of a format.

    Raises:
        SourceError: the format is not supported.
    """
    if data_format in _DECODERS:
        return _DECODERS[data_format]
    kind, _, number = data_format.removeprefix("no_header_").partition(":")
    dtype = _DTYPES.get(kind, {}).get(int(number) if number.isdecimal() else -1)
    if dtype is None or not data_format.startswith("no_header_"):
        raise SourceError(
            f"{name} has the format {data_format!r}, which is not supported; texts, numbers and arrays of "
            "one dimension are read"
        )
    return lambda value: np.frombuffer(value, dtype)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "str": lambda value: value.decode("utf-8"),
    "text": lambda value: value.decode("utf-8"),
    "bool": lambda value: value != b"\0",
    "int": lambda value: struct.unpack("<q", value)[0],
    "float": lambda value: struct.unpack("<d", value)[0],
}
