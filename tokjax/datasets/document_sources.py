"""Documents of any source, one after the other, and how to tell that they are the same ones again."""

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
"""Files, as for `read_documents`; or an iterable of texts, of pairs of an id and a text, or of records (as a
`datasets.Dataset` is)."""
Document: TypeAlias = tuple[int, Text]

DEFAULT_COLUMN = "text"
_BATCH_DOCUMENTS = 1 << 14
_ROWS_PER_READ = 1000


def resolve_files(source: DocumentSource, text_column: str) -> DocumentSource:
    """A source, its files as `TextFiles`, so that what is at URLs is fetched once.

    Args:
        source: what to read.
        text_column: where the text of a record is.

    Raises:
        InvalidArgumentError: it is no source, or names files that are not there.
    """
    files = find_source_files(source, takes_records=True)  # type: ignore[arg-type]
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
        for documents, nbytes in iter_documents_by_chunk(files, separator):
            yield from documents
            self.read_nbytes += nbytes


def iter_documents(source: DocumentSource, separator: str | None, text_column: str) -> Iterator[Document]:
    """The documents of a source with their ids, by default the running count.

    Args:
        source: what `resolve_files` gave.
        separator: what stands between documents in a text; `None` if each text is one.
        text_column: where the text of a record is.

    Raises:
        InvalidArgumentError: what it gives is no document.
        SourceError: a file is damaged.
    """
    if isinstance(source, TextFiles):
        return FileDocuments(source, separator)
    return _iter_iterable(source, separator, text_column)


def _iter_iterable(source: Any, separator: str | None, text_column: str) -> Iterator[Document]:
    kind: str | None = None
    index = 0
    for item in _iter_items(source, text_column):
        found = _get_kind(item)
        if kind not in (None, found):
            raise InvalidArgumentError(
                f"documents mixes texts, (doc_id, text) pairs and records; document {index} is the first of "
                "another kind"
            )
        kind = found
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
    """What a manifest says of a source: the files and how they are read; `None` if it is no files."""
    if not isinstance(source, TextFiles):
        return None
    return {
        "files": [[file.path, file.nbytes] for file in get_source_files(source)],
        "format": source.format,
        "field": source.field,
        "separator": separator,
    }


def batch_documents(documents: Iterator[Document], batch_size: int) -> Iterator[Documents]:
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
        data, lengths = _join_texts(texts)
        self._heads.update(np.array([doc_ids, lengths], "<u8").T.tobytes())
        self._data.update(data)  # (at once: each call waits for the interpreter's lock)
        return len(data)

    def pop(self) -> str:
        """The digest of what was added since the last time, in hexadecimal."""
        found = hashlib.sha256(self._heads.digest() + self._data.digest()).hexdigest()
        self._heads, self._data = hashlib.sha256(), hashlib.sha256()
        return found


def _join_texts(texts: Sequence[Text]) -> tuple[bytes, list[int]]:
    """Texts end to end in UTF-8, and how many bytes each has."""
    if all(type(text) is str for text in texts):
        joined = "".join(texts)  # type: ignore[arg-type]
        if joined.isascii():  # (several times as fast as one by one)
            return joined.encode("ascii"), list(map(len, texts))
    contents = list(map(to_utf8, texts))
    return b"".join(contents), list(map(len, contents))


def _iter_items(source: Any, text_column: str) -> Iterator[Any]:
    """What an iterable gives; of a `datasets.Dataset` only the column that is wanted, many rows at a time."""
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
    if isinstance(item, (str, bytes)):  # (first: most are, and asking for a Mapping takes longer)
        return "text"
    return "pair" if isinstance(item, tuple) else "record" if isinstance(item, Mapping) else "text"


def _get_record_text(index: int, record: Mapping[str, Any], column: str) -> Any:
    """The text of a record; `None` for one that has none."""
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
