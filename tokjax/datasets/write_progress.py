"""How far a writer came: a line for each shard that it finished, so that another can go on from there."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tokjax._util.files import NotRegularFileError, named_in_errors, read_regular, write_atomically
from tokjax.core.errors import DatasetCorruptError, DatasetMismatchError
from tokjax.datasets.manifest import Plan, Shard, sealed, shard_of, unsealed

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS_FILE = "progress.jsonl"
_FORMAT = "tokjax-dataset-progress"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a writer came.

    Attributes:
        plan: how documents are stored.
        shards: those that are finished.
    """

    plan: Plan
    shards: tuple[Shard, ...]


def begin_progress(directory: Path, progress: Progress) -> None:
    """Write how far a writer came, whole or not at all."""
    lines = [_line({"plan": asdict(progress.plan)}), *map(_line_of_shard, progress.shards)]
    write_atomically(directory / PROGRESS_FILE, lambda file: file.writelines(lines))


def add_progress(directory: Path, shard: Shard) -> None:
    """Write down one more shard: a line, so that many shards do not cost the more each."""
    path = directory / PROGRESS_FILE
    with named_in_errors(path), path.open("ab") as file:
        file.write(_line_of_shard(shard))
        file.flush()
        os.fsync(file.fileno())


def has_progress(directory: Path) -> bool:
    """Whether a shard was finished."""
    try:
        return read_regular(directory / PROGRESS_FILE).count(b"\n") > 1
    except (FileNotFoundError, NotRegularFileError):
        return False


def read_progress(directory: Path, place: object) -> Progress | None:
    """How far a writer came; `None` if it began nothing, or was a version that is not this one.

    A last line without an end was being written when the writer was stopped; its shard is not counted.

    Args:
        directory: where the record is.
        place: what errors call that.

    Raises:
        DatasetCorruptError: the record is damaged or altered.
    """
    path, hint = f"{place}/{PROGRESS_FILE}", f"to begin anew, pass overwrite=True, or delete {place}"
    try:
        *lines, _ = read_regular(directory / PROGRESS_FILE).split(b"\n")
        plan, *shards = (unsealed(line, path, _FORMAT, hint) for line in lines)
        return Progress(Plan(**plan["plan"]), tuple(shard_of(shard["shard"]) for shard in shards))
    except (FileNotFoundError, DatasetMismatchError):
        return None
    except DatasetCorruptError:
        raise
    except NotRegularFileError as error:
        raise DatasetCorruptError(f"{path} is not a regular file; {hint}") from error
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error}; {hint}") from error


def _line_of_shard(shard: Shard) -> bytes:
    return _line({"shard": asdict(shard)})


def _line(contents: dict[str, Any]) -> bytes:
    return json.dumps(sealed(_FORMAT, contents)).encode("ascii") + b"\n"
