"""Base class of datasets on disk, whose files are opened when they are first read.

Values of tokens are found by the positions of the tokens in the stream of all documents. A range of positions
may extend over several shards, and is read with one contiguous read per shard:

    positions       0 1 2 3 4 5 6 | 7 8 9
    shard           shard-00000   | shard-00001
    range [5, 9)              5 6 | 7 8
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, SupportsIndex

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.checks import check_int
from tokjax._util.display import render_html
from tokjax._util.locks import ThreadLock
from tokjax.core import protocol
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.datasets.columns import StoredColumn, cast_values, check_cast, parse_columns
from tokjax.datasets.directories import FileRange
from tokjax.datasets.downloads import OpenShard, OpenShards, get_max_held_shards, record_use
from tokjax.datasets.fields.registry import make_field
from tokjax.errors import (
    DatasetCorruptError,
    DatasetIncompleteError,
    DatasetIndexError,
    DatasetMismatchError,
    InvalidArgumentError,
)
from tokjax.formats.tokjax_json import parse_tokjax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from tokjax.datasets.columns import Column
    from tokjax.datasets.dataset_files import DatasetFiles
    from tokjax.datasets.fields.registry import Field
    from tokjax.datasets.manifest import FileRecord, Shard


_MAX_CACHED_SPLITS = 1024


class ShardSlice(NamedTuple):
    """Values `[start, stop)` of a column of a shard."""

    shard: int
    start: int
    stop: int


class Dataset:
    """Base class of datasets. Open one with `open_dataset`.

    A dataset is thread-safe, and forked processes can share it. It pickles as the arguments that open it and
    the identities of the files whose checksums were verified. A process on the same machine that unpickles it
    does not verify these files again.

    A file is compared with its checksum when it is first opened, and again if another file has replaced it
    since. The data is memory-mapped: if a program changes a file in place after that, reads return the
    changed data; if it truncates the file, the process ends with SIGBUS.
    `open_dataset(..., memory_map=False)` reads each file into memory instead.

    Attributes:
        path: directory of the dataset; for a URL, the local directory of the downloaded files.
        location: directory or URL of the dataset, as error messages show it.
        manifest: contents of `manifest.json`.
        tokenizer_override: tokenizer that was passed to `open_dataset`, or `None`.
    """

    _DATA: ClassVar[str] = "tokens"
    """Name of the files of the data."""
    _INDEX: ClassVar[tuple[str, ...]] = ("doc_id", "start_offset", "num_tokens")
    """Columns of `documents`: ids, start offsets, lengths, and other counts. The last ones name files."""

    def __init__(self, files: DatasetFiles, tokenizer: Any = None) -> None:
        self.path = files.path
        self.location = files.location
        self.manifest = manifest = files.manifest
        self.tokenizer_override = tokenizer
        self._files = files
        self._data = StoredColumn(self._DATA, manifest.plan.data_dtype)
        self._locks: dict[tuple[int, str], ThreadLock] = {}
        self._open_shards = OpenShards()
        self._shard_splits: OrderedDict[int, NDArray[np.int64]] = OrderedDict()
        self._document_columns: dict[str, NDArray[Any]] = {}
        self._item_starts = make_row_splits(manifest.get_counts("num_items"))
        self._document_starts = make_row_splits(manifest.get_counts("num_documents"))
        if files.remote is None:
            files.check_sizes()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the dataset as the arguments that open it and the identities of its verified files."""
        files = replace(self._files, verified=dict(self._files.verified))
        return type(self), (files, self.tokenizer_override)

    def __len__(self) -> int:
        """Returns the number of documents."""
        return self.num_documents

    _repr_html_ = render_html

    def __repr__(self) -> str:
        """Returns a summary: location, number of items and documents, dtype, number of shards."""
        noun = "bytes" if self.manifest.plan.tokenizer_fingerprint is None else "tokens"
        return (
            f"{type(self).__name__}({self.location!r}, {self.manifest.num_items:,} {noun} in "
            f"{self.num_documents:,} documents, {self.manifest.plan.data_dtype}, "
            f"{len(self.manifest.shards)} shards)"
        )

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return int(self._document_starts[-1])

    @cached_property
    def fingerprint(self) -> str:
        """Digest that identifies the contents of the dataset."""
        return self.manifest.fingerprint

    @cached_property
    def field(self) -> Field:
        """Field that the dataset was written with. It determines the stored form of documents."""
        plan = self.manifest.plan
        is_text = plan.tokenizer_fingerprint is None
        try:
            tokenizer = None if is_text else self.tokenizer
            return make_field(plan.type_id, plan.options, tokenizer, self.columns)
        except DatasetMismatchError:  # (a ValueError, which the next clause would catch)
            raise
        except (TypeError, ValueError) as error:
            raise DatasetCorruptError(
                f"{self.location}: its options are not valid for {plan.field}: {error}"
            ) from error

    @cached_property
    def tokenizer(self) -> Any:
        """Tokenizer that was passed to `open_dataset`, else the one saved in the dataset."""
        if self.tokenizer_override is not None:
            return self.tokenizer_override
        name, expected = self.manifest.tokenizer_file, self.manifest.plan.tokenizer_fingerprint
        if name is None:
            cause = "holds texts and no tokenizer" if expected is None else "could not save its tokenizer"
            raise DatasetIncompleteError(
                f"{self.location} {cause}; open it with open_dataset(path, tokenizer)"
            )
        contents = self._files.read(name, self.manifest.files[name])
        tokenizer = parse_tokjax(contents, f"{self.location}/{name}")
        actual = protocol.fingerprint(tokenizer)
        if actual != expected:
            raise DatasetCorruptError(
                f"{self.location}: the saved tokenizer has fingerprint {actual}, the manifest says {expected}"
            )
        return tokenizer

    @property
    def vocab_size(self) -> int:
        """Vocabulary size of the tokenizer."""
        size = self.manifest.plan.vocab_size
        return protocol.vocab_size(self.tokenizer) if size is None else size

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Descriptions of the side columns."""
        return parse_columns(self.manifest.plan.columns)

    def column(self, name: str, dtype: DTypeLike | None = None) -> Any:
        """Returns a side column, which is indexed by document.

        Args:
            name: name of the column.
            dtype: dtype to cast values to when they are loaded; `None` for that of the column.

        Returns:
            For a column with a value per token, a `TokenColumn`: `dataset.column(name)[i]` has the values of
            document `i`, aligned with its ids, and `read` and `read_ranges` return those of any tokens. For a
            column with a value per document, an array, shape `(num_documents,)`, read-only.

        Raises:
            InvalidArgumentError: the dataset has no such column, or its values do not fit `dtype`.
        """
        description = self.get_column(name)
        if description.per == "token":
            return TokenColumn(self, description, dtype)
        if name not in self._document_columns:
            values = np.empty(self.num_documents, description.dtype)
            for shard, own in self._iter_shards():
                values[own] = description.unpack(self._load(shard, description), 0, shard.num_documents)
            values.setflags(write=False)
            self._document_columns[name] = values
        values = self._document_columns[name]
        return values if dtype is None else cast_values(name, values, check_cast(name, values.dtype, dtype))

    def _read_column_rows(self, names: Iterable[str], rows: Sequence[int]) -> list[tuple[Any, ...]]:
        """Returns the values of side columns, as a tuple for each document.

        Ranges of a URL are requested at the same time.

        Args:
            names: names of the columns.
            rows: indices of the documents.
        """
        values: list[Iterable[Any]] = []
        for column in map(self.column, names):
            is_per_token = isinstance(column, TokenColumn)
            values.append(column._read_rows(rows) if is_per_token else column[np.asarray(rows, np.int64)])
        return list(zip(*values, strict=True)) if values else [()] * len(rows)

    def get_column(self, name: str) -> Column:
        """Returns the description of a side column.

        Raises:
            InvalidArgumentError: the dataset has no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        available = ", ".join(repr(column.name) for column in self.columns) or "no columns"
        raise InvalidArgumentError(f"{self.location} has no column {name!r}; it has {available}")

    @cached_property
    def document_lengths(self) -> NDArray[np.int64]:
        """Number of items (ids, or bytes of text) per document, `int64`, shape `(num_documents,)`."""
        return self._load_column(self._INDEX[2])

    @cached_property
    def document_splits(self) -> NDArray[np.int64]:
        """Start offset of each document in the stream, and its end: `int64`, `(num_documents + 1,)`."""
        splits = np.zeros(self.num_documents + 1, np.int64)
        self.fill_document_lengths(splits[1:])
        np.cumsum(splits, out=splits)
        splits.setflags(write=False)
        return splits

    @cached_property
    def documents(self) -> NDArray[Any]:
        """Index of the documents: structured array, `(documents,)`, of `doc_id`, offsets and lengths."""
        index = np.empty(self.num_documents, [(name, "<u8") for name in self._INDEX])
        others = map(self._load_column, self._INDEX[3:])
        columns = (self._load_doc_ids(), self.document_splits[:-1], self.document_lengths, *others)
        for name, values in zip(self._INDEX, columns, strict=True):
            index[name] = values
        index.setflags(write=False)
        return index

    def fill_document_lengths(self, lengths: NDArray[np.int64]) -> None:
        """Writes the number of items per document into an existing array, shape `(num_documents,)`.

        Raises:
            DatasetCorruptError: their sum is not the number of items.
        """
        self._fill(lengths, self._INDEX[2])
        self._check_total(self.location, int(lengths.sum()), self.manifest.num_items)

    def verify(self) -> None:
        """Compares every file with its checksum in the manifest.

        Call it before a dataset is pickled for worker processes, so that they do not verify the files again.

        Raises:
            DatasetCorruptError: a file was altered, or another dataset has replaced this one.
        """
        self._files.verify()

    def _load_doc_ids(self) -> NDArray[np.uint64]:
        """Returns the ids of all documents, `uint64`, shape `(num_documents,)`."""
        ids = np.arange(self.num_documents, dtype=np.uint64)
        for shard, own in self._iter_shards():
            if _format_file_name(shard, "doc_id") in shard.files:
                ids[own] = self._load_counts(shard, "doc_id")
        return ids

    def _iter_shards(self) -> Iterator[tuple[Shard, slice]]:
        """Yields the description of each shard, and the range of its documents."""
        starts = self._document_starts.tolist()
        yield from zip(self.manifest.shards, map(slice, starts, starts[1:]), strict=True)

    def _load_column(self, column: str) -> NDArray[np.int64]:
        """Returns a column of all documents, `int64`, shape `(num_documents,)`, read-only."""
        values = np.empty(self.num_documents, np.int64)
        self._fill(values, column)
        values.setflags(write=False)
        return values

    def _fill(self, values: NDArray[np.int64], column: str) -> None:
        for shard, own in self._iter_shards():
            values[own] = self._load_counts(shard, column)

    def _read_document(self, row: SupportsIndex) -> NDArray[Any]:
        """Returns the stored items of one document, shape `(length,)`. A negative row counts from the end."""
        [items] = self._read_documents([row])
        return items

    def _read_documents(self, rows: Sequence[SupportsIndex]) -> Iterable[NDArray[Any]]:
        """Returns the stored items of several documents. Ranges of a URL are requested at the same time."""
        return self._read_slices(self._data, [self._find_document(row) for row in rows])

    def _check_row(self, row: SupportsIndex) -> int:
        """Returns the index of a document. A negative row counts from the end."""
        requested = check_int("row", row)
        index = requested + len(self) if requested < 0 else requested
        if not 0 <= index < len(self):
            raise DatasetIndexError(f"there is no document {requested}: the dataset has {len(self)}")
        return index

    def _find_document(self, row: SupportsIndex) -> ShardSlice:
        """Returns the shard of a document, and the start and end of its items in the shard."""
        index = self._check_row(row)
        shard = int(np.searchsorted(self._document_starts, index, "right")) - 1
        offset = index - int(self._document_starts[shard])
        splits = self._get_splits(shard)
        return ShardSlice(shard, int(splits[offset]), int(splits[offset + 1]))

    def _split_ranges(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[ShardSlice]:
        """Returns ranges of the concatenated documents as slices of shards, in the same order."""
        splits, slices = self._item_starts, []
        shards = np.searchsorted(splits, starts, "right") - 1
        for shard, first, count in zip(shards.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            end = first + count
            while first < end:
                begin, stop = int(splits[shard]), min(end, int(splits[shard + 1]))
                slices.append(ShardSlice(shard, first - begin, stop - begin))
                first, shard = stop, shard + 1  # noqa: PLW2901
        return slices

    def _read_slices(self, column: StoredColumn, slices: Sequence[ShardSlice]) -> Iterable[NDArray[Any]]:
        """Returns values of a column, in its dtype. Ranges of a URL are requested at the same time.

        Args:
            column: side column per token, or `_data`.
            slices: values to read.
        """
        if self._files.reads_ranges:
            return self._read_ranges(column, slices)
        return (column.unpack(self._open(shard, column).data, start, stop) for shard, start, stop in slices)

    def _read_ranges(self, column: StoredColumn, slices: Sequence[ShardSlice]) -> list[NDArray[Any]]:
        """Returns the same as `_read_slices`. All ranges that are read without a download are one request."""
        remote = self._files.remote
        assert remote is not None
        per_entry, itemsize = (8 if column.kind == "b" else 1), column.stored_dtype.itemsize
        ranges: dict[int, FileRange] = {}
        records: dict[str, FileRecord] = {}
        for i, (index, start, stop) in enumerate(slices):
            shard = self.manifest.shards[index]
            name = _format_file_name(shard, column.name)
            if start < stop and (index, column.name) not in self._open_shards and name in shard.files:
                records[name] = shard.files[name]
                first = records[name].nbytes - column.count_stored(shard.num_items) * itemsize
                begin, end = start // per_entry * itemsize, column.count_stored(stop) * itemsize
                ranges[i] = FileRange(name, first + begin, first + end)
        blocks = remote.read_parts(list(ranges.values()), records, self._files.nbytes)
        parts = dict(zip(ranges, blocks, strict=True))
        values = []
        for i, (index, start, stop) in enumerate(slices):
            part = b"" if start == stop else parts.get(i)
            if part is None:
                opened = self._open(index, column)
                values.append(column.unpack(opened.data, start, stop).copy())  # (a view would keep it open)
            else:
                skipped = start // per_entry * per_entry
                stored = np.frombuffer(part, column.stored_dtype)
                values.append(column.unpack(stored, start - skipped, stop - skipped))
        return values

    def _open(self, index: int, column: StoredColumn) -> OpenShard:
        """Returns the values per token of a column of a shard, memory-mapped. Those opened last stay open."""
        key = (index, column.name)
        opened = self._open_shards.get(key)
        if opened is None:
            with self._get_lock(key).current:
                opened = self._open_shards.get(key)
                if opened is None:
                    shard = self.manifest.shards[index]
                    data = self._load(shard, column)
                    copy = self._files.find_copy(_format_file_name(shard, column.name))
                    opened = OpenShard(data, data.view(np.uint8).data, copy)
                    self._open_shards.insert(key, opened)
        if opened.copy is not None:
            record_use(opened.copy.path)
        return opened

    def _get_lock(self, key: tuple[int, str]) -> ThreadLock:
        """Returns the lock of a file of a shard. Other files can be opened while one is downloaded."""
        return self._locks.setdefault(key, ThreadLock())

    @property
    def _fetch_ahead(self) -> int:
        """Number of shards that loaders open before they need them; 0 for a local dataset."""
        return 0 if self._files.remote is None else self._files.remote.options.fetch_ahead

    @property
    def _max_held_shards(self) -> int:
        """Maximum number of shards that a thread may hold references to at a time.

        With a limit of the downloaded bytes it is 1, since a deleted copy that is referenced needs space.
        """
        remote = self._files.remote
        is_limited = remote is not None and remote.options.max_bytes is not None
        return 1 if is_limited else get_max_held_shards()

    def _check_download_limit(self, shards: Iterable[int]) -> None:
        """Logs a warning, once, if shards that are read together are larger than all copies may be."""
        if self._files.remote is not None:
            described = map(self.manifest.shards.__getitem__, shards)
            names = ((shard, _format_file_name(shard, self._DATA)) for shard in described)
            self._files.remote.check_request(sum(shard.files[name].nbytes for shard, name in names))

    def _find_item_shards(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[int]:
        """Returns the shards of ranges of the concatenated documents, ascending."""
        first = np.searchsorted(self._item_starts, starts, "right") - 1
        last = np.searchsorted(self._item_starts, starts + lengths, "left")
        shards: list[int] = np.unique(concatenate_ranges(first, np.maximum(last - first, 0))).tolist()
        return shards

    def _find_document_shards(self, rows: NDArray[np.int64]) -> list[int]:
        """Returns the shards of documents, ascending."""
        shards: list[int] = np.unique(np.searchsorted(self._document_starts, rows, "right") - 1).tolist()
        return shards

    def _find_closed_files(
        self, shard: int, columns: Iterable[Column], *, documents: bool
    ) -> list[Callable[[], object]]:
        """Returns functions that open the files of a shard that are not open.

        Args:
            shard: index of the shard.
            columns: side columns per token that are needed.
            documents: whether the lengths of documents are needed.
        """
        closed: list[Callable[[], object]] = [
            partial(self._open, shard, column)
            for column in (self._data, *columns)
            if (shard, column.name) not in self._open_shards
        ]
        if documents and shard not in self._shard_splits:
            closed.append(partial(self._get_splits, shard))
        return closed

    def _are_all_open(self, columns: Iterable[Column], *, documents: bool) -> bool:
        """Returns whether `_find_closed_files` would return nothing for any shard."""
        counts = [self._open_shards.count(column.name) for column in (self._data, *columns)]
        if documents:
            counts.append(len(self._shard_splits))
        return min(counts) == len(self.manifest.shards)

    def _get_splits(self, index: int) -> NDArray[np.int64]:
        """Returns the start offset of each document of a shard, and the end: `int64`, `(documents + 1,)`."""
        splits = self._shard_splits.get(index)
        if splits is None:
            with self._get_lock((index, self._INDEX[2])).current:
                splits = self._shard_splits.get(index)
                if splits is not None:  # another thread has loaded them
                    return splits
                described = self.manifest.shards[index]
                lengths = self._load_counts(described, self._INDEX[2])
                splits = make_row_splits(lengths.astype(np.int64))
                self._check_total(f"{self.location}/{described.name}", int(splits[-1]), described.num_items)
                self._shard_splits[index] = splits
                while len(self._shard_splits) > _MAX_CACHED_SPLITS:
                    self._shard_splits.popitem(last=False)
        return splits

    def _load(self, shard: Shard, column: StoredColumn) -> NDArray[Any]:
        """Returns the stored entries of a column of a shard, with their shape and dtype checked."""
        is_per_token = column.per == "token"
        entries = column.count_stored(shard.num_items if is_per_token else shard.num_documents)
        return self._load_array(shard, column.name, entries, column.stored_dtype, is_mapped=is_per_token)

    def _load_counts(self, shard: Shard, column: str) -> NDArray[Any]:
        """Returns a number per document of a shard, unsigned integers of any size."""
        return self._load_array(shard, column, shard.num_documents, None, is_mapped=False)

    def _load_array(
        self, shard: Shard, column: str, entries: int, dtype: np.dtype[Any] | None, *, is_mapped: bool
    ) -> NDArray[Any]:
        """Returns the array of one file of a shard.

        Args:
            shard: description of the shard.
            column: suffix of the file.
            entries: expected number of entries.
            dtype: expected dtype; `None` for unsigned integers of any size.
            is_mapped: whether to map the file into memory instead of reading it.
        """
        name = _format_file_name(shard, column)
        if name not in shard.files:
            raise DatasetCorruptError(f"{self.location}: the manifest does not list {name}")
        location, record = f"{self.location}/{name}", shard.files[name]
        contents = self._files.map(name, record) if is_mapped else self._files.read(name, record)
        values = self._files.parse_array(name, contents)
        expected = "unsigned integers" if dtype is None else dtype.name
        fits = values.dtype.kind == "u" if dtype is None else values.dtype == dtype
        if values.shape != (entries,) or not fits:
            raise DatasetCorruptError(
                f"{location} has shape {values.shape} and dtype {values.dtype}, the manifest says "
                f"({entries},) and {expected}"
            )
        return values

    @staticmethod
    def _check_total(location: str, total: int, num_items: int) -> None:
        if total != num_items:
            raise DatasetCorruptError(
                f"{location}: its documents have {total} items in total, its data has {num_items}; "
                "write the dataset again"
            )


class TokenColumn:
    """Side column with a value per token. `column[i]` has the values of document `i`.

    Attributes:
        dataset: dataset of the column.
        description: description of the column.
        dtype: dtype of the values that are returned.
    """

    def __init__(self, dataset: Dataset, description: Column, dtype: DTypeLike | None = None) -> None:
        self.dataset = dataset
        self.description = description
        target = description.dtype if dtype is None else dtype
        self.dtype = check_cast(description.name, description.dtype, target)

    def __len__(self) -> int:
        """Returns the number of documents."""
        return len(self.dataset)

    def __repr__(self) -> str:
        """Returns the name, the dtype and the dataset."""
        return f"TokenColumn({self.description.name!r}, {self.dtype.name}, {self.dataset!r})"

    def __getitem__(self, row: SupportsIndex) -> NDArray[Any]:
        """Returns the values of one document, shape `(num_tokens,)`, aligned with `dataset.document(row)`."""
        return self._read_rows([row])[0]

    def _read_rows(self, rows: Sequence[SupportsIndex]) -> list[NDArray[Any]]:
        """Returns the values of several documents, as `column[row]` does."""
        slices = [self.dataset._find_document(row) for row in rows]
        return list(map(self._cast, self.dataset._read_slices(self.description, slices)))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Returns the values of tokens `[start, stop)` of all documents, shape `(stop - start,)`."""
        return self.read_ranges([start], [stop - start])

    def read_ranges(self, starts: ArrayLike, lengths: ArrayLike) -> NDArray[Any]:
        """Returns the values of ranges of the concatenated documents, concatenated.

        Args:
            starts: position of the first token of each range, integers, shape `(n,)`.
            lengths: number of tokens of each range, integers, shape `(n,)`.

        Returns:
            Values in `dtype`, shape `(lengths.sum(),)`.

        Raises:
            InvalidArgumentError: a range extends beyond the tokens of the dataset.
        """
        firsts, counts = as_integers("starts", starts, np.int64), as_integers("lengths", lengths, np.int64)
        splits = self.dataset._item_starts
        is_outside = (firsts < 0) | (counts < 0) | (firsts > int(splits[-1]) - counts)
        if is_outside.any():
            first, count = firsts[is_outside][0], counts[is_outside][0]
            raise InvalidArgumentError(
                f"range [{first}, {first + count}) is out of range: the dataset has {splits[-1]} tokens"
            )
        values = np.empty(int(counts.sum()), self.description.dtype)
        position = 0
        for part in self.dataset._read_slices(self.description, self.dataset._split_ranges(firsts, counts)):
            values[position : position + len(part)] = part
            position += len(part)
        return self._cast(values)

    def _cast(self, values: NDArray[Any]) -> NDArray[Any]:
        return cast_values(self.description.name, values, self.dtype)


def _format_file_name(shard: Shard, column: str) -> str:
    return f"{shard.name}.{column}.npy"
