"""Sentences for SentencePiece training: the lines of a corpus, cleaned and limited in length.

The sentencepiece library silently drops long lines and lines with U+2585. Here long lines are split, U+2585
ends a line, and every change to the text is counted in `Tally` and reported in the notes of training.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokjax.core.utf8 import is_encodable, to_characters, to_utf8
from tokjax.corpus.sources import open_corpus
from tokjax.pretokenize.special_tokens import split_ordinary_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokjax._util.progress import AdvanceProgress
    from tokjax.core.utf8 import Text
    from tokjax.corpus.readers import Chunk
    from tokjax.corpus.sources import Corpus, Source

LongLines = Literal["split", "drop"]

_CHUNK_BYTES = 1 << 22
_RESERVED = "\u2585".encode()  # reserved by the library, which drops lines that contain it
_LINE_ENDS = re.compile(b"\r*\n|" + _RESERVED)
_INVALID = re.compile("[\udc80-\udcff]")


@dataclass
class Tally:
    """Counts of the text that was read and of the changes to it.

    Attributes:
        documents: number of non-empty segments of text between special tokens and ends of texts.
        nbytes: number of bytes of text, without special tokens.
        long_lines: number of lines over the limit.
        long_bytes: number of bytes of those lines.
        parts: number of sentences that those lines were split into; 0 if they were dropped.
        replaced: number of lone surrogates and invalid UTF-8 bytes, which become U+FFFD.
        nuls: number of U+0000 characters.
        reserved: number of U+2585 characters.
    """

    documents: int = 0
    nbytes: int = 0
    long_lines: int = 0
    long_bytes: int = 0
    parts: int = 0
    replaced: int = 0
    nuls: int = 0
    reserved: int = 0

    def make_notes(self, max_bytes: int) -> list[str]:
        """Returns a note for each kind of change that was made.

        Args:
            max_bytes: maximum length of a line in bytes.
        """
        action = f"split into {self.parts:,} sentences" if self.parts else "left out"
        note_counts = {
            f"lines over {max_bytes:,} bytes, {action} ({self.long_bytes:,} bytes)": self.long_lines,
            "lone surrogates and invalid UTF-8 bytes, replaced by U+FFFD": self.replaced,
            "U+0000 characters, which can't be in a piece": self.nuls,
            "U+2585 characters, reserved by the library, treated as line ends": self.reserved,
        }
        return [f"{note}: {count:,}" for note, count in note_counts.items() if count]


def open_line_corpus(source: Source, special_tokens: tuple[str, ...]) -> Corpus:
    """Opens a corpus as chunks that end at the end of a line or of a document."""
    return open_corpus(source, ("\n", *special_tokens), _CHUNK_BYTES, safe_splits=False)


def read_sentences(
    chunks: Iterable[Chunk],
    special_tokens: tuple[str, ...],
    max_bytes: int,
    long_lines: LongLines,
    tally: Tally,
    advance: AdvanceProgress,
) -> Iterator[bytes]:
    """Yields the non-empty lines of a corpus, in UTF-8. One chunk is in memory at a time.

    Args:
        chunks: chunks of the corpus.
        special_tokens: names of special tokens. The text is split at them, and they are left out.
        max_bytes: maximum length of a line in bytes.
        long_lines: `"split"` or `"drop"`, for lines over that limit.
        tally: counts that this function updates.
        advance: callback for the number of bytes of each chunk that was read.
    """
    names = frozenset(special_tokens)
    for chunk in chunks:
        for text, starts_document in chunk.read():
            segments = split_ordinary_text(text, names)
            tally.documents -= bool(segments[0]) and not starts_document  # counted with the previous chunk
            for segment in segments:
                if not segment:
                    continue
                tally.documents += 1
                yield from _iter_lines(_clean_text(segment, tally), max_bytes, long_lines, tally)
        advance(chunk.read_nbytes)


def sample_sentences(sentences: Iterable[bytes], maximum: int, seed: int) -> list[bytes]:
    """Returns a uniform random sample of at most `maximum` sentences (reservoir sampling).

    The same seed gives the same sample.
    """
    sample: list[bytes] = []
    rng = random.Random(seed)
    for i, sentence in enumerate(sentences):
        if i < maximum:
            sample.append(sentence)
        elif (index := rng.randrange(i + 1)) < maximum:
            sample[index] = sentence
    return sample


def split_line(line: bytes, max_bytes: int) -> Iterator[bytes]:
    r"""Yields parts of a line of at most `max_bytes` bytes each.

    A part ends at the last space or tab of the next `max_bytes` bytes, which is left out like the end of a
    line. If the second half of these bytes has no space or tab, the part ends between two characters.

    >>> list(split_line(b"one two three", 8)), list(split_line("ééé".encode(), 5))
    ([b'one two', b'three'], [b'\xc3\xa9\xc3\xa9', b'\xc3\xa9'])
    """
    start = 0
    while len(line) - start > max_bytes:
        limit = start + max_bytes
        window = (start + max_bytes // 2, limit + 1)
        stop = max(line.rfind(b" ", *window), line.rfind(b"\t", *window))
        if stop >= 0:
            yield line[start:stop]
            start = stop + 1
            continue
        while line[limit] & 0xC0 == 0x80:  # a continuation byte: do not split inside a character
            limit -= 1
        yield line[start:limit]
        start = limit
    yield line[start:]


def _clean_text(text: Text, tally: Tally) -> bytes:
    """Returns the text as valid UTF-8, with U+FFFD for surrogates and invalid bytes."""
    data = to_utf8(text)
    tally.nbytes += len(data)
    if isinstance(text, str):
        if not is_encodable(text):
            tally.replaced += to_characters(text).count("\ufffd") - text.count("\ufffd")
        return data
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        valid, count = _INVALID.subn("\ufffd", to_characters(data))
        tally.replaced += count
        return valid.encode("utf-8")
    return data


def _iter_lines(text: bytes, max_bytes: int, long_lines: LongLines, tally: Tally) -> Iterator[bytes]:
    """Yields the non-empty lines of a text; splits or drops those over the limit."""
    tally.nuls += text.count(b"\0")
    tally.reserved += text.count(_RESERVED)
    for line in filter(None, _LINE_ENDS.split(text)):
        if len(line) <= max_bytes:
            yield line
            continue
        tally.long_lines += 1
        tally.long_bytes += len(line)
        if long_lines == "split":
            for part in filter(None, split_line(line, max_bytes)):
                tally.parts += 1
                yield part
