"""Ordinary text as chunks of characters, bytes and word starts: what the engine looks up at once."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.models._word_tables import LONGEST, Words
from tokjax.text.boundaries import word_starts
from tokjax.text.unicode_classes import END, LETTER, LOWER, NUMBER, UPPER, class_of_code_point
from tokjax.utf8 import character_starts, from_characters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.text.patterns import WordSplitter

CHUNK_CHARACTERS = 1 << 18
"""Characters a chunk: its arrays stay in the processor's cache."""
_FIRST_OF_CHARACTER = -0x40
_MAYBE_SAFE_CUT = re.compile(r"[^\W_](?=[ \n])")
_BEFORE_CUT = (UPPER, LOWER, LETTER, NUMBER)


class Pieces(NamedTuple):
    """Texts, or parts of texts, that are encoded together.

    Attributes:
        texts: characters as `to_characters` gives them.
        ends_segment: whether each is the last part of its segment.
    """

    texts: list[str]
    ends_segment: list[bool]


class Chunk(NamedTuple):
    """The words of some pieces.

    Attributes:
        words: in UTF-8, those of all pieces.
        stops: how many words there are up to the end of each piece, `int64`, shape `(pieces,)`.
        starts: where each piece starts among the bytes of `words`, `int64`, shape `(pieces,)`.
    """

    words: Words
    stops: NDArray[np.int64]
    starts: NDArray[np.int64]


def gather(segments: Sequence[str], *, safe_cuts: bool) -> Iterator[Pieces]:
    """Segments put together, or cut up, to chunks of about one size.

    Args:
        segments: texts, each of them encoded on its own.
        safe_cuts: whether a long one may be cut between words. (With a pattern that is not known it can't.)
    """
    pieces, size = Pieces([], []), 0
    for segment in segments:
        start = 0
        while True:
            stop = _cut(segment, start + CHUNK_CHARACTERS - size) if safe_cuts else len(segment)
            pieces.texts.append(segment[start:stop])
            pieces.ends_segment.append(stop == len(segment))
            size += stop - start + 1
            start = stop
            if size >= CHUNK_CHARACTERS:
                yield pieces
                pieces, size = Pieces([], []), 0
            if start == len(segment):
                break
    if pieces.texts:
        yield pieces


def cut_into_words(pieces: Pieces, splitter: WordSplitter) -> Chunk:
    """Find the words of all pieces. They are joined by a character that is a word of its own, and left out."""
    joined = "\n".join(pieces.texts) + "\n"
    lengths = np.fromiter(map(len, pieces.texts), np.int64, len(pieces.texts))
    ends = np.cumsum(lengths + 1) - 1
    is_ascii = joined.isascii()
    encoded = _encoded(joined)
    data = np.frombuffer(encoded + bytes(LONGEST), np.uint8)
    codes: NDArray[Any] = data[:-LONGEST]
    if not is_ascii:
        codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    if splitter.name is None:
        flags = _starts_by_expression(pieces.texts, splitter, len(codes))
    else:
        classes = _ascii_classes(encoded) if is_ascii else class_of_code_point().take(codes, mode="clip")
        classes[ends] = END
        flags = word_starts(splitter.name, classes, codes)
    flags[ends] = False
    starts = np.flatnonzero(flags)
    stops = np.searchsorted(starts, ends)
    if not is_ascii:
        positions = _byte_positions(encoded, len(joined))
        starts, ends = positions.take(starts), positions.take(ends)
    lengths = np.diff(starts, append=len(encoded))
    filled = np.flatnonzero(np.diff(stops, prepend=0))
    last = stops[filled] - 1
    lengths[last] = ends[filled] - starts[last]
    return Chunk(Words(data, starts, lengths), stops, np.append(0, ends[:-1] + 1))


def _cut(segment: str, target: int) -> int:
    """The first safe cut at or after `target`: between a letter or number and a blank or newline."""
    if target < len(segment):
        for found in _MAYBE_SAFE_CUT.finditer(segment, max(target - 1, 0)):
            if class_of_code_point()[ord(found.group())] in _BEFORE_CUT:
                return found.end()
    return len(segment)


def _encoded(characters: str) -> bytes:
    try:
        return characters.encode("utf-8")
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return from_characters(characters)


def _ascii_classes(encoded: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(encoded).translate(_class_of_low_byte()), np.uint8)


@lru_cache(maxsize=1)
def _class_of_low_byte() -> bytes:
    return class_of_code_point()[:256].tobytes()


def _byte_positions(encoded: bytes, characters: int) -> NDArray[np.int64]:
    """Where each character starts in UTF-8."""
    starts = np.flatnonzero(np.frombuffer(encoded, np.int8) >= _FIRST_OF_CHARACTER)
    return starts if len(starts) == characters else character_starts(encoded)


def _starts_by_expression(texts: list[str], splitter: WordSplitter, size: int) -> NDArray[np.bool_]:
    lengths: list[int] = []
    for text in texts:
        lengths += map(len, splitter.words(text))
        lengths.append(1)
    flags = np.zeros(size, bool)
    flags[np.cumsum(np.array(lengths, np.int64)) - lengths] = True
    return flags
