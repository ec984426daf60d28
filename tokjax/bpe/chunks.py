"""Chunks of text: segments are joined or split to chunks of similar size, whose ids are joined again.

The engine processes one chunk at a time. The texts of a chunk are joined by newlines, which belong to no
pre-token, and a long text is split only where a pre-token starts in any case. So the ids do not depend on the
chunks.

See docs/performance.md, section "Chunks".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tokjax.bpe.hash_tables import PADDING_BYTES, Pretokens
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import encode_segment, find_character_starts, from_characters, to_characters
from tokjax.pretokenize.unicode_classes import LETTERS_AND_NUMBERS, load_categories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text

CHUNK_CHARACTERS = 1 << 19
"""Number of characters per chunk: few enough that its arrays stay in the processor's cache, and enough that
the fixed cost of NumPy calls does not matter."""
_MOSTLY_ASCII = 1.2
"""Up to this many bytes per character, splitting bytes is faster than splitting code points."""
_FIRST_BYTE_THRESHOLD = -0x40
"""As signed numbers, the continuation bytes of UTF-8 (0x80 to 0xBF) are below this. First bytes are not."""
_SAFE_SPLIT_CANDIDATE = re.compile(r"[^\W_](?=[ \n])")


class Segments(NamedTuple):
    """Segments of ordinary text, which are encoded separately.

    Attributes:
        texts: the characters of each segment.
        hold_bytes: whether the characters are as `to_characters` returns them, where surrogates represent
            bytes that are not valid UTF-8. Otherwise surrogates are lone surrogates of the text.
        begins_text: mask of the segments that begin a text, `bool`, shape `(segments,)`; `None` if all do.
    """

    texts: Sequence[str]
    hold_bytes: bool
    begins_text: NDArray[np.bool_] | None = None

    @property
    def num_characters(self) -> int:
        """Number of characters, plus one per segment."""
        return sum(map(len, self.texts)) + len(self.texts)

    def encode(self) -> list[bytes]:
        """Returns the bytes of each segment."""
        return [encode_segment(text, self.hold_bytes) for text in self.texts]

    def get_characters(self) -> Sequence[str]:
        """Returns the characters of each segment, as `to_characters` returns them."""
        return self.texts if self.hold_bytes else list(map(to_characters, self.texts))


class Pieces(NamedTuple):
    """The texts of a chunk: segments, or parts of long segments.

    Attributes:
        texts: the characters of each piece.
        ends_segment: whether each piece is the last part of its segment.
        hold_bytes: whether surrogates represent bytes that are not valid UTF-8, as in `Segments`.
    """

    texts: list[str]
    ends_segment: list[bool]
    hold_bytes: bool

    @property
    def num_characters(self) -> int:
        """Number of characters, plus one per piece."""
        return sum(map(len, self.texts)) + len(self.texts)

    def get_codes(self) -> NDArray[np.uint32]:
        """Returns the code points of all pieces, with a newline after each, `uint32`."""
        return np.frombuffer(("\n".join(self.texts) + "\n").encode("utf-32-le", "surrogatepass"), "<u4")

    def get_characters(self, text: bytes) -> bytes | NDArray[np.uint32]:
        """Returns the characters of all pieces for functions that take both UTF-8 and code points.

        Args:
            text: the pieces in UTF-8, with a newline after each, which is returned if it is mostly ASCII.
        """
        is_ascii = not self.hold_bytes and len(text) <= _MOSTLY_ASCII * self.num_characters
        return text if is_ascii else self.get_codes()

    def get_character_ends(self) -> NDArray[np.int64]:
        """Returns the indices of these newlines in the code points, `int64`, shape `(pieces,)`."""
        return np.cumsum(np.fromiter(map(len, self.texts), np.int64, len(self.texts)) + 1) - 1


class PreTokenizer(Protocol):
    """Splits text into pre-tokens."""

    def find_bounds(
        self, text: bytes, pieces: Pieces, ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the byte positions at which pre-tokens start and stop in the pieces of a chunk, ascending.

        Args:
            text: the pieces in UTF-8, with a newline after each.
            pieces: the pieces.
            ends: positions of these newlines, which are in no pre-token, `int64`, shape `(pieces,)`.
        """

    def find_split(self, text: str, target: int) -> int:
        """Returns an index at or after `target` where a pre-token starts, whatever text follows.

        Returns the length of the text if there is no such index.
        """


class Chunk(NamedTuple):
    """The pre-tokens of a chunk.

    Attributes:
        pretokens: the pre-tokens of all pieces, in UTF-8.
        stops: number of pre-tokens up to the end of each piece, `int64`, shape `(pieces,)`.
        piece_starts: byte position at which each piece starts, `int64`, shape `(pieces,)`.
    """

    pretokens: Pretokens
    stops: NDArray[np.int64]
    piece_starts: NDArray[np.int64]

    def compute_starts(self) -> NDArray[np.int64]:
        """Returns the byte position of each pre-token in its piece, `int64`, shape `(pretokens,)`."""
        return self.pretokens.starts - np.repeat(self.piece_starts, np.diff(self.stops, prepend=0))


def as_segments(texts: Sequence[Text]) -> Segments:
    """Returns texts as segments, one for each text."""
    try:
        return Segments([text if isinstance(text, str) else text.decode("utf-8") for text in texts], False)
    except UnicodeDecodeError:
        return Segments([to_characters(text) for text in texts], True)


def group_segments(segments: Segments, size: int, find_split: Callable[[str, int], int]) -> Iterator[Pieces]:
    """Joins short segments and splits long ones to chunks of similar size.

    Args:
        segments: the segments.
        size: approximate number of characters per chunk.
        find_split: function that returns where a long text may be split, like `PreTokenizer.find_split`.

    Yields:
        The pieces of each chunk.
    """
    texts, first, start = segments.texts, 0, 0  # the next segment, and the position in it
    stops = make_row_splits(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    while first < len(texts):
        end = int(stops[first]) + start + size
        last = int(np.searchsorted(stops, end, "right")) - 1  # the segments before it fit completely
        parts = list(texts[first : last + 1])
        ends_segment = [True] * len(parts)
        stop = 0
        if last < len(texts):
            stop = find_split(parts[-1], max(end - int(stops[last]), 1))
            ends_segment[-1] = stop == len(parts[-1])
            parts[-1] = parts[-1][:stop]
        parts[0] = parts[0][start:]
        yield Pieces(parts, ends_segment, segments.hold_bytes)
        first, start = (last + 1, 0) if ends_segment[-1] else (last, stop)


def find_split_before_space(text: str, target: int) -> int:
    """Returns the first index at or after `target` between a letter or number and a space or newline.

    A pre-token starts there for every named pattern, and whitespace begins there between words. Returns the
    length of the text if there is no such index.
    """
    if target < len(text):
        for match in _SAFE_SPLIT_CANDIDATE.finditer(text, max(target - 1, 0)):
            if load_categories()[ord(match.group())] in LETTERS_AND_NUMBERS:
                return match.end()
    return len(text)


def split_pieces(pieces: Pieces, pre_tokenizer: PreTokenizer) -> Chunk:
    """Splits all pieces of a chunk into pre-tokens.

    The pieces are joined by newlines, and split together. The newlines are in no pre-token.
    """
    pieces, encoded = encode_pieces(pieces)
    bounds = make_row_splits(np.fromiter(map(len, encoded), np.int64, len(encoded)) + 1)
    text = b"\n".join([*encoded, bytes(PADDING_BYTES)])  # followed by zeros, as `Pretokens` requires
    starts, stops = pre_tokenizer.find_bounds(text[:-PADDING_BYTES], pieces, bounds[1:] - 1)
    pretokens = Pretokens(np.frombuffer(text, np.uint8), starts, stops - starts)
    return Chunk(pretokens, np.searchsorted(starts, bounds[1:]), bounds[:-1])


def find_byte_starts(flags: NDArray[np.bool_], text: bytes) -> NDArray[np.int64]:
    """Returns the byte positions at which the flagged characters start in UTF-8.

    Args:
        flags: mask of the characters, `bool`, shape `(characters,)`.
        text: the same characters in UTF-8, or bytes of which the invalid ones are a character each.
    """
    [starts] = move_to_bytes(text, len(flags), np.flatnonzero(flags))
    return starts


def move_to_bytes(
    text: bytes, num_characters: int, *positions: NDArray[np.int64]
) -> Sequence[NDArray[np.int64]]:
    """Returns the byte positions at which characters of such a text start, for arrays in ascending order."""
    num_inner = len(text) - num_characters
    if not num_inner:  # ASCII
        return positions
    if num_inner < (_MOSTLY_ASCII - 1) * num_characters:
        inner = np.flatnonzero(np.frombuffer(text, np.int8) < _FIRST_BYTE_THRESHOLD)
        if len(inner) == num_inner:
            # The first character after each continuation byte. One byte more is before all from there on.
            following = inner - np.arange(num_inner)
            return [part + _count_before(part, following) for part in positions]
    byte_positions = find_byte_positions(text, num_characters)
    return [byte_positions.take(part) for part in positions]


def _count_before(positions: NDArray[np.int64], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the number of bounds, which are few, at or before each position; all in ascending order."""
    runs = np.diff(np.searchsorted(positions, bounds), prepend=0, append=len(positions))
    return np.repeat(np.arange(len(bounds) + 1), runs)


def find_byte_positions(text: bytes, num_characters: int) -> NDArray[np.int64]:
    """Returns the byte position at which each character of such a text starts, `int64`."""
    positions = np.flatnonzero(np.frombuffer(text, np.int8) >= _FIRST_BYTE_THRESHOLD)
    if len(positions) != num_characters:  # the text has bytes that are not valid UTF-8
        return find_character_starts(text)
    return positions


def encode_pieces(pieces: Pieces) -> tuple[Pieces, list[bytes]]:
    """Returns the pieces, with lone surrogates replaced, and their bytes."""
    try:
        return pieces, list(map(str.encode, pieces.texts))
    except UnicodeEncodeError:
        if not pieces.hold_bytes:
            pieces = pieces._replace(texts=list(map(to_characters, pieces.texts)))
        return pieces, list(map(from_characters, pieces.texts))


class EncodedSegments(NamedTuple):
    """Token ids of several segments of ordinary text, concatenated.

    Attributes:
        ids: token ids, `int32`, shape `(num_tokens,)`.
        splits: index of the first id of each segment, then the number of ids, `int64`, shape
            `(segments + 1,)`.
        begins_word: mask of the ids that begin a pre-token, `bool`, or by how much the index of their
            pre-token exceeds that of the id before, `int32`; shape `(num_tokens,)`; `None` if not requested.
        spans: 0-based byte spans of the ids in their segments, `int64`, shape `(num_tokens, 2)`; `None` if
            the bytes of the tokens, concatenated, are the segment.
        lengths: number of bytes of text that each id spans, `int64`, shape `(num_tokens,)`, where `spans` is
            `None`; `None` for the number of bytes of each token.
    """

    ids: NDArray[np.int32]
    splits: NDArray[np.int64]
    begins_word: NDArray[Any] | None
    spans: NDArray[np.int64] | None = None
    lengths: NDArray[np.int64] | None = None


def join_chunks(pieces: Iterable[Pieces], chunks: Iterable[EncodedSegments]) -> EncodedSegments:
    """Concatenates the ids of chunks, whose pieces together are complete segments.

    Args:
        pieces: the pieces of each chunk, in order, at least one.
        chunks: the ids of the pieces of each chunk. Their spans, if any, are changed in place.
    """
    parts, is_split, nbytes_before = [], [True], 0
    for (texts, ends_segment, hold_bytes), chunk in zip(pieces, chunks, strict=True):
        parts.append(chunk)
        is_split += ends_segment
        if chunk.spans is not None:
            chunk.spans[: chunk.splits[1]] += nbytes_before
            if len(texts) > 1 or ends_segment[-1]:  # the last piece begins a segment, or the next one does
                nbytes_before = 0
            if not ends_segment[-1]:
                nbytes_before += len(encode_segment(texts[-1], hold_bytes))
    joined = concatenate_segments(parts)
    return joined._replace(splits=joined.splits[is_split])


def concatenate_segments(parts: Sequence[EncodedSegments]) -> EncodedSegments:
    """Concatenates the ids of several groups of segments, at least one, without lengths."""
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([part.ids for part in parts])
    splits = make_row_splits(np.concatenate([np.diff(part.splits) for part in parts]))
    begins = [part.begins_word for part in parts if part.begins_word is not None]
    spans = [part.spans for part in parts if part.spans is not None]
    return EncodedSegments(
        ids,
        splits,
        np.concatenate(begins) if begins else None,
        np.concatenate(spans) if spans else None,
    )
