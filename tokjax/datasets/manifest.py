"""Manifest of a dataset: the plan, the shards, and the size and checksum of every file.

`manifest.json` is written last, so a directory that has one is complete. For a dataset of two shards:

    {
      "format": "tokjax-dataset",
      "schema_version": 3,
      "plan": {"field": "PackedTokenField", "type_id": 42, "options": {"chunk_tokens": 4, ...},
               "data_dtype": "uint16", "shard_size": 6, "vocab_size": 257,
               "tokenizer_fingerprint": "sha256:90c0..."},
      "tokenizer_file": "tokenizer.tokjax.json",
      "source": null,                                            (or the files of the documents)
      "shards": [
        {"name": "shard-00000", "num_items": 7, "num_documents": 2, "num_bytes": 5, ...,
         "files": {"shard-00000.tokens.npy": [142, "4604..."],   (size in bytes, SHA-256)
                   "shard-00000.num_tokens.npy": [130, "d1db..."]}},
        {"name": "shard-00001", "num_items": 1, "num_documents": 1, "num_bytes": 0, ...}],
      "files": {"tokenizer.tokjax.json": [281, "a6b4..."]},
      "num_items": 8, "num_documents": 3, "num_bytes": 5, ...    (totals over the shards)
      "checksum": "sha256:5ae2..."                               (of the JSON without this key)
    }

See docs/dataset-format.md, sections "manifest.json" and "Checksums".
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field as dataclass_field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.atomic_files import compute_json_pieces_checksum, format_canonical_json, write_atomically
from tokjax.errors import DatasetCorruptError, DatasetMismatchError, Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

MANIFEST_FILE = "manifest.json"
PROGRESS_FILE = "progress.jsonl"
"""Name of the progress record in the directory of an interrupted writer."""
FORMAT = "tokjax-dataset"
SCHEMA_VERSION = 3
COLUMNS_VERSION = 4
"""Version of manifests with side columns, which older readers reject."""
WRITE_AGAIN = Hint("write the dataset again", "write the dataset again")
RUN_AGAIN = Hint("run write_dataset again", "run tokjax pack again")
_UPDATE = Hint(*["a newer version of tokjax wrote it; update tokjax"] * 2)
DROPPED = "num_dropped_documents"
SKIPPED = "num_skipped"
"""Names of counts that are stored only if they are not 0."""
TOTALS = ("num_items", "num_documents", "num_bytes", "num_cut", "num_dropped", DROPPED)
"""Names of the counts that are stored per shard, and in total."""


class FileRecord(NamedTuple):
    """Size and checksum of a file of a dataset.

    Attributes:
        nbytes: size in bytes.
        sha256: SHA-256 of the contents, 64 hexadecimal digits.
    """

    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Shard:
    """Description of one shard, which contains complete documents.

    Attributes:
        name: common prefix of its file names, for instance `"shard-00000"`.
        num_items: number of ids, or of bytes of text.
        num_documents: number of documents.
        num_bytes: number of UTF-8 bytes of the documents before encoding.
        num_cut: number of documents that were truncated because they were too long for the field.
        num_dropped: number of ids, or of bytes of text, that truncation removed.
        is_numbered: whether the ids of its documents, in source order, continue the count 0, 1, 2, ...
        bucket_documents: number of documents per bucket; `None` if the field has no buckets.
        source_sha256: digest of the documents before encoding, as computed by `SourceHash`.
        files: size and checksum of each file, by file name.
        num_dropped_documents: number of documents that the field left out, because they train nothing. The
            other counts do not include them.
    """

    name: str
    num_items: int
    num_documents: int
    num_bytes: int
    num_cut: int
    num_dropped: int
    is_numbered: bool
    bucket_documents: tuple[int, ...] | None
    source_sha256: str
    files: dict[str, FileRecord]
    num_dropped_documents: int = 0

    @property
    def num_source_documents(self) -> int:
        """Number of documents of the source, also those that were left out."""
        return self.num_documents + self.num_dropped_documents


class ShardTable(Sequence[Shard]):
    """Sequence of shards that takes about 270 bytes per shard, where an object takes 2,000.

    A `Shard` is built each time one is read.

    Args:
        rows: shards, from `pack_shard`.
    """

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        """Returns the number of shards."""
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        """Returns a shard, or a tuple of shards for a slice."""
        rows = self._rows[index]
        return tuple(map(unpack_shard, rows)) if isinstance(index, slice) else unpack_shard(rows)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The counts in `TOTALS` of each shard, shape `(shards, counts)`."""
        places = [Shard.__slots__.index(name) for name in TOTALS]
        shards = map(marshal.loads, self._rows)
        return np.array([[shard[i] for i in places] for shard in shards], np.int64).reshape(-1, len(places))


def pack_shard(shard: Shard) -> bytes:
    """Returns a shard as a row of a `ShardTable`: its values, in which digests are bytes."""
    files = {name: (nbytes, _pack_digest(sha256)) for name, (nbytes, sha256) in shard.files.items()}
    packed = {"source_sha256": _pack_digest(shard.source_sha256), "files": files}
    return marshal.dumps([packed.get(name, getattr(shard, name)) for name in Shard.__slots__])


def unpack_shard(row: bytes) -> Shard:
    """Returns a shard from a row of a `ShardTable`. Inverse of `pack_shard`."""
    values = dict(zip(Shard.__slots__, marshal.loads(row), strict=True))
    values["source_sha256"] = _unpack_digest(values["source_sha256"])
    values["files"] = {
        name: FileRecord(nbytes, _unpack_digest(sha256)) for name, (nbytes, sha256) in values["files"].items()
    }
    return Shard(**values)


def _pack_digest(sha256: str) -> str | bytes:
    """Returns a digest as bytes; other values, of a manifest that no writer wrote, as they are."""
    try:
        digest = bytes.fromhex(sha256)
    except (TypeError, ValueError):
        return sha256
    return digest if digest.hex() == sha256 else sha256


def _unpack_digest(digest: str | bytes) -> str:
    return digest.hex() if isinstance(digest, bytes) else digest


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings that determine the bytes on disk: equal plans and equal documents give equal files.

    Attributes:
        field: class name of the field.
        type_id: `TYPE_ID` of the field.
        options: options of the field, as JSON values.
        data_dtype: dtype of the stored items, for instance `"uint16"`.
        shard_size: number of ids, or of bytes of text, at which a shard is closed. The document that reaches
            it is the last of its shard.
        vocab_size: vocabulary size of the tokenizer; `None` for raw text.
        tokenizer_fingerprint: `fingerprint(tokenizer)`; `None` for raw text.
        columns: side columns, as `describe_columns` returns them; not recorded if there are none.
    """

    field: str
    type_id: int
    options: dict[str, Any]
    data_dtype: str
    shard_size: int
    vocab_size: int | None
    tokenizer_fingerprint: str | None
    columns: list[dict[str, Any]] = dataclass_field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a dataset's `manifest.json`: all metadata, without the arrays.

    Attributes:
        plan: settings that the dataset was written with.
        tokenizer_file: name of the file with the saved tokenizer; `None` for raw text, or if its type can't
            be saved.
        source: files that the documents were read from, as `rebuild_dataset` needs them, or the file that
            was converted; `None` for an iterable, and for merged datasets.
        shards: shards in stream order.
        files: size and checksum of the files that belong to no shard, by file name.
        num_skipped: number of bad records of the source that were skipped; not recorded if it is 0.
    """

    plan: Plan
    tokenizer_file: str | None
    source: dict[str, Any] | None
    shards: Sequence[Shard]
    files: dict[str, FileRecord]
    num_skipped: int = 0

    def get_counts(self, name: str) -> NDArray[np.int64]:
        """Returns one of the counts named in `TOTALS`, for each shard."""
        if isinstance(self.shards, ShardTable):
            return self.shards.counts[:, TOTALS.index(name)]
        return np.array([getattr(shard, name) for shard in self.shards], np.int64)

    def get_total(self, name: str) -> int:
        """Returns the sum of one of the counts named in `TOTALS` over all shards."""
        return int(self.get_counts(name).sum())

    @property
    def num_items(self) -> int:
        """Number of ids, or of bytes of text, in all shards."""
        return self.get_total("num_items")

    @property
    def num_documents(self) -> int:
        """Number of documents in all shards."""
        return self.get_total("num_documents")

    @property
    def num_bytes(self) -> int:
        """Number of UTF-8 bytes of all documents before encoding."""
        return self.get_total("num_bytes")

    @property
    def num_cut(self) -> int:
        """Number of documents that were truncated because they were too long for the field."""
        return self.get_total("num_cut")

    @property
    def num_dropped(self) -> int:
        """Number of ids, or of bytes of text, that truncation removed."""
        return self.get_total("num_dropped")

    @property
    def num_dropped_documents(self) -> int:
        """Number of documents that the field left out, because they train nothing."""
        return self.get_total("num_dropped_documents")

    @property
    def bytes_per_token(self) -> float | None:
        """Mean number of bytes of text per id, including truncated ids; `None` if unknown."""
        num_tokens = self.num_items + self.num_dropped
        is_defined = self.plan.tokenizer_fingerprint is not None and self.num_bytes and num_tokens
        return self.num_bytes / num_tokens if is_defined else None

    @property
    def fingerprint(self) -> str:
        """Digest of the plan and the shards. Datasets with the same contents have the same digest."""
        plan = format_canonical_json(describe_plan(self.plan))
        return compute_json_pieces_checksum(["[", plan, ",", *_iter_canonical_shards(self.shards), "]"])

    @property
    def all_files(self) -> dict[str, FileRecord]:
        """Size and checksum of every file except the manifest, by file name."""
        return dict(self.iter_files())

    def iter_files(self) -> Iterator[tuple[str, FileRecord]]:
        """Iterates over the name, size and checksum of every file except the manifest."""
        yield from self.files.items()
        for shard in self.shards:
            yield from shard.files.items()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Writes the manifest of a dataset atomically."""
    counts = _omit_zero({name: getattr(manifest, name) for name in (*TOTALS, SKIPPED)})
    contents = {
        "plan": describe_plan(manifest.plan),
        "tokenizer_file": manifest.tokenizer_file,
        "source": manifest.source,
        "shards": list(map(describe_shard, manifest.shards)),
        "files": manifest.files,
    }
    contents = seal_contents(FORMAT, {**contents, **counts})
    data = (json.dumps(contents, indent=2) + "\n").encode("ascii")
    write_atomically(directory / MANIFEST_FILE, lambda file: file.write(data))


def seal_contents(format_: str, contents: dict[str, Any]) -> dict[str, Any]:
    """Adds format, version and checksum to a JSON object. `unseal_contents` checks and removes them."""
    has_columns = "columns" in contents.get("plan", ())
    version = COLUMNS_VERSION if has_columns else SCHEMA_VERSION
    contents = {"format": format_, "schema_version": version, **contents}
    return contents | {"checksum": _compute_checksum(contents)}


def unseal_contents(
    data: bytes,
    path: object,
    format_: str,
    hint: Hint,
    parse: Callable[[bytes], dict[str, Any]] = json.loads,
) -> dict[str, Any]:
    """Parses a JSON object from `seal_contents`, and checks its format, version and checksum.

    Args:
        data: JSON text.
        path: path of the file, for error messages.
        format_: expected format name.
        hint: hint of the error if the file is damaged.
        parse: function that parses JSON.

    Returns:
        The object without format, version and checksum.

    Raises:
        DatasetMismatchError: the format or the version is a different one.
        DatasetCorruptError: the file is damaged or was altered.
    """
    try:
        contents: dict[str, Any] = parse(data)
        if not isinstance(contents, dict):
            raise TypeError(f"expected a JSON object, not a {type(contents).__name__}")
        named_format = contents.pop("format")
        version = contents.pop("schema_version") if named_format == format_ else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error!r}", hint=hint) from error
    if named_format != format_:
        raise DatasetMismatchError(f"{path} has the format {named_format!r}, not {format_!r}")
    if version not in (SCHEMA_VERSION, COLUMNS_VERSION) or not isinstance(version, int):
        newer = isinstance(version, int) and version > COLUMNS_VERSION
        hint = _UPDATE if newer else hint
        raise DatasetMismatchError(
            f"{path} is {named_format!r} version {version!r}; this version of tokjax reads {format_!r} "
            f"versions {SCHEMA_VERSION} and {COLUMNS_VERSION}",
            hint=hint,
        )
    stored = contents.pop("checksum", None)
    try:
        actual = _compute_checksum({"format": named_format, "schema_version": version, **contents})
    except (TypeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error!r}", hint=hint) from error
    if stored != actual:
        raise DatasetCorruptError(
            f"{path} was altered: it records checksum {stored!r}, its contents have {actual!r}", hint=hint
        )
    return contents


def _compute_checksum(contents: dict[str, Any]) -> str:
    """Returns the checksum of a JSON object.

    The entries of `"shards"` are serialized one at a time, so that a manifest with many shards needs little
    memory.
    """

    def iter_pieces() -> Iterator[str]:
        for key in sorted(contents):
            yield f"{',' if key != min(contents) else '{'}{format_canonical_json(key)}:"
            if key == "shards":
                yield from _iter_canonical_shards(contents[key])
            else:
                yield format_canonical_json(contents[key])
        yield "}"

    return compute_json_pieces_checksum(iter_pieces())


def _iter_canonical_shards(shards: Sequence[Any]) -> Iterator[str]:
    """Iterates over the canonical JSON of a list of shards, in pieces.

    They are objects, rows, or dicts. In a damaged manifest, any JSON value is serialized as it is.
    """
    if not isinstance(shards, Sequence) or isinstance(shards, str):
        yield format_canonical_json(shards)
        return
    yield "["
    for index, shard in enumerate(shards):
        yield ("," if index else "") + format_canonical_json(
            describe_shard(unpack_shard(shard) if isinstance(shard, bytes) else shard)
            if isinstance(shard, (Shard, bytes))
            else shard
        )
    yield "]"


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Returns a plan as JSON values, without `columns` if it has none."""
    described = asdict(plan)
    if not plan.columns:
        del described["columns"]
    return described


def describe_shard(shard: Shard) -> dict[str, Any]:
    """Returns a shard as JSON values."""
    return _omit_zero({name: getattr(shard, name) for name in Shard.__slots__})


def _omit_zero(described: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name not in (DROPPED, SKIPPED) or value}


def parse_shard(described: dict[str, Any]) -> Shard:
    """Returns a shard from its JSON values. Inverse of `describe_shard`."""
    buckets = described["bucket_documents"]
    return Shard(
        **{
            **described,
            "files": parse_file_records(described["files"]),
            "bucket_documents": None if buckets is None else tuple(buckets),
        }
    )


def parse_file_records(described: dict[str, list[Any]]) -> dict[str, FileRecord]:
    """Returns the records of files by file name, from their JSON values."""
    return {name: FileRecord(nbytes, sha256) for name, (nbytes, sha256) in described.items()}
