"""The manifest: what a dataset directory holds, written last."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.files import compute_json_pieces_checksum, format_canonical_json, write_atomically
from tokjax.errors import DatasetCorruptError, DatasetMismatchError, Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MANIFEST_FILE = "manifest.json"
FORMAT = "tokjax-dataset"
SCHEMA_VERSION = 3
WRITE_AGAIN = Hint("write the dataset again", "write the dataset again")
RUN_AGAIN = Hint("run write_dataset again", "run tokjax pack again")
_UPDATE = Hint(*["a newer tokjax wrote it: update this one"] * 2)
TOTALS = ("num_items", "num_documents", "num_bytes", "num_cut", "num_dropped")
"""What is counted in each shard, and in all of them."""


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
        num_dropped: ids, or bytes of text, that were cut off from them.
        is_numbered: whether the ids of its documents are the running count, as they came.
        bucket_documents: how many documents of each bucket, where there are buckets.
        source_sha256: the digest of what was fed, as `SourceHash` makes it.
        files: its files by their names.
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


class CompactShards(Sequence[Shard]):
    """Shards that are stored in another way than as objects."""

    @abstractmethod
    def get_counts(self, name: str) -> Sequence[int]:
        """Returns one of the counts named in `TOTALS` of each shard."""


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
    shards: Sequence[Shard]
    files: dict[str, FileRecord]

    def get_counts(self, name: str) -> Sequence[int]:
        """Returns one of the counts named in `TOTALS` of each shard."""
        if isinstance(self.shards, CompactShards):
            return self.shards.get_counts(name)
        return [getattr(shard, name) for shard in self.shards]

    @property
    def num_items(self) -> int:
        """Ids, or bytes of text, in all shards."""
        return sum(self.get_counts("num_items"))

    @property
    def num_documents(self) -> int:
        """Documents in all shards."""
        return sum(self.get_counts("num_documents"))

    @property
    def num_bytes(self) -> int:
        """Bytes of UTF-8 that were encoded."""
        return sum(self.get_counts("num_bytes"))

    @property
    def num_cut(self) -> int:
        """Documents that were too long for the field, and cut."""
        return sum(self.get_counts("num_cut"))

    @property
    def num_dropped(self) -> int:
        """Ids, or bytes of text, that were cut off from documents that were too long."""
        return sum(self.get_counts("num_dropped"))

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text for each id, those that were cut off among them; `None` if that is not known."""
        num_tokens = self.num_items + self.num_dropped
        is_known = self.plan.tokenizer_fingerprint is not None and self.num_bytes and num_tokens
        return self.num_bytes / num_tokens if is_known else None

    @property
    def fingerprint(self) -> str:
        """A short name for exactly these contents."""
        plan = format_canonical_json(asdict(self.plan))
        return compute_json_pieces_checksum(["[", plan, ",", *_iter_canonical_shards(self.shards), "]"])

    @property
    def all_files(self) -> dict[str, FileRecord]:
        """Every file but the manifest, by its name."""
        return dict(self.iter_files())

    def iter_files(self) -> Iterator[tuple[str, FileRecord]]:
        """Iterates over the names and records of every file but the manifest."""
        yield from self.files.items()
        for shard in self.shards:
            yield from shard.files.items()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    totals = {name: getattr(manifest, name) for name in TOTALS}
    contents = {
        "plan": asdict(manifest.plan),
        "tokenizer_file": manifest.tokenizer_file,
        "source": manifest.source,
        "shards": list(map(describe_shard, manifest.shards)),
        "files": manifest.files,
    }
    contents = seal_contents(FORMAT, {**contents, **totals})
    data = (json.dumps(contents, indent=2) + "\n").encode("ascii")
    write_atomically(directory / MANIFEST_FILE, lambda file: file.write(data))


def seal_contents(format_: str, contents: dict[str, Any]) -> dict[str, Any]:
    """Contents with what says what they are, and their checksum: `unseal_contents` takes that off again."""
    contents = {"format": format_, "schema_version": SCHEMA_VERSION, **contents}
    return contents | {"checksum": _compute_checksum(contents)}


def unseal_contents(
    data: bytes,
    path: object,
    format_: str,
    hint: Hint,
    parse: Callable[[bytes], dict[str, Any]] = json.loads,
) -> dict[str, Any]:
    """The fields of JSON of ours, but for those that say what it is.

    Args:
        data: the JSON.
        path: what errors call it.
        format_: what it should be.
        hint: what to do if it is damaged.
        parse: the function that parses it.

    Raises:
        DatasetMismatchError: it is of another format or version.
        DatasetCorruptError: it is damaged or altered.
    """
    try:
        contents: dict[str, Any] = parse(data)
        if not isinstance(contents, dict):
            raise TypeError(f"a JSON object is expected, not a {type(contents).__name__}")
        named_format = contents.pop("format")
        version = contents.pop("schema_version") if named_format == format_ else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error!r}", hint=hint) from error
    if named_format != format_:
        raise DatasetMismatchError(f"{path} is of the format {named_format!r}, not {format_!r}")
    if version != SCHEMA_VERSION or not isinstance(version, int):
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        hint = _UPDATE if newer else hint
        raise DatasetMismatchError(
            f"{path} is {named_format!r} version {version!r}; this tokjax reads {format_!r} version "
            f"{SCHEMA_VERSION}",
            hint=hint,
        )
    stored = contents.pop("checksum", None)
    try:
        actual = _compute_checksum({"format": named_format, "schema_version": version, **contents})
    except (TypeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error!r}", hint=hint) from error
    if stored != actual:
        raise DatasetCorruptError(
            f"{path} was altered: it says checksum {stored!r}, its contents have {actual!r}", hint=hint
        )
    return contents


def _compute_checksum(contents: dict[str, Any]) -> str:
    """Returns the checksum of a JSON object; the shards of its key `"shards"` are encoded one by one."""

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
    """Iterates over the canonical JSON of a list of shards, or of what was read in place of them."""
    if not isinstance(shards, Sequence) or isinstance(shards, str):
        yield format_canonical_json(shards)
        return
    yield "["
    for index, shard in enumerate(shards):
        yield ("," if index else "") + format_canonical_json(
            describe_shard(shard) if isinstance(shard, Shard) else shard
        )
    yield "]"


def describe_shard(shard: Shard) -> dict[str, Any]:
    """Returns a shard as JSON values."""
    return {name: getattr(shard, name) for name in Shard.__slots__}


def parse_shard(described: dict[str, Any]) -> Shard:
    """A shard, as JSON tells of it."""
    buckets = described["bucket_documents"]
    return Shard(
        **{
            **described,
            "files": parse_file_records(described["files"]),
            "bucket_documents": None if buckets is None else tuple(buckets),
        }
    )


def parse_file_records(described: dict[str, list[Any]]) -> dict[str, FileRecord]:
    """Files by their names, as JSON tells of them."""
    return {name: FileRecord(nbytes, sha256) for name, (nbytes, sha256) in described.items()}
