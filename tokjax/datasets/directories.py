"""Directories to which datasets are written: the same steps on a local file system and at a URL.

A writer works in a local directory, and publishes each file once it is finished:

                    local directory              URL
    works in        NAME.incomplete              a temporary directory
    publishes       nothing: the file is there   uploads the file
    finishes        renames it to NAME           uploads the manifest, last

URLs are accessed through fsspec. Files are downloaded as a whole, or in ranges of bytes. `downloads.py` keeps
local copies.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tokjax._util.atomic_files import (
    DirectoryKind,
    NotRegularFileError,
    compute_file_sha256,
    compute_sha256,
    delete,
    finish_replacement,
    open_atomic_directory,
    read_regular,
    write_atomically,
)
from tokjax._util.imports import import_optional
from tokjax._util.limits import exceeds_limit, get_limit
from tokjax._util.locks import lock_file
from tokjax._util.urls import as_read_error, describe_cause, get_file_system
from tokjax.datasets.manifest import MANIFEST_FILE, PROGRESS_FILE, RUN_AGAIN, parse_manifest, read_manifest
from tokjax.errors import (
    DatasetCorruptError,
    DatasetExistsError,
    DatasetIncompleteError,
    TokjaxError,
    make_overwrite_hint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokjax.datasets.manifest import FileRecord, Manifest

_RANGE_BYTES = 1 << 24
"""Size of the ranges in which the rest of a file is requested after its transfer broke off."""


def _is_resumable(directory: Path) -> bool:
    """Returns whether a directory has a manifest, or a record of at least one finished shard."""
    try:
        record = read_regular(directory / PROGRESS_FILE)
    except (FileNotFoundError, NotRegularFileError):
        record = b""
    return record.count(b"\n") > 1 or (directory / MANIFEST_FILE).is_file()


DATASET = DirectoryKind(
    "dataset",
    read_manifest,
    re.compile(
        r"manifest\.json|progress\.jsonl|tokenizer\.tokjax\.json|"
        r"shard-\d{5,}\.[a-z][a-z0-9_]*\.npy|\..*\.partial"
    ),
    DatasetExistsError,
    _is_resumable,
    lambda directory: any(directory.glob("shard-*.npy")),
)


class LocalDirectory:
    """Directory on a local file system.

    Attributes:
        location: path of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.location = path

    def __str__(self) -> str:
        """Returns the path."""
        return str(self.location)

    def exists(self) -> bool:
        """Returns whether the directory exists, after the replacement by a killed writer was finished."""
        finish_replacement(self.location, DATASET)
        return self.location.exists()

    def manifest(self) -> Manifest:
        """Reads and validates the manifest. Raises the errors of `read_manifest`."""
        return read_manifest(self.location)

    @contextmanager
    def open_writer(self, *, overwrite: bool) -> Iterator[tuple[LocalDirectory, Path]]:
        """Yields the directory to write, twice, and renames it at the end. Locks out other writers."""
        with open_atomic_directory(self.location, DATASET, overwrite=overwrite) as incomplete:
            yield LocalDirectory(incomplete), incomplete

    def read(self, name: str) -> bytes | None:
        """Returns the contents of a file; `None` if it does not exist."""
        try:
            return read_regular(self.location / name)
        except FileNotFoundError:
            return None

    def has(self, name: str, record: FileRecord) -> bool:
        """Returns whether a file exists with the recorded checksum. Reads the whole file."""
        file = self.location / name
        return file.is_file() and compute_file_sha256(file) == record.sha256

    def names(self) -> list[str]:
        """Returns the names of the files."""
        return [entry.name for entry in self.location.iterdir()]

    def put(self, file: Path, *, keep: bool = False) -> None:
        """Does nothing, since the writer works in the directory itself."""

    def remove(self, name: str) -> None:
        """Deletes a file."""
        delete(self.location / name)


class FileRange(NamedTuple):
    """Bytes `[start, stop)` of a file of a directory."""

    name: str
    start: int
    stop: int


class _TooLongError(Exception):
    """A server sent more bytes than the file has."""


class RemoteDirectory:
    """Directory at a URL.

    Args:
        url: URL of the directory.

    Attributes:
        url: URL without a slash at its end.
        location: the same.
    """

    def __init__(self, url: str) -> None:
        self.url = self.location = url.rstrip("/")
        self._systems: dict[int, tuple[Any, str]] = {}

    def __str__(self) -> str:
        """Returns the URL."""
        return self.url

    @property
    def _system(self) -> tuple[Any, str]:
        """File system, and path of the directory in it. A forked process needs another file system."""
        process = os.getpid()
        if process not in self._systems:
            self._systems = {process: get_file_system(self.url)}
        return self._systems[process]

    def _path(self, name: str) -> str:
        return f"{self._system[1]}/{name}"

    def read(self, name: str) -> bytes | None:
        """Returns the contents of a remote file; `None` if it does not exist.

        Raises:
            DatasetCorruptError: the file exceeds the limit `file_bytes`.
            OSError: it can't be read.
        """
        with self._explain_errors([name]):
            try:
                data: bytes = self._system[0].cat_file(
                    self._path(name), start=0, end=int(get_limit("file_bytes")) + 1
                )
            except (FileNotFoundError, NotADirectoryError):
                return None
        if exceeded := exceeds_limit("file_bytes", len(data)):
            raise DatasetCorruptError(f"{self.url}/{name} has at least {len(data):,} bytes; {exceeded}")
        return data

    def has(self, name: str, record: FileRecord) -> bool:
        """Returns whether a remote file exists with the recorded size and checksum. Reads the whole file."""
        system = self._system[0]
        try:
            if system.size(self._path(name)) != record.nbytes:
                return False
            with system.open(self._path(name), "rb") as file:
                return compute_sha256(file) == record.sha256
        except FileNotFoundError:
            return False

    def names(self) -> list[str]:
        """Returns the names of the remote files."""
        system, root = self._system
        if not system.exists(root):
            return []
        return [path.rsplit("/", 1)[-1] for path in system.ls(root, detail=False)]

    def put(self, file: Path, *, keep: bool = False) -> None:
        """Uploads a file under its own name, and deletes it unless it is to be kept.

        The upload is atomic if the file system makes it so.
        """
        system, root = self._system
        system.makedirs(root, exist_ok=True)
        system.put_file(str(file), self._path(file.name))
        if not keep:
            file.unlink()

    def remove(self, name: str) -> None:
        """Deletes a remote file if it exists."""
        if self._system[0].exists(self._path(name)):
            self._system[0].rm_file(self._path(name))

    def download(self, name: str, target: Path, nbytes: int) -> None:
        """Downloads a file atomically: an interrupted download leaves no file `target`.

        If the transfer breaks off, the rest is requested once more.

        Args:
            name: name of the file.
            target: path of the copy.
            nbytes: size of the file. If the server sends more, the download stops, and the copy is too long.

        Raises:
            DatasetCorruptError: the remote file is missing.
            OSError: it can't be read.
        """

        def check(_: object, received: int) -> None:
            if received > nbytes:
                raise _TooLongError

        callbacks = import_optional("fsspec.callbacks", extra="remote", purpose=f"reading {self.url}")
        counter = callbacks.Callback(hooks={"check": check})

        def write(file: BinaryIO) -> None:
            with self._explain_errors([name]):
                try:
                    self._system[0].get_file(self._path(name), file.name, callback=counter)
                except _TooLongError:
                    return
                except Exception as error:
                    if not file.seek(0, os.SEEK_END):
                        raise
                    try:
                        self._append_rest(name, file, nbytes)
                    except DatasetCorruptError:  # the server can't send ranges
                        raise error from None

        write_atomically(target, write)

    def _append_rest(self, name: str, file: BinaryIO, nbytes: int) -> None:
        """Appends the bytes of a file that did not arrive, in ranges."""
        while (start := file.tell()) < nbytes:
            [block] = self.read_ranges([FileRange(name, start, min(start + _RANGE_BYTES, nbytes))])
            file.write(block)

    def read_ranges(self, ranges: Sequence[FileRange]) -> list[bytes]:
        """Returns ranges of files, which are requested at the same time if the file system supports it.

        Args:
            ranges: ranges, at least one, and none of them empty.

        Raises:
            DatasetCorruptError: a file is missing, or ends before the end of a range.
            OSError: a file can't be read.
        """
        names, starts, stops = map(list, zip(*ranges, strict=True))
        paths = list(map(self._path, names))
        with self._explain_errors(names):
            blocks: list[Any] = self._system[0].cat_ranges(paths, starts, stops, on_error="raise")
            for block in blocks:
                if isinstance(block, BaseException):  # asynchronous file systems of older versions of fsspec
                    raise block
        for (name, start, stop), block in zip(ranges, blocks, strict=True):
            if len(block) != stop - start:
                received = len(block) if len(block) < stop - start else "more"
                raise DatasetCorruptError(
                    f"{self.url}/{name}: {received} bytes were received for bytes {start} to {stop}; the "
                    "file is truncated, or its server can't send ranges: pass read_ranges=False"
                )
        return blocks

    def get_sizes(self, names: Sequence[str]) -> list[int | None]:
        """Returns the sizes of files in bytes; `None` where the server does not report them.

        Raises:
            DatasetCorruptError: a file is missing.
            OSError: the size of a file can't be read.
        """
        with self._explain_errors(names):
            sizes: list[int | None] = self._system[0].sizes(list(map(self._path, names)))
        return sizes

    @contextmanager
    def _explain_errors(self, names: Sequence[str]) -> Iterator[None]:
        """Replaces errors of a file system by errors that name the files.

        Args:
            names: names of the files that are read.
        """
        try:
            yield
        except (TokjaxError, MemoryError):  # such as a missing library
            raise
        except Exception as error:
            files = f"{self.url}/{', '.join(dict.fromkeys(names)):.300}"
            cause = self._find_cause(names) if isinstance(error, FileNotFoundError) else error
            if isinstance(cause, DatasetCorruptError):
                raise cause from None
            read_error = as_read_error(cause, files)
            raise read_error from read_error.__cause__

    def _find_cause(self, names: Sequence[str]) -> Exception:
        """Returns the error for files of which the file system reported that one does not exist.

        The first byte of each is read, since some methods report any error of an HTTP server in this way.
        """
        for name in dict.fromkeys(names):
            try:
                self._system[0].cat_file(self._path(name), 0, 1)
            except FileNotFoundError:
                return DatasetCorruptError(f"{self.url}/{name} is missing; write the dataset again")
            except Exception as error:
                return error
        return ConnectionError("the server reported that a file does not exist, but now it does; try again")

    def manifest(self) -> Manifest:
        """Reads and validates the manifest.

        Raises:
            DatasetIncompleteError: the directory is empty, or its writer did not finish.
            DatasetMismatchError: the format or the version is a different one.
            DatasetCorruptError: the manifest is damaged or was altered.
        """
        data = self.read(MANIFEST_FILE)
        if data is None:
            files = self.names()
            if any(name.startswith("shard-") for name in files):
                raise DatasetIncompleteError(
                    f"no dataset at {self.url}: its writer did not finish", hint=RUN_AGAIN
                )
            cause = f"it has no {MANIFEST_FILE}" if files else self._explain_absence()
            raise DatasetIncompleteError(f"no dataset at {self.url}: {cause}")
        return parse_manifest(data, f"{self.url}/{MANIFEST_FILE}")

    def _explain_absence(self) -> str:
        """Returns why a directory has no files."""
        cause = "the directory is empty or does not exist"
        try:
            self._system[0].info(self._system[1])
        except FileNotFoundError as error:
            cause += describe_cause(error)
        return cause

    def exists(self) -> bool:
        """Returns whether the directory has a manifest."""
        return self.read(MANIFEST_FILE) is not None

    @contextmanager
    def open_writer(self, *, overwrite: bool) -> Iterator[tuple[RemoteDirectory, Path]]:
        """Yields the directory itself, and a temporary one to work in.

        Object stores have no atomic rename of directories. With `overwrite`, an existing dataset is therefore
        deleted first. They have no locks either: only writers on this machine are locked out.
        """
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:24]
        with (
            lock_file(Path(tempfile.gettempdir()) / f"tokjax-{digest}.lock") as is_acquired,
            tempfile.TemporaryDirectory(prefix="tokjax-") as staging,
        ):
            if not is_acquired:
                raise DatasetExistsError(f"another process is writing {self.url}")
            if self.exists():
                if not overwrite:
                    raise DatasetExistsError(f"{self} exists", hint=make_overwrite_hint("replace it"))
                for name in (MANIFEST_FILE, *filter(DATASET.own_files.fullmatch, self.names())):
                    self.remove(name)
            yield self, Path(staging)


Directory = LocalDirectory | RemoteDirectory
