"""Protocol buffers, as far as SentencePiece's need to be read: the `protobuf` package is no dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARINT, _EIGHT_BYTES, _LENGTH_FIRST, _FOUR_BYTES = 0, 1, 2, 5


def fields_of(message: bytes) -> Iterator[tuple[int, Any]]:
    r"""The fields of a serialized message in their order: the number of each, and its value.

    Args:
        message: one serialized message.

    Returns:
        Integers, and the bytes of what is no integer: strings, messages, floating-point numbers.

    Raises:
        ValueError: the bytes are no message, or were cut.

    >>> list(fields_of(b"\x08\x96\x01\x12\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        size, at = _varint(message, at) if kind in (_VARINT, _LENGTH_FIRST) else (_fixed_size(kind), at)
        if kind == _VARINT:
            yield number, size
            continue
        if at + size > len(message):
            raise ValueError("cut short: a field goes on behind the end")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The integer that starts at a place, and where it ends."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("cut short: the last integer has no end")


def _fixed_size(kind: int) -> int:
    if kind not in (_EIGHT_BYTES, _FOUR_BYTES):
        raise ValueError(f"no protocol buffer: there is no wire type {kind}")
    return 8 if kind == _EIGHT_BYTES else 4
