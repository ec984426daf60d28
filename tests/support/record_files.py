"""Writer of ArrayRecord files with `tf.train.Example`, independent of the code that reads them."""

import struct

import pytest


def make_varint(value):
    """Returns a variable-length integer of a protocol buffer."""
    value %= 1 << 64
    data = b""
    while value >= 0x80:
        data, value = data + bytes([value % 0x80 + 0x80]), value // 0x80
    return data + bytes([value])


def make_field(number, contents):
    """Returns a field of a protocol buffer that holds bytes."""
    return make_varint(8 * number + 2) + make_varint(len(contents)) + contents


def make_example(features, *, packed=True):
    """Returns a serialized `tf.train.Example`. Values are `bytes`, or lists of bytes, integers or floats."""
    entries = b""
    for name, values in features.items():
        if isinstance(values, bytes) or (values and isinstance(values[0], bytes)):
            items = [values] if isinstance(values, bytes) else values
            kind, inner = 1, b"".join(make_field(1, item) for item in items)
        elif values and isinstance(values[0], float):
            kind, inner = 2, make_field(1, struct.pack(f"<{len(values)}f", *values))
        elif packed:
            kind, inner = 3, make_field(1, b"".join(map(make_varint, values)))
        else:
            kind, inner = 3, b"".join(b"\x08" + make_varint(value) for value in values)
        feature = make_field(kind, inner)
        entries += make_field(1, make_field(1, name.encode()) + make_field(2, feature))
    return make_field(1, entries)


def write_array_record(path, records, options="group_size:1"):
    """Writes records of bytes with the `array_record` library, and returns the path."""
    writer = pytest.importorskip("array_record.python.array_record_module").ArrayRecordWriter
    file = writer(str(path), options)
    for record in records:
        file.write(record)
    file.close()
    return path
