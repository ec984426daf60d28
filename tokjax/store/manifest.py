"""The manifest: what a dataset directory holds, written last."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._files import checksum_of_json, write_atomically
from tokjax.errors import (
    DatasetCorruptError,
    DatasetIncompleteError,
    DatasetMismatchError,
)

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST_FILE = "manifest.json"
FORMAT = "tokjax-dataset"
SCHEMA_VERSION = 2
_TOTALS = ("num_items", "num_documents", "num_bytes", "num_cut")


class FileRecord(NamedTuple):
    """A file of a dataset.

    Attributes:
        nbytes: its size.
        sha256: its digest, in hexadecimal.
    """

    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a dataset, of whole documents.

    Attributes:
        name: what its files' names start with.
        num_items: how many ids, or bytes of text, it holds.
        num_documents: how many documents.
        num_bytes: bytes of UTF-8 that were encoded.
        num_cut: documents that were too long for the field, and cut.
        bucket_documents: how many documents of each bucket, where there are buckets.
        source_sha256: the digest of what was fed, as `SourceHash` makes it.
        files: its files by their names.
    """

    name: str
    num_items: int
    num_documents: int
    num_bytes: int
    num_cut: int
    bucket_documents: tuple[int, ...] | None
    source_sha256: str
    files: dict[str, FileRecord]


@dataclass(frozen=True, slots=True)
class Plan:
    """What decides how documents are stored: the same documents by the same plan are the same bytes.

    Attributes:
        field: the class name of what is stored.
        type_id: the number of that class.
        options: the field's options.
        data_dtype: the dtype of what is stored, for instance `"uint16"`.
        shard_size: a shard is closed by the document that fills it to so many ids, or bytes of text.
        vocab_size: the tokenizer's; `None` for texts.
        tokenizer_fingerprint: what `fingerprint(tokenizer)` gave; `None` for texts.
    """

    field: str
    type_id: int
    options: dict[str, Any]
    data_dtype: str
    shard_size: int
    vocab_size: int | None
    tokenizer_fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a dataset but its arrays.

    Attributes:
        plan: how it is stored.
        tokenizer_file: where the tokenizer itself is saved, or `None` if its type can't be.
        source: where the documents came from, if from files: what `rebuild_dataset` needs.
        shards: in the order of the stream.
        files: the other files by their names.
    """

    plan: Plan
    tokenizer_file: str | None
    source: dict[str, Any] | None
    shards: tuple[Shard, ...]
    files: dict[str, FileRecord]

    @property
    def num_items(self) -> int:
        """Ids, or bytes of text, in all shards."""
        return sum(shard.num_items for shard in self.shards)

    @property
    def num_documents(self) -> int:
        """Documents in all shards."""
        return sum(shard.num_documents for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """Bytes of UTF-8 that were encoded."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def num_cut(self) -> int:
        """Documents that were too long for the field, and cut."""
        return sum(shard.num_cut for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """A short name for exactly these contents."""
        return checksum_of_json([asdict(self.plan), [asdict(shard) for shard in self.shards]])

    @property
    def all_files(self) -> dict[str, FileRecord]:
        """Every file but the manifest, by its name."""
        return {**self.files, **{name: file for shard in self.shards for name, file in shard.files.items()}}


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    totals = {name: getattr(manifest, name) for name in _TOTALS}
    contents = sealed(FORMAT, {**asdict(manifest), **totals})
    data = (json.dumps(contents, indent=2) + "\n").encode("ascii")
    write_atomically(directory / MANIFEST_FILE, lambda file: file.write(data))


def read_manifest(directory: Path) -> Manifest:
    """Read and check a manifest.

    Raises:
        DatasetIncompleteError: there is none.
        DatasetMismatchError: it is of another format or version.
        DatasetCorruptError: it is damaged or altered.
    """
    path = directory / MANIFEST_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetIncompleteError(
            f"{directory} is no dataset: it has no {MANIFEST_FILE}; make one with write_dataset"
        ) from None
    return manifest_of(data, path)


def manifest_of(data: bytes, path: object) -> Manifest:
    """The manifest that a file holds.

    Args:
        data: its contents.
        path: what errors call it.

    Raises:
        DatasetMismatchError: it is of another format or version.
        DatasetCorruptError: it is damaged or altered.
    """
    contents = unsealed(data, path, FORMAT)
    try:
        totals = {name: contents.pop(name) for name in _TOTALS}
        plan = Plan(**contents.pop("plan"))
        shards = tuple(map(shard_of, contents.pop("shards")))
        files = _files(contents.pop("files"))
        manifest = Manifest(plan=plan, shards=shards, files=files, **contents)
        _check_types(manifest)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} lacks a field or has an unknown one: {error}") from error
    for name in (manifest.tokenizer_file or "none", *manifest.all_files, *(shard.name for shard in shards)):
        if "/" in name or "\\" in name or name in ("", ".", ".."):
            raise DatasetCorruptError(f"{path} names a file outside its directory: {name!r}")
    for name, total in totals.items():
        if total != getattr(manifest, name):
            raise DatasetCorruptError(
                f"{path}: its shards have {name}={getattr(manifest, name)}, it says {total}"
            )
    return manifest


def sealed(format_: str, contents: dict[str, Any]) -> dict[str, Any]:
    """Contents with what says what they are, and their checksum: `unsealed` takes that off again."""
    contents = {"format": format_, "schema_version": SCHEMA_VERSION, **contents}
    return contents | {"checksum": checksum_of_json(contents)}


def unsealed(data: bytes, path: object, format_: str) -> dict[str, Any]:
    """The fields of JSON of ours, but for those that say what it is.

    Raises:
        DatasetMismatchError: it is of another format or version.
        DatasetCorruptError: it is damaged or altered.
    """
    try:
        contents: dict[str, Any] = json.loads(data)
        named_format, version = contents.pop("format"), contents.pop("schema_version")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error!r}; write the dataset again") from error
    if (named_format, version) != (format_, SCHEMA_VERSION) or not isinstance(version, int):
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        hint = "a newer tokjax wrote it: update this one" if newer else "write the dataset again"
        raise DatasetMismatchError(
            f"{path} is {named_format!r} version {version!r}; this tokjax reads {format_!r} version "
            f"{SCHEMA_VERSION}; {hint}"
        )
    stored = contents.pop("checksum", None)
    actual = checksum_of_json({"format": named_format, "schema_version": version, **contents})
    if stored != actual:
        raise DatasetCorruptError(
            f"{path} was altered: it says checksum {stored!r}, its contents have {actual!r}"
        )
    return contents


def shard_of(described: dict[str, Any]) -> Shard:
    """A shard, as JSON tells of it."""
    buckets = described["bucket_documents"]
    return Shard(
        **{
            **described,
            "files": _files(described["files"]),
            "bucket_documents": None if buckets is None else tuple(buckets),
        }
    )


def _files(described: dict[str, list[Any]]) -> dict[str, FileRecord]:
    return {name: FileRecord(nbytes, sha256) for name, (nbytes, sha256) in described.items()}


def _check_types(manifest: Manifest) -> None:
    """Raise `ValueError` for values that no writer writes."""
    plan = manifest.plan
    _check("plan.field", plan.field, isinstance(plan.field, str))
    _check("plan.type_id", plan.type_id, _is_count(plan.type_id))
    _check("plan.options", plan.options, isinstance(plan.options, dict))
    _check("plan.data_dtype", plan.data_dtype, plan.data_dtype in ("uint8", "uint16", "uint32"))
    _check("plan.shard_size", plan.shard_size, _is_count(plan.shard_size))
    if plan.tokenizer_fingerprint is not None:
        _check("plan.vocab_size", plan.vocab_size, _is_count(plan.vocab_size))
    _check("tokenizer_file", manifest.tokenizer_file, isinstance(manifest.tokenizer_file, str | None))
    names = [shard.name for shard in manifest.shards]
    _check("shards", names, len(set(names)) == len(names))
    for shard in manifest.shards:
        _check("a shard's name", shard.name, isinstance(shard.name, str))
        for name in (*_TOTALS, "source_sha256"):
            value = getattr(shard, name)
            _check(
                f"{shard.name}'s {name}", value, isinstance(value, str) if "sha" in name else _is_count(value)
            )
        buckets = shard.bucket_documents
        if buckets is not None:
            adds_up = all(map(_is_count, buckets)) and sum(buckets) == shard.num_documents
            _check(f"{shard.name}'s bucket_documents", buckets, adds_up)
    for name, record in manifest.all_files.items():
        _check(f"the size of {name}", record.nbytes, _is_count(record.nbytes))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _check(name: str, value: object, is_right: bool) -> None:
    if not is_right:
        raise ValueError(f"{name} is {value!r:.200}")
