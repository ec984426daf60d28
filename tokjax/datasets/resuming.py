"""Resumption of an interrupted `write_dataset`.

A writer works in `NAME.incomplete` and appends one line to `progress.jsonl` for each finished shard. After a
kill in the middle of the third shard, the directory holds:

    corpus.incomplete/
      progress.jsonl              {"format": ..., "plan": {"field": "PackedTokenField", ...}, "checksum": ...}
                                  {"format": ..., "shard": {"name": "shard-00000", ...}, "checksum": ...}
                                  {"format": ..., "shard": {"name": "shard-00001", ...}, "checksum": ...}
      shard-00000.tokens.npy      finished
      shard-00000.num_tokens.npy
      shard-00001.tokens.npy      finished
      shard-00001.num_tokens.npy
      shard-00002.tokens.npy      not in progress.jsonl, deleted by the next call
      .shard-00002.num_tokens.npy.3f9a.partial         temporary file, deleted by the next call

The next call of `write_dataset` with the same arguments

1. reads `progress.jsonl`, and compares its plan with the new one;
2. compares the files of finished shards with their checksums;
3. reads the source again up to the end of the last finished shard, in parallel, and compares the digests of
   its documents with `source_sha256` of each shard, without encoding them;
4. deletes all other files, and encodes the remaining documents.

The result has the same bytes as an uninterrupted run. If a comparison fails, the call raises an error, or
starts over with `overwrite=True`. A finished dataset is compared in the same way, and left unchanged.

See docs/dataset-format.md.
"""

from __future__ import annotations

import itertools
import json
import os
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import (
    NotRegularFileError,
    add_path_to_errors,
    write_atomically,
)
from tokjax._util.progress import show_progress_bar
from tokjax.corpus.sources import ReadingReport
from tokjax.datasets.document_sources import SourceHash
from tokjax.datasets.manifest import (
    MANIFEST_FILE,
    PROGRESS_FILE,
    Manifest,
    Plan,
    Shard,
    describe_plan,
    describe_shard,
    parse_shard,
    seal_contents,
    unseal_contents,
)
from tokjax.datasets.shard_writing import map_batches
from tokjax.errors import (
    DatasetCorruptError,
    DatasetError,
    DatasetExistsError,
    DatasetMismatchError,
    Hint,
    make_overwrite_hint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tokjax.datasets.document_sources import Batch, DocumentDigests
    from tokjax.datasets.remote import Directory
    from tokjax.datasets.shard_writing import WriteJob


_FORMAT = "tokjax-dataset-progress-2"
"""Value of the field `format` in each line of the record. Version 1 had other digests of documents."""
_SOURCE_CHANGED = {"source": "changed"}
"""Last line of the record of a writer that stopped because its source changed."""
_RESTART_HINT = make_overwrite_hint("start over", ", or delete it")
"""Hint of errors about an interrupted writer that can't be resumed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an interrupted writer.

    Attributes:
        plan: settings that the writer was started with.
        shards: finished shards, in stream order.
        source_changed: whether the writer stopped because the source changed while it was read. The next one
            starts over if the documents of the shards are not those of the source.
    """

    plan: Plan
    shards: tuple[Shard, ...]
    source_changed: bool = False


def resume(job: WriteJob, directory: Directory, *, overwrite: bool) -> tuple[WriteJob, tuple[Shard, ...]]:
    """Returns the remaining work, and the finished shards of an interrupted writer.

    The documents of finished shards are consumed from `job.batches`.

    Args:
        job: write job with all documents.
        directory: directory of the interrupted writer.
        overwrite: whether to start over if the interrupted writer can't be resumed.

    Returns:
        The job with the documents that remain, and the finished shards; no shards if it starts over.

    Raises:
        DatasetCorruptError: the progress record is damaged.
        DatasetMismatchError: the plan or the documents differ, or a finished shard was altered.
    """
    new_job = job.fix_date(None)
    try:
        progress = _find_progress(directory)
        job = job.fix_date(None if progress is None else progress.plan)
        finished = _get_finished_shards(progress, job.plan, directory)
        _check_files(directory, finished)
    except DatasetError:
        if not overwrite:
            raise
        return new_job, ()
    difference, remaining = _compare_documents(job, finished)
    if difference is None:
        return remaining, finished
    message = f"{directory} was started with another source ({difference}); pass the same one"
    if not (overwrite or (progress is not None and progress.source_changed)):
        raise DatasetMismatchError(message, hint=_RESTART_HINT)
    if job.restart is None:
        raise DatasetMismatchError(
            f"{message}, or one that can be read again: part of this iterator has already been consumed"
        )
    return new_job._replace(batches=job.restart()), ()


def load_manifest_if_unchanged(directory: Directory, job: WriteJob) -> Manifest:
    """Returns the manifest of an existing dataset if the job would write the same dataset.

    Reads all documents of the job to compare them.

    Args:
        directory: directory of the dataset.
        job: write job to compare with.

    Raises:
        DatasetExistsError: the existing dataset is damaged, or has another plan or other documents.
    """
    try:
        manifest = directory.manifest()
    except DatasetError as error:
        raise DatasetExistsError(
            f"{directory} exists ({error.message})",
            hint=make_overwrite_hint("replace a dataset", "; otherwise pass another path"),
        ) from None
    hint = make_overwrite_hint("replace it")
    job = job.fix_date(manifest.plan)
    _compare(job.plan, manifest.plan, f"{directory} exists, and was written", hint)
    difference, remaining = _compare_documents(job, manifest.shards)
    if difference is None and any(
        len(digests.sha256) for _, (digests, _) in map_batches(remaining, "digest")
    ):
        difference = "the source now has more documents"
    if difference is not None:
        raise DatasetExistsError(
            f"{directory} exists, and was written from another source ({difference})", hint=hint
        )
    return manifest


def _check_files(directory: Directory, finished: tuple[Shard, ...]) -> None:
    """Raises `DatasetMismatchError` if files of finished shards were altered."""
    for name, record in ((name, file) for shard in finished for name, file in shard.files.items()):
        if not directory.has(name, record):
            raise DatasetMismatchError(
                f"{directory}/{name}, which an interrupted writer had finished, is missing or was altered",
                hint=make_overwrite_hint("start over", f", or delete {directory}"),
            )


def _find_progress(directory: Directory) -> Progress | None:
    """Returns the progress of an interrupted writer, or `None`.

    A writer that was killed after it wrote the manifest has no progress record, but all of its shards are
    finished.
    """
    progress = _read_progress(directory)
    if progress is None and directory.read(MANIFEST_FILE) is not None:
        manifest = directory.manifest()
        progress = Progress(manifest.plan, tuple(manifest.shards))
    return progress


def _read_progress(directory: Directory) -> Progress | None:
    """Reads the progress record of an interrupted writer.

    A last line without a line break was being written when the writer was killed. Its shard is not counted.

    Returns:
        The progress; `None` if the record is missing, or if another version of tokjax wrote it.

    Raises:
        DatasetCorruptError: the record is damaged or was altered.
    """
    path = f"{directory}/{PROGRESS_FILE}"
    hint = make_overwrite_hint("start over", f", or delete {directory}")
    try:
        record = directory.read(PROGRESS_FILE)
        if record is None:
            return None
        *lines, _ = record.split(b"\n")
        plan, *entries = (unseal_contents(line, path, _FORMAT, hint) for line in lines)
        shards = tuple(parse_shard(entry["shard"]) for entry in entries if entry != _SOURCE_CHANGED)
        return Progress(Plan(**plan["plan"]), shards, _SOURCE_CHANGED in entries)
    except DatasetMismatchError:
        return None
    except DatasetCorruptError:
        raise
    except NotRegularFileError as error:
        raise DatasetCorruptError(f"{path} is not a regular file", hint=hint) from error
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error}", hint=hint) from error


def start_progress(directory: Path, progress: Progress) -> None:
    """Writes a progress record atomically, with its plan and the shards that are finished."""
    lines = [_encode_line({"plan": describe_plan(progress.plan)}), *map(_encode_shard_line, progress.shards)]
    lines += [_encode_line(_SOURCE_CHANGED)] * progress.source_changed
    write_atomically(directory / PROGRESS_FILE, lambda file: file.writelines(lines))


def record_source_change(directory: Directory, staging: Path) -> None:
    """Records in a progress record with finished shards that the source changed while it was read.

    Args:
        directory: directory of the record.
        staging: local directory from which the record is published.
    """
    progress = _read_progress(directory)
    if progress is not None and progress.shards:
        start_progress(staging, replace(progress, source_changed=True))
        directory.put(staging / PROGRESS_FILE, keep=True)


def add_progress(directory: Path, shard: Shard) -> None:
    """Appends a finished shard to the progress record.

    Appends one line instead of writing the record again, so that the cost per shard is constant.
    """
    path = directory / PROGRESS_FILE
    with add_path_to_errors(path), path.open("ab") as file:
        file.write(_encode_shard_line(shard))
        file.flush()
        os.fsync(file.fileno())


def _get_finished_shards(progress: Progress | None, plan: Plan, directory: Directory) -> tuple[Shard, ...]:
    """Returns the shards to keep, after comparing the plans.

    Raises:
        DatasetMismatchError: the interrupted writer had another plan.
    """
    if progress is None:
        return ()
    _compare(plan, progress.plan, f"{directory} was started", _RESTART_HINT, DatasetMismatchError)
    finished = progress.shards
    if finished and finished[-1].num_items < plan.shard_size:
        # A shard below the shard size was the last one. The source may have more documents by now.
        return finished[:-1]
    return finished


def _compare_documents(job: WriteJob, shards: Sequence[Shard]) -> tuple[str | None, WriteJob]:
    """Compares the documents of a job with finished shards.

    Returns:
        A description of the first difference, or `None`, and the job with the documents that remain.
    """
    total = sum(shard.num_bytes for shard in shards)
    if not shards:
        return None, job
    unread, to_read = itertools.tee(_RepeatedError(job.batches))
    with (
        closing(map_batches(job._replace(batches=to_read), "digest")) as results,
        show_progress_bar("comparing", total, unit="bytes", enabled=job.progress and total > 0) as advance,
    ):
        documents = _DigestedDocuments(results, unread)
        for shard in shards:
            first, digest = documents.position, documents.read(shard.num_source_documents)
            if documents.position < first + shard.num_source_documents:
                return f"it now ends after {documents.position} documents", job
            if digest != shard.source_sha256:
                return f"documents {first} to {documents.position - 1} differ", job
            advance(shard.num_bytes, f"{documents.position:,} documents")
    return None, job._replace(
        batches=documents.iter_unread(), read_nbytes=documents.read_nbytes, report=documents.report
    )


class _RepeatedError:
    """Iterator that raises an error of its source again when it is advanced again.

    Workers are some batches ahead. If the source fails there, the documents that are compared are complete,
    but those that remain are not.
    """

    def __init__(self, source: Iterator[Batch]) -> None:
        self._source = source
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._error is not None:
            raise self._error
        try:
            return next(self._source)
        except StopIteration:
            raise
        except Exception as error:
            self._error = error
            raise


class _DigestedDocuments:
    """Documents of a source with their digests, read shard by shard.

    Args:
        results: batches, their digests and reports. Workers are some batches ahead.
        unread: the same batches, of which those that were read are removed.

    Attributes:
        position: number of documents that were read.
    """

    def __init__(
        self, results: Iterator[tuple[Batch, tuple[DocumentDigests, ReadingReport]]], unread: Iterator[Batch]
    ) -> None:
        self.position = self._read_nbytes = 0
        self._results = results
        self._unread = unread
        self._batch: Batch | None = None
        self._digests: DocumentDigests | None = None
        self._start = 0
        self._report = self._finished_report = ReadingReport()

    def read(self, count: int) -> str:
        """Reads documents, fewer if the source ends. Returns their digest as in `Shard.source_sha256`."""
        digest, stop = SourceHash(), self.position + count
        while self.position < stop and (self._num_left or self._read_batch()):
            assert self._digests is not None
            taken = min(self._num_left, stop - self.position)
            digest.add(self._digests.take(self._start, self._start + taken))
            self._start += taken
            self.position += taken
        return digest.pop()

    @property
    def _num_left(self) -> int:
        """Number of documents of the current batch that were not read."""
        return 0 if self._digests is None else len(self._digests.sha256) - self._start

    def _read_batch(self) -> bool:
        """Reads the next batch. Returns whether there was one."""
        result = next(self._results, None)
        if result is None:
            return False
        self._batch, (digests, report) = result
        self._finished_report, self._report = self._report, self._report.add(report)
        self._digests, self._start = digests.number(self.position), 0
        self._read_nbytes += self._batch.read_nbytes
        next(self._unread)
        return True

    @property
    def read_nbytes(self) -> int:
        """Number of bytes of files in the batches that were read completely."""
        return self._read_nbytes - (self._batch.read_nbytes if self._batch and self._num_left else 0)

    @property
    def report(self) -> ReadingReport:
        """Report on the batches that were read completely."""
        return self._finished_report if self._num_left else self._report

    def iter_unread(self) -> Iterator[Batch]:
        """Iterates over the documents that were not read, in batches."""
        if self._num_left and self._batch is not None:
            yield self._batch.skip(self._start)
        yield from self._unread


def _compare(
    plan: Plan, recorded: Plan, message: str, hint: Hint, error: type[DatasetError] = DatasetExistsError
) -> None:
    for name in Plan.__slots__:
        new_value, old_value = getattr(plan, name), getattr(recorded, name)
        if new_value != old_value:
            raise error(f"{message} with {name}={old_value!r}, not {new_value!r}", hint=hint)


def _encode_shard_line(shard: Shard) -> bytes:
    return _encode_line({"shard": describe_shard(shard)})


def _encode_line(contents: dict[str, Any]) -> bytes:
    return json.dumps(seal_contents(_FORMAT, contents)).encode("ascii") + b"\n"
