"""Local copies of the files of datasets at URLs, and mapped shards, with a limit of each.

The copies of a dataset are in a subdirectory that is named after a digest of the URL, so that one
`download_dir` can hold several datasets:

    s3://bucket/corpus/shard-00000.tokens.npy   ──▶   DOWNLOAD_DIR/3f9a.../shard-00000.tokens.npy

The subdirectory is marked by a file, `.tokjax-copies`. Copies are only deleted from marked subdirectories
without a manifest: a dataset that a user wrote may have such a name, too, and copies have no manifest.

With a limit, the least recently used copies are deleted before another file is downloaded. The access time of
a copy is the time of its last use, so that all processes that share the directory know it:

    limit 300        copies of 100 bytes, the least recently used first
                     a  b  c
    read a           b  c  a
    read d           c  a  d

Copies in use are not locked. A file that was deleted while it was open or mapped can still be read, so a copy
is opened before it is returned, and downloaded again if it was deleted before that. Its space on disk is free
once all processes have closed it. So a process closes its deleted copies whenever it downloads a file.

Files can also be read in ranges. Ranges of a file that are close together are one request:

    ranges      0-100   200-300            9000000-9000100
    requests    0-300                      9000000-9000100

Mapped shards, local ones and copies, have a limit, too. Each keeps a file handle open, and the number of
handles of a process is limited (`ulimit -n`). Half of that limit is for shards. Beyond it, the shard that was
opened first is closed, whichever dataset it belongs to:

    opened, limit 3     a/0  a/1  b/0
    open b/1            a/1  b/0  b/1      (a/0 is closed)
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
import weakref
from collections import Counter, deque
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tokjax._util.atomic_files import compute_sha256, delete_abandoned, get_identity, open_regular
from tokjax._util.locks import ThreadLock, keep_locked
from tokjax._util.urls import make_temporary_directory
from tokjax.datasets.directories import FileRange, RemoteDirectory
from tokjax.datasets.manifest import MANIFEST_FILE
from tokjax.errors import DatasetCorruptError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokjax._util.atomic_files import FileIdentity
    from tokjax.datasets.manifest import FileRecord, Manifest

_log = logging.getLogger("tokjax")

_SUBDIRECTORY = re.compile("[0-9a-f]{16}")
_COPY = re.compile(r"shard-\d{5,}\.[a-z][a-z0-9_]*\.npy|tokenizer\.tokjax\.json")
_PARTIAL = re.compile(r"\..*\.partial")
_MARK = ".tokjax-copies"
"""File that marks a subdirectory as one of copies."""

_MAX_GAP = 1 << 12
"""Maximum number of bytes between ranges that are requested together: a request takes longer than they do."""

_last_uses: dict[Path, int] = {}
"""Times at which this process used copies, in nanoseconds since 1970, that are not saved yet."""


class DownloadOptions(NamedTuple):
    """Options of downloads, as in `open_dataset`.

    Attributes:
        directory: parent directory of the copies of several datasets; `None` for a temporary directory.
        max_bytes: maximum size of all copies in `directory`; `None` for no limit.
        read_ranges: whether small parts of a file are read as ranges, without downloading it. Any parts of a
            dataset that is larger than `max_bytes` are.
        fetch_ahead: number of shards that loaders download before they need them.
    """

    directory: Path | None = None
    max_bytes: int | None = None
    read_ranges: bool = False
    fetch_ahead: int = 0


class Downloads(RemoteDirectory):
    """Directory at a URL with local copies of its files. Thread-safe.

    Args:
        url: URL of the directory.
        options: options. A temporary directory is deleted together with this object.
    """

    def __init__(self, url: str, options: DownloadOptions) -> None:
        super().__init__(url)
        self.options = options
        self._checked_sizes: set[str] = set()
        self._range_bytes: Counter[str] = Counter()
        self._is_warned = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the URL and the options."""
        return Downloads, (self.url, self.options)

    @cached_property
    def local(self) -> Path:
        """Directory of the copies."""
        if self.options.directory is None:
            return make_temporary_directory(self)
        digest = hashlib.sha256(self.url.encode()).hexdigest()[:16]  # (one subdirectory per dataset)
        directory = self.options.directory / digest
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def check_limit(self, manifest: Manifest) -> None:
        """Raises `InvalidArgumentError` if a file of the dataset is larger than all copies may be."""
        limit = self.options.max_bytes
        if limit is None:
            return
        name, record = max(manifest.iter_files(), key=lambda file: file[1].nbytes, default=("", None))
        if record is not None and record.nbytes > limit:
            raise InvalidArgumentError(
                f"download_bytes is {limit}, and {self.url}/{name} has {record.nbytes} bytes; pass "
                f"download_bytes={record.nbytes} or more"
            )

    def check_request(self, nbytes: int) -> None:
        """Logs a warning, once, if files that are read together are larger than all copies may be."""
        if self.options.max_bytes is not None and nbytes > self.options.max_bytes and not self._is_warned:
            self._is_warned = True
            _log.warning(
                "%s: the shards of one batch have %s bytes, and download_bytes is %s, so that each "
                "batch downloads its shards again; pass a larger download_bytes, or read_ranges=True",
                self.url,
                f"{nbytes:,}",
                f"{self.options.max_bytes:,}",
            )

    def open(self, name: str, record: FileRecord, verified: dict[str, FileIdentity]) -> BinaryIO:
        """Opens the copy of a file, and downloads it first unless an identical copy exists.

        Args:
            name: name of the file.
            record: expected size and checksum. A file that was just downloaded is not compared with them.
            verified: identity of each copy whose checksum was correct, by name. It is extended.

        Raises:
            DatasetCorruptError: the remote file is missing.
        """
        target = self.local / name
        file = self._open_identical(target, record, verified)
        if file is None:
            _mark(target.parent)
            lock = target.with_name(f".{target.name}.lock")
            with keep_locked(lock):  # (of several threads and processes, one downloads, and the others wait)
                try:
                    file = self._open_identical(target, record, verified)
                    if file is None:
                        file = self._download(target, record)
                finally:
                    lock.unlink(missing_ok=True)
            self._range_bytes.pop(name, None)
            record_use(target)
            self._make_space(0)  # other files may have been downloaded at the same time
        record_use(target)
        _save_uses()
        return file

    def _download(self, target: Path, record: FileRecord) -> BinaryIO:
        """Downloads a file and opens it."""
        self._make_space(record.nbytes)
        while True:
            self.download(target.name, target, record.nbytes)
            with suppress(FileNotFoundError):  # another process can have deleted it already
                return open_regular(target)

    def read_parts(
        self, ranges: Sequence[FileRange], records: Mapping[str, FileRecord], dataset_nbytes: int
    ) -> list[bytes | None]:
        """Returns ranges of files without copies, if they are a small part of their file.

        A file is not read in ranges once these would be more than half of it. Then it is cheaper to download
        it: at most 1.5 times its size is transferred. But if the dataset is larger than all copies may be,
        any part of a file is read in ranges: the copies of files would be deleted before they are read again.
        Ranges can't be compared with checksums. Only the size of a file is checked, before its first range is
        read.

        Args:
            ranges: ranges, none of them empty.
            records: expected size of each file, by name.
            dataset_nbytes: size of all files of the dataset in bytes.

        Returns:
            The bytes of each range; `None` if its file should be opened instead.

        Raises:
            DatasetCorruptError: a file is missing, or its size is a different one.
        """
        merged, containing = _merge_ranges(ranges)
        num_bytes: Counter[str] = Counter()
        for name, start, stop in merged:
            num_bytes[name] += stop - start
        keeps_files = self.options.max_bytes is None or dataset_nbytes <= self.options.max_bytes
        parts = [
            name
            for name in num_bytes
            if not (keeps_files and self._is_large_part(name, records[name], num_bytes[name]))
            and not (self.local / name).exists()
        ]
        self._check_sizes(parts, records)
        requests = [request for request in merged if request.name in parts]
        blocks = dict(zip(requests, self.read_ranges(requests) if requests else (), strict=True))
        self._range_bytes.update({name: num_bytes[name] for name in parts})
        return [
            None if (block := blocks.get(merged[i])) is None else _cut(block, merged[i], wanted)
            for i, wanted in zip(containing, ranges, strict=True)
        ]

    def _is_large_part(self, name: str, record: FileRecord, nbytes: int) -> bool:
        """Returns whether a number of bytes and those that were read before are more than half of a file."""
        return 2 * (self._range_bytes[name] + nbytes) > record.nbytes

    def _check_sizes(self, names: Sequence[str], records: Mapping[str, FileRecord]) -> None:
        """Raises `DatasetCorruptError` if a remote file has another size. Each file is checked once."""
        unchecked = [name for name in names if name not in self._checked_sizes]
        for name, nbytes in zip(unchecked, self.get_sizes(unchecked) if unchecked else (), strict=True):
            if nbytes not in (records[name].nbytes, None):
                raise make_size_error(f"{self.url}/{name}", records[name], nbytes)
            self._checked_sizes.add(name)

    def _open_identical(
        self, path: Path, record: FileRecord, verified: dict[str, FileIdentity]
    ) -> BinaryIO | None:
        """Opens a copy; returns `None` if it does not exist, or has other contents."""
        with suppress(FileNotFoundError), ExitStack() as stack:
            file = stack.enter_context(open_regular(path))
            identity = get_copy_identity(file)
            if verified.get(path.name) != identity:
                if identity.nbytes != record.nbytes or compute_sha256(file) != record.sha256:
                    return None
                file.seek(0)
                verified[path.name] = identity
            stack.pop_all()
            return file
        return None

    def _make_space(self, nbytes: int) -> None:
        """Deletes the least recently used copies until the others and `nbytes` more are within the limit."""
        _save_uses()
        if self.options.max_bytes is None:
            return
        copies, total = self._list_copies()
        excess = total + nbytes - self.options.max_bytes
        for copy in sorted(copies):
            if excess <= 0:
                break
            with suppress(OSError):  # Windows can't delete an open file
                copy.path.unlink(missing_ok=True)
                excess -= copy.nbytes
        close_deleted_shards()  # also those that other processes have deleted

    def _list_copies(self) -> tuple[list[_Copy], int]:
        """Returns all copies below `download_dir`, and their size with that of files being downloaded."""
        directories = [self.local]
        if self.options.directory is not None:
            directories = [path for path in self.options.directory.iterdir() if _holds_copies(path)]
        copies, total = [], 0
        for directory in directories:
            delete_abandoned(directory)
            for path in directory.iterdir():
                is_copy = _COPY.fullmatch(path.name) is not None
                if is_copy or _PARTIAL.fullmatch(path.name):
                    with suppress(FileNotFoundError):
                        status = path.stat()
                        total += status.st_size
                        if is_copy:
                            copies.append(_Copy(status.st_atime_ns, status.st_size, path))
        return copies, total


def _mark(directory: Path) -> None:
    """Marks a subdirectory as one of copies, and makes it if it was deleted.

    Raises:
        InvalidArgumentError: it holds a dataset that was not downloaded, whose files would be replaced.
    """
    if (directory / MANIFEST_FILE).exists():
        raise InvalidArgumentError(
            f"{directory} holds a dataset, so it can't hold downloaded copies; pass another download_dir"
        )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MARK).touch()


def _holds_copies(path: Path) -> bool:
    """Returns whether a path is a marked subdirectory of copies, and not a dataset, or a link to one."""
    is_marked = _SUBDIRECTORY.fullmatch(path.name) and not path.is_symlink() and (path / _MARK).is_file()
    return bool(is_marked) and not (path / MANIFEST_FILE).exists()


class _Copy(NamedTuple):
    """Copy of a file, in the order of the last use."""

    used_ns: int
    nbytes: int
    path: Path


def get_copy_identity(file: BinaryIO) -> FileIdentity:
    """Returns the identity of an open copy, without the time that changes when its last use is recorded."""
    return get_identity(file)._replace(changed_ns=0)


def make_size_error(file: str, record: FileRecord, nbytes: int | None) -> DatasetCorruptError:
    """Returns the error for a file whose size is not the recorded one."""
    return DatasetCorruptError(
        f"{file} was altered: it has {nbytes} bytes, the manifest says {record.nbytes}; write the dataset "
        "again"
    )


def find_copy(path: Path) -> LocalCopy:
    """Returns the copy at a path."""
    return LocalCopy(path, _find_inode(path))


def _find_inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def record_use(path: Path) -> None:
    """Records that a copy was used. The time is saved when a file is opened the next time."""
    _last_uses[path] = time.time_ns()


def _save_uses() -> None:
    """Sets the access times of the copies that were used."""
    for path in list(_last_uses):
        used_ns = _last_uses.pop(path, None)  # (`None` if another thread saves it)
        with suppress(OSError):  # it was deleted, or belongs to another user
            if used_ns is not None:
                os.utime(path, ns=(used_ns, path.stat().st_mtime_ns))


def _merge_ranges(ranges: Sequence[FileRange]) -> tuple[list[FileRange], list[int]]:
    """Merges ranges of a file that overlap, or are at most `_MAX_GAP` bytes apart.

    Returns:
        The merged ranges, and for each range the index of the one that contains it.

    >>> _merge_ranges([FileRange("a", 90, 99), FileRange("b", 0, 9), FileRange("a", 0, 50)])
    ([FileRange(name='a', start=0, stop=99), FileRange(name='b', start=0, stop=9)], [0, 1, 0])
    """
    merged: list[FileRange] = []
    containing = [0] * len(ranges)
    for i in sorted(range(len(ranges)), key=ranges.__getitem__):
        name, start, stop = ranges[i]
        if merged and merged[-1].name == name and start <= merged[-1].stop + _MAX_GAP:
            merged[-1] = merged[-1]._replace(stop=max(stop, merged[-1].stop))
        else:
            merged.append(ranges[i])
        containing[i] = len(merged) - 1
    return merged, containing


def _cut(block: bytes, request: FileRange, wanted: FileRange) -> bytes:
    """Returns a range of the bytes of a request that contains it."""
    return block[wanted.start - request.start : wanted.stop - request.start]


_MAX_OPEN = 1024


class LocalCopy(NamedTuple):
    """Downloaded copy of a file.

    Attributes:
        path: path of the copy.
        inode: number of the file on its file system; `None` if it was deleted already.
    """

    path: Path
    inode: int | None

    def is_deleted(self) -> bool:
        """Returns whether the copy was deleted, or replaced by another one."""
        return self.inode is None or _find_inode(self.path) != self.inode


class OpenShard(NamedTuple):
    """Memory-mapped data of a shard.

    Attributes:
        data: ids, or bytes of text, shape `(num_items,)`.
        raw: the same data as bytes.
        copy: downloaded copy of the file; `None` for a local dataset.
    """

    data: NDArray[Any]
    raw: memoryview
    copy: LocalCopy | None


class OpenShards:
    """Memory-mapped files of one dataset, by shard index and column. Thread-safe.

    All instances of a process share one limit, see `get_max_open_shards`.
    """

    def __init__(self) -> None:
        self._shards: dict[str, dict[int, OpenShard]] = {}

    def __contains__(self, key: tuple[int, str]) -> bool:
        """Returns whether a file of a shard is open."""
        return self.get(key) is not None

    def get(self, key: tuple[int, str]) -> OpenShard | None:
        """Returns a file of a shard if it is open, else `None`."""
        shard, column = key
        return self._shards.get(column, {}).get(shard)

    def count(self, column: str) -> int:
        """Returns the number of shards whose file of a column is open."""
        return len(self._shards.get(column, ()))

    def insert(self, key: tuple[int, str], shard: OpenShard) -> None:
        """Inserts a file of a shard, and closes the ones opened first while there are too many."""
        with _lock.current:
            self._shards.setdefault(key[1], {})[key[0]] = shard
            _insertion_order.append((weakref.ref(self), key))
            while len(_insertion_order) > get_max_open_shards():
                reference, oldest = _insertion_order.popleft()
                owner = reference()
                if owner is not None:
                    owner._remove(oldest)

    def _remove(self, key: tuple[int, str]) -> None:
        shard, column = key
        self._shards[column].pop(shard, None)


_insertion_order: deque[tuple[weakref.ref[OpenShards], tuple[int, str]]] = deque()
_lock = ThreadLock()


def close_deleted_shards() -> None:
    """Closes the shards whose downloaded copies were deleted, so that their space on disk becomes free."""
    with _lock.current:
        for entry in list(_insertion_order):
            reference, key = entry
            owner = reference()
            shard = None if owner is None else owner.get(key)
            if owner is not None and shard is not None and shard.copy is not None and shard.copy.is_deleted():
                owner._remove(key)
                _insertion_order.remove(entry)


def get_max_open_shards() -> int:
    """Returns the maximum number of open shards in this process: at most half of its file handles."""
    try:
        import resource  # noqa: PLC0415 (not available on Windows)
    except ImportError:
        return _MAX_OPEN // 2
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:  # (-1 on Linux)
        return _MAX_OPEN
    return max(min(soft // 2, _MAX_OPEN), 1)


def get_max_held_shards() -> int:
    """Returns the maximum number of shards that one thread may hold references to at a time.

    A shard stays open while it is referenced, even if it was closed.
    """
    return max(get_max_open_shards() // 4, 1)
