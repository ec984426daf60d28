"""How often each word stands in a corpus: the only thing that training needs to know of it."""

from __future__ import annotations

import heapq
import itertools
import logging
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.progress import show_progress_bar
from tokjax._util.threads import check_executor, map_in_threads, resolve_num_threads
from tokjax.bpe.chunks import as_segments, group_segments, split_pieces
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.corpus.opening import find_invalid_utf8
from tokjax.corpus.sources import Corpus, Source, open_corpus
from tokjax.errors import InvalidArgumentError, TrainingError
from tokjax.pretokenize.patterns import make_pattern_splitter
from tokjax.pretokenize.special_tokens import check_special_names, split_ordinary_text
from tokjax.trainer.pretoken_counts import PretokenCounter, PretokenCounts, make_pretoken_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tokjax.core.utf8 import Text
    from tokjax.corpus.readers import Chunk


_log = logging.getLogger("tokjax")

_CHUNK_BYTES = 1 << 21
_EXECUTOR_CHUNK_BYTES = 1 << 24
"""Larger, since each of these is counted from nothing, and its words are sent back."""
_PIECE_CHARACTERS = 1 << 20
"""Larger than those of the engine: threads wait for one another between calls of NumPy."""
_SAMPLED_CHUNKS, _MIN_SAMPLED_BYTES, _MAX_SAMPLED_BYTES = 64, 1 << 14, 1 << 24


def count_pretokens(
    source: Source,
    *,
    special_tokens: Sequence[str] = (),
    pattern: str = "gpt2",
    workers: int | None = None,
    executor: Executor | None = None,
    max_bytes: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> PretokenCounts:
    """Count the words of a corpus. The counts train vocabularies of any size without reading it again.

    Memory is bounded by the different words and a few chunks of the corpus. The result is the same for any
    number of workers.

    Args:
        source: a path or a pattern of paths, a list of paths (`os.PathLike`), `text_files(...)`, or an
            iterable of texts. Text files, JSON lines (their field `"text"`) and Parquet files are told apart
            by their names, gzipped ones too. Text is read in chunks, cut at special tokens and (for the
            published patterns) between words; with a pattern of your own, what stands between two special
            tokens is read as a whole.
        special_tokens: they split the text, and are not counted.
        pattern: a name (`"gpt2"`, `"cl100k"`, `"o200k"`, `"llama3"`, `"qwen2"`, `"tekken"`,
            `"whitespace"`) or a regular expression.
        workers: how many chunks are counted at a time; `None` for as many as there are processors.
        executor: where they are counted; `None` for threads of this process. (A pattern of your own is
            quicker in processes: its regular expression runs in one thread at a time.)
        max_bytes: count a random part of the corpus, of about so many bytes, in some dozens of pieces from
            all over it, each of 16 KiB at least; `None` for all. A text that can't be cut is taken whole, and
            a document counts as one where its beginning is drawn. (The whole corpus is read through where it
            is compressed or iterated over, and the part is then in memory.)
        seed: draws that part; the same for any number of workers.
        progress: show a bar on standard error.

    Raises:
        InvalidArgumentError: an option, or the source, makes no sense.
        SourceError: a file is damaged, or holds something else than its name says.
        TrainingError: a worker of the executor died.

    >>> counts = count_pretokens(["low low lower"], progress=False)
    >>> list(counts.items())
    [(b'low', 1), (b' low', 1), (b' lower', 1)]
    """
    special = tuple(check_special_names(special_tokens))
    check_executor(executor)
    concurrency = resolve_num_threads(None if workers is None else check_int("workers", workers, minimum=1))
    seed = check_int("seed", seed, minimum=0)
    sample = None if max_bytes is None else _Sample(check_int("max_bytes", max_bytes, minimum=1), seed)
    chunk_bytes = _CHUNK_BYTES if executor is None else _EXECUTOR_CHUNK_BYTES
    corpus = _open_corpus(source, special, pattern, chunk_bytes, sample)
    counter = PretokenCounter()
    count: Callable[[Chunk], _Size | PretokenCounts]
    count = partial(_count_into, counter, special=special, pattern=pattern)
    if executor is not None:
        count = partial(count_chunk, special_tokens=special, pattern=pattern)
    documents = nbytes = 0
    chunks, ahead = itertools.tee(corpus.chunks)
    with (
        show_progress_bar("counting", corpus.nbytes, unit="bytes", enabled=progress) as advance,
        _raise_clear_errors(),
    ):
        parts: Iterator[_Size | PretokenCounts] = map_in_threads(count, ahead, concurrency, executor)
        for chunk, part in zip(chunks, parts, strict=True):
            if isinstance(part, PretokenCounts):
                counter.merge(part.to_counted_pretokens())
            documents += part.documents
            nbytes += part.nbytes
            advance(chunk.read_nbytes, f"{len(counter):,} words")
        counted = counter.counted()
        advance(0, f"{len(counted.counts):,} words")  # (with those that waited to be told apart)
    counts = make_pretoken_counts(counted, pattern, special, documents, nbytes, corpus.files)
    if corpus.files:
        _warn_of_invalid_utf8(counts)
    return counts


def resolve_counts(
    source: Source | PretokenCounts,
    *,
    special_tokens: Sequence[str] | None,
    pattern: str | None,
    default_pattern: str,
    workers: int | None,
    executor: Executor | None,
    progress: bool,
) -> PretokenCounts:
    """What a trainer was given, counted, unless it was counted already.

    Args:
        source: a corpus, or the counts of one.
        special_tokens: as in `count_pretokens`; `None` for those of the counts, or none.
        pattern: as in `count_pretokens`; `None` for that of the counts, or the default.
        default_pattern: the trainer's own.
        workers: as in `count_pretokens`.
        executor: as in `count_pretokens`.
        progress: as in `count_pretokens`.

    Raises:
        InvalidArgumentError: the words were counted with special tokens or a pattern that are not these.
    """
    special = resolve_special_tokens(source, special_tokens)
    if not isinstance(source, PretokenCounts):
        return count_pretokens(
            source,
            special_tokens=special,
            pattern=default_pattern if pattern is None else pattern,
            workers=workers,
            executor=executor,
            progress=progress,
        )
    for name, requested, counted in (
        ("special_tokens", special, source.special_tokens),
        ("pattern", source.pattern if pattern is None else pattern, source.pattern),
    ):
        if requested != counted:
            raise InvalidArgumentError(
                f"the words were counted with {name}={counted!r}, not {requested!r}; leave {name} out, or "
                "count again"
            )
    return source


def resolve_special_tokens(
    source: Source | PretokenCounts, special_tokens: Sequence[str] | None
) -> tuple[str, ...]:
    """The special tokens: what was said, or what counts were made with, or none."""
    if special_tokens is None and isinstance(source, PretokenCounts):
        return source.special_tokens
    return tuple(check_special_names(special_tokens or ()))


def count_chunk(chunk: Chunk, *, special_tokens: tuple[str, ...], pattern: str) -> PretokenCounts:
    """Count the words of one chunk; runs in a worker."""
    counter = PretokenCounter()
    size = _count_into(counter, chunk, special=special_tokens, pattern=pattern)
    return make_pretoken_counts(counter.counted(), pattern, special_tokens, *size)


class _Sample(NamedTuple):
    """How much of a corpus to count, and the seed that draws it."""

    max_bytes: int
    seed: int


class _Size(NamedTuple):
    """How much of a corpus was counted."""

    documents: int
    nbytes: int


def _count_into(counter: PretokenCounter, chunk: Chunk, *, special: tuple[str, ...], pattern: str) -> _Size:
    """Count the words of a chunk with a counter that others may share."""
    pre_tokenizer = PatternPreTokenizer(make_pattern_splitter(pattern))
    names = frozenset(special)
    ordinary: list[Text] = []
    documents = nbytes = 0
    for text, starts_document in chunk.read():
        segments = split_ordinary_text(text, names)
        continues = bool(segments[0]) and not starts_document  # from the chunk before
        segments = list(filter(None, segments))
        documents += len(segments) - continues
        ordinary += segments
    for pieces in group_segments(as_segments(ordinary), _PIECE_CHARACTERS, pre_tokenizer.find_split):
        pretokens = split_pieces(pieces, pre_tokenizer).pretokens
        nbytes += int(pretokens.lengths.sum())
        counter.add(pretokens)
    return _Size(documents, nbytes)


def _open_corpus(
    source: Source, special_tokens: tuple[str, ...], pattern: str, chunk_bytes: int, sample: _Sample | None
) -> Corpus:
    """What to count, in chunks."""
    if sample is not None:
        chunk_bytes = min(max(sample.max_bytes // _SAMPLED_CHUNKS, _MIN_SAMPLED_BYTES), _MAX_SAMPLED_BYTES)
    corpus = open_corpus(
        source, special_tokens, chunk_bytes, safe_splits=make_pattern_splitter(pattern).is_named
    )
    if sample is None:
        return corpus
    chunks = sample_chunks(corpus.chunks, *sample)
    return corpus._replace(chunks=chunks, nbytes=sum(chunk.read_nbytes for chunk in chunks))


def _warn_of_invalid_utf8(counts: PretokenCounts) -> None:
    """Logs how many of the words that were read from files are not valid UTF-8; they are kept."""
    if find_invalid_utf8(counts.data.tobytes()) is None:
        return
    invalid = [(word, count) for word, count in counts.items() if find_invalid_utf8(word) is not None]
    if invalid:
        _log.warning(
            "%d words of the files have bytes that are not valid UTF-8, which were kept; such as %r",
            sum(count for _, count in invalid),
            invalid[0][0],
        )


@contextmanager
def _raise_clear_errors() -> Iterator[None]:
    """Clear words where an executor lost a worker, or the user had enough."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("counting was interrupted; nothing was saved") from None
    except BrokenExecutor as error:
        raise TrainingError(
            "a counting process died (killed, or out of memory?); nothing was trained. Try again with a new "
            "executor, of fewer processes if memory is short: the one that lost a process stays broken"
        ) from error


def sample_chunks(chunks: Iterable[Chunk], max_bytes: int, seed: int) -> list[Chunk]:
    """As many chunks, drawn at random, as it takes to have so many bytes; in the order of the corpus.

    All chunks are looked at, and those of the lowest random numbers kept: never more than were asked for,
    and one.

    Args:
        chunks: a corpus, its length unknown.
        max_bytes: when to stop.
        seed: the same seed draws the same chunks.
    """
    numbers = np.random.default_rng(seed)
    selected: list[tuple[float, int, Chunk]] = []  # a heap, the highest random number first
    nbytes = 0
    for index, chunk in enumerate(chunks):
        heapq.heappush(selected, (-numbers.random(), index, chunk))
        nbytes += chunk.nbytes
        while nbytes - selected[0][2].nbytes >= max_bytes:
            nbytes -= heapq.heappop(selected)[2].nbytes
    return [chunk for _, _, chunk in sorted(selected, key=lambda entry: entry[1])]
