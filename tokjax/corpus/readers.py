"""Files read as chunks of bounded size, each of which can be read apart from the others."""

from __future__ import annotations

import csv
import io
import itertools
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from tokjax._util.imports import import_optional
from tokjax._util.locks import ThreadLock
from tokjax._util.urls import get_path_or_url
from tokjax.core.utf8 import Text, count_bytes
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
from tokjax.errors import Hint, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tokjax.core.utf8 import Text
    from tokjax.corpus.files import TextFiles


_log = logging.getLogger("tokjax")

_PIECES_PER_BLOCK = 8
_PARQUET_ROWS = 1024
_STREAM_BLOCK = 1 << 22
_NAME_THE_FIELD = Hint("pass text_files(PATH, field=NAME)", "pass --text-column NAME")


@dataclass(frozen=True, slots=True)
class FileChunk:
    """The bytes `[start, stop)` of a file, or of what it holds compressed.

    Attributes:
        path: the file.
        start: where it begins, 0-based.
        stop: where it ends.
        read_nbytes: how far it is in the file, for a progress bar.
        field: what the text is called, where the bytes are JSON lines.
        data: the bytes themselves, where they were compressed.
    """

    path: Path
    start: int
    stop: int
    read_nbytes: int
    field: str | None = None
    data: bytes | None = None

    def read(self) -> list[tuple[Text, bool]]:
        """The texts of the chunk, and whether each starts a document."""
        data = self._read_bytes() if self.data is None else self.data
        if self.field is None:
            return [(data, self.start == 0)]
        return [(text, True) for text in _iter_line_texts(data, self.field, self.path, self.start)]

    @property
    def nbytes(self) -> int:
        """How many bytes the chunk has."""
        return self.stop - self.start

    def _read_bytes(self) -> bytes:
        with open_source(self.path) as file:
            file.seek(self.start)
            data = file.read(self.nbytes)
        if len(data) < self.nbytes:
            raise SourceError(
                f"{get_path_or_url(self.path)}: became shorter while it was read; nothing was kept"
            )
        return data


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Some whole documents.

    Attributes:
        texts: the documents.
        nbytes: how many bytes they have.
        read_nbytes: how far they are in the source, for a progress bar.
    """

    texts: tuple[Text, ...]
    nbytes: int
    read_nbytes: int

    def read(self) -> list[tuple[Text, bool]]:
        """The documents; each of them starts one."""
        return [(text, True) for text in self.texts]


Chunk: TypeAlias = FileChunk | TextChunk


def iter_file_chunks(
    files: TextFiles, separators: Sequence[str], longest: int, *, safe_splits: bool
) -> Iterator[Chunk]:
    """Files in chunks of about one size.

    Text is cut at separators, and between words if that is safe; records are kept whole.

    Args:
        files: what to read.
        separators: what stands between documents.
        longest: how many bytes to aim at.
        safe_splits: whether text may be cut between words.

    Raises:
        SourceError: a file is damaged, or holds something else than its format says.
    """
    encoded = [separator.encode("utf-8") for separator in separators]
    empty: list[Path] = []
    for path in map(Path.absolute, files.paths):  # (workers of an executor may stand elsewhere)
        chunks = _iter_chunks(path, files, encoded, longest, safe_splits=safe_splits)
        first = next(chunks, None)
        if first is None:
            empty.append(path)
            continue
        yield first
        yield from chunks
    if empty:
        what = f"{len(empty)} of {len(files.paths)} files" if len(files.paths) > 1 else "the only file"
        _log.warning("%s had no text in it: %s", what, get_path_or_url(empty[0]))


def _iter_chunks(
    path: Path, files: TextFiles, separators: Sequence[bytes], longest: int, *, safe_splits: bool
) -> Iterator[Chunk]:
    kind = get_format(path, files)
    field = None if kind == "text" else files.field
    if kind == "parquet":
        yield from _iter_table_chunks(_iter_parquet_batches(path, files.field), longest)
    elif kind in ("csv", "tsv"):
        delimiter = "," if kind == "csv" else "\t"
        yield from _iter_table_chunks(_iter_csv_batches(path, files.field, delimiter), longest)
    elif is_compressed(path):
        yield from _iter_compressed_chunks(path, field, separators, longest, safe_splits=safe_splits)
    else:
        with open_source(path) as file:
            size = file.seek(0, os.SEEK_END)
            boundaries = _find_boundaries(file, size, field, separators, longest, safe_splits=safe_splits)
        for start, stop in zip(boundaries, boundaries[1:], strict=False):
            yield FileChunk(path, start, stop, stop - start, field)


def _find_boundaries(
    file: BinaryIO,
    size: int,
    field: str | None,
    separators: Sequence[bytes],
    longest: int,
    *,
    safe_splits: bool,
) -> list[int]:
    """Where to cut a file, its ends among them: before newlines if it has records."""
    ends = [0, size] if size else [0]
    pieces = -(-size // longest)
    if field is not None:
        return find_chunk_boundaries(file, pieces, b"\n") if pieces > 1 else ends
    boundaries = find_chunk_boundaries(file, pieces, separators) if separators and pieces > 1 else ends
    return refine_boundaries(file, boundaries, longest, separators) if safe_splits else boundaries


def _iter_compressed_chunks(
    path: Path, field: str | None, separators: Sequence[bytes], longest: int, *, safe_splits: bool
) -> Iterator[FileChunk]:
    with open_decompressed(path) as (file, stream):
        yield from _iter_stream_chunks(
            path, stream, file.tell, field, separators, longest, safe_splits=safe_splits
        )


def _iter_stream_chunks(
    path: Path,
    stream: BinaryIO,
    position: Callable[[], int],
    field: str | None,
    separators: Sequence[bytes],
    longest: int,
    *,
    safe_splits: bool,
) -> Iterator[FileChunk]:
    """Chunks of a stream that can't be read twice; each holds its bytes."""
    start = done = 0
    buffered = b""
    while True:
        with report_damage(path):
            block = stream.read(max(longest, len(buffered)))
        buffered += block
        split_point = (
            len(buffered)
            if not block
            else _find_last_split(buffered, field, separators, safe_splits=safe_splits)
        )
        if split_point:
            reached = position()
            yield FileChunk(path, start, start + split_point, reached - done, field, buffered[:split_point])
            start, buffered, done = start + split_point, buffered[split_point:], reached
        if not block:
            return


def iter_stream_texts(
    stream: BinaryIO, name: str, field: str | None, separators: Sequence[str]
) -> Iterator[Text]:
    """Reads the texts of a stream that can be read once, such as standard input, some megabytes at a time.

    Args:
        stream: opened in binary mode. Its start is read at once.
        name: what errors call it.
        field: the name of the text in each record if the stream is JSON lines; `None` if it is text.
        separators: text is cut at these alone; without them, all of it is one text.

    Raises:
        SourceError: it is empty or not text in UTF-8, or a line is no record.
    """
    encoded = [separator.encode("utf-8") for separator in separators]
    chunks = _iter_stream_chunks(Path(name), stream, int, field, encoded, _STREAM_BLOCK, safe_splits=False)
    first = next(chunks, None)
    if first is None:
        raise SourceError(f"{name} is empty; there is nothing to read")
    check_is_text((first.data or b"")[:HEAD_BYTES], name)

    def texts() -> Iterator[Text]:
        invalid = None
        for chunk in itertools.chain([first], chunks):
            at = None if invalid is not None else find_invalid_utf8(chunk.data or b"")
            invalid = invalid if at is None else chunk.start + at
            yield from (text for text, _ in chunk.read())
        if invalid is not None:
            _log.warning(
                "%s has bytes that are not valid UTF-8, which were kept; the first is byte %d", name, invalid
            )

    return texts()


def _find_last_split(
    buffered: bytes, field: str | None, separators: Sequence[bytes], *, safe_splits: bool
) -> int:
    """The last place in what was read so far that can be cut whatever follows; 0 if there is none."""
    if field is not None:
        return buffered.rfind(b"\n") + 1
    window = io.BytesIO(buffered)
    certain = len(buffered) - max(map(len, separators), default=1)  # a separator might begin behind it
    step = -(-len(buffered) // _PIECES_PER_BLOCK)
    split_points = [0]
    if separators:
        split_points += find_chunk_boundaries(window, _PIECES_PER_BLOCK, separators)[:-1]
    if safe_splits:
        split_points += refine_boundaries(window, [0, len(buffered)], step, separators)[:-1]
    return max(split_point for split_point in split_points if split_point <= max(certain, 0))


def _iter_line_texts(data: bytes, field: str, path: Path, start: int) -> Iterator[str]:
    """The texts of JSON lines; records whose text is null have none."""
    position = start
    for line in data.split(b"\n"):
        if line.strip():
            text = _get_record_text(line, field, f"{get_path_or_url(path)}, the line at byte {position}")
            if text is not None:
                yield text
        position += len(line) + 1


def _get_record_text(line: bytes, field: str, where: str) -> str | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{where}: not JSON: {error}",
            hint=Hint(
                "to read the file as plain text pass text_files(PATH, format='text')",
                "to read the file as plain text pass --format text",
            ),
        ) from error
    if not isinstance(record, dict):
        raise SourceError(
            f"{where}: a JSON object is expected, not a {type(record).__name__}; write one object per line"
        )
    if field not in record:
        raise SourceError(
            f"{where}: the record has no field {field!r}, it has {list(record)[:20]}", hint=_NAME_THE_FIELD
        )
    text = record[field]
    if not isinstance(text, str | None):
        raise SourceError(f"{where}: the field {field!r} is a {type(text).__name__}, not a string")
    return text


def _iter_table_chunks(batches: Iterable[tuple[list[Text], int]], longest: int) -> Iterator[TextChunk]:
    """Chunks of the texts of a table.

    Args:
        batches: the texts of some rows, and how far they go in the file.
        longest: how many bytes a chunk has, at least.
    """
    texts: list[Text] = []
    nbytes = read_nbytes = 0
    for new, new_nbytes in batches:
        texts += new
        nbytes += sum(map(count_bytes, new))
        read_nbytes += new_nbytes
        if nbytes >= longest:
            yield TextChunk(tuple(texts), nbytes, read_nbytes)
            texts, nbytes, read_nbytes = [], 0, 0
    if texts:
        yield TextChunk(tuple(texts), nbytes, read_nbytes)


def _iter_csv_batches(path: Path, column: str, delimiter: str) -> Iterator[tuple[list[Text], int]]:
    with open_decompressed(path) as (file, stream):
        done = 0
        rows = read_csv_column(stream, column, delimiter, get_path_or_url(path))
        while True:
            with report_damage(path):
                texts = next(rows, None)
            if texts is None:
                return
            reached = file.tell()
            yield texts, reached - done
            done = reached


def _iter_parquet_batches(path: Path, column: str) -> Iterator[tuple[list[Text], int]]:
    purpose = f"reading {get_path_or_url(path)}"
    pyarrow = import_optional("pyarrow", extra="parquet", purpose=purpose)
    parquet = import_optional("pyarrow.parquet", extra="parquet", purpose=purpose)
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            _check_column(path, column, file.schema_arrow, pyarrow.types)
            nbytes_per_row = path.stat().st_size / max(file.metadata.num_rows, 1)
            rows = 0
            for batch in file.iter_batches(_PARQUET_ROWS, columns=[column]):
                start, rows = rows, rows + batch.num_rows
                texts = [text for text in batch.column(0).to_pylist() if text is not None]
                yield texts, round(rows * nbytes_per_row) - round(start * nbytes_per_row)
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{get_path_or_url(path)}: the column {column!r} holds bytes that are no UTF-8: {error}"
        ) from error
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise SourceError(
            f"{get_path_or_url(path)}: cut short or damaged, or not Parquet: {error}"
        ) from error


def _check_column(path: Path, column: str, schema: Any, types: Any) -> None:
    if schema.names.count(column) != 1:
        many = "there are several columns" if column in schema.names else "there is no column"
        raise SourceError(
            f"{get_path_or_url(path)}: {many} {column!r}, of {schema.names[:20]}", hint=_NAME_THE_FIELD
        )
    kind = schema.field(column).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    texts = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")
    if str(kind) not in texts:
        raise SourceError(f"{get_path_or_url(path)}: the column {column!r} holds {kind}, not strings")


_ROWS_PER_READ = 64
_LONGEST_FIELD = 1 << 28
_limit_lock = ThreadLock()


def read_csv_column(stream: BinaryIO, column: str, delimiter: str, name: str) -> Iterator[list[Text]]:
    r"""Reads the texts of a column, those of some rows at a time; blank lines are skipped.

    Args:
        stream: the file, decompressed, with a header row. Fields may be quoted, as Excel quotes them.
        column: the name of the column in the header.
        delimiter: what separates fields.
        name: what errors call the file.

    Raises:
        SourceError: there is no such column, or several; a row has more or fewer fields than the header; a
            quote is not closed; a byte is not UTF-8.

    >>> list(read_csv_column(io.BytesIO(b'id,text\n1,"one, two"\n2,three\n'), "text", ",", "a.csv"))
    [['one, two', 'three']]
    """
    lines = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = next(iter(_read_rows(reader, 1)), list[str]())
        if header.count(column) != 1:
            many = "there are several columns" if column in header else "there is no column"
            raise SourceError(f"{name}: {many} {column!r}, of {header[:20]}", hint=_NAME_THE_FIELD)
        index, width = header.index(column), len(header)
        done = 0
        while rows := _read_rows(reader, _ROWS_PER_READ):
            for i, row in enumerate(rows, done + 1):
                if len(row) not in (0, width):
                    raise SourceError(
                        f"{name}: row {i} has {len(row)} fields, the header has {width}: {row!r:.200}"
                    )
            yield [row[index] for row in rows if row]
            done += len(rows)
    except csv.Error as error:
        raise SourceError(
            f"{name}, line {reader.line_num}: {error}; is a quote not closed, or is the file no CSV?"
        ) from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{name}, after line {reader.line_num}: not valid UTF-8: {error}") from error
    finally:
        lines.detach()  # (it would close the stream)


def _read_rows(reader: Iterator[list[str]], count: int) -> list[list[str]]:
    """Reads rows whose fields may be longer than the limit of the csv module, which all threads share."""
    with _limit_lock.current:
        limit = csv.field_size_limit(_LONGEST_FIELD)
        try:
            return list(itertools.islice(reader, count))
        finally:
            csv.field_size_limit(limit)
