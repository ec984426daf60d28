"""Files of bzip2 and xz, which can have several streams: those of `pbzip2`, or concatenated files.

    file        BZh9 ... end | BZh9 ... end | BZh9 ... end
    contents    "one "         "two "         "three"

The modules of Python ignore data after a stream that do not begin another one. So a bit that changes in the
header of the second stream would end this file after "one ", without an error.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable

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
