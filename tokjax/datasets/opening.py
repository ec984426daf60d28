"""One way out: the dataset that a directory holds."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tokjax._util.directories import get_incomplete_path, get_replaced_path, resolve
from tokjax._util.files import get_identity
from tokjax._util.urls import is_url
from tokjax.core import protocol
from tokjax.datasets.dataset_types import BucketedDataset, PackedDataset, RawTextDataset, TokenDataset
from tokjax.datasets.fields import (
    FIELDS,
    FIRST_CUSTOM_TYPE_ID,
    BucketedTokenField,
    PackedTokenField,
    RawTextField,
)
from tokjax.datasets.manifest import MANIFEST_FILE, RUN_AGAIN
from tokjax.datasets.manifest_validation import read_manifest_and_identity
from tokjax.datasets.remote import RemoteDirectory
from tokjax.errors import DatasetError, DatasetIncompleteError, DatasetMismatchError, Hint

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from tokjax._util.files import FileIdentity
    from tokjax.datasets.dataset import Dataset
    from tokjax.datasets.manifest import Manifest

_KINDS: dict[int, type[Dataset]] = {  # of all others, a `TokenDataset`
    RawTextField.TYPE_ID: RawTextDataset,
    PackedTokenField.TYPE_ID: PackedDataset,
    BucketedTokenField.TYPE_ID: BucketedDataset,
}
_ATTEMPTS = 10
"""How often a dataset is opened that other processes replace meanwhile."""
_ATTEMPT_SECONDS = 0.02


def open_dataset(
    path: str | os.PathLike[str],
    tokenizer: Any = None,
    *,
    verify_on_touch: bool = True,
    memory_map: bool = True,
    cache_bytes: int | None = None,
    download_dir: str | os.PathLike[str] | None = None,
) -> Any:
    """Open a finished dataset: a `RawTextDataset`, `TokenDataset`, `PackedDataset` or `BucketedDataset`.

    Args:
        path: the directory that `write_dataset` made, or its URL (with the extra `tokjax[remote]`): then
            files are fetched when they are first needed.
        tokenizer: if given, a dataset of ids must have been made with an equal one. One of texts is tokenized
            by it.
        verify_on_touch: compare each file with its checksum when it is first needed. (That reads all of it.
            Without, only sizes and shapes are checked, and that no other dataset was put in the place of
            this one; of a URL not even that.)
        memory_map: map the shards' data. Then a program that changes a file in place after its checksum was
            compared changes what is read, and one that cuts it short ends this process with SIGBUS. `False`
            reads each shard into memory when it is first needed, and keeps it there.
        cache_bytes: keep the sequences that were read last in memory, in so many bytes with all that it takes
            to keep them: for slow storage.
            `dataset.cache_stats` tells how often they were there.
        download_dir: where the files of a URL are kept, for this run and later ones; `None` for a temporary
            directory.

    Raises:
        DatasetIncompleteError: there is no finished dataset.
        DatasetMismatchError: another tokenizer, another version of the format, or a field that is not known.
            (One of one's own has to be known only for what asks for it, such as `dataset.field`.)
        DatasetCorruptError: a file is missing, or of another size than the manifest says.
    """
    options: dict[str, Any] = {
        "verify_on_touch": verify_on_touch,
        "memory_map": memory_map,
        "cache_bytes": cache_bytes,
    }
    if is_url(path):
        remote = RemoteDirectory(str(path), download_dir)
        return _open(remote.local, remote.manifest(), tokenizer, remote=remote, **options)
    directory = resolve(path)
    return _open_stable(directory, partial(_open, directory, tokenizer=tokenizer, **options))


def _open_stable(directory: Path, open_with: Callable[..., Dataset]) -> Dataset:
    """Opens a directory; again, if another process replaced it meanwhile."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        before = _get_identity(directory)
        try:
            if not directory.exists():
                reason, hint = _explain_missing(directory)
                raise DatasetIncompleteError(f"no dataset at {directory}: {reason}", hint=hint)
            manifest, identity = read_manifest_and_identity(directory)
            return open_with(manifest, manifest_identity=identity)
        except DatasetError:
            is_moved = before is None and get_replaced_path(directory).exists()
            if not attempts_left or not (is_moved or _get_identity(directory) != before):
                raise
            time.sleep(_ATTEMPT_SECONDS)
    raise AssertionError  # the last attempt returns or raises


def _get_identity(directory: Path) -> FileIdentity | None:
    try:
        return get_identity(directory / MANIFEST_FILE)
    except OSError:
        return None


def _open(
    directory: Path,
    manifest: Manifest,
    tokenizer: Any,
    *,
    remote: RemoteDirectory | None = None,
    **options: Any,
) -> Dataset:
    """Makes the dataset of a manifest, with the class that its field has."""
    location = str(remote or directory)
    plan = manifest.plan
    if plan.type_id not in FIELDS and plan.type_id < FIRST_CUSTOM_TYPE_ID:
        supported = ", ".join(map(str, sorted(FIELDS)))
        raise DatasetMismatchError(
            f"{location} stores {plan.field!r} (type id {plan.type_id}); this tokjax reads {supported}, and from "
            f"{FIRST_CUSTOM_TYPE_ID} on"
        )
    if tokenizer is not None and plan.tokenizer_fingerprint is not None:
        fingerprint = protocol.fingerprint(tokenizer)
        if fingerprint != plan.tokenizer_fingerprint:
            raise DatasetMismatchError(
                f"{location} was made with another tokenizer: it records fingerprint "
                f"{plan.tokenizer_fingerprint} (vocabulary of {plan.vocab_size}), the one given "
                f"has {fingerprint} (vocabulary of {protocol.vocab_size(tokenizer)})"
            )
    return _KINDS.get(plan.type_id, TokenDataset)(directory, manifest, tokenizer, remote=remote, **options)


def _explain_missing(directory: Path) -> tuple[str, Hint]:
    if get_replaced_path(directory).exists():
        former = f"{get_replaced_path(directory).name} to {directory.name} to have the former one back"
        return "its writer was killed while it replaced it", Hint(
            f"{RUN_AGAIN.python}, or rename {former}", f"{RUN_AGAIN.shell}, or rename {former}"
        )
    if get_incomplete_path(directory).exists():
        left = get_incomplete_path(directory).name
        return f"its writer did not finish (it left {left})", RUN_AGAIN
    return "nothing is there", Hint("make it with write_dataset", "make it with tokjax pack")
