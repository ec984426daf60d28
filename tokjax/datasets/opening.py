"""Opening of datasets: `open_dataset` reads a manifest and returns the matching dataset class."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, overload

from tokjax._util.atomic_files import get_identity, get_incomplete_path, get_replaced_path, resolve
from tokjax._util.checks import check_int
from tokjax._util.urls import is_url
from tokjax.core import protocol
from tokjax.datasets.dataset_files import DatasetFiles
from tokjax.datasets.dataset_types import BucketedDataset, PackedDataset, RawTextDataset, TokenDataset
from tokjax.datasets.downloads import DownloadOptions, Downloads
from tokjax.datasets.fields.conversation import ChatField
from tokjax.datasets.fields.registry import FIELDS, FIRST_CUSTOM_TYPE_ID
from tokjax.datasets.fields.text_fields import BucketedTokenField, PackedTokenField, RawTextField
from tokjax.datasets.manifest import MANIFEST_FILE, RUN_AGAIN
from tokjax.datasets.manifest_validation import read_manifest_and_identity
from tokjax.errors import (
    DatasetError,
    DatasetIncompleteError,
    DatasetMismatchError,
    Hint,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path
    from typing import Unpack

    from tokjax._util.atomic_files import FileIdentity
    from tokjax.datasets.dataset import Dataset
    from tokjax.datasets.manifest import Manifest

AnyDataset = TypeVar("AnyDataset", bound="Dataset")
_CLASSES: dict[int, type[Dataset]] = {  # other fields: TokenDataset
    RawTextField.TYPE_ID: RawTextDataset,
    PackedTokenField.TYPE_ID: PackedDataset,
    ChatField.TYPE_ID: PackedDataset,
    BucketedTokenField.TYPE_ID: BucketedDataset,
}
_ATTEMPTS = 10
"""Maximum number of attempts to open a dataset that another process replaces at the same time."""
_ATTEMPT_SECONDS = 0.02


class _Options(TypedDict, total=False):
    """Options of `open_dataset` that do not change the type of the dataset."""

    verify_on_touch: bool
    memory_map: bool
    download_dir: str | os.PathLike[str] | None
    download_bytes: int | None
    read_ranges: bool
    fetch_ahead: int


@overload
def open_dataset(
    path: str | os.PathLike[str], tokenizer: Any = None, **options: Unpack[_Options]
) -> RawTextDataset | TokenDataset: ...
@overload
def open_dataset(
    path: str | os.PathLike[str],
    tokenizer: Any = None,
    *,
    dataset_type: type[AnyDataset],
    **options: Unpack[_Options],
) -> AnyDataset: ...
def open_dataset(
    path: str | os.PathLike[str],
    tokenizer: Any = None,
    *,
    dataset_type: type[Dataset] | None = None,
    verify_on_touch: bool = True,
    memory_map: bool = True,
    download_dir: str | os.PathLike[str] | None = None,
    download_bytes: int | None = None,
    read_ranges: bool = False,
    fetch_ahead: int = 0,
) -> Dataset:
    """Opens a finished dataset: a `RawTextDataset`, `TokenDataset`, `PackedDataset` or `BucketedDataset`.

    Args:
        path: directory that `write_dataset` wrote, or its URL (with the extra `tokjax[remote]`). Files at a
            URL are downloaded when they are first needed.
        tokenizer: for a dataset of ids, a tokenizer that must equal the one the dataset was written with. For
            raw text, the tokenizer to use. `None` for the saved tokenizer, if any.
        dataset_type: type that the dataset must have, such as `tokjax.datasets.PackedDataset`. Type checkers
            know only by it which of the types is returned.
        verify_on_touch: whether to compare each file with its checksum when it is first needed, which reads
            the whole file. If not set, only sizes and shapes are checked, and that no other dataset has
            replaced this one; for a URL not even that.
        memory_map: whether to memory-map the data of shards. If another program changes a mapped file in
            place after its checksum was compared, reads return the changed data; if it truncates the file,
            this process ends with SIGBUS. If not set, each shard is read into memory when it is first needed,
            and stays there.
        download_dir: directory in which files of a URL are kept, for this run and later ones; `None` for a
            temporary directory.
        download_bytes: maximum size in bytes of the files in `download_dir`, of all datasets together. The
            least recently used ones are deleted before another one is downloaded. `None` for no limit.
        read_ranges: whether reads at a URL that need a small part of a shard, such as a few documents,
            request only these bytes. They can't be compared with the checksum of the shard, which covers the
            whole file. A shard is downloaded, and compared, once more than half of it would have been
            requested, unless the dataset is larger than `download_bytes`.
        fetch_ahead: number of shards at a URL that are downloaded in the background while a loader is
            iterated, before it needs them.

    Returns:
        The dataset.

    Raises:
        DatasetIncompleteError: `path` does not exist, or its writer did not finish.
        DatasetMismatchError: the tokenizer, the version of the format, the field or the type is a different
            one. (A custom field must be registered only for operations that need it, such as
            `dataset.field`.)
        DatasetCorruptError: a file is missing, or its size differs from the manifest.
        InvalidArgumentError: an option is invalid, or a file is larger than `download_bytes`.
    """
    downloads = DownloadOptions(
        None if download_dir is None else resolve(download_dir),
        None if download_bytes is None else check_int("download_bytes", download_bytes, minimum=1),
        bool(read_ranges),
        check_int("fetch_ahead", fetch_ahead, minimum=0),
    )
    if is_url(path):
        remote = Downloads(str(path), downloads)
        manifest = remote.manifest()
        remote.check_limit(manifest)
        return _open(DatasetFiles(remote, manifest, verify_on_touch, memory_map), tokenizer, dataset_type)
    directory = resolve(path)

    def open_with(manifest: Manifest, identity: FileIdentity) -> Dataset:
        files = DatasetFiles(directory, manifest, verify_on_touch, memory_map, identity)
        return _open(files, tokenizer, dataset_type)

    return _open_stable(directory, open_with)


def _open_stable(directory: Path, open_with: Callable[[Manifest, FileIdentity], Dataset]) -> Dataset:
    """Opens a directory, and retries if another process replaced the dataset at the same time."""
    for remaining_attempts in reversed(range(_ATTEMPTS)):
        before = _get_identity(directory)
        try:
            if not directory.exists():
                reason, hint = _explain_missing(directory)
                raise DatasetIncompleteError(f"no dataset at {directory}: {reason}", hint=hint)
            return open_with(*read_manifest_and_identity(directory))
        except DatasetError:
            is_moved = before is None and get_replaced_path(directory).exists()
            if not remaining_attempts or not (is_moved or _get_identity(directory) != before):
                raise
            time.sleep(_ATTEMPT_SECONDS)
    raise AssertionError  # the last attempt returns or raises


def _get_identity(directory: Path) -> FileIdentity | None:
    try:
        return get_identity(directory / MANIFEST_FILE)
    except OSError:
        return None


def _open(files: DatasetFiles, tokenizer: Any, dataset_type: type[Dataset] | None) -> Dataset:
    """Returns a dataset of the class that belongs to the field of the manifest."""
    location, plan = files.location, files.manifest.plan
    if plan.type_id not in FIELDS and plan.type_id < FIRST_CUSTOM_TYPE_ID:
        supported = ", ".join(map(str, sorted(FIELDS)))
        raise DatasetMismatchError(
            f"{location} stores {plan.field!r} (TYPE_ID {plan.type_id}); this version of tokjax reads "
            f"{supported}, and custom fields from {FIRST_CUSTOM_TYPE_ID}"
        )
    if tokenizer is not None:
        fingerprint = protocol.fingerprint(tokenizer)
        if plan.tokenizer_fingerprint not in (None, fingerprint):
            raise DatasetMismatchError(
                f"{location} was written with another tokenizer: it records fingerprint "
                f"{plan.tokenizer_fingerprint} (vocabulary size {plan.vocab_size}), but the tokenizer passed "
                f"has {fingerprint} (vocabulary size {protocol.vocab_size(tokenizer)})"
            )
    stored_type = _CLASSES.get(plan.type_id, TokenDataset)
    if dataset_type is not None and not isinstance(dataset_type, type):
        raise InvalidArgumentError(
            f"dataset_type must be a class, such as TokenDataset, not {dataset_type!r:.100}"
        )
    if dataset_type is not None and not issubclass(stored_type, dataset_type):
        raise DatasetMismatchError(
            f"{location} is a {stored_type.__name__}, written with {plan.field}, not a "
            f"{dataset_type.__name__}; pass dataset_type={stored_type.__name__}"
        )
    return stored_type(files, tokenizer)


def _explain_missing(directory: Path) -> tuple[str, Hint]:
    if get_replaced_path(directory).exists():
        rename = f"rename {get_replaced_path(directory).name} to {directory.name} to restore the previous one"
        return "its writer was killed while replacing it", Hint(
            f"{RUN_AGAIN.python}, or {rename}", f"{RUN_AGAIN.shell}, or {rename}"
        )
    if get_incomplete_path(directory).exists():
        incomplete = get_incomplete_path(directory).name
        return f"its writer did not finish (it left {incomplete})", RUN_AGAIN
    return "the path does not exist", Hint("write it with write_dataset", "write it with tokjax pack")
