"""Corpus files: paths, glob patterns, formats and compression."""

from __future__ import annotations

import errno
import fnmatch
import glob
import itertools
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field as dataclass_field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tokjax._util.atomic_files import read_regular, reject_home
from tokjax._util.checks import check_choice
from tokjax._util.urls import fetch_files, is_url
from tokjax.errors import Hint, InvalidArgumentError, SourceError

if TYPE_CHECKING:
    from tokjax._util.urls import FetchedFiles

FileFormat = Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "arrow", "tar", "array_record"]
BINARY_FORMATS = ("parquet", "arrow", "tar", "array_record")
"""Formats that are not text themselves, and declare what in them is text."""
_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".tar": "tar",
    ".array_record": "array_record",
    ".arrayrecord": "array_record",
}
COMPRESSED = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}
"""The compression format of files with each suffix."""
_UNPACK_COMMANDS = {
    ".lz4": "lz4 -d",
    ".zip": "unzip",
    ".7z": "7z x",
    ".br": "brotli -d",
    ".snappy": "snappy.decompress of python-snappy",
    ".tgz": "tar -xzf",
    ".npz": "unzip",
}
_LOAD_CALLS = {
    "*.npy": "numpy.load({name!r}).tolist(), or convert_dataset if it holds token ids",
    "*.mds": "streaming.StreamingDataset(local={directory!r}, batch_size=1), or the texts of its records",
    "chunk-*-*.bin": "litdata.StreamingDataset({directory!r}), or the texts of its records",
    "*.pkl": "pandas.read_pickle({name!r})['text']",
    "*.xlsx": "pandas.read_excel({name!r})['text']",
}
"""The call that reads the texts of each kind of file, by a pattern of the names of files."""
_SHARD_NUMBER = re.compile(r"-\d+-of-\d+$")
"""End of the names of sharded files of TensorFlow Datasets: `train.array_record-00000-of-00064`."""
_MAX_INSPECTED = 1000
SAVE_TEXTS = "save its texts as JSON lines, CSV or Parquet"
_TEXT_IN_MEMORY = Hint("for a text in memory pass [text]", "")


@dataclass(frozen=True)
class TextFiles:
    """Files of a corpus, with their format. Make one with `text_files`.

    Attributes:
        paths: the paths of the files, in the order in which they are read.
        field: the name of the text field in each record, for files with records.
        format: the format of all files; `"auto"` if the format follows from the name of each file.
        fetched: the files that were fetched from URLs; `paths` contains their local copies.
    """

    paths: tuple[Path, ...]
    field: str = "text"
    format: FileFormat = "auto"
    fetched: tuple[FetchedFiles, ...] = dataclass_field(default=(), repr=False, compare=False)


class SourceFile(NamedTuple):
    """Size and modification time of a file at the time when it was read.

    Attributes:
        path: the absolute path of the file, or its URL.
        nbytes: the size of the file in bytes.
        modified_ns: the time of the last modification, in nanoseconds since 1970.
    """

    path: str
    nbytes: int
    modified_ns: int


def text_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    field: str = "text",
    format: FileFormat = "auto",  # noqa: A002 (the name that users expect)
) -> TextFiles:
    """Finds the files of a corpus, for functions that take a source.

    Text, JSON lines, CSV, TSV and tar files may be compressed with gzip, bzip2, xz or zstd (`.gz`,
    `.bz2`, `.xz`, `.zst`; zstd requires `tokjax[zstd]` before Python 3.14).

    Args:
        paths: one or several paths. Each is a file, a glob pattern such as `"data/**/*.jsonl.gz"` (its
            matches are sorted), or a directory, whose Parquet files are read, sorted. Names in it that
            begin with `.` or `_` are ignored, since they are hidden or temporary. Without such files, it is
            the directory of a dataset that `save_to_disk` of `datasets` wrote. Files at a URL, such
            as `"s3://bucket/*.txt"` (requires `tokjax[remote]`), are fetched to a temporary directory first;
            a directory at a URL is not accepted.
        field: the name of the text field in each JSON record, the text column of a CSV, Parquet or Arrow
            file, or the feature of the `tf.train.Example` in each record of an ArrayRecord file,
            whose records can also be JSON objects, or texts (`"text"`).
            `"meta.text"` is the field `text` of the object or struct `meta`. Of a tar archive, `"text"` is
            the member `.txt` of each sample, or else the field `text` of its member `.json`.
        format: the format of all files: `"text"` (UTF-8), `"jsonl"` (one JSON object per line), `"csv"` or
            `"tsv"` (with a header row), `"parquet"`, `"arrow"` (a file or a stream of record batches; both
            require `tokjax[parquet]`), `"tar"` (samples of members, as in WebDataset) or
            `"array_record"` (requires `tokjax[arrayrecord]`). `"auto"` chooses by name: JSON lines for
            `.jsonl`, `.ndjson` and `.json`, CSV for `.csv`, TSV for `.tsv`, Parquet for `.parquet`, Arrow for
            `.arrow` and `.feather`, tar for `.tar`, ArrayRecord for `.array_record` and `.arrayrecord`, and
            text for all others.

    Raises:
        InvalidArgumentError: a path is not a regular file, a pattern has no match, a directory has no
            Parquet files, or the suffix of a file indicates an unsupported compression format or a file that
            is not text.
        OSError: a URL can't be read.
    """
    check_choice("format", format, get_args(FileFormat))
    if not isinstance(field, str):
        raise InvalidArgumentError(f"field must be the name of a field, not {field!r}")
    path_list = list(paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    for path in path_list:
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidArgumentError(f"paths must be str or os.PathLike, not {type(path).__name__}")
    if not path_list:
        raise InvalidArgumentError("paths is empty; there is nothing to read")
    at_urls = {path: fetch_files(path) for path in path_list if isinstance(path, str) and is_url(path)}
    for url in (url for url, url_files in at_urls.items() if not url_files.urls):
        raise InvalidArgumentError(f"source {url!r} matches no file")
    matches = (at_urls[path].urls if path in at_urls else _find_matches(path) for path in path_list)
    files = TextFiles(tuple(itertools.chain.from_iterable(matches)), field, format, tuple(at_urls.values()))
    if format == "auto":
        for path in files.paths:
            _check_suffix(path)
    return files


def get_format(path: Path, files: TextFiles) -> str:
    """Returns the format of the decompressed file, one of `FileFormat` without `"auto"`."""
    if files.format != "auto":
        return files.format
    return _FORMATS.get(_SHARD_NUMBER.sub("", _strip_compression(path).suffix.lower()), "text")


def has_plain_text(files: TextFiles) -> bool:
    """Returns whether one of the files is plain text, which a separator splits; others have records."""
    return any(get_format(path, files) == "text" for path in files.paths)


def is_compressed(path: Path) -> bool:
    """Returns whether a file has the suffix of a supported compression format."""
    return path.suffix.lower() in COMPRESSED


def _strip_compression(path: Path) -> Path:
    return path.with_suffix("") if is_compressed(path) else path


def get_source_files(files: TextFiles) -> tuple[SourceFile, ...]:
    """Returns the current size and modification time of each file."""
    urls = {path: url for fetched_files in files.fetched for path, url in fetched_files.urls.items()}
    stats = [(path, path.stat()) for path in files.paths]
    return tuple(
        SourceFile(urls.get(path, str(path.resolve())), stat.st_size, stat.st_mtime_ns)
        for path, stat in stats
    )


def is_file(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is an existing regular file; `False` for strings that can't be paths."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long for a path, or contains NUL: it is a text
        return False


def describe_irregular_path(path: str | os.PathLike[str]) -> tuple[str, Hint | None] | None:
    """Returns why a path can't be opened as a regular file, and a hint; `None` if the path does not exist."""
    shown = repr(os.fspath(path)[:200])
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"source {shown} is a symbolic link to itself", None
        if error.errno == errno.EACCES:
            return f"source {shown} can't be read: {error.strerror}", None
        return (f"source {shown} is a broken symbolic link", None) if _is_link(path) else None
    except ValueError:  # contains NUL: it is a text
        return None
    if stat.S_ISDIR(mode):
        return f"source {shown} is a directory", None
    return f"source {shown} is a pipe or a device, not a regular file, and can't be read twice", Hint(
        "save it as a file, or pass an iterable of texts",
        "save it as a file, or pipe it to the command, with - in place of the file's name",
    )


def _is_link(path: str | os.PathLike[str]) -> bool:
    try:
        return Path(path).is_symlink()
    except OSError:  # too long for a path: it is a text
        return False


def _check_suffix(path: Path) -> None:
    suffix, name = path.suffix.lower(), str(path)
    if suffix in _UNPACK_COMMANDS:
        raise InvalidArgumentError(
            f"{name!r} is compressed in an unsupported format, according to its suffix; unpack it with "
            f"{_UNPACK_COMMANDS[suffix]}, or compress it with gzip, bzip2, xz or zstd"
        )
    load_hint = _find_load_hint(path)
    if load_hint:
        raise InvalidArgumentError(f"{name!r} is not a text file, according to its name", hint=load_hint)


def _find_load_hint(path: Path) -> Hint | None:
    """Returns the call that reads a file, if its name shows that it is not a text file."""
    name = _strip_compression(path).name.lower()
    call = next((call for pattern, call in _LOAD_CALLS.items() if fnmatch.fnmatchcase(name, pattern)), None)
    if call is None:
        return None
    call = call.format(name=str(path), directory=str(path.parent))
    return Hint(f"pass {call}", f"{SAVE_TEXTS}, or for token ids run tokjax convert")


def _find_matches(path: str | os.PathLike[str]) -> list[Path]:
    """Returns the files of a path, directory or glob pattern; raises with a hint if no file matches."""
    if is_file(path):
        return [Path(path)]
    pattern = os.fspath(path)
    irregular = describe_irregular_path(path)
    if irregular is not None:
        directory = Path(path)
        files = _find_files(directory) or _find_saved_files(directory)
        if files:
            return files
        reason, hint = irregular
        if directory.is_dir():
            contents, hint = _describe_directory(directory)
            reason += contents
        raise InvalidArgumentError(reason, hint=hint)
    reject_home(path)
    shown = repr(pattern[:200])
    if not glob.has_magic(pattern):
        raise InvalidArgumentError(f"source {shown} is not a file", hint=_TEXT_IN_MEMORY)
    matches = [Path(match) for match in sorted(glob.glob(pattern, recursive=True)) if is_file(match)]  # noqa: PTH207 (an absolute pattern)
    if not matches:
        raise InvalidArgumentError(f"source {shown} matches no file", hint=_TEXT_IN_MEMORY)
    return matches


def _find_files(directory: Path) -> list[Path]:
    """Returns the Parquet files of a directory, sorted."""
    return [
        path
        for path in sorted(directory.rglob("*"))
        if path.suffix.lower() == ".parquet" and not _is_hidden(path.relative_to(directory)) and is_file(path)
    ]


def _find_saved_files(directory: Path) -> list[Path]:
    """Returns the Arrow files of a dataset that `Dataset.save_to_disk` of `datasets` wrote, in their order.

    Args:
        directory: directory of the dataset, or of a `DatasetDict` with one split.

    Raises:
        InvalidArgumentError: there are several datasets, or the rows are a selection of those of the files.
        SourceError: a file of the dataset is missing.
    """
    states = {path: _read_state(path) for path in sorted(directory.rglob("state.json"))}
    saved = [path for path, state in states.items() if "_data_files" in state]
    if not saved:
        return []
    if len(saved) > 1:
        names = [str(path.parent) for path in sorted(saved, key=lambda path: path.parent.name != "train")]
        advice = f"pass one of them, such as {names[0]!r}"
        raise InvalidArgumentError(
            f"source {str(directory)!r} has several saved datasets, {names[:20]}", hint=Hint(advice, advice)
        )
    [path] = saved
    if states[path].get("_indices_data_files"):
        raise InvalidArgumentError(
            f"source {str(directory)!r} is a selection of rows, saved by an old version of datasets",
            hint=Hint(f"pass datasets.load_from_disk({str(path.parent)!r})['text']", "save it again"),
        )
    names = [str(entry["filename"]) for entry in states[path]["_data_files"]]
    for name in names:
        if Path(name).name != name or not is_file(path.parent / name):
            raise SourceError(f"{path}: lists the file {name!r}, which is not in its directory")
    return [path.parent / name for name in names]


def _read_state(path: Path) -> dict[str, Any]:
    """Returns the contents of a `state.json`; an empty dict for a file of another program."""
    try:
        state = json.loads(read_regular(path))
        return state if all("filename" in entry for entry in state["_data_files"]) else {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _is_hidden(path: Path) -> bool:
    """Returns whether a path in a directory is that of a hidden or temporary file.

    Spark, pyarrow and others ignore the same paths: `_temporary/0/part-0.parquet` is the incomplete file of a
    running job, and `.ipynb_checkpoints` and `_delta_log` have copies and metadata. `_key=1` is a partition.
    """
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def _describe_directory(directory: Path) -> tuple[str, Hint]:
    """Returns a description of a directory without Parquet files, and a hint with a pattern for its files."""
    if (directory / "manifest.json").is_file():
        return " with a manifest.json", Hint(
            "open a tokjax dataset with open_dataset", "if it is a dataset already, see tokjax stats"
        )
    inspected = itertools.islice(directory.rglob("*"), _MAX_INSPECTED)
    files = (path for path in inspected if path.is_file() and path.name != "index.json")
    suffixes = Counter("".join(path.suffixes[-2 if is_compressed(path) else -1 :]) for path in files)
    if ".arrow" in suffixes:
        arrow_files = f"pass the pattern {str(directory / '**' / '*.arrow')!r}"
        return " of Arrow files", Hint(arrow_files, arrow_files)
    common = next((suffix for suffix, _ in suffixes.most_common() if suffix), ".txt")
    load_hint = _find_load_hint(next(directory.rglob(f"*{common}"), Path()))
    if load_hint:
        return " without Parquet files", load_hint
    pattern = f"pass a pattern, such as {str(directory / '**' / f'*{common}')!r}"
    return " without Parquet files", Hint(pattern, pattern)
