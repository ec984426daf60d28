"""The manifest: what a dataset directory holds, written last."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

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
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of the token stream, of whole documents.

    Attributes:
        name: what its files' names start with.
        num_tokens: ids in `NAME.tokens.npy`.
        num_documents: entries of `NAME.num_tokens.npy`, and of `NAME.doc_id.npy` if there is one.
        sha256: the digest of each of its files, by the file's name.
    """

    name: str
    num_tokens: int
    num_documents: int
    sha256: dict[str, str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a dataset but its arrays.

    Attributes:
        field: the class name of what is stored.
        type_id: the number of that class.
        options: the field's options.
        token_dtype: the dtype of ids on disk, for instance `"uint16"`.
        vocab_size: the tokenizer's.
        tokenizer_fingerprint: what `fingerprint(tokenizer)` gave.
        tokenizer_file: where the tokenizer itself is saved, or `None` if its type can't be.
        tokenizer_sha256: the digest of that file.
        num_tokens: ids in all shards, EOS and BOS among them.
        num_documents: documents in all shards.
        num_bytes: bytes of UTF-8 that were encoded.
        shards: in the order of the stream.
    """

    field: str
    type_id: int
    options: dict[str, Any]
    token_dtype: str
    vocab_size: int
    tokenizer_fingerprint: str
    tokenizer_file: str | None
    tokenizer_sha256: str | None
    num_tokens: int
    num_documents: int
    num_bytes: int
    shards: tuple[Shard, ...]

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text for each id; 0 for an empty dataset."""
        return self.num_bytes / self.num_tokens if self.num_tokens else 0.0

    @property
    def fingerprint(self) -> str:
        """A short name for exactly these contents."""
        return checksum_of_json(asdict(self))

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file but the manifest, by its name."""
        digests = {name: digest for shard in self.shards for name, digest in shard.sha256.items()}
        if self.tokenizer_file is not None and self.tokenizer_sha256 is not None:
            digests[self.tokenizer_file] = self.tokenizer_sha256
        return digests


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    contents = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        **asdict(manifest),
        "bytes_per_token": round(manifest.bytes_per_token, 6),
    }
    contents["checksum"] = checksum_of_json(contents)
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
    try:
        contents = json.loads(data)
        named_format, version = contents.pop("format"), contents.pop("schema_version")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error!r}; write the dataset again") from error
    if (named_format, version) != (FORMAT, SCHEMA_VERSION):
        raise DatasetMismatchError(
            f"{path} is {named_format!r} version {version!r}; this tokjax reads {FORMAT!r} version "
            f"{SCHEMA_VERSION}"
        )
    stored = contents.pop("checksum", None)
    actual = checksum_of_json({"format": named_format, "schema_version": version, **contents})
    if stored != actual:
        raise DatasetCorruptError(
            f"{path} was altered: it says checksum {stored!r}, its contents have {actual!r}"
        )
    return _from_json(path, contents)


def _from_json(path: Path, contents: dict[str, Any]) -> Manifest:
    try:
        contents.pop("bytes_per_token")
        shards = tuple(Shard(**shard) for shard in contents.pop("shards"))
        manifest = Manifest(shards=shards, **contents)
        names = [name for shard in shards for name in (shard.name, *shard.sha256)]
        for name in (manifest.tokenizer_file or "none", *names):
            if "/" in name or "\\" in name or name in ("", ".", ".."):
                raise DatasetCorruptError(f"{path} names a file outside its directory: {name!r}")
    except (TypeError, KeyError, AttributeError) as error:
        raise DatasetCorruptError(f"{path} lacks a field or has an unknown one: {error}") from error
    return manifest
