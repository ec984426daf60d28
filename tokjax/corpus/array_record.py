"""ArrayRecord files, which Grain, MaxText and TensorFlow Datasets read: records with random access.

A record can be any bytes. Those of MaxText and TensorFlow Datasets are serialized `tf.train.Example`
messages.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tokjax._util.imports import import_optional
from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import open_source
from tokjax.corpus.tf_example import parse_example
from tokjax.errors import SourceError, TokjaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def import_array_record(purpose: str) -> Any:
    """Imports the module of the library with its reader and writer."""
    return import_optional("array_record.python.array_record_module", extra="arrayrecord", purpose=purpose)


def measure(path: Path) -> tuple[int, int, bool]:
    """Returns the number of records of a file, its size in bytes, and if it has random access.

    Raises:
        SourceError: the file is damaged.
    """
    with _open_reader(path) as reader:
        return reader.num_records(), path.stat().st_size, True


def iter_records(
    path: Path,
    start: int,
    stop: int,
    choose: Callable[[list[str]], list[str]],  # noqa: ARG001 (each record may have other features)
) -> Iterator[tuple[str, dict[str, Any]]]:
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
