"""Writing of dataset directories: `write_dataset`, on local file systems and at URLs.

A dataset is written to `NAME.incomplete`, its manifest last, and then renamed to `NAME`. A directory `NAME`
is therefore always complete.

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
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.atomic_files import (
    NotRegularFileError,
    add_path_to_errors,
    clear_incomplete_directory,
    compute_file_sha256,
    finish_replacement,
    open_atomic_directory,
    resolve,
    write_atomically,
)
from tokjax._util.checks import check_int
from tokjax._util.display import show_progress_bar
from tokjax._util.executors import check_executor
from tokjax._util.threads import resolve_num_threads
from tokjax._util.urls import is_url
from tokjax.core import protocol
from tokjax.corpus.files import SourceFile, TextFiles, get_source_files
from tokjax.datasets.columns import describe_columns
from tokjax.datasets.dataset_files import DatasetFiles
from tokjax.datasets.directories import DATASET, LocalDirectory, RemoteDirectory
from tokjax.datasets.document_sources import (
    DEFAULT_COLUMN,
    DocumentSource,
    SourceHash,
    describe_source,
    iter_batches,
    make_document_reader,
    resolve_files,
)
from tokjax.datasets.fields.registry import Field, check_registered
from tokjax.datasets.manifest import (
    MANIFEST_FILE,
    PROGRESS_FILE,
    FileRecord,
    Manifest,
    Plan,
    Shard,
    describe_plan,
    describe_shard,
    parse_shard,
    read_manifest,
    seal_contents,
    unseal_contents,
    write_manifest,
)
from tokjax.datasets.shard_writing import (
    SourceChangedError,
    WriteJob,
    get_batch_size,
    map_batches,
    report_missing_files,
    report_source_changes,
    write_shards,
)
from tokjax.errors import (
    DatasetCorruptError,
    DatasetError,
    DatasetExistsError,
    DatasetMismatchError,
    Hint,
    InvalidArgumentError,
    UnsupportedTokenizerError,
    make_overwrite_hint,
)
from tokjax.formats.tokjax_json import TOKENIZER_FILE, save_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from tokjax.datasets.directories import Directory
    from tokjax.datasets.document_sources import Batch

DEFAULT_SHARD_SIZE = 30_000_000
"""Number of ids per shard. Not larger, because nothing is encoded while the last shard is written."""
_FORMAT = "tokjax-dataset-progress-2"
"""Value of the field `format` in each line of the record. Version 1 had other digests of documents."""
_SOURCE_CHANGED = {"source": "changed"}
"""Last line of the record of a writer that stopped because its source changed."""
_RESTART_HINT = make_overwrite_hint("start over", ", or delete it")
"""Hint of errors about an interrupted writer that can't be resumed."""


class WrittenDataset(NamedTuple):
    """Counts of a dataset that was written.

    Attributes:
        num_items: number of ids in all shards, including special tokens around documents; of raw text, number
            of bytes.
        num_documents: number of documents.
        num_bytes: number of UTF-8 bytes of the documents before encoding.
        num_cut: number of documents that were truncated because they were too long for the field.
        num_shards: number of shards.
        path: directory of the dataset, or its URL.
        num_dropped: number of documents that the field left out, because no token of them counts in the loss
            (`ChatField` and `PreferenceField`). The other counts do not include them. It is
            `num_dropped_documents` of the manifest.
        num_skipped: number of bad records that were skipped.
    """

    num_items: int
    num_documents: int
    num_bytes: int
    num_cut: int
    num_shards: int
    path: Path | str
    num_dropped: int = 0
    num_skipped: int = 0


def write_dataset(
    source: DocumentSource,
    field: Field,
    path: str | os.PathLike[str],
    *,
    separator: str | None = None,
    text_column: str = DEFAULT_COLUMN,
    shard_size: int = DEFAULT_SHARD_SIZE,
    skip_bad_records: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> WrittenDataset:
    """Encodes documents and writes them as a dataset directory.

    The write is atomic: the directory is named `PATH.incomplete` until it is complete. If the writer is
    interrupted or killed, the next call with the same arguments continues after the last finished shard, and
    produces the same bytes. It reads the source again up to that point, and compares it with the documents
    that were written. A finished dataset is left unchanged if the arguments and the source are the same.

    The bytes do not depend on the number of workers. Memory is bounded by two shards and some batches.

    Args:
        source: files, as for `read_documents`; an iterable of texts, of records, or of `(doc_id, text)` or
            `(doc_id, record)` pairs with ids from 0 to 2**64 - 1; or a table (a `datasets.Dataset`, a
            `ray.data.Dataset`, a table, a dataset or a stream of record batches of pyarrow, a data frame) or
            an iterable of tables, whose rows are records.
            A record has a text or ids, and the values of side columns of the field. All files but plain text,
            CSV and TSV have values of side columns.
        field: field that determines the stored form of documents.
        path: directory to write, or its URL (with the extra `tokjax[remote]`).
        separator: string between documents in a text or a file; `None` if each is one document. If some of
            the files are plain text, it splits only these, and each record of the others is one document.
        text_column: key or column of a record that holds its text, or its ids as a list of integers. It also
            applies to files of records, unless they are passed as `text_files(paths, field=...)`.
        shard_size: number of ids (of `RawTextField`: bytes) at which a shard is closed. The document that
            reaches it is the last of its shard.
        skip_bad_records: whether to skip records that are no documents: lines that are not JSON objects, rows
            and samples that are damaged, and records without a text or with an invalid value of a column.
            They are counted as `num_skipped` in the result and in the manifest, and the errors of the first
            ones are logged. By default, the first one raises its error.
        workers: number of batches of documents that are encoded at the same time; `None` for the number of
            cores.
        executor: executor that encodes batches; `None` for threads of this process, and for worker processes
            if the corpus is large. Its workers read the files of the source, under the same absolute paths.
            They receive texts only of files that have to be read from the start, such as compressed ones.
        overwrite: whether to replace an existing dataset.
        progress: whether to show a progress bar on standard error.

    Returns:
        The counts of the dataset, and its path.

    Raises:
        DatasetExistsError: `path` holds another dataset and `overwrite` is not set, or holds other files, or
            another process is writing it.
        DatasetMismatchError: an interrupted writer had other arguments or another source.
        DisallowedSpecialTokenError: a document holds a special token that the field disallows.
        InvalidArgumentError: an argument or a document is invalid.
        SourceError: a file of the source is damaged, changed while it was read, or has a bad record; or all
            records are bad.
    """
    check_executor(executor)
    max_in_flight = resolve_num_threads(workers, "workers")
    plan = make_plan(field, check_int("shard_size", shard_size, minimum=1))
    if separator is not None and not (isinstance(separator, str) and separator):
        raise InvalidArgumentError(
            f"separator must be a non-empty str, or None if each text is one document; got {separator!r}"
        )
    with report_missing_files():
        source = resolve_files(source, text_column, skip_bad_records=skip_bad_records)
        files = _get_files(source)
        source_entry = describe_source(source, files, separator)
        reader = make_document_reader(
            source, field, text_column, separator, skip_bad_records=skip_bad_records
        )
    in_memory = executor is not None and isinstance(source, TextFiles) and bool(source.fetched)
    read = partial(iter_batches, source, reader, get_batch_size(executor), in_memory=in_memory)
    check = partial(_check_unchanged, source, files)
    restart = None if isinstance(source, Iterator) else read  # (an iterator can't be read twice)
    job = WriteJob(
        field, plan, reader, read(), restart, source_entry, max_in_flight, executor, progress, check
    )
    directory: Directory = RemoteDirectory(str(path)) if is_url(path) else LocalDirectory(resolve(path))
    if not overwrite and directory.exists():
        with report_source_changes(job):
            manifest = _load_manifest_if_unchanged(directory, job)
        if isinstance(directory, LocalDirectory):  # (at a URL, it would read all files)
            _check_checksums(directory.location, manifest)
    else:
        with directory.open_writer(overwrite=overwrite) as (unfinished, staging):
            manifest = _write(unfinished, staging, job, overwrite=overwrite)
    return summarize_dataset(manifest, directory.location)


def _write(directory: Directory, staging: Path, job: WriteJob, *, overwrite: bool) -> Manifest:
    """Writes the remaining files of a dataset, each of which is published when it is finished.

    Args:
        directory: directory, with the files of an interrupted writer.
        staging: local directory to work in.
        job: write job with all documents.
        overwrite: whether to start over if an interrupted writer can't be resumed.
    """

    def publish(shard: Shard) -> None:
        for name in shard.files:
            directory.put(staging / name)
        _add_progress(staging, shard)
        directory.put(staging / PROGRESS_FILE, keep=True)

    with report_source_changes(job, partial(_record_source_change, directory, staging)):
        job, finished = _resume(job, directory, overwrite=overwrite)
        _start_progress(staging, _Progress(job.plan, finished))
        directory.put(staging / PROGRESS_FILE, keep=True)  # before files that it listed are deleted
        kept = {PROGRESS_FILE, *(name for shard in finished for name in shard.files)}
        for name in set(filter(DATASET.own_files.fullmatch, directory.names())) - kept:
            directory.remove(name)
        shards, report = write_shards(job, staging, finished, publish)
        manifest = finish_dataset(staging, job.field, job.plan, job.source, shards, report.num_skipped)
        for name in (*manifest.files, MANIFEST_FILE):
            directory.put(staging / name)
        directory.remove(PROGRESS_FILE)
    return manifest


def _check_checksums(directory: Path, manifest: Manifest) -> None:
    """Raises `DatasetExistsError` if a file of a dataset was altered."""
    try:
        DatasetFiles(directory, manifest).verify()
    except DatasetError as error:
        raise DatasetExistsError(
            f"{directory} is damaged: {error.message}", hint=make_overwrite_hint("write it again")
        ) from error


def make_plan(field: Field, shard_size: int) -> Plan:
    """Returns the plan of a field: everything that determines the bytes on disk except the documents.

    Raises:
        InvalidArgumentError: `field` is not an instance of a registered field.
    """
    value: object = field
    if not isinstance(value, Field):
        hint = ", an instance of it" if isinstance(field, type) else ""
        raise InvalidArgumentError(
            f"field must be a field, such as PackedTokenField(tokenizer){hint}; got {field!r:.100}"
        )
    check_registered(field)
    tokenizer = field.tokenizer
    return Plan(
        type(field).__name__,
        field.TYPE_ID,
        field.options,
        field.data_dtype.name,
        shard_size,
        None if tokenizer is None else protocol.vocab_size(tokenizer),
        None if tokenizer is None else protocol.fingerprint(tokenizer),
        describe_columns(field.columns),
    )


def _get_files(source: DocumentSource) -> tuple[SourceFile, ...]:
    return get_source_files(source) if isinstance(source, TextFiles) else ()


def _check_unchanged(source: DocumentSource, files: tuple[SourceFile, ...]) -> None:
    """Raises `SourceError` if files have changed since they were planned, or no longer exist."""
    with report_missing_files():
        current = _get_files(source)
    for before, now in zip(files, current, strict=True):
        if before != now:
            sizes = f"{before.nbytes:,} bytes before, {now.nbytes:,} now"
            difference = "another time of modification" if before.nbytes == now.nbytes else sizes
            raise SourceChangedError(
                f"{before.path}: changed while it was read ({difference}), so the result is discarded; make "
                "the same call again when it no longer changes"
            )


def finish_dataset(
    directory: Path,
    field: Field,
    plan: Plan,
    source: dict[str, Any] | None,
    shards: list[Shard],
    num_skipped: int = 0,
) -> Manifest:
    """Writes the tokenizer and then the manifest, and returns the manifest."""
    files: dict[str, FileRecord] = {}
    if field.tokenizer is not None:
        with suppress(UnsupportedTokenizerError):  # a custom type: only its fingerprint is recorded
            saved = save_tokenizer(field.tokenizer, directory / TOKENIZER_FILE)
            files[saved.name] = FileRecord(saved.stat().st_size, compute_file_sha256(saved))
    manifest = Manifest(plan, next(iter(files), None), source, tuple(shards), files, num_skipped)
    write_manifest(directory, manifest)
    return manifest


def write_once(
    target: Path,
    is_same: Callable[[Manifest], bool],
    write: Callable[[Path], Manifest],
    *,
    overwrite: bool,
) -> WrittenDataset:
    """Writes a dataset that has no progress record, unless an earlier call has finished it.

    A call that was killed after it wrote the manifest leaves a complete dataset, before or after the rename.

    Args:
        target: path of the dataset.
        is_same: function that returns whether a manifest is the one of the dataset to write.
        write: function that writes the dataset to an empty directory, and returns its manifest.
        overwrite: whether to replace another dataset, or finished shards of another interrupted writer.

    Raises:
        DatasetExistsError: there are such files, and `overwrite` is not set.
    """
    finish_replacement(target, DATASET)
    manifest = None if overwrite else _find_finished(target, is_same)
    if manifest is None:
        with open_atomic_directory(target, DATASET, overwrite=overwrite) as directory:
            manifest = _find_finished(directory, is_same)
            if manifest is None:
                clear_incomplete_directory(directory, DATASET, overwrite=overwrite)
                manifest = write(directory)
    return summarize_dataset(manifest, target)


def _find_finished(directory: Path, is_same: Callable[[Manifest], bool]) -> Manifest | None:
    """Returns the manifest of a complete dataset if it is the one to write, else `None`."""
    try:
        manifest = read_manifest(directory)
        if not is_same(manifest):
            return None
        DatasetFiles(directory, manifest).verify()
    except DatasetError:
        return None
    return manifest


def summarize_dataset(manifest: Manifest, path: Path | str) -> WrittenDataset:
    """Returns the counts of a dataset."""
    return WrittenDataset(
        manifest.num_items,
        manifest.num_documents,
        manifest.num_bytes,
        manifest.num_cut,
        len(manifest.shards),
        path,
        manifest.num_dropped_documents,
        manifest.num_skipped,
    )


@dataclass(frozen=True, slots=True)
class _Progress:
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


def _resume(job: WriteJob, directory: Directory, *, overwrite: bool) -> tuple[WriteJob, tuple[Shard, ...]]:
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
        if progress is None:
            return new_job, ()
        job = job.fix_date(progress.plan)
        message = f"{directory} was started"
        _compare_plans(job.plan, progress.plan, message, _RESTART_HINT, DatasetMismatchError)
        finished = progress.shards
        if finished and finished[-1].num_items < job.plan.shard_size:
            # A shard below the shard size was the last one. The source may have more documents by now.
            finished = finished[:-1]
        _check_files(directory, finished)
    except DatasetError:
        if not overwrite:
            raise
        return new_job, ()
    difference, remaining = _compare_documents(job, finished)
    if difference is None:
        return remaining, finished
    message = f"{directory} was started with another source ({difference}); pass the same one"
    if not (overwrite or progress.source_changed):
        raise DatasetMismatchError(message, hint=_RESTART_HINT)
    if job.restart is None:
        raise DatasetMismatchError(
            f"{message}, or one that can be read again: part of this iterator has already been consumed"
        )
    return new_job._replace(batches=job.restart()), ()


def _load_manifest_if_unchanged(directory: Directory, job: WriteJob) -> Manifest:
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
    _compare_plans(job.plan, manifest.plan, f"{directory} exists, and was written", hint)
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


def _find_progress(directory: Directory) -> _Progress | None:
    """Returns the progress of an interrupted writer, or `None`.

    A writer that was killed after it wrote the manifest has no progress record, but all of its shards are
    finished.
    """
    progress = _read_progress(directory)
    if progress is None and directory.read(MANIFEST_FILE) is not None:
        manifest = directory.manifest()
        progress = _Progress(manifest.plan, tuple(manifest.shards))
    return progress


def _read_progress(directory: Directory) -> _Progress | None:
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
        return _Progress(Plan(**plan["plan"]), shards, _SOURCE_CHANGED in entries)
    except DatasetMismatchError:
        return None
    except DatasetCorruptError:
        raise
    except NotRegularFileError as error:
        raise DatasetCorruptError(f"{path} is not a regular file", hint=hint) from error
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error}", hint=hint) from error


def _start_progress(directory: Path, progress: _Progress) -> None:
    """Writes a progress record atomically, with its plan and the shards that are finished."""
    lines = [_encode_line({"plan": describe_plan(progress.plan)}), *map(_encode_shard_line, progress.shards)]
    lines += [_encode_line(_SOURCE_CHANGED)] * progress.source_changed
    write_atomically(directory / PROGRESS_FILE, lambda file: file.writelines(lines))


def _record_source_change(directory: Directory, staging: Path) -> None:
    """Records in a progress record with finished shards that the source changed while it was read.

    Args:
        directory: directory of the record.
        staging: local directory from which the record is published.
    """
    progress = _read_progress(directory)
    if progress is not None and progress.shards:
        _start_progress(staging, replace(progress, source_changed=True))
        directory.put(staging / PROGRESS_FILE, keep=True)


def _add_progress(directory: Path, shard: Shard) -> None:
    """Appends a finished shard to the progress record.

    Appends one line instead of writing the record again, so that the cost per shard is constant.
    """
    path = directory / PROGRESS_FILE
    with add_path_to_errors(path), path.open("ab") as file:
        file.write(_encode_shard_line(shard))
        file.flush()
        os.fsync(file.fileno())


def _compare_documents(job: WriteJob, shards: Sequence[Shard]) -> tuple[str | None, WriteJob]:
    """Compares the documents of a job with finished shards.

    Workers are some batches ahead. The batches that were compared are removed from a copy of the iterator:

        shards       0 0 0 1 1 1 1 1
        batches      a a b b b c c c c d        c has documents of shard 1, and one that remains
        copy                   c c c c d        remaining: the last document of c, and d

    Returns:
        A description of the first difference, or `None`, and the job with the documents that remain.
    """
    if not shards:
        return None, job
    total = sum(shard.num_bytes for shard in shards)
    to_read, unread = (map(_raise_error, batches) for batches in itertools.tee(_catch_error(job.batches)))
    with (
        closing(map_batches(job._replace(batches=to_read), "digest")) as results,
        show_progress_bar("comparing", total, unit="bytes", enabled=job.progress and total > 0) as advance,
    ):
        position = start = stop = 0  # documents that were compared, and bounds of the current batch
        complete = job
        for shard in shards:
            first, end, digest = position, position + shard.num_source_documents, SourceHash()
            while position < end:
                if position == stop:
                    result = next(results, None)
                    if result is None:
                        return f"it now ends after {position} documents", job
                    batch, (digests, report) = result
                    digests, start, stop = digests.number(position), position, position + len(digests.sha256)
                    before, complete = complete, complete.remove(next(unread), report)
                taken = min(stop, end)
                digest.add(digests.take(position - start, taken - start))
                position = taken
            if digest.pop() != shard.source_sha256:
                return f"documents {first} to {position - 1} differ", job
            advance(shard.num_bytes, f"{position:,} documents")
    if position == stop:
        return None, complete._replace(batches=unread)
    return None, before._replace(batches=itertools.chain([batch.skip(position - start)], unread))


def _catch_error(source: Iterator[Batch]) -> Iterator[Batch | Exception]:
    """Yields the items of a source, and its error.

    Workers are some batches ahead. If the source fails there, the documents that are compared are complete,
    but those that remain are not. So both iterators must raise the error.
    """
    try:
        yield from source
    except Exception as error:
        yield error


def _raise_error(item: Batch | Exception) -> Batch:
    if isinstance(item, Exception):
        raise item
    return item


def _compare_plans(
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
