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
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from tokjax._util.locks import ThreadLock
from tokjax._util.urls import get_path_or_url
from tokjax.core.utf8 import Text, count_bytes
from tokjax.corpus.archives import NAME_THE_MEMBER, iter_samples
from tokjax.corpus.array_record import ArrayRecordChunk, plan_record_chunks
from tokjax.corpus.chunk_boundaries import find_chunk_boundaries, refine_boundaries
from tokjax.corpus.decompression import (
    HEAD_BYTES,
    check_is_text,
    find_invalid_utf8,
    open_decompressed,
    open_source,
    report_damage,
)
from tokjax.corpus.files import get_format, is_compressed
from tokjax.corpus.record_fields import NAME_THE_FIELD, drop_bad_records, find_text, parse_json_record
from tokjax.corpus.tables import TABLE_FORMATS, TableChunk, plan_table_chunks
from tokjax.errors import Hint, InvalidArgumentError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from tokjax.core.utf8 import Text
    from tokjax.corpus.files import TextFiles


_log = logging.getLogger("tokjax")

ROW_FORMATS = (*TABLE_FORMATS, "array_record")
"""Formats whose chunks are positions in a file."""
_READ_AS_TEXT = Hint(
    "to read the file as plain text pass text_files(PATH, format='text')",
    "to read the file as plain text pass --format text",
)
_PIECES_PER_BLOCK = 8
_LARGE_CHUNKS = 16
"""Row groups or compressed files with more than this many times the target size are read in this process, in
parts."""
_STREAM_BLOCK = 1 << 22
_MAX_RECORDS = 1 << 14
"""Maximum number of records in a chunk in memory: a record takes some hundred bytes more than its values."""


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
        data = self._read_bytes() if self.data is None else self.data
        if self.field is None:
            is_first = self.start == 0
            return [(data.removeprefix(codecs.BOM_UTF8) if is_first else data, is_first)]
        texts = _iter_line_texts(data, self.field, self.path, self.start)
        return [(text, True) for text in drop_bad_records(texts, bad)]

    def read_records(self) -> Iterator[tuple[str, dict[str, Any] | SourceError]]:
        """Yields `(location, record)` for each JSON line of the chunk, or `(location, error)`."""
        data = self._read_bytes() if self.data is None else self.data
        for line, location in _iter_lines(data, self.path, self.start):
            yield location, _parse_line(line, location)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the chunk."""
        return self.stop - self.start

    def load(self) -> FileChunk:
        """Returns the chunk with its bytes, for a process that can't read the file."""
        return self if self.data is not None else replace(self, data=self._read_bytes())

    def _read_bytes(self) -> bytes:
        with open_source(self.path) as file:
            file.seek(self.start)
            data = file.read(self.nbytes)
        if len(data) < self.nbytes:
            raise SourceError(
                f"{get_path_or_url(self.path)}: became shorter while it was read; the result is discarded"
            )
        return data


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A chunk of complete documents in memory.

    Attributes:
        texts: the documents, and the errors of bad records.
        nbytes: the total number of bytes of the documents.
        read_nbytes: the number of bytes of the source that were read for this chunk, for a progress bar.
        location: the file and the position of the documents, for error messages.
    """

    texts: tuple[Text | SourceError, ...]
    nbytes: int
    read_nbytes: int
    location: str = "texts in memory"

    def read(self, bad: list[SourceError] | None = None) -> list[tuple[Text, bool]]:
        """Returns `(text, True)` for each text: every text starts a document.

        Args:
            bad: as in `FileChunk.read`.
        """
        return [(text, True) for text in drop_bad_records(self.texts, bad)]


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """A chunk of records in memory.

    Attributes:
        records: pairs of `(location, record)`, or of `(location, error)` for bad records.
        nbytes: the approximate size of the records in bytes.
        read_nbytes: the number of bytes of the file that were read for this chunk, for a progress bar.
    """

    records: tuple[tuple[str, dict[str, Any] | SourceError], ...]
    nbytes: int
    read_nbytes: int

    @property
    def location(self) -> str:
        """The location of the first record."""
        return self.records[0][0]


RowChunk: TypeAlias = TableChunk | ArrayRecordChunk
"""Rows of a table, or records of an ArrayRecord file, which are read when they are needed."""
Chunk: TypeAlias = FileChunk | TextChunk | RowChunk


def iter_file_chunks(
    files: TextFiles, separators: Sequence[str], target_nbytes: int, *, safe_splits: bool
) -> Iterator[Chunk]:
    """Yields chunks of about equal size from files.

    Text is split at separators, and between pre-tokens if `safe_splits` is set. Records are never split.

    Args:
        files: the files to read.
        separators: the strings between documents.
        target_nbytes: the target size of a chunk in bytes.
        safe_splits: whether text may also be split between pre-tokens, as `refine_boundaries` does.

    Raises:
        SourceError: a file is damaged, or its contents do not match its format.
    """
    encoded = [separator.encode("utf-8") for separator in separators]
    empty: list[Path] = []
    # Paths are made absolute: the workers of an executor may have another working directory.
    for path in map(Path.absolute, files.paths):
        chunks = _iter_chunks(path, files, encoded, target_nbytes, safe_splits=safe_splits)
        first = next(chunks, None)
        if first is None:
            empty.append(path)
            continue
        yield first
        yield from chunks
    if empty:
        subject = f"{len(empty)} of {len(files.paths)} files" if len(files.paths) > 1 else "the only file"
        _log.warning("%s had no text: %s", subject, get_path_or_url(empty[0]))


def _iter_chunks(
    path: Path, files: TextFiles, separators: Sequence[bytes], target_nbytes: int, *, safe_splits: bool
) -> Iterator[Chunk]:
    kind = get_format(path, files)
    field = None if kind == "text" else files.field
    if kind in ROW_FORMATS:
        for chunk in _plan_row_chunks(path, kind, files.field, target_nbytes):
            if chunk.nbytes <= _LARGE_CHUNKS * target_nbytes:
                yield chunk
            else:
                yield from _iter_table_chunks(path, chunk.iter_texts(), target_nbytes)
    elif kind == "tar":
        yield from _iter_table_chunks(path, _iter_sample_texts(path, files.field), target_nbytes)
    elif kind in ("csv", "tsv"):
        delimiter = "," if kind == "csv" else "\t"
        yield from _iter_table_chunks(path, _iter_csv_batches(path, files.field, delimiter), target_nbytes)
    elif is_compressed(path):
        yield from _iter_compressed_chunks(path, field, separators, target_nbytes, safe_splits=safe_splits)
    else:
        with open_source(path) as file:
            size = file.seek(0, os.SEEK_END)
            boundaries = _find_boundaries(
                file, size, field, separators, target_nbytes, safe_splits=safe_splits
            )
        for start, stop in zip(boundaries, boundaries[1:], strict=False):
            yield FileChunk(path, start, stop, stop - start, field)


def _plan_row_chunks(path: Path, kind: str, field: str, target_nbytes: int) -> Iterator[RowChunk]:
    if kind in TABLE_FORMATS:
        return plan_table_chunks(path, kind, field, target_nbytes)
    return plan_record_chunks(path, field, target_nbytes)


def _find_boundaries(
    file: BinaryIO,
    size: int,
    field: str | None,
    separators: Sequence[bytes],
    target_nbytes: int,
    *,
    safe_splits: bool,
) -> list[int]:
    """Returns the chunk boundaries of a file that is not compressed, from 0 to its size.

    Files with records are split before line feeds, all others at separators and, if safe, between pre-tokens.
    """
    ends = [0, size] if size else [0]
    num_chunks = -(-size // target_nbytes)
    if field is not None:
        return find_chunk_boundaries(file, num_chunks, b"\n") if num_chunks > 1 else ends
    boundaries = (
        find_chunk_boundaries(file, num_chunks, separators) if separators and num_chunks > 1 else ends
    )
    return refine_boundaries(file, boundaries, target_nbytes, separators) if safe_splits else boundaries


def _iter_compressed_chunks(
    path: Path, field: str | None, separators: Sequence[bytes], target_nbytes: int, *, safe_splits: bool
) -> Iterator[FileChunk]:
    with open_decompressed(path) as (file, stream):
        yield from _iter_stream_chunks(
            path, stream, file.tell, field, separators, target_nbytes, safe_splits=safe_splits
        )


def _iter_stream_chunks(
    path: Path,
    stream: BinaryIO,
    get_position: Callable[[], int],
    field: str | None,
    separators: Sequence[bytes],
    target_nbytes: int,
    *,
    safe_splits: bool,
) -> Iterator[FileChunk]:
    """Yields chunks of a stream that can't be read twice. Each chunk holds its bytes.

    Args:
        path: the path of the stream, for errors.
        stream: the stream to read.
        get_position: returns the progress in the file below the stream, in bytes.
        field: the name of the text field if the stream is JSON lines, else `None`.
        separators: the byte strings between documents.
        target_nbytes: the target size of a chunk in bytes.
        safe_splits: whether text may also be split between pre-tokens.
    """
    start = reported = 0
    buffered = b""
    while True:
        with report_damage(path):
            # Reads double in size while the buffer has no safe split: the total time stays linear.
            block = stream.read(max(target_nbytes, len(buffered)))
        buffered += block
        split_point = (
            len(buffered)
            if not block
            else _find_last_split(buffered, field, separators, safe_splits=safe_splits)
        )
        if split_point:
            position = get_position()
            yield FileChunk(
                path, start, start + split_point, position - reported, field, buffered[:split_point]
            )
            start, buffered, reported = start + split_point, buffered[split_point:], position
        if not block:
            return


def iter_stream_texts(
    stream: BinaryIO,
    name: str,
    field: str | None,
    separators: Sequence[str],
    *,
    skip_bad_records: bool = False,
) -> Iterator[Text]:
    """Reads the texts of a stream that can be read only once, such as standard input.

    The stream is read lazily, some megabytes at a time.

    Args:
        stream: a stream opened in binary mode. Its first block is read immediately, to check it.
        name: the name of the stream in errors.
        field: the name of the text field if the stream is JSON lines; `None` if the stream is text.
        separators: the strings at which text is split; without separators, the stream is a single text.
        skip_bad_records: whether to yield the errors of bad lines instead of raising them.

    Raises:
        SourceError: the stream is empty or not UTF-8 text, or a line is not a JSON record.
    """
    encoded = [separator.encode("utf-8") for separator in separators]
    chunks = _iter_stream_chunks(Path(name), stream, int, field, encoded, _STREAM_BLOCK, safe_splits=False)
    first = next(chunks, None)
    if first is None:
        raise SourceError(f"{name} is empty; there is nothing to read")
    if field is None or not skip_bad_records:
        check_is_text((first.data or b"")[:HEAD_BYTES], name)

    def iter_texts() -> Iterator[Any]:
        invalid = None
        for chunk in itertools.chain([first], chunks):
            offset = None if invalid is not None else find_invalid_utf8(chunk.data or b"")
            invalid = invalid if offset is None else chunk.start + offset
            bad: list[SourceError] | None = [] if skip_bad_records else None
            yield from (text for text, _ in chunk.read(bad))
            yield from bad or ()
        if invalid is not None:
            _log.warning(
                "%s has bytes that are not valid UTF-8, which were kept; the first is byte %d", name, invalid
            )

    return iter_texts()


def _find_last_split(
    buffered: bytes, field: str | None, separators: Sequence[bytes], *, safe_splits: bool
) -> int:
    """Returns the last position at which the buffer can be split whatever follows it, or 0."""
    if field is not None:
        return buffered.rfind(b"\n") + 1
    window = io.BytesIO(buffered)
    # A separator that starts after `limit` may end in the next block.
    limit = len(buffered) - max(map(len, separators), default=1)
    step = -(-len(buffered) // _PIECES_PER_BLOCK)
    split_points = [0]
    if separators:
        split_points += find_chunk_boundaries(window, _PIECES_PER_BLOCK, separators)[:-1]
    if safe_splits:
        split_points += refine_boundaries(window, [0, len(buffered)], step, separators)[:-1]
    return max(split_point for split_point in split_points if split_point <= max(limit, 0))


def iter_record_chunks(
    files: TextFiles, choose: Callable[[list[str]], list[str]], target_nbytes: int
) -> Iterator[FileChunk | RowChunk | RecordChunk]:
    """Yields chunks of the records of files. `read_records` reads them.

    Args:
        files: files of JSON lines, Parquet, Arrow or ArrayRecord, or tar archives.
        choose: function of the names of the columns of a table that returns those to read.
        target_nbytes: the target size of a chunk in bytes.

    Raises:
        InvalidArgumentError: a file has another format.
        SourceError: a file is damaged.
    """
    kinds = [get_format(path, files) for path in files.paths]
    for path, kind in zip(files.paths, kinds, strict=True):
        if kind not in ("jsonl", "tar", *ROW_FORMATS):
            raise InvalidArgumentError(
                f"{get_path_or_url(path)} has the format {kind!r}, and values of columns are read from JSON "
                "lines, Parquet, Arrow, ArrayRecord and tar archives; convert it, or pass its rows as records"
            )
    for path, kind in zip(map(Path.absolute, files.paths), kinds, strict=True):
        if kind in ROW_FORMATS:
            for rows in _plan_row_chunks(path, kind, files.field, target_nbytes):
                if rows.nbytes <= _LARGE_CHUNKS * target_nbytes:
                    yield rows
                else:
                    yield from _gather_records(rows.iter_sized_records(choose), target_nbytes)
        elif kind == "tar":
            yield from _gather_records(_iter_sized_samples(path), target_nbytes)
        else:
            one_file = replace(files, paths=(path,))
            for chunk in iter_file_chunks(one_file, [], target_nbytes, safe_splits=False):
                assert isinstance(chunk, FileChunk)  # other formats were handled above
                yield chunk


def read_records(
    chunk: FileChunk | RowChunk | RecordChunk, choose: Callable[[list[str]], list[str]]
) -> Iterable[tuple[str, dict[str, Any] | SourceError]]:
    """Returns `(location, record)` for each record of a chunk, or `(location, error)` for a bad record.

    Args:
        chunk: the chunk to read.
        choose: function of the names of the columns of a table that returns those to read.

    Raises:
        SourceError: the file is damaged.
    """
    if isinstance(chunk, RecordChunk):
        return chunk.records
    return chunk.read_records() if isinstance(chunk, FileChunk) else chunk.read_records(choose)


def _iter_sized_samples(path: Path) -> Iterator[tuple[str, dict[str, Any] | SourceError, int, int]]:
    for location, record, read_nbytes in iter_samples(path):
        values = () if isinstance(record, SourceError) else record.values()
        nbytes = sum(len(value) for value in values if isinstance(value, (str, bytes)))
        yield location, record, nbytes, read_nbytes


def _gather_records(
    records: Iterable[tuple[str, dict[str, Any] | SourceError, int, int]], target_nbytes: int
) -> Iterator[RecordChunk]:
    """Yields chunks of records that were read in this process.

    Args:
        records: `(location, record, nbytes, read_nbytes)`: a record, its approximate size, and the bytes of
            the file that were read for it.
        target_nbytes: the minimum size of a chunk in bytes, except of the last chunk.
    """
    gathered: list[tuple[str, dict[str, Any] | SourceError]] = []
    nbytes = read_nbytes = 0
    for location, record, new_nbytes, new_read_nbytes in records:
        gathered.append((location, record))
        nbytes += new_nbytes
        read_nbytes += new_read_nbytes
        if nbytes >= target_nbytes or len(gathered) >= _MAX_RECORDS:
            yield RecordChunk(tuple(gathered), nbytes, read_nbytes)
            gathered, nbytes, read_nbytes = [], 0, 0
    if gathered:
        yield RecordChunk(tuple(gathered), nbytes, read_nbytes)


def _iter_line_texts(data: bytes, field: str, path: Path, start: int) -> Iterator[str | SourceError]:
    """Yields the texts of JSON lines, or errors; records whose text is null are skipped."""
    for line, location in _iter_lines(data, path, start):
        text = find_text(_parse_line(line, location), field, location)
        if text is not None:
            yield text


def _parse_line(line: bytes, location: str) -> dict[str, Any] | SourceError:
    return parse_json_record(line, location, _READ_AS_TEXT)


def _iter_lines(data: bytes, path: Path, start: int) -> Iterator[tuple[bytes, str]]:
    """Yields the lines that are not blank, with their location for errors."""
    position = start
    for line in data.split(b"\n"):
        if line.strip():
            yield line, f"{get_path_or_url(path)}, the line at byte {position}"
        position += len(line) + 1


def _iter_table_chunks(
    path: Path, batches: Iterable[tuple[list[Text | SourceError], int]], target_nbytes: int
) -> Iterator[TextChunk]:
    """Yields chunks of the texts of a table.

    Args:
        path: the path of the file.
        batches: `(texts, read_nbytes)`: the texts of some rows, or errors, and the bytes of the file that
            were read for them.
        target_nbytes: the minimum size of a chunk in bytes, except of the last chunk.
    """
    name = get_path_or_url(path)
    texts: list[Text | SourceError] = []
    first = nbytes = read_nbytes = 0
    for new_texts, new_nbytes in batches:
        texts += new_texts
        nbytes += sum(count_bytes(text) for text in new_texts if not isinstance(text, SourceError))
        read_nbytes += new_nbytes
        if nbytes >= target_nbytes:
            yield TextChunk(tuple(texts), nbytes, read_nbytes, f"{name}, texts from {first}")
            first += len(texts)
            texts, nbytes, read_nbytes = [], 0, 0
    if texts:
        yield TextChunk(tuple(texts), nbytes, read_nbytes, f"{name}, texts from {first}")


def _iter_sample_texts(path: Path, field: str) -> Iterator[tuple[list[Text | SourceError], int]]:
    for location, record, read_nbytes in iter_samples(path):
        text = find_text(record, field, location, (str, bytes), NAME_THE_MEMBER)
        yield [] if text is None else [text], read_nbytes


def _iter_csv_batches(
    path: Path, column: str, delimiter: str
) -> Iterator[tuple[list[Text | SourceError], int]]:
    with (
        open_decompressed(path) as (file, stream),
        closing(read_csv_column(stream, column, delimiter, get_path_or_url(path))) as rows,
    ):
        reported = 0
        while True:
            with report_damage(path):
                texts = next(rows, None)
            if texts is None:
                return
            position = file.tell()
            yield texts, position - reported
            reported = position


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
