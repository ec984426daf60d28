"""From documents to the shards of a dataset: encoded by several workers, written in order."""

from __future__ import annotations

import itertools
import pickle
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.executors import map_in_workers
from tokjax._util.progress import show_progress_bar
from tokjax._util.threads import map_in_threads
from tokjax.datasets.document_encoding import Documents, EncodedDocuments, encode_documents
from tokjax.datasets.document_sources import FileDocuments, batch_documents
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
    """What is to be written.

    Attributes:
        field: what is stored of documents.
        plan: how.
        documents: those that are left to write.
        source: what the manifest says of where they come from.
        max_in_flight: how many batches are encoded at a time.
        executor: where; `None` for threads of this process.
        progress: whether to show a bar on standard error.
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
    """Encode documents and write them behind the shards that are finished.

    Args:
        job: what is to be written.
        directory: where to.
        finished: the shards that are there already.
        on_shard: is told of each shard that is finished.

    Returns:
        All shards.
    """
    total = None if job.source is None else sum(nbytes for _, nbytes in job.source["files"])
    with (
        show_progress_bar("packing", total, unit="bytes", enabled=job.progress) as advance,
        ShardWriter(directory, job.field, job.plan.shard_size, finished, on_shard) as writer,
    ):
        num_items = sum(shard.num_items for shard in finished)
        num_bytes = sum(shard.num_bytes for shard in finished)
        noun = "bytes" if job.field.tokenizer is None else "tokens"
        shown = 0
        for batch, encoded in _iter_encoded(job):
            num_bytes += writer.add(batch, encoded)
            num_items += len(encoded.data)
            # (What is in files may be compressed, or beside other things: of them counts what was read.)
            reached = job.documents.read_nbytes if isinstance(job.documents, FileDocuments) else num_bytes
            advance(reached - shown, f"{num_items:,} {noun}")
            shown = reached
    return writer.shards


def _iter_encoded(job: WriteJob) -> Iterator[tuple[Documents, EncodedDocuments]]:
    """Batches of documents with what is stored of them, in order."""
    batch_size = _BATCH_SIZE if job.executor is None else _EXECUTOR_BATCH_SIZE
    batches, ahead = itertools.tee(batch_documents(job.documents, batch_size))
    encode = partial(encode_documents, threads=1)
    if job.executor is None:
        encoded = map_in_threads(partial(encode, job.field), ahead, job.max_in_flight)
    else:
        encoded = map_in_workers(encode, pickle.dumps(job.field), ahead, job.max_in_flight, job.executor)
    with _clear_if_broken():
        yield from zip(batches, encoded, strict=True)


@contextmanager
def _clear_if_broken() -> Iterator[None]:
    try:
        yield
    except BrokenExecutor as error:
        raise DatasetError(
            "an encoding process died (killed, or out of memory?); what was finished is kept: call "
            "write_dataset again, with a new executor"
        ) from error
