"""Corpus sources: files or iterables of texts, read lazily as documents or as chunks of bounded size."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from tokjax._util.checks import LIST_PATHS_ADVICE, check_text, reject_tables
from tokjax._util.urls import get_path_or_url
from tokjax.core.utf8 import Text, count_bytes
from tokjax.corpus.decompression import check_are_text, find_invalid_utf8
from tokjax.corpus.files import SourceFile, TextFiles, get_source_files, is_file, text_files
from tokjax.corpus.readers import Chunk, FileChunk, RecordChunk, RowChunk, TextChunk, iter_file_chunks
from tokjax.corpus.tables import is_arrow_table
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tokjax._util.urls import FetchedFiles

Source: TypeAlias = str | os.PathLike[str] | TextFiles | Iterable[os.PathLike[str]] | Iterable[Text]
"""A path, a glob pattern, a list of paths (`os.PathLike`), `text_files(...)`, or an iterable of texts."""

_log = logging.getLogger("tokjax")

_READ_SIZE = 1 << 22
_MAX_INSPECTED = 100
_OBJECT_BYTES = 64
"""The approximate size of the Python object of a text, without its bytes."""


def find_source_files(source: Source, *, takes_records: bool = False) -> TextFiles | None:
    """Returns the files that a source names, or `None` if the source is an iterable of texts.

    A single `str` or path names a file or a glob pattern. In a list, `os.PathLike` objects are paths and
    strings are texts.

    Args:
        source: the source to inspect.
        takes_records: whether the caller accepts a `datasets.Dataset` or an Arrow table, and reads its text
            column.

    Raises:
        InvalidArgumentError: a path is not a file, a list mixes paths and texts, a list of strings contains
            the name of an existing file (which is ambiguous), or the source is a table or a dict.
        SourceError: a file is not UTF-8 text, or all files are empty.
    """
    if isinstance(source, (str, os.PathLike)):
        source = text_files(source)
    if isinstance(source, TextFiles):
        check_are_text(source)
        return source
    if takes_records and is_arrow_table(source):
        return None
    reject_tables(source, "source", takes_records=takes_records)
    if isinstance(cast("object", source), bytes) or not isinstance(source, Iterable):
        raise InvalidArgumentError(
            f"source must be a path, paths, or an iterable of texts, not {type(source).__name__}; "
            "for one text in memory pass [text]"
        )
    if not isinstance(source, (list, tuple)) or not source:
        return None
    are_paths = [isinstance(item, os.PathLike) for item in source]
    if all(are_paths):
        files = text_files(source)
        check_are_text(files)
        return files
    if any(are_paths):
        raise InvalidArgumentError("source mixes paths and texts; pass either paths or texts")
    for item in source[:_MAX_INSPECTED]:
        if isinstance(item, str) and is_file(item):
            raise InvalidArgumentError(
                f"source is a list of strings, and {item!r} is the name of a file: to read the files pass "
                "text_files([...]), to read the names as texts pass iter([...])"
            )
    return None


class Corpus(NamedTuple):
    """A source as chunks, with its total size.

    Attributes:
        chunks: the chunks of the source.
        nbytes: the sum of `read_nbytes` of all chunks, or `None` if it is unknown.
        files: the sizes and modification times of the files; empty for an iterable of texts.
        fetched: the files that were fetched from URLs. They are deleted with the last reference to them.
    """

    chunks: Iterable[Chunk]
    nbytes: int | None
    files: tuple[SourceFile, ...]
    fetched: tuple[FetchedFiles, ...] = ()


def open_corpus(
    source: Source, separators: Sequence[str], target_nbytes: int, *, safe_splits: bool
) -> Corpus:
    """Opens a source as chunks of about `target_nbytes` bytes.

    Args:
        source: the source to read.
        separators: the strings between documents, as in `iter_file_chunks`.
        target_nbytes: the target size of a chunk in bytes.
        safe_splits: whether text may also be split between pre-tokens, as in `iter_file_chunks`.
    """
    files = find_source_files(source)
    if files is None:
        return Corpus(iter_text_chunks(source, target_nbytes), None, ())  # type: ignore[arg-type]
    source_files = get_source_files(files)
    chunks = iter_file_chunks(files, separators, target_nbytes, safe_splits=safe_splits)
    return Corpus(chunks, sum(file.nbytes for file in source_files), source_files, files.fetched)


def iter_text_chunks(texts: Iterable[Text], target_nbytes: int) -> Iterator[TextChunk]:
    """Yields chunks of about `target_nbytes` bytes in memory from texts. Empty texts are skipped."""
    gathered: list[Text] = []
    nbytes = 0
    for i, text in enumerate(texts):
        size = count_bytes(check_text(text, f"text {i} of the source", paths_advice=LIST_PATHS_ADVICE))
        if not size:
            continue
        nbytes += size
        gathered.append(text)
        if nbytes + _OBJECT_BYTES * len(gathered) >= target_nbytes:
            yield TextChunk(tuple(gathered), nbytes, nbytes)
            gathered, nbytes = [], 0
    if gathered:
        yield TextChunk(tuple(gathered), nbytes, nbytes)


def read_documents(source: Source, separator: str | None) -> Iterator[Text]:
    """Yields the documents of a source. Empty documents are skipped.

    Args:
        source: a path, a list of paths, `text_files(...)`, or an iterable of texts. Files are read lazily,
            some megabytes at a time. The documents of plain text files are `bytes`.
        separator: the string between documents; `None` if each file, record or text is one document.
    """
    files = find_source_files(source)
    if files is None:
        for i, text in enumerate(source):  # type: ignore[arg-type]
            checked = check_text(text, f"text {i} of the source", paths_advice=LIST_PATHS_ADVICE)
            yield from _split_documents(checked, separator)
        return
    separators = [] if separator is None else [separator]
    num_invalid, first_invalid = 0, ""
    for chunk in iter_file_chunks(files, separators, _READ_SIZE, safe_splits=False):
        read = read_chunk(chunk, separator)
        num_invalid, first_invalid = num_invalid + read.num_invalid, first_invalid or read.first_invalid
        yield from read.documents
    warn_of_invalid_utf8(num_invalid, first_invalid)


class ChunkDocuments(NamedTuple):
    """The documents of a chunk.

    Attributes:
        documents: the documents, without empty ones.
        num_invalid: the number of documents with bytes that are not valid UTF-8. They are not changed.
        first_invalid: the position of the first such byte, for messages; empty without one.
    """

    documents: list[Text]
    num_invalid: int
    first_invalid: str


def read_chunk(chunk: Chunk, separator: str | None) -> ChunkDocuments:
    """Reads the documents of a chunk, which starts at a separator or at the start of a file.

    Args:
        chunk: the chunk to read.
        separator: the string between documents; `None` if each text of the chunk is one document.
    """
    documents: list[Text] = []
    num_invalid, first_invalid = 0, ""
    for text, _ in chunk.read():
        parts = list(_split_documents(text, separator))
        documents += parts
        invalid = _find_invalid_byte(text)
        if invalid is not None:
            num_invalid += sum(_find_invalid_byte(part) is not None for part in parts)
            first_invalid = first_invalid or _describe_position(chunk, invalid)
    return ChunkDocuments(documents, num_invalid, first_invalid)


def warn_of_invalid_utf8(num_invalid: int, first_invalid: str) -> None:
    """Logs the number of documents with invalid UTF-8, if there are any.

    Args:
        num_invalid: the number of such documents.
        first_invalid: the position of the first invalid byte.
    """
    if num_invalid:
        _log.warning(
            "%d documents have bytes that are not valid UTF-8, which were kept; the first is %s",
            num_invalid,
            first_invalid,
        )


def describe_chunk(chunk: Chunk | RecordChunk) -> str:
    """Returns the file of a chunk and its position there, for error messages."""
    if isinstance(chunk, FileChunk):
        return f"{get_path_or_url(chunk.path)}, bytes {chunk.start} to {chunk.stop - 1}"
    if isinstance(chunk, RowChunk):
        return f"{get_path_or_url(chunk.path)}, rows from {chunk.first_row}"
    return chunk.location


def _find_invalid_byte(text: Text) -> int | None:
    return find_invalid_utf8(text) if isinstance(text, bytes) else None


def _describe_position(chunk: Chunk, position: int) -> str:
    """Describes the position of a byte of a chunk, for log messages."""
    if isinstance(chunk, FileChunk):
        return f"byte {chunk.start + position} of {get_path_or_url(chunk.path)}"
    return f"in {describe_chunk(chunk)}"


def _split_documents(text: Text, separator: str | None) -> Iterable[Text]:
    if separator is None:
        return [text] if text else []
    if isinstance(text, bytes):
        return filter(None, text.split(separator.encode("utf-8")))
    return filter(None, text.split(separator))
