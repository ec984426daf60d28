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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_MAX_KEY_BYTES, _MAX_NODES = 64, 1 << 21
_HAS_VALUE, _IS_FAR, _VALUE_BITS = np.uint32(1 << 8), np.uint32(1 << 9), np.uint32((1 << 31) - 1)
_LABEL_BITS = np.uint32(1 << 31 | 0xFF)
_NUM_LABELS = 256
_MAX_CACHED = 1 << 14
_LEAD_BITS = np.array([0x7F] * 0xC0 + [0x1F] * 0x20 + [0x0F] * 0x10 + [0x07] * 0x10, np.uint32)


class CharacterMap(NamedTuple):
    """The part of a precompiled character map that applies to single characters.

    Attributes:
        replacements: characters, mapped to their replacements.
        joining: the last characters of all longer sequences that are replaced. In a text without any of
            these, each character is replaced separately.
    """

    replacements: dict[str, str]
    joining: frozenset[str]


def parse_character_map(charsmap: bytes) -> CharacterMap:
    """Parses a precompiled character map.

    Args:
        charsmap: size of the trie (4 bytes, little-endian), the trie, and the replacements in UTF-8, each
            followed by a zero byte; empty for none.

    Raises:
        ValueError: the map is damaged.
    """
    if not charsmap:
        return CharacterMap({}, frozenset())
    size = int.from_bytes(charsmap[:4], "little")
    if size % 4 or not 4 <= size <= len(charsmap) - 4:
        raise ValueError(f"a trie of {size} bytes can't be in a character map of {len(charsmap)} bytes")
    units = np.frombuffer(charsmap, "<u4", size // 4, 4)
    values = charsmap[4 + size :]
    replacements: dict[str, str] = {}
    joining: set[str] = set()
    # All units that can be a child, in the order of the position that their parent would have.
    labels = units & _LABEL_BITS
    children = np.flatnonzero((labels > 0) & (labels < _NUM_LABELS)).astype(np.uint32)
    of_parents = children ^ labels[children]
    order = np.argsort(of_parents, kind="stable")
    children, of_parents = children[order], of_parents[order]
    # The trie is searched in breadth: all prefixes of one length at a time.
    positions = _get_offsets(units[:1])
    characters, codes = np.zeros((2, 1), np.uint32)  # number of characters, and the last one
    for _ in range(_MAX_KEY_BYTES):
        firsts = np.searchsorted(of_parents, positions)
        counts = np.searchsorted(of_parents, positions, "right") - firsts
        num_found = int(counts.sum())
        if not num_found:
            return CharacterMap(replacements, frozenset(joining))
        if num_found > _MAX_NODES:
            break
        parents = np.repeat(np.arange(len(counts)), counts)
        found = children[concatenate_ranges(firsts, counts)]
        positions = found ^ _get_offsets(units[found])
        characters, codes = _append_bytes(characters[parents], codes[parents], labels[found])
        ends_key = units[found] & _HAS_VALUE > 0
        joining.update(map(chr, np.unique(codes[ends_key & (characters > 1)]).tolist()))
        single = np.flatnonzero(ends_key & (characters == 1))
        starts = units.take(positions[single], mode="clip") & _VALUE_BITS
        for code, start in zip(codes[single].tolist(), starts.tolist(), strict=True):
            replacements[chr(code)] = values[start : values.index(b"\0", start)].decode("utf-8")
    raise ValueError("the trie of the character map has too many keys, or a cycle")


def _get_offsets(units: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return (units >> np.uint32(10)) << ((units & _IS_FAR) >> np.uint32(6))


def _append_bytes(
    characters: NDArray[np.uint32], codes: NDArray[np.uint32], labels: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Appends a byte of UTF-8 to prefixes.

    Args:
        characters: number of characters of each prefix, shape `(prefixes,)`.
        codes: the last, perhaps incomplete, code point of each prefix, shape `(prefixes,)`.
        labels: the bytes, shape `(prefixes,)`.

    Returns:
        The number of characters, and the last code point, of each longer prefix.
    """
    continues = labels >> np.uint32(6) == 0b10
    appended = np.where(
        continues, codes << np.uint32(6) | labels & np.uint32(0x3F), labels & _LEAD_BITS[labels]
    )
    return characters + ~continues, appended


class CharacterTrie:
    """A precompiled character map, for looking up prefixes.

    Args:
        charsmap: as in `parse_character_map`.

    Attributes:
        characters: the part of the map that applies to single characters.

    Raises:
        ValueError: the map is damaged.
    """

    def __init__(self, charsmap: bytes) -> None:
        self.characters = parse_character_map(charsmap)
        size = int.from_bytes(charsmap[:4], "little")
        self._units: list[int] = np.frombuffer(charsmap, "<u4", size // 4, 4).tolist() if charsmap else [0]
        self._values = charsmap[4 + size :]
        self.find = lru_cache(maxsize=_MAX_CACHED)(self._find)

    def _find(self, text: str) -> str | None:
        """Returns the replacement of the shortest prefix of a text that has one, or `None`."""
        for position, has_value in self._walk(text):
            if has_value:
                start = self._units[position] & _VALUE_BITS.item()
                return self._values[start : self._values.index(b"\0", start)].decode("utf-8")
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
            if not byte or unit & _LABEL_BITS.item() != byte:
                return
            position ^= self._get_offset(unit)
            yield position, bool(unit & _HAS_VALUE.item())

    def _get_offset(self, unit: int) -> int:
        return (unit >> 10) << ((unit & _IS_FAR.item()) >> 6)
