"""Tokenizer files at a URL, copied to a temporary directory.

A URL that ends in the name of a tokenizer file is that of a file. It is copied with the other file of a pair
and its configuration files, if they exist beside it. Other URLs are those of directories.

HTTP is read without fsspec, which reports failed requests as missing files. A configuration file that is not
loaded would make a different tokenizer.
"""

from __future__ import annotations

import importlib
import tempfile
import urllib.error
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.limits import exceeds_limit
from tokjax._util.urls import get_file_system
from tokjax.errors import TokenizerFormatError, TokenizerNotFoundError, TokjaxError
from tokjax.formats.detection import list_candidates, select_files
from tokjax.formats.hub import fetch_repository
from tokjax.formats.names import RepositoryName, UrlName, is_file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 10


@contextmanager
def open_files(path: Any) -> Iterator[Any]:
    """Makes the files of a tokenizer available for the time of a `with` block.

    Args:
        path: parsed name of a repository, parsed URL, or a path.

    Yields:
        Path of a file or directory; `path` itself if it is not a name.

    Raises:
        TokenizerFormatError: the files are not those of one tokenizer, or exceed the limit `file_bytes`.
        TokenizerNotFoundError: the files are not available.
    """
    if isinstance(path, RepositoryName):
        yield fetch_repository(path)
    elif isinstance(path, UrlName):
        with tempfile.TemporaryDirectory(prefix="tokjax-") as directory:
            try:
                yield _copy(path.url, Path(directory))
            except TokenizerFormatError as error:
                raise TokenizerFormatError(error.message.replace(directory, f"copy of {path.url}")) from error
    else:
        yield path


def _copy(url: str, directory: Path) -> Path:
    """Copies the files of a tokenizer to a directory, and returns the path of the file or directory."""
    url = url.rstrip("/")
    last = url.rpartition("/")[2]
    file = last if is_file_name(last) else None
    try:
        open_file, names = _find_files(url, file)
        nbytes = 0
        for name in names:
            try:
                with open_file(name) as source:
                    nbytes = _copy_file(source, directory / name, nbytes, url)
            except FileNotFoundError:
                if file in (None, name):
                    raise
    except TokjaxError:
        raise
    except Exception as error:  # file systems have exceptions of many libraries
        raise TokenizerNotFoundError(f"{url} can't be read: {type(error).__name__}: {error}") from error
    return directory / file if file else directory


def _find_files(url: str, file: str | None) -> tuple[Callable[[str], Any], list[str]]:
    """Finds the files to copy.

    Args:
        url: URL of a file or directory.
        file: name of the file, or `None` for a directory.

    Returns:
        A function that opens a file by its name, and the names of the files. For a file, the other names are
        those of files that may exist.
    """
    parent = url.rpartition("/")[0] if file else url
    if url.startswith(("http://", "https://")):
        if file is None:  # (HTTP does not define directories)
            raise TokenizerNotFoundError(f"{url} does not end in the name of a tokenizer file")
        return lambda name: _open_http(f"{parent}/{name}"), list_candidates(file)
    system, root = get_file_system(parent)
    names = list_candidates(file) if file else select_files(_list_names(system, root), None, url)
    return lambda name: system.open(f"{root}/{name}", "rb"), names


def _list_names(system: Any, directory: str) -> list[str]:
    return [path.rstrip("/").rpartition("/")[2] for path in system.ls(directory, detail=False)]


def _open_http(url: str) -> Any:
    """Opens a URL. Raises `FileNotFoundError` if the server reports that there is no such file."""
    request = importlib.import_module("urllib.request")  # here, since it imports ssl, which is slow
    try:
        return request.urlopen(url, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()  # it is the response, too
        if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            raise FileNotFoundError(str(error)) from error
        raise


def _copy_file(source: BinaryIO, target: Path, nbytes: int, url: str) -> int:
    """Copies a file.

    Args:
        source: the open file.
        target: path of the copy.
        nbytes: number of bytes of the files that were copied before.
        url: URL of the tokenizer, for errors.

    Returns:
        Number of bytes of all files so far.

    Raises:
        TokenizerFormatError: the number exceeds the limit `file_bytes`. The rest of the file is not read.
    """
    with target.open("wb") as local:
        while chunk := source.read(_CHUNK_BYTES):
            nbytes += len(chunk)
            if exceeded := exceeds_limit("file_bytes", nbytes):
                raise TokenizerFormatError(f"{url}: the files have at least {nbytes:,} bytes; {exceeded}")
            local.write(chunk)
    return nbytes
