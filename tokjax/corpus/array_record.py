"""ArrayRecord files, which Grain, MaxText and TensorFlow Datasets read: records with random access.

A record can be any bytes. Those of MaxText and TensorFlow Datasets are serialized `tf.train.Example`
messages. A chunk is a range of records, which workers read themselves:

    records     0 to 999                         1000 to 1999
    chunk       ArrayRecordChunk(start=0,        ArrayRecordChunk(start=1000,
                                 stop=1000)                       stop=2000)
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokjax._util.imports import import_optional
from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import open_source
from tokjax.corpus.record_fields import get_text
from tokjax.corpus.tf_example import parse_example
from tokjax.errors import SourceError, TokjaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokjax.core.utf8 import Text


def import_array_record(purpose: str) -> Any:
    """Imports the module of the library with its reader and writer."""
    return import_optional("array_record.python.array_record_module", extra="arrayrecord", purpose=purpose)


def count_records(path: Path) -> int:
    """Returns the number of records of a file.

    Raises:
        SourceError: the file is damaged.
    """
    with _open_reader(path) as reader:
        return int(reader.num_records())


def iter_records(path: Path, start: int, stop: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields `(location, record)` for the records `[start, stop)`: the features of each `tf.train.Example`.

    Raises:
        SourceError: the file is damaged, or a record is not a `tf.train.Example`.
    """
    name = get_path_or_url(path)
    with _open_reader(path) as reader:
        if start < stop:
            reader.seek(start)
        for row in range(start, stop):  # (reading a range would decompress its group again for each range)
            location = f"{name}, record {row}"
            yield location, parse_example(reader.read(), location)


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

    def read(self) -> list[tuple[Text, bool]]:
        """Returns `(text, True)` for each text: every text starts a document."""
        return [(text, True) for texts, _ in self.iter_texts() for text in texts]

    def iter_texts(self) -> Iterator[tuple[list[Text], int]]:
        """Yields `(texts, read_nbytes)` for each record. Records whose text is null are skipped."""
        for location, record, _, read_nbytes in self.iter_sized_records():
            text = get_text(record, self.field, location, (str, bytes))
            yield [] if text is None else [text], read_nbytes

    def read_records(
        self,
        choose: Callable[[list[str]], list[str]],  # noqa: ARG002 (each record may have other features)
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields `(location, record)` for each record; `location` names it in errors."""
        yield from iter_records(self.path, self.start, self.stop)

    def iter_sized_records(
        self,
        choose: Callable[[list[str]], list[str]] = list,  # noqa: ARG002 (as in `read_records`)
    ) -> Iterator[tuple[str, dict[str, Any], int, int]]:
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
