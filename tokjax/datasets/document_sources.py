"""Document sources: iteration over files and iterables, and digests that identify the documents.

The digest lets an interrupted writer check that a source starts with the same documents when it resumes.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.checks import LIST_PATHS_ADVICE, check_text
from tokjax._util.urls import get_path_or_url
from tokjax.core.utf8 import Text, to_utf8
from tokjax.corpus.files import TextFiles, get_format, has_plain_text
from tokjax.corpus.readers import Chunk, iter_file_chunks
from tokjax.corpus.records import RowChunk, find_field, gather
from tokjax.corpus.sources import (
    ReadingReport,
    Source,
    find_source_files,
    read_chunk,
    read_documents,
)
from tokjax.corpus.tables import (
    TABLE_FORMATS,
    drop_null_keys,
    find_ids_column,
    is_arrow_table,
    is_ray_dataset,
    iter_ray_tables,
    iter_table_records,
)
from tokjax.datasets.columns import IDS_KEY, convert_values, get_record_columns
from tokjax.datasets.document_encoding import Documents
from tokjax.datasets.fields.base import TokenField
from tokjax.errors import Hint, InvalidArgumentError, SourceError, TokjaxError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokjax.corpus.files import SourceFile
    from tokjax.datasets.columns import Column
    from tokjax.datasets.fields.registry import Field

DocumentSource: TypeAlias = (
    Source
    | Iterable[tuple[int, Text]]
    | Iterable[Mapping[str, Any]]
    | Iterable[tuple[int, Mapping[str, Any]]]
)
"""Files, as for `read_documents`; an iterable of texts, of records, or of `(doc_id, text)` or
`(doc_id, record)` pairs; or a table: a `datasets.Dataset`, a dataset of Ray, an Arrow table, dataset or
stream, a data frame, or an iterable of tables."""
Content: TypeAlias = "tuple[Text | NDArray[np.int32], tuple[NDArray[Any], ...]]"
"""Text or ids of a document, and its values of the columns that come from records."""
Batch: TypeAlias = "Documents | FileDocuments"
"""Consecutive documents that one worker encodes: in memory, or in files."""

DEFAULT_COLUMN = "text"
_PROBE_BYTES = 1 << 20
"""Target size of the chunk whose first record shows whether JSON lines hold ids."""
_ROWS_PER_READ = 1000
_RECORD_ERRORS = (InvalidArgumentError, SourceError)
_ITEM_TYPES = (str, bytes, dict, tuple)
"""The usual types of documents, of which the others are distinguished."""


def resolve_files(
    source: DocumentSource, text_column: str, *, skip_bad_records: bool = False
) -> DocumentSource:
    """Returns a source with its files as a `TextFiles`, so that files at URLs are downloaded once.

    Args:
        source: source of documents.
        text_column: key or column of a record that holds its text.
        skip_bad_records: whether bad records are skipped when they are read.

    Returns:
        A `TextFiles`, or the source itself if it is an iterable.

    Raises:
        InvalidArgumentError: `source` is not a source of documents, or names files that do not exist.
    """
    if not isinstance(text_column, str):
        raise InvalidArgumentError(f"text_column must be the name of a column, not {text_column!r:.80}")
    files = find_source_files(source, takes_records=True, skip_bad_records=skip_bad_records)  # type: ignore[arg-type]
    if files is None or text_column in (DEFAULT_COLUMN, files.field):
        return source if files is None else files
    if isinstance(source, TextFiles):
        raise InvalidArgumentError(
            f"text_column is {text_column!r}, and the source has field={files.field!r}; pass only "
            "one of the two"
        )
    return replace(files, field=text_column)


class FileDocuments(NamedTuple):
    """Consecutive documents of files, which are read by the worker that encodes them.

    Attributes:
        chunks: positions in files, or the contents of files that only one process can read.
        num_skipped: number of documents at the start that are left out.
    """

    chunks: tuple[Chunk, ...]
    num_skipped: int = 0

    @property
    def read_nbytes(self) -> int:
        """Number of bytes of the files that are read for these documents, for a progress bar."""
        return sum(chunk.read_nbytes for chunk in self.chunks)

    def skip(self, count: int) -> FileDocuments:
        """Returns the documents without the first ones of those that are not left out yet."""
        return self._replace(num_skipped=self.num_skipped + count)


class DocumentReader(NamedTuple):
    """Reader of batches of documents. A copy of it reads the documents of files in each worker.

    Attributes:
        text_column: key of a record that holds its text or its ids. `"meta.text"` is the key `text` of the
            mapping `meta`.
        columns: side columns whose values come from records.
        keys: keys that form the document, for fields whose documents are records; else empty.
        separator: string between documents in a text; `None` if each text is one document.
        skip_bad_records: whether to skip records that are no documents.
        reads_texts: whether the documents of files are texts, and not records.
        record_separator: string between documents in the text of a record of a file of texts.
    """

    text_column: str
    columns: tuple[Column, ...] = ()
    keys: tuple[str, ...] = ()
    separator: str | None = None
    skip_bad_records: bool = False
    reads_texts: bool = False
    record_separator: str | None = None

    @property
    def needs_records(self) -> bool:
        """Whether documents must be records: they have values of columns, or consist of several keys."""
        return bool(self.columns or self.keys)

    @property
    def names(self) -> list[str]:
        """Keys that are read from each record."""
        return [*(self.keys or [self.text_column]), *(column.name for column in self.columns)]

    def choose(self, columns: Sequence[str]) -> list[str]:
        """Returns the columns to read from a table: those of the document, and those of side columns.

        Args:
            columns: names of all columns. Fields of structs may be missing; then the struct is read.

        Raises:
            InvalidArgumentError: the table has no column of documents.
        """
        content = list(self.keys) or [self.text_column]
        if not self.keys and self.text_column not in columns:
            content = [self.text_column.partition(".")[0]]
        if not set(content) & set(columns):
            if self.keys or self.text_column != DEFAULT_COLUMN or IDS_KEY not in columns:
                missing, advice = f"no column {self.text_column!r}", "; pass text_column=NAME"
                if self.keys:
                    missing, advice = f"none of the columns {list(self.keys)}", ""
                raise InvalidArgumentError(f"the dataset has {missing}, it has {list(columns[:20])}{advice}")
            content = [IDS_KEY]
        return [name for name in (*content, *(column.name for column in self.columns)) if name in columns]

    def read_record(self, record: Mapping[str, Any] | SourceError, name: str) -> Content | None:
        """Returns the document of a record, with the values of its columns; `None` if its text is `None`.

        Args:
            record: the record, or its error.
            name: name of the record, for error messages.

        Raises:
            InvalidArgumentError: a key is missing, or a value is invalid.
            SourceError: the record is an error.
        """
        if isinstance(record, SourceError):
            raise record
        content = self._read_content(record, name)
        if content is None:
            return None
        values = []
        for column in self.columns:
            value_name = f"{name}, column {column.name!r}"
            if record.get(column.name) is None:
                raise InvalidArgumentError(
                    f"{value_name}: the record has no value under this key, it has {list(record)[:20]}"
                )
            ndim = int(column.per == "token")
            values.append(convert_values(column, record[column.name], value_name, ndim=ndim))
        return content, tuple(values)

    def _read_content(self, record: Mapping[str, Any], name: str) -> Any:
        if self.keys:
            return self._join_keys(record, name)
        holder, key = find_field(record, self.text_column)
        if key not in holder and self.text_column == DEFAULT_COLUMN and IDS_KEY in record:
            holder, key = record, IDS_KEY
        elif key not in holder:
            raise InvalidArgumentError(
                f"{name} has no {self.text_column!r}, it has {list(record)[:20]}; pass text_column=NAME"
            )
        content = holder[key]
        if content is None:
            return None
        if key != IDS_KEY and not _is_array_of_ids(content):
            return check_text(content, name, paths_advice=LIST_PATHS_ADVICE)
        ids = as_integers(f"{name}: {key}", content, np.int32)
        if ids.ndim != 1:
            raise InvalidArgumentError(f"{name}: {key} has shape {ids.shape}; pass a flat list of ids")
        return ids

    def _join_keys(self, record: Mapping[str, Any], name: str) -> str:
        """Returns the JSON object of the keys that form the document."""
        parts = {key: record[key] for key in self.keys if record.get(key) is not None}
        if not parts:
            raise InvalidArgumentError(
                f"{name} has none of the keys {list(self.keys)}, it has {list(record)[:20]}"
            )
        try:
            return json.dumps(parts, ensure_ascii=False, separators=(",", ":"), default=_to_list)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"{name} is not JSON data: {error}") from None

    def read(self, batch: Batch) -> Documents:
        """Returns the documents of a batch. Those of an iterable have been read before."""
        if isinstance(batch, Documents):
            return batch
        before = _get_versions(batch.chunks)
        read = (self._read_texts if self.reads_texts else self._read_records)(batch.chunks)
        # The driver compares the files, too, but workers on other machines may have copies of them.
        for path, version in _get_versions(batch.chunks).items():
            if version != before[path]:
                raise SourceError(
                    f"{get_path_or_url(path)}: changed while it was read; make the same call again when it "
                    "no longer changes"
                )
        return read.skip(batch.num_skipped)

    def _read_texts(self, chunks: Sequence[Any]) -> Documents:
        texts: list[Text] = []
        locations: list[tuple[int, str]] = []
        report = ReadingReport()
        for chunk in chunks:
            locations.append((len(texts), chunk.location))
            documents, found = read_chunk(
                chunk, self.separator, self.record_separator, skip_bad_records=self.skip_bad_records
            )
            texts += documents
            report = report.add(found)
        return Documents(None, texts, (), partial(_describe_location, locations), report=report)

    def _read_records(self, chunks: Sequence[Any]) -> Documents:
        documents: list[Content] = []
        locations: list[str] = []
        bad: list[TokjaxError] = []
        for chunk in chunks:
            for location, record in chunk.read_records(self.choose):
                try:
                    document = self.read_record(record, location)
                except _RECORD_ERRORS as error:
                    if not self.skip_bad_records:
                        raise
                    bad.append(error)
                    continue
                if document is not None:
                    documents.append(document)
                    locations.append(location)
        report = ReadingReport().add_skipped(bad)
        return Documents(None, *_transpose(documents), locations.__getitem__, report=report)


def _get_versions(chunks: Sequence[Any]) -> dict[Path, tuple[int, int]]:
    """Returns the size and the modification time of each file that is read for chunks."""
    is_read = (isinstance(chunk, RowChunk) or getattr(chunk, "data", b"") is None for chunk in chunks)
    statuses = {chunk.path: chunk.path.stat() for chunk in compress(chunks, is_read)}
    return {path: (status.st_size, status.st_mtime_ns) for path, status in statuses.items()}


def _describe_location(locations: Sequence[tuple[int, str]], index: int) -> str:
    """Returns the position of a document, given the index of the first document of each chunk."""
    first, location = locations[bisect.bisect_right(locations, index, key=itemgetter(0)) - 1]
    return f"document {index - first} of {location}"


def make_document_reader(
    source: DocumentSource,
    field: Field,
    text_column: str,
    separator: str | None,
    *,
    skip_bad_records: bool = False,
) -> DocumentReader:
    """Returns the reader of a source.

    Args:
        source: source of documents, from `resolve_files`.
        field: field that stores the documents.
        text_column: key of a record that holds its text or its ids.
        separator: string between documents in a text; `None` if each text is one document.
        skip_bad_records: whether to skip records that are no documents.

    Raises:
        InvalidArgumentError: a separator is passed for records, or a column has the name of the text column.
    """
    keys = field.record_keys if isinstance(field, TokenField) else ()
    text_column = source.field if isinstance(source, TextFiles) else text_column
    columns = get_record_columns(field.columns)
    for column in columns:
        if column.name in (keys or (text_column,)):
            raise InvalidArgumentError(
                f"column {column.name!r} has the name of the key of the document; choose another name"
            )
    reader = DocumentReader(text_column, columns, keys, separator, skip_bad_records)
    if separator is not None and reader.needs_records:
        raise InvalidArgumentError(
            "separator splits texts, and the columns of the field have values for complete records; omit "
            "separator"
        )
    if not isinstance(source, TextFiles) or reader.needs_records:
        return reader
    if not _holds_ids(source):
        record_separator = None if has_plain_text(source) else separator
        return reader._replace(reads_texts=True, record_separator=record_separator)
    if separator is not None:
        raise InvalidArgumentError(
            "separator splits texts, and the files hold ids",
            hint=Hint("omit separator", "omit --separator"),
        )
    return reader


def iter_batches(
    source: DocumentSource, reader: DocumentReader, batch_size: int, *, in_memory: bool
) -> Iterator[Batch]:
    """Iterates over the documents of a source in batches. Ids are 0, 1, 2, ... by default.

    Args:
        source: source of documents, from `resolve_files`.
        reader: reader of the source.
        batch_size: size of a batch in characters or bytes.
        in_memory: whether workers can't read the files of the source.

    Raises:
        InvalidArgumentError: an item is not a document.
        SourceError: a file is damaged.
    """
    if not isinstance(source, TextFiles):
        yield from _batch_documents(_iter_iterable(source, reader), batch_size)
        return
    choose = None if reader.reads_texts else reader.choose
    separators = [] if choose is not None or reader.separator is None else [reader.separator]
    chunks = iter_file_chunks(source, separators, batch_size, safe_splits=False, choose=choose)
    sized = (([chunk.load(choose) if in_memory else chunk], chunk.nbytes, 0) for chunk in chunks)
    for gathered, _, _ in gather(sized, batch_size):
        yield FileDocuments(gathered)


def _transpose(documents: Sequence[Content]) -> tuple[list[Any], list[tuple[NDArray[Any], ...]]]:
    """Returns the contents of documents, and their values."""
    return [content for content, _ in documents], [values for _, values in documents]


def _batch_documents(
    documents: Iterator[tuple[int, Content] | TokjaxError], batch_size: int
) -> Iterator[Documents]:
    """Groups documents into batches of at least `batch_size` characters, or bytes; reports the errors."""
    sized = (([each], 0 if isinstance(each, TokjaxError) else len(each[1][0]), 0) for each in documents)
    for gathered, _, _ in gather(sized, batch_size):
        found = [each for each in gathered if not isinstance(each, TokjaxError)]
        bad = [each for each in gathered if isinstance(each, TokjaxError)]
        contents, values = _transpose([document for _, document in found])
        report = ReadingReport().add_skipped(bad)
        yield Documents([doc_id for doc_id, _ in found], contents, values, report=report)


def _iter_iterable(source: Any, reader: DocumentReader) -> Iterator[tuple[int, Content] | TokjaxError]:
    """Yields the documents of an iterable, and errors of bad items if these are skipped."""
    kind: str | None = None
    index = 0
    for position, item in enumerate(_iter_items(source, reader)):
        number = position if reader.skip_bad_records else index
        try:
            item_kind = _get_kind(item)
            if kind not in (None, item_kind):
                raise InvalidArgumentError(
                    f"documents mixes texts, (doc_id, text) pairs and records; document {number} is the "
                    "first of a different kind"
                )
            doc_id, document = _read_item(item, item_kind, number, reader)
        except _RECORD_ERRORS as error:
            if not reader.skip_bad_records:
                raise
            yield error
            continue
        kind = item_kind
        if document is None:
            continue
        if reader.separator is None or isinstance(document[0], np.ndarray):
            yield index if doc_id is None else doc_id, document
            index += 1
            continue
        for part in read_documents(iter([document[0]]), reader.separator):
            yield index, (part, ())
            index += 1


def _read_item(
    item: Any, kind: str, number: int, reader: DocumentReader
) -> tuple[int | None, Content | None]:
    """Returns the id of an item of an iterable, if it has one, and its document, if it is not null.

    Args:
        item: the item.
        kind: its kind, from `_get_kind`.
        number: its number, for errors.
        reader: reader of the source.
    """
    doc_id, content = None, item
    if kind == "pair":
        doc_id, content = _check_pair(number, item, reader.separator)
    if kind != "text" and isinstance(content, Mapping):
        return doc_id, reader.read_record(content, f"document {number if doc_id is None else doc_id}")
    if reader.needs_records:
        raise InvalidArgumentError(
            f"document {number if doc_id is None else doc_id} is a {type(content).__name__}, and the field "
            f"needs records with {', '.join(map(repr, reader.names))}"
        )
    if not isinstance(content, (str, bytes)) and kind != "pair" and _is_array_of_ids(content):
        raise InvalidArgumentError(
            f"document {number} is a {type(content).__name__} of ids, and not a text; pass records: "
            "({'ids': ids} for ids in SOURCE)"
        )
    return doc_id, (check_text(content, f"document {number}", paths_advice=LIST_PATHS_ADVICE), ())


def describe_source(
    source: DocumentSource, files: Sequence[SourceFile], separator: str | None
) -> dict[str, Any] | None:
    """Returns the manifest's entry for a source: its files and how they are read; `None` for an iterable."""
    if not isinstance(source, TextFiles):
        return None
    return {
        "files": [[file.path, file.nbytes] for file in files],
        "format": source.format,
        "field": source.field,
        "separator": separator,
    }


class DocumentDigests(NamedTuple):
    """Ids, sizes and digests of documents before they are encoded.

    Attributes:
        doc_ids: id of each document, `uint64`, shape `(documents,)`; `None` if they are numbered when they
            are written.
        num_bytes: size of each document in UTF-8; 0 for documents of ids: `int64`, shape `(documents,)`.
        sha256: digest of each document, `uint8`, shape `(documents, 32)`.
    """

    doc_ids: NDArray[np.uint64] | None
    num_bytes: NDArray[np.int64]
    sha256: NDArray[np.uint8]

    def take(self, start: int, stop: int) -> DocumentDigests:
        """Returns those of the documents from `start` to `stop`."""
        doc_ids = None if self.doc_ids is None else self.doc_ids[start:stop]
        return DocumentDigests(doc_ids, self.num_bytes[start:stop], self.sha256[start:stop])

    def number(self, first: int) -> DocumentDigests:
        """Returns the documents with ids: if they have none yet, with the count from `first`."""
        if self.doc_ids is not None:
            return self
        return self._replace(doc_ids=np.arange(first, first + len(self.sha256), dtype=np.uint64))


def compute_digests(documents: Documents) -> DocumentDigests:
    """Computes the digest of each document.

    The digest of a text is the SHA-256 of its bytes in UTF-8, and that of ids the SHA-256 of their bytes as
    little-endian `int32`. With values of columns, it is the SHA-256 of this digest, and of the number of
    values and the values of each column.
    """
    contents = [
        content.astype("<i4").tobytes() if isinstance(content, np.ndarray) else to_utf8(content)
        for content in documents.contents
    ]
    digests = [hashlib.sha256(content).digest() for content in contents]
    for index, values in enumerate(documents.values):
        if values:
            digests[index] = _add_values(digests[index], values)
    is_text = not (contents and isinstance(documents.contents[0], np.ndarray))
    lengths = np.fromiter(map(len, contents), np.int64, len(contents))
    return DocumentDigests(
        None if documents.doc_ids is None else np.array(documents.doc_ids, np.uint64),
        lengths if is_text else np.zeros_like(lengths),
        np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32),
    )


def _add_values(digest: bytes, values: Sequence[NDArray[Any]]) -> bytes:
    """Returns the digest of a document with values of columns."""
    running = hashlib.sha256(digest)
    for each in values:
        little_endian = each.astype(each.dtype.newbyteorder("<"), copy=False)
        running.update(each.size.to_bytes(8, "little") + little_endian.tobytes())
    return running.digest()


class SourceHash:
    """Running digest of the ids and digests of documents, for `Shard.source_sha256`.

    Workers compute the digests of documents, in parallel. So this digest does not depend on how the documents
    were distributed among them, and takes 40 bytes for each document, whatever their sizes.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, documents: DocumentDigests) -> None:
        """Adds numbered documents."""
        assert documents.doc_ids is not None, "number comes first"
        doc_ids = documents.doc_ids.astype("<u8").view(np.uint8).reshape(-1, 8)
        self._hash.update(np.hstack([doc_ids, documents.sha256]).tobytes())

    def pop(self) -> str:
        """Returns the digest of the documents added since the last call, in hexadecimal, and resets it."""
        digest = self._hash.hexdigest()
        self._hash = hashlib.sha256()
        return digest


def _iter_items(source: Any, reader: DocumentReader) -> Iterator[Any]:
    """Iterates over an iterable; of a table, only over the columns that are read, in batches.

    A table may be one of several: the items of an iterable can be tables, too.
    """
    if is_arrow_table(source):
        yield from iter_table_records(source, reader.choose)
        return
    if is_ray_dataset(source):
        source = iter_ray_tables(source, reader.choose)
    columns = getattr(source, "column_names", None)
    is_table = hasattr(source, "iter") and hasattr(source, "select_columns")
    if not (isinstance(columns, list) and is_table):
        for item in source:
            if isinstance(item, _ITEM_TYPES) or not is_arrow_table(item):
                yield _drop_null_keys(item, reader.keys) if is_table and isinstance(item, dict) else item
            else:
                yield from iter_table_records(item, reader.choose)
        return
    names = reader.choose(columns)
    if (getattr(source, "format", None) or {}).get("type") != "custom":  # (the format of a transform)
        source = source.with_format(None)  # rows of Python objects, and not of tensors or of Arrow scalars
    for rows in source.select_columns(names).iter(batch_size=_ROWS_PER_READ):
        for values in zip(*(rows[name] for name in names), strict=True):
            yield _drop_null_keys(dict(zip(names, values, strict=True)), reader.keys)


def _drop_null_keys(row: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Returns a row of a table without the null keys of its values that form the document."""
    return row | {key: drop_null_keys(row[key]) for key in keys if key in row}


def _get_kind(item: object) -> str:
    if isinstance(item, (str, bytes)):  # (first, because most items are, and isinstance(_, Mapping) is slow)
        return "text"
    return "pair" if isinstance(item, tuple) else "record" if isinstance(item, Mapping) else "text"


def _to_list(value: object) -> Any:
    """Converts an array or a scalar of NumPy, which records of a data frame have, for `json.dumps`."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _is_array_of_ids(content: object) -> bool:
    """Returns whether a value is an array or a list of integers."""
    if isinstance(content, list):
        return not content or (isinstance(content[0], int) and not isinstance(content[0], bool))
    return isinstance(content, np.ndarray) and content.dtype.kind in "iu"


def _holds_ids(files: TextFiles) -> bool:
    """Returns whether the first file with contents has records whose documents are lists of ids.

    The first document that is not null decides.
    """
    path = next((path for path in files.paths if path.stat().st_size), files.paths[0])
    kind = get_format(path, files)
    names = (files.field, IDS_KEY) if files.field == DEFAULT_COLUMN else (files.field,)
    if kind in ("jsonl", "array_record"):

        def choose(columns: list[str]) -> list[str]:
            return [
                column for column in columns if any(f"{name}.".startswith(f"{column}.") for name in names)
            ]

        one_file = replace(files, paths=(path,))
        chunks = iter_file_chunks(one_file, [], _PROBE_BYTES, safe_splits=False, choose=choose)
        for _, record in chain.from_iterable(chunk.read_records(choose) for chunk in chunks):
            if isinstance(record, SourceError):  # (raised, or skipped, when the documents are read)
                continue
            found = (find_field(record, name) for name in names)
            document = next((holder[key] for holder, key in found if key in holder), "")
            if document is not None:
                return _is_array_of_ids(document)
        return False
    return kind in TABLE_FORMATS and find_ids_column(path, kind, names) is not None


def _check_pair(index: int, pair: tuple[Any, ...], separator: str | None) -> tuple[int, Any]:
    if len(pair) != 2:
        raise InvalidArgumentError(f"document {index} is a tuple of {len(pair)}; a pair is (doc_id, text)")
    if separator is not None:
        raise InvalidArgumentError("separator is for texts; (doc_id, text) pairs are documents already")
    doc_id, content = pair
    if isinstance(doc_id, bool) or not isinstance(doc_id, (int, np.integer)) or not 0 <= doc_id < 2**64:
        raise InvalidArgumentError(
            f"the id of document {index} is {doc_id!r}; ids are integers from 0 to 2**64 - 1"
        )
    is_record = isinstance(content, Mapping)
    return int(doc_id), content if is_record else check_text(content, f"document {index}")
