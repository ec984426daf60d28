"""Directories to which datasets are written: the same steps on a local file system and at a URL.

A writer works in a local directory, and publishes each file once it is finished:

                    local directory              URL (`remote.py`)
    works in        NAME.incomplete              a temporary directory
    publishes       nothing: the file is there   uploads the file
    finishes        renames it to NAME           uploads the manifest, last
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tokjax._util.atomic_files import (
    DirectoryKind,
    NotRegularFileError,
    compute_file_sha256,
    delete,
    finish_replacement,
    open_atomic_directory,
    read_regular,
)
from tokjax.datasets.manifest import MANIFEST_FILE, PROGRESS_FILE
from tokjax.datasets.manifest_validation import read_manifest
from tokjax.errors import DatasetExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokjax.datasets.manifest import FileRecord, Manifest


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
