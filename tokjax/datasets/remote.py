"""Dataset directories at URLs, accessed through fsspec.

Files are downloaded when they are first needed, and uploaded one at a time, the manifest last. The local
copies of a directory are in a subdirectory named after a digest of the URL, so that one `download_dir` can
hold several datasets:

    s3://bucket/corpus/shard-00000.tokens.npy   ──▶   DOWNLOAD_DIR/3f9a.../shard-00000.tokens.npy
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.files import compute_file_sha256, compute_sha256
from tokjax._util.locks import ThreadLock, lock_file
from tokjax._util.urls import get_file_system, make_temporary_directory
from tokjax.datasets.manifest import MANIFEST_FILE, RUN_AGAIN
from tokjax.datasets.manifest_validation import parse_manifest
from tokjax.errors import DatasetCorruptError, DatasetExistsError, DatasetIncompleteError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from tokjax.datasets.manifest import FileRecord, Manifest


class RemoteDirectory:
    """Directory at a URL, and a local directory with the files downloaded from it.

    Args:
        url: URL of the directory.
        download_dir: parent directory of downloaded files; `None` for a temporary directory, which is deleted
            together with this object.
    """

    def __init__(self, url: str, download_dir: str | os.PathLike[str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._download_dir = None if download_dir is None else Path(download_dir).resolve()
        self._fetched: set[str] = set()
        self._lock = ThreadLock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the URL and the download directory."""
        return RemoteDirectory, (self.url, self._download_dir)

    def __str__(self) -> str:
        """Returns the URL."""
        return self.url

    @cached_property
    def local(self) -> Path:
        """Local directory of downloaded files."""
        if self._download_dir is None:
            return make_temporary_directory(self)
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:16]  # (one subdirectory per dataset)
        directory = self._download_dir / digest
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @cached_property
    def _system(self) -> tuple[Any, str]:
        return get_file_system(self.url)

    def _path(self, name: str) -> str:
        return f"{self._system[1]}/{name}"

    def read(self, name: str) -> bytes | None:
        """Returns the contents of a remote file; `None` if it does not exist."""
        try:
            data: bytes = self._system[0].cat_file(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
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

    def put(self, file: Path) -> None:
        """Uploads a file under its own name. The upload is atomic if the file system makes it so."""
        system, root = self._system
        system.makedirs(root, exist_ok=True)
        system.put_file(str(file), self._path(file.name))

    def remove(self, name: str) -> None:
        """Deletes a remote file if it exists."""
        if self._system[0].exists(self._path(name)):
            self._system[0].rm_file(self._path(name))

    def fetch(self, name: str, record: FileRecord) -> Path:
        """Returns the local path of a file, and downloads it unless an identical copy exists.

        Args:
            name: name of the file.
            record: expected size and checksum.

        Raises:
            DatasetCorruptError: the remote file is missing.
        """
        target = self.local / name
        with self._lock.current:
            if name in self._fetched:
                return target
            if not (target.is_file() and compute_file_sha256(target) == record.sha256):
                temporary = target.with_name(f".{name}.{secrets.token_hex(6)}.partial")
                try:
                    self._system[0].get_file(self._path(name), str(temporary))
                except FileNotFoundError:
                    raise DatasetCorruptError(
                        f"{self.url}/{name} is missing; write the dataset again"
                    ) from None
                temporary.replace(target)
            self._fetched.add(name)
        return target

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
            cause = "its writer did not finish" if files else "the directory is empty or does not exist"
            raise DatasetIncompleteError(
                f"no dataset at {self.url}: {cause}", hint=RUN_AGAIN if files else None
            )
        return parse_manifest(data, f"{self.url}/{MANIFEST_FILE}")

    @contextmanager
    def lock_writers(self) -> Iterator[None]:
        """Excludes other writers on this machine while in use.

        Object stores have no locks, so writers on other machines are not excluded.
        """
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:24]
        with lock_file(Path(tempfile.gettempdir()) / f"tokjax-{digest}.lock") as is_acquired:
            if not is_acquired:
                raise DatasetExistsError(f"another process is writing {self.url}")
            yield
