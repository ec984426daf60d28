"""Writers of files of records, independent of the code that reads them: `tf.train.Example`, MDS, litdata."""

import json
import struct

import numpy as np
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


def encode_mds_value(encoding, value):
    """Returns the bytes of a value in an MDS shard."""
    kind, *options = encoding.split(":")
    if kind == "str":
        return value.encode()
    if kind == "json":
        return json.dumps(value).encode()
    if kind.startswith("str_"):
        return str(value).encode()
    if kind == "bytes":
        return value
    if kind != "ndarray":
        return np.dtype("int64" if kind == "int" else kind).type(value).tobytes()
    data = b""
    if not options:
        codes = {"uint8": 8, "uint16": 16, "int32": 33, "int64": 65, "float32": 34}
        data += bytes([codes[value.dtype.name]])
    if len(options) < 2:
        is_short = max(value.shape) < 256
        data += bytes([4 * value.ndim + (not is_short)])
        data += np.array(value.shape, "<u1" if is_short else "<u2").tobytes()
    return data + value.tobytes()


def make_mds_shard(columns, samples, **description):
    """Returns an MDS shard.

    Args:
        columns: encoding and fixed size (or `None`) of each column by name.
        samples: values of the columns of each sample by name.
        **description: other entries of the description.
    """
    encoded = []
    for sample in samples:
        values = [encode_mds_value(encoding, sample[name]) for name, (encoding, _) in columns.items()]
        sizes = [len(v) for v, (_, size) in zip(values, columns.values(), strict=True) if size is None]
        encoded.append(np.array(sizes, "<u4").tobytes() + b"".join(values))
    described = {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [size for _, size in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    text = json.dumps(described | description, sort_keys=True).encode()
    return make_shard(encoded, text)


def make_shard(samples, description=b""):
    """Returns a shard of samples: their number, their offsets, a description and the samples, all `bytes`."""
    first = 4 + 4 * (len(samples) + 1) + len(description)
    offsets = first + np.cumsum([0, *map(len, samples)])
    return struct.pack("<I", len(samples)) + offsets.astype("<u4").tobytes() + description + b"".join(samples)


def make_litdata_spec(sample):
    """Returns the description of the structure of a sample."""
    if isinstance(sample, dict):
        kind, context, children = "builtins.dict", list(sample), sample.values()
    elif isinstance(sample, (list, tuple)):
        kind, context, children = f"builtins.{type(sample).__name__}", None, sample
    else:
        return {"type": None, "context": None, "children_spec": []}
    specs = [make_litdata_spec(child) for child in children]
    return {"type": kind, "context": json.dumps(context), "children_spec": specs}


def write_litdata(directory, structure, formats, samples, *, name="chunk-0-0.bin", **config):
    """Writes a chunk of litdata and its index, and returns the path of the chunk.

    Args:
        directory: the directory to write.
        structure: a sample, of which only the structure is used.
        formats: the data format of each value.
        samples: the encoded values of each sample.
        name: the name of the chunk.
        **config: other entries of the configuration.
    """
    directory.mkdir(exist_ok=True)
    is_tokens = config.get("item_loader") == "TokensLoader"
    encoded = [
        b"".join([b"" if is_tokens else struct.pack(f"<{len(values)}I", *map(len, values)), *values])
        for values in samples
    ]
    described = {
        "chunk_bytes": 1 << 26,
        "chunk_size": None,
        "compression": None,
        "data_format": formats,
        "data_spec": json.dumps([1, make_litdata_spec(structure)]),
        "encryption": None,
        "item_loader": "PyTreeLoader",
    }
    chunk = make_shard(encoded)
    entry = {"chunk_bytes": len(chunk), "chunk_size": len(samples), "dim": None, "filename": name}
    index = {"chunks": [entry], "config": described | config, "updated_at": "0"}
    (directory / "index.json").write_text(json.dumps(index))
    (directory / name).write_bytes(chunk)
    return directory / name


def write_arrow_chunk(directory, rows, *, batch_rows=2, body=b"", count=None):
    """Writes a chunk as recent versions of litdata do, with an Arrow file, and returns its path.

    Args:
        directory: the directory to write.
        rows: the samples, dicts of values.
        batch_rows: the number of rows of a record batch; litdata writes 256.
        body: bytes before the Arrow file.
        count: the number of samples to write, if not that of the rows.
    """
    pyarrow = pytest.importorskip("pyarrow")
    path = write_litdata(directory, dict.fromkeys(rows[0]), ["pickle"] * len(rows[0]), [])
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.Table.from_pylist(rows)
    with pyarrow.ipc.new_file(sink, table.schema) as writer:
        for start in range(0, len(rows), batch_rows):
            writer.write_table(table.slice(start, batch_rows))
    arrow = sink.getvalue().to_pybytes()
    count = len(rows) if count is None else count
    head = struct.pack(f"<{count + 2}I", count, *[4 * (count + 2)] * (count + 1))
    path.write_bytes(head + body + arrow + struct.pack("<I", len(arrow)) + b"LDARW01\0")
    return path
