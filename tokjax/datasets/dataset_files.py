"""The files of a dataset: opened, and verified against its manifest."""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import shutil
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokjax._util.atomic_files import (
    NotRegularFileError,
    compute_file_sha256,
    compute_sha256,
    convert_npy_errors,
    get_identity,
    open_regular,
    write_atomically,
)
from tokjax.datasets.downloads import Downloads, find_copy, get_copy_identity, make_size_error
from tokjax.datasets.manifest import MANIFEST_FILE, read_manifest_and_identity
from tokjax.errors import DatasetCorruptError, DatasetError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax._util.atomic_files import FileIdentity
    from tokjax.datasets.downloads import LocalCopy
    from tokjax.datasets.manifest import FileRecord, Manifest

_WRITE_AGAIN = "write the dataset again"


@dataclass
class DatasetFiles:
    """Opens, verifies and reads the files of one dataset.

    A file is checked only after it is open. First, the directory must still hold the manifest that the reader
    has; then the size is compared, then the checksum. The order matters, because another process can replace
    the whole dataset at any moment:

        reader: open shard-00001 ───▶ check manifest.json ───▶ compare size and SHA-256 ───▶ read
        writer:        ▲ replaces the dataset before, here, or later

    If the manifest is unchanged after the file was opened, the open file belongs to this dataset. A
    replacement that happens later does not affect a file that is already open.

    Attributes:
        directory: path of the directory, or the directory at a URL.
        manifest: manifest that the files are checked against.
        verify_on_touch: whether checksums are compared when a file is first opened.
        memory_map: whether shard data is memory-mapped; if not, it is read into memory.
        manifest_identity: identity of the manifest's file; `None` until it was read.
        verified: identity of each file whose checksum was correct, by file name.
    """

    directory: Path | Downloads
    manifest: Manifest
    verify_on_touch: bool = True
    memory_map: bool = True
    manifest_identity: FileIdentity | None = None
    verified: dict[str, FileIdentity] = field(default_factory=dict)

    @cached_property
    def remote(self) -> Downloads | None:
        """Directory at a URL, or `None`."""
        return self.directory if isinstance(self.directory, Downloads) else None

    @property
    def path(self) -> Path:
        """Local directory of the files, or of their copies."""
        return self.directory.local if isinstance(self.directory, Downloads) else self.directory

    @cached_property
    def location(self) -> str:
        """Directory or URL, as error messages show it."""
        return str(self.directory)

    @cached_property
    def reads_ranges(self) -> bool:
        """Whether small parts of files are read as ranges of a URL."""
        return self.remote is not None and self.remote.options.read_ranges

    @cached_property
    def nbytes(self) -> int:
        """Size of all files in bytes."""
        return sum(record.nbytes for _, record in self.manifest.iter_files())

    def check_sizes(self) -> None:
        """Raises `DatasetCorruptError` if a file is missing or has another size. Opens no files."""
        directory = str(self.path)
        for name, record in self.manifest.iter_files():
            try:
                nbytes = os.stat(f"{directory}{os.sep}{name}").st_size  # noqa: PTH116 (faster than Path.stat)
            except (FileNotFoundError, NotADirectoryError):
                raise self._get_missing_error(name) from None
            except OSError as error:
                raise self._get_unreadable_error(name, error) from error
            if nbytes != record.nbytes:
                self.check_not_replaced()
                raise make_size_error(f"{self.location}/{name}", record, nbytes)

    def check_not_replaced(self) -> None:
        """Raises `DatasetCorruptError` if the directory holds another dataset by now, or none."""
        if self.remote is not None:
            return
        try:
            identity = get_identity(self.path / MANIFEST_FILE)
        except (FileNotFoundError, NotADirectoryError):
            raise DatasetCorruptError(
                f"{self.location} was moved or deleted after it was opened; open it where it is now"
            ) from None
        except OSError as error:
            raise self._get_unreadable_error(MANIFEST_FILE, error) from error
        if identity != self.manifest_identity:
            manifest, identity = read_manifest_and_identity(self.path)
            self._compare_manifest(manifest)
            self.manifest_identity = identity

    def _compare_manifest(self, manifest: Manifest) -> None:
        """Raises `DatasetCorruptError` unless a manifest that was read again is that of this dataset."""
        if manifest.fingerprint != self.manifest.fingerprint:
            raise DatasetCorruptError(
                f"{self.location} was replaced by another dataset after it was opened; open it again"
            )

    def _explain_difference(self) -> None:
        """Raises the error for a dataset that was replaced at its URL, if this is why a file differs."""
        manifest = None
        with suppress(OSError, DatasetError):
            manifest = None if self.remote is None else self.remote.manifest()
        if manifest is not None:
            self._compare_manifest(manifest)

    def verify(self) -> None:
        """Compares every file with its checksum, including files that were verified before."""
        self.check_not_replaced()
        for name, record in self.manifest.iter_files():
            with self._open(name, record) as file:
                self._compare(name, record, self._get_identity(file), compute_sha256(file))

    def read(self, name: str, record: FileRecord) -> bytes:
        """Returns the contents of a file, after comparing them with its checksum."""
        with self._open(name, record) as file:
            identity, data = self._get_identity(file), file.read()
        if len(data) != record.nbytes:
            raise make_size_error(f"{self.location}/{name}", record, len(data))
        if self._is_unverified(name, identity):
            self._compare(name, record, identity, hashlib.sha256(data).hexdigest())
        return data

    def copy(self, name: str, record: FileRecord, target: Path) -> None:
        """Copies a file atomically, and compares the copy with its checksum before it has its name."""

        def write(copy: BinaryIO) -> None:
            with self._open(name, record) as file:
                identity = self._get_identity(file)
                shutil.copyfileobj(file, copy)
            copy.flush()
            self._compare(name, record, identity, compute_file_sha256(Path(copy.name)))

        write_atomically(target, write)

    def map(self, name: str, record: FileRecord) -> bytes | mmap.mmap:
        """Returns a file as mapped memory, or its contents if `memory_map` is not set."""
        if not self.memory_map or not record.nbytes:
            return self.read(name, record)
        with self._open(name, record) as file:
            identity = self._get_identity(file)
            if self._is_unverified(name, identity):
                self._compare(name, record, identity, compute_sha256(file))
            try:
                return mmap.mmap(file.fileno(), record.nbytes, access=mmap.ACCESS_READ)
            except ValueError:  # (truncated by another process after the size was compared)
                raise make_size_error(f"{self.location}/{name}", record, get_identity(file).nbytes) from None

    def find_copy(self, name: str) -> LocalCopy | None:
        """Returns the downloaded copy of a file; `None` for a local dataset."""
        return None if self.remote is None else find_copy(self.path / name)

    def parse_array(self, name: str, contents: bytes | mmap.mmap) -> NDArray[Any]:
        """Returns the array of an `.npy` file, shape `(n,)`, without copying it."""
        try:
            with convert_npy_errors():
                return _parse_npy(contents)
        except ValueError as error:
            raise DatasetCorruptError(
                f"{self.location}/{name} is truncated, or not an .npy file ({error}); {_WRITE_AGAIN}"
            ) from error

    def _open(self, name: str, record: FileRecord) -> BinaryIO:
        """Opens a file, then checks that it belongs to the dataset and has the right size."""
        try:
            if self.remote is not None:
                file = self.remote.open(name, record, self.verified)
            else:
                file = open_regular(self.path / name)
        except (FileNotFoundError, NotADirectoryError):
            raise self._get_missing_error(name) from None
        except NotRegularFileError as error:
            raise self._get_unreadable_error(name, error) from error
        with ExitStack() as stack:
            stack.enter_context(file)
            # If the directory still holds this dataset now, it also did when the file was opened.
            self.check_not_replaced()
            nbytes = get_identity(file).nbytes
            if nbytes != record.nbytes:
                self._explain_difference()
                raise make_size_error(f"{self.location}/{name}", record, nbytes)
            stack.pop_all()
        return file

    def _get_identity(self, file: BinaryIO) -> FileIdentity:
        return get_identity(file) if self.remote is None else get_copy_identity(file)

    def _is_unverified(self, name: str, identity: FileIdentity) -> bool:
        return self.verify_on_touch and self.verified.get(name) != identity

    def _compare(self, name: str, record: FileRecord, identity: FileIdentity, sha256: str) -> None:
        """Compares a checksum, and records the file's identity from before it was read as verified."""
        if sha256 != record.sha256:
            self._explain_difference()
            raise DatasetCorruptError(
                f"{self.location}/{name} was altered: its SHA-256 is {sha256}, the manifest says "
                f"{record.sha256}; {_WRITE_AGAIN}"
            )
        self.verified[name] = identity

    def _get_missing_error(self, name: str) -> DatasetCorruptError:
        self.check_not_replaced()
        return DatasetCorruptError(f"{self.location}/{name} is missing; {_WRITE_AGAIN}")

    def _get_unreadable_error(self, name: str, error: OSError) -> DatasetCorruptError:
        return DatasetCorruptError(f"{self.location}/{name} can't be read: {error.strerror}; {_WRITE_AGAIN}")


def _parse_npy(contents: bytes | mmap.mmap) -> NDArray[Any]:
    header = io.BytesIO(contents[: 1 << 14])
    version = np.lib.format.read_magic(header)
    if version != (1, 0):
        raise ValueError(f"version {version} of .npy, not (1, 0)")
    shape, _, dtype = np.lib.format.read_array_header_1_0(header)
    start, count = header.tell(), shape[0] if len(shape) == 1 else -1
    if count < 0 or dtype.hasobject or count * dtype.itemsize != len(contents) - start:
        raise ValueError(f"{len(contents) - start} bytes of data for shape {shape} and dtype {dtype}")
    return np.frombuffer(contents, dtype, count, start)
