"""Ordinary text as chunks of characters, bytes and word starts: what the engine looks up at once."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.text.boundaries import word_starts
from tokjax.text.unicode_classes import END, LETTER, LOWER, NUMBER, UPPER, class_of_code_point
from tokjax.utf8 import from_characters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.text.patterns import WordSplitter

CHUNK_CHARACTERS = 1 << 18
"""Characters a chunk: its arrays stay in the processor's cache."""
_MAYBE_SAFE_CUT = re.compile(r"[^\W_](?=[ \n])")
_BEFORE_CUT = (UPPER, LOWER, LETTER, NUMBER)
_PADDING = 16


class Pieces(NamedTuple):
    """Texts, or parts of texts, that are encoded together.

    Attributes:
        texts: characters as `to_characters` gives them.
        ends_segment: whether each is the last part of its segment.
    """

    texts: list[str]
    ends_segment: list[bool]


class Chunk(NamedTuple):
    """The words of some pieces; after each piece stands one word that is no word.

    Attributes:
        data: UTF-8, with padding behind it, `uint8`.
        starts: where each word starts in `data`, and last where the last one stops, `int64`.
        ends: which of the words are the ends of pieces, `int64`.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


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
    """Find the words of all pieces."""
    joined = "\0".join(pieces.texts) + "\0"
    lengths = np.fromiter(map(len, pieces.texts), np.int64, len(pieces.texts))
    ends = np.cumsum(lengths + 1) - 1
    encoded = from_characters(joined)
    data = np.zeros(len(encoded) + _PADDING, np.uint8)
    data[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    codes: NDArray[Any] = data[: len(encoded)]
    wide = np.zeros(0, np.int64)
    if not joined.isascii():
        codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
        wide = np.flatnonzero(codes >= 0x80)
    if splitter.name is None:
        starts = _starts_by_expression(pieces.texts, splitter)
    else:
        starts = np.flatnonzero(word_starts(splitter.name, _classes(codes, wide, ends), codes))
    which = np.searchsorted(starts, ends)
    if len(wide):
        starts = _byte_positions(starts, codes, wide)
    return Chunk(data, np.append(starts, len(encoded)), which)


def _cut(segment: str, target: int) -> int:
    """The first safe cut at or after `target`: between a letter or number and a blank or newline."""
    if target < len(segment):
        for found in _MAYBE_SAFE_CUT.finditer(segment, max(target - 1, 0)):
            if class_of_code_point()[ord(found.group())] in _BEFORE_CUT:
                return found.end()
    return len(segment)


def _classes(codes: NDArray[Any], wide: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint8]:
    table = class_of_code_point()
    low = bytearray(codes.astype(np.uint8, copy=False).tobytes())
    classes = np.frombuffer(low.translate(_class_of_low_byte()), np.uint8)
    classes[wide] = table[codes[wide]]
    classes[ends] = END
    return classes


@lru_cache(maxsize=1)
def _class_of_low_byte() -> bytes:
    return class_of_code_point()[:256].tobytes()


def _byte_positions(
    starts: NDArray[np.int64], codes: NDArray[np.uint32], wide: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Places of characters as places in UTF-8; a surrogate stands for one byte that is no UTF-8."""
    of_wide = codes[wide]
    widths = np.ones(len(codes) + 1, np.uint8)
    widths[0] = 0
    widths[wide + 1] = 2 + (of_wide >= 0x800).view(np.uint8) + (of_wide >= 0x10000).view(np.uint8)
    widths[wide[(of_wide >= 0xD800) & (of_wide < 0xE000)] + 1] = 1
    return np.cumsum(widths, dtype=np.int64).take(starts)


def _starts_by_expression(texts: list[str], splitter: WordSplitter) -> NDArray[np.int64]:
    lengths: list[int] = []
    for text in texts:
        lengths += map(len, splitter.words(text))
        lengths.append(1)
    starts = np.cumsum(np.array(lengths, np.int64))
    starts -= lengths
    return starts
