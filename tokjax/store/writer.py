"""Writing a dataset: beside its place first, then renamed to it, so that what is there is finished."""

from __future__ import annotations

import itertools
import pickle
import re
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax import protocol
from tokjax._checks import checked_int
from tokjax._directories import DirectoryKind, exclusive_place
from tokjax._files import sha256_of_file
from tokjax._progress import progress_bar
from tokjax._threads import map_in_threads, num_threads
from tokjax.errors import (
    DatasetError,
    DatasetExistsError,
    DatasetMismatchError,
    InvalidArgumentError,
    UnsupportedTokenizerError,
)
from tokjax.formats.tokjax_json import TOKENIZER_FILE, save_tokenizer
from tokjax.store.encoding import Documents, Encoded, encode_documents
from tokjax.store.feed import (
    Document,
    DocumentSource,
    SourceHash,
    batches_of,
    documents_of,
    source_record,
)
from tokjax.store.manifest import (
    MANIFEST_FILE,
    PROGRESS_FILE,
    FileRecord,
    Manifest,
    Plan,
    Progress,
    Shard,
    read_manifest,
    read_progress,
    write_manifest,
    write_progress,
)
from tokjax.store.shards import ShardWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from tokjax.store.fields import Field

DEFAULT_SHARD_SIZE = 100_000_000
_BATCH_SIZE = 1 << 21
_EXECUTOR_BATCH_SIZE = 1 << 24
DATASET = DirectoryKind(
    "dataset",
    read_manifest,
    re.compile(
        r"manifest\.json|progress\.json|tokenizer\.tokjax\.json|"
        r"shard-\d{5,}\.(tokens|text|num_tokens|byte_length|char_length|doc_id)\.npy|\..*\.partial"
    ),
    DatasetExistsError,
    lambda directory: any((directory / name).is_file() for name in (PROGRESS_FILE, MANIFEST_FILE)),
)


class WrittenDataset(NamedTuple):
    """What `write_dataset` wrote.

    Attributes:
        num_items: ids in all shards, those around documents among them; or bytes of text.
        num_documents: documents in all shards.
        num_bytes: bytes of UTF-8 that were encoded.
        num_cut: documents that were too long for the field, and cut.
        num_shards: parts of the dataset.
        path: the dataset's directory.
    """

    num_items: int
    num_documents: int
    num_bytes: int
    num_cut: int
    num_shards: int
    path: Path


def write_dataset(
    source: DocumentSource,
    field: Field,
    path: str | os.PathLike[str],
    *,
    separator: str | None = None,
    text_column: str = "text",
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
        path: where the dataset shall be.
        separator: what stands between documents in a text or a file; `None` if each is one.
        text_column: where the text of a record is.
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
    if executor is not None and not isinstance(executor, Executor):
        raise InvalidArgumentError(
            f"executor must be a concurrent.futures.Executor, not {executor!r}; for threads pass workers=N"
        )
    at_once = num_threads(None if workers is None else checked_int("workers", workers, least=1))
    plan = plan_of(field, checked_int("shard_size", shard_size, least=1))
    about = source_record(source, separator)
    documents = documents_of(source, separator, text_column)
    target = Path(path).resolve()
    if target.exists() and not overwrite:
        return _unchanged(target, plan, documents)
    with exclusive_place(target, DATASET, overwrite=overwrite) as directory:
        finished = _finished_shards(directory, plan, overwrite=overwrite)
        _skip(documents, finished, directory)
        with (
            progress_bar("packing", _size_of(about), unit="bytes", enabled=progress) as advance,
            ShardWriter(
                directory,
                field,
                plan.shard_size,
                finished,
                lambda shards: write_progress(directory, Progress(plan, shards)),
            ) as writer,
        ):
            advance(sum(shard.num_bytes for shard in finished))
            num_items = sum(shard.num_items for shard in finished)
            for batch, encoded in _encoded(field, documents, at_once, executor):
                num_bytes = writer.add(batch, encoded)
                num_items += len(encoded.data)
                advance(num_bytes, f"{num_items:,} {'bytes' if field.tokenizer is None else 'tokens'}")
        manifest = finish(directory, field, plan, about, writer.shards)
    return written(manifest, target)


def plan_of(field: Field, shard_size: int) -> Plan:
    """What decides how documents are stored."""
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


def _encoded(
    field: Field, documents: Iterator[Document], at_once: int, executor: Executor | None
) -> Iterator[tuple[Documents, Encoded]]:
    """Batches of documents with what is stored of them, in order."""
    batch_size = _BATCH_SIZE if executor is None else _EXECUTOR_BATCH_SIZE
    batches, ahead = itertools.tee(batches_of(documents, batch_size))
    encode = partial(encode_documents, field, threads=1)
    if executor is not None:
        encode = partial(_encode_elsewhere, pickle.dumps(field))
    with _clear_if_broken():
        yield from zip(batches, map_in_threads(encode, ahead, at_once, executor), strict=True)


def _encode_elsewhere(pickled_field: bytes, documents: Documents) -> Encoded:
    """Encode documents in a worker, which has the field unpickled once."""
    return encode_documents(_unpickled(pickled_field), documents, threads=1)


@lru_cache(maxsize=4)
def _unpickled(pickled_field: bytes) -> Field:
    field: Field = pickle.loads(pickled_field)
    return field


@contextmanager
def _clear_if_broken() -> Iterator[None]:
    try:
        yield
    except BrokenExecutor as error:
        raise DatasetError(
            "an encoding process died (killed, or out of memory?); what was finished is kept: call "
            "write_dataset again, with a new executor"
        ) from error


def _unchanged(target: Path, plan: Plan, documents: Iterator[Document]) -> WrittenDataset:
    """What is there, if it is what would be written."""
    try:
        manifest = read_manifest(target)
    except DatasetError as error:
        raise DatasetExistsError(f"{target} exists; to replace it, pass overwrite=True ({error})") from None
    _compare(plan, manifest.plan, f"{target} exists, and was written", "to replace it, pass overwrite=True")
    different = _first_difference(documents, manifest.shards)
    if different is None and next(documents, None) is not None:
        different = "the source now has more documents"
    if different is not None:
        raise DatasetExistsError(
            f"{target} exists, and was written from another source ({different}); to replace it, pass "
            "overwrite=True"
        )
    return written(manifest, target)


def _finished_shards(directory: Path, plan: Plan, *, overwrite: bool) -> tuple[Shard, ...]:
    """The shards that a writer that was stopped has finished; whatever else it left is deleted."""
    progress = read_progress(directory)
    if progress is None and (directory / MANIFEST_FILE).is_file():  # (it was stopped at the very end)
        manifest = read_manifest(directory)
        progress = Progress(manifest.plan, manifest.shards)
    if progress is not None and progress.plan != plan and overwrite:
        progress = None
    shards = () if progress is None else progress.shards
    if progress is not None:
        _compare(
            plan,
            progress.plan,
            f"{directory} was begun",
            "to begin anew, pass overwrite=True, or delete it",
            DatasetMismatchError,
        )
        for name, record in ((name, file) for shard in shards for name, file in shard.files.items()):
            file = directory / name
            if not file.is_file() or sha256_of_file(file) != record.sha256:
                raise DatasetMismatchError(
                    f"{file}, which a writer that was stopped had finished, was altered; delete {directory}"
                )
    kept = {PROGRESS_FILE, *(name for shard in shards for name in shard.files)} if shards else set()
    for entry in directory.iterdir():
        if entry.name not in kept:
            entry.unlink()
    return shards


def _skip(documents: Iterator[Document], finished: tuple[Shard, ...], directory: Path) -> None:
    """Read over the documents that are written already, and compare them with what was fed then."""
    different = _first_difference(documents, finished)
    if different is not None:
        raise DatasetMismatchError(
            f"{directory} was begun from another source ({different}); pass the same one, or delete it to "
            "begin anew"
        )


def _first_difference(documents: Iterator[Document], shards: tuple[Shard, ...]) -> str | None:
    """Where documents are not those of some shards; all of these are read."""
    seen = 0
    for shard in shards:
        digest, count = SourceHash(), 0
        for doc_id, text in itertools.islice(documents, shard.num_documents):
            digest.add([doc_id], [text])
            count += 1
        if count < shard.num_documents:
            return f"it now ends after {seen + count} documents"
        if digest.pop() != shard.source_sha256:
            return f"documents {seen} to {seen + count - 1} are others"
        seen += count
    return None


def _compare(
    plan: Plan, there: Plan, what: str, hint: str, error: type[DatasetError] = DatasetExistsError
) -> None:
    for name in Plan.__slots__:
        now, then = getattr(plan, name), getattr(there, name)
        if now != then:
            raise error(f"{what} with {name}={then!r}, not {now!r}; {hint}")


def finish(
    directory: Path, field: Field, plan: Plan, source: dict[str, Any] | None, shards: list[Shard]
) -> Manifest:
    """Write what a dataset has besides its shards, the manifest last."""
    files: dict[str, FileRecord] = {}
    saved: Path | None = None
    if field.tokenizer is not None:
        with suppress(UnsupportedTokenizerError):  # a type of another's: its fingerprint has to do
            saved = save_tokenizer(field.tokenizer, directory / TOKENIZER_FILE)
            files[saved.name] = FileRecord(saved.stat().st_size, sha256_of_file(saved))
    manifest = Manifest(plan, None if saved is None else saved.name, source, tuple(shards), files)
    write_manifest(directory, manifest)
    (directory / PROGRESS_FILE).unlink(missing_ok=True)
    return manifest


def written(manifest: Manifest, path: Path) -> WrittenDataset:
    """The counts of a dataset."""
    return WrittenDataset(
        manifest.num_items,
        manifest.num_documents,
        manifest.num_bytes,
        manifest.num_cut,
        len(manifest.shards),
        path,
    )


def _size_of(source: dict[str, Any] | None) -> int | None:
    return None if source is None else sum(nbytes for _, nbytes in source["files"])
