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

A checksum detects accidental damage. It does not protect against a manifest from another program, with a
correct checksum and values that no writer of tokjax produces. Such values are rejected before any array is
allocated or file opened. The errors name the value, for instance

    plan.options['chunk_tokens'] is 0
    shard-00000's num_items is 1000000000000, and shard-00000.tokens.npy has 142 bytes
    it names a file outside its directory: '../x'

See docs/dataset-format.md, sections "manifest.json" and "Checksums".
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field as dataclass_field
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from tokjax._util.atomic_files import (
    NotRegularFileError,
    compute_json_checksum,
    get_identity,
    open_regular,
    write_atomically,
)
from tokjax._util.limits import parse_json
from tokjax.corpus.files import FileFormat
from tokjax.datasets.columns import parse_columns
from tokjax.datasets.fields.registry import FIELDS, FIRST_CUSTOM_TYPE_ID, make_field
from tokjax.datasets.fields.text_fields import (
    BucketedTokenField,
    RawTextField,
    SentencePieceTextField,
    TokenizedTextField,
)
from tokjax.errors import DatasetCorruptError, DatasetIncompleteError, DatasetMismatchError, Hint
from tokjax.models.characters import byte_level

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokjax._util.atomic_files import FileIdentity
    from tokjax.datasets.columns import Column

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


class Shard(NamedTuple):
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
        source: files that the documents were read from and how, or the file that was converted; `None` for
            an iterable, and for merged datasets.
        shards: shards in stream order.
        files: size and checksum of the files that belong to no shard, by file name.
        num_skipped: number of bad records of the source that were skipped; not recorded if it is 0.
    """

    plan: Plan
    tokenizer_file: str | None
    source: dict[str, Any] | None
    shards: tuple[Shard, ...]
    files: dict[str, FileRecord]
    num_skipped: int = 0

    def get_counts(self, name: str) -> NDArray[np.int64]:
        """Returns one of the counts named in `TOTALS`, for each shard."""
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
        return compute_json_checksum([describe_plan(self.plan), list(map(describe_shard, self.shards))])

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
    return contents | {"checksum": compute_json_checksum(contents)}


def unseal_contents(data: bytes, path: object, format_: str, hint: Hint) -> dict[str, Any]:
    """Parses a JSON object from `seal_contents`, and checks its format, version and checksum.

    Args:
        data: JSON text.
        path: path of the file, for error messages.
        format_: expected format name.
        hint: hint of the error if the file is damaged.

    Returns:
        The object without format, version and checksum.

    Raises:
        DatasetMismatchError: the format or the version is a different one.
        DatasetCorruptError: the file is damaged or was altered.
    """
    try:
        contents: dict[str, Any] = parse_json(data)
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
        actual = compute_json_checksum({"format": named_format, "schema_version": version, **contents})
    except (TypeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} is damaged: {error!r}", hint=hint) from error
    if stored != actual:
        raise DatasetCorruptError(
            f"{path} was altered: it records checksum {stored!r}, its contents have {actual!r}", hint=hint
        )
    return contents


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Returns a plan as JSON values, without `columns` if it has none."""
    described = asdict(plan)
    if not plan.columns:
        del described["columns"]
    return described


def describe_shard(shard: Shard) -> dict[str, Any]:
    """Returns a shard as JSON values."""
    return _omit_zero(shard._asdict())


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


def read_manifest(directory: Path) -> Manifest:
    """Reads and validates the manifest of a directory.

    Raises:
        DatasetIncompleteError: the directory has no manifest.
        DatasetMismatchError: the format or the version is a different one.
        DatasetCorruptError: the manifest is damaged or was altered.
    """
    return read_manifest_and_identity(directory)[0]


def read_manifest_and_identity(directory: Path) -> tuple[Manifest, FileIdentity]:
    """Reads and validates a manifest, and returns it with the identity of its file.

    Raises the same errors as `read_manifest`.
    """
    path = directory / MANIFEST_FILE
    try:
        with open_regular(path) as file:
            identity, data = get_identity(file), file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetIncompleteError(
            f"{directory} is not a dataset: it has no {MANIFEST_FILE}",
            hint=Hint("write one with write_dataset", "write one with tokjax pack"),
        ) from None
    except NotRegularFileError:
        raise DatasetCorruptError(f"{path} is not a regular file; write the dataset again") from None
    return parse_manifest(data, path), identity


def parse_manifest(data: bytes, path: object) -> Manifest:
    """Parses and validates the contents of a manifest file.

    Args:
        data: contents of the file.
        path: path of the file, for error messages.

    Returns:
        The manifest.

    Raises:
        DatasetMismatchError: the format or the version is a different one.
        DatasetCorruptError: the manifest is damaged or was altered.
    """
    contents = unseal_contents(data, path, FORMAT, WRITE_AGAIN)
    try:
        totals = {name: contents.pop(name) for name in TOTALS if name in contents or name != DROPPED}
        plan = Plan(**contents.pop("plan"))
        shards = tuple(map(parse_shard, contents.pop("shards")))
        files = parse_file_records(contents.pop("files"))
        manifest = Manifest(plan=plan, shards=shards, files=files, **contents)
        _check_types(manifest)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} has a missing or invalid field: {error}") from error
    for name, total in totals.items():
        if total != getattr(manifest, name):
            raise DatasetCorruptError(
                f"{path}: the total {name} is {total}, but its shards add up to {getattr(manifest, name)}"
            )
    return manifest


_SIZES = [[str, int]]
_FORMS: dict[str, Any] = {
    "field": str,
    "type_id": int,
    "options": dict,
    "data_dtype": ("uint8", "uint16", "uint32"),
    "shard_size": int,
    "name": str,
    **dict.fromkeys((*TOTALS, SKIPPED, "nbytes"), int),
    "is_numbered": bool,
    "bucket_documents": (None, [int]),
    "source_sha256": str,
    "sha256": str,
    "source": (
        None,
        {"converted": str, "num_bytes": int},
        {"files": _SIZES, "format": get_args(FileFormat), "field": str, "separator": (str, None)},
    ),
}
"""Forms of the values of records, by name; see `_has_form`."""


def _has_form(value: Any, form: Any) -> bool:
    """Returns whether a JSON value has a form.

    A form is a type (integers are counts), a value, a tuple of possible forms, a list with the form of any
    number of items or with those of two, or a dict with a form per key.
    """
    if isinstance(form, tuple):
        return any(_has_form(value, each) for each in form)
    if isinstance(form, list):
        forms = form * len(value) if isinstance(value, Sequence) and len(form) == 1 else form
        is_list = isinstance(value, (list, tuple)) and len(value) == len(forms)
        return is_list and all(map(_has_form, value, forms))
    if isinstance(form, dict):
        is_alike = isinstance(value, dict) and value.keys() == form.keys()
        return is_alike and all(_has_form(value[key], each) for key, each in form.items())
    if form is int:
        return type(value) is int and 0 <= value < 1 << 62
    return type(value) is form if isinstance(form, type) else value == form


def _check_forms(record: Any, label: str) -> None:
    """Raises `ValueError` for a value of a record that has another form than writers give it.

    Args:
        record: record with attributes that `_FORMS` describes.
        label: label of an attribute in errors, with its name as `{}`.
    """
    for name in getattr(record, "__slots__", ()) or record._fields:
        if name in _FORMS:
            _check(label.format(name), getattr(record, name), _has_form(getattr(record, name), _FORMS[name]))


def _check_types(manifest: Manifest) -> None:
    """Raises `ValueError` for a value that no writer produces."""
    _check_forms(manifest, "{}")
    _check_plan(manifest.plan)
    _check("tokenizer_file", manifest.tokenizer_file, manifest.tokenizer_file in (None, *manifest.files))
    _check_files(manifest.files)
    names = set()
    for shard in manifest.shards:
        _check_shard(shard, manifest.plan)
        names.add(shard.name)
    if len(names) != len(manifest.shards):
        _check("shards", [shard.name for shard in manifest.shards], is_valid=False)


def _check_files(files: Mapping[str, FileRecord]) -> None:
    for name, record in files.items():
        _check_name(name)
        _check_forms(record, f"the {{}} of {name}")


def _check_name(name: str) -> None:
    if "/" in name or "\\" in name or name in ("", ".", ".."):
        raise ValueError(f"it names a file outside its directory: {name!r}")


def _check_plan(plan: Plan) -> None:
    is_text = plan.type_id == RawTextField.TYPE_ID
    _check_forms(plan, "plan.{}")
    columns = parse_columns(plan.columns)
    if plan.type_id not in FIELDS and plan.type_id < FIRST_CUSTOM_TYPE_ID:
        return
    _check("plan.vocab_size", plan.vocab_size, is_text or _has_form(plan.vocab_size, int))
    fingerprint = plan.tokenizer_fingerprint
    _check("plan.tokenizer_fingerprint", fingerprint, isinstance(fingerprint, type(None) if is_text else str))
    if plan.type_id < FIRST_CUSTOM_TYPE_ID:  # (a custom field checks its own options)
        _check_options(plan, columns)


def _check_options(plan: Plan, columns: tuple[Column, ...]) -> None:
    """Raises `ValueError` for options of which a field can't be made, or that this field would not record."""
    kind = FIELDS[plan.type_id]
    expected = {field.name for field in dataclasses.fields(kind)} - {"tokenizer", "columns"}
    for name in sorted(expected ^ plan.options.keys()):
        raise ValueError(f"plan.options {'lacks' if name in expected else 'has an unknown'} {name!r}")
    if kind is SentencePieceTextField:
        kind = TokenizedTextField  # which has the same options, and takes any tokenizer
    try:
        field = make_field(kind.TYPE_ID, plan.options, _make_tokenizer(), columns)
    except (TypeError, ValueError) as error:
        raise ValueError(f"plan.options: {error}") from error
    for name, value in field.options.items():
        given = plan.options[name]
        _check(f"plan.options[{name!r}]", given, json.dumps(given) == json.dumps(value))


@functools.cache
def _make_tokenizer() -> Any:
    """Returns a tokenizer for fields of which only the options are needed."""
    return byte_level(["</s>"], eos_token="</s>")


def _check_shard(shard: Shard, plan: Plan) -> None:
    _check("a shard's name", shard.name, isinstance(shard.name, str))
    _check_name(shard.name)
    _check_forms(shard, f"{shard.name}'s {{}}")
    _check_files(shard.files)
    buckets = shard.bucket_documents
    is_valid = buckets is None
    if plan.type_id == BucketedTokenField.TYPE_ID:
        count = len(plan.options["bucket_boundaries"])
        is_valid = buckets is not None and len(buckets) == count and sum(buckets) == shard.num_documents
    _check(f"{shard.name}'s bucket_documents", buckets, is_valid)
    bits = {f"{shard.name}.{column['name']}.npy": (column["per"], column["bits"]) for column in plan.columns}
    for name, record in shard.files.items():
        per, size = bits.get(name, ("document", 8))
        is_per_item = name.endswith((".tokens.npy", ".text.npy")) or per == "token"
        count_name = "num_items" if is_per_item else "num_documents"
        count = getattr(shard, count_name)
        if 8 * record.nbytes < size * count:  # (before arrays are allocated)
            raise ValueError(f"{shard.name}'s {count_name} is {count}, and {name} has {record.nbytes} bytes")


def _check(name: str, value: object, is_valid: bool) -> None:
    if not is_valid:
        raise ValueError(f"{name} is {value!r:.200}")
