"""Reading a dataset: shards are memory-mapped, and ids come out as `int32`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax import protocol
from tokjax._files import sha256_of_file
from tokjax.errors import (
    DatasetCorruptError,
    DatasetIncompleteError,
    DatasetMismatchError,
    InvalidArgumentError,
)
from tokjax.formats.tokjax_json import load_tokenizer
from tokjax.ragged import splits_from_lengths
from tokjax.store.fields import PackedTokenField
from tokjax.store.manifest import Manifest, Shard, read_manifest
from tokjax.store.writer import incomplete_path

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike, NDArray

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
        unfinished = incomplete_path(directory)
        hint = (
            f"its writer did not finish (it left {unfinished.name}); run write_dataset again"
            if unfinished.exists()
            else "nothing is there; make it with write_dataset"
        )
        raise DatasetIncompleteError(f"no dataset at {directory}: {hint}")
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
        self._shards = [self._map(shard) for shard in manifest.shards]
        self._shard_starts = splits_from_lengths(shard.num_tokens for shard in manifest.shards)
        if self._shard_starts[-1] != manifest.num_tokens:
            raise DatasetCorruptError(
                f"{path}: the shards hold {self._shard_starts[-1]} ids, the manifest says "
                f"{manifest.num_tokens}"
            )

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
        tokenizer = load_tokenizer(self.path / self.manifest.tokenizer_file)
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
        return splits_from_lengths(np.concatenate([np.zeros(0, np.int64), *lengths]).tolist())

    @cached_property
    def documents(self) -> NDArray[Any]:
        """The index: a structured array with `doc_id`, `start_offset` and `num_tokens`, a row a document."""
        index = np.empty(self.num_documents, _DOCUMENT_DTYPE)
        index["start_offset"] = self.document_splits[:-1]
        index["num_tokens"] = np.diff(self.document_splits)
        first = 0
        for shard in self.manifest.shards:
            rows = slice(first, first + shard.num_documents)
            stored = f"{shard.name}.doc_id.npy" in shard.sha256
            index["doc_id"][rows] = self._load(shard, "doc_id") if stored else np.arange(first, rows.stop)
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
        firsts = np.asarray(starts, np.int64)
        outside = (firsts < 0) | (firsts + length > self.num_tokens)
        if length < 0 or outside.any():
            place = int(firsts[outside][0]) if outside.any() else int(firsts[0])
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
        for shard in self.manifest.shards:
            for name, expected in shard.sha256.items():
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
            f"documents, {self.manifest.token_dtype}, {len(self._shards)} shards)"
        )

    def _copy(self, window: NDArray[np.int32], first: int) -> None:
        done = 0
        shard = int(np.searchsorted(self._shard_starts, first, "right")) - 1
        while done < len(window):
            at = first + done - int(self._shard_starts[shard])
            part = self._shards[shard][at : at + len(window) - done]
            window[done : done + len(part)] = part
            done += len(part)
            shard += 1

    def _map(self, shard: Shard) -> NDArray[Any]:
        dtype = np.dtype(self.manifest.token_dtype)
        tokens = self._load(shard, "tokens")
        if tokens.shape != (shard.num_tokens,) or tokens.dtype != dtype:
            raise DatasetCorruptError(
                f"{self.path}: {shard.name}.tokens.npy holds {tokens.shape} of {tokens.dtype}, the "
                f"manifest says ({shard.num_tokens},) of {dtype}"
            )
        return tokens

    def _load(self, shard: Shard, column: str) -> NDArray[Any]:
        path = self.path / f"{shard.name}.{column}.npy"
        try:
            values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise DatasetCorruptError(f"{path} is missing; write the dataset again") from None
        except (ValueError, OSError, EOFError) as error:
            raise DatasetCorruptError(
                f"{path} is truncated or no .npy file ({error}); write the dataset again"
            ) from error
        return values
