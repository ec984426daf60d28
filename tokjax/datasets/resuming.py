"""What a former writer left or finished, compared with what is to be written now."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tokjax._util.files import (
    NotRegularFileError,
    add_path_to_errors,
    compute_file_sha256,
    read_regular,
    write_atomically,
)
from tokjax._util.progress import show_progress_bar
from tokjax.datasets.document_sources import SourceHash
from tokjax.datasets.manifest import (
    MANIFEST_FILE,
    Manifest,
    Plan,
    Shard,
    parse_shard,
    seal_contents,
    unseal_contents,
)
from tokjax.datasets.manifest_validation import read_manifest
from tokjax.errors import (
    DatasetCorruptError,
    DatasetError,
    DatasetExistsError,
    DatasetMismatchError,
    Hint,
    make_overwrite_hint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tokjax.datasets.document_sources import Document
    from tokjax.datasets.shard_writing import WriteJob


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


def start_progress(directory: Path, progress: Progress) -> None:
    """Write how far a writer came, whole or not at all."""
    lines = [_encode_line({"plan": asdict(progress.plan)}), *map(_encode_shard_line, progress.shards)]
    write_atomically(directory / PROGRESS_FILE, lambda file: file.writelines(lines))


def add_progress(directory: Path, shard: Shard) -> None:
    """Write down one more shard: a line, so that many shards do not cost the more each."""
    path = directory / PROGRESS_FILE
    with add_path_to_errors(path), path.open("ab") as file:
        file.write(_encode_shard_line(shard))
        file.flush()
        os.fsync(file.fileno())


def has_progress(directory: Path) -> bool:
    """Whether a shard was finished."""
    try:
        return read_regular(directory / PROGRESS_FILE).count(b"\n") > 1
    except (FileNotFoundError, NotRegularFileError):
        return False


def read_progress(directory: Path, location: object) -> Progress | None:
    """How far a writer came; `None` if it began nothing, or was a version that is not this one.

    A last line without an end was being written when the writer was stopped; its shard is not counted.

    Args:
        directory: where the record is.
        location: what errors call that.

    Raises:
        DatasetCorruptError: the record is damaged or altered.
    """
    path = f"{location}/{PROGRESS_FILE}"
    hint = make_overwrite_hint("begin anew", f", or delete {location}")
    try:
        *lines, _ = read_regular(directory / PROGRESS_FILE).split(b"\n")
        plan, *shards = (unseal_contents(line, path, _FORMAT, hint) for line in lines)
        return Progress(Plan(**plan["plan"]), tuple(parse_shard(shard["shard"]) for shard in shards))
    except (FileNotFoundError, DatasetMismatchError):
        return None
    except DatasetCorruptError:
        raise
    except NotRegularFileError as error:
        raise DatasetCorruptError(f"{path} is not a regular file", hint=hint) from error
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error}", hint=hint) from error


def _encode_shard_line(shard: Shard) -> bytes:
    return _encode_line({"shard": asdict(shard)})


def _encode_line(contents: dict[str, Any]) -> bytes:
    return json.dumps(seal_contents(_FORMAT, contents)).encode("ascii") + b"\n"


_RESTART_HINT = make_overwrite_hint("begin anew", ", or delete it")


def check_unchanged(load_manifest: Callable[[], Manifest], job: WriteJob, location: object) -> Manifest:
    """What is there, if it is what would be written."""
    try:
        manifest = load_manifest()
    except DatasetError as error:
        raise DatasetExistsError(
            f"{location} exists ({error.message})", hint=make_overwrite_hint("replace it")
        ) from None
    hint = make_overwrite_hint("replace it")
    _compare(job.plan, manifest.plan, f"{location} exists, and was written", hint)
    different = _find_first_difference(job, manifest.shards)
    if different is None and next(job.documents, None) is not None:
        different = "the source now has more documents"
    if different is not None:
        raise DatasetExistsError(
            f"{location} exists, and was written from another source ({different})", hint=hint
        )
    return manifest


def find_progress(directory: Path) -> Progress | None:
    """How far a writer came that was stopped, perhaps at the very end."""
    progress = read_progress(directory, directory)
    if progress is None and (directory / MANIFEST_FILE).is_file():
        manifest = read_manifest(directory)
        progress = Progress(manifest.plan, tuple(manifest.shards))
    return progress


def resume(
    job: WriteJob,
    existing: Callable[[], Progress | None],
    check: Callable[[tuple[Shard, ...]], None],
    location: object,
    restart: Callable[[], Iterator[Document]] | None,
    *,
    overwrite: bool,
) -> tuple[WriteJob, tuple[Shard, ...]]:
    """What is left to do, and the shards that a writer that was stopped has finished.

    Args:
        job: what is to be written; of its documents those of finished shards are read over.
        existing: reads how far a writer came.
        check: refuses shards that are not as they were written.
        location: what errors call it.
        restart: reads the documents from the start; `None` if that can't be done twice.
        overwrite: whether what is there may be given up.
    """
    try:
        finished = _get_finished_shards(existing(), job.plan, location)
        check(finished)
    except DatasetError:
        if not overwrite:
            raise
        return job, ()
    different = _find_first_difference(job, finished)
    if different is None:
        return job, finished
    what = f"{location} was begun from another source ({different}); pass the same one"
    if not overwrite:
        raise DatasetMismatchError(what, hint=_RESTART_HINT)
    if restart is None:
        raise DatasetMismatchError(
            f"{what}, or one that can be read again: an iterator can't, and some of it is read already"
        )
    return job._replace(documents=restart()), ()


def _get_finished_shards(progress: Progress | None, plan: Plan, location: object) -> tuple[Shard, ...]:
    """The shards that a writer that was stopped has finished, if it wrote as this one would."""
    if progress is None:
        return ()
    _compare(plan, progress.plan, f"{location} was begun", _RESTART_HINT, DatasetMismatchError)
    finished = progress.shards
    if finished and finished[-1].num_items < plan.shard_size:
        return finished[:-1]  # (it was the last one; the source may go on now)
    return finished


def check_files(directory: Path, finished: tuple[Shard, ...]) -> None:
    """Refuse finished shards that were altered."""
    records = {name: record for shard in finished for name, record in shard.files.items()}
    for name, record in records.items():
        file = directory / name
        if not file.is_file() or compute_file_sha256(file) != record.sha256:
            raise DatasetMismatchError(
                f"{file}, which a writer that was stopped had finished, was altered",
                hint=make_overwrite_hint("begin anew", f", or delete {directory}"),
            )


def _find_first_difference(job: WriteJob, shards: Sequence[Shard]) -> str | None:
    """Where documents are not those of some shards; all of these are read."""
    seen, total = 0, sum(shard.num_bytes for shard in shards)
    with show_progress_bar("comparing", total, unit="bytes", enabled=job.progress and total > 0) as advance:
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
    plan: Plan, existing: Plan, what: str, hint: Hint, error: type[DatasetError] = DatasetExistsError
) -> None:
    for name in Plan.__slots__:
        now, then = getattr(plan, name), getattr(existing, name)
        if now != then:
            raise error(f"{what} with {name}={then!r}, not {now!r}", hint=hint)
