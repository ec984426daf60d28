"""Where text can be cut that no pattern splits: between characters that no token holds side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.bpe.chunks import starts_in_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Pieces

_BITS = 20
_FACTORS = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77)
_LOOK_AHEAD = 1 << 12
_SEPARATOR, _SURROGATES = b"\xff", 0xD800 >> 11
_SECOND_SURROGATES = 0xDC00 >> 10  # these may belong to the characters before them


class JoinedCutter:
    """Finds words that merge for themselves: no token that merging makes reaches from one into the next.

    The pairs of characters that stand side by side in tokens are kept by a hash. Two pairs of one hash only
    make words longer than they need be.

    Args:
        tokens: the bytes of those that merging can make, parts of characters among them.
        before_blanks: whether a word starts at each blank in any case.
    """

    def __init__(self, tokens: Iterable[bytes], *, before_blanks: bool) -> None:
        # Bytes that make no character, the separator among them, become lone surrogates, which join nothing.
        codes = _codes(_SEPARATOR.join(tokens).decode("utf-8", "surrogateescape"))
        is_text = codes >> 11 != _SURROGATES
        inside = is_text[:-1] & is_text[1:]
        self._joins = np.zeros(1 << _BITS, bool)
        self._joins[_hash(codes[:-1][inside], codes[1:][inside])] = True
        self._before_blanks = before_blanks

    def words(self, text: str) -> list[str]:
        """The words of a text; joined, they are the text."""
        starts = np.flatnonzero(self._starts_word(_codes(text))).tolist()
        return [text[start:stop] for start, stop in pairwise([*starts, len(text)])]

    def cut(self, text: str, target: int) -> int:
        """The first place at or after `target` where a word starts, or the end."""
        while 0 < target < len(text):
            codes = _codes(text[target - 1 : target + _LOOK_AHEAD])
            flags = (self._starts_word(codes) & (codes >> 10 != _SECOND_SURROGATES))[1:]
            if flags.any():
                return target + int(flags.argmax())
            target += len(flags)
        return len(text)

    def starts(self, text: bytes, pieces: Pieces, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where words start in the UTF-8 of pieces, each with a newline behind it."""
        of_characters = pieces.ends_in_characters()
        is_ascii = of_characters[-1] == ends[-1]
        codes = np.frombuffer(text, np.uint8) if is_ascii else pieces.codes()
        flags = self._starts_word(codes)
        flags[of_characters[:-1] + 1] = True
        flags[of_characters] = False
        return np.flatnonzero(flags) if is_ascii else starts_in_bytes(flags, text)

    def _starts_word(self, codes: NDArray[Any]) -> NDArray[np.bool_]:
        """Which characters of a text start a word."""
        starts = np.ones(len(codes), bool)
        np.logical_not(self._joins.take(_hash(codes[:-1], codes[1:])), out=starts[1:])
        if self._before_blanks:
            starts[codes == ord(" ")] = True
        return starts


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _hash(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.uint32]:
    mixed = left * _FACTORS[0]
    mixed ^= right * _FACTORS[1]
    mixed >>= np.uint32(32 - _BITS)
    return mixed
