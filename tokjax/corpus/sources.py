"""Corpora: files or texts, read lazily as documents or as chunks of bounded size."""

from __future__ import annotations

import itertools
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from tokjax._util.checks import LIST_PATHS_ADVICE, check_text, reject_tables
from tokjax._util.urls import get_path_or_url
from tokjax.core.utf8 import Text, count_bytes, from_characters, to_characters
from tokjax.corpus.decompression import check_are_text, find_invalid_utf8
from tokjax.corpus.files import SourceFile, TextFiles, get_source_files, is_file, text_files
from tokjax.corpus.readers import Chunk, FileChunk, TextChunk, iter_file_chunks
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tokjax._util.urls import FetchedFiles

Source: TypeAlias = str | os.PathLike[str] | TextFiles | Iterable[os.PathLike[str]] | Iterable[Text]
"""A path or a pattern of paths, several (`os.PathLike`), `text_files(...)`, or an iterable of texts."""

_log = logging.getLogger("tokjax")

_READ_SIZE = 1 << 22
_MAX_INSPECTED = 100
_OBJECT_BYTES = 64
"""About what a text takes in memory besides its bytes."""


def find_source_files(source: Source, *, takes_records: bool = False) -> TextFiles | None:
    """The files that a source names, or `None` where it is an iterable of texts.

    A `str` or a path is one file or a pattern; in a list, paths are `os.PathLike` and strings are texts.

    Args:
        source: what to read.
        takes_records: whether the caller reads a `datasets.Dataset` by its column.

    Raises:
        InvalidArgumentError: a path that is no file; paths and texts in one list; a list of strings
            of which one is the name of a file, which is ambiguous; a table or a dict.
        SourceError: a file is not text in UTF-8, or all files are empty.
    """
    if isinstance(source, (str, os.PathLike)):
        source = text_files(source)
    if isinstance(source, TextFiles):
        check_are_text(source)
        return source
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
        raise InvalidArgumentError("source mixes paths and texts; pass the one or the other")
    for item in source[:_MAX_INSPECTED]:
        if isinstance(item, str) and is_file(item):
            raise InvalidArgumentError(
                f"source is a list of strings, and {item!r} is the name of a file: for files pass "
                "text_files([...]), for the names as texts pass iter([...])"
            )
    return None


class Corpus(NamedTuple):
    """What to read, in chunks.

    Attributes:
        chunks: some text each.
        nbytes: how far they go, as of `read_nbytes`, or `None` where that is not known.
        files: the files, as they are now; empty for an iterable of texts.
        fetched: what was fetched from URLs, which stays as long as this refers to it.
    """

    chunks: Iterable[Chunk]
    nbytes: int | None
    files: tuple[SourceFile, ...]
    fetched: tuple[FetchedFiles, ...] = ()


def open_corpus(source: Source, separators: Sequence[str], longest: int, *, safe_splits: bool) -> Corpus:
    """A source in chunks of about `longest` bytes; the arguments are those of `iter_file_chunks`."""
    files = find_source_files(source)
    if files is None:
        return Corpus(iter_text_chunks(source, longest), None, ())  # type: ignore[arg-type]
    as_read = get_source_files(files)
    chunks = iter_file_chunks(files, separators, longest, safe_splits=safe_splits)
    return Corpus(chunks, sum(file.nbytes for file in as_read), as_read, files.fetched)


def iter_text_chunks(texts: Iterable[Text], longest: int) -> Iterator[TextChunk]:
    """Gather texts that are not empty into chunks of about `longest` bytes in memory."""
    gathered: list[Text] = []
    nbytes = 0
    for i, text in enumerate(texts):
        size = count_bytes(check_text(text, f"text {i} of the source", paths_advice=LIST_PATHS_ADVICE))
        if not size:
            continue
        nbytes += size
        gathered.append(text)
        if nbytes + _OBJECT_BYTES * len(gathered) >= longest:
            yield TextChunk(tuple(gathered), nbytes, nbytes)
            gathered, nbytes = [], 0
    if gathered:
        yield TextChunk(tuple(gathered), nbytes, nbytes)


def read_documents(source: Source, separator: str | None) -> Iterator[Text]:
    """The documents of a source, one by one, empty ones left out.

    Args:
        source: a path, a list of paths, `text_files(...)`, or an iterable of texts. Files are read some
            megabytes at a time; the documents of plain text are `bytes`.
        separator: what stands between documents; `None` if a file, a record or a text is one document.
    """
    files = find_source_files(source)
    if files is None:
        for i, text in enumerate(source):  # type: ignore[arg-type]
            checked = check_text(text, f"text {i} of the source", paths_advice=LIST_PATHS_ADVICE)
            yield from _split_documents(checked, separator)
        return
    for documents, _ in iter_documents_by_chunk(files, separator):
        yield from documents


def iter_documents_by_chunk(files: TextFiles, separator: str | None) -> Iterator[tuple[Iterable[Text], int]]:
    """The documents of each chunk of files, with how far it goes in them, as of `read_nbytes`.

    Documents with bytes that are not UTF-8 are kept as they are; how many there were is logged at the end.
    """
    separators = [] if separator is None else [separator]
    num_invalid, first = 0, ""
    for chunk in iter_file_chunks(files, separators, _READ_SIZE, safe_splits=False):
        texts = [text for text, _ in chunk.read()]
        for text in texts:
            at = _find_invalid_byte(text)
            if at is not None:
                num_invalid += sum(
                    _find_invalid_byte(part) is not None for part in _split_documents(text, separator)
                )
                first = first or _describe_position(chunk, at)
        parts = (_split_documents(text, separator) for text in texts)
        yield itertools.chain.from_iterable(parts), chunk.read_nbytes
    if num_invalid:
        _log.warning(
            "%d documents have bytes that are not valid UTF-8, which were kept; the first is %s",
            num_invalid,
            first,
        )


def _find_invalid_byte(text: Text) -> int | None:
    return find_invalid_utf8(text) if isinstance(text, bytes) else None


def _describe_position(chunk: Chunk, at: int) -> str:
    """Where a byte of a chunk is, for messages."""
    if isinstance(chunk, FileChunk):
        return f"byte {chunk.start + at} of {get_path_or_url(chunk.path)}"
    return "in a Parquet file"


def _split_documents(text: Text, separator: str | None) -> Iterable[Text]:
    if separator is None:
        return [text] if text else []
    if isinstance(text, bytes):
        return filter(None, text.split(separator.encode("utf-8")))
    return filter(None, text.split(separator))


class SpooledTexts:
    """An iterable of texts that can be read again and again: it keeps them in a temporary file.

    Use it as a context manager; the file goes with it.
    """

    def __init__(self, texts: Iterable[Text]) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="ascii")  # noqa: SIM115 (closed by __exit__)
        try:
            for i, text in enumerate(texts):
                checked = check_text(text, f"text {i} of the source", paths_advice=LIST_PATHS_ADVICE)
                characters = to_characters(checked)
                self._file.write(json.dumps(characters) + "\n")
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> SpooledTexts:
        """The texts themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the temporary file."""
        self._file.close()

    def __iter__(self) -> Iterator[Text]:
        """The texts from the first, as `bytes`."""
        self._file.seek(0)
        for line in self._file:
            yield from_characters(json.loads(line))


def make_rereadable(source: Source) -> AbstractContextManager[Source]:
    """A source that can be read several times: an iterator's texts are kept in a temporary file."""
    if find_source_files(source) is None and iter(source) is iter(source):  # type: ignore[arg-type]
        return SpooledTexts(source)  # type: ignore[arg-type]
    return nullcontext(source)
