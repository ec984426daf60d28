"""Directories that are either whole or absent: written beside their place, then renamed to it."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tokjax._files import sync_directory
from tokjax.errors import TokjaxError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
    from pathlib import Path


_MOVED_AWAY = ".replaced.partial"
"""Marks a directory that a writer moves away to replace it."""


class DirectoryKind(NamedTuple):
    """What a directory of ours holds.

    Attributes:
        noun: what it is called.
        check: raises a `TokjaxError` where a directory is none of them.
        own_files: matches the name of every file that one can hold, those among them that are being written
            (`.NAME.partial`).
        exists_error: what is raised where a directory is in the way.
        is_worth_keeping: whether the next writer can go on from what one that was stopped left.
        is_recognised: whether one that `check` refuses is one all the same, but damaged.
    """

    noun: str
    check: Callable[[Path], object]
    own_files: re.Pattern[str]
    exists_error: type[TokjaxError]
    is_worth_keeping: Callable[[Path], bool] = lambda _: False
    is_recognised: Callable[[Path], bool] = lambda _: False


@contextmanager
def exclusive_place(target: Path, kind: DirectoryKind, *, overwrite: bool) -> Iterator[Path]:
    """A directory to write in, renamed to `target` when the work is done.

    Until then it is `TARGET.incomplete`. It is empty, but for what a writer that was stopped left there, if
    that is worth keeping. A directory that is replaced is `TARGET.replaced` for the moment between two
    renames; should the writer be killed just there, the next one puts it back first.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 (only writers need it)

    if target.exists() and not overwrite:
        raise _exists(target, kind)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(target.parent, os.W_OK):  # (a lock there would seem to be held by another process)
        raise PermissionError(errno.EACCES, "nothing can be written to this directory", str(target.parent))
    lock_path = target.with_name(target.name + ".lock")
    lock = FileLock(lock_path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise kind.exists_error(f"another process is writing {target} (it holds {lock_path})") from None
    try:
        _finish_replacement(target, kind)
        _refuse_existing(target, kind, overwrite)
        directory = incomplete_path(target)
        _remove_unless_kept(directory, kind)
        directory.mkdir(exist_ok=True)
        try:
            yield directory
        except Exception:
            _remove_unless_kept(directory, kind)
            raise
        _move_into_place(directory, target, kind)
    finally:
        lock_path.unlink(missing_ok=True)
        lock.release()


def empty_place(directory: Path, kind: DirectoryKind, *, overwrite: bool) -> None:
    """Delete what a writer that was stopped left in an `exclusive_place`, for one that begins anew."""
    if kind.is_worth_keeping(directory) and not overwrite:
        raise kind.exists_error(
            f"{directory} holds what a writer that was stopped had finished; to delete it, pass "
            "overwrite=True"
        )
    for entry in directory.iterdir():
        entry.unlink()


def incomplete_path(path: Path) -> Path:
    """Where a directory is while it is being written."""
    return path.with_name(path.name + ".incomplete")


def replaced_path(path: Path) -> Path:
    """Where a directory is between being replaced and being deleted."""
    return path.with_name(path.name + ".replaced")


def _exists(target: Path, kind: DirectoryKind) -> TokjaxError:
    return kind.exists_error(f"{target} exists; to replace it, pass overwrite=True")


def _refuse_existing(target: Path, kind: DirectoryKind, overwrite: bool) -> None:
    if not target.exists():
        return
    if not overwrite:
        raise _exists(target, kind)
    if target.is_dir() and not any(target.iterdir()):
        return
    try:
        kind.check(target)
    except TokjaxError as error:
        if not kind.is_recognised(target):
            raise kind.exists_error(
                f"{target} exists and is no {kind.noun}, so it is not replaced: {error}"
            ) from None
    _refuse_foreign(target, kind)


def _refuse_foreign(directory: Path, kind: DirectoryKind) -> None:
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


def _remove_unless_kept(directory: Path, kind: DirectoryKind) -> None:
    if directory.is_dir() and kind.is_worth_keeping(directory):
        _refuse_foreign(directory, kind)
    else:
        _remove_own(directory, kind)


def _remove_own(directory: Path, kind: DirectoryKind) -> None:
    if directory.exists():
        _refuse_foreign(directory, kind)
        shutil.rmtree(directory)


def _finish_replacement(target: Path, kind: DirectoryKind) -> None:
    """If a writer was killed while it replaced a directory, put back the one that it moved, or delete it."""
    moved = replaced_path(target)
    if not moved.exists():
        return
    if not (moved / _MOVED_AWAY).is_file():
        raise kind.exists_error(
            f"{moved} is in the way: no writer put it there, so it is neither deleted nor put back as "
            f"{target.name}; move it away"
        )
    if target.exists():
        _remove_own(moved, kind)
    else:
        moved.rename(target)
        sync_directory(target.parent)
        (target / _MOVED_AWAY).unlink()


def _move_into_place(directory: Path, target: Path, kind: DirectoryKind) -> None:
    sync_directory(directory)
    if target.exists():
        (target / _MOVED_AWAY).touch()
        target.rename(replaced_path(target))
    directory.rename(target)
    sync_directory(target.parent)
    _remove_own(replaced_path(target), kind)
