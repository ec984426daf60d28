"""Document sources: iteration over files and iterables, and digests that identify the documents.

The digest lets an interrupted writer check that a source starts with the same documents when it resumes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax._util.checks import LIST_PATHS_ADVICE, check_text
from tokjax.core.utf8 import Text, to_utf8
from tokjax.corpus.files import TextFiles, get_source_files
from tokjax.corpus.sources import Source, find_source_files, iter_documents_by_chunk, read_documents
from tokjax.datasets.document_encoding import Documents
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

DocumentSource: TypeAlias = Source | Iterable[tuple[int, Text]] | Iterable[Mapping[str, Any]]
"""Files, as for `read_documents`; or an iterable of texts, of `(doc_id, text)` pairs, or of records (such as
a `datasets.Dataset`)."""
Document: TypeAlias = tuple[int, Text]

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


def iter_documents(source: DocumentSource, separator: str | None, text_column: str) -> Iterator[Document]:
    """Iterates over the documents of a source, as pairs of id and text. Ids are 0, 1, 2, ... by default.

    Args:
        source: source of documents, from `resolve_files`.
        separator: string between documents in a text; `None` if each text is one document.
        text_column: key or column of a record that holds its text.

    Returns:
        Iterator over the documents; a `FileDocuments` for files.

    Raises:
        InvalidArgumentError: an item is not a document.
        SourceError: a file is damaged.
    """
    if isinstance(source, TextFiles):
        return FileDocuments(source, separator)
    return _iter_iterable(source, separator, text_column)


def _iter_iterable(source: Any, separator: str | None, text_column: str) -> Iterator[Document]:
    kind: str | None = None
    index = 0
    for item in _iter_items(source, text_column):
        item_kind = _get_kind(item)
        if kind not in (None, item_kind):
            raise InvalidArgumentError(
                f"documents mixes texts, (doc_id, text) pairs and records; document {index} is the first of "
                "a different kind"
            )
        kind = item_kind
        if kind == "pair":
            yield _check_pair(index, item, separator)
            index += 1
            continue
        text = _get_record_text(index, item, text_column) if kind == "record" else item
        if text is None and kind == "record":
            continue
        checked = check_text(text, f"document {index}", paths_advice=LIST_PATHS_ADVICE)
        for part in [checked] if separator is None else read_documents(iter([checked]), separator):
            yield index, part
            index += 1


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
    texts: list[Text] = []
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
    """Running digest of documents before they are encoded: their ids, lengths and bytes."""

    def __init__(self) -> None:
        self._heads, self._data = hashlib.sha256(), hashlib.sha256()

    def add(self, doc_ids: Sequence[int], texts: Sequence[Text]) -> int:
        """Adds documents to the digest. Returns their number of bytes in UTF-8."""
        data, lengths = _join_texts(texts)
        self._heads.update(np.array([doc_ids, lengths], "<u8").T.tobytes())
        self._data.update(data)  # (one call: each call acquires the GIL again)
        return len(data)

    def pop(self) -> str:
        """Returns the digest of the documents added since the last call, in hexadecimal, and resets it."""
        digest = hashlib.sha256(self._heads.digest() + self._data.digest()).hexdigest()
        self._heads, self._data = hashlib.sha256(), hashlib.sha256()
        return digest


def _join_texts(texts: Sequence[Text]) -> tuple[bytes, list[int]]:
    """Returns texts concatenated in UTF-8, and the number of bytes of each."""
    if all(type(text) is str for text in texts):
        joined = "".join(texts)  # type: ignore[arg-type]
        if joined.isascii():  # (several times faster than encoding each text)
            return joined.encode("ascii"), list(map(len, texts))
    contents = list(map(to_utf8, texts))
    return b"".join(contents), list(map(len, contents))


def _iter_items(source: Any, text_column: str) -> Iterator[Any]:
    """Iterates over an iterable; of a `datasets.Dataset`, reads only the text column, many rows at a time."""
    columns = getattr(source, "column_names", None)
    if not (isinstance(columns, list) and hasattr(source, "iter") and hasattr(source, "select_columns")):
        yield from source
        return
    if text_column not in columns:
        raise InvalidArgumentError(
            f"the dataset has no column {text_column!r}, it has {columns[:20]}; pass text_column=NAME"
        )
    for rows in source.select_columns([text_column]).iter(batch_size=_ROWS_PER_READ):
        for text in rows[text_column]:
            yield {text_column: text}


def _get_kind(item: object) -> str:
    if isinstance(item, (str, bytes)):  # (first, because most items are, and isinstance(_, Mapping) is slow)
        return "text"
    return "pair" if isinstance(item, tuple) else "record" if isinstance(item, Mapping) else "text"


def _get_record_text(index: int, record: Mapping[str, Any], column: str) -> Any:
    """Returns the text of a record, which may be `None`."""
    if column not in record:
        raise InvalidArgumentError(
            f"record {index} has no {column!r}, it has {list(record)[:20]}; pass text_column=NAME"
        )
    return record[column]


def _check_pair(index: int, pair: tuple[Any, ...], separator: str | None) -> Document:
    if len(pair) != 2:
        raise InvalidArgumentError(f"document {index} is a tuple of {len(pair)}; a pair is (doc_id, text)")
    if separator is not None:
        raise InvalidArgumentError("separator is for texts; (doc_id, text) pairs are documents already")
    doc_id, text = pair
    if isinstance(doc_id, bool) or not isinstance(doc_id, (int, np.integer)) or not 0 <= doc_id < 2**64:
        raise InvalidArgumentError(
            f"the id of document {index} is {doc_id!r}; ids are integers from 0 to 2**64 - 1"
        )
    return int(doc_id), check_text(text, f"document {index}")
