"""Atomic file writes (temporary name, fsync, rename), and reads of regular files only."""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import json
import os
import secrets
import stat
import zipfile
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from tokjax._util.locks import keep_locked, lock_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_READ_SIZE = 1 << 20


class NotRegularFileError(OSError):
    """A path that names no regular file: a directory, a pipe, a device, or a loop of symbolic links."""


class FileIdentity(NamedTuple):
    """The values that change when a file is altered, or another one takes its name.

    Attributes:
        device: number of the file system.
        inode: number of the file on it.
        nbytes: size of the file.
        modified_ns: time of the last change of its contents, in nanoseconds since 1970.
        changed_ns: time of the last change of its contents or attributes, likewise.
    """

    device: int
    inode: int
    nbytes: int
    modified_ns: int
    changed_ns: int


def get_identity(file: BinaryIO | Path) -> FileIdentity:
    """Returns the identity of an open file, or of the file that a path names."""
    status = file.stat() if isinstance(file, os.PathLike) else os.fstat(file.fileno())
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file for reading. Never waits for the other end of a pipe.

    Raises:
        NotRegularFileError: the path names something other than a regular file.
        OSError: the file can't be opened.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    try:
        file = open(path, "rb", opener=opener)  # noqa: SIM115 (the caller closes it)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # (ENXIO: a socket)
            raise
    else:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    raise NotRegularFileError(errno.EINVAL, "not a regular file", os.fspath(path))


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Returns the contents of a regular file; raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


@contextmanager
def add_path_to_errors(path: Path) -> Iterator[None]:
    """Adds a path to operating system errors that name none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Calls `write` on a temporary file beside `path`, syncs it, then renames it to `path`."""
    write_files_atomically([(path, write)])


def write_files_atomically(files: Sequence[tuple[Path, Callable[[BinaryIO], object]]]) -> None:
    """Writes files of one directory that are only valid together, such as data and their index.

    All of them are written to temporary files first. Then the last one is deleted, the others are renamed to
    their names, and the last one is renamed at the end. So a process that is killed leaves the old files, the
    new ones, or a set without the last one, which must be a file that no reader can do without.

    Args:
        files: each path, and the function that writes the contents to an open file.
    """
    directory = files[0][0].parent
    if not directory.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(directory))
    temporaries = [path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial") for path, _ in files]
    with ExitStack() as locks:
        try:
            for (path, write), temporary in zip(files, temporaries, strict=True):
                _delete_abandoned(path)
                locks.enter_context(keep_locked(temporary))
                with add_path_to_errors(path), temporary.open("wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
            if len(files) > 1:
                files[-1][0].unlink(missing_ok=True)
                sync_directory(directory)
            for (path, _), temporary in zip(files[:-1], temporaries, strict=False):
                temporary.replace(path)
                sync_directory(directory)
            temporaries[-1].replace(files[-1][0])
        except BaseException:
            for temporary in temporaries:
                temporary.unlink(missing_ok=True)
            raise
    sync_directory(directory)


def _delete_abandoned(path: Path) -> None:
    """Deletes the temporary files of `path` whose writers were killed: nobody holds their locks."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        with suppress(OSError), lock_file(temporary):
            pass


@contextmanager
def convert_npy_errors() -> Iterator[None]:
    """Raises `ValueError` for whatever NumPy raises while it parses the header of a damaged `.npy` file.

    NumPy parses it with `ast.literal_eval` and `tokenize`, which fail in many ways. The header is read alone,
    or its array mapped: a `MemoryError` comes from the parser, not from the size of the array.
    """
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz` file.

    Raises:
        OSError: the file can't be read.
        ValueError: it is no such file, or damaged.
    """
    data = read_regular(path)
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


def compute_json_checksum(values: object) -> str:
    """`"sha256:"` and the digest of JSON values, with sorted keys, no white space and ASCII escapes."""
    return compute_json_pieces_checksum([format_canonical_json(values)])


def format_canonical_json(values: object) -> str:
    """Returns JSON values with sorted keys, no white space and ASCII escapes."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def compute_json_pieces_checksum(pieces: Iterable[str]) -> str:
    """Returns what `compute_json_checksum` does, of canonical JSON that is made piece by piece."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece.encode("ascii"))
    return "sha256:" + digest.hexdigest()


def compute_file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return compute_sha256(file)


def compute_sha256(file: BinaryIO) -> str:
    """The SHA-256 of the rest of an open file, in hexadecimal."""
    digest = hashlib.sha256()
    while block := file.read(_READ_SIZE):
        digest.update(block)
    return digest.hexdigest()
