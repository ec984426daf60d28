"""The `index.json` of a directory of MDS shards or litdata chunks, which lists the files of the directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import NotRegularFileError, read_regular
from tokjax.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INDEX_FILE = "index.json"
_LISTS = ("shards", "chunks")
"""Key of the list of files in the index of MDS, and in that of litdata."""
_HEAD_BYTES = 4096


def lists_shards(index: Path) -> bool:
    """Returns whether a file begins like the index of MDS or litdata, not like another program's file."""
    try:
        with index.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return any(f'"{key}"'.encode() in head for key in _LISTS)


def list_indexed_shards(directory: Path, is_chosen: Callable[[Path], bool] = lambda _: True) -> list[Path]:
    """Returns the files that the index of a directory lists, in order; none if there is no such index.

    Args:
        directory: the directory.
        is_chosen: function of a path that returns whether the caller reads such a file.

    Raises:
        SourceError: a file is missing, or the index is damaged.
    """
    path = directory / INDEX_FILE
    try:
        index = json.loads(read_regular(path))
        listed: list[dict[str, Any]] = next((index[key] for key in _LISTS if key in index), [])
        names = [_get_names(entry) for entry in listed]
    except (FileNotFoundError, NotRegularFileError):
        return []
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SourceError(f"{path}: can't be read, it is damaged: {error!r:.200}") from error
    paths = [[directory / name for name in alternatives] for alternatives in names]
    return [_find_file(each, is_chosen) for each in paths if any(map(is_chosen, each))]


def _get_names(entry: dict[str, Any]) -> list[str]:
    """Returns the names that the file of an entry may have: with MDS, it can be compressed."""
    if "filename" in entry:
        names = [entry["filename"]]
    else:
        names = [entry[key]["basename"] for key in ("raw_data", "zip_data") if entry.get(key)]
    if not names or any(name.startswith("/") or ".." in name.split("/") for name in names):
        raise ValueError(f"the entry {entry!r:.100} names no file of the directory")
    return names


def _find_file(paths: list[Path], is_chosen: Callable[[Path], bool]) -> Path:
    """Returns the file that has one of the chosen paths."""
    existing = [path for path in paths if path.is_file()]
    found = next(filter(is_chosen, existing), None)
    if found is None:
        advice = f"use a pattern that matches {existing[0].name}" if existing else "copy the directory again"
        missing = next(filter(is_chosen, paths))
        raise SourceError(f"{missing}: is missing, and {INDEX_FILE} in its directory lists it; {advice}")
    return found
