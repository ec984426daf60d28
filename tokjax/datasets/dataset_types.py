"""The datasets of each field."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.checks import check_int
from tokjax.core.ragged import Ragged, make_row_splits
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.fields import BucketedTokenField
from tokjax.datasets.open_shards import get_max_held_shards
from tokjax.encoding.encode import encode_result
from tokjax.errors import DatasetIndexError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.records import TokenizationResult


class RawTextDataset(Dataset):
    """Texts as they are, to be tokenized when they are loaded. `dataset[i]` is the `i`-th of them."""

    @property
    def _length_column(self) -> str:
        return "byte_length"

    @property
    def _data_column(self) -> str:
        return "text"

    def _build_index_columns(self) -> dict[str, NDArray[Any]]:
        return {
            "doc_id": self._load_doc_ids(),
            "data_ptr": self.document_splits[:-1],
            "byte_length": self.document_lengths,
            "char_length": self._load_column("char_length"),
        }

    def __getitem__(self, row: SupportsIndex) -> str:
        """The same as `decode_text`."""
        return self.decode_text(row)

    def text_bytes(self, row: SupportsIndex) -> bytes:
        """The bytes of a document, as they were given."""
        return self._read_document(row).tobytes()

    def decode_text(self, row: SupportsIndex) -> str:
        """A document; bytes that are no UTF-8 as U+FFFD."""
        return self.text_bytes(row).decode("utf-8", "replace")

    def decode_tokenized(
        self, row: SupportsIndex, max_length: int | None = 512, *, tokenizer: Any = None, **options: Any
    ) -> TokenizationResult:
        """A document, tokenized.

        Args:
            row: which document.
            max_length: how many tokens it is cut to; `None` for all.
            tokenizer: what tokenizes it; `None` for the one given to `open_dataset`.
            **options: other options of `encode_result`.
        """
        chosen = self.tokenizer if tokenizer is None else tokenizer
        return encode_result(chosen, self.text_bytes(row), max_length=max_length, **options)


class TokenDataset(Dataset):
    """Token ids of documents. `dataset[i]` has those of the `i`-th, `int32`."""

    @property
    def _length_column(self) -> str:
        return "num_tokens"

    def _build_index_columns(self) -> dict[str, NDArray[Any]]:
        return {
            "doc_id": self._load_doc_ids(),
            "start_offset": self.document_splits[:-1],
            "num_tokens": self.document_lengths,
        }

    def __getitem__(self, row: SupportsIndex) -> NDArray[np.int32]:
        """The same as `document`."""
        return self.document(row)

    @property
    def num_tokens(self) -> int:
        """How many ids there are, those around documents among them."""
        return int(self._item_starts[-1])

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary that the ids are of."""
        size = self.manifest.plan.vocab_size
        assert size is not None  # it is so only for texts
        return size

    def document(self, row: SupportsIndex) -> NDArray[np.int32]:
        """The ids of one document, with those around it, `int32`, shape `(num_tokens,)`."""
        return self._read_document(row).astype(np.int32)

    def rows(self, rows: ArrayLike) -> Ragged:
        """The ids of several documents.

        Args:
            rows: which, integers, shape `(n,)`.
        """
        wanted = as_integers("rows", rows, np.int64)
        parts = [self.document(row) for row in wanted.tolist()]
        ids = np.concatenate([np.zeros(0, np.int32), *parts])
        return Ragged(ids, make_row_splits(map(len, parts)))

    def read(self, start: int, stop: int) -> NDArray[np.int32]:
        """The ids `[start, stop)` of all documents end to end, `int32`, shape `(stop - start,)`."""
        return self.gather(np.array([start]), stop - start).reshape(-1)

    def gather(self, starts: ArrayLike, length: int) -> NDArray[np.int32]:
        """Windows of the ids of all documents end to end.

        Args:
            starts: where each window starts, integers, shape `(n,)`.
            length: ids a window.

        Returns:
            `int32`, shape `(n, length)`.

        Raises:
            InvalidArgumentError: a window does not lie in them.
        """
        firsts = as_integers("starts", starts, np.int64)
        ids = np.empty((len(firsts), check_int("length", length, minimum=0)), np.int32)
        self.gather_into(firsts, ids)
        return ids

    def gather_into(self, firsts: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """The same, written to an array that is there already.

        Args:
            firsts: where each window starts, `int64`, shape `(n,)`.
            ids: takes them: `int32`, shape `(n, length)`, contiguous.
        """
        length = ids.shape[1]
        outside = (firsts < 0) | (firsts > self.num_tokens - length)
        if np.count_nonzero(outside):
            position = int(firsts[outside][0])
            raise InvalidArgumentError(
                f"the window [{position}, {position + length}) does not lie in the stream's {self.num_tokens} ids"
            )
        if not ids.size:
            return
        shards = np.searchsorted(self._item_starts, firsts, "right") - 1
        positions = (firsts - self._item_starts.take(shards)) * self._item_bytes
        stored = self._join_windows(shards.tolist(), positions.tolist(), length * self._item_bytes)
        np.copyto(ids.reshape(-1), np.frombuffer(stored, self.manifest.plan.data_dtype), casting="same_kind")

    def _join_windows(self, shards: list[int], positions: list[int], nbytes: int) -> bytes:
        """So many bytes from each of some places on, end to end (joined at once: quicker)."""
        if self._cache is not None:
            return b"".join(
                self._cache.get(
                    (shard, position, nbytes), partial(self._read_across_shards, shard, position, nbytes)
                )
                for shard, position in zip(shards, positions, strict=True)
            )
        distinct = set(shards)
        if len(distinct) > get_max_held_shards():
            return self._copy_windows(shards, positions, nbytes)
        raw = {shard: self._open(shard).raw for shard in distinct}
        windows: list[bytes | memoryview] = [
            raw[shard][position : position + nbytes]
            for shard, position in zip(shards, positions, strict=True)
        ]
        joined = b"".join(windows)
        if len(joined) == nbytes * len(windows):
            return joined
        for i, window in enumerate(windows):
            if len(window) < nbytes:
                windows[i] = self._read_across_shards(shards[i], positions[i], nbytes)
        return b"".join(windows)

    def _copy_windows(self, shards: list[int], positions: list[int], nbytes: int) -> bytes:
        """The same from more shards than may be held: one shard after the other."""
        windows = [b""] * len(shards)
        for i in sorted(range(len(shards)), key=shards.__getitem__):
            windows[i] = self._read_across_shards(shards[i], positions[i], nbytes)
        return b"".join(windows)

    @cached_property
    def _item_bytes(self) -> int:
        return np.dtype(self.manifest.plan.data_dtype).itemsize

    def chunks(self, chunk_tokens: int, *, extra_token: bool = False) -> ChunkSource:
        """Chunks of the ids of all documents end to end, each by its number."""
        return ChunkSource(self, chunk_tokens, extra_token=extra_token)

    def _read_across_shards(self, shard: int, position: int, nbytes: int) -> bytes:
        """Bytes from a place of a shard on, and if need be of the next ones."""
        found = bytes(self._open(shard).raw[position : position + nbytes])
        while len(found) < nbytes:
            shard += 1
            found += self._open(shard).raw[: nbytes - len(found)]
        return found


class ChunkSource:
    """Chunks of a dataset, each by its number: a random-access source for other loaders, such as Grain's.

    Attributes:
        dataset: where they come from.
        chunk_tokens: ids a chunk, the extra one not counted.
        extra_token: whether chunks have one more.
    """

    def __init__(self, dataset: TokenDataset, chunk_tokens: int, *, extra_token: bool) -> None:
        self.dataset = dataset
        self.chunk_tokens = check_int("chunk_tokens", chunk_tokens, minimum=1)
        self.extra_token = bool(extra_token)

    def __len__(self) -> int:
        """How many chunks there are; a tail that fills none is left out."""
        return max(self.dataset.num_tokens - self.extra_token, 0) // self.chunk_tokens

    def __getitem__(self, index: SupportsIndex) -> NDArray[np.int32]:
        """The ids of a chunk, `int32`, shape `(chunk_tokens,)`, or one more."""
        position = check_int("index", index)
        if not 0 <= position < len(self):
            raise DatasetIndexError(f"there is no chunk {position}: there are {len(self)}")
        start = position * self.chunk_tokens
        return self.dataset.read(start, start + self.chunk_tokens + self.extra_token)


class PackedDataset(TokenDataset):
    """A stream of token ids, cut into documents."""

    @property
    def chunk_tokens(self) -> int:
        """How many ids a loader gives at once, unless it is told another number."""
        return int(self.manifest.plan.options["chunk_tokens"])


class BucketedDataset(TokenDataset):
    """Token ids of documents, those of about one length side by side in each shard."""

    @property
    def bucket_boundaries(self) -> Sequence[int]:
        """The most ids that a document of each bucket has."""
        field = self.field
        assert isinstance(field, BucketedTokenField)
        return field.bucket_boundaries

    def get_bucket_id(self, length: int) -> int:
        """Which bucket a document of so many ids is in."""
        field = self.field
        assert isinstance(field, BucketedTokenField)
        return field.get_bucket_id(length)

    def bucket_sizes(self) -> NDArray[np.int64]:
        """How many documents each bucket has, `int64`, shape `(buckets,)`."""
        sizes: NDArray[np.int64] = self._bucket_table.sum(axis=0)
        return sizes

    def bucket_rows(self, bucket: int, positions: ArrayLike) -> NDArray[np.int64]:
        """Which documents stand at some places of a bucket.

        Args:
            bucket: which bucket.
            positions: from 0 to the size of the bucket, integers, shape `(n,)`.
        """
        table = self._bucket_table
        up_to = make_row_splits(table[:, bucket])
        wanted = as_integers("places", positions, np.int64)
        shard = np.searchsorted(up_to, wanted, "right") - 1
        first = self._document_starts[:-1] + table[:, :bucket].sum(axis=1)
        rows: NDArray[np.int64] = first.take(shard) + wanted - up_to.take(shard)
        return rows

    @cached_property
    def _bucket_table(self) -> NDArray[np.int64]:
        """How many documents of each bucket each shard has."""
        counts = [shard.bucket_documents or () for shard in self.manifest.shards]
        return np.array(counts, np.int64).reshape(len(counts), len(self.bucket_boundaries))
