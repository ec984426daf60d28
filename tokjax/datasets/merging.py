"""Merging of datasets."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.atomic_files import finish_replacement, resolve
from tokjax._util.urls import reject_urls
from tokjax.datasets.dataset_types import open_dataset
from tokjax.datasets.directories import DATASET
from tokjax.datasets.fields.base import get_unsigned_dtype
from tokjax.datasets.manifest import Manifest, Plan, write_manifest
from tokjax.datasets.shard_writing import write_array
from tokjax.datasets.writer import WrittenDataset, write_once
from tokjax.errors import (
    DatasetMismatchError,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_files import DatasetFiles
    from tokjax.datasets.manifest import Shard


_DOC_IDS = ".doc_id.npy"
"""End of the name of the file with the ids of the documents of a shard."""


def merge_datasets(
    paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], *, overwrite: bool = False
) -> WrittenDataset:
    """Concatenates datasets with the same field and tokenizer. Files are copied and verified.

    If the document ids of a dataset are the count 0, 1, 2, ..., its documents are renumbered to continue the
    count in the merged dataset. Custom ids are kept. An id can therefore occur several times in the result,
    if the ids of several sources overlap, or if datasets with custom ids and without are merged. This is not
    checked.

        first:  ids 0 1 2    second:  ids 0 1      merged:  ids 0 1 2 3 4
        first:  ids 0 1 2    second:  ids 7 1      merged:  ids 0 1 2 7 1

    Args:
        paths: directories of the datasets, in the order of concatenation.
        out: path of the merged dataset.
        overwrite: whether to replace an existing dataset at `out`.

    Returns:
        The counts of the merged dataset, and its path.

    Raises:
        DatasetCorruptError: a file was altered.
        DatasetExistsError: `out` holds another dataset, or finished shards of another interrupted writer, and
            `overwrite` is not set. The same dataset is left unchanged.
        DatasetMismatchError: the datasets were written with different fields, options or tokenizers.
        InvalidArgumentError: `paths` is empty, or not a list.
    """
    is_list = isinstance(paths, (list, tuple)) and len(paths) > 0
    if not is_list or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise InvalidArgumentError(f"paths must be a list of the paths of datasets, not {paths!r:.200}")
    reject_urls(out, *paths)
    target = resolve(out)
    finish_replacement(target, DATASET)
    datasets = [open_dataset(path) for path in paths]
    first: Manifest = datasets[0].manifest
    for dataset in datasets[1:]:
        _check_alike(datasets[0].path, first.plan, dataset.path, dataset.manifest.plan)
    copies = list(_plan_copies(datasets))
    num_skipped = sum(dataset.manifest.num_skipped for dataset in datasets)
    shards = tuple(copy.shard for copy in copies)
    manifest = replace(first, shards=shards, source=None, num_skipped=num_skipped)
    return write_once(
        target,
        lambda other: other.fingerprint == manifest.fingerprint,
        partial(_write_copies, datasets[0]._files, manifest, copies),
        overwrite=overwrite,
    )


class _ShardCopy(NamedTuple):
    """Shard of a merged dataset.

    Attributes:
        origin: files of the dataset that it is copied from.
        source: its description there.
        shard: its description in the merged dataset.
        doc_ids: ids of its documents as they are stored, shape `(num_documents,)`; `None` if they continue
            the count, in which case no file is written for them.
    """

    origin: DatasetFiles
    source: Shard
    shard: Shard
    doc_ids: NDArray[Any] | None


def _plan_copies(datasets: Sequence[Any]) -> Iterator[_ShardCopy]:
    """Yields the shards of a merged dataset, with the checksums that their files will have."""
    index = first_document = num_read = 0
    for dataset in datasets:
        is_numbered = all(shard.is_numbered for shard in dataset.manifest.shards)
        doc_ids = dataset.documents["doc_id"] + np.uint64(num_read * is_numbered)
        start = 0
        for shard in dataset.manifest.shards:
            name = f"shard-{index:05d}"
            files = {
                name + file.removeprefix(shard.name): record
                for file, record in shard.files.items()
                if not file.endswith(_DOC_IDS)
            }
            ids = doc_ids[start : start + shard.num_documents]
            default_ids = np.arange(start, start + len(ids), dtype=np.uint64) + np.uint64(first_document)
            stored = None
            if not np.array_equal(ids, default_ids):
                stored = ids.astype(get_unsigned_dtype(int(ids.max(initial=0))))
                files[name + _DOC_IDS] = write_array(None, [stored], stored.dtype)
            copied = shard._replace(name=name, files=files, is_numbered=is_numbered or stored is None)
            yield _ShardCopy(dataset._files, shard, copied, stored)
            start += len(ids)
            index += 1
        first_document += len(doc_ids)
        num_read += sum(shard.num_source_documents for shard in dataset.manifest.shards)


def _write_copies(
    first: DatasetFiles, manifest: Manifest, copies: Sequence[_ShardCopy], directory: Path
) -> Manifest:
    """Writes a merged dataset, with the tokenizer of the first one, and returns its manifest."""
    for copy in copies:
        name = copy.shard.name
        if copy.doc_ids is not None:
            write_array(directory / (name + _DOC_IDS), [copy.doc_ids], copy.doc_ids.dtype)
        for file, record in copy.source.files.items():
            if not file.endswith(_DOC_IDS):
                target = directory / (name + file.removeprefix(copy.source.name))
                copy.origin.copy(file, record, target)
    for name, record in manifest.files.items():
        first.copy(name, record, directory / name)
    write_manifest(directory, manifest)
    return manifest


def _check_alike(first: Path, plan: Plan, other: Path, other_plan: Plan) -> None:
    for name in Plan.__slots__:
        first_value, other_value = getattr(plan, name), getattr(other_plan, name)
        if name != "shard_size" and first_value != other_value:
            raise DatasetMismatchError(
                f"{first} was written with {name}={first_value!r}, {other} with {other_value!r}; only "
                "datasets with the same field, options and tokenizer can be merged"
            )
