"""How often each word stands in a corpus: the only thing that training needs to know of it."""

from __future__ import annotations

import itertools
import os
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tokjax._checks import checked_int
from tokjax._progress import progress_bar
from tokjax.errors import TrainingError
from tokjax.text.patterns import word_splitter
from tokjax.text.sources import Chunk, Source, file_chunks, paths_of, text_chunks
from tokjax.text.special import split_at_special
from tokjax.utf8 import to_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CHUNK_BYTES = 1 << 22


@dataclass
class WordCounts:
    """Words of ordinary text, each with how often it stands there.

    Attributes:
        words: characters as `to_characters` gives them, to counts.
        documents: stretches of text that are not empty, between special tokens and ends of texts.
        nbytes: bytes of ordinary text, special tokens not counted.
    """

    words: Counter[str] = field(default_factory=Counter)
    documents: int = 0
    nbytes: int = 0

    def add(self, other: WordCounts) -> None:
        """Take in the counts of another part of the corpus."""
        self.words.update(other.words)
        self.documents += other.documents
        self.nbytes += other.nbytes


def count_words(
    source: Source,
    *,
    special_tokens: Sequence[str],
    pattern: str,
    workers: int | None,
    progress: bool,
) -> WordCounts:
    """Count the words of a corpus, chunk by chunk, in several processes where there are many chunks.

    Memory is bounded by the unique words and a few chunks.

    Args:
        source: a path, paths, or an iterable of texts.
        special_tokens: they split the text, and are not counted.
        pattern: the split pattern.
        workers: processes; `None` for as many as there are processors.
        progress: show a bar on standard error.
    """
    if workers is not None:
        checked_int("workers", workers, least=1)
    paths = paths_of(source)
    chunks: Iterator[Chunk]
    if paths is None:
        chunks, total = text_chunks(source, _CHUNK_BYTES), None  # type: ignore[arg-type]
    else:
        safe_cuts = word_splitter(pattern).is_named
        in_files = file_chunks(paths, special_tokens, _CHUNK_BYTES, safe_cuts=safe_cuts)
        chunks, total = iter(in_files), sum(chunk.nbytes for chunk in in_files)
    count = partial(count_chunk, special_tokens=tuple(special_tokens), pattern=pattern)
    counts = WordCounts()
    with progress_bar("counting", total, unit="bytes", enabled=progress) as advance:
        for chunk, part in _in_parallel(count, chunks, workers or _processors()):
            counts.add(part)
            advance(chunk.nbytes, f"{len(counts.words):,} words")
    return counts


def count_chunk(chunk: Chunk, *, special_tokens: tuple[str, ...], pattern: str) -> WordCounts:
    """Count the words of one chunk; runs in a worker."""
    splitter = word_splitter(pattern)
    special = frozenset(special_tokens)
    counts = WordCounts()
    for text, starts_document in chunk.read():
        segments = split_at_special(to_characters(text), special)[::2]
        for segment in segments:
            counts.words.update(splitter.words(segment))
        counts.documents += sum(map(bool, segments))
        if segments[0] and not starts_document:
            counts.documents -= 1  # it goes on from the chunk before
    counts.nbytes = sum(
        len(word.encode("utf-8", "surrogateescape")) * count for word, count in counts.words.items()
    )
    return counts


def _in_parallel(
    count: Callable[[Chunk], WordCounts], chunks: Iterator[Chunk], workers: int
) -> Iterator[tuple[Chunk, WordCounts]]:
    """Each chunk with its counts; in this process where there are too few to be worth others."""
    first = list(itertools.islice(chunks, 2))
    if workers == 1 or len(first) < 2:
        for chunk in itertools.chain(first, chunks):
            yield chunk, count(chunk)
        return
    # loky starts workers without running the caller's script again, and says so when one of them dies.
    from loky import ProcessPoolExecutor  # noqa: PLC0415 (only needed here)
    from loky.process_executor import BrokenProcessPool  # noqa: PLC0415

    executor = ProcessPoolExecutor(max_workers=workers)
    waiting: deque[tuple[Chunk, Any]] = deque()
    try:
        for chunk in itertools.chain(first, chunks):
            waiting.append((chunk, executor.submit(count, chunk)))
            if len(waiting) > 2 * workers:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
        executor.shutdown(wait=True)
    except BrokenProcessPool as error:
        raise TrainingError(
            "a counting process died (killed, or out of memory?); nothing was trained. Try again, with "
            "workers=1 if memory is short"
        ) from error
    finally:
        executor.shutdown(wait=False, kill_workers=True)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
