"""Files that are either whole or absent: written to a temporary name, synced, renamed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import secrets
import zipfile
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

_READ_SIZE = 1 << 20


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Call `write` on a temporary file beside `path`, sync it, then rename it to `path`."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(path.parent))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz` file.

    Raises:
        OSError: the file can't be read.
        ValueError: it is no such file, or damaged.
    """
    data = path.read_bytes()
    if not zipfile.is_zipfile(io.BytesIO(data)):  # (NumPy would ask for pickles to be allowed)
        raise ValueError("no .npz file, or cut short")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return dict(arrays)
    except MemoryError:
        raise
    except Exception as error:  # (NumPy and the unpacking raise errors of a dozen kinds)
        raise ValueError(str(error) or type(error).__name__) from error


def sync_directory(directory: Path) -> None:
    """Make renames inside `directory` durable, where the platform can (Windows can't open one)."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum_of_json(values: object) -> str:
    """`"sha256:"` and the digest of JSON values, with sorted keys, no white space and ASCII escapes."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode("ascii")).hexdigest()


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return sha256_of(file)


def sha256_of(file: BinaryIO) -> str:
    """The SHA-256 of the rest of an open file, in hexadecimal."""
    digest = hashlib.sha256()
    while block := file.read(_READ_SIZE):
        digest.update(block)
    return digest.hexdigest()
