"""Ordinary text as chunks of characters, bytes and word starts: what the engine looks up at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokjax.bpe.hash_tables import MAX_PRETOKEN_BYTES, Pretokens
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, from_characters, to_characters
from tokjax.pretokenize.unicode_classes import LETTER, LOWER, NUMBER, UPPER, load_code_point_classes
from tokjax.pretokenize.word_boundaries import find_character_word_bounds, find_word_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text
    from tokjax.pretokenize.word_boundaries import Splitter

CHUNK_CHARACTERS = 1 << 19
"""Characters a chunk: its arrays stay in the processor's cache, and calls of NumPy do not count."""
_FIRST_BYTE_THRESHOLD = -0x40
_SAFE_SPLIT_CANDIDATE = re.compile(r"[^\W_](?=[ \n])")
_BEFORE_SPLIT = (UPPER, LOWER, LETTER, NUMBER)


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

    @property
    def num_characters(self) -> int:
        """How many characters there are, and one more for each segment."""
        return sum(map(len, self.texts)) + len(self.texts)


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

    @property
    def num_characters(self) -> int:
        """How many characters there are, and one more for each piece."""
        return sum(map(len, self.texts)) + len(self.texts)

    def get_codes(self) -> NDArray[np.uint32]:
        """The code points of all pieces, with that of a newline behind each."""
        return np.frombuffer(("\n".join(self.texts) + "\n").encode("utf-32-le", "surrogatepass"), "<u4")

    def get_character_ends(self) -> NDArray[np.int64]:
        """Where those newlines stand."""
        return np.cumsum(np.fromiter(map(len, self.texts), np.int64, len(self.texts)) + 1) - 1


class PreTokenizer(Protocol):
    """Says where the words start that are encoded on their own."""

    def split(self, text: str) -> list[str]:
        """The words of a text; joined, they are the text."""

    def find_starts(self, text: bytes, pieces: Pieces, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where words start in the UTF-8 of pieces, each with a newline behind it.

        Args:
            text: the UTF-8.
            pieces: the pieces.
            ends: where the newlines stand, which start no word.
        """

    def find_split(self, text: str, target: int) -> int:
        """A place at or after `target` where a word starts, however the text goes on; or the text's end."""


class Chunk(NamedTuple):
    """The words of some pieces.

    Attributes:
        pretokens: in UTF-8, those of all pieces.
        stops: how many words there are up to the end of each piece, `int64`, shape `(pieces,)`.
    """

    pretokens: Pretokens
    stops: NDArray[np.int64]


class WhitespacePretokens(NamedTuple):
    """Words with white space between them, and the pieces that they stand in.

    Attributes:
        pretokens: in UTF-8, those of all pieces.
        stops: as in `Chunk`.
        ends: where the text of each piece ends; the next starts one byte later; `int64`, shape `(pieces,)`.
    """

    pretokens: Pretokens
    stops: NDArray[np.int64]
    ends: NDArray[np.int64]


def as_segments(texts: Sequence[Text]) -> Segments:
    """Whole texts as segments."""
    try:
        return Segments([text if isinstance(text, str) else text.decode("utf-8") for text in texts], False)
    except UnicodeDecodeError:
        return Segments([to_characters(text) for text in texts], True)


def group_segments(segments: Segments, size: int, find_split: Callable[[str, int], int]) -> Iterator[Pieces]:
    """Segments put together, or cut up, to chunks of about one size.

    Args:
        segments: what to gather.
        size: how many characters to aim at.
        find_split: says where a long one may be cut between words, as a `PreTokenizer` does.
    """
    texts = segments.texts
    stops = make_row_splits(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    pieces, capacity, first = Pieces([], [], segments.hold_bytes), size, 0
    while first < len(texts):
        last = (
            int(np.searchsorted(stops, stops[first] + capacity, "right")) - 1
        )  # those before it fit as a whole
        pieces.texts.extend(texts[first:last])
        pieces.ends_segment.extend([True] * (last - first))
        capacity -= int(stops[last] - stops[first])
        first = last
        if capacity > 0 and first < len(texts):
            for part, is_last in _split_text(texts[first], capacity, size, find_split):
                if capacity <= 0:
                    yield pieces
                    pieces, capacity = Pieces([], [], segments.hold_bytes), size
                pieces.texts.append(part)
                pieces.ends_segment.append(is_last)
                capacity -= len(part) + 1
            first += 1
        if capacity <= 0:
            yield pieces
            pieces, capacity = Pieces([], [], segments.hold_bytes), size
    if pieces.texts:
        yield pieces


def find_split_before_space(text: str, target: int) -> int:
    """The first place at or after `target` between a letter or number and a blank or newline.

    There a word starts by every published pattern, and white space between words.
    """
    if target < len(text):
        for found in _SAFE_SPLIT_CANDIDATE.finditer(text, max(target - 1, 0)):
            if load_code_point_classes()[ord(found.group())] in _BEFORE_SPLIT:
                return found.end()
    return len(text)


def split_pieces(pieces: Pieces, pre_tokenizer: PreTokenizer) -> Chunk:
    """Find the words of all pieces, joined by characters that are left out again."""
    pieces, encoded = _encode_pieces(pieces)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(lengths + 1) - 1
    text = b"\n".join(
        [*encoded, bytes(MAX_PRETOKEN_BYTES)]
    )  # (with zeros behind it, as `Pretokens` has them)
    starts = pre_tokenizer.find_starts(text[:-MAX_PRETOKEN_BYTES], pieces, ends)
    stops = np.searchsorted(starts, ends)
    lengths = np.diff(starts, append=ends[-1] + 1)
    filled = np.flatnonzero(np.diff(stops, prepend=0))
    last = stops[filled] - 1
    lengths[last] = ends[filled] - starts[last]
    return Chunk(Pretokens(np.frombuffer(text, np.uint8), starts, lengths), stops)


def split_at_whitespace(pieces: Pieces, splitter: Splitter) -> WhitespacePretokens:
    """Find the words of all pieces, without the white space between them."""
    pieces, encoded = _encode_pieces(pieces)
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)) + 1) - 1
    text = b"\n".join(
        [*encoded, bytes(MAX_PRETOKEN_BYTES)]
    )  # (with zeros behind it, as `Pretokens` has them)
    if pieces.hold_bytes:
        starts, stops = find_character_word_bounds(
            splitter, pieces.get_codes(), find_character_starts(text[:-MAX_PRETOKEN_BYTES])
        )
    else:
        starts, stops = find_word_bounds(splitter, text[:-MAX_PRETOKEN_BYTES])
    pretokens = Pretokens(np.frombuffer(text, np.uint8), starts, stops - starts)
    return WhitespacePretokens(pretokens, np.searchsorted(starts, ends), ends)


def find_byte_starts(flags: NDArray[np.bool_], text: bytes) -> NDArray[np.int64]:
    """Where characters that are flagged start in UTF-8."""
    positions = np.flatnonzero(np.frombuffer(text, np.int8) >= _FIRST_BYTE_THRESHOLD)
    if len(positions) != len(flags):
        positions = find_character_starts(text)  # there are bytes that are no UTF-8
    return positions.take(np.flatnonzero(flags))


def _split_text(
    text: str, capacity: int, size: int, find_split: Callable[[str, int], int]
) -> Iterator[tuple[str, bool]]:
    """Parts of a text, and whether each is the last: one of about `capacity` characters, others of `size`."""
    start, stop = 0, find_split(text, capacity)
    while stop < len(text):
        yield text[start:stop], False
        start, stop = stop, find_split(text, stop + size)
    yield text[start:], True


def _encode_pieces(pieces: Pieces) -> tuple[Pieces, list[bytes]]:
    """The pieces, without surrogates that stand for themselves, and their bytes."""
    try:
        return pieces, list(map(str.encode, pieces.texts))
    except UnicodeEncodeError:
        if not pieces.hold_bytes:
            pieces = pieces._replace(texts=list(map(to_characters, pieces.texts)))
        return pieces, list(map(from_characters, pieces.texts))
