r"""ArrayRecord files, which Grain, MaxText and TensorFlow Datasets read: records with random access.

A record can be any bytes. Those of MaxText and TensorFlow Datasets are serialized `tf.train.Example`
messages. JSON objects and plain texts in UTF-8 are read, too. The first record that is not empty decides for
the file:

    first record                           record of the corpus
    b"\n..."       a tf.train.Example      its features
    b'{"a": 1}'    a JSON object           the object
    b"a text"      other UTF-8             {"text": b"a text"}
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from tokjax._util.imports import import_optional
from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import check_is_text, open_source
from tokjax.corpus.record_fields import parse_json_record
from tokjax.corpus.tf_example import parse_example
from tokjax.errors import Hint, SourceError, TokjaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_Parser: TypeAlias = "Callable[[bytes, str], dict[str, Any] | SourceError]"
_PASS_TEXTS = Hint(
    "if the records are texts, pass "
    "array_record.python.array_record_data_source.ArrayRecordDataSource([PATH])",
    "",
)


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
) -> Iterator[tuple[str, dict[str, Any] | SourceError]]:
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
    check_is_text(first, f"{get_path_or_url(path)}, the first record")
    return _parse_text


def _parse_json(record: bytes, location: str) -> dict[str, Any] | SourceError:
    return parse_json_record(record, location, _PASS_TEXTS)


def _parse_text(record: bytes, location: str) -> dict[str, Any]:  # noqa: ARG001 (any bytes are a text)
    return {"text": record}


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
