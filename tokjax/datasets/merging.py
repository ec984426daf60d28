"""Datasets joined to one, and datasets made again."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.directories import (
    clear_incomplete_directory,
    finish_replacement,
    open_atomic_directory,
    resolve,
)
from tokjax._util.files import NotRegularFileError, open_regular, write_atomically
from tokjax._util.urls import reject_urls
from tokjax.corpus.files import text_files
from tokjax.datasets.fields import get_unsigned_dtype, make_field
from tokjax.datasets.manifest import Manifest, Plan, write_manifest
from tokjax.datasets.manifest_validation import read_manifest
from tokjax.datasets.opening import open_dataset
from tokjax.datasets.shards import write_array
from tokjax.datasets.writer import DATASET, WrittenDataset, summarize_dataset, write_dataset
from tokjax.errors import (
    DatasetCorruptError,
    DatasetIncompleteError,
    DatasetMismatchError,
    Hint,
    InvalidArgumentError,
)
from tokjax.formats.tokjax_json import read_tokjax

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from tokjax.datasets.manifest import FileRecord, Shard


_SHOWN_FILES = 5
_WRITE_AGAIN = Hint(
    "write_dataset(SOURCE, FIELD, PATH, overwrite=True)", "tokjax pack FILES --out PATH --overwrite"
)
_COPY_SIZE = 1 << 20


def merge_datasets(
    paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], *, overwrite: bool = False
) -> WrittenDataset:
    """Join datasets of one field and one tokenizer, one after the other. Their files are copied and checked.

    Where all documents of a dataset are numbered by the running count, they are numbered so in the whole; ids
    of their own stay as they are. So where both are joined, or ids of several sources, an id may stand for
    several documents; nothing looks for that.

    Args:
        paths: the datasets' directories.
        out: where the whole shall be.
        overwrite: replace a dataset that is there already.

    Raises:
        DatasetCorruptError: a file was altered.
        DatasetExistsError: `out` exists, or holds what a writer that was stopped had finished, and
            `overwrite` is not set.
        DatasetMismatchError: they were written with different fields, options or tokenizers.
    """
    if isinstance(paths, (str, bytes)) or len(paths) == 0:
        raise InvalidArgumentError(f"paths is a list of directories, not {paths!r}")
    reject_urls(out, *paths)
    parts = [open_dataset(path) for path in paths]
    first: Manifest = parts[0].manifest
    for part in parts[1:]:
        _check_alike(parts[0].path, first.plan, part.path, part.manifest.plan)
    target = resolve(out)
    with open_atomic_directory(target, DATASET, overwrite=overwrite) as directory:
        clear_incomplete_directory(directory, DATASET, overwrite=overwrite)
        shards: list[Shard] = []
        first_document = 0
        for part in parts:
            is_numbered = all(shard.is_numbered for shard in part.manifest.shards)
            doc_ids = part.documents["doc_id"] + np.uint64(first_document * is_numbered)
            begin = 0
            for shard in part.manifest.shards:
                ids = doc_ids[begin : begin + shard.num_documents]
                running = np.arange(begin, begin + len(ids), dtype=np.uint64) + np.uint64(first_document)
                stored_ids = None if np.array_equal(ids, running) else ids
                copied = _copy_shard(part.path, shard, directory, f"shard-{len(shards):05d}", stored_ids)
                shards.append(replace(copied, is_numbered=is_numbered or stored_ids is None))
                begin += len(ids)
            first_document += len(doc_ids)
        for name, record in first.files.items():
            _copy(parts[0].path / name, directory / name, record)
        manifest = replace(first, shards=tuple(shards), source=None)
        write_manifest(directory, manifest)
    return summarize_dataset(manifest, target)


def rebuild_dataset(
    path: str | os.PathLike[str],
    tokenizer: Any = None,
    *,
    trust_source: bool = False,
    progress: bool = False,
) -> WrittenDataset:
    """Writes a dataset again from the files that it was made from, when they or the tokenizer have changed.

    The former dataset stays until the new one is finished.

    The manifest names the files. A manifest from somebody else can name any file that this process can read,
    and any URL, so they are read only with `trust_source=True`; without it, the error lists them.

    Args:
        path: the dataset's directory.
        tokenizer: what to encode with; `None` for the one that it was made with.
        trust_source: read the files that the manifest names.
        progress: show a bar on standard error.

    Raises:
        DatasetIncompleteError: it was not made from files.
        InvalidArgumentError: `trust_source` is not set, or a file does not exist any more.
    """
    reject_urls(path)
    directory = resolve(path)
    finish_replacement(directory, DATASET)
    manifest = read_manifest(directory)  # (it may be damaged otherwise: that is a reason to rebuild it)
    plan, source = manifest.plan, manifest.source
    if source is None or "files" not in source:
        raise DatasetIncompleteError(
            f"{directory} was not made from files, so what it was made from is not known",
            hint=Hint(f"call {_WRITE_AGAIN.python}", f"run {_WRITE_AGAIN.shell}"),
        )
    names = [name for name, _ in source["files"]]
    if not trust_source:
        more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
        raise InvalidArgumentError(
            f"{directory} would be rebuilt from the files that its manifest names: "
            f"{', '.join(map(repr, names[:_SHOWN_FILES]))}{more}",
            hint=Hint(
                f"to read them, pass trust_source=True, and for other files call {_WRITE_AGAIN.python}",
                f"to read them, pass --trust-source, and for other files run {_WRITE_AGAIN.shell}",
            ),
        )
    chosen = tokenizer
    if tokenizer is None and manifest.tokenizer_file is not None:
        chosen = read_tokjax(directory / manifest.tokenizer_file)
    try:
        files = text_files(names, field=source["field"], format=source["format"])
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"{directory} was made from files that are not where they were: {error.message}",
            hint=Hint(
                f"put them back, or call {_WRITE_AGAIN.python}", f"put them back, or run {_WRITE_AGAIN.shell}"
            ),
        ) from error
    return write_dataset(
        files,
        make_field(plan.type_id, plan.options, chosen),
        directory,
        separator=source["separator"],
        shard_size=plan.shard_size,
        overwrite=True,
        progress=progress,
    )


def _check_alike(first: Path, plan: Plan, other: Path, other_plan: Plan) -> None:
    for name in Plan.__slots__:
        one, two = getattr(plan, name), getattr(other_plan, name)
        if name != "shard_size" and one != two:
            raise DatasetMismatchError(
                f"{first} was written with {name}={one!r}, {other} with {two!r}; only datasets of one kind "
                "can be merged"
            )


def _copy_shard(
    source: Path, shard: Shard, directory: Path, name: str, doc_ids: NDArray[np.uint64] | None
) -> Shard:
    """A shard under another name, with these ids of documents; `None` for the running count."""
    files = {}
    for file, record in shard.files.items():
        renamed = name + file.removeprefix(shard.name)
        if not renamed.endswith(".doc_id.npy"):
            _copy(source / file, directory / renamed, record)
            files[renamed] = record
    if doc_ids is not None:
        renamed = f"{name}.doc_id.npy"
        stored = doc_ids.astype(get_unsigned_dtype(int(doc_ids.max(initial=0))))
        files[renamed] = write_array(directory / renamed, [stored], stored.dtype)
    return replace(shard, name=name, files=files)


def _copy(source: Path, target: Path, record: FileRecord) -> None:
    """Copies a file, and compares what was copied with its checksum; the copy appears when it is right."""

    def write(file: BinaryIO) -> None:
        digest = hashlib.sha256()
        with open_regular(source) as original:
            while block := original.read(_COPY_SIZE):
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != record.sha256:
            raise DatasetCorruptError(
                f"{source} was altered: its SHA-256 is {digest.hexdigest()}, the manifest says "
                f"{record.sha256}; write the dataset again"
            )

    try:
        write_atomically(target, write)
    except (FileNotFoundError, NotRegularFileError) as error:
        raise DatasetCorruptError(f"{source} can't be read: {error.strerror}") from error
