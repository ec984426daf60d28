"""Shards: whole documents gathered to files of about one size, written while the next is gathered."""

from __future__ import annotations

import hashlib
import io
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.files import write_atomically
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.datasets.document_sources import SourceHash
from tokjax.datasets.fields import BucketedTokenField, get_unsigned_dtype
from tokjax.datasets.manifest import FileRecord, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO

    from numpy.typing import NDArray

    from tokjax.datasets.document_encoding import Documents, EncodedDocuments
    from tokjax.datasets.fields import Field


class _Part(NamedTuple):
    """Some documents of a shard."""

    data: NDArray[Any]
    columns: dict[str, NDArray[np.int64]]
    num_bytes: int


class ShardWriter:
    """Gathers what is stored of documents, and writes a shard when there is enough.

    A context manager: leaving it without an error writes the last shard. A shard is written on a thread of
    its own while the next is gathered, so two of them are in memory.

    Args:
        directory: where to write.
        field: what is stored.
        shard_size: a shard is closed by the document that fills it to so many ids, or bytes of text.
        finished: the shards that are there already.
        on_shard: is told of each shard that is finished.
        counts_text: whether what documents are fed as is text, whose bytes are counted.
    """

    def __init__(
        self,
        directory: Path,
        field: Field,
        shard_size: int,
        finished: Sequence[Shard],
        on_shard: Callable[[Shard], None],
        *,
        counts_text: bool = True,
    ) -> None:
        self.shards = list(finished)
        self._directory = directory
        self._field = field
        self._shard_size = shard_size
        self._on_shard = on_shard
        self._counts_text = counts_text
        self._hash = SourceHash()
        self._parts: list[_Part] = []
        self._gathered = self._num_cut = 0
        self._closed = len(self.shards)
        self._first_document = sum(shard.num_documents for shard in finished)
        self._pool = ThreadPoolExecutor(1, "tokjax-shards")
        self._writing: Future[None] | None = None

    def __enter__(self) -> ShardWriter:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the last shard, and wait for it; after an error, only for what is being written."""
        try:
            if kind is None:
                self._close_shard()
                self._wait()
        finally:
            self._pool.shutdown()

    def add(self, documents: Documents, encoded: EncodedDocuments) -> int:
        """Take documents, and write the shards that they fill; how many bytes of text they have."""
        splits, first, count, num_bytes = encoded.splits, 0, len(documents.texts), 0
        while first < count:
            wanted = self._shard_size - self._gathered
            last = int(np.searchsorted(splits, splits[first] + wanted))
            last = min(max(last, first + 1), count)
            num_bytes += self._gather(documents, encoded, first, last)
            first = last
            if self._gathered >= self._shard_size:
                self._close_shard()
        return num_bytes

    def _gather(self, documents: Documents, encoded: EncodedDocuments, first: int, last: int) -> int:
        doc_ids, texts = documents.doc_ids[first:last], documents.texts[first:last]
        num_bytes = self._hash.add(doc_ids, texts)
        splits = encoded.splits[first : last + 1]
        columns = {
            "doc_id": np.array(doc_ids, np.uint64).view(np.int64),
            "length": np.diff(splits),
            "num_dropped": encoded.num_dropped[first:last],
            **{name: values[first:last] for name, values in encoded.columns.items()},
        }
        self._parts.append(_Part(encoded.data[splits[0] : splits[-1]], columns, num_bytes))
        self._gathered += int(splits[-1] - splits[0])
        return num_bytes

    def _close_shard(self) -> None:
        """Have what was gathered written, if there is anything."""
        if not self._parts:
            return
        self._wait()
        parts, digest = self._parts, self._hash.pop()
        self._parts, self._gathered = [], 0
        self._writing = self._pool.submit(self._write, f"shard-{self._closed:05d}", parts, digest)
        self._closed += 1

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, name: str, parts: list[_Part], source_sha256: str) -> None:
        columns = {key: np.concatenate([part.columns[key] for part in parts]) for key in parts[0].columns}
        lengths, num_dropped = columns.pop("length"), columns.pop("num_dropped")
        doc_ids = columns.pop("doc_id").view(np.uint64)
        running = np.arange(self._first_document, self._first_document + len(doc_ids), dtype=np.uint64)
        is_numbered = np.array_equal(doc_ids, running)
        data = [part.data for part in parts]
        buckets = None
        if isinstance(self._field, BucketedTokenField):
            order, buckets = _sort_by_bucket(self._field, lengths)
            data = [_reorder_items(np.concatenate(data), lengths, order)]
            lengths, doc_ids = lengths[order], doc_ids[order]
        files = {f"{name}.{self._field.DATA}.npy": data}
        is_text = self._field.DATA == "text"
        files[f"{name}.{'byte_length' if is_text else 'num_tokens'}.npy"] = [_compact(lengths)]
        files |= {f"{name}.{key}.npy": [_compact(values)] for key, values in columns.items()}
        if not np.array_equal(doc_ids, running):  # (the running count needs no file)
            files[f"{name}.doc_id.npy"] = [_compact(doc_ids)]
        records = {
            file: write_array(self._directory / file, arrays, arrays[0].dtype)
            for file, arrays in files.items()
        }
        num_bytes = sum(part.num_bytes for part in parts) if self._counts_text else 0
        shard = Shard(
            name,
            int(lengths.sum()),
            len(doc_ids),
            num_bytes,
            int(np.count_nonzero(num_dropped)),
            int(num_dropped.sum()),
            is_numbered,
            buckets,
            source_sha256,
            records,
        )
        self.shards.append(shard)
        self._first_document += len(doc_ids)
        self._on_shard(shard)


def write_array(path: Path, parts: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> FileRecord:
    """Write one array of one dimension as an `.npy` file, whole or not at all.

    Args:
        path: the file.
        parts: the array, in parts.
        dtype: theirs.
    """
    digest = hashlib.sha256()
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    np.lib.format.write_array_header_1_0(header, {**described, "shape": (sum(map(len, parts)),)})
    contents = [part.view(np.uint8).data for part in parts if len(part)]
    blocks: list[bytes | memoryview] = [header.getvalue(), *contents]

    def write(file: BinaryIO) -> None:
        for block in blocks:
            digest.update(block)
            file.write(block)

    write_atomically(path, write)
    return FileRecord(path.stat().st_size, digest.hexdigest())


def _sort_by_bucket(
    field: BucketedTokenField, lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The order that puts the documents of each bucket side by side, and how many each has."""
    buckets = np.searchsorted(np.array(field.bucket_boundaries), lengths)
    counts = np.bincount(buckets, minlength=len(field.bucket_boundaries))
    return np.argsort(buckets, kind="stable"), tuple(counts.tolist())


def _reorder_items(data: NDArray[Any], lengths: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[Any]:
    starts = make_row_splits(lengths)[:-1]
    return data.take(concatenate_ranges(starts[order], lengths[order]))


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(get_unsigned_dtype(int(values.max(initial=0))))
