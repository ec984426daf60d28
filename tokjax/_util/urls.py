"""Files at URLs, read with fsspec.

fsspec reads answers of HTTP with aiohttp, which unpacks compressed ones, reads them to their end, and gives
up after five minutes in total. Here an answer is never unpacked, reading stops after one byte more than was
asked for (the caller compares the length), and only silence is limited.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import shutil
import sys
import tempfile
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tokjax._util.atomic_files import add_path_to_errors
from tokjax._util.imports import import_optional
from tokjax._util.limits import exceeds_limit
from tokjax.errors import InvalidArgumentError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://.+")

_HTTP = re.compile(r"(?:^|::)(https?)://")


def is_url(path: object) -> bool:
    """Returns whether a path is a URL, such as `"s3://bucket/corpus"`.

    >>> is_url("memory://corpus"), is_url("corpus"), is_url(Path("a"))
    (True, False, False)
    """
    return isinstance(path, str) and _URL.fullmatch(path) is not None


def reject_urls(*paths: object) -> None:
    """Raises `InvalidArgumentError` for a URL where only local paths are accepted."""
    for path in paths:
        if is_url(path):
            raise InvalidArgumentError(
                f"{path!r} is a URL; write_dataset and open_dataset accept URLs; this only takes paths"
            )


def _forget_event_loop() -> None:
    """Forgets fsspec's event loop in a forked child, where the thread of the loop does not exist.

    Old versions of fsspec keep it, and a child would wait for it forever.
    """
    asyn = sys.modules.get("fsspec.asyn")
    if asyn is not None:
        asyn.reset_lock()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_forget_event_loop)


def get_file_system(url: str) -> tuple[Any, str]:
    """Returns the fsspec file system of a URL, and the path in that file system.

    Raises:
        InvalidArgumentError: fsspec does not support the protocol of the URL.
        MissingExtraError: fsspec, or the package that it needs for this protocol, is not installed.
    """
    fsspec = import_optional("fsspec", extra="remote", purpose=f"reading {url}")
    try:
        options = {name: {"client_kwargs": get_client_options()} for name in _HTTP.findall(url)}
        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        package = getattr(error.__cause__, "name", None)
        hint = f"; pip install {package}" if package else ""
        raise MissingExtraError(f"{url} needs a package that is not installed: {error}{hint}") from error
    except ValueError as error:
        protocols = ", ".join(sorted(fsspec.available_protocols()))
        raise InvalidArgumentError(f"{url} can't be read: {error}; fsspec supports {protocols}") from error
    return system, path


def make_temporary_directory(owner: object) -> Path:
    """Makes a temporary directory that is deleted when an object is garbage collected.

    A forked process, which has a copy of the object, does not delete it.
    """
    directory = Path(tempfile.mkdtemp(prefix="tokjax-"))
    weakref.finalize(owner, _delete_directory, directory, os.getpid())
    return directory


def _delete_directory(directory: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


class FetchedFiles:
    """Local copies of files at URLs, or of a stream. Deleted with this object.

    Attributes:
        urls: URL of each file by its local path, in the order of the file names.
    """

    def __init__(self) -> None:
        self.urls: dict[Path, str] = {}
        self._directory = make_temporary_directory(self)

    def add(self, name: str, url: str) -> Path:
        """Returns a path for one more copy, under its file name."""
        path = self._directory / str(len(self.urls)) / name
        path.parent.mkdir()
        self.urls[path] = url
        return path


def get_file_name(path: str) -> str:
    """Returns the name of a file, without the query of a signed URL.

    >>> get_file_name("https://bucket.example/a.jsonl?signature=x/y"), get_file_name("bucket/what?.txt")
    ('a.jsonl', 'what?.txt')
    """
    if path.startswith(("http://", "https://")):
        path = re.split(r"[?#]", path, maxsplit=1)[0]
    return path.rsplit("/", 1)[-1]


def _find_files(system: Any, pattern: str) -> list[str]:
    """Returns the paths of the files at a path or pattern of a file system.

    Raises:
        IsADirectoryError: the path is that of a directory.
    """
    if "*" in pattern:
        found = system.glob(pattern, detail=True)
        root = pattern.partition("*")[0].rpartition("/")[0]
        if root and not found:
            system.info(root)  # (raises the error that `glob` ignores, such as that of a gated repository)
        # Only for links: `isfile` also returns False if a server does not answer.
        return sorted(path for path, info in found.items() if info["type"] == "file" or system.isfile(path))
    # HTTP has no directories, and `info` reports any error of a server as a missing file.
    is_http = pattern.startswith(("http://", "https://"))
    if not get_file_name(pattern) or (not is_http and system.info(pattern)["type"] == "directory"):
        raise IsADirectoryError
    return [pattern]


@contextmanager
def _explain_errors(url: str) -> Iterator[None]:
    """Replaces errors of a file system by errors that name the URL."""
    try:
        yield
    except FileNotFoundError as error:
        raise InvalidArgumentError(f"source {url!r} matches no file{describe_cause(error)}") from error
    except IsADirectoryError as error:
        pattern = f"{url.rstrip('/')}/**/*.parquet"
        raise InvalidArgumentError(
            f"source {url!r} is a directory; pass a pattern, such as {pattern!r}"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # file systems have exceptions of many libraries
        read_error = as_read_error(error, url)
        raise read_error from read_error.__cause__


def describe_cause(error: FileNotFoundError) -> str:
    """Returns the cause of a missing file as the end of a message; `""` without one.

    A gated repository of the Hugging Face hub, for instance, is a missing file for fsspec.
    """
    cause = error.__cause__
    return "" if cause is None else f": {type(cause).__name__}: {' '.join(str(cause).split()):.300}"


def as_read_error(error: Exception, where: str) -> OSError:
    """Returns an error of a file system as an `OSError` that names the URL, since some name no file."""
    if isinstance(error, OSError) and str(error):
        note = f"while {where} was read"
        if where not in str(error) and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        return error
    cause = f"{type(error).__name__}: {error}"
    if isinstance(error, TimeoutError):
        cause = f"the server sent nothing for {SILENCE_SECONDS} seconds"
    read_error = ConnectionError(f"{where} can't be read: {cause}")
    read_error.__cause__ = error
    return read_error


_fetched_files: weakref.WeakValueDictionary[str, FetchedFiles] = weakref.WeakValueDictionary()


def fetch_files(url: str) -> FetchedFiles:
    """Returns local copies of the files at a URL. They are fetched again only if no object refers to them."""
    files = _fetched_files.get(url)
    if files is None:
        system, pattern = get_file_system(url)
        files = FetchedFiles()
        with _explain_errors(url):
            for path in _find_files(system, pattern):
                target = files.add(get_file_name(path), str(system.unstrip_protocol(path)))
                system.get_file(path, str(target))
        _fetched_files[url] = files
    return files


def save_stream(stream: BinaryIO, name: str) -> FetchedFiles:
    """Returns a local copy of a stream, which can be read only once; messages call it `name`."""
    files = _fetched_files[name] = FetchedFiles()
    path = files.add("0", name)
    with add_path_to_errors(path), path.open("wb") as file:
        shutil.copyfileobj(stream, file)
    os.utime(path, (0, 0))  # so that the same contents are the same source when a command is run again
    return files


def get_path_or_url(path: Path) -> str:
    """Returns the name of a file for messages: its path, or the URL from which it was fetched."""
    for files in list(_fetched_files.values()):
        if path in files.urls:
            return files.urls[path]
    return str(path)


SILENCE_SECONDS = 60
"""Maximum time between two reads of an answer."""
_CHUNK_BYTES = 1 << 16
_COMPRESSED = (".bz2", ".gz", ".tgz", ".xz", ".zst")
"""Ends of the names of files that servers declare to be compressed, but send as they are."""
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@functools.cache
def get_client_options() -> dict[str, Any]:
    """Returns the arguments of aiohttp's `ClientSession`."""
    aiohttp: Any = importlib.import_module("aiohttp")

    class Response(aiohttp.ClientResponse):  # type: ignore[misc]
        """Answer of the requested bytes, which is neither unpacked nor read further than they are."""

        async def start(self, connection: Any) -> Any:
            """Reads the headers."""
            response = await super().start(connection)
            requested = _RANGE.fullmatch(self.request_info.headers.get("Range", ""))
            sent = self.headers.get("Content-Range")
            if self.status == 206 and requested and sent and not sent.startswith(f"bytes {requested[1]}-"):
                raise aiohttp.ClientPayloadError(f"the server sent {sent} for {requested[0]}")
            encoding = self.headers.get("Content-Encoding", "identity")
            if self.ok and encoding != "identity" and not self.url.path.endswith(_COMPRESSED):
                raise aiohttp.ClientPayloadError(
                    f"the server sent the file with Content-Encoding: {encoding}, and not as it is"
                )
            return response

        async def read(self) -> bytes:
            """Reads the body, or its first bytes if it is longer than the requested range."""
            requested = _RANGE.fullmatch(self.request_info.headers.get("Range", ""))
            limit = int(requested[2]) - int(requested[1]) + 1 if requested else float("inf")
            data = bytearray()
            while len(data) <= limit and (block := await self.content.read(_CHUNK_BYTES)):
                data += block
                if exceeded := not requested and exceeds_limit("file_bytes", len(data)):
                    raise aiohttp.ClientPayloadError(
                        f"the answer has at least {len(data):,} bytes; {exceeded}"
                    )
            if len(data) > limit:
                self.close()  # the connection still carries the rest
            return bytes(data)

    return {
        "auto_decompress": False,
        "headers": {"Accept-Encoding": "identity"},
        "response_class": Response,
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_SECONDS, sock_read=SILENCE_SECONDS),
    }
