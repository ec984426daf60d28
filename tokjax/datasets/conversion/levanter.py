"""Levanter's `TreeCache`: a directory with the ids of all documents, concatenated, and their offsets.

    input_ids/offsets       int64: the number of documents, then the end of each one
    input_ids/data          int32: the ids of all documents
    shard_ledger.json       counts, written last

Both arrays are in the format Zarr 3, with a shape of 2**54. Only chunks that were written exist. Levanter
opens them with the chunk sizes and codecs below, and rejects others.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.atomic_files import (
    DirectoryKind,
    clear_incomplete_directory,
    open_atomic_directory,
    read_regular,
    resolve,
    write_atomically,
)
from tokjax._util.imports import import_optional
from tokjax.datasets.conversion.token_streams import TokenStream
from tokjax.errors import DatasetExistsError, SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset

LEDGER_FILE = "shard_ledger.json"
_COLUMN = "input_ids"
_LAYOUT = "consolidated"
"""Layout of a cache with one array for all documents. Older ledgers name no layout."""
_CHUNK_SIZE = 1 << 18
"""Number of values that are compressed together."""
_FILE_SIZE = 512 * _CHUNK_SIZE
"""Number of values in a file, which is written at once: 512 MiB of ids."""
_NUM_VALUES = 1 << 54
_METADATA = {
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [_FILE_SIZE]}},
    "codecs": [
        {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": [_CHUNK_SIZE],
                "codecs": [{"name": "blosc", "configuration": {"clevel": 5}}],
            },
        }
    ],
}


def write(dataset: TokenDataset, target: Path, *, overwrite: bool) -> tuple[Path, ...]:
    """Writes a cache, and returns the path of its directory."""
    resolved = resolve(target)
    with open_atomic_directory(resolved, _CACHE, overwrite=overwrite) as directory:
        clear_incomplete_directory(directory, _CACHE, overwrite=overwrite)
        ids = _open_array(directory / _COLUMN / "data", "int32")
        for start in range(0, dataset.num_tokens, _FILE_SIZE):
            stop = min(start + _FILE_SIZE, dataset.num_tokens)
            ids[start:stop].write(dataset.read(start, stop)).result()
        offsets = _open_array(directory / _COLUMN / "offsets", "int64")
        values = dataset.document_splits.copy()
        values[0] = dataset.num_documents
        for start in range(0, len(values), _FILE_SIZE):
            part = values[start : start + _FILE_SIZE]
            offsets[start : start + len(part)].write(part).result()
        ledger = json.dumps(_make_ledger(dataset.num_documents)).encode("ascii")
        write_atomically(directory / LEDGER_FILE, lambda file: file.write(ledger))
    return (target,)


def _make_ledger(count: int) -> dict[str, Any]:
    return {
        "total_num_rows": count,
        "shard_rows": {"": count},
        "is_finished": True,
        "finished_shards": [""],
        "field_counts": {},
        "metadata": {"preprocessor_metadata": None},
    }


def read(path: Path, tokenizer: Any) -> TokenStream:  # noqa: ARG001 (the cache has the documents)
    """Opens a finished cache.

    Raises:
        SourceError: the cache is not finished, or damaged.
    """
    count = _read_ledger(path)["total_num_rows"]
    column = path / _COLUMN
    offsets, ids = (_open_array(column / name, None) for name in ("offsets", "data"))
    splits = _read(offsets, 0, count + 1, column).astype(np.int64)
    if splits[0] != count:
        raise SourceError(f"{path}: has {splits[0]} documents, its {LEDGER_FILE} says {count}; it is damaged")
    splits[0] = 0
    if (np.diff(splits) < 0).any():
        raise SourceError(f"{path}: its offsets decrease; it is damaged")
    _check_files(ids, int(splits[-1]), column / "data")
    return TokenStream(lambda start, stop: _read(ids, start, stop, column), splits)


def _check_files(array: Any, stop: int, path: Path) -> None:
    """Checks that the files with the first `stop` values exist: tensorstore reads missing ones as zeros.

    A file of zeros only is not written either, but the ids of a corpus are never all zeros.

    Raises:
        SourceError: a file is missing.
    """
    if array.ndim != 1:
        return  # (reading raises an error)
    keys = set(array.kvstore.list().result())
    count = -(-stop // array.chunk_layout.write_chunk.shape[0])
    missing = next((i for i in range(count) if f"c/{i}".encode() not in keys), None)
    if missing is not None:
        raise SourceError(f"{path}: the file c/{missing} is missing, of {count}; the cache is damaged")


def is_cache(path: Path) -> bool:
    """Returns whether a path is a directory with a ledger."""
    return (path / LEDGER_FILE).is_file()


def _read_ledger(path: Path) -> dict[str, Any]:
    """Returns the ledger of a finished cache. Raises `SourceError` for other directories."""
    try:
        ledger = json.loads(read_regular(path / LEDGER_FILE))
        is_finished, count = ledger["is_finished"], ledger["total_num_rows"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise SourceError(f"{path}: is not a cache of Levanter: {LEDGER_FILE}: {error!r}") from error
    if is_finished is not True or not isinstance(count, int) or count < 0:
        raise SourceError(f"{path}: the cache is not finished, according to its {LEDGER_FILE}")
    if ledger.get("layout", _LAYOUT) != _LAYOUT:
        raise SourceError(
            f"{path}: the cache has the layout {ledger['layout']!r}, a directory for each shard; convert "
            "each of them, and call merge_datasets"
        )
    return ledger  # type: ignore[no-any-return]


def _open_array(path: Path, dtype: str | None) -> Any:
    """Opens an array; creates one if `dtype` is given.

    Raises:
        SourceError: there is no such array, or it is damaged.
    """
    tensorstore = import_optional("tensorstore", extra="levanter", purpose="Levanter's format")
    spec: dict[str, Any] = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
    if dtype is not None:
        options = {"create": True, "dtype": dtype, "shape": [_NUM_VALUES]}
        spec |= {"metadata": _METADATA, "store_data_equal_to_fill_value": True}
        return tensorstore.open(spec, **options).result()
    try:
        return tensorstore.open(spec, open=True).result()
    except ValueError as error:
        raise SourceError(f"{path}: is missing, damaged or not an array: {error}") from error


def _read(array: Any, start: int, stop: int, column: Path) -> NDArray[Any]:
    """Returns the values `[start, stop)` of an array of integers.

    Raises:
        SourceError: the array has other dimensions or values, or is damaged.
    """
    if array.ndim != 1 or array.dtype.numpy_dtype.kind not in "iu" or array.shape[0] < stop:
        raise SourceError(
            f"{column}: {array.dtype.name} of shape {array.shape}, not {stop} integers; it is damaged"
        )
    try:
        return array[start:stop].read().result()  # type: ignore[no-any-return]
    except ValueError as error:
        raise SourceError(f"{column}: is damaged: {error}") from error


_CACHE = DirectoryKind(
    "cache of Levanter",
    _read_ledger,
    re.compile(rf"{re.escape(LEDGER_FILE)}|{_COLUMN}|\..*\.partial"),
    DatasetExistsError,
)
