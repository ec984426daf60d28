"""Shard files: documents are collected into shards of similar size and written as `.npy` files.

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
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.atomic_files import write_atomically
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.datasets.document_sources import SourceHash
from tokjax.datasets.fields.base import get_unsigned_dtype
from tokjax.datasets.fields.text_fields import BucketedTokenField
from tokjax.datasets.manifest import FileRecord, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from tokjax.datasets.document_encoding import EncodedDocuments
    from tokjax.datasets.document_sources import DocumentDigests
    from tokjax.datasets.fields.registry import Field


class _Part(NamedTuple):
    """Consecutive encoded documents of the current shard.

    Attributes:
        data: ids, or bytes of text, concatenated, shape `(items,)`.
        columns: numbers per document by column name, shape `(documents,)`.
        side_columns: values of side columns by name, shape `(items,)` or `(documents,)`.
        num_bytes: number of UTF-8 bytes of the documents before encoding.
        num_dropped_documents: number of documents of the source that are left out.
        is_numbered: whether the ids of all documents of the source continue the count 0, 1, 2, ...
    """

    data: NDArray[Any]
    columns: dict[str, NDArray[np.int64]]
    side_columns: dict[str, NDArray[Any]]
    num_bytes: int
    num_dropped_documents: int
    is_numbered: bool


class ShardWriter:
    """Context manager that collects encoded documents, and writes them as shards of similar size.

    Leaving it without an error writes the last shard. A shard is written on a separate thread while the next
    one is collected, so up to two shards are in memory.

    Args:
        directory: directory to write to.
        field: field that determines the stored form of documents.
        shard_size: number of ids, or of bytes of text, at which a shard is closed.
        finished: shards that are finished already.
        on_shard: callback for each shard that is finished. It runs on the writer's thread.
        counts_text: whether documents are text, whose bytes are counted in `Shard.num_bytes`.

    Attributes:
        shards: all finished shards, in stream order.
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
        self._num_pending_items = 0
        self._num_closed = len(self.shards)
        self._num_added = sum(shard.num_source_documents for shard in finished)
        self._first_document = sum(shard.num_documents for shard in finished)
        self._pool = ThreadPoolExecutor(1, "tokjax-shards")
        self._pending_write: Future[None] | None = None

    def __enter__(self) -> ShardWriter:
        """Returns the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Writes the last shard. After an error, only waits for a write in progress."""
        try:
            if kind is None:
                self._close_shard()
                self._wait()
        finally:
            self._pool.shutdown()

    def add(self, digests: DocumentDigests, encoded: EncodedDocuments) -> int:
        """Adds documents, and starts to write each shard that they complete.

        Args:
            digests: ids, sizes and digests of the documents.
            encoded: stored form of the documents.

        Returns:
            The number of UTF-8 bytes of the documents before encoding.
        """
        documents = digests.number(self._num_added)
        splits, first, count, num_bytes = encoded.splits, 0, len(digests.sha256), 0
        while first < count:
            remaining = self._shard_size - self._num_pending_items
            last = int(np.searchsorted(splits, splits[first] + remaining))
            last = min(max(last, first + 1), count)
            num_bytes += self._append(documents.take(first, last), encoded, first, last)
            first = last
            if self._num_pending_items >= self._shard_size:
                self._close_shard()
        return num_bytes

    def _append(self, digests: DocumentDigests, encoded: EncodedDocuments, first: int, last: int) -> int:
        assert digests.doc_ids is not None, "they are numbered"
        self._hash.add(digests)
        count = last - first
        numbers = np.arange(self._num_added, self._num_added + count, dtype=np.uint64)
        self._num_added += count
        splits = encoded.splits[first : last + 1]
        is_kept = np.ones(count, bool) if encoded.is_kept is None else encoded.is_kept[first:last]
        columns = {
            "doc_id": digests.doc_ids.view(np.int64),
            "length": np.diff(splits),
            "num_dropped": encoded.num_dropped[first:last],
            **{name: values[first:last] for name, values in encoded.columns.items()},
        }
        items = slice(int(splits[0]), int(splits[-1]))
        side_columns = {}
        for column in self._field.columns:
            values = encoded.side_columns[column.name]
            is_per_token = column.per == "token"
            side_columns[column.name] = values[items] if is_per_token else values[first:last][is_kept]
        part = _Part(
            encoded.data[items],
            {name: values[is_kept] for name, values in columns.items()},
            side_columns,
            int(digests.num_bytes[is_kept].sum()),
            count - int(is_kept.sum()),
            np.array_equal(digests.doc_ids, numbers),
        )
        self._parts.append(part)
        self._num_pending_items += items.stop - items.start
        return int(digests.num_bytes.sum())

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
        columns = {key: np.concatenate([part.columns[key] for part in parts]) for key in parts[0].columns}
        lengths, num_dropped = columns.pop("length"), columns.pop("num_dropped")
        doc_ids = columns.pop("doc_id").view(np.uint64)
        default_ids = np.arange(self._first_document, self._first_document + len(doc_ids), dtype=np.uint64)
        data = [part.data for part in parts]
        side_columns = {
            key: np.concatenate([part.side_columns[key] for part in parts]) for key in parts[0].side_columns
        }
        buckets = None
        if isinstance(self._field, BucketedTokenField):
            order, buckets = _sort_by_bucket(self._field, lengths)
            data = [_reorder_items(np.concatenate(data), lengths, order)]
            for column in self._field.columns:
                values = side_columns[column.name]
                is_per_token = column.per == "token"
                side_columns[column.name] = (
                    _reorder_items(values, lengths, order) if is_per_token else values[order]
                )
            lengths, doc_ids = lengths[order], doc_ids[order]
        files = {f"{name}.{self._field.DATA}.npy": data}
        is_text = self._field.DATA == "text"
        files[f"{name}.{'byte_length' if is_text else 'num_tokens'}.npy"] = [_compact(lengths)]
        files |= {f"{name}.{key}.npy": [_compact(values)] for key, values in columns.items()}
        if not np.array_equal(doc_ids, default_ids):  # (without a file, readers number the documents)
            files[f"{name}.doc_id.npy"] = [_compact(doc_ids)]
        for column in self._field.columns:
            files[f"{name}.{column.name}.npy"] = [column.pack(side_columns[column.name])]
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
            all(part.is_numbered for part in parts),
            buckets,
            source_sha256,
            records,
            sum(part.num_dropped_documents for part in parts),
        )
        self.shards.append(shard)
        self._first_document += len(doc_ids)
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
    field: BucketedTokenField, lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Returns the order that sorts documents by bucket, and the number of documents per bucket.

    The sort is stable: documents of one bucket stay in source order.
    """
    buckets = np.searchsorted(np.array(field.bucket_boundaries), lengths)
    counts = np.bincount(buckets, minlength=len(field.bucket_boundaries))
    return np.argsort(buckets, kind="stable"), tuple(counts.tolist())


def _reorder_items(data: NDArray[Any], lengths: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[Any]:
    starts = make_row_splits(lengths)[:-1]
    return data.take(concatenate_ranges(starts[order], lengths[order]))


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(get_unsigned_dtype(int(values.max(initial=0))))
