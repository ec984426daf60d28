"""Counting of the pre-tokens of a corpus, in parallel, with bounded memory.

A corpus is read in chunks. Threads count chunks into one shared `PretokenCounter`. Each worker process has a
counter of its own, and workers of an executor have one for each chunk. The calling thread adds their counts.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import logging
import pickle
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax._util.checks import check_int, check_text
from tokjax._util.display import show_progress_bar
from tokjax._util.executors import check_executor, map_in_workers
from tokjax._util.parallel import make_token, map_in_parallel
from tokjax._util.threads import WorkerDiedError, resolve_num_threads
from tokjax.bpe.chunks import CHUNK_CHARACTERS, as_segments, group_segments, split_pieces
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.corpus.decompression import find_invalid_utf8
from tokjax.corpus.sources import Source, open_corpus
from tokjax.errors import InvalidArgumentError, TrainingError
from tokjax.models.byte_bpe import get_default_normalizer
from tokjax.pretokenize.normalization import to_nfc
from tokjax.pretokenize.patterns import Pattern, make_pattern_splitter
from tokjax.pretokenize.special_tokens import check_special_names, split_ordinary_text
from tokjax.trainer.pretoken_counts import (
    CountedPretokens,
    PretokenCounter,
    PretokenCounts,
    make_pretoken_counts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tokjax.core.utf8 import Text
    from tokjax.corpus.readers import Chunk


_log = logging.getLogger("tokjax")

_CHUNK_BYTES = 1 << 20
_EXECUTOR_CHUNK_BYTES = 1 << 24
"""Larger than `_CHUNK_BYTES`: each chunk starts with empty tables, and its counts are sent back."""
_SAMPLED_CHUNKS, _MIN_SAMPLED_BYTES, _MAX_SAMPLED_BYTES = 64, 1 << 14, 1 << 24


def count_pretokens(
    source: Source,
    *,
    special_tokens: Sequence[str] = (),
    pattern: Pattern = "gpt2",
    normalize: Callable[[Text], Text] | Literal["auto"] | None = "auto",
    workers: int | None = None,
    executor: Executor | None = None,
    max_bytes: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> PretokenCounts:
    """Counts the pre-tokens of a corpus. The counts train vocabularies of any size without another read.

    Memory is bounded by the distinct pre-tokens and a few chunks of the corpus. The result is the same for
    any number of workers.

    Args:
        source: a path or a pattern of paths, a list of paths (`os.PathLike`), `text_files(...)`, or an
            iterable of texts. The name of a file, which may be compressed, selects its format: text, JSON
            lines (field `"text"`), CSV, TSV, Parquet or Arrow. Text is read in chunks, split at special
            tokens and, if the pattern starts a pre-token at each space after a letter, between pre-tokens.
            Otherwise, the text between two special tokens is one chunk.
        special_tokens: names of special tokens. The text is split at them, and they are not counted.
        pattern: the split pattern, as in `byte_level_bpe`.
        normalize: function that changes texts before they are split, such as `partial(tokjax.normalize,
            tokenizer)`, or `None`. `"auto"` normalizes to NFC for the patterns for which `byte_level_bpe`
            does. Texts are `str` or, from text files, the `bytes` of a part of a file. For worker processes,
            the function must pickle.
        workers: number of chunks that are counted concurrently; `None` for the number of cores.
        executor: executor that counts the chunks; `None` for threads of this process, and for worker
            processes if the corpus is large.
        max_bytes: approximate size in bytes of a random sample to count; `None` for the whole corpus. The
            sample consists of some dozens of chunks of at least 16 KiB from all over the corpus. A text that
            can't be split is one chunk. A document counts in `documents` if the chunk with its start is
            sampled. Compressed files and iterables are read to the end, and the sample is held in memory.
        seed: seed of the sample. The sample does not depend on the number of workers.
        progress: whether to show a progress bar on standard error.

    Returns:
        The distinct pre-tokens and their counts.

    Raises:
        InvalidArgumentError: an option or the source is invalid.
        SourceError: a file is damaged, or its content does not have the format of its name.
        TrainingError: a worker of the executor died.

    >>> counts = count_pretokens(["low low lower"], progress=False)
    >>> list(counts.items())
    [(b'low', 1), (b' low', 1), (b' lower', 1)]
    """
    special = tuple(check_special_names(special_tokens))
    check_executor(executor)
    concurrency = resolve_num_threads(workers, "workers")
    seed = check_int("seed", seed, minimum=0)
    chunk_bytes = _CHUNK_BYTES if executor is None else _EXECUTOR_CHUNK_BYTES
    if max_bytes is not None:
        max_bytes = check_int("max_bytes", max_bytes, minimum=1)
        chunk_bytes = min(max(max_bytes // _SAMPLED_CHUNKS, _MIN_SAMPLED_BYTES), _MAX_SAMPLED_BYTES)
    splits_before_spaces = make_pattern_splitter(pattern).splits_before_spaces
    corpus = open_corpus(source, special, chunk_bytes, safe_splits=splits_before_spaces)
    if max_bytes is not None:
        sampled = sample_chunks(corpus.chunks, max_bytes, seed)
        corpus = corpus._replace(chunks=sampled, nbytes=sum(chunk.read_nbytes for chunk in sampled))
    if normalize == "auto":
        has_default = get_default_normalizer(pattern) is not None
        normalize = partial(to_nfc, preserved=frozenset(special)) if has_default else None
    elif normalize is not None and not callable(normalize):
        raise InvalidArgumentError(
            f"normalize must be a function of a text, None or 'auto', not {normalize!r:.100}"
        )
    counter = ChunkCounter(special, pattern, normalize)
    documents = nbytes = 0
    chunks, ahead = itertools.tee(corpus.chunks)
    with (
        show_progress_bar("counting", corpus.nbytes, unit="bytes", enabled=progress) as advance,
        _raise_clear_errors(),
    ):
        if executor is not None:
            counted_chunks = map_in_workers(
                partial(_count_chunk, counter), pickle.dumps(None), ahead, concurrency, executor
            )
            parts: Iterator[tuple[int, int]] = map(partial(_merge, counter), counted_chunks)
        else:
            gather = ("to_counted_pretokens", counter.merge)
            parts = map_in_parallel(counter, make_token(), "count", ahead, concurrency, corpus.nbytes, gather)
        for chunk, (num_documents, num_bytes) in zip(chunks, parts, strict=True):
            documents += num_documents
            nbytes += num_bytes
            advance(chunk.read_nbytes, f"{len(counter):,} pre-tokens")
        counted = counter.to_counted_pretokens()
        advance(0, f"{len(counted.counts):,} pre-tokens")  # now with those of worker processes
    counts = make_pretoken_counts(counted, pattern, special, documents, nbytes, corpus.files)
    if corpus.files:
        _warn_about_invalid_utf8(counts)
    return counts


def _count_chunk(counter: ChunkCounter, _: None, chunk: Chunk) -> tuple[tuple[int, int], CountedPretokens]:
    """Counts the pre-tokens of one chunk, in a worker of an executor, with an empty copy of a counter."""
    counter = copy.copy(counter)
    return counter.count(chunk), counter.to_counted_pretokens()


def _merge(counter: PretokenCounter, part: tuple[tuple[int, int], CountedPretokens]) -> tuple[int, int]:
    """Adds the counts of a chunk to a counter, and returns its size."""
    size, counted = part
    counter.merge(counted)
    return size


class ChunkCounter(PretokenCounter):
    """Counts the pre-tokens of chunks. Threads can share it.

    Args:
        special_tokens: as in `count_pretokens`.
        pattern: as in `count_pretokens`.
        normalize: as in `count_pretokens`, but not `"auto"`.
    """

    def __init__(
        self,
        special_tokens: tuple[str, ...],
        pattern: Pattern,
        normalize: Callable[[Text], Text] | None,
    ) -> None:
        super().__init__()
        self._arguments = special_tokens, pattern, normalize
        self._normalize = normalize
        self._special_tokens = frozenset(special_tokens)
        self._pre_tokenizer = PatternPreTokenizer(make_pattern_splitter(pattern))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies without the counts: a copy starts at 0."""
        return ChunkCounter, self._arguments

    def count(self, chunk: Chunk) -> tuple[int, int]:
        """Counts the pre-tokens of a chunk. Returns its number of documents and bytes."""
        ordinary: list[Text] = []
        documents = nbytes = 0
        for text, starts_document in chunk.read():
            normalized = text
            if self._normalize is not None:
                normalized = check_text(self._normalize(text), "the result of normalize")
            segments = split_ordinary_text(normalized, self._special_tokens)
            continues = bool(segments[0]) and not starts_document  # the document started in the chunk before
            segments = list(filter(None, segments))
            documents += len(segments) - continues
            ordinary += segments
        find_split = self._pre_tokenizer.find_split
        for pieces in group_segments(as_segments(ordinary), CHUNK_CHARACTERS, find_split):
            pretokens = split_pieces(pieces, self._pre_tokenizer).pretokens
            nbytes += int(pretokens.lengths.sum())
            self.add(pretokens)
        return documents, nbytes


def _warn_about_invalid_utf8(counts: PretokenCounts) -> None:
    """Logs the number of pre-tokens from files that are not valid UTF-8. They are kept."""
    if find_invalid_utf8(counts.data.tobytes()) is None:
        return
    invalid = [
        (pretoken, count) for pretoken, count in counts.items() if find_invalid_utf8(pretoken) is not None
    ]
    if invalid:
        _log.warning(
            "%d pre-tokens of the files are not valid UTF-8, and were kept; for example %r",
            sum(count for _, count in invalid),
            invalid[0][0],
        )


@contextmanager
def _raise_clear_errors() -> Iterator[None]:
    """Replaces the errors of a dead worker and of an interrupt by ones that say what happened."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("counting was interrupted; nothing was saved") from None
    except (WorkerDiedError, BrokenExecutor) as error:
        advice = (
            "workers=1, which starts no process"
            if isinstance(error, WorkerDiedError)
            else "a new executor, since this one is broken, and with fewer processes if memory is short"
        )
        raise TrainingError(
            "a counting process died (killed, or out of memory?), and nothing was trained; try again with "
            f"{advice}"
        ) from error


def sample_chunks(chunks: Iterable[Chunk], max_bytes: int, seed: int) -> list[Chunk]:
    """Returns randomly chosen chunks of about `max_bytes` in all, in the order of the corpus.

    Every chunk gets a random number, and the chunks with the lowest numbers are selected: just enough of them
    to reach `max_bytes`. So at most one chunk more than the budget is in memory at a time.

    Args:
        chunks: chunks of a corpus, which is read to its end.
        max_bytes: minimum size of the sample in bytes, unless the corpus is smaller.
        seed: seed of the random numbers. Equal seeds select equal chunks.
    """
    rng = np.random.default_rng(seed)
    selected: list[tuple[float, int, Chunk]] = []  # a heap: the chunk with the highest random number is first
    nbytes = 0
    for index, chunk in enumerate(chunks):
        heapq.heappush(selected, (-rng.random(), index, chunk))
        nbytes += chunk.nbytes
        while nbytes - selected[0][2].nbytes >= max_bytes:
            nbytes -= heapq.heappop(selected)[2].nbytes
    return [chunk for _, _, chunk in sorted(selected, key=lambda entry: entry[1])]
