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

A shard is closed by the document that reaches the shard size. With `shard_size=6` and documents of 3, 4 and 1
ids (`"Hi"`, `"é!"`, `""`, each with EOS):

                                "Hi"         "é!"
    shard-00000.tokens.npy      [73, 106, 0, 196, 170, 34, 0]      ids, uint16 (é has two bytes, EOS is 0)
    shard-00000.num_tokens.npy  [3,          4]                    number of ids per document, uint8
                                ""
    shard-00001.tokens.npy      [0]
    shard-00001.num_tokens.npy  [1]

A file `shard-00000.doc_id.npy` is written only if the ids of the documents are not the count 0, 1, 2, ...
over all shards. In a `BucketedTokenField`, the documents of a shard are sorted by bucket, so that each bucket
is a contiguous range:

    source order  lengths [9, 2, 7, 3]   boundaries (4, 8, 16)   buckets [2, 0, 1, 0]
    stored order  lengths [2, 3, 7, 9]   doc_id [1, 3, 2, 0]     bucket_documents (2, 1, 1)

See docs/dataset-format.md, section "Arrays".
"""

from __future__ import annotations

import hashlib
import io
import itertools
import pickle
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.atomic_files import write_atomically
from tokjax._util.display import show_progress_bar
from tokjax._util.executors import map_in_workers
from tokjax._util.parallel import make_token, map_in_parallel
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.corpus.sources import ReadingReport
from tokjax.datasets.document_encoding import EncodedDocuments, encode_documents
from tokjax.datasets.document_sources import DocumentDigests, DocumentReader, SourceHash, compute_digests
from tokjax.datasets.fields.base import get_unsigned_dtype
from tokjax.datasets.fields.conversation import ConversationField
from tokjax.datasets.fields.text_fields import BucketedTokenField
from tokjax.datasets.manifest import FileRecord, Shard
from tokjax.errors import DatasetError, SourceError, TokjaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import NDArray

    from tokjax.datasets.document_sources import Batch
    from tokjax.datasets.fields.registry import Field
    from tokjax.datasets.manifest import Plan

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

    def remove(self, batch: Batch, report: ReadingReport) -> WriteJob:
        """Returns the job after a batch with this report was taken from it."""
        return self._replace(read_nbytes=self.read_nbytes + batch.read_nbytes, report=self.report.add(report))

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
        ShardWriter(directory, job.field, job.plan.shard_size, finished, on_shard).open() as writer,
    ):
        read_nbytes, reported = job.read_nbytes, 0
        report = job.report
        noun = "bytes" if job.field.tokenizer is None else "tokens"
        for batch, (parts, found) in map_batches(job, "encode"):
            for digests, encoded in parts:
                writer.add(digests, encoded)
            report = report.add(found)
            # The total for files is their size on disk, which differs from the size of the documents where
            # files are compressed or have other columns. So count the bytes that were read.
            read_nbytes += batch.read_nbytes
            position = writer.num_bytes if job.source is None else read_nbytes
            advance(position - reported, f"{writer.num_items:,} {noun}")
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


class DocumentEncoder(NamedTuple):
    """Reads batches and encodes them as a field stores them, in one thread."""

    field: Field
    reader: DocumentReader

    def encode(self, batch: Batch) -> tuple[list[tuple[DocumentDigests, EncodedDocuments]], ReadingReport]:
        """Returns the digests and the stored form of the documents of a batch, in parts, and the report."""
        documents = self.reader.read(batch)
        digests = compute_digests(documents)
        parts = []
        for start, stop in _split_batch(digests):
            encoded = encode_documents(self.field, documents.take(start, stop), threads=1)
            parts.append((digests.take(start, stop), encoded))
        return parts, documents.report

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


class _Part(NamedTuple):
    """Consecutive encoded documents of the current shard, without those that are left out.

    Attributes:
        items: columns per item, shape `(items,)`.
        documents: columns per document, with their ids, shape `(documents,)`.
        num_dropped: number of items that were truncated from each document, shape `(documents,)`.
        num_bytes: number of UTF-8 bytes of the documents before encoding.
        num_dropped_documents: number of documents of the source that are left out.
        is_numbered: whether the ids of all documents of the source continue the count 0, 1, 2, ...
    """

    items: dict[str, NDArray[Any]]
    documents: dict[str, NDArray[Any]]
    num_dropped: NDArray[np.int64]
    num_bytes: int
    num_dropped_documents: int
    is_numbered: bool


class ShardWriter:
    """Collects encoded documents, and writes them as shards of similar size.

    A shard is written on a separate thread while the next one is collected, so up to two shards are in
    memory.

    Args:
        directory: directory to write to.
        field: field that determines the stored form of documents.
        shard_size: number of ids, or of bytes of text, at which a shard is closed.
        finished: shards that are finished already.
        on_shard: callback for each shard that is finished. It runs on the writer's thread.
        counts_text: whether documents are text, whose bytes are counted in `Shard.num_bytes`.

    Attributes:
        shards: all finished shards, in stream order.
        num_items: number of ids, or of bytes of text, of all documents that were added.
        num_bytes: number of UTF-8 bytes of these documents before encoding, also of those left out.
    """

    def __init__(
        self,
        directory: Path,
        field: Field,
        shard_size: int,
        finished: Sequence[Shard] = (),
        on_shard: Callable[[Shard], None] = lambda _: None,
        *,
        counts_text: bool = True,
    ) -> None:
        self.shards = list(finished)
        self.num_items = sum(shard.num_items for shard in finished)
        self.num_bytes = sum(shard.num_bytes for shard in finished)
        self._directory = directory
        self._field = field
        self._shard_size = shard_size
        self._on_shard = on_shard
        self._counts_text = counts_text
        self._hash = SourceHash()
        self._parts: list[_Part] = []
        self._num_pending_items = 0
        self._num_closed = len(self.shards)
        self._num_added = sum(shard.num_source_documents for shard in finished)
        self._first_document = sum(shard.num_documents for shard in finished)
        self._pool = ThreadPoolExecutor(1, "tokjax-shards")
        self._pending_write: Future[None] | None = None

    @contextmanager
    def open(self) -> Iterator[ShardWriter]:
        """Yields the writer, and writes the last shard. After an error, only waits for a running write."""
        with self._pool:
            yield self
            self._close_shard()
            self._wait()

    def add(self, digests: DocumentDigests, encoded: EncodedDocuments) -> None:
        """Adds documents, and starts to write each shard that they complete.

        Args:
            digests: ids, sizes and digests of the documents.
            encoded: stored form of the documents.
        """
        documents = digests.number(self._num_added)
        splits, first, count = encoded.splits, 0, len(digests.sha256)
        while first < count:
            remaining = self._shard_size - self._num_pending_items
            last = int(np.searchsorted(splits, splits[first] + remaining))
            last = min(max(last, first + 1), count)
            items = slice(int(splits[first]), int(splits[last]))
            self._append(documents.take(first, last), encoded, slice(first, last), items)
            first = last
            if self._num_pending_items >= self._shard_size:
                self._close_shard()

    def _append(
        self, digests: DocumentDigests, encoded: EncodedDocuments, documents: slice, items: slice
    ) -> None:
        """Appends documents `documents` of a batch, which have the items `items`, to the current shard."""
        assert digests.doc_ids is not None, "they are numbered"
        self._hash.add(digests)
        numbers = np.arange(self._num_added, self._num_added + len(digests.doc_ids), dtype=np.uint64)
        is_kept = ... if encoded.is_kept is None else encoded.is_kept[documents]
        columns = {name: values[documents][is_kept] for name, values in encoded.documents.items()}
        doc_ids = digests.doc_ids[is_kept]
        part = _Part(
            {name: values[items] for name, values in encoded.items.items()},
            columns | {"doc_id": doc_ids},
            encoded.num_dropped[documents][is_kept],
            int(digests.num_bytes[is_kept].sum()),
            len(numbers) - len(doc_ids),
            np.array_equal(digests.doc_ids, numbers),
        )
        self._parts.append(part)
        self._num_added += len(numbers)
        self._num_pending_items += items.stop - items.start
        self.num_items += items.stop - items.start
        self.num_bytes += int(digests.num_bytes.sum())

    def _close_shard(self) -> None:
        """Starts writing the collected documents as a shard, if there are any."""
        if not self._parts:
            return
        self._wait()
        parts, digest = self._parts, self._hash.pop()
        self._parts, self._num_pending_items = [], 0
        self._pending_write = self._pool.submit(self._write, f"shard-{self._num_closed:05d}", parts, digest)
        self._num_closed += 1

    def _wait(self) -> None:
        if self._pending_write is not None:
            self._pending_write.result()
            self._pending_write = None

    def _write(self, name: str, parts: list[_Part], source_sha256: str) -> None:
        items = {key: [part.items[key] for part in parts] for key in parts[0].items}
        documents = {
            key: np.concatenate([part.documents[key] for part in parts]) for key in parts[0].documents
        }
        num_dropped = np.concatenate([part.num_dropped for part in parts])
        num_items, num_documents = sum(map(len, items[self._field.DATA])), len(documents["doc_id"])
        buckets = None
        if isinstance(self._field, BucketedTokenField):
            items, documents, buckets = _sort_by_bucket(self._field, items, documents)
        default_ids = np.arange(self._first_document, self._first_document + num_documents, dtype=np.uint64)
        if np.array_equal(documents["doc_id"], default_ids):  # (without a file, readers number the documents)
            del documents["doc_id"]
        side = {column.name: column for column in self._field.columns}
        arrays = {self._field.DATA: items[self._field.DATA]}
        arrays |= {key: [_compact(values)] for key, values in documents.items() if key not in side}
        for key, column in side.items():
            values = np.concatenate(items[key]) if column.per == "token" else documents[key]
            arrays[key] = [column.pack(values)]
        records = {}
        for key, parts_of_file in arrays.items():
            file = f"{name}.{key}.npy"
            records[file] = write_array(self._directory / file, parts_of_file, parts_of_file[0].dtype)
        num_bytes = sum(part.num_bytes for part in parts) if self._counts_text else 0
        shard = Shard(
            name,
            num_items,
            num_documents,
            num_bytes,
            int(np.count_nonzero(num_dropped)),
            int(num_dropped.sum()),
            all(part.is_numbered for part in parts),
            buckets,
            source_sha256,
            records,
            sum(part.num_dropped_documents for part in parts),
        )
        self.shards.append(shard)
        self._first_document += num_documents
        self._on_shard(shard)


def write_array(path: Path | None, parts: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> FileRecord:
    """Writes a one-dimensional array as an `.npy` file, atomically.

    Args:
        path: path of the file; `None` to compute its size and checksum only.
        parts: consecutive parts of the array, each one-dimensional.
        dtype: dtype of all parts.

    Returns:
        Size and checksum of the file.
    """
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    np.lib.format.write_array_header_1_0(header, {**described, "shape": (sum(map(len, parts)),)})
    contents = [part.view(np.uint8).data for part in parts if len(part)]
    blocks: list[bytes | memoryview] = [header.getvalue(), *contents]
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    if path is not None:
        write_atomically(path, lambda file: file.writelines(blocks))
    return FileRecord(sum(map(len, blocks)), digest.hexdigest())


def _sort_by_bucket(
    field: BucketedTokenField, items: dict[str, list[NDArray[Any]]], documents: dict[str, NDArray[Any]]
) -> tuple[dict[str, list[NDArray[Any]]], dict[str, NDArray[Any]], tuple[int, ...]]:
    """Returns the columns of a shard with its documents sorted by bucket, and the documents per bucket.

    The sort is stable: documents of one bucket stay in source order.
    """
    lengths = documents["num_tokens"]
    buckets = np.searchsorted(np.array(field.bucket_boundaries), lengths)
    counts = np.bincount(buckets, minlength=len(field.bucket_boundaries))
    order = np.argsort(buckets, kind="stable")
    moved = concatenate_ranges(make_row_splits(lengths)[:-1][order], lengths[order])
    return (
        {name: [np.concatenate(values).take(moved)] for name, values in items.items()},
        {name: values[order] for name, values in documents.items()},
        tuple(counts.tolist()),
    )


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(get_unsigned_dtype(int(values.max(initial=0))))
