"""Tables of texts and records: Parquet and Arrow files, and tables in memory.

A Parquet file is split between row groups. A chunk is a position in the file, so that workers receive a few
numbers and read the rows themselves, all at the same time:

    row group   0             1             2             3
    rows        0 to 999      1000 to 1999  2000 to 2999  3000 to 3999
    chunk       TableChunk(start=0, stop=2)               TableChunk(start=2, stop=4)

Only the columns that are needed are read. A struct field is named with dots: `"meta.text"`. Arrow files and
streams are read from start to end, one record batch at a time.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np

from tokjax._util.imports import import_optional
from tokjax._util.urls import get_path_or_url
from tokjax.core.ragged import make_row_splits
from tokjax.corpus.decompression import open_source
from tokjax.corpus.files import is_compressed
from tokjax.corpus.records import NAME_THE_FIELD, Choose, RowChunk, SizedRecords
from tokjax.errors import Hint, InvalidArgumentError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tokjax.core.utf8 import Text

TABLE_FORMATS = {"parquet": "Parquet", "arrow": "Arrow"}
"""Names of the formats of tables."""
_ROWS_PER_READ = 1024
_UNPACK = Hint("if it is compressed as a whole, unpack it", "if it is compressed as a whole, unpack it")
_ARROW_FILE = b"ARROW1"
_STREAM_ENDS = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")
"""End markers of Arrow streams: the second one before version 0.15."""
_INTEGERS = ("int", "uint")
_Batch: TypeAlias = "tuple[list[Any], int]"
"""Arrow arrays of the columns of some rows, and the bytes of the file that were read for them."""
_TEXT_TYPES = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")


@dataclass(frozen=True, slots=True)
class TableChunk(RowChunk):
    """Row groups of a Parquet file, or all rows of an Arrow file.

    Attributes:
        kind: the format, `"parquet"` or `"arrow"`.
    """

    kind: str

    def iter_texts(self) -> Iterator[tuple[list[Text | SourceError], int]]:
        """Yields `(texts, read_nbytes)` for some rows at a time, without a record for each."""

        def choose(schema: Any) -> list[str]:
            _check_text_column(self.path, self.field, schema)
            return [self.field]

        with report_table_damage(self.path, self.kind, [self.field]):
            for (array,), read_nbytes in self._iter_batches(choose):
                yield [text for text in array.to_pylist() if text is not None], read_nbytes

    def iter_sized_records(self, choose: Choose) -> SizedRecords:
        """Yields the rows; their sizes are the mean size of some rows."""
        name = get_path_or_url(self.path)
        names: list[str] = []

        def choose_columns(schema: Any) -> list[str]:
            names[:] = choose(list_columns(schema))
            return names

        with report_table_damage(self.path, self.kind, names):
            row = self.first_row
            for arrays, read_nbytes in self._iter_batches(choose_columns):
                nbytes = sum(array.nbytes for array in arrays) // max([1, *map(len, arrays)])
                unreported = read_nbytes
                for record in iter_records(names, arrays):
                    yield f"{name}, row {row}", record, nbytes, unreported
                    row, unreported = row + 1, 0

    def _iter_batches(self, choose: Callable[[Any], list[str]]) -> Iterator[_Batch]:
        return (_iter_parquet_batches if self.kind == "parquet" else _iter_arrow_batches)(self, choose)


def plan_table_chunks(path: Path, kind: str, field: str, target_nbytes: int) -> Iterator[TableChunk]:
    """Yields the chunks of a file: row groups of about `target_nbytes` bytes, or more if one group is larger.

    Args:
        path: the path of the file.
        kind: the format, `"parquet"` or `"arrow"`.
        field: the name of the text column.
        target_nbytes: the target size of a chunk in bytes.

    Raises:
        SourceError: the file is damaged.
    """
    size = path.stat().st_size
    if kind == "arrow":
        yield TableChunk(path, field, 0, 0, 0, size, size, kind)
        return
    with report_table_damage(path, kind, [field]):
        metadata = _read_metadata(path)
    num_rows = _count_rows(metadata, range(metadata.num_row_groups))
    if num_rows != metadata.num_rows:
        raise _make_count_error(path, f"its row groups have {num_rows} rows, and it {metadata.num_rows}")
    nbytes_per_row = size / max(metadata.num_rows, 1)
    start = first_row = rows = nbytes = 0
    for group in range(metadata.num_row_groups):
        described = metadata.row_group(group)
        # Not the size of the text column: pyarrow aborts the process if the metadata of a column are damaged.
        nbytes += described.total_byte_size
        rows += described.num_rows
        if rows and (nbytes >= target_nbytes or group == metadata.num_row_groups - 1):
            end = first_row + rows
            read_nbytes = round(end * nbytes_per_row) - round(first_row * nbytes_per_row)
            yield TableChunk(path, field, start, group + 1, first_row, nbytes, read_nbytes, kind)
            start, first_row, rows, nbytes = group + 1, end, 0, 0


def _read_metadata(path: Path) -> Any:
    """Returns the metadata of a Parquet file. They are kept for the next chunk of the same file."""
    with open_source(path):  # (raises an error unless it is a regular file)
        status = path.stat()
    return _read_metadata_of_version(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4)
def _read_metadata_of_version(path: Path, size: int, modified_ns: int) -> Any:  # noqa: ARG001 (keys)
    return _import("pyarrow.parquet", path).read_metadata(path)


def _import(module: str, path: Path) -> Any:
    return import_optional(module, extra="parquet", purpose=f"reading {get_path_or_url(path)}")


@contextmanager
def report_table_damage(path: Path, kind: str, columns: Sequence[str]) -> Iterator[None]:
    """Converts errors of pyarrow to errors that name the file.

    Raises:
        SourceError: the file is truncated or damaged, or texts are not valid UTF-8.
    """
    pyarrow = _import("pyarrow", path)
    try:
        yield
    except UnicodeDecodeError as error:
        holder = f"the column {columns[0]!r}" if len(columns) == 1 else "a column, or its name,"
        raise SourceError(
            f"{get_path_or_url(path)}: {holder} holds bytes that are not valid UTF-8: {error}"
        ) from error
    except (pyarrow.ArrowException, OSError, MemoryError) as error:  # (lengths of a damaged file can be huge)
        if isinstance(error, PermissionError):
            raise
        raise SourceError(
            f"{get_path_or_url(path)}: truncated or damaged, or not {TABLE_FORMATS[kind]}: {error}",
            # (a Parquet file that is compressed inside may have such a name, too)
            hint=_UNPACK if is_compressed(path) else None,
        ) from error


def _iter_parquet_batches(chunk: TableChunk, choose: Callable[[Any], list[str]]) -> Iterator[_Batch]:
    path, metadata = chunk.path, _read_metadata(chunk.path)
    groups = list(range(chunk.start, chunk.stop))
    num_rows, row = _count_rows(metadata, groups), 0
    parquet = _import("pyarrow.parquet", path)
    with parquet.ParquetFile(path, metadata=metadata, page_checksum_verification=True) as file:
        names = choose(file.schema_arrow)
        for batch in file.iter_batches(_ROWS_PER_READ, row_groups=groups, columns=names):
            reported = chunk.read_nbytes * row // max(num_rows, 1)
            row += batch.num_rows
            position = chunk.read_nbytes * row // max(num_rows, 1)
            yield [get_column(batch, name) for name in names], position - reported
    # Damaged counts in the footer, which no checksum covers, make pyarrow return fewer rows without an error.
    if row != num_rows:
        raise _make_count_error(
            path, f"{row} of the {num_rows} rows from row {chunk.first_row} could be read"
        )


def _count_rows(metadata: Any, groups: Iterable[int]) -> int:
    return sum(metadata.row_group(group).num_rows for group in groups)


def _make_count_error(path: Path, cause: str) -> SourceError:
    return SourceError(f"{get_path_or_url(path)}: truncated or damaged: {cause}")


def _iter_arrow_batches(chunk: TableChunk, choose: Callable[[Any], list[str]]) -> Iterator[_Batch]:
    with open_source(chunk.path) as file:
        reader = _open_arrow(file, chunk.path)
        names = choose(reader.schema)
        is_file = hasattr(reader, "get_batch")
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        row = reported = 0
        position = file.tell()
        for batch in batches:
            arrays = [get_column(batch, name) for name in names]
            for array in arrays:
                array.validate(full=True)  # (offsets of a damaged file may be outside of its buffers)
            position = file.tell()
            yield arrays, max(position - reported, 0)
            row, reported = row + batch.num_rows, max(position, reported)
        if not is_file:
            file.seek(position)
            _check_end_of_stream(file, chunk.path, row)


def _check_end_of_stream(file: BinaryIO, path: Path, num_rows: int) -> None:
    """Raises unless a stream ends with its marker.

    pyarrow also accepts a stream without the marker, and ignores data that follow it. But pyarrow, polars,
    datasets and nanoarrow write it, so a stream without it was cut, or its writer was stopped.
    """
    end = file.read(len(_STREAM_ENDS[0]) + 1)
    if end in _STREAM_ENDS:
        return
    if end.startswith(_STREAM_ENDS):
        raise SourceError(
            f"{get_path_or_url(path)}: data follow the end of its Arrow stream, after {num_rows} rows; pass "
            "each stream as a file"
        )
    raise SourceError(
        f"{get_path_or_url(path)}: truncated? Its Arrow stream has no end marker after {num_rows} rows, so "
        "its writer may have been stopped",
        hint=Hint(
            "write it again, or to use these rows pass the table "
            f"pyarrow.ipc.open_stream({os.fspath(path)!r}).read_all()",
            "write it again",
        ),
    )


def _open_arrow(file: BinaryIO, path: Path) -> Any:
    """Opens an Arrow file or stream, which differ in their first bytes."""
    ipc = _import("pyarrow.ipc", path)
    is_file = file.read(len(_ARROW_FILE)) == _ARROW_FILE
    file.seek(0)
    return ipc.open_file(file) if is_file else ipc.open_stream(file)


def list_columns(schema: Any) -> list[str]:
    """Returns the names of the columns of an Arrow schema, and those of the fields of structs with dots."""
    names: list[str] = []
    for field in schema:
        names.append(field.name)
        if str(field.type).startswith("struct<"):
            names += [f"{field.name}.{name}" for name in list_columns(field.type)]
    return names


def get_column(batch: Any, name: str) -> Any:
    """Returns a column of a record batch, or the field of a struct, an Arrow array.

    Raises:
        InvalidArgumentError: the batch has several columns of this name.
    """
    index = batch.schema.get_field_index(name)
    if index >= 0:
        return batch.column(index)
    if batch.schema.names.count(name) > 1:
        raise InvalidArgumentError(f"the table has several columns {name!r}; rename one of them")
    first, *rest = name.split(".")
    compute = import_optional("pyarrow.compute", extra="parquet", purpose="reading a struct")
    return compute.struct_field(batch.column(batch.schema.get_field_index(first)), rest)


def _find_type(schema: Any, name: str) -> Any:
    """Returns the Arrow type of a column, or of the field of a struct; `None` if there is none."""
    for field in schema:
        if field.name == name:
            return field.type
        if name.startswith(f"{field.name}.") and str(field.type).startswith("struct<"):
            return _find_type(field.type, name.removeprefix(f"{field.name}."))
    return None


def _check_text_column(path: Path, column: str, schema: Any) -> None:
    type_ = _find_type(schema, column)
    if type_ is None or schema.names.count(column) > 1:
        problem = "there is no column" if type_ is None else "there are several columns"
        raise SourceError(
            f"{get_path_or_url(path)}: {problem} {column!r}, of {list_columns(schema)[:20]}",
            hint=NAME_THE_FIELD,
        )
    text_type = getattr(type_, "value_type", type_) if str(type_).startswith("dictionary<") else type_
    if str(text_type) not in _TEXT_TYPES:
        raise SourceError(f"{get_path_or_url(path)}: the column {column!r} holds {text_type}, not strings")


def find_ids_column(path: Path, kind: str, names: Sequence[str]) -> str | None:
    """Returns the first of some columns that a file has, if it holds lists of integers; else `None`.

    Args:
        path: the path of the file.
        kind: the format, `"parquet"` or `"arrow"`.
        names: the names of columns.
    """
    with report_table_damage(path, kind, names), open_source(path) as file:
        is_parquet = kind == "parquet"
        schema = (
            _read_metadata(path).schema.to_arrow_schema() if is_parquet else _open_arrow(file, path).schema
        )
        for name in names:
            type_ = _find_type(schema, name)
            if type_ is not None:
                return name if _is_list(type_) and str(type_.value_type).startswith(_INTEGERS) else None
    return None


def _is_list(type_: Any) -> bool:
    return "list" in str(type_).split("<")[0]


def iter_records(names: Sequence[str], arrays: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yields the rows of Arrow arrays of equal lengths as records.

    Args:
        names: the name of each array.
        arrays: the arrays. Lists of numbers become NumPy arrays, other values Python objects.
    """
    for values in zip(*map(_convert_array, arrays), strict=True):
        yield dict(zip(names, values, strict=True))


def _convert_array(array: Any) -> Sequence[Any]:
    """Returns the values of an Arrow array. Rows of lists of numbers are views of one NumPy array."""
    if "struct<" in str(array.type):
        return [drop_null_keys(value) for value in array.to_pylist()]
    if not _is_list(array.type):
        return array.to_pylist()  # type: ignore[no-any-return]
    values = array.flatten()
    if values.null_count or not str(values.type).startswith((*_INTEGERS, "float", "double", "bool")):
        return array.to_pylist()  # type: ignore[no-any-return]
    compute = import_optional("pyarrow.compute", extra="parquet", purpose="reading lists")
    flat = values.to_numpy(zero_copy_only=False)
    lengths = compute.fill_null(compute.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    splits = make_row_splits(np.asarray(lengths, np.int64)).tolist()
    rows = [flat[start:stop] for start, stop in zip(splits, splits[1:], strict=False)]
    if array.null_count:
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return rows


def drop_null_keys(value: Any, *, depth: int = 0) -> Any:
    """Returns a value of a table without the keys of structs that are null, at any depth.

    Tables give each struct the keys of all others: a call of one tool has the arguments of every other tool.
    Only the content of a message is kept if it is null, because templates ask for it.

    Args:
        value: a list, a mapping or another value of a record.
        depth: the number of lists and mappings that contain the value.
    """
    if isinstance(value, dict):
        is_message = depth <= 1 and not value.keys().isdisjoint(("role", "from"))
        return {
            key: drop_null_keys(inner, depth=depth + 1)
            for key, inner in value.items()
            if inner is not None or (is_message and key in ("content", "value"))
        }
    is_list = isinstance(value, list) or (isinstance(value, np.ndarray) and value.dtype == object)
    return [drop_null_keys(inner, depth=depth + 1) for inner in value] if is_list else value


def iter_table_records(table: Any, choose: Choose) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table in memory, or of a stream of record batches, as records.

    Args:
        table: an object with the method `__arrow_c_stream__`, such as a `pyarrow.Table`, a
            `pyarrow.RecordBatchReader`, or a data frame of pandas or polars; or a `pyarrow.dataset.Dataset`.
        choose: function of the names of all columns that returns those to read.
    """
    pyarrow = import_optional("pyarrow", extra="parquet", purpose="reading an Arrow table")
    if hasattr(table, "scanner"):  # a dataset of pyarrow
        prefixes = {name.partition(".")[0] for name in choose(list_columns(table.schema))}
        columns = [name for name in table.schema.names if name.partition(".")[0] in prefixes]
        table = table.scanner(columns=columns).to_reader()
    if hasattr(table, "num_columns"):  # a table or a record batch of pyarrow
        batches, schema = table.to_batches() if hasattr(table, "to_batches") else [table], table.schema
    else:
        batches = pyarrow.RecordBatchReader.from_stream(table)
        schema = batches.schema
    names = choose(list_columns(schema))
    for batch in batches:
        yield from iter_records(names, [get_column(batch, name) for name in names])


def is_arrow_table(source: object) -> bool:
    """Returns whether an object is a table, a dataset or a stream of pyarrow, and not a single column."""
    has_columns = any(hasattr(source, name) for name in ("schema", "column_names", "columns"))
    readers = ("__arrow_c_stream__", "__arrow_c_array__", "scanner")
    return has_columns and any(hasattr(source, name) for name in readers)


def is_ray_dataset(source: object) -> bool:
    """Returns whether an object is a `ray.data.Dataset` or a `ray.data.DataIterator`."""
    return hasattr(source, "iter_batches") and hasattr(source, "iter_rows") and hasattr(source, "materialize")


def iter_ray_tables(dataset: Any, choose: Choose) -> Iterator[Any]:
    """Yields the blocks of a dataset of Ray as tables of pyarrow, in their order.

    Args:
        dataset: a `ray.data.Dataset`, or a `ray.data.DataIterator`.
        choose: function of the names of all columns that returns those to read.
    """
    schema = dataset.schema()
    if schema is None:  # it has no rows
        return
    names = choose(schema.names)
    if hasattr(dataset, "select_columns"):
        dataset = dataset.select_columns(names)
    context = dataset.context if hasattr(dataset, "context") else dataset.get_context()
    options = context.execution_options
    preserve_order, options.preserve_order = options.preserve_order, True
    try:
        yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow")
    finally:
        options.preserve_order = preserve_order
