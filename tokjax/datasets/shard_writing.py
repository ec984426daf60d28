"""Writing of shards: batches of documents are encoded in parallel and written in source order.

    documents ──▶ batches ──┬──▶ worker ──┬──▶ ShardWriter ──▶ shard-00000.*.npy, shard-00001.*.npy, ...
                            ├──▶ worker ──┤    (source order)
                            └──▶ worker ──┘

The stored form of a document does not depend on its batch, and batches are written in source order. So the
bytes on disk are the same for any number of workers.
"""

from __future__ import annotations

import itertools
import pickle
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.executors import map_in_workers
from tokjax._util.parallel import make_token, map_in_parallel
from tokjax._util.progress import show_progress_bar
from tokjax.datasets.document_encoding import Documents, EncodedDocuments, encode_documents
from tokjax.datasets.document_sources import FileDocuments, FileRecords, batch_documents
from tokjax.datasets.shards import ShardWriter
from tokjax.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from tokjax.datasets.document_sources import Document
    from tokjax.datasets.fields import Field
    from tokjax.datasets.manifest import Plan, Shard

_BATCH_SIZE = 1 << 21
_EXECUTOR_BATCH_SIZE = 1 << 24


class WriteJob(NamedTuple):
    """Input of a writer.

    Attributes:
        field: field that determines the stored form of documents.
        plan: plan for the manifest.
        documents: documents that remain to be written, as pairs of id and text.
        source: entry of the manifest for the source files; `None` for an iterable.
        max_in_flight: maximum number of batches that are encoded at the same time.
        executor: executor that encodes batches; `None` for threads and worker processes.
        progress: whether to show a progress bar on standard error.
    """

    field: Field
    plan: Plan
    documents: Iterator[Document]
    source: dict[str, Any] | None
    max_in_flight: int
    executor: Executor | None
    progress: bool


def write_shards(
    job: WriteJob,
    directory: Path,
    finished: tuple[Shard, ...],
    on_shard: Callable[[Shard], None],
) -> list[Shard]:
    """Encodes documents and appends them to the finished shards.

    Args:
        job: input of the writer.
        directory: directory to write to.
        finished: shards that are finished already.
        on_shard: callback for each shard that is finished.

    Returns:
        All shards, the finished ones first.

    Raises:
        DatasetError: a worker process of the executor died.
    """
    with (
        show_progress_bar("packing", _get_source_nbytes(job), unit="bytes", enabled=job.progress) as advance,
        ShardWriter(directory, job.field, job.plan.shard_size, finished, on_shard) as writer,
    ):
        num_items = sum(shard.num_items for shard in finished)
        num_bytes = sum(shard.num_bytes for shard in finished)
        noun = "bytes" if job.field.tokenizer is None else "tokens"
        reported = 0
        for batch, encoded in _iter_encoded(job):
            num_bytes += writer.add(batch, encoded)
            num_items += len(encoded.data)
            # The total for files is their size on disk, which differs from the size of the documents where
            # files are compressed or have other columns. So count the bytes that were read.
            position = num_bytes
            if isinstance(job.documents, FileDocuments | FileRecords):
                position = job.documents.read_nbytes
            advance(position - reported, f"{num_items:,} {noun}")
            reported = position
    return writer.shards


def _iter_encoded(job: WriteJob) -> Iterator[tuple[Documents, EncodedDocuments]]:
    """Iterates over batches of documents and their encoded form, in source order."""
    batch_size = _BATCH_SIZE if job.executor is None else _EXECUTOR_BATCH_SIZE
    batches, to_encode = itertools.tee(batch_documents(job.documents, batch_size))
    encoded: Iterator[EncodedDocuments]
    if job.executor is None:
        encoder, size = _DocumentEncoder(job.field), _get_source_nbytes(job)
        encoded = map_in_parallel(encoder, make_token(), "encode", to_encode, job.max_in_flight, size)
    else:
        encode = partial(encode_documents, threads=1)
        encoded = map_in_workers(encode, pickle.dumps(job.field), to_encode, job.max_in_flight, job.executor)
    with _convert_broken_executor():
        yield from zip(batches, encoded, strict=True)


def _get_source_nbytes(job: WriteJob) -> int | None:
    """Returns the size of the source files in bytes, `None` if the source is an iterable."""
    return None if job.source is None else sum(nbytes for _, nbytes in job.source["files"])


class _DocumentEncoder(NamedTuple):
    """Encodes documents as a field stores them, in one thread."""

    field: Field

    def encode(self, documents: Documents) -> EncodedDocuments:
        """Encodes a batch of documents."""
        return encode_documents(self.field, documents, threads=1)


@contextmanager
def _convert_broken_executor() -> Iterator[None]:
    try:
        yield
    except BrokenExecutor as error:
        raise DatasetError(
            "a worker process died (killed, or out of memory?); finished shards are kept: call write_dataset "
            "again, with a new executor"
        ) from error
