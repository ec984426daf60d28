"""Writing of shards: batches of documents are encoded in parallel and written in source order.

    batches ──┬──▶ worker ──┬──▶ ShardWriter ──▶ shard-00000.*.npy, shard-00001.*.npy, ...
              ├──▶ worker ──┤    (source order)
              └──▶ worker ──┘

A batch of the documents of files consists of positions in these files. Each worker reads, encodes and hashes
its batches. It doesn't know how many documents come before them, so they are numbered when they are written:

    batch                           worker                          ShardWriter
    a.txt, bytes 0 to 999           3 documents: ids, digests       documents 0, 1, 2
    a.txt, bytes 1000 to 1999       2 documents: ids, digests       documents 3, 4
    b.parquet, row groups 0 and 1   9 documents: ids, digests       documents 5 to 13

The stored form of a document does not depend on its batch, and batches are written in source order. So the
bytes on disk are the same for any number of workers.
"""

from __future__ import annotations

import itertools
import pickle
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.executors import map_in_workers
from tokjax._util.parallel import make_token, map_in_parallel
from tokjax._util.progress import show_progress_bar
from tokjax.corpus.sources import ReadingReport
from tokjax.datasets.document_encoding import (
    EncodedDocuments,
    encode_documents,
)
from tokjax.datasets.document_sources import (
    DocumentDigests,
    DocumentReader,
    compute_digests,
)
from tokjax.datasets.fields.conversation import ConversationField
from tokjax.datasets.shards import ShardWriter
from tokjax.errors import DatasetError, SourceError, TokjaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from tokjax.datasets.document_sources import Batch
    from tokjax.datasets.fields.registry import Field
    from tokjax.datasets.manifest import Plan, Shard

_BATCH_SIZE = 1 << 21
_EXECUTOR_BATCH_SIZE = 1 << 24
_DOCUMENT_BYTES = 128
"""Approximate memory for a document in addition to its text."""


class WriteJob(NamedTuple):
    """Input of a writer.

    Attributes:
        field: field that determines the stored form of documents.
        plan: plan for the manifest.
        reader: reader of the batches.
        batches: documents that remain to be written.
        restart: function that reads the batches from the start again; `None` if the source is an iterator.
        source: entry of the manifest for the source files; `None` for an iterable.
        max_in_flight: maximum number of batches that are encoded at the same time.
        executor: executor that encodes batches; `None` for threads and worker processes.
        progress: whether to show a progress bar on standard error.
        check_source: function that raises an error if files of the source have changed.
        read_nbytes: number of bytes of the files of documents that do not remain, for the progress bar.
        report: report on the batches that do not remain.
    """

    field: Field
    plan: Plan
    reader: DocumentReader
    batches: Iterator[Batch]
    restart: Callable[[], Iterator[Batch]] | None
    source: dict[str, Any] | None
    max_in_flight: int
    executor: Executor | None
    progress: bool
    check_source: Callable[[], None]
    read_nbytes: int = 0
    report: ReadingReport = ReadingReport()

    def fix_date(self, recorded: Plan | None) -> WriteJob:
        """Returns the job with the date of the dataset, if its field needs one.

        Args:
            recorded: plan of an earlier start, whose date is used; `None` for the current day.
        """
        if not isinstance(self.field, ConversationField):
            return self
        is_same = recorded is not None and recorded.type_id == self.plan.type_id
        field = self.field.fix_date(recorded.options.get("date") if recorded and is_same else None)
        return self._replace(field=field, plan=replace(self.plan, options=field.options))


def write_shards(
    job: WriteJob,
    directory: Path,
    finished: tuple[Shard, ...],
    on_shard: Callable[[Shard], None],
) -> tuple[list[Shard], ReadingReport]:
    """Encodes documents and appends them to the finished shards.

    Args:
        job: input of the writer.
        directory: directory to write to.
        finished: shards that are finished already.
        on_shard: callback for each shard that is finished.

    Returns:
        All shards, the finished ones first, and the report on all documents.

    Raises:
        DatasetError: a worker process of the executor died.
        SourceError: a file is damaged, or has changed, or all records are bad.
    """
    with (
        show_progress_bar("packing", _get_source_nbytes(job), unit="bytes", enabled=job.progress) as advance,
        ShardWriter(directory, job.field, job.plan.shard_size, finished, on_shard) as writer,
    ):
        num_items = sum(shard.num_items for shard in finished)
        num_bytes = sum(shard.num_bytes for shard in finished)
        read_nbytes, reported = job.read_nbytes, 0
        report = job.report
        noun = "bytes" if job.field.tokenizer is None else "tokens"
        for batch, answer in map_batches(job, "encode"):
            for digests, encoded in answer.parts:
                num_bytes += writer.add(digests, encoded)
                num_items += len(encoded.data)
            report = report.add(answer.report)
            # The total for files is their size on disk, which differs from the size of the documents where
            # files are compressed or have other columns. So count the bytes that were read.
            read_nbytes += batch.read_nbytes
            position = num_bytes if job.source is None else read_nbytes
            advance(position - reported, f"{num_items:,} {noun}")
            reported = position
        job.check_source()
        report.log()
    if report.num_skipped and not any(shard.num_source_documents for shard in writer.shards):
        raise SourceError(f"all records are bad ({report.num_skipped}): {report.describe_skipped()}")
    return writer.shards, report


def get_batch_size(executor: Executor | None) -> int:
    """Returns the size of a batch in bytes. Larger ones make up for the latency of an executor."""
    return _BATCH_SIZE if executor is None else _EXECUTOR_BATCH_SIZE


def map_batches(job: WriteJob, method: str) -> Generator[tuple[Batch, Any], None, None]:
    """Iterates over the batches of a job and what a method of `DocumentEncoder` returns for each, in order.

    Args:
        job: input of the writer.
        method: name of the method.

    Raises:
        DatasetError: a worker process of the executor died.
        SourceError: a worker did not find a file.
    """
    batches, items = itertools.tee(job.batches)
    encoder = DocumentEncoder(job.field, job.reader)
    if job.executor is None:
        size = _get_source_nbytes(job)
        results = map_in_parallel(encoder, make_token(), method, items, job.max_in_flight, size)
    else:
        function = getattr(DocumentEncoder, method)
        results = map_in_workers(function, pickle.dumps(encoder), items, job.max_in_flight, job.executor)
    with _convert_executor_errors(job.executor):
        yield from zip(batches, results, strict=True)


def _get_source_nbytes(job: WriteJob) -> int | None:
    """Returns the size of the source files in bytes, `None` if the source is an iterable."""
    return None if job.source is None else sum(nbytes for _, nbytes in job.source["files"])


class EncodedBatch(NamedTuple):
    """Answer of a worker for a batch.

    Attributes:
        parts: consecutive documents, and their stored form.
        report: report on the documents.
    """

    parts: list[tuple[DocumentDigests, EncodedDocuments]]
    report: ReadingReport


class DocumentEncoder(NamedTuple):
    """Reads batches and encodes them as a field stores them, in one thread."""

    field: Field
    reader: DocumentReader

    def encode(self, batch: Batch) -> EncodedBatch:
        """Encodes a batch, and computes the digests of its documents."""
        documents = self.reader.read(batch)
        digests = compute_digests(documents)
        parts = []
        for start, stop in _split_batch(digests):
            encoded = encode_documents(self.field, documents.take(start, stop), threads=1)
            parts.append((digests.take(start, stop), encoded))
        return EncodedBatch(parts, documents.report)

    def digest(self, batch: Batch) -> tuple[DocumentDigests, ReadingReport]:
        """Computes the digests of the documents of a batch, and returns them with the report."""
        documents = self.reader.read(batch)
        return compute_digests(documents), documents.report


def _split_batch(digests: DocumentDigests) -> Iterator[tuple[int, int]]:
    """Yields the bounds of parts of a batch: a row group can be large, or a batch have many documents."""
    if not len(digests.sha256):
        return
    parts = (np.cumsum(digests.num_bytes + _DOCUMENT_BYTES) - 1) // _BATCH_SIZE
    bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
    yield from zip(bounds, bounds[1:], strict=False)


class SourceChangedError(SourceError):
    """A file of the source was altered or replaced while it was read."""


@contextmanager
def report_missing_files() -> Iterator[None]:
    """Replaces the error for a file of the source that was deleted or renamed after it was found.

    Raises:
        SourceError: a file is missing.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise SourceError(
            f"{error.filename}: no longer exists, and finished shards are kept; restore it and make the same "
            "call again, which resumes"
        ) from error


@contextmanager
def report_source_changes(job: WriteJob, on_change: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Replaces errors in the block by the cause, if files of the source have changed or are missing.

    A change can show as a torn line, as a damaged table, or as documents that differ from finished shards.

    Args:
        job: input of the writer.
        on_change: function that is called if files have changed.

    Raises:
        SourceError: a file has changed, or is missing.
    """
    try:
        yield
    except (TokjaxError, OSError) as error:
        try:
            job.check_source()
        except SourceChangedError as change:
            on_change()
            raise change from error
        raise


@contextmanager
def _convert_executor_errors(executor: Executor | None) -> Iterator[None]:
    try:
        yield
    except BrokenExecutor as error:
        raise DatasetError(
            "a worker process died (killed, out of memory, or started by a program whose code is not below "
            "'if __name__ == \"__main__\":'?); finished shards are kept: call write_dataset again, with a "
            "new executor"
        ) from error
    except FileNotFoundError as error:
        if executor is None:
            raise
        raise SourceError(
            f"a worker did not find {error.filename}: workers read the files of the source under the same "
            "absolute paths as this process; to send them the texts instead, pass "
            "tokjax.corpus.read_documents(SOURCE, SEPARATOR)"
        ) from error
