"""The `index.json` of a directory of MDS shards or litdata chunks, which lists the files of the directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import NotRegularFileError, read_regular
from tokjax.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

INDEX_FILE = "index.json"
_LISTS = ("shards", "chunks")
"""Key of the list of files in the index of MDS, and in that of litdata."""


def list_indexed_shards(directory: Path) -> list[Path]:
    """Returns the files that the index of a directory lists, in order; none if there is no such index.

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
    return [_find_file(directory, alternatives) for alternatives in names]


def _get_names(entry: dict[str, Any]) -> list[str]:
    """Returns the names that the file of an entry may have: with MDS, it can be compressed."""
    if "filename" in entry:
        names = [entry["filename"]]
    else:
        names = [entry[key]["basename"] for key in ("raw_data", "zip_data") if entry.get(key)]
    if not names or any(name.startswith("/") or ".." in name.split("/") for name in names):
        raise ValueError(f"the entry {entry!r:.100} names no file of the directory")
    return names


def _find_file(directory: Path, names: list[str]) -> Path:
    """Returns the file that has one of the names."""
    found = next((directory / name for name in names if (directory / name).is_file()), None)
    if found is None:
        raise SourceError(
            f"{directory / names[0]}: is missing, and {INDEX_FILE} in its directory lists it; copy the "
            "directory again"
        )
    return found
