"""Writing a dataset: beside its place first, then renamed to it, so that what is there is finished."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.checks import check_int
from tokjax._util.directories import DirectoryKind, delete, finish_replacement, open_atomic_directory, resolve
from tokjax._util.files import compute_file_sha256
from tokjax._util.threads import check_executor, resolve_num_threads
from tokjax._util.urls import is_url
from tokjax.core import protocol
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.document_sources import (
    DEFAULT_COLUMN,
    Document,
    DocumentSource,
    describe_source,
    iter_documents,
    resolve_files,
)
from tokjax.datasets.fields import Field, check_registered
from tokjax.datasets.manifest import (
    MANIFEST_FILE,
    FileRecord,
    Manifest,
    Plan,
    Shard,
    write_manifest,
)
from tokjax.datasets.manifest_validation import read_manifest
from tokjax.datasets.remote import RemoteDirectory
from tokjax.datasets.resuming import (
    PROGRESS_FILE,
    Progress,
    add_progress,
    check_files,
    check_unchanged,
    find_progress,
    has_progress,
    read_progress,
    resume,
    start_progress,
)
from tokjax.datasets.shard_writing import WriteJob, write_shards
from tokjax.errors import (
    DatasetError,
    DatasetExistsError,
    DatasetMismatchError,
    InvalidArgumentError,
    UnsupportedTokenizerError,
    make_overwrite_hint,
)
from tokjax.formats.tokjax_json import TOKENIZER_FILE, save_tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from concurrent.futures import Executor

DEFAULT_SHARD_SIZE = 30_000_000
"""The last shard is written when nothing is left to encode meanwhile: so it should not be large."""
DATASET = DirectoryKind(
    "dataset",
    read_manifest,
    re.compile(
        r"manifest\.json|progress\.jsonl|tokenizer\.tokjax\.json|"
        r"shard-\d{5,}\.(tokens|text|num_tokens|byte_length|char_length|doc_id)\.npy|\..*\.partial"
    ),
    DatasetExistsError,
    lambda directory: has_progress(directory) or (directory / MANIFEST_FILE).is_file(),
    lambda directory: any(directory.glob("shard-*.npy")),
)


class WrittenDataset(NamedTuple):
    """What `write_dataset` wrote.

    Attributes:
        num_items: ids in all shards, those around documents among them; or bytes of text.
        num_documents: documents in all shards.
        num_bytes: bytes of UTF-8 that were encoded.
        num_cut: documents that were too long for the field, and cut.
        num_shards: parts of the dataset.
        path: the dataset's directory, or its URL.
    """

    num_items: int
    num_documents: int
    num_bytes: int
    num_cut: int
    num_shards: int
    path: Path | str


def write_dataset(
    source: DocumentSource,
    field: Field,
    path: str | os.PathLike[str],
    *,
    separator: str | None = None,
    text_column: str = DEFAULT_COLUMN,
    shard_size: int = DEFAULT_SHARD_SIZE,
    workers: int | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> WrittenDataset:
    """Encode documents and write them as a dataset directory.

    The directory appears at `path` when it is finished, not before: until then it is `PATH.incomplete`. If
    the writer is stopped, even killed, the next call with the same arguments goes on behind the last shard
    that was finished, and ends with the same bytes; it reads the source again to there, and compares it with
    what was fed. A dataset that is finished stays as it is if the arguments and the source are the same.

    The bytes are the same for any number of workers. Memory is bounded by two shards and some batches.

    Args:
        source: files, as `read_documents` takes them; or an iterable of texts, of pairs of a document id (an
            integer from 0) and a text, or of records (for instance a `datasets.Dataset`).
        field: what to store.
        path: where the dataset shall be: a directory, or a URL (with the extra `tokjax[remote]`).
        separator: what stands between documents in a text or a file; `None` if each is one.
        text_column: where the text of a record is, also in files of records that are not given by
            `text_files(paths, field=...)`.
        shard_size: a shard is closed by the document that fills it to so many ids (of `RawTextField`: bytes).
        workers: how many batches of documents are encoded at a time; `None` for as many as there are
            processors.
        executor: where they are encoded; `None` for threads of this process.
        overwrite: replace a dataset that is there already.
        progress: show a bar on standard error.

    Returns:
        The counts.

    Raises:
        DatasetExistsError: `path` holds another dataset and `overwrite` is not set, or holds anything but a
            dataset, or another process is writing it.
        DatasetMismatchError: a writer that was stopped had other arguments, or another source.
        DisallowedSpecialTokenError: a document holds a special token that the field disallows.
        InvalidArgumentError: an argument or a document makes no sense.
        SourceError: a file of the source is damaged.
    """
    check_executor(executor)
    max_in_flight = resolve_num_threads(None if workers is None else check_int("workers", workers, minimum=1))
    plan = make_plan(field, check_int("shard_size", shard_size, minimum=1))
    if separator is not None and not (isinstance(separator, str) and separator):
        raise InvalidArgumentError(
            f"separator must be a text, or None if each text is one document; got {separator!r}"
        )
    source = resolve_files(source, text_column)
    about = describe_source(source, separator)
    read = partial(iter_documents, source, separator, text_column)
    job = WriteJob(field, plan, read(), about, max_in_flight, executor, progress)
    restart = None if isinstance(source, Iterator) else read  # (which can't be read again)
    if is_url(path):
        return _write_remotely(RemoteDirectory(str(path)), job, restart, overwrite=overwrite)
    target = resolve(path)
    finish_replacement(target, DATASET)
    if target.exists() and not overwrite:
        manifest = check_unchanged(lambda: read_manifest(target), job, target)
        try:
            Dataset(target, manifest).verify()
        except DatasetError as error:
            raise DatasetExistsError(
                f"{target} is damaged: {error.message}", hint=make_overwrite_hint("write it again")
            ) from error
        return summarize_dataset(manifest, target)
    with open_atomic_directory(target, DATASET, overwrite=overwrite) as directory:
        existing = partial(find_progress, directory)
        check = partial(check_files, directory)
        job, finished = resume(job, existing, check, directory, restart, overwrite=overwrite)
        _delete_others(directory, finished)
        start_progress(directory, Progress(plan, finished))
        shards = write_shards(job, directory, finished, partial(add_progress, directory))
        manifest = finish_dataset(directory, field, plan, about, shards)
    return summarize_dataset(manifest, target)


def _write_remotely(
    remote: RemoteDirectory,
    job: WriteJob,
    restart: Callable[[], Iterator[Document]] | None,
    *,
    overwrite: bool,
) -> WrittenDataset:
    """The same at a URL: each file is put there when it is finished, the manifest last.

    There is no place beside it: with `overwrite` a former dataset is deleted first.
    """
    with remote.lock_writers(), tempfile.TemporaryDirectory(prefix="tokjax-") as staging:
        directory = Path(staging)
        if remote.read(MANIFEST_FILE) is not None:
            if not overwrite:
                return summarize_dataset(check_unchanged(remote.manifest, job, remote), remote.url)
            for name in (MANIFEST_FILE, *filter(DATASET.own_files.fullmatch, remote.names())):
                remote.remove(name)
        begun = remote.read(PROGRESS_FILE)
        if begun is not None:
            (directory / PROGRESS_FILE).write_bytes(begun)
        existing = partial(read_progress, directory, remote)
        check = partial(_check_remote_files, remote)
        job, finished = resume(job, existing, check, remote, restart, overwrite=overwrite)

        def publish(shard: Shard) -> None:
            for name in shard.files:
                remote.put(directory / name)
                (directory / name).unlink()
            add_progress(directory, shard)
            remote.put(directory / PROGRESS_FILE)

        start_progress(directory, Progress(job.plan, finished))
        _delete_other_remote_files(remote, finished, directory / PROGRESS_FILE)
        shards = write_shards(job, directory, finished, publish)
        manifest = finish_dataset(directory, job.field, job.plan, job.source, shards)
        for name in (*manifest.files, MANIFEST_FILE):
            remote.put(directory / name)
        remote.remove(PROGRESS_FILE)
    return summarize_dataset(manifest, remote.url)


def make_plan(field: Field, shard_size: int) -> Plan:
    """What decides how documents are stored."""
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
    )


def _check_remote_files(remote: RemoteDirectory, finished: tuple[Shard, ...]) -> None:
    for name, record in ((name, file) for shard in finished for name, file in shard.files.items()):
        if not remote.has(name, record):
            raise DatasetMismatchError(
                f"{remote}/{name}, which a writer that was stopped had finished, is not there as it was",
                hint=make_overwrite_hint("begin anew"),
            )


def _delete_others(directory: Path, finished: tuple[Shard, ...]) -> None:
    """Delete what is not of finished shards."""
    finished_files = {name for shard in finished for name in shard.files}
    for entry in directory.iterdir():
        if entry.name not in finished_files:
            delete(entry)


def _delete_other_remote_files(remote: RemoteDirectory, finished: tuple[Shard, ...], progress: Path) -> None:
    """The same at a URL: first the record is put there, so that it never names what was deleted."""
    finished_files = {PROGRESS_FILE, *(name for shard in finished for name in shard.files)}
    others = set(filter(DATASET.own_files.fullmatch, remote.names())) - finished_files
    if others:
        remote.put(progress)
    for name in others:
        remote.remove(name)


def finish_dataset(
    directory: Path, field: Field, plan: Plan, source: dict[str, Any] | None, shards: list[Shard]
) -> Manifest:
    """Write what a dataset has besides its shards, the manifest last."""
    files: dict[str, FileRecord] = {}
    saved: Path | None = None
    if field.tokenizer is not None:
        with suppress(UnsupportedTokenizerError):  # a type of another's: its fingerprint has to do
            saved = save_tokenizer(field.tokenizer, directory / TOKENIZER_FILE)
            files[saved.name] = FileRecord(saved.stat().st_size, compute_file_sha256(saved))
    manifest = Manifest(plan, None if saved is None else saved.name, source, tuple(shards), files)
    write_manifest(directory, manifest)
    (directory / PROGRESS_FILE).unlink(missing_ok=True)
    return manifest


def summarize_dataset(manifest: Manifest, path: Path | str) -> WrittenDataset:
    """The counts of a dataset."""
    return WrittenDataset(
        manifest.num_items,
        manifest.num_documents,
        manifest.num_bytes,
        manifest.num_cut,
        len(manifest.shards),
        path,
    )
