"""Reading a dataset: shards are memory-mapped, and ids come out as `int32`."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax import protocol
from tokjax._checks import checked_int
from tokjax._directories import incomplete_path, replaced_path
from tokjax._files import sha256_of_file
from tokjax._namespace import as_integers
from tokjax.errors import (
    DatasetCorruptError,
    DatasetIncompleteError,
    DatasetMismatchError,
    InvalidArgumentError,
)
from tokjax.formats.tokjax_json import read_tokjax
from tokjax.ragged import splits_from_lengths
from tokjax.store.fields import PackedTokenField
from tokjax.store.manifest import Manifest, Shard, read_manifest

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike, NDArray

_MOST_OPEN_SHARDS = 64
_DOCUMENT_DTYPE = np.dtype([("doc_id", "<u8"), ("start_offset", "<u8"), ("num_tokens", "<u8")])


def open_dataset(path: str | os.PathLike[str], tokenizer: Any = None) -> PackedDataset:
    """Open a finished dataset.

    Args:
        path: the directory that `write_dataset` made.
        tokenizer: if given, the dataset must have been made with an equal one.

    Raises:
        DatasetIncompleteError: there is no finished dataset.
        DatasetMismatchError: another tokenizer, or another version of the format.
        DatasetCorruptError: a file is missing, truncated or of another shape than the manifest says.
    """
    directory = Path(path)
    if not directory.exists():
        raise DatasetIncompleteError(f"no dataset at {directory}: {_why_missing(directory)}")
    manifest = read_manifest(directory)
    if manifest.type_id != PackedTokenField.TYPE_ID:
        raise DatasetMismatchError(
            f"{directory} stores {manifest.field!r} (type id {manifest.type_id}); this tokjax reads "
            f"PackedTokenField (type id {PackedTokenField.TYPE_ID})"
        )
    if tokenizer is not None:
        given = protocol.fingerprint(tokenizer)
        if given != manifest.tokenizer_fingerprint:
            raise DatasetMismatchError(
                f"{directory} was made with another tokenizer: it records fingerprint "
                f"{manifest.tokenizer_fingerprint} (vocabulary of {manifest.vocab_size}), the one given "
                f"has {given} (vocabulary of {protocol.vocab_size(tokenizer)})"
            )
    return PackedDataset(directory, manifest, tokenizer)


def _why_missing(directory: Path) -> str:
    target = directory.resolve()
    if replaced_path(target).exists():
        return (
            f"its writer was killed while it replaced it; run write_dataset again, or rename "
            f"{replaced_path(target).name} to {target.name} to have the former one back"
        )
    if incomplete_path(target).exists():
        left = incomplete_path(target).name
        return f"its writer did not finish (it left {left}); run write_dataset again"
    return "nothing is there; make it with write_dataset"


class PackedDataset:
    """A stream of token ids on disk, cut into documents. Open one with `open_dataset`.

    Attributes:
        path: its directory.
        manifest: what it holds.
    """

    def __init__(self, path: Path, manifest: Manifest, tokenizer: Any = None) -> None:
        self.path = path
        self.manifest = manifest
        self._given_tokenizer = tokenizer
        self._open_shards: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._shard_starts = splits_from_lengths(shard.num_tokens for shard in manifest.shards)
        self._check_files()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the call that opens it."""
        return open_dataset, (self.path, self._given_tokenizer)

    @property
    def num_tokens(self) -> int:
        """How many ids the stream has."""
        return self.manifest.num_tokens

    @property
    def num_documents(self) -> int:
        """How many documents the stream has."""
        return self.manifest.num_documents

    @property
    def chunk_tokens(self) -> int:
        """How many ids a loader gives at once, unless it is told another number."""
        return int(self.manifest.options["chunk_tokens"])

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer that made the ids: the one given to `open_dataset`, else the one saved here."""
        if self._given_tokenizer is not None:
            return self._given_tokenizer
        if self.manifest.tokenizer_file is None:
            raise DatasetIncompleteError(
                f"{self.path} could not save its tokenizer; open it with open_dataset(path, tokenizer)"
            )
        tokenizer = read_tokjax(self.path / self.manifest.tokenizer_file)
        found = protocol.fingerprint(tokenizer)
        if found != self.manifest.tokenizer_fingerprint:
            raise DatasetCorruptError(
                f"{self.path}: the saved tokenizer has fingerprint {found}, the manifest says "
                f"{self.manifest.tokenizer_fingerprint}"
            )
        return tokenizer

    @cached_property
    def document_splits(self) -> NDArray[np.int64]:
        """Where each document starts in the stream, and its end: `int64`, `(num_documents + 1,)`."""
        lengths = [self._load(shard, "num_tokens") for shard in self.manifest.shards]
        splits = splits_from_lengths(np.concatenate([np.zeros(0, np.int64), *lengths], dtype=np.int64))
        splits.setflags(write=False)
        return splits

    @cached_property
    def documents(self) -> NDArray[Any]:
        """The index: a structured array with `doc_id`, `start_offset` and `num_tokens`, a row a document."""
        index = np.empty(self.num_documents, _DOCUMENT_DTYPE)
        index["start_offset"] = self.document_splits[:-1]
        index["num_tokens"] = np.diff(self.document_splits)
        first = 0
        for shard in self.manifest.shards:
            rows = slice(first, first + shard.num_documents)
            has_ids = _file_name(shard, "doc_id") in shard.sha256
            index["doc_id"][rows] = self._load(shard, "doc_id") if has_ids else np.arange(first, rows.stop)
            first = rows.stop
        index.setflags(write=False)
        return index

    def document(self, row: int) -> NDArray[np.int32]:
        """The ids of one document, with its BOS and EOS, `int32`, shape `(num_tokens,)`."""
        row = range(self.num_documents)[row]
        return self.read(int(self.document_splits[row]), int(self.document_splits[row + 1]))

    def read(self, start: int, stop: int) -> NDArray[np.int32]:
        """The ids `[start, stop)` of the stream, `int32`, shape `(stop - start,)`."""
        windows = self.gather(np.array([start]), stop - start)
        return windows.reshape(-1)

    def gather(self, starts: ArrayLike, length: int) -> NDArray[np.int32]:
        """Windows of the stream.

        Args:
            starts: where each window starts, integers, shape `(n,)`.
            length: ids a window.

        Returns:
            `int32`, shape `(n, length)`.

        Raises:
            InvalidArgumentError: a window does not lie in the stream.
        """
        firsts = as_integers("starts", starts, np.int64)
        length = checked_int("length", length, least=0)
        outside = (firsts < 0) | (firsts > self.num_tokens - length)
        if outside.any():
            place = int(firsts[outside][0])
            raise InvalidArgumentError(
                f"the window [{place}, {place + length}) does not lie in the stream's {self.num_tokens} ids"
            )
        windows = np.empty((len(firsts), length), np.int32)
        for window, first in zip(windows, firsts.tolist(), strict=True):
            self._copy(window, first)
        return windows

    def verify(self) -> None:
        """Compare every file with its checksum in the manifest.

        Raises:
            DatasetCorruptError: a file was altered.
        """
        for name, expected in self.manifest.digests.items():
            actual = sha256_of_file(self.path / name)
            if actual != expected:
                raise DatasetCorruptError(
                    f"{self.path / name} was altered: its SHA-256 is {actual}, the manifest says "
                    f"{expected}; write the dataset again"
                )

    def __repr__(self) -> str:
        """Where it is, and how much it holds."""
        return (
            f"PackedDataset({str(self.path)!r}, {self.num_tokens:,} tokens in {self.num_documents:,} "
            f"documents, {self.manifest.token_dtype}, {len(self.manifest.shards)} shards)"
        )

    def _copy(self, window: NDArray[np.int32], first: int) -> None:
        done = 0
        shard = int(np.searchsorted(self._shard_starts, first, "right")) - 1
        while done < len(window):
            at = first + done - int(self._shard_starts[shard])
            part = self._tokens(shard)[at : at + len(window) - done]
            window[done : done + len(part)] = part
            done += len(part)
            shard += 1

    def _tokens(self, index: int) -> NDArray[Any]:
        """A shard's ids, mapped; the most recent shards stay open, each of them takes a file handle."""
        tokens = self._open_shards.get(index)
        if tokens is None:
            tokens = self._load(self.manifest.shards[index], "tokens")
            self._open_shards[index] = tokens
            while len(self._open_shards) > _MOST_OPEN_SHARDS:
                self._open_shards.popitem(last=False)
        return tokens

    def _check_files(self) -> None:
        """Refuse what is missing, truncated, or of another shape or sum than the manifest says."""
        manifest = self.manifest
        documents = sum(shard.num_documents for shard in manifest.shards)
        if (self._shard_starts[-1], documents) != (manifest.num_tokens, manifest.num_documents):
            raise DatasetCorruptError(
                f"{self.path}: the shards hold {self._shard_starts[-1]} ids in {documents} documents, the "
                f"manifest says {manifest.num_tokens} in {manifest.num_documents}"
            )
        for name in manifest.digests:
            if not (self.path / name).is_file():
                raise DatasetCorruptError(f"{self.path / name} is missing; write the dataset again")
        for shard in manifest.shards:
            self._load(shard, "tokens")
        if self.document_splits[-1] != manifest.num_tokens:
            raise DatasetCorruptError(
                f"{self.path}: its documents have {self.document_splits[-1]} ids, the manifest says "
                f"{manifest.num_tokens}; write the dataset again"
            )

    def _load(self, shard: Shard, column: str) -> NDArray[Any]:
        path = self.path / _file_name(shard, column)
        try:
            mapped: Literal["r"] | None = "r" if column == "tokens" else None
            values: NDArray[Any] = np.load(path, mmap_mode=mapped, allow_pickle=False)
        except FileNotFoundError:
            raise DatasetCorruptError(f"{path} is missing; write the dataset again") from None
        except (ValueError, EOFError) as error:
            raise DatasetCorruptError(
                f"{path} is truncated or no .npy file ({error}); write the dataset again"
            ) from error
        entries = shard.num_tokens if column == "tokens" else shard.num_documents
        wanted = self.manifest.token_dtype if column == "tokens" else "unsigned integers"
        fits = values.dtype == wanted if column == "tokens" else values.dtype.kind == "u"
        if values.shape != (entries,) or not fits:
            raise DatasetCorruptError(
                f"{path} holds {values.shape} of {values.dtype}, the manifest says ({entries},) of {wanted}"
            )
        return values


def _file_name(shard: Shard, column: str) -> str:
    return f"{shard.name}.{column}.npy"
