"""Text as UTF-8 bytes, and where each character of it stands.

Three kinds of text have no UTF-8 encoding of their own, and each has one defined meaning here:

* A lone surrogate in a `str` is read as U+FFFD, the replacement character, and a high surrogate followed
  by a low one as the character that the pair stands for. (This is what tiktoken does.)
* A byte that is not valid UTF-8 in a `bytes` text is a character of its own, of no class: no letter, no
  number, no white space. It is never replaced or dropped.
* NUL is a character like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Text: TypeAlias = str | bytes
"""What every function of tokjax takes for text."""


def to_utf8(text: Text) -> bytes:
    r"""The bytes that offsets count.

    Args:
        text: any `str` or `bytes`; see the module's notes on surrogates and invalid bytes.

    Returns:
        The UTF-8 encoding of a `str`; a `bytes` text as it is.

    >>> to_utf8("é"), to_utf8("\ud800"), to_utf8(b"\xff")
    (b'\xc3\xa9', b'\xef\xbf\xbd', b'\xff')
    """
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return _replace_surrogates(text).encode("utf-8")
    except AttributeError:
        raise _make_type_error(text) from None


def count_bytes(text: Text) -> int:
    """How many bytes `to_utf8` gives; quick where that is how many characters there are.

    >>> count_bytes("é"), count_bytes("e"), count_bytes(b"")
    (2, 1, 0)
    """
    try:
        return len(text) if isinstance(text, bytes) or text.isascii() else len(to_utf8(text))
    except AttributeError:
        raise _make_type_error(text) from None


def to_characters(text: Text) -> str:
    r"""A `str` for pattern matching, whose every invalid byte is one character (U+DC80 to U+DCFF).

    `from_characters` is its inverse: the two together give `to_utf8(text)`.

    >>> to_characters(b"a\xff")
    'a\udcff'
    """
    if isinstance(text, bytes):
        return text.decode("utf-8", "surrogateescape")
    try:
        return text if text.isascii() or is_encodable(text) else _replace_surrogates(text)
    except AttributeError:
        raise _make_type_error(text) from None


def from_characters(characters: str) -> bytes:
    """The bytes of what `to_characters` gave, or of any slice of it."""
    return characters.encode("utf-8", "surrogateescape")


def find_character_starts(text: Text) -> NDArray[np.int64]:
    r"""The 0-based byte position at which each character starts, and last the number of bytes.

    The characters are those of the `str` as given (the two halves of a surrogate pair are two of them:
    the first has all four bytes), or those of `to_characters` for `bytes`.

    Args:
        text: `n` characters.

    Returns:
        `int64`, shape `(n + 1,)`, never falling.

    >>> find_character_starts("aé€").tolist()
    [0, 1, 3, 6]
    """
    if not isinstance(text, (str, bytes)):
        raise _make_type_error(text)
    if text.isascii():
        return np.arange(len(text) + 1)
    if isinstance(text, bytes):
        codes = _to_code_points(to_characters(text))
        widths = _compute_widths(codes)
        widths[(codes >= 0xDC80) & (codes <= 0xDCFF)] = 1
    else:
        codes = _to_code_points(text)
        widths = _compute_widths(codes)
        pair = np.flatnonzero(_is_high_surrogate(codes[:-1]) & _is_low_surrogate(codes[1:]))
        widths[pair], widths[pair + 1] = 4, 0
    starts = np.zeros(len(codes) + 1, np.int64)
    np.cumsum(widths, out=starts[1:])
    return starts


def decode_characters_at(text: bytes, leads: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Characters of several bytes, anywhere in valid UTF-8.

    Args:
        text: valid UTF-8.
        leads: the first byte of each character, all of them above 0x7F.

    Returns:
        How many bytes each has, and its code point.
    """
    four = np.ndarray((len(text),), "<u4", text + bytes(3), 0, (1,))[leads]
    first, second, third, fourth = ((four >> np.uint32(8 * i)) & np.uint32(0xFF) for i in range(4))
    widths = 2 + (first >= 0xE0).astype(np.int64) + (first >= 0xF0)
    codes = [(first & 0x1F) << 6 | second & 0x3F]
    codes.append((first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F)
    codes.append((first & 0x07) << 18 | (second & 0x3F) << 12 | (third & 0x3F) << 6 | fourth & 0x3F)
    return widths, np.choose(widths - 2, codes)


def is_encodable(text: str) -> bool:
    """Whether a text is free of surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _make_type_error(text: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"a text must be str or bytes, not {type(text).__name__}")


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _to_code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _compute_widths(codes: NDArray[np.uint32]) -> NDArray[np.int64]:
    return 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)


def _is_high_surrogate(codes: NDArray[Any]) -> NDArray[np.bool_]:
    return (codes >= 0xD800) & (codes < 0xDC00)


def _is_low_surrogate(codes: NDArray[Any]) -> NDArray[np.bool_]:
    return (codes >= 0xDC00) & (codes < 0xE000)
