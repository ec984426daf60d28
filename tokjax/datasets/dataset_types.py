"""Dataset classes, one per kind of field, and `open_dataset`, which returns the one that fits a manifest."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, SupportsIndex, TypedDict, TypeVar, overload

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.atomic_files import get_identity, get_incomplete_path, get_replaced_path, resolve
from tokjax._util.checks import check_int
from tokjax._util.urls import is_url
from tokjax.core import protocol
from tokjax.core.ragged import Ragged, make_row_splits
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.dataset_files import DatasetFiles
from tokjax.datasets.downloads import DownloadOptions, Downloads
from tokjax.datasets.fields.conversation import ChatField
from tokjax.datasets.fields.registry import FIELDS, FIRST_CUSTOM_TYPE_ID
from tokjax.datasets.fields.text_fields import BucketedTokenField, PackedTokenField, RawTextField
from tokjax.datasets.manifest import MANIFEST_FILE, RUN_AGAIN, read_manifest_and_identity
from tokjax.encoding.encode import encode_result
from tokjax.errors import (
    DatasetError,
    DatasetIncompleteError,
    DatasetIndexError,
    DatasetMismatchError,
    Hint,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from numpy.typing import ArrayLike, NDArray

    from tokjax._util.atomic_files import FileIdentity
    from tokjax.core.records import TokenizationResult
    from tokjax.datasets.manifest import Manifest


class RawTextDataset(Dataset):
    """Dataset of texts that are tokenized when they are loaded. `dataset[i]` is text `i`."""

    _DATA = "text"
    _INDEX = ("doc_id", "data_ptr", "byte_length", "char_length")

    def __getitem__(self, row: SupportsIndex) -> str:
        """Returns a document as text, as `decode_text` does."""
        return self.decode_text(row)

    def text_bytes(self, row: SupportsIndex) -> bytes:
        """Returns the bytes of a document, unchanged from the source."""
        return self._read_document(row).tobytes()

    def decode_text(self, row: SupportsIndex) -> str:
        """Returns a document as text. Invalid UTF-8 is replaced by U+FFFD."""
        return self.text_bytes(row).decode("utf-8", "replace")

    def decode_tokenized(
        self, row: SupportsIndex, max_length: int | None = 512, *, tokenizer: Any = None, **options: Any
    ) -> TokenizationResult:
        """Tokenizes a document.

        Args:
            row: index of the document; a negative one counts from the end.
            max_length: maximum number of tokens, to which the result is truncated; `None` for no limit.
            tokenizer: tokenizer to use; `None` for the one that was passed to `open_dataset`.
            **options: other options of `encode_result`.

        Returns:
            The tokenization of the document.
        """
        chosen = self.tokenizer if tokenizer is None else tokenizer
        return encode_result(chosen, self.text_bytes(row), max_length=max_length, **options)


class TokenDataset(Dataset):
    """Dataset of token ids. `dataset[i]` has the ids of document `i`, `int32`, shape `(num_tokens,)`."""

    def __getitem__(self, row: SupportsIndex) -> NDArray[np.int32]:
        """Returns the ids of one document, as `document` does."""
        return self.document(row)

    @property
    def num_tokens(self) -> int:
        """Total number of ids, including the special tokens around documents."""
        return int(self._item_starts[-1])

    def document(self, row: SupportsIndex) -> NDArray[np.int32]:
        """Returns the ids of one document, with its special tokens, `int32`, shape `(num_tokens,)`."""
        return self._read_document(row).astype(np.int32)

    def _read_ids(self, rows: Sequence[int]) -> list[NDArray[np.int32]]:
        """Returns the ids of several documents, as `document` does."""
        return [items.astype(np.int32) for items in self._read_documents(rows)]

    def rows(self, rows: ArrayLike) -> Ragged:
        """Returns the ids of several documents.

        Args:
            rows: indices of the documents, integers, shape `(n,)`.

        Returns:
            Ragged array with `n` rows of ids, `int32`.
        """
        indices = as_integers("rows", rows, np.int64)
        parts = self._read_ids(indices.tolist())
        ids = np.concatenate([np.zeros(0, np.int32), *parts])
        return Ragged(ids, make_row_splits(map(len, parts)))

    def read(self, start: int, stop: int) -> NDArray[np.int32]:
        """Returns ids `[start, stop)` of the concatenated documents, `int32`, shape `(stop - start,)`."""
        first = check_int("start", start)
        return self.gather(np.array([first]), check_int("stop", stop) - first).reshape(-1)

    def gather(self, starts: ArrayLike, length: int) -> NDArray[np.int32]:
        """Returns windows of the concatenated documents. A window may extend over several shards.

        Args:
            starts: start offset of each window, integers, shape `(n,)`.
            length: number of ids per window.

        Returns:
            Ids, `int32`, shape `(n, length)`.

        Raises:
            InvalidArgumentError: a window extends beyond the ids of the dataset.
        """
        firsts = as_integers("starts", starts, np.int64)
        self._check_windows(firsts, check_int("length", length, minimum=0))
        ids = np.empty((len(firsts), length), np.int32)
        self.gather_into(firsts, ids)
        return ids

    def gather_into(self, firsts: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Writes windows of the concatenated documents into an existing array, as `gather` returns them.

        Args:
            firsts: start offset of each window, `int64`, shape `(n,)`.
            ids: output array, `int32`, shape `(n, length)`, contiguous.

        Raises:
            InvalidArgumentError: a window extends beyond the ids of the dataset.
        """
        self._check_windows(firsts, ids.shape[1])
        if ids.size:
            stored = self._gather(firsts, np.full(len(firsts), ids.shape[1]))
            np.copyto(ids.reshape(-1), stored, casting="same_kind")

    def _check_windows(self, firsts: NDArray[np.int64], length: int) -> None:
        is_outside = (firsts < 0) | (firsts > self.num_tokens - length)
        if np.count_nonzero(is_outside):
            position = int(firsts[is_outside][0])
            raise InvalidArgumentError(
                f"window [{position}, {position + length}) is out of range: the dataset has "
                f"{self.num_tokens} ids"
            )

    def gather_ranges(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns ranges of the concatenated documents, concatenated.

        Args:
            starts: start offset of each range, `int64`, shape `(n,)`.
            lengths: number of ids of each range, `int64`, shape `(n,)`; all ranges are inside of the dataset.

        Returns:
            Ids, `int32`, shape `(lengths.sum(),)`.
        """
        return self._gather(starts, lengths).astype(np.int32)

    def _gather(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """Returns the same as `gather_ranges`, in the dtype of the files."""
        shards = np.searchsorted(self._item_starts, starts, "right") - 1
        distinct = set(shards.tolist())
        if self._files.reads_ranges:
            parts = self._read_slices(self._data, self._split_ranges(starts, lengths))
            joined = b"".join(each.data for each in parts)
        elif len(distinct) > self._max_held_shards:
            self._check_download_limit(distinct)
            joined = self._join_by_shard(starts, lengths)
        else:
            raw = {shard: self._open(shard, self._data).raw for shard in distinct}
            joined = self._join_raw(raw, shards, starts, lengths)
        return np.frombuffer(joined, self._data.dtype)

    def _join_raw(
        self,
        raw: Mapping[int, memoryview],
        shards: NDArray[np.int64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> bytes:
        """Returns the bytes of ranges in open shards.

        One join of slices is faster than copying each range. A slice at the end of a shard is too short; it
        is replaced and the join repeated.
        """
        item_bytes = self._data.bits // 8
        positions = (starts - self._item_starts.take(shards)) * item_bytes
        sizes = (lengths * item_bytes).tolist()
        windows: list[bytes | memoryview] = [
            raw[shard][position : position + nbytes]
            for shard, position, nbytes in zip(shards.tolist(), positions.tolist(), sizes, strict=True)
        ]
        joined = b"".join(windows)
        if len(joined) == sum(sizes):
            return joined
        for i, window in enumerate(windows):
            if len(window) < sizes[i]:
                windows[i] = self._join_by_shard(starts[i : i + 1], lengths[i : i + 1])
        return b"".join(windows)

    def _join_by_shard(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> bytes:
        """Returns the bytes of ranges. Reads shard by shard, and holds no more than one."""
        slices = self._split_ranges(starts, lengths)
        parts = [b""] * len(slices)
        for i in sorted(range(len(slices)), key=slices.__getitem__):
            [items] = self._read_slices(self._data, [slices[i]])
            parts[i] = items.tobytes()
        return b"".join(parts)

    def chunks(self, chunk_tokens: int, *, extra_token: bool = False) -> ChunkSource:
        """Returns the concatenated ids as chunks of equal length, with random access by index."""
        return ChunkSource(self, chunk_tokens, extra_token=extra_token)


class ChunkSource:
    """Random-access source of fixed-size chunks, for other loaders such as Grain's.

    Attributes:
        dataset: dataset that the chunks come from.
        chunk_tokens: number of ids per chunk, without the extra one.
        extra_token: whether each chunk has one more id, the first of the next chunk.
    """

    def __init__(self, dataset: TokenDataset, chunk_tokens: int, *, extra_token: bool) -> None:
        self.dataset = dataset
        self.chunk_tokens = check_int("chunk_tokens", chunk_tokens, minimum=1)
        self.extra_token = bool(extra_token)

    def __len__(self) -> int:
        """Returns the number of chunks. A last, shorter chunk is left out."""
        return max(self.dataset.num_tokens - self.extra_token, 0) // self.chunk_tokens

    def __getitem__(self, index: SupportsIndex) -> NDArray[np.int32]:
        """Returns the ids of a chunk, `int32`, shape `(chunk_tokens + extra_token,)`."""
        position = check_int("index", index)
        if not 0 <= position < len(self):
            raise DatasetIndexError(f"there is no chunk {position}: there are {len(self)}")
        start = position * self.chunk_tokens
        return self.dataset.read(start, start + self.chunk_tokens + self.extra_token)


class PackedDataset(TokenDataset):
    """Dataset of one stream of token ids, split into documents."""

    @property
    def chunk_tokens(self) -> int:
        """Number of ids that a loader returns per chunk by default."""
        return int(self.manifest.plan.options["chunk_tokens"])


class BucketedDataset(TokenDataset):
    """Dataset of token ids where each shard groups documents of similar length."""

    @property
    def bucket_boundaries(self) -> Sequence[int]:
        """Maximum number of ids per document of each bucket, in increasing order."""
        return tuple(self.manifest.plan.options["bucket_boundaries"])

    def get_bucket_id(self, length: int) -> int:
        """Returns the index of the bucket for documents of `length` ids."""
        field = self.field
        assert isinstance(field, BucketedTokenField)
        return field.get_bucket_id(length)

    def bucket_sizes(self) -> NDArray[np.int64]:
        """Returns the number of documents in each bucket, `int64`, shape `(buckets,)`."""
        sizes: NDArray[np.int64] = self._bucket_table.sum(axis=0)
        return sizes

    def bucket_rows(self, bucket: int, positions: ArrayLike) -> NDArray[np.int64]:
        """Returns the indices of the documents at the given positions of a bucket.

        Args:
            bucket: index of the bucket.
            positions: positions in the bucket, integers from 0 to its size, shape `(n,)`.

        Returns:
            Indices of the documents in the dataset, `int64`, shape `(n,)`.
        """
        table = self._bucket_table
        splits = make_row_splits(table[:, bucket])
        in_bucket = as_integers("positions", positions, np.int64)
        shard = np.searchsorted(splits, in_bucket, "right") - 1
        # A shard stores its buckets one after another, so this bucket starts after the smaller ones.
        first = self._document_starts[:-1] + table[:, :bucket].sum(axis=1)
        rows: NDArray[np.int64] = first.take(shard) + in_bucket - splits.take(shard)
        return rows

    @cached_property
    def _bucket_table(self) -> NDArray[np.int64]:
        """Number of documents per shard and bucket, `int64`, shape `(shards, buckets)`."""
        counts = [shard.bucket_documents or () for shard in self.manifest.shards]
        return np.array(counts, np.int64).reshape(len(counts), len(self.bucket_boundaries))


AnyDataset = TypeVar("AnyDataset", bound="Dataset")
_CLASSES: dict[int, type[Dataset]] = {  # other fields: TokenDataset
    RawTextField.TYPE_ID: RawTextDataset,
    PackedTokenField.TYPE_ID: PackedDataset,
    ChatField.TYPE_ID: PackedDataset,
    BucketedTokenField.TYPE_ID: BucketedDataset,
}
_ATTEMPTS = 10
"""Maximum number of attempts to open a dataset that another process replaces at the same time."""
_ATTEMPT_SECONDS = 0.02


class _Options(TypedDict, total=False):
    """Options of `open_dataset` that do not change the type of the dataset."""

    verify_on_touch: bool
    memory_map: bool
    download_dir: str | os.PathLike[str] | None
    download_bytes: int | None
    read_ranges: bool
    fetch_ahead: int


@overload
def open_dataset(
    path: str | os.PathLike[str], tokenizer: Any = None, **options: Unpack[_Options]
) -> RawTextDataset | TokenDataset: ...
@overload
def open_dataset(
    path: str | os.PathLike[str],
    tokenizer: Any = None,
    *,
    dataset_type: type[AnyDataset],
    **options: Unpack[_Options],
) -> AnyDataset: ...
def open_dataset(
    path: str | os.PathLike[str],
    tokenizer: Any = None,
    *,
    dataset_type: type[Dataset] | None = None,
    verify_on_touch: bool = True,
    memory_map: bool = True,
    download_dir: str | os.PathLike[str] | None = None,
    download_bytes: int | None = None,
    read_ranges: bool = False,
    fetch_ahead: int = 0,
) -> Dataset:
    """Opens a finished dataset: a `RawTextDataset`, `TokenDataset`, `PackedDataset` or `BucketedDataset`.

    Args:
        path: directory that `write_dataset` wrote, or its URL (with the extra `tokjax[remote]`). Files at a
            URL are downloaded when they are first needed.
        tokenizer: for a dataset of ids, a tokenizer that must equal the one the dataset was written with. For
            raw text, the tokenizer to use. `None` for the saved tokenizer, if any.
        dataset_type: type that the dataset must have, such as `tokjax.datasets.PackedDataset`. Type checkers
            know only by it which of the types is returned.
        verify_on_touch: whether to compare each file with its checksum when it is first needed, which reads
            the whole file. If not set, only sizes and shapes are checked, and that no other dataset has
            replaced this one; for a URL not even that.
        memory_map: whether to memory-map the data of shards. If another program changes a mapped file in
            place after its checksum was compared, reads return the changed data; if it truncates the file,
            this process ends with SIGBUS. If not set, each shard is read into memory when it is first needed,
            and stays there.
        download_dir: directory in which files of a URL are kept, for this run and later ones; `None` for a
            temporary directory.
        download_bytes: maximum size in bytes of the files in `download_dir`, of all datasets together. The
            least recently used ones are deleted before another one is downloaded. `None` for no limit.
        read_ranges: whether reads at a URL that need a small part of a shard, such as a few documents,
            request only these bytes. They can't be compared with the checksum of the shard, which covers the
            whole file. A shard is downloaded, and compared, once more than half of it would have been
            requested, unless the dataset is larger than `download_bytes`.
        fetch_ahead: number of shards at a URL that are downloaded in the background while a loader is
            iterated, before it needs them.

    Returns:
        The dataset.

    Raises:
        DatasetIncompleteError: `path` does not exist, or its writer did not finish.
        DatasetMismatchError: the tokenizer, the version of the format, the field or the type is a different
            one. (A custom field must be registered only for operations that need it, such as
            `dataset.field`.)
        DatasetCorruptError: a file is missing, or its size differs from the manifest.
        InvalidArgumentError: an option is invalid, or a file is larger than `download_bytes`.
    """
    downloads = DownloadOptions(
        None if download_dir is None else resolve(download_dir),
        None if download_bytes is None else check_int("download_bytes", download_bytes, minimum=1),
        bool(read_ranges),
        check_int("fetch_ahead", fetch_ahead, minimum=0),
    )
    if is_url(path):
        remote = Downloads(str(path), downloads)
        manifest = remote.manifest()
        remote.check_limit(manifest)
        return _open(DatasetFiles(remote, manifest, verify_on_touch, memory_map), tokenizer, dataset_type)
    directory = resolve(path)

    def open_with(manifest: Manifest, identity: FileIdentity) -> Dataset:
        files = DatasetFiles(directory, manifest, verify_on_touch, memory_map, identity)
        return _open(files, tokenizer, dataset_type)

    return _open_stable(directory, open_with)


def _open_stable(directory: Path, open_with: Callable[[Manifest, FileIdentity], Dataset]) -> Dataset:
    """Opens a directory, and retries if another process replaced the dataset at the same time."""
    for remaining_attempts in reversed(range(_ATTEMPTS)):
        before = _get_identity(directory)
        try:
            if not directory.exists():
                reason, hint = _explain_missing(directory)
                raise DatasetIncompleteError(f"no dataset at {directory}: {reason}", hint=hint)
            return open_with(*read_manifest_and_identity(directory))
        except DatasetError:
            is_moved = before is None and get_replaced_path(directory).exists()
            if not remaining_attempts or not (is_moved or _get_identity(directory) != before):
                raise
            time.sleep(_ATTEMPT_SECONDS)
    raise AssertionError  # the last attempt returns or raises


def _get_identity(directory: Path) -> FileIdentity | None:
    try:
        return get_identity(directory / MANIFEST_FILE)
    except OSError:
        return None


def _open(files: DatasetFiles, tokenizer: Any, dataset_type: type[Dataset] | None) -> Dataset:
    """Returns a dataset of the class that belongs to the field of the manifest."""
    location, plan = files.location, files.manifest.plan
    if plan.type_id not in FIELDS and plan.type_id < FIRST_CUSTOM_TYPE_ID:
        supported = ", ".join(map(str, sorted(FIELDS)))
        raise DatasetMismatchError(
            f"{location} stores {plan.field!r} (TYPE_ID {plan.type_id}); this version of tokjax reads "
            f"{supported}, and custom fields from {FIRST_CUSTOM_TYPE_ID}"
        )
    if tokenizer is not None:
        fingerprint = protocol.fingerprint(tokenizer)
        if plan.tokenizer_fingerprint not in (None, fingerprint):
            raise DatasetMismatchError(
                f"{location} was written with another tokenizer: it records fingerprint "
                f"{plan.tokenizer_fingerprint} (vocabulary size {plan.vocab_size}), but the tokenizer passed "
                f"has {fingerprint} (vocabulary size {protocol.vocab_size(tokenizer)})"
            )
    stored_type = _CLASSES.get(plan.type_id, TokenDataset)
    if dataset_type is not None and not isinstance(dataset_type, type):
        raise InvalidArgumentError(
            f"dataset_type must be a class, such as TokenDataset, not {dataset_type!r:.100}"
        )
    if dataset_type is not None and not issubclass(stored_type, dataset_type):
        raise DatasetMismatchError(
            f"{location} is a {stored_type.__name__}, written with {plan.field}, not a "
            f"{dataset_type.__name__}; pass dataset_type={stored_type.__name__}"
        )
    return stored_type(files, tokenizer)


def _explain_missing(directory: Path) -> tuple[str, Hint]:
    if get_replaced_path(directory).exists():
        rename = f"rename {get_replaced_path(directory).name} to {directory.name} to restore the previous one"
        return "its writer was killed while replacing it", Hint(
            f"{RUN_AGAIN.python}, or {rename}", f"{RUN_AGAIN.shell}, or {rename}"
        )
    if get_incomplete_path(directory).exists():
        incomplete = get_incomplete_path(directory).name
        return f"its writer did not finish (it left {incomplete})", RUN_AGAIN
    return "the path does not exist", Hint("write it with write_dataset", "write it with tokjax pack")
