"""Atomic writes of files and directories (temporary name, fsync, rename), reads of regular files, checksums.

A rename cannot replace a directory that is not empty. So an existing directory is replaced in six steps. A
process that is killed between two of them leaves a state that the next writer recognizes. The next writer
first finishes or undoes the replacement:

| step | state after a kill | action of the next writer |
|---|---|---|
| write `NAME.incomplete` | `NAME`, `NAME.incomplete` | resumes or deletes `NAME.incomplete` |
| create marker file `NAME/.replaced.partial` | as above, and the marker | as above, and deletes the marker |
| rename `NAME` to `NAME.replaced.partial` | only this and `NAME.incomplete` | renames it back |
| rename `NAME.incomplete` to `NAME` | `NAME`, `NAME.replaced.partial` | deletes `NAME.replaced.partial` |
| rename `NAME.replaced.partial` to `NAME.deleted.partial` | `NAME`, `NAME.deleted.partial` | deletes it |
| delete `NAME.deleted.partial` | `NAME`, part of `NAME.deleted.partial` | as above |

The marker file proves that a writer moved the directory, and is deleted last. A directory of these names
without it is never renamed or deleted: a user may have made it.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import zipfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from tokjax._util.locks import keep_locked, lock_file
from tokjax.errors import Hint, InvalidArgumentError, TokjaxError, make_overwrite_hint

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence

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
    except ValueError:  # a NUL character or a lone surrogate, which no path has
        raise FileNotFoundError(errno.ENOENT, "no such file", os.fspath(path)) from None
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

    Raises:
        InvalidArgumentError: a path is that of something other than a regular file. Nothing is written.
    """
    directory = files[0][0].parent
    if not directory.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(directory))
    for path, _ in files:
        if path.exists() and not path.is_file():
            kind = "a directory" if path.is_dir() else "a pipe or a device"
            raise InvalidArgumentError(f"{path} is {kind}; pass the path of a file")
    temporaries = [path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial") for path, _ in files]
    with ExitStack() as locks:
        try:
            for (path, write), temporary in zip(files, temporaries, strict=True):
                delete_abandoned(path.parent, path.name)
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


def delete_abandoned(directory: Path, name: str | None = None) -> None:
    """Deletes temporary files whose writers were killed: no process holds their locks.

    Args:
        directory: directory of the files.
        name: name of the file that was written; `None` for all files.
    """
    for temporary in directory.glob(f".{'*' if name is None else glob.escape(name)}.*.partial"):
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


def compute_json_checksum(values: object, default: Callable[[Any], Any] | None = None) -> str:
    """Returns `"sha256:"` and the hexadecimal SHA-256 of JSON values with sorted keys and no whitespace.

    Args:
        values: the values.
        default: function that converts other values to JSON values, as for `json.dumps`.
    """
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), default=default)
    return "sha256:" + hashlib.sha256(canonical.encode("ascii")).hexdigest()


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


_MOVED_AWAY = ".replaced.partial"
"""Marker file in a directory that a writer moves away to replace it."""


class DirectoryKind(NamedTuple):
    """Kind of directory that a writer makes, such as a dataset or a training bundle.

    Attributes:
        noun: name of the kind, for error messages.
        check: function that raises a `TokjaxError` for a path that is not a valid directory of this kind.
        own_files: pattern of the names of all files that such a directory can hold, including temporary files
            (`.NAME.partial`). Directories with other files are never deleted.
        exists_error: error class for a target that exists or is locked.
        is_resumable: function that returns whether the next writer can resume an incomplete directory.
        is_recognized: function that returns whether a path that `check` rejects is a damaged directory of
            this kind. Such a directory may be replaced.
    """

    noun: str
    check: Callable[[Path], object]
    own_files: re.Pattern[str]
    exists_error: type[TokjaxError]
    is_resumable: Callable[[Path], bool] = lambda _: False
    is_recognized: Callable[[Path], bool] = lambda _: False


@contextmanager
def open_atomic_directory(target: Path, kind: DirectoryKind, *, overwrite: bool) -> Iterator[Path]:
    """Yields a directory to write into, and renames it to `target` if the block succeeds.

    Until then its name is `TARGET.incomplete`. It is empty, unless an interrupted writer left files from
    which the next one can resume. Other writers of the same target are locked out. See the table at the head
    of the module for the states that a killed process leaves.

    Args:
        target: path of the finished directory.
        kind: kind of the directory.
        overwrite: replace an existing directory of the same kind.

    Raises:
        TokjaxError: `kind.exists_error`, if the target exists and may not be replaced, or if another process
            is writing it.
    """
    if target.exists() and not overwrite:
        raise _make_exists_error(target, kind)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock_directory(target, kind):
        _finish_replacement(target, kind)
        _reject_existing(target, kind, overwrite)
        directory = get_incomplete_path(target)
        _remove_unless_resumable(directory, kind)
        directory.mkdir(exist_ok=True)
        try:
            yield directory
        except Exception:
            _remove_unless_resumable(directory, kind)
            raise
        _move_to_target(directory, target, kind)


def finish_replacement(target: Path, kind: DirectoryKind) -> None:
    """Finishes or undoes the replacement of a directory whose writer was killed.

    For functions that read `target` before they write it. `open_atomic_directory` does this on entry.
    """
    if os.path.lexists(get_replaced_path(target)):
        with _lock_directory(target, kind):
            _finish_replacement(target, kind)


def check_path(path: Any) -> Path:
    """Returns a path of the file system as a `Path`.

    Raises:
        InvalidArgumentError: the argument is not a path, is empty, or begins with the short form of a home
            directory.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidArgumentError(f"expected a path, got {repr(path)[:200]}")
    if not os.fspath(path):
        raise InvalidArgumentError("the path is empty; pass '.' for the current directory")
    if "\0" in os.fspath(path):
        raise InvalidArgumentError(f"{repr(path)[:200]} has a NUL character, which no path has")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{repr(path)[:200]} has a lone surrogate, which no path has") from None
    reject_home(path)
    return Path(path)


def resolve(path: str | os.PathLike[str]) -> Path:
    """Returns the absolute path of a directory without symbolic links. Links that form a loop are kept.

    Raises:
        InvalidArgumentError: as for `check_path`, or the path is the root of a file system.
    """
    directory = Path(os.path.realpath(check_path(path)))
    if not directory.name:
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} is the root of a file system; pass a directory in it"
        )
    return directory


def reject_home(path: str | os.PathLike[str]) -> None:
    """Raises for a path in a home directory in its short form, which would create a directory named `~`.

    Shells expand `~`, but not in `--out=~/corpus`.

    Raises:
        InvalidArgumentError: the path begins with `~` or `~USER`.
    """
    expanded = expand_home(path)
    if expanded is not None:
        advice = f"pass {expanded!r}"
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} begins with ~, which is not expanded", hint=Hint(advice, advice)
        )


def expand_home(path: str | os.PathLike[str]) -> str | None:
    """Returns a path that begins with `~` or `~USER` with the home directory in full; `None` for others."""
    expanded = os.path.expanduser(path)  # noqa: PTH111 (`Path.expanduser` raises for an unknown user)
    return None if expanded == os.fspath(path) else expanded


@contextmanager
def _lock_directory(target: Path, kind: DirectoryKind) -> Iterator[None]:
    """Locks out other writers of a directory."""
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "this directory is not writable", str(target.parent))
    lock_path = target.with_name(target.name + ".lock")
    with lock_file(lock_path) as is_locked:
        if not is_locked:
            raise kind.exists_error(f"another process is writing {target} (it holds {lock_path})")
        yield


def clear_incomplete_directory(directory: Path, kind: DirectoryKind, *, overwrite: bool) -> None:
    """Deletes all files of an interrupted writer, for a writer that starts again instead of resuming.

    Args:
        directory: the directory that `open_atomic_directory` yields.
        kind: kind of the directory.
        overwrite: delete the files even if a writer could resume from them.

    Raises:
        TokjaxError: `kind.exists_error`, if a writer could resume from the files and `overwrite` is false.
    """
    if kind.is_resumable(directory) and not overwrite:
        raise kind.exists_error(
            f"{directory} holds finished files of an interrupted writer",
            hint=make_overwrite_hint("delete them"),
        )
    for entry in directory.iterdir():
        delete(entry)


def delete(entry: Path) -> None:
    """Deletes a file, a symbolic link, or a directory with its contents."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()


def get_incomplete_path(path: Path) -> Path:
    """Returns the path of a directory while it is being written."""
    return path.with_name(path.name + ".incomplete")


def get_replaced_path(path: Path) -> Path:
    """Returns the path of a replaced directory until it is deleted."""
    return path.with_name(path.name + ".replaced.partial")


def _get_deleted_path(path: Path) -> Path:
    """Returns the path of a replaced directory while it is being deleted."""
    return path.with_name(path.name + ".deleted.partial")


def _make_exists_error(target: Path, kind: DirectoryKind) -> TokjaxError:
    return kind.exists_error(f"{target} exists", hint=make_overwrite_hint("replace it"))


def _reject_existing(target: Path, kind: DirectoryKind, overwrite: bool) -> None:
    if target.is_symlink():  # callers resolve paths, so only links in a loop remain
        raise kind.exists_error(f"{target} is a symbolic link in a loop; delete it")
    if not target.exists():
        return
    if not overwrite:
        raise _make_exists_error(target, kind)
    if target.is_dir() and not any(target.iterdir()):
        return
    try:
        kind.check(target)
    except TokjaxError as error:
        if not kind.is_recognized(target):
            raise kind.exists_error(
                f"{target} exists and is not a {kind.noun}, so it is not replaced: {error.message}"
            ) from None
    _reject_foreign_files(target, kind)


def _reject_foreign_files(directory: Path, kind: DirectoryKind) -> None:
    """Raises for a directory with files that no writer of this kind makes: it must not be deleted."""
    foreign = (
        [entry.name for entry in directory.iterdir() if not kind.own_files.fullmatch(entry.name)]
        if directory.is_dir()
        else [directory.name]
    )
    if foreign:
        raise kind.exists_error(
            f"{directory} holds {foreign[0]!r}, which does not belong to a {kind.noun}, so it is "
            "not deleted; move it away"
        )


def _remove_unless_resumable(directory: Path, kind: DirectoryKind) -> None:
    if directory.exists():
        _reject_foreign_files(directory, kind)
        if not kind.is_resumable(directory):
            shutil.rmtree(directory)


def _finish_replacement(target: Path, kind: DirectoryKind) -> None:
    """Finishes or undoes the replacement of a killed writer; see the table at the head of the module."""
    moved = get_replaced_path(target)
    for path in (moved, _get_deleted_path(target)):
        with suppress(OSError):
            path.rmdir()  # if it is empty
        if os.path.lexists(path) and not (path / _MOVED_AWAY).is_file():
            raise kind.exists_error(
                f"{path} is in the way: no writer made it, so it is neither deleted nor renamed; move it away"
            )
    if moved.exists() and not target.exists():
        moved.rename(target)
        sync_directory(target.parent)
    if target.is_dir():
        (target / _MOVED_AWAY).unlink(missing_ok=True)
    _remove_replaced(target, kind)


def _remove_replaced(target: Path, kind: DirectoryKind) -> None:
    """Deletes a replaced directory, under a name from which it is never renamed back.

    The marker file goes last, so that the next writer can finish.
    """
    deleted = _get_deleted_path(target)
    for path in (deleted, get_replaced_path(target)):
        if path.exists():
            _reject_foreign_files(path, kind)
            for entry in path.rename(deleted).iterdir():
                if entry.name != _MOVED_AWAY:
                    delete(entry)
            (deleted / _MOVED_AWAY).unlink()
            deleted.rmdir()


def _move_to_target(directory: Path, target: Path, kind: DirectoryKind) -> None:
    sync_directory(directory)
    if target.exists():
        (target / _MOVED_AWAY).touch()
        sync_directory(target)
        target.rename(get_replaced_path(target))
    directory.rename(target)
    sync_directory(target.parent)
    _remove_replaced(target, kind)
