r"""Texts as UTF-8 bytes, and the byte positions of their characters.

A text is a `str` or `bytes`. Offsets count the bytes of `to_utf8(text)`; patterns match the characters of
`to_characters(text)`:

    text                  "aé\ud83d\ude42"                b"a\xff"
    to_utf8               61 | C3 A9 | F0 9F 99 82         61 | FF
    to_characters         "aé🙂"                            "a\udcff"
    characters start at   0, 1, 3 and 7 (two halves        0, 1
                          of a surrogate pair)
    number of bytes       7                                2

Inputs that are not valid Unicode text have a defined meaning:

* A lone surrogate in a `str` becomes U+FFFD, the replacement character. A high surrogate before a low one is
  the character that the pair encodes. (tiktoken does the same.)
* An invalid byte in a `bytes` text is one character, neither a letter nor a number nor whitespace. It is
  never replaced or dropped. In `to_characters` it is one of U+DC80 to U+DCFF ("surrogateescape").
* NUL is an ordinary character.

See docs/offsets.md, "Unusual input".
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Text: TypeAlias = str | bytes
"""Type of the texts that all functions of tokjax take."""


def to_utf8(text: Text) -> bytes:
    r"""Returns the UTF-8 bytes of a text. Offsets count these bytes.

    Args:
        text: any `str` or `bytes`, including surrogates (a lone one becomes U+FFFD) and invalid bytes.

    Returns:
        The UTF-8 encoding of a `str`, or a `bytes` text without changes.

    Raises:
        InvalidArgumentError: the text is neither `str` nor `bytes`.

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
    """Counts the bytes of `to_utf8(text)`, without encoding `bytes` or ASCII text.

    >>> count_bytes("é"), count_bytes("e"), count_bytes(b"")
    (2, 1, 0)
    """
    try:
        return len(text) if isinstance(text, bytes) or text.isascii() else len(to_utf8(text))
    except AttributeError:
        raise _make_type_error(text) from None


def to_characters(text: Text) -> str:
    r"""Returns a text as a `str` for pattern matching. Each invalid byte is one character (U+DC80 to U+DCFF).

    `from_characters(to_characters(text))` equals `to_utf8(text)`.

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
    """Returns the bytes of a result of `to_characters`, or of any slice of one."""
    return characters.encode("utf-8", "surrogateescape")


def check_error_handler(errors: str) -> None:
    """Raises `InvalidArgumentError` unless `errors` is the name of an error handler, as in `bytes.decode`."""
    try:
        codecs.lookup_error(errors)
    except (LookupError, TypeError, ValueError):
        raise InvalidArgumentError(
            "errors must be 'replace', 'strict', 'ignore' or another error handler of bytes.decode, not "
            f"{errors!r:.100}"
        ) from None


def encode_segment(text: str, hold_bytes: bool) -> bytes:
    """Returns the bytes of a segment: of characters that hold invalid bytes, or of a text."""
    return from_characters(text) if hold_bytes else to_utf8(text)


def find_character_starts(text: Text) -> NDArray[np.int64]:
    r"""Returns the 0-based byte position of each character, followed by the number of bytes.

    The characters of a `str` are Python's. The two halves of a surrogate pair are two characters: the first
    has all four bytes, and the second has none. The characters of `bytes` are those of `to_characters`.

    Args:
        text: a text of `n` characters.

    Returns:
        Byte positions in ascending order, `int64`, shape `(n + 1,)`.

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
        widths[(codes >= 0xDC80) & (codes <= 0xDCFF)] = 1  # an invalid byte
    else:
        codes = _to_code_points(text)
        widths = _compute_widths(codes)  # 3 for a lone surrogate, as for U+FFFD, by which it is replaced
        pair = np.flatnonzero((codes[:-1] >> 10 == 0xD800 >> 10) & (codes[1:] >> 10 == 0xDC00 >> 10))
        widths[pair], widths[pair + 1] = 4, 0
    starts = np.zeros(len(codes) + 1, np.int64)
    np.cumsum(widths, out=starts[1:])
    return starts


def decode_characters_at(text: bytes, leads: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Decodes characters of two to four bytes at given positions, without a loop.

    Args:
        text: valid UTF-8.
        leads: 0-based positions of the first bytes of the characters, shape `(n,)`; the bytes are above 0x7F.

    Returns:
        The number of bytes of each character, `int64`, and its code point, both of shape `(n,)`.
    """
    # A view with a stride of one byte: element i is the bytes i to i + 3 as one little-endian integer. The
    # three extra bytes keep the last elements in bounds. All three widths are decoded, and the right one is
    # chosen.
    four = np.ndarray((len(text),), "<u4", text + bytes(3), 0, (1,))[leads]
    first, second, third, fourth = ((four >> np.uint32(8 * i)) & np.uint32(0xFF) for i in range(4))
    widths = 2 + (first >= 0xE0).astype(np.int64) + (first >= 0xF0)
    codes = [(first & 0x1F) << 6 | second & 0x3F]
    codes.append((first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F)
    codes.append((first & 0x07) << 18 | (second & 0x3F) << 12 | (third & 0x3F) << 6 | fourth & 0x3F)
    return widths, np.choose(widths - 2, codes)


def is_encodable(text: str) -> bool:
    """Returns whether a text has a UTF-8 encoding, that is, no surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _make_type_error(text: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"a text must be str or bytes, not {type(text).__name__}")


def _replace_surrogates(text: str) -> str:
    # UTF-16 has surrogates as code units: decoding it joins pairs, and replaces lone ones by U+FFFD.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _to_code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _compute_widths(codes: NDArray[np.uint32]) -> NDArray[np.int64]:
    return 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
