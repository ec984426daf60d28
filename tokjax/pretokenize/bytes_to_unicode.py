"""The `bytes_to_unicode` mapping of GPT-2: one printable character per byte.

The vocabulary files of GPT-2 and of Hugging Face's byte-level tokenizers write tokens in these characters.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)
_CHARACTERS = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(256 + i) for i, byte in enumerate(_OTHERS)
}
BYTES = tuple(_CHARACTERS)
"""All bytes in the order of the ids of GPT-2 and CLIP: the printable bytes first."""
ALPHABET = tuple(_CHARACTERS.values())
"""The characters of `BYTES`, in the same order."""
_NO_BYTE = "\uffff"
_BYTES = dict.fromkeys(range(256), _NO_BYTE)
_BYTES |= {ord(character): chr(byte) for byte, character in _CHARACTERS.items()}
_NOT_A_BYTE, _SEPARATOR = 256, "\ud800"
_BYTE_OF_CODE = np.full(max(_BYTES) + 2, _NOT_A_BYTE, np.uint16)
_BYTE_OF_CODE[[ord(character) for character in ALPHABET]] = BYTES


def map_bytes_to_unicode(token: bytes) -> str:
    """Returns the characters of the bytes of a token.

    >>> map_bytes_to_unicode(b" the")
    'Ġthe'
    """
    return token.decode("latin-1").translate(_CHARACTERS)


def map_unicode_to_bytes(form: str) -> bytes | None:
    """Returns the bytes of characters, or `None` if a character does not represent a byte.

    >>> map_unicode_to_bytes("Ġthe"), map_unicode_to_bytes("日")
    (b' the', None)
    """
    try:
        return form.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return None


def map_all_unicode_to_bytes(forms: Iterable[str]) -> list[bytes | None]:
    """Applies `map_unicode_to_bytes` to many strings, with a few array operations.

    All strings are decoded as one string, joined by a character that does not represent a byte.

    Args:
        forms: the tokens, written in the characters of `ALPHABET`.

    Returns:
        The bytes of each token, or `None` if it has a character that does not represent a byte.

    >>> map_all_unicode_to_bytes(["Ġthe", "日", ""])
    [b' the', None, b'']
    """
    form_list = list(forms)
    text = _SEPARATOR.join(form_list)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    values = _BYTE_OF_CODE.take(codes, mode="clip")
    data = values.astype(np.uint8).tobytes()
    ends = np.cumsum(np.fromiter(map(len, form_list), np.int64, len(form_list)) + 1)
    tokens: list[bytes | None] = [data[start : stop - 1] for start, stop in pairwise([0, *ends.tolist()])]
    values[ends[:-1] - 1] = 0  # separators do not make a token invalid
    for i in np.searchsorted(ends, np.flatnonzero(values == _NOT_A_BYTE), side="right").tolist():
        tokens[i] = None
    return tokens
