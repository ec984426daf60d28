"""Readers of corpus files: chunks of bounded size that can be read independently of one another.

Each format is split in its own way:

    text                 at separators, and between pre-tokens if the split pattern allows it
    JSON lines           before line feeds
    CSV, TSV             between rows
    Parquet              between row groups; between rows if a group is large
    Arrow                between record batches
    ArrayRecord          between records
    tar                  between samples
    compressed files     like text or JSON lines, but the chunks hold their bytes: a stream is read once
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import logging
import os
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeAlias

from tokjax._util.locks import ThreadLock
from tokjax._util.urls import get_path_or_url
from tokjax.corpus.archives import ArchiveChunk
from tokjax.corpus.array_record import plan_record_chunks
from tokjax.corpus.chunk_boundaries import find_chunk_boundaries, refine_boundaries
from tokjax.corpus.decompression import (
    open_decompressed,
    open_source,
    report_damage,
)
from tokjax.corpus.files import get_format, is_compressed
from tokjax.corpus.records import (
    NAME_THE_FIELD,
    Choose,
    MemoryChunk,
    Records,
    RowChunk,
    drop_bad_records,
    find_text,
    parse_json_record,
)
from tokjax.corpus.tables import TABLE_FORMATS, plan_table_chunks
from tokjax.errors import Hint, InvalidArgumentError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from tokjax.core.utf8 import Text
    from tokjax.corpus.files import TextFiles


_log = logging.getLogger("tokjax")

_READ_AS_TEXT = Hint(
    "to read the file as plain text pass text_files(PATH, format='text')",
    "to read the file as plain text pass --format text",
)
_PIECES_PER_BLOCK = 8
_LARGE_CHUNKS = 16
"""Row groups or compressed files with more than this many times the target size are read in this process, in
parts."""


@dataclass(frozen=True, slots=True)
class FileChunk:
    """The bytes `[start, stop)` of a file, or of its decompressed contents.

    Attributes:
        path: the path of the file.
        start: the 0-based position of the first byte.
        stop: the position after the last byte.
        read_nbytes: the number of bytes of the file that were read for this chunk, for a progress bar.
        field: the name of the text field if the bytes are JSON lines, else `None`.
        data: the decompressed bytes if the file is compressed, else `None`.
    """

    path: Path
    start: int
    stop: int
    read_nbytes: int
    field: str | None = None
    data: bytes | None = None

    def read(self, bad: list[SourceError] | None = None) -> list[tuple[Text, bool]]:
        """Returns `(text, starts_document)` for each text of the chunk, without a byte order mark.

        Args:
            bad: the list to which the errors of bad records are appended; `None` to raise the first one.
        """
        if self.field is not None:
            records = self.read_records()
            return drop_bad_records(
                (find_text(record, self.field, location) for location, record in records), bad
            )
        data, is_first = self._get_bytes(), self.start == 0
        return [(data.removeprefix(codecs.BOM_UTF8) if is_first else data, is_first)]

    def read_records(self, _: object = None) -> Records:
        """Yields `(location, record)` for each JSON line that is not blank, or `(location, error)`."""
        name, position = get_path_or_url(self.path), self.start
        for line in self._get_bytes().split(b"\n"):
            if line.strip():
                location = f"{name}, the line at byte {position}"
                yield location, parse_json_record(line, location, _READ_AS_TEXT)
            position += len(line) + 1

    @property
    def location(self) -> str:
        """The file and the position of the bytes, for error messages."""
        return f"{get_path_or_url(self.path)}, bytes {self.start} to {self.stop - 1}"

    @property
    def nbytes(self) -> int:
        """The number of bytes of the chunk."""
        return self.stop - self.start

    def load(self, _: object) -> FileChunk:
        """Returns the chunk with its bytes, for a process that can't read the file."""
        return replace(self, data=self._get_bytes())

    def _get_bytes(self) -> bytes:
        if self.data is not None:
            return self.data
        with open_source(self.path) as file:
            file.seek(self.start)
            data = file.read(self.nbytes)
        if len(data) < self.nbytes:
            raise SourceError(
                f"{get_path_or_url(self.path)}: became shorter while it was read; the result is discarded"
            )
        return data


Chunk: TypeAlias = FileChunk | MemoryChunk | RowChunk


def iter_file_chunks(
    files: TextFiles,
    separators: Sequence[str],
    target_nbytes: int,
    *,
    safe_splits: bool,
    choose: Choose | None = None,
) -> Iterator[Chunk]:
    """Yields chunks of about equal size from files.

    Text is split at separators, and between pre-tokens if `safe_splits` is set. Records are never split.

    Args:
        files: the files to read.
        separators: the strings between documents.
        target_nbytes: the target size of a chunk in bytes.
        safe_splits: whether text may also be split between pre-tokens, as `refine_boundaries` does.
        choose: for chunks whose records are read: function of the names of the columns of a table that
            returns those to read. `None` for chunks whose texts are read.

    Raises:
        InvalidArgumentError: records are read, and a file has a format whose texts alone are read.
        SourceError: a file is damaged, or its contents do not match its format.
    """
    if choose is not None:
        _reject_texts(files)
    encoded = [separator.encode("utf-8") for separator in separators]
    text = _TextSplitter(encoded, target_nbytes, safe_splits)
    empty: list[Path] = []
    # Paths are made absolute: the workers of an executor may have another working directory.
    for path in map(Path.absolute, files.paths):
        chunks = _iter_chunks(path, files, text, choose)
        first = next(chunks, None)
        if first is None:
            empty.append(path)
            continue
        yield first
        yield from chunks
    if empty:
        subject = f"{len(empty)} of {len(files.paths)} files" if len(files.paths) > 1 else "the only file"
        _log.warning("%s had no text: %s", subject, get_path_or_url(empty[0]))


def _reject_texts(files: TextFiles) -> None:
    for path in files.paths:
        kind = get_format(path, files)
        if kind in ("text", "csv", "tsv"):
            raise InvalidArgumentError(
                f"{get_path_or_url(path)} has the format {kind!r}, and values of columns are read from JSON "
                "lines, Parquet, Arrow, ArrayRecord and tar archives; convert it, or pass its rows as records"
            )


def _iter_chunks(path: Path, files: TextFiles, text: _TextSplitter, choose: Choose | None) -> Iterator[Chunk]:
    kind = get_format(path, files)
    if kind in _PLANS:
        for chunk in _PLANS[kind](path, kind, files.field, text.target_nbytes):
            is_large = chunk.nbytes > _LARGE_CHUNKS * text.target_nbytes
            yield from chunk.iter_parts(choose, text.target_nbytes) if is_large else [chunk]
        return
    if kind == "jsonl":
        text = text.for_json_lines(files.field)
    if is_compressed(path):
        with open_decompressed(path) as (file, stream):
            yield from text.iter_stream_chunks(path, stream, file.tell)
    else:
        with open_source(path) as file:
            boundaries = text.find_boundaries(file)
        for start, stop in zip(boundaries, boundaries[1:], strict=False):
            yield FileChunk(path, start, stop, stop - start, text.field)


def _plan_whole_file(path: Path, kind: str, field: str, _: int) -> Iterator[RowChunk]:
    """Yields a file that is read from start to end as one chunk, which is read in this process."""
    chunk_type = ArchiveChunk if kind == "tar" else TSVChunk if kind == "tsv" else CSVChunk
    yield chunk_type(path, field, 0, 0, 0, RowChunk.WHOLE_FILE, path.stat().st_size)


_PLANS: dict[str, Callable[[Path, str, str, int], Iterator[RowChunk]]] = {
    **dict.fromkeys(TABLE_FORMATS, plan_table_chunks),
    "array_record": plan_record_chunks,
    **dict.fromkeys(("tar", "csv", "tsv"), _plan_whole_file),
}
"""Function that splits the files of each format with rows into chunks."""


class _TextSplitter(NamedTuple):
    """Splits text into chunks.

    Attributes:
        separators: the byte strings between documents.
        target_nbytes: the target size of a chunk in bytes.
        safe_splits: whether text may also be split between pre-tokens.
        field: the name of the text field if the text is JSON lines, else `None`.
    """

    separators: Sequence[bytes]
    target_nbytes: int
    safe_splits: bool
    field: str | None = None

    def for_json_lines(self, field: str) -> _TextSplitter:
        """Returns the splitter of JSON lines, which are split before line feeds."""
        return _TextSplitter([b"\n"], self.target_nbytes, safe_splits=False, field=field)

    def find_boundaries(self, file: BinaryIO) -> list[int]:
        """Returns the chunk boundaries of a file that is not compressed, from 0 to its size."""
        size = file.seek(0, os.SEEK_END)
        boundaries = [0, size] if size else [0]
        if self.separators and size > self.target_nbytes:
            boundaries = find_chunk_boundaries(file, -(-size // self.target_nbytes), self.separators)
        if not self.safe_splits:
            return boundaries
        return refine_boundaries(file, boundaries, self.target_nbytes, self.separators)

    def iter_stream_chunks(
        self, path: Path, stream: BinaryIO, get_position: Callable[[], int]
    ) -> Iterator[FileChunk]:
        """Yields chunks of a stream that can't be read twice. Each chunk holds its bytes.

        Args:
            path: the path of the stream, for errors.
            stream: the stream to read.
            get_position: returns the progress in the file below the stream, in bytes.
        """
        start = reported = 0
        buffered = b""
        while True:
            with report_damage(path):
                # Reads double in size while the buffer has no safe split: the total time stays linear.
                block = stream.read(max(self.target_nbytes, len(buffered)))
            buffered += block
            split_point = self._find_last_split(buffered) if block else len(buffered)
            if split_point:
                stop, position = start + split_point, get_position()
                data, buffered = buffered[:split_point], buffered[split_point:]
                yield FileChunk(path, start, stop, position - reported, self.field, data)
                start, reported = stop, position
            if not block:
                return

    def _find_last_split(self, buffered: bytes) -> int:
        """Returns the last position at which the buffer can be split whatever follows it, or 0."""
        window = io.BytesIO(buffered)
        # A separator that starts after `limit` may end in the next block.
        limit = len(buffered) - max(map(len, self.separators), default=1)
        split_points = [0]
        if self.separators:
            split_points += find_chunk_boundaries(window, _PIECES_PER_BLOCK, self.separators)[:-1]
        if self.safe_splits:
            step = -(-len(buffered) // _PIECES_PER_BLOCK)
            split_points += refine_boundaries(window, [0, len(buffered)], step, self.separators)[:-1]
        return max(split_point for split_point in split_points if split_point <= max(limit, 0))


class CSVChunk(RowChunk):
    """The rows of a CSV file, which may be compressed."""

    __slots__ = ()
    delimiter = ","

    def iter_texts(self) -> Iterator[tuple[list[Text | SourceError], int]]:
        """Yields `(texts, read_nbytes)` for some rows at a time."""
        name = get_path_or_url(self.path)
        with (
            open_decompressed(self.path) as (file, stream),
            closing(read_csv_column(stream, self.field, self.delimiter, name)) as rows,
        ):
            reported = 0
            while True:
                with report_damage(self.path):
                    texts = next(rows, None)
                if texts is None:
                    return
                position = file.tell()
                yield texts, position - reported
                reported = position


class TSVChunk(CSVChunk):
    """The rows of a TSV file, which may be compressed."""

    __slots__ = ()
    delimiter = "\t"


_ROWS_PER_READ = 64
_LONGEST_FIELD = 1 << 28
_limit_lock = ThreadLock()


def read_csv_column(
    stream: BinaryIO, column: str, delimiter: str, name: str
) -> Generator[list[Text | SourceError]]:
    r"""Reads the texts of a column, 64 rows at a time. Empty lines are skipped.

    Args:
        stream: the decompressed file, with a header row. Fields may be quoted, as Excel quotes them.
        column: the name of the column in the header.
        delimiter: the character between fields.
        name: the name of the file in errors.

    Yields:
        The texts of the next rows, and an error for each row with another number of fields than the header.

    Raises:
        SourceError: the header has no such column or several of them, a quote is not closed, or a byte is not
            valid UTF-8.

    >>> list(read_csv_column(io.BytesIO(b'id,text\n1,"one, two"\n2,three\n'), "text", ",", "a.csv"))
    [['one, two', 'three']]
    """
    lines = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = next(iter(_read_rows(reader, 1)), list[str]())
        if header.count(column) != 1:
            problem = "there are several columns" if column in header else "there is no column"
            raise SourceError(f"{name}: {problem} {column!r}, of {header[:20]}", hint=NAME_THE_FIELD)
        index, width = header.index(column), len(header)
        num_rows = 0
        while rows := _read_rows(reader, _ROWS_PER_READ):
            yield [
                row[index]
                if len(row) == width
                else SourceError(
                    f"{name}: row {i} has {len(row)} fields, the header has {width}: {row!r:.200}"
                )
                for i, row in enumerate(rows, num_rows + 1)
                if row
            ]
            num_rows += len(rows)
    except csv.Error as error:
        raise SourceError(
            f"{name}, line {reader.line_num}: {error}; is a quote not closed, or is the file not CSV?"
        ) from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{name}, after line {reader.line_num}: not valid UTF-8: {error}") from error
    finally:
        lines.detach()  # a wrapper that is deleted closes its stream, which the caller still uses


def _read_rows(reader: Iterator[list[str]], count: int) -> list[list[str]]:
    """Reads rows whose fields may be longer than the limit of the csv module.

    The limit is global to the process, so it is changed under a lock and restored after each read.
    """
    with _limit_lock.current:
        limit = csv.field_size_limit(_LONGEST_FIELD)
        try:
            return list(itertools.islice(reader, count))
        finally:
            csv.field_size_limit(limit)
