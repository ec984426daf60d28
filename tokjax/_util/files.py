"""Atomic file writes (temporary name, fsync, rename), reads of regular files, and checksums."""

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
    """A path is not that of a regular file, but of a directory, a pipe, a device or a loop of links."""


class FileIdentity(NamedTuple):
    """Values that change when a file is altered or replaced by another file.

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
    """Returns the identity of an open file or of the file at a path."""
    status = file.stat() if isinstance(file, os.PathLike) else os.fstat(file.fileno())
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file for reading. Does not block on a pipe without a writer.

    Raises:
        NotRegularFileError: the path names something other than a regular file.
        OSError: the file can't be opened.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    try:
        file = open(path, "rb", opener=opener)  # noqa: SIM115 (the caller closes it)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # ENXIO: a socket
            raise
    else:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    raise NotRegularFileError(errno.EINVAL, "not a regular file", os.fspath(path))


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Returns the contents of a regular file. Raises the errors of `open_regular`."""
    with open_regular(path) as file:
        return file.read()


@contextmanager
def add_path_to_errors(path: Path) -> Iterator[None]:
    """Adds a path to operating system errors that do not name one, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file atomically: writes a temporary file beside `path`, syncs it, and renames it to `path`.

    Args:
        path: path of the file.
        write: function that writes the contents to an open file.
    """
    write_files_atomically([(path, write)])


def write_files_atomically(files: Sequence[tuple[Path, Callable[[BinaryIO], object]]]) -> None:
    """Writes files of one directory that are only valid together, such as data and their index.

    The last file marks the set as complete; readers must require it. For the files `a`, `b` and `last`:

        write .a.*.partial, .b.*.partial, .last.*.partial   a kill leaves the old set
        delete last                                         a kill leaves a set without `last`
        rename the new a, then the new b                    a kill leaves a set without `last`
        rename the new last                                 the new set is complete

    A reader therefore never sees a mixture of old and new files.

    Args:
        files: path of each file, and the function that writes its contents to an open file.
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
    """Deletes temporary files of `path` whose writers were killed: no process holds their locks."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        with suppress(OSError), lock_file(temporary):
            pass


@contextmanager
def convert_npy_errors() -> Iterator[None]:
    """Converts all errors that NumPy raises for the header of a damaged `.npy` file to `ValueError`.

    NumPy parses the header with `ast.literal_eval` and `tokenize`, which raise many kinds of errors. A
    `MemoryError` is converted too: inside the block only the header is read, or the array is memory-mapped,
    so the error comes from the parser and not from the size of the array.
    """
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Reads all arrays of an `.npz` file, by name.

    Raises:
        OSError: the file can't be read.
        ValueError: the file is not an `.npz` file, or damaged.
    """
    data = read_regular(path)
    if not zipfile.is_zipfile(io.BytesIO(data)):  # NumPy's error would advise to allow pickles
        raise ValueError("not an .npz file, or truncated")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return dict(arrays)
    except MemoryError:
        raise
    except Exception as error:  # NumPy and zipfile raise errors of a dozen kinds
        raise ValueError(str(error) or type(error).__name__) from error


def sync_directory(directory: Path) -> None:
    """Makes renames inside a directory durable. Does nothing on Windows, which can't open a directory."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def compute_json_checksum(values: object) -> str:
    """Returns `"sha256:"` and the hexadecimal SHA-256 of JSON values in canonical form."""
    return compute_json_pieces_checksum([format_canonical_json(values)])


def format_canonical_json(values: object) -> str:
    """Returns JSON values in canonical form: sorted keys, no whitespace, ASCII escapes."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def compute_json_pieces_checksum(pieces: Iterable[str]) -> str:
    """Returns the checksum of `compute_json_checksum` for pieces of canonical JSON."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece.encode("ascii"))
    return "sha256:" + digest.hexdigest()


def compute_file_sha256(path: Path) -> str:
    """Returns the hexadecimal SHA-256 of a file's bytes."""
    with open_regular(path) as file:
        return compute_sha256(file)


def compute_sha256(file: BinaryIO) -> str:
    """Returns the hexadecimal SHA-256 of an open file, from its current position to its end."""
    digest = hashlib.sha256()
    while block := file.read(_READ_SIZE):
        digest.update(block)
    return digest.hexdigest()
