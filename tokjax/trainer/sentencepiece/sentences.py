"""A corpus as the sentences that SentencePiece trains on: lines, none too long, and nothing lost unsaid."""

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
_RESERVED = "\u2585".encode()  # the library's own mark for the unknown: it leaves out lines that hold it
_LINE_ENDS = re.compile(b"\r*\n|" + _RESERVED)
_INVALID = re.compile("[\udc80-\udcff]")


@dataclass
class Tally:
    """What was read, and what was done to it.

    Attributes:
        documents: stretches of text between special tokens and ends of texts.
        nbytes: bytes of text, special tokens not counted.
        long_lines: lines that were over the limit.
        long_bytes: how many bytes they had.
        parts: how many sentences were made of them.
        replaced: lone surrogates and bytes that are no UTF-8.
        nuls: characters U+0000.
        reserved: characters U+2585.
    """

    documents: int = 0
    nbytes: int = 0
    long_lines: int = 0
    long_bytes: int = 0
    parts: int = 0
    replaced: int = 0
    nuls: int = 0
    reserved: int = 0

    def notes(self, longest: int) -> list[str]:
        """All that was changed or left out, in words; `longest` is the limit of lines, in bytes."""
        done = f"split into {self.parts:,} sentences" if self.parts else "left out"
        note_counts = {
            f"lines over {longest:,} bytes, {done} ({self.long_bytes:,} bytes)": self.long_lines,
            "lone surrogates and bytes that are no UTF-8, made U+FFFD": self.replaced,
            "characters U+0000, which can be in no piece": self.nuls,
            "characters U+2585, which the library reserves, made ends of lines": self.reserved,
        }
        return [f"{what}: {count:,}" for what, count in note_counts.items() if count]


def open_line_corpus(source: Source, special_tokens: tuple[str, ...]) -> Corpus:
    """The corpus in chunks that end where a line or a document does."""
    return open_corpus(source, ("\n", *special_tokens), _CHUNK_BYTES, safe_splits=False)


def read_sentences(
    chunks: Iterable[Chunk],
    special_tokens: tuple[str, ...],
    longest: int,
    long_lines: LongLines,
    tally: Tally,
    advance: AdvanceProgress,
) -> Iterator[bytes]:
    """The lines of a corpus that are not empty, in UTF-8, some megabytes in memory at a time.

    Args:
        chunks: the corpus.
        special_tokens: they split the text, and are left out.
        longest: the limit for a line, in bytes.
        long_lines: what becomes of lines that are longer.
        tally: where to count what is read.
        advance: told of bytes when they were read.
    """
    names = frozenset(special_tokens)
    for chunk in chunks:
        for text, starts_document in chunk.read():
            segments = split_ordinary_text(text, names)
            tally.documents -= bool(segments[0]) and not starts_document  # it goes on from the chunk before
            for segment in segments:
                if not segment:
                    continue
                tally.documents += 1
                yield from _iter_lines(_clean_text(segment, tally), longest, long_lines, tally)
        advance(chunk.read_nbytes)


def sample_sentences(sentences: Iterable[bytes], maximum: int, seed: int) -> list[bytes]:
    """Some of the sentences, each as likely to be among them as any other; the same for the same seed."""
    sample: list[bytes] = []
    chance = random.Random(seed)
    for i, sentence in enumerate(sentences):
        if i < maximum:
            sample.append(sentence)
        elif (index := chance.randrange(i + 1)) < maximum:
            sample[index] = sentence
    return sample


def split_line(line: bytes, longest: int) -> Iterator[bytes]:
    r"""Parts of a line, none longer than `longest` bytes.

    They are cut at blanks, which are left out as the ends of lines are; where the second half of what fits
    has no blank, between two characters.

    >>> list(split_line(b"one two three", 8)), list(split_line("ééé".encode(), 5))
    ([b'one two', b'three'], [b'\xc3\xa9\xc3\xa9', b'\xc3\xa9'])
    """
    start = 0
    while len(line) - start > longest:
        limit = start + longest
        near = (start + longest // 2, limit + 1)
        stop = max(line.rfind(b" ", *near), line.rfind(b"\t", *near))
        if stop >= 0:
            yield line[start:stop]
            start = stop + 1
            continue
        while line[limit] & 0xC0 == 0x80:
            limit -= 1
        yield line[start:limit]
        start = limit
    yield line[start:]


def _clean_text(text: Text, tally: Tally) -> bytes:
    """The text in valid UTF-8."""
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


def _iter_lines(text: bytes, longest: int, long_lines: LongLines, tally: Tally) -> Iterator[bytes]:
    tally.nuls += text.count(b"\0")
    tally.reserved += text.count(_RESERVED)
    for line in filter(None, _LINE_ENDS.split(text)):
        if len(line) <= longest:
            yield line
            continue
        tally.long_lines += 1
        tally.long_bytes += len(line)
        if long_lines == "split":
            for part in filter(None, split_line(line, longest)):
                tally.parts += 1
                yield part
