"""Corpus sources: files or iterables of texts, read lazily as documents or as chunks of bounded size."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from tokjax._util.checks import LIST_PATHS_ADVICE, check_text, is_iterable, reject_tables
from tokjax._util.urls import get_path_or_url
from tokjax.core.utf8 import Text, count_bytes
from tokjax.corpus.decompression import check_are_text, find_invalid_utf8
from tokjax.corpus.files import (
    SourceFile,
    TextFiles,
    get_format,
    get_source_files,
    has_plain_text,
    is_file,
    text_files,
)
from tokjax.corpus.readers import Chunk, FileChunk, iter_file_chunks
from tokjax.corpus.records import MemoryChunk, gather
from tokjax.corpus.tables import is_arrow_table, is_ray_dataset
from tokjax.errors import InvalidArgumentError, SourceError, TokjaxError

if TYPE_CHECKING:
    from tokjax._util.urls import FetchedFiles

Source: TypeAlias = str | os.PathLike[str] | TextFiles | Iterable[os.PathLike[str]] | Iterable[Text]
"""A path, a glob pattern, a list of paths (`os.PathLike`), `text_files(...)`, or an iterable of texts."""

_log = logging.getLogger("tokjax")

_READ_SIZE = 1 << 22
_MAX_INSPECTED = 100
_MAX_NAMED = 5
"""Number of bad records whose errors are logged."""
_OBJECT_BYTES = 64
"""The approximate size of the Python object of a text, without its bytes."""


def find_source_files(
    source: Source, *, takes_records: bool = False, skip_bad_records: bool = False
) -> TextFiles | None:
    """Returns the files that a source names, or `None` if the source is an iterable of texts.

    A single `str` or path names a file or a glob pattern. In a list, `os.PathLike` objects are paths and
    strings are texts.

    Args:
        source: the source to inspect.
        takes_records: whether the caller accepts a `datasets.Dataset` or an Arrow table, and reads its text
            column.
        skip_bad_records: whether lines of JSON that are not UTF-8 are skipped later, and not checked here.

    Raises:
        InvalidArgumentError: a path is not a file, a list mixes paths and texts, a list of strings contains
            the name of an existing file (which is ambiguous), or the source is a table or a dict.
        SourceError: a file is not UTF-8 text, or all files are empty.
    """
    if isinstance(source, (list, tuple)) and any(isinstance(item, os.PathLike) for item in source):
        if not all(isinstance(item, os.PathLike) for item in source):
            raise InvalidArgumentError("source mixes paths and texts; pass either paths or texts")
        source = text_files(source)
    elif isinstance(source, (str, os.PathLike)):
        source = text_files(source)
    if isinstance(source, TextFiles):
        checked = [
            path for path in source.paths if not (skip_bad_records and get_format(path, source) == "jsonl")
        ]
        if checked:
            check_are_text(replace(source, paths=tuple(checked)))
        return source
    if takes_records and (is_arrow_table(source) or is_ray_dataset(source)):
        return None
    reject_tables(source, "source", takes_records=takes_records)
    if isinstance(cast("object", source), bytes) or not is_iterable(source):
        raise InvalidArgumentError(
            f"source must be a path, paths, or an iterable of texts, not {type(source).__name__}; "
            "for one text in memory pass [text]"
        )
    for item in source[:_MAX_INSPECTED] if isinstance(source, (list, tuple)) else ():
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


def iter_text_chunks(texts: Iterable[Text], target_nbytes: int) -> Iterator[MemoryChunk]:
    """Yields chunks of about `target_nbytes` bytes in memory from texts. Empty texts are skipped."""
    checked = (_check_item(text, i) for i, text in enumerate(texts))
    sized = ((text, count_bytes(text)) for text in checked)
    parts = (([text], nbytes + _OBJECT_BYTES, nbytes) for text, nbytes in sized if nbytes)
    for gathered, _, nbytes in gather(parts, target_nbytes):
        yield MemoryChunk(gathered, nbytes, nbytes)


def _check_item(text: object, index: int) -> Text:
    return check_text(text, f"text {index} of the source", paths_advice=LIST_PATHS_ADVICE)


class ReadingReport(NamedTuple):
    """Documents with invalid bytes, and bad records that were skipped.

    Attributes:
        num_invalid: the number of documents with bytes that are not valid UTF-8. They are not changed.
        first_invalid: the position of the first such byte; empty without one.
        num_skipped: the number of bad records.
        first_skipped: the errors of the first of them.
    """

    num_invalid: int = 0
    first_invalid: str = ""
    num_skipped: int = 0
    first_skipped: tuple[str, ...] = ()

    def add(self, later: ReadingReport) -> ReadingReport:
        """Returns the report on these documents and later ones."""
        return ReadingReport(
            self.num_invalid + later.num_invalid,
            self.first_invalid or later.first_invalid,
            self.num_skipped + later.num_skipped,
            (self.first_skipped + later.first_skipped)[:_MAX_NAMED],
        )

    def add_skipped(self, errors: Sequence[TokjaxError]) -> ReadingReport:
        """Returns the report with more bad records."""
        return self.add(
            ReadingReport(0, "", len(errors), tuple(error.message for error in errors[:_MAX_NAMED]))
        )

    def log(self) -> None:
        """Logs the documents with invalid bytes and the bad records, if there are any."""
        if self.num_invalid:
            _log.warning(
                "%d documents have bytes that are not valid UTF-8, which were kept; the first is %s",
                self.num_invalid,
                self.first_invalid,
            )
        if self.num_skipped:
            _log.warning("skipped bad records: %d; %s", self.num_skipped, self.describe_skipped())

    def describe_skipped(self) -> str:
        """Returns the errors of the first bad records."""
        more = ["..."] if self.num_skipped > len(self.first_skipped) else []
        return "; ".join([*self.first_skipped, *more])


def read_documents(
    source: Source, separator: str | None, *, skip_bad_records: bool = False
) -> Iterator[Text]:
    """Yields the documents of a source. Empty documents are skipped.

    Args:
        source: a path, a list of paths, `text_files(...)`, or an iterable of texts. Files are read lazily,
            some megabytes at a time. The documents of plain text files are `bytes`.
        separator: the string between documents; `None` if each file, record or text is one document. If some
            of the files are plain text, it splits only these, and each record of the others is one document.
        skip_bad_records: whether to skip records that can't be read: lines that are not JSON objects, rows
            and samples that are damaged, and records without a text. They are counted, and the number and the
            errors of the first ones are logged at the end. By default, the first one raises its error.

    Raises:
        InvalidArgumentError: an item of an iterable is not a text.
        SourceError: a file is damaged, or has a bad record.
    """
    files = find_source_files(source, skip_bad_records=skip_bad_records)
    report = ReadingReport()
    if files is None:
        for i, text in enumerate(source):  # type: ignore[arg-type]
            try:
                checked = _check_item(text, i)
            except InvalidArgumentError as error:
                if not skip_bad_records:
                    raise
                report = report.add_skipped([error])
                continue
            yield from _split_documents(checked, separator)
        report.log()
        return
    separators = [] if separator is None else [separator]
    record_separator = None if has_plain_text(files) else separator
    for chunk in iter_file_chunks(files, separators, _READ_SIZE, safe_splits=False):
        documents, found = read_chunk(chunk, separator, record_separator, skip_bad_records=skip_bad_records)
        report = report.add(found)
        yield from documents
    report.log()


def read_chunk(
    chunk: Chunk, separator: str | None, record_separator: str | None, *, skip_bad_records: bool
) -> tuple[list[Text], ReadingReport]:
    """Reads the documents of a chunk, which starts at a separator or at the start of a file.

    Args:
        chunk: the chunk to read.
        separator: the string between documents of plain text; `None` if the text is one document.
        record_separator: the string between documents in a record; `None` if each record is one document.
        skip_bad_records: whether to skip bad records.

    Returns:
        The documents, without empty ones, and a report on them.

    Raises:
        SourceError: the file is damaged, or a record is bad.
    """
    if not (isinstance(chunk, FileChunk) and chunk.field is None):
        separator = record_separator
    documents: list[Text] = []
    num_invalid, first_invalid = 0, ""
    bad: list[SourceError] | None = [] if skip_bad_records else None
    for text, _ in chunk.read(bad):
        parts = list(_split_documents(text, separator))
        documents += parts
        invalid = _find_invalid_byte(text)
        if invalid is not None:
            num_invalid += sum(_find_invalid_byte(part) is not None for part in parts)
            first_invalid = first_invalid or _describe_position(chunk, text, invalid)
    return documents, ReadingReport(num_invalid, first_invalid).add_skipped(bad or ())


def _find_invalid_byte(text: Text) -> int | None:
    return find_invalid_utf8(text) if isinstance(text, bytes) else None


def _describe_position(chunk: Chunk, text: Text, position: int) -> str:
    """Describes the position of a byte of a text of a chunk, for log messages."""
    if isinstance(chunk, FileChunk):
        start = chunk.stop - len(text)  # (after a byte order mark)
        return f"byte {start + position} of {get_path_or_url(chunk.path)}"
    return f"in {chunk.location}"


def _split_documents(text: Text, separator: str | None) -> Iterable[Text]:
    if separator is None:
        return [text] if text else []
    if isinstance(text, bytes):
        return filter(None, text.split(separator.encode("utf-8")))
    return filter(None, text.split(separator))
