"""What all datasets have in common: documents in shards, whose files are mapped when first needed."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.locks import ThreadLock
from tokjax.core import protocol
from tokjax.core.ragged import make_row_splits
from tokjax.datasets.dataset_files import DatasetFiles
from tokjax.datasets.fields import make_field
from tokjax.datasets.open_shards import OpenShard, OpenShards
from tokjax.datasets.sequence_cache import TokenCache
from tokjax.errors import (
    DatasetCorruptError,
    DatasetIncompleteError,
    DatasetIndexError,
    DatasetMismatchError,
)
from tokjax.formats.tokjax_json import parse_tokjax

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokjax._util.files import FileIdentity
    from tokjax.datasets.fields import Field
    from tokjax.datasets.manifest import Manifest, Shard
    from tokjax.datasets.remote import RemoteDirectory
    from tokjax.datasets.sequence_cache import CacheStats

_MAX_CACHED_SPLITS = 1024


class Dataset:
    """Documents on disk. Open one with `open_dataset`.

    Threads can share it, and so can processes that are forked. It pickles as the call that opens it, together
    with the identities of the files whose checksums were right, so that another process on the same machine
    does not compare them again.

    A file is compared with its checksum when it is first opened, and again if another one has its name by
    then. Its data is mapped: a program that changes a file in place afterwards changes what is read, and one
    that cuts it short ends the process with SIGBUS. `open_dataset(..., memory_map=False)` reads each file
    into memory instead.

    Attributes:
        path: its directory; of one at a URL, where its files are kept here.
        location: its directory, or its URL: what messages call it.
        manifest: what it holds.
        tokenizer_override: what it was opened with, if anything.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        tokenizer: Any = None,
        *,
        verify_on_touch: bool = True,
        memory_map: bool = True,
        cache_bytes: int | None = None,
        remote: RemoteDirectory | None = None,
        manifest_identity: FileIdentity | None = None,
        verified: dict[str, FileIdentity] | None = None,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.tokenizer_override = tokenizer
        self._files = DatasetFiles(
            path,
            manifest,
            remote,
            verify_on_touch=verify_on_touch,
            memory_map=memory_map,
            manifest_identity=manifest_identity,
            verified={} if verified is None else verified,
        )
        self.location = self._files.location
        self._cache = None if cache_bytes is None else TokenCache(cache_bytes)
        self._lock = ThreadLock()
        self._open_shards = OpenShards()
        self._shard_splits: OrderedDict[int, NDArray[np.int64]] = OrderedDict()
        self._item_starts = make_row_splits(manifest.get_counts("num_items"))
        self._document_starts = make_row_splits(manifest.get_counts("num_documents"))
        if remote is None:
            self._files.check_sizes()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as the arguments that it was opened with, and what is known of its files."""
        files = self._files
        options = {
            "verify_on_touch": files.verify_on_touch,
            "memory_map": files.memory_map,
            "cache_bytes": None if self._cache is None else self._cache.max_bytes,
            "remote": files.remote,
            "manifest_identity": files.manifest_identity,
            "verified": dict(files.verified),
        }
        return _reopen, (type(self), self.path, self.manifest, self.tokenizer_override, options)

    def __len__(self) -> int:
        """How many documents there are."""
        return self.num_documents

    def __repr__(self) -> str:
        """Where it is, and how much it holds."""
        noun = "bytes" if self.manifest.plan.tokenizer_fingerprint is None else "tokens"
        return (
            f"{type(self).__name__}({self.location!r}, {self.manifest.num_items:,} {noun} in "
            f"{self.num_documents:,} documents, {self.manifest.plan.data_dtype}, "
            f"{len(self.manifest.shards)} shards)"
        )

    @property
    def num_documents(self) -> int:
        """How many documents there are."""
        return int(self._document_starts[-1])

    @cached_property
    def fingerprint(self) -> str:
        """A short name for exactly these contents."""
        return self.manifest.fingerprint

    @cached_property
    def field(self) -> Field:
        """What is stored of each document."""
        plan = self.manifest.plan
        is_text = plan.tokenizer_fingerprint is None
        try:
            return make_field(plan.type_id, plan.options, None if is_text else self.tokenizer)
        except DatasetMismatchError:  # (it is a ValueError, too)
            raise
        except (TypeError, ValueError) as error:
            raise DatasetCorruptError(
                f"{self.location}: its options make no {plan.field}: {error}"
            ) from error

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer: the one given to `open_dataset`, else the one saved here."""
        if self.tokenizer_override is not None:
            return self.tokenizer_override
        name, wanted = self.manifest.tokenizer_file, self.manifest.plan.tokenizer_fingerprint
        if name is None:
            why = "holds texts, and no tokenizer" if wanted is None else "could not save its tokenizer"
            raise DatasetIncompleteError(f"{self.location} {why}; open it with open_dataset(path, tokenizer)")
        contents = self._files.read(name, self.manifest.files[name])
        tokenizer = parse_tokjax(contents, f"{self.location}/{name}")
        found = protocol.fingerprint(tokenizer)
        if found != wanted:
            raise DatasetCorruptError(
                f"{self.location}: the saved tokenizer has fingerprint {found}, the manifest says {wanted}"
            )
        return tokenizer

    @cached_property
    def document_lengths(self) -> NDArray[np.int64]:
        """How many ids, or bytes of text, each document has: `int64`, `(num_documents,)`."""
        return self._load_column(self._length_column)

    @cached_property
    def document_splits(self) -> NDArray[np.int64]:
        """Where each document starts in the stream, and its end: `int64`, `(num_documents + 1,)`."""
        splits = np.zeros(self.num_documents + 1, np.int64)
        self._fill(splits[1:], self._length_column)
        np.cumsum(splits, out=splits)
        self._check_total(self.location, splits, self.manifest.num_items)
        splits.setflags(write=False)
        return splits

    @cached_property
    def documents(self) -> NDArray[Any]:
        """The index: a structured array, shape `(documents,)`, of `doc_id`, places and lengths."""
        columns = self._build_index_columns()
        index = np.empty(self.num_documents, [(name, "<u8") for name in columns])
        for name, values in columns.items():
            index[name] = values
        index.setflags(write=False)
        return index

    @property
    def cache_stats(self) -> CacheStats | None:
        """What the cache of `open_dataset(..., cache_bytes=...)` did; `None` if there is none."""
        return None if self._cache is None else self._cache.stats()

    def verify(self) -> None:
        """Compares every file with its checksum in the manifest.

        Call it before a dataset is pickled for worker processes: they then compare no file again.

        Raises:
            DatasetCorruptError: a file was altered, or another dataset is in the place of this one.
        """
        self._files.verify()

    @property
    def _length_column(self) -> str:
        raise NotImplementedError

    @property
    def _data_column(self) -> str:
        return "tokens"

    def _build_index_columns(self) -> dict[str, NDArray[Any]]:
        raise NotImplementedError

    def _load_doc_ids(self) -> NDArray[np.uint64]:
        """The ids of all documents."""
        ids = np.arange(self.num_documents, dtype=np.uint64)
        for i, shard in enumerate(self.manifest.shards):
            if _format_file_name(shard, "doc_id") in shard.files:
                ids[self._document_starts[i] : self._document_starts[i + 1]] = self._load(shard, "doc_id")
        return ids

    def _load_column(self, column: str) -> NDArray[np.int64]:
        """Numbers of all documents."""
        values = np.empty(self.num_documents, np.int64)
        self._fill(values, column)
        values.setflags(write=False)
        return values

    def _fill(self, values: NDArray[np.int64], column: str) -> None:
        for i, shard in enumerate(self.manifest.shards):
            values[self._document_starts[i] : self._document_starts[i + 1]] = self._load(shard, column)

    def _read_document(self, row: SupportsIndex) -> NDArray[Any]:
        """What is stored of one document; counted from the end if it is negative."""
        requested = check_int("row", row)
        index = requested + len(self) if requested < 0 else requested
        if not 0 <= index < len(self):
            raise DatasetIndexError(f"there is no document {requested}: the dataset has {len(self)}")
        shard = int(np.searchsorted(self._document_starts, index, "right")) - 1
        at = index - int(self._document_starts[shard])

        def read() -> NDArray[Any]:
            splits = self._get_splits(shard)
            return self._open(shard).data[splits[at] : splits[at + 1]]

        if self._cache is None:
            return read()
        contents = self._cache.get(index, lambda: read().tobytes())
        return np.frombuffer(contents, self.manifest.plan.data_dtype)

    def _open(self, index: int) -> OpenShard:
        """The data of a shard; those that were opened last stay open."""
        found = self._open_shards.get(index)
        if found is None:
            with self._lock.current:
                data = self._load(self.manifest.shards[index], self._data_column)
                found = OpenShard(data, data.view(np.uint8).data)
                self._open_shards.keep(index, found)
        return found

    def _get_splits(self, index: int) -> NDArray[np.int64]:
        """Where each document starts in a shard: `int64`, shape `(documents + 1,)`."""
        found = self._shard_splits.get(index)
        if found is None:
            with self._lock.current:
                shard = self.manifest.shards[index]
                found = make_row_splits(self._load(shard, self._length_column).astype(np.int64))
                self._check_total(f"{self.location}/{shard.name}", found, shard.num_items)
                self._shard_splits[index] = found
                while len(self._shard_splits) > _MAX_CACHED_SPLITS:
                    self._shard_splits.popitem(last=False)
        return found

    def _load(self, shard: Shard, column: str) -> NDArray[Any]:
        """A file of a shard."""
        name = _format_file_name(shard, column)
        if name not in shard.files:
            raise DatasetCorruptError(f"{self.location}: the manifest names no {name}")
        is_data = column == self._data_column
        location, record = f"{self.location}/{name}", shard.files[name]
        contents = self._files.map(name, record) if is_data else self._files.read(name, record)
        values = self._files.parse_array(name, contents)
        entries = shard.num_items if is_data else shard.num_documents
        wanted = self.manifest.plan.data_dtype if is_data else "unsigned integers"
        fits = values.dtype == wanted if is_data else values.dtype.kind == "u"
        if values.shape != (entries,) or not fits:
            raise DatasetCorruptError(
                f"{location} holds {values.shape} of {values.dtype}, the manifest says ({entries},) of {wanted}"
            )
        return values

    @staticmethod
    def _check_total(location: str, splits: NDArray[np.int64], num_items: int) -> None:
        if splits[-1] != num_items:
            raise DatasetCorruptError(
                f"{location}: its documents have {splits[-1]} items, its data {num_items}; write the dataset "
                "again"
            )


def _reopen(
    kind: type[Dataset], path: Path, manifest: Manifest, tokenizer: Any, options: dict[str, Any]
) -> Dataset:
    remote: RemoteDirectory | None = options["remote"]
    return kind(path if remote is None else remote.local, manifest, tokenizer, **options)


def _format_file_name(shard: Shard, column: str) -> str:
    return f"{shard.name}.{column}.npy"
