"""Precompiled character maps of SentencePiece models: sequences of characters and their replacements.

A map is stored as a trie in a double array, as darts-clone writes it, followed by the replacements. A unit of
the array is a 32-bit integer:

    bits 0 to 7     the byte that leads to the unit (its label); bit 31 is 0
    bit 8           whether a key ends here
    bits 10 to 30   offset of the children; 256 times as large if bit 9 is set

The child of the unit at `p` for byte `b` is at `p ^ offset ^ b`, and exists if its label is `b`. Where a key
ends, the unit at `p ^ offset` holds the position of its replacement.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

_HAS_VALUE, _IS_FAR, _VALUE_BITS = 1 << 8, 1 << 9, (1 << 31) - 1
_LABEL_BITS = 1 << 31 | 0xFF
_MAX_CACHED = 1 << 14


class CharacterTrie:
    """A precompiled character map, for looking up prefixes.

    Args:
        charsmap: size of the trie (4 bytes, little-endian), the trie, and the replacements in UTF-8, each
            followed by a zero byte; empty for none.

    Raises:
        ValueError: the size is wrong, or the replacements are not valid UTF-8.
    """

    def __init__(self, charsmap: bytes) -> None:
        size = int.from_bytes(charsmap[:4], "little")
        if charsmap and (size % 4 or not 4 <= size <= len(charsmap) - 4):
            raise ValueError(f"a trie of {size} bytes can't be in a character map of {len(charsmap)} bytes")
        self._units: list[int] = np.frombuffer(charsmap, "<u4", size // 4, 4).tolist() if charsmap else [0]
        self._values = charsmap[4 + size :]
        self._values.decode("utf-8")
        self.find = lru_cache(maxsize=_MAX_CACHED)(self._find)

    def _find(self, text: str) -> str | None:
        """Returns the replacement of the shortest prefix of a text that has one, or `None`."""
        for position, has_value in self._walk(text):
            if has_value:
                start = (self._units[position] if position < len(self._units) else 0) & _VALUE_BITS
                return self._values[start : self._values.find(b"\0", start)].decode("utf-8", "replace")
        return None

    def begins_key(self, character: str) -> bool:
        """Returns whether a character is the start of a sequence that is replaced, or is itself replaced."""
        return len(list(self._walk(character))) == len(character.encode("utf-8"))

    def _walk(self, text: str) -> Iterator[tuple[int, bool]]:
        """Yields the position of each prefix of a text in bytes, and whether it has a value there."""
        position = self._get_offset(self._units[0])
        for byte in text.encode("utf-8"):
            position ^= byte
            unit = self._units[position] if position < len(self._units) else 0
            if not byte or unit & _LABEL_BITS != byte:
                return
            position ^= self._get_offset(unit)
            yield position, bool(unit & _HAS_VALUE)

    def _get_offset(self, unit: int) -> int:
        return (unit >> 10) << ((unit & _IS_FAR) >> 6)
