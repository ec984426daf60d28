"""MDS shards, the format of MosaicML Streaming: samples of typed columns.

A shard describes its columns in JSON, so the `index.json` of its directory is not needed to read it. Only
columns that are asked for are decoded, and never pickles or images. The library that writes these shards is
not used to read them: it needs PyTorch, torchvision, transformers, and the clients of four clouds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import find_invalid_utf8, open_decompressed
from tokjax.corpus.files import is_compressed
from tokjax.corpus.sample_shards import iter_samples, make_damage_error, open_shard, split_values
from tokjax.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_VERSION = 2
_SCALARS = {
    "int": "<i8",
    **{f"{kind}int{bits}": f"<{kind or 'i'}{bits // 8}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
"""NumPy dtypes of the encodings of scalars, and of arrays."""
_ARRAY_DTYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
"""Dtypes of arrays whose encoding does not name a dtype, by the first byte."""


def measure(path: Path) -> tuple[int, int, bool]:
    """Returns the number of samples of a shard, its size before compression, and if it has random access.

    Raises:
        SourceError: the shard is damaged.
    """
    with open_shard(path, open_decompressed(path)) as shard:
        return shard.num_samples, shard.nbytes, not is_compressed(path)


def iter_records(
    path: Path, start: int, stop: int, choose: Callable[[list[str]], list[str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields `(location, record)` for the samples `[start, stop)` of a shard.

    Args:
        path: the path of the shard, which may be compressed.
        start: the number of the first sample.
        stop: the number after that of the last sample.
        choose: function of the names of all columns that returns those to read.

    Raises:
        SourceError: the shard is damaged, or a chosen column has an encoding that is not supported.
    """
    with open_shard(path, open_decompressed(path)) as shard:
        columns, sizes = _parse_description(shard.description, path)
        chosen = set(choose(list(columns)))
        decoders = [
            (index, name, _make_decoder(encoding, f"{get_path_or_url(path)}: the column {name!r}"))
            for index, (name, encoding) in enumerate(columns.items())
            if name in chosen
        ]
        for location, sample in iter_samples(shard, start, stop):
            values = split_values(sample, sizes, location)
            try:
                record = {name: decode(values[index]) for index, name, decode in decoders}
            except SourceError:
                raise
            except (ValueError, KeyError, IndexError, RecursionError) as error:
                raise SourceError(f"{location}: a value is damaged: {error}") from error
            yield location, record


def _parse_description(description: bytes, path: Path) -> tuple[dict[str, str], list[int | None]]:
    """Returns the encoding of each column by name, and the fixed size of each column."""
    try:
        parsed = json.loads(description)
        version, kind = parsed["version"], parsed["format"]
        names, encodings, sizes = (parsed[f"column_{key}"] for key in ("names", "encodings", "sizes"))
        columns = dict(zip(names, encodings, strict=True))
        are_strings = all(isinstance(text, str) for pair in columns.items() for text in pair)
        are_sizes = all(size is None or (isinstance(size, int) and size >= 0) for size in sizes)
        if not (are_strings and are_sizes) or not len(columns) == len(names) == len(sizes):
            raise ValueError("its columns are invalid")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise make_damage_error(path, f"its description can't be read: {error}") from error
    if (version, kind) != (_VERSION, "mds"):
        raise SourceError(
            f"{get_path_or_url(path)}: has version {version!r} of the format {kind!r}, and version "
            f"{_VERSION} of 'mds' is read"
        )
    return columns, [size or None for size in sizes]


def _make_decoder(encoding: str, column: str) -> Callable[[bytes], Any]:
    """Returns the function that decodes the values of a column.

    Raises:
        SourceError: the encoding is not supported.
    """
    kind, *options = encoding.split(":")
    if kind in _DECODERS and not options:
        return _DECODERS[kind]
    if kind in _SCALARS and not options:
        return lambda value: _decode_scalar(value, _SCALARS[kind])
    if kind == "bytes" and not options:
        return lambda value: _check_text(value, column)
    if kind == "ndarray" and len(options) <= 2:
        dtype = options[0] if options else ""
        shape = options[1] if len(options) > 1 else ""
        axes = shape.split(",") if shape else []
        if (not dtype or dtype in _SCALARS) and all(axis.isdecimal() for axis in axes):
            return lambda value: _decode_array(value, dtype, [int(axis) for axis in axes] or None)
    raise SourceError(
        f"{column} has the encoding {encoding!r}, which is not supported; str, bytes, json, numbers and "
        "ndarray are read"
    )


def _check_text(value: bytes, column: str) -> bytes:
    """Returns bytes that are text: the encoding `bytes` is also used for arrays, without their dtype."""
    if b"\0" in value or find_invalid_utf8(value) is not None:
        raise SourceError(
            f"{column} has the encoding 'bytes', and its bytes are not text; if they are ids, pass an "
            "iterable of {'ids': numpy.frombuffer(sample[COLUMN], DTYPE)}"
        )
    return value


def _decode_scalar(value: bytes, dtype: str) -> Any:
    (scalar,) = np.frombuffer(value, dtype).tolist()
    return scalar


def _decode_array(value: bytes, dtype: str, shape: list[int] | None) -> NDArray[Any]:
    """Returns an array. Its dtype and its shape precede the values if the encoding does not have them."""
    position = 0
    if not dtype:
        dtype, position = _ARRAY_DTYPES[value[0]], 1
    if shape is None:
        num_axes, log2_nbytes = divmod(value[position], 4)
        start = position + 1
        position = start + (num_axes << log2_nbytes)
        shape = np.frombuffer(value[start:position], f"<u{1 << log2_nbytes}").tolist()
        if len(shape) != num_axes:
            raise ValueError("the shape of an array is incomplete")
    return np.frombuffer(value[position:], _SCALARS[dtype]).reshape(shape)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "str": lambda value: value.decode("utf-8"),
    "json": json.loads,
    "str_int": lambda value: int(value.decode("ascii")),
    "str_float": lambda value: float(value.decode("ascii")),
}
