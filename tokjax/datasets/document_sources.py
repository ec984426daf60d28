"""Document sources: iteration over files and iterables, and digests that identify the documents.

The digest lets an interrupted writer check that a source starts with the same documents when it resumes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.checks import LIST_PATHS_ADVICE, check_text
from tokjax.core.utf8 import Text, to_utf8
from tokjax.corpus.files import TextFiles, get_format, get_source_files
from tokjax.corpus.readers import find_field, iter_record_chunks
from tokjax.corpus.sources import Source, find_source_files, iter_documents_by_chunk, read_documents
from tokjax.corpus.tables import TABLE_FORMATS, find_ids_column, is_arrow_table, iter_table_records
from tokjax.datasets.columns import IDS_KEY, convert_value, convert_values, get_record_columns
from tokjax.datasets.document_encoding import Documents, Record
from tokjax.datasets.fields import TokenField
from tokjax.errors import Hint, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.datasets.columns import Column
    from tokjax.datasets.fields import Field

DocumentSource: TypeAlias = (
    Source
    | Iterable[tuple[int, Text]]
    | Iterable[Mapping[str, Any]]
    | Iterable[tuple[int, Mapping[str, Any]]]
)
"""Files, as for `read_documents`; an iterable of texts, of records, or of `(doc_id, text)` or
`(doc_id, record)` pairs; or a table: a `datasets.Dataset`, an Arrow table or stream, or a data frame."""
Document: TypeAlias = tuple[int, Text | Record]

DEFAULT_COLUMN = "text"
_BATCH_DOCUMENTS = 1 << 14
_ROWS_PER_READ = 1000


def resolve_files(source: DocumentSource, text_column: str) -> DocumentSource:
    """Returns a source with its files as a `TextFiles`, so that files at URLs are downloaded once.

    Args:
        source: source of documents.
        text_column: key or column of a record that holds its text.

    Returns:
        A `TextFiles`, or the source itself if it is an iterable.

    Raises:
        InvalidArgumentError: `source` is not a source of documents, or names files that do not exist.
    """
    if not isinstance(text_column, str):
        raise InvalidArgumentError(f"text_column must be the name of a column, not {text_column!r:.80}")
    files = find_source_files(source, takes_records=True)  # type: ignore[arg-type]
    if files is None or text_column in (DEFAULT_COLUMN, files.field):
        return source if files is None else files
    if isinstance(source, TextFiles):
        raise InvalidArgumentError(
            f"text_column is {text_column!r}, and the source has field={files.field!r}; pass only "
            "one of the two"
        )
    return replace(files, field=text_column)


class FileDocuments:
    """Iterator over the documents of files. Their ids are 0, 1, 2, and so on.

    Attributes:
        read_nbytes: number of bytes of the files that were read so far, for a progress bar. It grows by some
            megabytes at a time.
    """

    def __init__(self, files: TextFiles, separator: str | None) -> None:
        self.read_nbytes = 0
        self._documents = enumerate(self._read(files, separator))

    def __iter__(self) -> Iterator[Document]:
        """Returns itself: the documents can be read once."""
        return self

    def __next__(self) -> Document:
        """Returns the next document."""
        return next(self._documents)

    def _read(self, files: TextFiles, separator: str | None) -> Iterator[Text]:
        for documents, nbytes in iter_documents_by_chunk(files, separator):
            yield from documents
            self.read_nbytes += nbytes


class RecordReader(NamedTuple):
    """Reader of the document in a record.

    Attributes:
        text_column: key of a record that holds its text or its ids. `"meta.text"` is the key `text` of the
            mapping `meta`.
        columns: side columns whose values come from records.
        keys: keys that form the document, for fields whose documents are records; else empty.
    """

    text_column: str
    columns: tuple[Column, ...] = ()
    keys: tuple[str, ...] = ()

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
                missing = self.keys[0] if self.keys else self.text_column
                raise InvalidArgumentError(
                    f"the dataset has no column {missing!r}, it has {list(columns[:20])}; pass "
                    "text_column=NAME"
                )
            content = [IDS_KEY]
        return [name for name in (*content, *(column.name for column in self.columns)) if name in columns]

    def read(self, record: Mapping[str, Any], index: int, name: str) -> Text | Record | None:
        """Returns the document of a record, with the values of its columns; `None` if its text is `None`.

        Args:
            record: the record.
            index: number of the record, for error messages.
            name: name of the document, for error messages.

        Raises:
            InvalidArgumentError: a key is missing, or a value is invalid.
        """
        content = self._read_content(record, index, name)
        if content is None or (not self.columns and isinstance(content, (str, bytes))):
            return content
        values = []
        for column in self.columns:
            value_name = f"{name}, column {column.name!r}"
            if record.get(column.name) is None:
                raise InvalidArgumentError(
                    f"{value_name}: the record has no value under this key, it has {list(record)[:20]}"
                )
            convert = convert_values if column.per == "token" else convert_value
            values.append(convert(column, record[column.name], value_name))
        return Record(content, tuple(values))

    def _read_content(self, record: Mapping[str, Any], index: int, name: str) -> Any:
        if self.keys:
            return self._join_keys(record, name)
        holder, key = find_field(record, self.text_column)
        if key not in holder and self.text_column == DEFAULT_COLUMN and IDS_KEY in record:
            holder, key = record, IDS_KEY
        elif key not in holder:
            raise InvalidArgumentError(
                f"record {index} has no {self.text_column!r}, it has {list(record)[:20]}; pass "
                "text_column=NAME"
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


def make_record_reader(field: Field, text_column: str) -> RecordReader:
    """Returns the reader of the records that a field stores.

    Raises:
        InvalidArgumentError: a column has the name of the text column.
    """
    keys = field.RECORD_KEYS if isinstance(field, TokenField) else ()
    columns = get_record_columns(field.columns)
    for column in columns:
        if column.name in (keys or (text_column,)):
            raise InvalidArgumentError(
                f"column {column.name!r} has the name of the key of the document; choose another name"
            )
    return RecordReader(text_column, columns, keys)


def iter_documents(source: DocumentSource, separator: str | None, reader: RecordReader) -> Iterator[Document]:
    """Iterates over the documents of a source, as pairs of id and content. Ids are 0, 1, 2, ... by default.

    Args:
        source: source of documents, from `resolve_files`.
        separator: string between documents in a text; `None` if each text is one document.
        reader: reader of records.

    Returns:
        Iterator over the documents; a `FileDocuments` for files.

    Raises:
        InvalidArgumentError: an item is not a document.
        SourceError: a file is damaged.
    """
    if reader.needs_records and separator is not None:
        raise InvalidArgumentError(
            "separator splits texts, and the columns of the field have values for complete records; omit "
            "separator"
        )
    if isinstance(source, TextFiles):
        reader = reader._replace(text_column=source.field)
        if not reader.needs_records and not _holds_ids(source):
            return FileDocuments(source, separator)
        if separator is not None:
            raise InvalidArgumentError(
                "separator splits texts, and the files hold ids",
                hint=Hint("omit separator", "pass --separator ''"),
            )
        return FileRecords(source, reader)
    return _iter_iterable(source, separator, reader)


def _iter_iterable(source: Any, separator: str | None, reader: RecordReader) -> Iterator[Document]:
    kind: str | None = None
    index = 0
    for item in _iter_items(source, reader):
        item_kind = _get_kind(item)
        if kind not in (None, item_kind):
            raise InvalidArgumentError(
                f"documents mixes texts, (doc_id, text) pairs and records; document {index} is the first of "
                "a different kind"
            )
        kind = item_kind
        doc_id, content = index, item
        if kind == "pair":
            doc_id, content = _check_pair(index, item, separator)
        if isinstance(content, Mapping):
            document = reader.read(content, index, f"document {doc_id}")
            if document is None:
                continue
        elif reader.needs_records:
            raise InvalidArgumentError(
                f"document {doc_id} is a {type(content).__name__}, and the field needs records with "
                f"{', '.join(map(repr, reader.names))}"
            )
        elif kind == "pair":
            document = content
        else:
            document = check_text(content, f"document {index}", paths_advice=LIST_PATHS_ADVICE)
        if isinstance(document, Record) or separator is None:
            yield doc_id, document
            index += 1
            continue
        for part in read_documents(iter([document]), separator):
            yield index, part
            index += 1


class FileRecords:
    """Iterator over the records of files, which have ids 0, 1, 2, and so on. CSV and text have no records.

    Attributes:
        read_nbytes: number of bytes of the files that were read so far, as in `FileDocuments`.
    """

    def __init__(self, files: TextFiles, reader: RecordReader) -> None:
        self.read_nbytes = 0
        self._documents = self._read(files, reader)

    def __iter__(self) -> Iterator[Document]:
        """Returns itself: the records can be read once."""
        return self

    def __next__(self) -> Document:
        """Returns the next document."""
        return next(self._documents)

    def _read(self, files: TextFiles, reader: RecordReader) -> Iterator[Document]:
        index = 0
        for records, nbytes in iter_record_chunks(files, reader.choose):
            for location, record in records:
                document = reader.read(record, index, f"document {index} ({location})")
                if document is not None:
                    yield index, document
                    index += 1
            self.read_nbytes += nbytes


def describe_source(source: DocumentSource, separator: str | None) -> dict[str, Any] | None:
    """Returns the manifest's entry for a source: its files and how they are read; `None` for an iterable."""
    if not isinstance(source, TextFiles):
        return None
    return {
        "files": [[file.path, file.nbytes] for file in get_source_files(source)],
        "format": source.format,
        "field": source.field,
        "separator": separator,
    }


def batch_documents(documents: Iterator[Document], batch_size: int) -> Iterator[Documents]:
    """Groups documents into batches of at least `batch_size` characters, or bytes."""
    doc_ids: list[int] = []
    texts: list[Text | Record] = []
    batch_length = 0
    for doc_id, text in documents:
        doc_ids.append(doc_id)
        texts.append(text)
        batch_length += len(text)
        if batch_length >= batch_size or len(texts) >= _BATCH_DOCUMENTS:
            yield Documents(doc_ids, texts)
            doc_ids, texts, batch_length = [], [], 0
    if texts:
        yield Documents(doc_ids, texts)


class SourceHash:
    """Running digest of documents before they are encoded: ids, lengths, bytes, and values of columns."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._heads, self._data, self._values = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        self._has_values = False

    def add(self, doc_ids: Sequence[int], contents: Sequence[Text | Record]) -> int:
        """Adds documents to the digest. Returns their number of bytes in UTF-8; 0 for documents of ids."""
        texts: list[Any] = [self._add_values(each) if isinstance(each, Record) else each for each in contents]
        data, lengths = _join_texts(texts)
        self._heads.update(np.array([doc_ids, lengths], "<u8").T.tobytes())
        self._data.update(data)  # (one call: each call acquires the GIL again)
        first = contents[0] if contents else ""
        is_text = not (isinstance(first, Record) and isinstance(first.content, np.ndarray))
        return len(data) if is_text else 0

    def _add_values(self, record: Record) -> Text:
        """Adds the values of a record. Returns its text, or the bytes of its ids."""
        self._has_values |= bool(record.values)
        for values in record.values:
            little_endian = values.astype(values.dtype.newbyteorder("<"), copy=False)
            self._values.update(values.size.to_bytes(8, "little") + little_endian.tobytes())
        content = record.content
        return content.astype("<i4").tobytes() if isinstance(content, np.ndarray) else content

    def pop(self) -> str:
        """Returns the digest of the documents added since the last call, in hexadecimal, and resets it."""
        digests = self._heads.digest() + self._data.digest()
        digests += self._values.digest() if self._has_values else b""
        self._start()
        return hashlib.sha256(digests).hexdigest()


def _join_texts(texts: Sequence[Text]) -> tuple[bytes, list[int]]:
    """Returns texts concatenated in UTF-8, and the number of bytes of each."""
    if all(type(text) is str for text in texts):
        joined = "".join(texts)  # type: ignore[arg-type]
        if joined.isascii():  # (several times faster than encoding each text)
            return joined.encode("ascii"), list(map(len, texts))
    contents = list(map(to_utf8, texts))
    return b"".join(contents), list(map(len, contents))


def _iter_items(source: Any, reader: RecordReader) -> Iterator[Any]:
    """Iterates over an iterable; of a table, only over the columns that are read, in batches."""
    if is_arrow_table(source):
        yield from iter_table_records(source, reader.choose)
        return
    columns = getattr(source, "column_names", None)
    if not (isinstance(columns, list) and hasattr(source, "iter") and hasattr(source, "select_columns")):
        yield from source
        return
    names = reader.choose(columns)
    for rows in source.select_columns(names).iter(batch_size=_ROWS_PER_READ):
        for values in zip(*(rows[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))


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
    """Returns whether the first file with contents has records whose documents are lists of ids."""
    path = next((path for path in files.paths if path.stat().st_size), files.paths[0])
    kind = get_format(path, files)
    names = (files.field, IDS_KEY) if files.field == DEFAULT_COLUMN else (files.field,)
    if kind == "jsonl":
        chunks = iter_record_chunks(replace(files, paths=(path,)), list)
        _, record = next((first for records, _ in chunks for first in records), ("", {}))
        found = (find_field(record, name) for name in names)
        return _is_array_of_ids(next((holder[key] for holder, key in found if key in holder), None))
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
