"""Opening of corpus files: regular files only, decompressed, and checked to be UTF-8 text.

Files of bzip2 and xz can have several streams: those of `pbzip2`, or concatenated files.

    file        BZh9 ... end | BZh9 ... end | BZh9 ... end
    contents    "one "         "two "         "three"

The modules of Python ignore data after a stream that do not begin another one. So a bit that changes in the
header of the second stream would end this file after "one ", without an error.
"""

from __future__ import annotations

import codecs
import importlib
import io
import os
import sys
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from tokjax._util.atomic_files import NotRegularFileError, open_regular
from tokjax._util.imports import import_optional
from tokjax._util.urls import get_path_or_url
from tokjax.corpus.files import BINARY_FORMATS, COMPRESSED, describe_irregular_path, get_format, is_compressed
from tokjax.errors import Hint, InvalidArgumentError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokjax.corpus.files import TextFiles


HEAD_BYTES = 1 << 16
_MAGIC = (
    (b"\x1f\x8b", "a gzip file; rename it to end with .gz"),
    (b"\x28\xb5\x2f\xfd", "a zstd file; rename it to end with .zst"),
    (b"BZh", "a bzip2 file; rename it to end with .bz2"),
    (b"\xfd7zXZ\0", "an xz file; rename it to end with .xz"),
    (b"PK\x03\x04", "a zip archive; unpack it"),
    (b"PAR1", "a Parquet file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"ARROW1\0\0", "an Arrow file"),
    (b"\xff\xff\xff\xff", "an Arrow stream"),
)
_HINTS = {
    "a Parquet file": Hint("pass text_files(PATH, format='parquet')", "pass --format parquet"),
    "a NumPy array": Hint(
        "for an array of token ids use convert_dataset", "for an array of token ids run tokjax convert"
    ),
    "an Arrow file": Hint("pass text_files(PATH, format='arrow')", "pass --format arrow"),
    "an Arrow stream": Hint("pass text_files(PATH, format='arrow')", "pass --format arrow"),
}
_BYTE_ORDER_MARKS = (  # UTF-32 first: its little-endian mark starts with the mark of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MODULES = {"gzip": "gzip", "bz2": "bz2", "xz": "lzma"}
_DECOMPRESSOR_TYPES = {"bz2": "BZ2Decompressor", "xz": "LZMADecompressor"}
"""Decompressors of the modules whose readers ignore a damaged stream after another one."""
_MODULES_WITH_ERRORS = (
    ("lzma", "LZMAError"),
    ("compression.zstd", "ZstdError"),
    ("backports.zstd", "ZstdError"),
)
_WINDOW_TOO_LARGE = "too much memory"
"""Part of zstd's error for a file that was compressed with `zstd --long=28` or more."""
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))


def open_source(path: Path) -> BinaryIO:
    """Opens a corpus file for reading in binary mode.

    Raises:
        OSError: the file can't be opened.
        InvalidArgumentError: the path is a directory, a pipe or a device.
    """
    try:
        return open_regular(path)
    except NotRegularFileError:
        reason, hint = describe_irregular_path(path) or (
            f"{get_path_or_url(path)} is not a regular file",
            None,
        )
        raise InvalidArgumentError(reason, hint=hint) from None


@contextmanager
def open_decompressed(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Opens a file that may be compressed. Read from it inside of `report_damage`.

    Yields:
        `(file, stream)`: the file, whose position is the progress in compressed bytes, and the stream of its
        decompressed contents. Both are the same object if the file is not compressed.

    Raises:
        MissingExtraError: the file is compressed with zstd, which this Python can't decompress.
        SourceError: a compressed file is empty.
    """
    with open_source(path) as file:
        if not is_compressed(path):
            yield file, file
            return
        name = COMPRESSED[path.suffix.lower()]
        if not os.fstat(file.fileno()).st_size:
            raise SourceError(
                f"{get_path_or_url(path)} is empty, but a valid {name} file is never empty; is it truncated?"
            )
        module = _import_decompressor(name, path)
        with (
            open_streams(file, getattr(module, _DECOMPRESSOR_TYPES[name]))
            if name in _DECOMPRESSOR_TYPES
            else module.open(file, "rb")
        ) as stream:
            yield file, stream


def _import_decompressor(name: str, path: Path) -> Any:
    """Imports the module of a compression format. Python may be built without any of them."""
    if name != "zstd":
        return importlib.import_module(_MODULES[name])
    try:
        return importlib.import_module("compression.zstd")  # from Python 3.14
    except ModuleNotFoundError:
        # Not the library `zstandard`: its reader takes the end of a truncated file as the end of the text.
        return import_optional("backports.zstd", extra="zstd", purpose=f"reading {get_path_or_url(path)}")


@contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Converts errors of decompression to errors that name the file.

    Raises:
        SourceError: the file is truncated or damaged.
    """
    errors: list[type[Exception]] = [EOFError, OSError, zlib.error]
    for name, error_name in _MODULES_WITH_ERRORS:
        module = sys.modules.get(name)  # loaded by `open_decompressed` if it is needed
        if module is not None:
            errors.append(getattr(module, error_name))
    try:
        yield
    except tuple(errors) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        name = COMPRESSED.get(path.suffix.lower(), "readable")
        if _WINDOW_TOO_LARGE in str(error):
            raise SourceError(
                f"{get_path_or_url(path)}: was compressed with a window of more than 128 MiB; decompress it "
                "with zstd -d --long=31"
            ) from error
        raise SourceError(f"{get_path_or_url(path)}: truncated or damaged, or not {name}: {error}") from error


def check_are_text(files: TextFiles) -> None:
    """Checks that the first 64 KiB of each file are text, before any work begins.

    Tables, archives and files of records are only opened: their format declares what is text.

    Raises:
        InvalidArgumentError: a path is a directory, a pipe or a device.
        SourceError: a file contains NUL bytes or invalid UTF-8, a file is damaged, or all files are empty.
    """
    empty = []
    for path in files.paths:
        if get_format(path, files) in BINARY_FORMATS:
            open_source(path).close()
            continue
        with open_decompressed(path) as (_, stream), report_damage(path):
            head = stream.read(HEAD_BYTES)
        if not head:
            empty.append(path)
        check_is_text(head, get_path_or_url(path))
    if len(empty) == len(files.paths):
        subject = f"{get_path_or_url(empty[0])} is" if len(empty) == 1 else f"all {len(empty)} files are"
        raise SourceError(f"{subject} empty; there is nothing to read")


def check_is_text(head: bytes, name: str) -> None:
    """Checks that a file contains text.

    Args:
        head: the first `HEAD_BYTES` bytes of the file, or all of its bytes.
        name: the name of the file in errors.

    Raises:
        SourceError: the bytes are not UTF-8 text. The error suggests the actual format of the file.
    """
    position = find_invalid_utf8(head, complete=len(head) < HEAD_BYTES)
    nul = head.find(b"\0")
    if position is None and nul < 0:
        return
    if position is None or 0 <= nul < position:
        position, problem = nul, "is NUL"
    else:
        problem = f"(0x{head[position]:02x}) is not valid UTF-8"
    cause = next((cause for magic, cause in _MAGIC if head.startswith(magic)), None)
    cause = cause or _suggest_conversion(head) or "probably binary"
    hint = Hint("to encode its bytes as they are, pass [path.read_bytes()]", "")
    if cause in _HINTS:
        hint = Hint(f"{_HINTS[cause].python}; {hint.python}", _HINTS[cause].shell)
    raise SourceError(
        f"{name}: byte {position} {problem}, but text is expected; the file is {cause}", hint=hint
    )


def _suggest_conversion(head: bytes) -> str | None:
    """Returns the likely encoding of a text file with a command that converts it; `None` for binary files."""
    encoding = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if head.startswith(mark)), None)
    if encoding is not None:
        return f"text in {encoding.upper()}; convert it with iconv -f {encoding} -t utf-8"
    if b"\0" in head or len(head.translate(None, _CONTROL)) != len(head):
        return None
    return "probably text in another encoding, such as Latin-1; convert it with iconv -f latin1 -t utf-8"


def find_invalid_utf8(data: bytes, *, complete: bool = True) -> int | None:
    r"""Returns the 0-based position of the first byte that is not valid UTF-8, or `None`.

    Args:
        data: the bytes to check.
        complete: whether a character that is truncated at the end counts as invalid.

    >>> find_invalid_utf8("é".encode()), find_invalid_utf8(b"a\xe9")
    (None, 1)
    >>> find_invalid_utf8(b"a\xe9", complete=False) is None
    True
    """
    if data.isascii():
        return None
    try:
        codecs.utf_8_decode(data, "strict", complete)
    except UnicodeDecodeError as error:
        return error.start
    return None


_BLOCK = 1 << 16


def open_streams(file: BinaryIO, make_decompressor: Callable[[], Any]) -> BinaryIO:
    """Opens the decompressed contents of all streams of a file.

    Args:
        file: the compressed file.
        make_decompressor: `bz2.BZ2Decompressor` or `lzma.LZMADecompressor`.

    Returns:
        The contents. Reading raises `EOFError` if the last stream is truncated, and the error of the module
        if the data of a stream, or after a stream, are not valid.
    """
    return io.BufferedReader(_Streams(file, make_decompressor), _BLOCK)


class _Streams(io.RawIOBase):
    def __init__(self, file: BinaryIO, make_decompressor: Callable[[], Any]) -> None:
        self._file, self._make_decompressor = file, make_decompressor
        self._decompressor = make_decompressor()
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        """Returns `True`: the buffer can be moved to a position that it holds, such as the current one."""
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decompressor.eof:
                data = self._read_after_stream()
                if not data:
                    return 0
                self._decompressor = self._make_decompressor()
            elif self._decompressor.needs_input:
                data = self._file.read(_BLOCK)
                if not data:
                    raise EOFError("the last stream has no end")
            else:
                data = b""
            contents = self._decompressor.decompress(data, len(buffer))
            if contents:
                buffer[: len(contents)] = contents
                self._position += len(contents)
                return len(contents)

    def _read_after_stream(self) -> bytes:
        """Returns the first data after a stream and its padding of zeros; `b""` at the end of the file."""
        data: bytes = self._decompressor.unused_data or self._file.read(_BLOCK)
        while data and not data.strip(b"\0"):
            data = self._file.read(_BLOCK)
        return data.lstrip(b"\0")
