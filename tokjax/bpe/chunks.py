"""Ordinary text as chunks of characters, bytes and word starts: what the engine looks up at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokjax.bpe.hash_tables import LONGEST, Words
from tokjax.core.ragged import splits_from_lengths
from tokjax.core.utf8 import character_starts, from_characters, to_characters
from tokjax.pretokenize.unicode_classes import LETTER, LOWER, NUMBER, UPPER, class_of_code_point
from tokjax.pretokenize.word_boundaries import word_bounds, word_bounds_of_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text
    from tokjax.pretokenize.word_boundaries import Splitter

CHUNK_CHARACTERS = 1 << 19
"""Characters a chunk: its arrays stay in the processor's cache, and calls of NumPy do not count."""
_FIRST_OF_CHARACTER = -0x40
_MAYBE_SAFE_CUT = re.compile(r"[^\W_](?=[ \n])")
_BEFORE_CUT = (UPPER, LOWER, LETTER, NUMBER)


class Segments(NamedTuple):
    """Pieces of ordinary text, each of them encoded on its own.

    Attributes:
        texts: their characters.
        hold_bytes: whether they are characters as `to_characters` gives them, with surrogates that stand for
            bytes that are no UTF-8. If not, what surrogates there are stand for themselves.
        begins_text: which of them begin a text, `bool`, shape `(segments,)`; `None` if all do.
    """

    texts: Sequence[str]
    hold_bytes: bool
    begins_text: NDArray[np.bool_] | None = None


class Pieces(NamedTuple):
    """Segments, or parts of them, that are encoded together.

    Attributes:
        texts: their characters.
        ends_segment: whether each is the last part of its segment.
        hold_bytes: as in `Segments`.
    """

    texts: list[str]
    ends_segment: list[bool]
    hold_bytes: bool

    def codes(self) -> NDArray[np.uint32]:
        """The code points of all pieces, with that of a newline behind each."""
        return np.frombuffer(("\n".join(self.texts) + "\n").encode("utf-32-le", "surrogatepass"), "<u4")

    def ends_in_characters(self) -> NDArray[np.int64]:
        """Where those newlines stand."""
        return np.cumsum(np.fromiter(map(len, self.texts), np.int64, len(self.texts)) + 1) - 1


class Cutter(Protocol):
    """Says where the words start that are encoded on their own."""

    def words(self, text: str) -> list[str]:
        """The words of a text; joined, they are the text."""

    def starts(self, text: bytes, pieces: Pieces, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where words start in the UTF-8 of pieces, each with a newline behind it.

        Args:
            text: the UTF-8.
            pieces: the pieces.
            ends: where the newlines stand, which start no word.
        """

    def cut(self, text: str, target: int) -> int:
        """A place at or after `target` where a word starts, however the text goes on; or the text's end."""


class Chunk(NamedTuple):
    """The words of some pieces.

    Attributes:
        words: in UTF-8, those of all pieces.
        stops: how many words there are up to the end of each piece, `int64`, shape `(pieces,)`.
    """

    words: Words
    stops: NDArray[np.int64]


class WordsOfPieces(NamedTuple):
    """Words with white space between them, and the pieces that they stand in.

    Attributes:
        words: in UTF-8, those of all pieces.
        stops: as in `Chunk`.
        ends: where the text of each piece ends; the next starts one byte later; `int64`, shape `(pieces,)`.
    """

    words: Words
    stops: NDArray[np.int64]
    ends: NDArray[np.int64]


def as_segments(texts: Sequence[Text]) -> Segments:
    """Whole texts as segments."""
    try:
        return Segments([text if isinstance(text, str) else text.decode("utf-8") for text in texts], False)
    except UnicodeDecodeError:
        return Segments([to_characters(text) for text in texts], True)


def gather(segments: Segments, size: int, cut: Callable[[str, int], int]) -> Iterator[Pieces]:
    """Segments put together, or cut up, to chunks of about one size.

    Args:
        segments: what to gather.
        size: how many characters to aim at.
        cut: says where a long one may be cut between words, as a `Cutter` does.
    """
    texts = segments.texts
    stops = splits_from_lengths(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    pieces, room, first = Pieces([], [], segments.hold_bytes), size, 0
    while first < len(texts):
        last = int(np.searchsorted(stops, stops[first] + room, "right")) - 1  # those before it fit as a whole
        pieces.texts.extend(texts[first:last])
        pieces.ends_segment.extend([True] * (last - first))
        room -= int(stops[last] - stops[first])
        first = last
        if room > 0 and first < len(texts):
            for part, is_last in _cut_up(texts[first], room, size, cut):
                if room <= 0:
                    yield pieces
                    pieces, room = Pieces([], [], segments.hold_bytes), size
                pieces.texts.append(part)
                pieces.ends_segment.append(is_last)
                room -= len(part) + 1
            first += 1
        if room <= 0:
            yield pieces
            pieces, room = Pieces([], [], segments.hold_bytes), size
    if pieces.texts:
        yield pieces


def cut_before_blank(text: str, target: int) -> int:
    """The first place at or after `target` between a letter or number and a blank or newline.

    There a word starts by every published pattern, and white space between words.
    """
    if target < len(text):
        for found in _MAYBE_SAFE_CUT.finditer(text, max(target - 1, 0)):
            if class_of_code_point()[ord(found.group())] in _BEFORE_CUT:
                return found.end()
    return len(text)


def cut_into_words(pieces: Pieces, cutter: Cutter) -> Chunk:
    """Find the words of all pieces, joined by characters that are left out again."""
    pieces, encoded = _encoded(pieces)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(lengths + 1) - 1
    text = b"\n".join([*encoded, bytes(LONGEST)])  # (with zeros behind it, as `Words` has them)
    starts = cutter.starts(text[:-LONGEST], pieces, ends)
    stops = np.searchsorted(starts, ends)
    lengths = np.diff(starts, append=ends[-1] + 1)
    filled = np.flatnonzero(np.diff(stops, prepend=0))
    last = stops[filled] - 1
    lengths[last] = ends[filled] - starts[last]
    return Chunk(Words(np.frombuffer(text, np.uint8), starts, lengths), stops)


def cut_at_white_space(pieces: Pieces, splitter: Splitter) -> WordsOfPieces:
    """Find the words of all pieces, without the white space between them."""
    pieces, encoded = _encoded(pieces)
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)) + 1) - 1
    text = b"\n".join([*encoded, bytes(LONGEST)])  # (with zeros behind it, as `Words` has them)
    if pieces.hold_bytes:
        starts, stops = word_bounds_of_characters(splitter, pieces.codes(), character_starts(text[:-LONGEST]))
    else:
        starts, stops = word_bounds(splitter, text[:-LONGEST])
    words = Words(np.frombuffer(text, np.uint8), starts, stops - starts)
    return WordsOfPieces(words, np.searchsorted(starts, ends), ends)


def starts_in_bytes(flags: NDArray[np.bool_], text: bytes) -> NDArray[np.int64]:
    """Where characters that are flagged start in UTF-8."""
    positions = np.flatnonzero(np.frombuffer(text, np.int8) >= _FIRST_OF_CHARACTER)
    if len(positions) != len(flags):
        positions = character_starts(text)  # there are bytes that are no UTF-8
    return positions.take(np.flatnonzero(flags))


def _cut_up(text: str, room: int, size: int, cut: Callable[[str, int], int]) -> Iterator[tuple[str, bool]]:
    """Parts of a text, and whether each is the last: one of about `room` characters, others of `size`."""
    start, stop = 0, cut(text, room)
    while stop < len(text):
        yield text[start:stop], False
        start, stop = stop, cut(text, stop + size)
    yield text[start:], True


def _encoded(pieces: Pieces) -> tuple[Pieces, list[bytes]]:
    """The pieces, without surrogates that stand for themselves, and their bytes."""
    try:
        return pieces, list(map(str.encode, pieces.texts))
    except UnicodeEncodeError:
        if not pieces.hold_bytes:
            pieces = pieces._replace(texts=list(map(to_characters, pieces.texts)))
        return pieces, list(map(from_characters, pieces.texts))
