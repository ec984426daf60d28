r"""ArrayRecord files, which Grain, MaxText and TensorFlow Datasets read: records with random access.

A record can be any bytes. Those of MaxText and TensorFlow Datasets are serialized `tf.train.Example`
messages, records of named features, which are defined here again, so that TensorFlow is not needed. JSON
objects and plain texts in UTF-8 are read, too. The first record that is not empty decides for the file:

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
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax._util.imports import import_optional
from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import find_invalid_utf8, open_source
from tokjax.corpus.records import Choose, Records, RowChunk, SizedRecords, parse_json_record
from tokjax.errors import Hint, InvalidArgumentError, SourceError, TokjaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import ArrayLike


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


def iter_records(path: Path, start: int, stop: int) -> Records:
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


class ArrayRecordChunk(RowChunk):
    """Records of an ArrayRecord file."""

    __slots__ = ()

    def iter_sized_records(self, _: Choose) -> SizedRecords:
        """Yields the records with all their features; the sizes are mean values."""
        count = self.stop - self.start
        reported = 0
        for i, (location, record) in enumerate(iter_records(self.path, self.start, self.stop), 1):
            position = self.nbytes * i // count
            yield location, record, self.nbytes // count, position - reported
            reported = position


def plan_record_chunks(path: Path, _: str, field: str, target_nbytes: int) -> Iterator[ArrayRecordChunk]:
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
        share = nbytes * stop // count - nbytes * start // count
        yield ArrayRecordChunk(path, field, start, stop, start, share, share)


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


_PACKAGE = "tokjax"
_OPTIONAL, _REPEATED = 1, 3
_FLOAT, _INT64, _STRING, _MESSAGE, _BYTES = 2, 3, 9, 11, 12
_MESSAGES: dict[str, list[tuple[str, int, int, int, str]]] = {
    "BytesList": [("value", 1, _REPEATED, _BYTES, "")],
    "FloatList": [("value", 1, _REPEATED, _FLOAT, "")],
    "Int64List": [("value", 1, _REPEATED, _INT64, "")],
    "Feature": [
        ("bytes_list", 1, _OPTIONAL, _MESSAGE, "BytesList"),
        ("float_list", 2, _OPTIONAL, _MESSAGE, "FloatList"),
        ("int64_list", 3, _OPTIONAL, _MESSAGE, "Int64List"),
    ],
    "Entry": [("key", 1, _OPTIONAL, _STRING, ""), ("value", 2, _OPTIONAL, _MESSAGE, "Feature")],
    "Features": [("feature", 1, _REPEATED, _MESSAGE, "Entry")],
    "Example": [("features", 1, _OPTIONAL, _MESSAGE, "Features")],
}
"""Name, number, label and type of the fields of each message, and the message that is the type."""


@cache
def _load_example_class() -> Any:
    """Returns the class of the message `Example`, which the `protobuf` library makes of its definition."""
    names = ("descriptor_pb2", "descriptor_pool", "message_factory")
    descriptors, pools, factory = (
        import_optional(f"google.protobuf.{name}", extra="arrayrecord", purpose="reading tf.train.Example")
        for name in names
    )
    file = descriptors.FileDescriptorProto(name="tokjax/example.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, label, kind, message_type in fields:
            field = message.field.add(name=name, number=number, label=label, type=kind)
            if message_type:
                field.type_name = f".{_PACKAGE}.{message_type}"
    pool = pools.DescriptorPool()  # (a separate one: that of the process may contain TensorFlow's definition)
    pool.AddSerializedFile(file.SerializeToString())
    return factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))


def parse_example(record: bytes, location: str) -> dict[str, Any] | SourceError:
    """Returns the features of a serialized `tf.train.Example`, or an error if the record is none.

    Args:
        record: the serialized message.
        location: the location of the record, for errors.

    Returns:
        The value of each feature: an `int64` or `float32` array, `bytes`, or a list of `bytes` if there are
        several; `None` for a feature without values.
    """
    example_class = _load_example_class()
    decode_error = import_optional(
        "google.protobuf.message", extra="arrayrecord", purpose="reading tf.train.Example"
    ).DecodeError
    try:
        example = example_class.FromString(record)
    except decode_error as error:
        return SourceError(f"{location}: is not a tf.train.Example: {error}")
    return {entry.key: _get_value(entry.value) for entry in example.features.feature}


def _get_value(feature: Any) -> Any:
    if feature.HasField("int64_list"):
        return np.array(feature.int64_list.value, np.int64)
    if feature.HasField("float_list"):
        return np.array(feature.float_list.value, np.float32)
    values = list(feature.bytes_list.value)
    return values[0] if len(values) == 1 else values or None


def serialize_example(name: str, content: bytes | ArrayLike) -> bytes:
    """Returns a serialized `tf.train.Example` with one feature.

    Args:
        name: name of the feature.
        content: a text in UTF-8, or integers, shape `(n,)`.
    """
    example = _load_example_class()()
    feature = example.features.feature.add(key=name).value
    if isinstance(content, bytes):
        feature.bytes_list.value.append(content)
    else:
        feature.int64_list.SetInParent()  # (also without values, it is a list of integers)
        feature.int64_list.value.extend(np.asarray(content).tolist())
    return example.SerializeToString()  # type: ignore[no-any-return]
