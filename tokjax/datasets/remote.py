"""Datasets at URLs, by fsspec: files are fetched when they are first needed, and put there one by one."""

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
    """A directory at a URL, and where its files are kept here.

    Args:
        url: its place.
        download_dir: where fetched files are kept; `None` for a temporary directory that goes with this.
    """

    def __init__(self, url: str, download_dir: str | os.PathLike[str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._download_dir = None if download_dir is None else Path(download_dir).resolve()
        self._fetched: set[str] = set()
        self._lock = ThreadLock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as its place."""
        return RemoteDirectory, (self.url, self._download_dir)

    def __str__(self) -> str:
        """Its place."""
        return self.url

    @cached_property
    def local(self) -> Path:
        """Where fetched files are."""
        if self._download_dir is None:
            return make_temporary_directory(self)
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:16]  # (several datasets may be kept there)
        directory = self._download_dir / digest
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @cached_property
    def _system(self) -> tuple[Any, str]:
        return get_file_system(self.url)

    def _path(self, name: str) -> str:
        return f"{self._system[1]}/{name}"

    def read(self, name: str) -> bytes | None:
        """The contents of a file; `None` if there is none."""
        try:
            data: bytes = self._system[0].cat_file(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return data

    def has(self, name: str, record: FileRecord) -> bool:
        """Whether a file is there as it was; all of it is read."""
        system = self._system[0]
        try:
            if system.size(self._path(name)) != record.nbytes:
                return False
            with system.open(self._path(name), "rb") as file:
                return compute_sha256(file) == record.sha256
        except FileNotFoundError:
            return False

    def names(self) -> list[str]:
        """The files that are there."""
        system, root = self._system
        if not system.exists(root):
            return []
        return [path.rsplit("/", 1)[-1] for path in system.ls(root, detail=False)]

    def put(self, file: Path) -> None:
        """Copy a file there, whole or not at all as far as the file system can."""
        system, root = self._system
        system.makedirs(root, exist_ok=True)
        system.put_file(str(file), self._path(file.name))

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        if self._system[0].exists(self._path(name)):
            self._system[0].rm_file(self._path(name))

    def fetch(self, name: str, record: FileRecord) -> Path:
        """A file, here: as it was fetched before, if it is the same."""
        target = self.local / name
        with self._lock.current:
            if name in self._fetched:
                return target
            if not (target.is_file() and compute_file_sha256(target) == record.sha256):
                partial = target.with_name(f".{name}.{secrets.token_hex(6)}.partial")
                try:
                    self._system[0].get_file(self._path(name), str(partial))
                except FileNotFoundError:
                    raise DatasetCorruptError(
                        f"{self.url}/{name} is missing; write the dataset again"
                    ) from None
                partial.replace(target)
            self._fetched.add(name)
        return target

    def manifest(self) -> Manifest:
        """What is there.

        Raises:
            DatasetIncompleteError: there is no finished dataset.
        """
        data = self.read(MANIFEST_FILE)
        if data is None:
            existing = self.names()
            why = "its writer did not finish" if existing else "nothing is there"
            raise DatasetIncompleteError(
                f"no dataset at {self.url}: {why}", hint=RUN_AGAIN if existing else None
            )
        return parse_manifest(data, f"{self.url}/{MANIFEST_FILE}")

    @contextmanager
    def lock_writers(self) -> Iterator[None]:
        """Keep other writers on this machine out: object stores have no locks for those on others."""
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:24]
        with lock_file(Path(tempfile.gettempdir()) / f"tokjax-{digest}.lock") as is_locked:
            if not is_locked:
                raise DatasetExistsError(f"another process is writing {self.url}")
            yield
