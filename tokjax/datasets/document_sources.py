"""Documents of any source, one after the other, and how to tell that they are the same ones again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax._util.checks import LIST_THE_PATHS, checked_text
from tokjax.core.errors import InvalidArgumentError
from tokjax.core.utf8 import Text, to_utf8
from tokjax.corpus.files import TextFiles, as_they_are
from tokjax.corpus.sources import Source, documents_by_chunk, files_of, read_documents
from tokjax.datasets.document_encoding import Documents

if TYPE_CHECKING:
    from collections.abc import Sequence

DocumentSource: TypeAlias = Source | Iterable[tuple[int, Text]] | Iterable[Mapping[str, Any]]
"""Files, as for `read_documents`; or an iterable of texts, of pairs of an id and a text, or of records (as a
`datasets.Dataset` is)."""
Document: TypeAlias = tuple[int, Text]

DEFAULT_COLUMN = "text"
_BATCH_DOCUMENTS = 1 << 14
_ROWS_AT_ONCE = 1000


def with_files(source: DocumentSource, text_column: str) -> DocumentSource:
    """A source, its files as `TextFiles`, so that what is at URLs is fetched once.

    Args:
        source: what to read.
        text_column: where the text of a record is.

    Raises:
        InvalidArgumentError: it is no source, or names files that are not there.
    """
    files = files_of(source, takes_records=True)  # type: ignore[arg-type]
    if files is None or text_column in (DEFAULT_COLUMN, files.field):
        return source if files is None else files
    if isinstance(source, TextFiles):
        raise InvalidArgumentError(
            f"text_column is {text_column!r}, and the source has field={files.field!r}; pass the one or the "
            "other"
        )
    return replace(files, field=text_column)


class FileDocuments:
    """The documents of files, one after the other, their ids the running count.

    Attributes:
        read_nbytes: how far they came in the files, some megabytes at a time, for a progress bar.
    """

    def __init__(self, files: TextFiles, separator: str | None) -> None:
        self.read_nbytes = 0
        self._documents = enumerate(self._read(files, separator))

    def __iter__(self) -> Iterator[Document]:
        """Itself: they can be read once."""
        return self

    def __next__(self) -> Document:
        """The next document."""
        return next(self._documents)

    def _read(self, files: TextFiles, separator: str | None) -> Iterator[Text]:
        for documents, nbytes in documents_by_chunk(files, separator):
            yield from documents
            self.read_nbytes += nbytes


def documents_of(source: DocumentSource, separator: str | None, text_column: str) -> Iterator[Document]:
    """The documents of a source with their ids, by default the running count.

    Args:
        source: what `with_files` gave.
        separator: what stands between documents in a text; `None` if each text is one.
        text_column: where the text of a record is.

    Raises:
        InvalidArgumentError: what it gives is no document.
        SourceError: a file is damaged.
    """
    if isinstance(source, TextFiles):
        return FileDocuments(source, separator)
    return _documents_of_iterable(source, separator, text_column)


def _documents_of_iterable(source: Any, separator: str | None, text_column: str) -> Iterator[Document]:
    kind: str | None = None
    index = 0
    for given in _items_of(source, text_column):
        found = _kind_of(given)
        if kind not in (None, found):
            raise InvalidArgumentError(
                f"documents mixes texts, (doc_id, text) pairs and records; document {index} is the first of "
                "another kind"
            )
        kind = found
        if kind == "pair":
            yield _checked_pair(index, given, separator)
            index += 1
            continue
        text = _text_of_record(index, given, text_column) if kind == "record" else given
        if text is None and kind == "record":
            continue
        checked = checked_text(text, f"document {index}", paths_advice=LIST_THE_PATHS)
        for part in [checked] if separator is None else read_documents(iter([checked]), separator):
            yield index, part
            index += 1


def source_record(source: DocumentSource, separator: str | None) -> dict[str, Any] | None:
    """What a manifest says of a source: the files and how they are read; `None` if it is no files."""
    if not isinstance(source, TextFiles):
        return None
    return {
        "files": [[file.path, file.nbytes] for file in as_they_are(source)],
        "format": source.format,
        "field": source.field,
        "separator": separator,
    }


def batches_of(documents: Iterator[Document], batch_size: int) -> Iterator[Documents]:
    """Documents in batches of about so many characters, or bytes."""
    doc_ids: list[int] = []
    texts: list[Text] = []
    gathered = 0
    for doc_id, text in documents:
        doc_ids.append(doc_id)
        texts.append(text)
        gathered += len(text)
        if gathered >= batch_size or len(texts) >= _BATCH_DOCUMENTS:
            yield Documents(doc_ids, texts)
            doc_ids, texts, gathered = [], [], 0
    if texts:
        yield Documents(doc_ids, texts)


class SourceHash:
    """The running digest of what was fed: ids and lengths of documents, and their bytes."""

    def __init__(self) -> None:
        self._heads, self._data = hashlib.sha256(), hashlib.sha256()

    def add(self, doc_ids: Sequence[int], texts: Sequence[Text]) -> int:
        """Add documents; how many bytes of UTF-8 they have."""
        data, lengths = _joined(texts)
        self._heads.update(np.array([doc_ids, lengths], "<u8").T.tobytes())
        self._data.update(data)  # (at once: each call waits for the interpreter's lock)
        return len(data)

    def pop(self) -> str:
        """The digest of what was added since the last time, in hexadecimal."""
        found = hashlib.sha256(self._heads.digest() + self._data.digest()).hexdigest()
        self._heads, self._data = hashlib.sha256(), hashlib.sha256()
        return found


def _joined(texts: Sequence[Text]) -> tuple[bytes, list[int]]:
    """Texts end to end in UTF-8, and how many bytes each has."""
    if all(type(text) is str for text in texts):
        joined = "".join(texts)  # type: ignore[arg-type]
        if joined.isascii():  # (several times as fast as one by one)
            return joined.encode("ascii"), list(map(len, texts))
    contents = list(map(to_utf8, texts))
    return b"".join(contents), list(map(len, contents))


def _items_of(source: Any, text_column: str) -> Iterator[Any]:
    """What an iterable gives; of a `datasets.Dataset` only the column that is wanted, many rows at a time."""
    columns = getattr(source, "column_names", None)
    if not (isinstance(columns, list) and hasattr(source, "iter") and hasattr(source, "select_columns")):
        yield from source
        return
    if text_column not in columns:
        raise InvalidArgumentError(
            f"the dataset has no column {text_column!r}, it has {columns[:20]}; pass text_column=NAME"
        )
    for rows in source.select_columns([text_column]).iter(batch_size=_ROWS_AT_ONCE):
        for text in rows[text_column]:
            yield {text_column: text}


def _kind_of(given: object) -> str:
    if isinstance(given, (str, bytes)):  # (first: most are, and asking for a Mapping takes longer)
        return "text"
    return "pair" if isinstance(given, tuple) else "record" if isinstance(given, Mapping) else "text"


def _text_of_record(index: int, record: Mapping[str, Any], column: str) -> Any:
    """The text of a record; `None` for one that has none."""
    if column not in record:
        raise InvalidArgumentError(
            f"record {index} has no {column!r}, it has {list(record)[:20]}; pass text_column=NAME"
        )
    return record[column]


def _checked_pair(index: int, pair: tuple[Any, ...], separator: str | None) -> Document:
    if len(pair) != 2:
        raise InvalidArgumentError(f"document {index} is a tuple of {len(pair)}; a pair is (doc_id, text)")
    if separator is not None:
        raise InvalidArgumentError("separator is for texts; (doc_id, text) pairs are documents already")
    doc_id, text = pair
    if isinstance(doc_id, bool) or not isinstance(doc_id, (int, np.integer)) or not 0 <= doc_id < 2**64:
        raise InvalidArgumentError(
            f"the id of document {index} is {doc_id!r}; ids are integers from 0 to 2**64 - 1"
        )
    return int(doc_id), checked_text(text, f"document {index}")
