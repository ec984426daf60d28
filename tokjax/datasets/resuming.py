"""What a former writer left or finished, compared with what is to be written now."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tokjax._util.files import (
    NotRegularFileError,
    named_in_errors,
    read_regular,
    sha256_of_file,
    write_atomically,
)
from tokjax._util.progress import progress_bar
from tokjax.core.errors import DatasetCorruptError, DatasetError, DatasetExistsError, DatasetMismatchError
from tokjax.datasets.document_sources import SourceHash
from tokjax.datasets.manifest import MANIFEST_FILE, Manifest, Plan, Shard, sealed, shard_of, unsealed
from tokjax.datasets.manifest_validation import read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tokjax.datasets.document_sources import Document
    from tokjax.datasets.shard_filling import Job


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


_BEGIN_ANEW = "to begin anew, pass overwrite=True, or delete it"


def unchanged(manifest_there: Callable[[], Manifest], job: Job, place: object) -> Manifest:
    """What is there, if it is what would be written."""
    try:
        manifest = manifest_there()
    except DatasetError as error:
        raise DatasetExistsError(f"{place} exists; to replace it, pass overwrite=True ({error})") from None
    hint = "to replace it, pass overwrite=True"
    _compare(job.plan, manifest.plan, f"{place} exists, and was written", hint)
    different = _first_difference(job, manifest.shards)
    if different is None and next(job.documents, None) is not None:
        different = "the source now has more documents"
    if different is not None:
        raise DatasetExistsError(f"{place} exists, and was written from another source ({different}); {hint}")
    return manifest


def progress_in(directory: Path) -> Progress | None:
    """How far a writer came that was stopped, perhaps at the very end."""
    progress = read_progress(directory, directory)
    if progress is None and (directory / MANIFEST_FILE).is_file():
        manifest = read_manifest(directory)
        progress = Progress(manifest.plan, tuple(manifest.shards))
    return progress


def begin(
    job: Job,
    there: Callable[[], Progress | None],
    check: Callable[[tuple[Shard, ...]], None],
    place: object,
    anew: Callable[[], Iterator[Document]] | None,
    *,
    overwrite: bool,
) -> tuple[Job, tuple[Shard, ...]]:
    """What is left to do, and the shards that a writer that was stopped has finished.

    Args:
        job: what is to be written; of its documents those of finished shards are read over.
        there: reads how far a writer came.
        check: refuses shards that are not as they were written.
        place: what errors call it.
        anew: reads the documents from the start; `None` if that can't be done twice.
        overwrite: whether what is there may be given up.
    """
    try:
        finished = _finished_shards(there(), job.plan, place)
        check(finished)
    except DatasetError:
        if not overwrite:
            raise
        return job, ()
    different = _first_difference(job, finished)
    if different is None:
        return job, finished
    what = f"{place} was begun from another source ({different}); pass the same one"
    if not overwrite:
        raise DatasetMismatchError(f"{what}; {_BEGIN_ANEW}")
    if anew is None:
        raise DatasetMismatchError(
            f"{what}, or one that can be read again: an iterator can't, and some of it is read already"
        )
    return job._replace(documents=anew()), ()


def _finished_shards(progress: Progress | None, plan: Plan, place: object) -> tuple[Shard, ...]:
    """The shards that a writer that was stopped has finished, if it wrote as this one would."""
    if progress is None:
        return ()
    _compare(plan, progress.plan, f"{place} was begun", _BEGIN_ANEW, DatasetMismatchError)
    finished = progress.shards
    if finished and finished[-1].num_items < plan.shard_size:
        return finished[:-1]  # (it was the last one; the source may go on now)
    return finished


def check_files(directory: Path, finished: tuple[Shard, ...]) -> None:
    """Refuse finished shards that were altered."""
    records = {name: record for shard in finished for name, record in shard.files.items()}
    for name, record in records.items():
        file = directory / name
        if not file.is_file() or sha256_of_file(file) != record.sha256:
            raise DatasetMismatchError(
                f"{file}, which a writer that was stopped had finished, was altered; to begin anew, pass "
                f"overwrite=True, or delete {directory}"
            )


def _first_difference(job: Job, shards: Sequence[Shard]) -> str | None:
    """Where documents are not those of some shards; all of these are read."""
    seen, total = 0, sum(shard.num_bytes for shard in shards)
    with progress_bar("comparing", total, unit="bytes", enabled=job.progress and total > 0) as advance:
        for shard in shards:
            digest, count = SourceHash(), 0
            for doc_id, text in itertools.islice(job.documents, shard.num_documents):
                digest.add([doc_id], [text])
                count += 1
            if count < shard.num_documents:
                return f"it now ends after {seen + count} documents"
            if digest.pop() != shard.source_sha256:
                return f"documents {seen} to {seen + count - 1} are others"
            seen += count
            advance(shard.num_bytes, f"{seen:,} documents")
    return None


def _compare(
    plan: Plan, there: Plan, what: str, hint: str, error: type[DatasetError] = DatasetExistsError
) -> None:
    for name in Plan.__slots__:
        now, then = getattr(plan, name), getattr(there, name)
        if now != then:
            raise error(f"{what} with {name}={then!r}, not {now!r}; {hint}")
