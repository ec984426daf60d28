"""The files of a corpus: which they are, and what is in them."""

from __future__ import annotations

import glob
import itertools
import os
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from tokjax._urls import fetched, is_url
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokjax._urls import FetchedFiles

FileFormat = Literal["auto", "text", "jsonl", "parquet"]
_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_COMPRESSED = (".gz", ".gzip")
_UNREADABLE = (".bz2", ".xz", ".zst", ".lz4", ".zip", ".7z", ".tar", ".tgz", ".npz")


@dataclass(frozen=True)
class TextFiles:
    """Files that a corpus is read from. Make one with `text_files`.

    Attributes:
        paths: the files, in the order in which they are read.
        field: the name of the text in each record, where a file has records.
        format: what all of them are; `"auto"` if their names tell.
        fetched: those that come from URLs; `paths` has them where they were fetched to.
    """

    paths: tuple[Path, ...]
    field: str = "text"
    format: FileFormat = "auto"
    fetched: tuple[FetchedFiles, ...] = dataclass_field(default=(), repr=False, compare=False)


class SourceFile(NamedTuple):
    """A file, as it was when it was read.

    Attributes:
        path: its absolute path, or its URL.
        nbytes: its size.
        modified_ns: when it was last written, in nanoseconds since 1970.
    """

    path: str
    nbytes: int
    modified_ns: int


def text_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    field: str = "text",
    format: FileFormat = "auto",  # noqa: A002 (the word that everyone expects)
) -> TextFiles:
    """The files of a corpus, to be read wherever a source of texts is taken.

    Any of them may be compressed with gzip (`.gz`).

    Args:
        paths: a file, a pattern such as `"data/**/*.jsonl.gz"` (whose matches are sorted), or several of
            them. What is at a URL, such as `"s3://bucket/*.txt"` (with `tokjax[remote]`), is fetched to a
            temporary directory first.
        field: the name of the text in each record of JSON lines, or the column of a Parquet file.
        format: `"text"`, `"jsonl"` (a JSON object a line), `"parquet"` (with `tokjax[parquet]`), or `"auto"`:
            JSON lines where the name ends with `.jsonl`, `.ndjson` or `.json`, Parquet with `.parquet`, and
            else text.

    Raises:
        InvalidArgumentError: a path that is no file, a pattern that matches none, or a file that is
            compressed in another way.
    """
    if format not in get_args(FileFormat):
        raise InvalidArgumentError(f"format must be one of {get_args(FileFormat)}, not {format!r}")
    if not isinstance(field, str):
        raise InvalidArgumentError(f"field must be the name of a field, not {field!r}")
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    for path in given:
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidArgumentError(f"paths must be str or os.PathLike, not {type(path).__name__}")
    if not given:
        raise InvalidArgumentError("paths is empty; there is nothing to read")
    at_urls = {path: fetched(path) for path in given if isinstance(path, str) and is_url(path)}
    for url in (url for url, found in at_urls.items() if not found.urls):
        raise InvalidArgumentError(f"source {url!r} matches no file")
    found = (at_urls[path].urls if path in at_urls else _matches(path) for path in given)
    files = TextFiles(tuple(itertools.chain.from_iterable(found)), field, format, tuple(at_urls.values()))
    for path in files.paths:
        if path.suffix.lower() in _UNREADABLE and format == "auto":
            raise InvalidArgumentError(
                f"{str(path)!r} is compressed, by its name, in a way that is not read here; decompress it, "
                "or compress it with gzip (to read it as it is, pass format='text')"
            )
    return files


def format_of(path: Path, files: TextFiles) -> str:
    """What is in a file, behind its compression: `"text"`, `"jsonl"` or `"parquet"`."""
    if files.format != "auto":
        return files.format
    name = path.with_suffix("") if is_compressed(path) else path
    return _FORMATS.get(name.suffix.lower(), "text")


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed, by its name."""
    return path.suffix.lower() in _COMPRESSED


def as_they_are(files: TextFiles) -> tuple[SourceFile, ...]:
    """The sizes and times of files."""
    urls = {path: url for fetched_files in files.fetched for path, url in fetched_files.urls.items()}
    stats = [(path, path.stat()) for path in files.paths]
    return tuple(
        SourceFile(urls.get(path, str(path.resolve())), stat.st_size, stat.st_mtime_ns)
        for path, stat in stats
    )


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether there is such a file; `False` for what can't be a path."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long, or with a NUL: a text
        return False


def _matches(path: str | os.PathLike[str]) -> list[Path]:
    if is_file(path):
        return [Path(path)]
    pattern = os.fspath(path)
    shown = repr(pattern[:200])
    if not glob.has_magic(pattern):
        raise InvalidArgumentError(f"source {shown} is not a file; for a text in memory pass [text]")
    matches = [Path(match) for match in sorted(glob.glob(pattern, recursive=True)) if is_file(match)]  # noqa: PTH207 (an absolute pattern)
    if not matches:
        raise InvalidArgumentError(f"source {shown} matches no file; for a text in memory pass [text]")
    return matches
