r"""ArrayRecord files, which Grain, MaxText and TensorFlow Datasets read: records with random access.

A record can be any bytes. Those of MaxText and TensorFlow Datasets are serialized `tf.train.Example`
messages. JSON objects and plain texts in UTF-8 are read, too. The first record that is not empty decides for
the file:

    first record                           record of the corpus
    b"\n..."       a tf.train.Example      its features
    b'{"a": 1}'    a JSON object           the object
    b"a text"      other UTF-8             {"text": b"a text"}

A chunk is a range of records, which workers read themselves:

    records     0 to 999                         1000 to 1999
    chunk       ArrayRecordChunk(start=0,        ArrayRecordChunk(start=1000,
                                 stop=1000)                       stop=2000)
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from tokjax._util.imports import import_optional
from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import find_invalid_utf8, open_source
from tokjax.corpus.record_fields import drop_bad_records, find_text, parse_json_record
from tokjax.corpus.tf_example import parse_example
from tokjax.errors import Hint, InvalidArgumentError, SourceError, TokjaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from tokjax.core.utf8 import Text

_Parser: TypeAlias = "Callable[[bytes, str], dict[str, Any] | SourceError]"
_PASS_TEXTS = Hint(
    "if the records are texts, pass "
    "array_record.python.array_record_data_source.ArrayRecordDataSource([PATH])",
    "",
)


def import_array_record(purpose: str) -> Any:
    """Imports the module of the library with its reader and writer."""
    return import_optional("array_record.python.array_record_module", extra="arrayrecord", purpose=purpose)


_writers: set[int] = set()
"""Processes that wrote a file. Their forked children lack the threads of the library, and would crash."""


@contextmanager
def open_array_record_writer(path: Path, file: BinaryIO, options: str) -> Iterator[Any]:
    """Opens a writer of records.

    Args:
        path: path of the file, for errors.
        file: open temporary file, which is replaced.
        options: options of the library.

    Raises:
        OSError: the file can't be written.
    """
    library = import_array_record(f"writing {path}")
    _writers.add(os.getpid())
    try:
        writer = library.ArrayRecordWriter(file.name, options)  # (the library needs a path)
        yield writer
        writer.close()
    except RuntimeError as error:
        is_full = os.strerror(errno.ENOSPC) in str(error)
        code = errno.ENOSPC if is_full else errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from error


def count_records(path: Path) -> int:
    """Returns the number of records of a file.

    Raises:
        SourceError: the file is damaged.
    """
    with _open_reader(path) as reader:
        return int(reader.num_records())


def iter_records(path: Path, start: int, stop: int) -> Iterator[tuple[str, dict[str, Any] | SourceError]]:
    """Yields `(location, record)` for the records `[start, stop)`: their features, JSON objects or texts.

    For a record that is not of the kind of the first one, it yields `(location, error)`.

    Raises:
        SourceError: the file is damaged.
    """
    name = get_path_or_url(path)
    with _open_reader(path) as reader:
        status = path.stat()
        parse = _find_parser(path, status.st_size, status.st_mtime_ns)
        if start < stop:
            reader.seek(start)
        for row in range(start, stop):  # (reading a range would decompress its group again for each range)
            location = f"{name}, record {row}"
            yield location, parse(reader.read(), location)


@lru_cache(maxsize=4)
def _find_parser(path: Path, size: int, modified_ns: int) -> _Parser:  # noqa: ARG001 (keys)
    """Returns the parser of the records of a file, which the first record that is not empty decides.

    Raises:
        SourceError: the file is damaged, or the record is neither a `tf.train.Example` nor text.
    """
    with _open_reader(path) as reader:
        records = (reader.read() for _ in range(reader.num_records()))
        first = next(filter(None, records), b"")
    if first.startswith(b"\n"):  # (the key of the only field of a `tf.train.Example`)
        example = parse_example(first, "")
        if example and not isinstance(example, SourceError):
            return parse_example
    if first.lstrip().startswith(b"{") and not isinstance(_parse_json(first, ""), SourceError):
        return _parse_json
    if find_invalid_utf8(first) is not None or b"\0" in first:
        raise SourceError(
            f"{get_path_or_url(path)}: the first record, {first[:20]!r}, is not UTF-8 text; write the "
            "records as UTF-8 text, JSON or tf.train.Example"
        )
    return _parse_text


def _parse_json(record: bytes, location: str) -> dict[str, Any] | SourceError:
    return parse_json_record(record, location, _PASS_TEXTS)


def _parse_text(record: bytes, location: str) -> dict[str, Any]:  # noqa: ARG001 (any bytes are a text)
    return {"text": record}


@dataclass(frozen=True, slots=True)
class ArrayRecordChunk:
    """The records `[start, stop)` of a file. They are read when they are needed.

    Attributes:
        path: the path of the file.
        field: the name of the text field.
        start: the number of the first record.
        stop: the number after that of the last record.
        nbytes: the approximate size of the records in bytes, which is also that of the part of the file that
            is read for this chunk.
    """

    path: Path
    field: str
    start: int
    stop: int
    nbytes: int

    @property
    def read_nbytes(self) -> int:
        """The approximate number of bytes of the file that are read for this chunk."""
        return self.nbytes

    @property
    def first_row(self) -> int:
        """The number of the first record in the file."""
        return self.start

    def read(self, bad: list[SourceError] | None = None) -> list[tuple[Text, bool]]:
        """Returns `(text, True)` for each text: every text starts a document.

        Args:
            bad: the list to which the errors of bad records are appended; `None` to raise the first one.
        """
        texts = chain.from_iterable(texts for texts, _ in self.iter_texts())
        return [(text, True) for text in drop_bad_records(texts, bad)]

    def iter_texts(self) -> Iterator[tuple[list[Text | SourceError], int]]:
        """Yields `(texts, read_nbytes)` for each record; errors instead of texts for bad records.

        Records whose text is null are skipped.
        """
        for location, record, _, read_nbytes in self.iter_sized_records():
            text = find_text(record, self.field, location, (str, bytes))
            yield [] if text is None else [text], read_nbytes

    def read_records(
        self,
        choose: Callable[[list[str]], list[str]],  # noqa: ARG002 (each record may have other features)
    ) -> Iterator[tuple[str, dict[str, Any] | SourceError]]:
        """Yields `(location, record)` for each record, or `(location, error)` for a bad one."""
        yield from iter_records(self.path, self.start, self.stop)

    def iter_sized_records(
        self,
        choose: Callable[[list[str]], list[str]] = list,  # noqa: ARG002 (as in `read_records`)
    ) -> Iterator[tuple[str, dict[str, Any] | SourceError, int, int]]:
        """Yields `(location, record, nbytes, read_nbytes)` for each record; the sizes are mean values."""
        count = self.stop - self.start
        reported = 0
        for i, (location, record) in enumerate(iter_records(self.path, self.start, self.stop), 1):
            position = self.nbytes * i // count
            yield location, record, self.nbytes // count, position - reported
            reported = position


def plan_record_chunks(path: Path, field: str, target_nbytes: int) -> Iterator[ArrayRecordChunk]:
    """Yields the chunks of a file, of about `target_nbytes` bytes. Records are split evenly.

    Args:
        path: the path of the file.
        field: the name of the text field.
        target_nbytes: the target size of a chunk in bytes.

    Raises:
        SourceError: the file is damaged.
    """
    count = count_records(path)
    nbytes = path.stat().st_size
    step = max(target_nbytes * count // max(nbytes, 1), 1)
    for start in range(0, count, step):
        stop = min(start + step, count)
        yield ArrayRecordChunk(path, field, start, stop, nbytes * stop // count - nbytes * start // count)


@contextmanager
def _open_reader(path: Path) -> Iterator[Any]:
    """Opens a file, and converts errors of the library to errors that name it.

    Raises:
        SourceError: the file is truncated or damaged.
    """
    library = import_array_record(f"reading {get_path_or_url(path)}")
    if _writers and os.getpid() not in _writers:
        raise InvalidArgumentError(
            f"{get_path_or_url(path)} can't be read, since this process was forked after its parent wrote an "
            "ArrayRecord file; start it with multiprocessing.get_context('spawn')"
        )
    open_source(path).close()  # (raises an error unless it is a regular file)
    try:
        reader = library.ArrayRecordReader(str(path), "readahead_buffer_size:0,max_parallelism:0")
        try:
            yield reader
        finally:
            reader.close()
    except TokjaxError:
        raise
    except (RuntimeError, ValueError, IndexError) as error:
        raise SourceError(
            f"{get_path_or_url(path)}: truncated or damaged, or not ArrayRecord: {error}"
        ) from error
