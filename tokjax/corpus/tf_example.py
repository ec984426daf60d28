"""`tf.train.Example`, a record of named features: bytes, integers or floats.

TensorFlow defines it as a protocol buffer. It is defined here again, so that TensorFlow is not needed. A map
of a protocol buffer is stored as a repeated message of a key and a value.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.imports import import_optional
from tokjax.errors import SourceError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

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
