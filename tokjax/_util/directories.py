"""Atomic directory writes: a directory is written under another name, then renamed to its own.

Replacing a directory takes these steps. A process that is killed between two of them leaves a state that the
next writer recognizes, and finishes or undoes before it begins:

| step | left by a kill after it | next writer |
|---|---|---|
| write `NAME.incomplete` | `NAME`, `NAME.incomplete` | continues or deletes `NAME.incomplete` |
| mark `NAME` as moved away | the same, and the mark in `NAME` | the same, and deletes the mark |
| rename `NAME` to `NAME.replaced` | `NAME.replaced`, `NAME.incomplete` | renames `NAME.replaced` back |
| rename `NAME.incomplete` to `NAME` | `NAME`, `NAME.replaced` | deletes `NAME.replaced` |
| mark `NAME.replaced` as deleted, and delete it | `NAME`, part of `NAME.replaced` | deletes the rest |
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokjax._util.files import sync_directory
from tokjax._util.locks import lock_file
from tokjax.errors import TokjaxError, make_overwrite_hint

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator


_MOVED_AWAY = ".replaced.partial"
"""Marks a directory that a writer moves away to replace it."""
_DELETED = ".deleted.partial"
"""Marks a directory that a writer is deleting, so that no part of it is put back."""


class DirectoryKind(NamedTuple):
    """What a directory of ours holds.

    Attributes:
        noun: what it is called.
        check: raises a `TokjaxError` where a directory is none of them.
        own_files: matches the name of every file that one can hold, those among them that are being written
            (`.NAME.partial`).
        exists_error: what is raised where a directory is in the way.
        is_resumable: whether the next writer can go on from what one that was stopped left.
        is_recognised: whether one that `check` refuses is one all the same, but damaged.
    """

    noun: str
    check: Callable[[Path], object]
    own_files: re.Pattern[str]
    exists_error: type[TokjaxError]
    is_resumable: Callable[[Path], bool] = lambda _: False
    is_recognised: Callable[[Path], bool] = lambda _: False


@contextmanager
def open_atomic_directory(target: Path, kind: DirectoryKind, *, overwrite: bool) -> Iterator[Path]:
    """A directory to write in, renamed to `target` when the work is done.

    Until then it is `TARGET.incomplete`. It is empty, but for what a writer that was stopped left there, if
    that is worth keeping. A directory that is replaced is `TARGET.replaced` for the moment between two
    renames; should the writer be killed just there, the next one puts it back first.
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

    For functions that read `target` before they write it. `open_atomic_directory` does the same.
    """
    if os.path.lexists(get_replaced_path(target)):
        with _lock_directory(target, kind):
            _finish_replacement(target, kind)


def resolve(path: str | os.PathLike[str]) -> Path:
    """Returns an absolute path without symbolic links; links that form a loop stay."""
    return Path(os.path.realpath(path))


@contextmanager
def _lock_directory(target: Path, kind: DirectoryKind) -> Iterator[None]:
    """Keeps other writers of a directory out."""
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "nothing can be written to this directory", str(target.parent))
    lock_path = target.with_name(target.name + ".lock")
    with lock_file(lock_path) as is_locked:
        if not is_locked:
            raise kind.exists_error(f"another process is writing {target} (it holds {lock_path})")
        yield


def clear_incomplete_directory(directory: Path, kind: DirectoryKind, *, overwrite: bool) -> None:
    """Delete what a writer that was stopped left in an `open_atomic_directory`, for one that begins anew."""
    if kind.is_resumable(directory) and not overwrite:
        raise kind.exists_error(
            f"{directory} holds what a writer that was stopped had finished",
            hint=make_overwrite_hint("delete it"),
        )
    for entry in directory.iterdir():
        delete(entry)


def delete(entry: Path) -> None:
    """Deletes a file, or a directory with all in it."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()


def get_incomplete_path(path: Path) -> Path:
    """Where a directory is while it is being written."""
    return path.with_name(path.name + ".incomplete")


def get_replaced_path(path: Path) -> Path:
    """Where a directory is between being replaced and being deleted."""
    return path.with_name(path.name + ".replaced")


def _make_exists_error(target: Path, kind: DirectoryKind) -> TokjaxError:
    return kind.exists_error(f"{target} exists", hint=make_overwrite_hint("replace it"))


def _reject_existing(target: Path, kind: DirectoryKind, overwrite: bool) -> None:
    if target.is_symlink():  # (paths are resolved before)
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
        if not kind.is_recognised(target):
            raise kind.exists_error(
                f"{target} exists and is no {kind.noun}, so it is not replaced: {error.message}"
            ) from None
    _reject_foreign_files(target, kind)


def _reject_foreign_files(directory: Path, kind: DirectoryKind) -> None:
    """Refuse to delete what holds anything that no writer of ours put there."""
    foreign = (
        [entry.name for entry in directory.iterdir() if not kind.own_files.fullmatch(entry.name)]
        if directory.is_dir()
        else [directory.name]
    )
    if foreign:
        raise kind.exists_error(
            f"{directory} holds {foreign[0]!r}, which no {kind.noun} has, so it is not deleted; move it away"
        )


def _remove_unless_resumable(directory: Path, kind: DirectoryKind) -> None:
    if directory.is_dir() and kind.is_resumable(directory):
        _reject_foreign_files(directory, kind)
    else:
        _remove_own_files(directory, kind)


def _remove_own_files(directory: Path, kind: DirectoryKind) -> None:
    if directory.exists():
        _reject_foreign_files(directory, kind)
        shutil.rmtree(directory)


def _finish_replacement(target: Path, kind: DirectoryKind) -> None:
    """Finishes or undoes a replacement that a killed writer began; see the table above."""
    moved = get_replaced_path(target)
    if moved.is_dir() and not moved.is_symlink() and not any(moved.iterdir()):
        moved.rmdir()
    if (moved / _DELETED).is_file() or ((moved / _MOVED_AWAY).is_file() and target.exists()):
        _remove_moved(moved, kind)
    elif (moved / _MOVED_AWAY).is_file():
        moved.rename(target)
        sync_directory(target.parent)
    elif os.path.lexists(moved):
        raise kind.exists_error(
            f"{moved} is in the way: no writer put it there, so it is neither deleted nor put back as "
            f"{target.name}; move it away"
        )
    if target.is_dir():
        (target / _MOVED_AWAY).unlink(missing_ok=True)


def _remove_moved(moved: Path, kind: DirectoryKind) -> None:
    """Deletes a directory that was replaced, its mark last."""
    if not moved.exists():
        return
    _reject_foreign_files(moved, kind)
    (moved / _DELETED).touch()
    for entry in moved.iterdir():
        if entry.name != _DELETED:
            delete(entry)
    (moved / _DELETED).unlink()
    moved.rmdir()


def _move_to_target(directory: Path, target: Path, kind: DirectoryKind) -> None:
    sync_directory(directory)
    if target.exists():
        (target / _MOVED_AWAY).touch()
        sync_directory(target)
        target.rename(get_replaced_path(target))
    directory.rename(target)
    sync_directory(target.parent)
    _remove_moved(get_replaced_path(target), kind)
