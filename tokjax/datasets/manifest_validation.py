"""Validation of manifests.

A checksum detects accidental damage. It does not protect against a manifest from another program, with a
correct checksum and values that no writer of tokjax produces. Such values are rejected before any array is
allocated or file opened. The errors name the value, for instance

    plan.options['chunk_tokens'] is 0
    shard-00000's num_items is 1000000000000, and shard-00000.tokens.npy has 142 bytes
    it names a file outside its directory: '../x'
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from tokjax._util.atomic_files import NotRegularFileError, get_identity, open_regular
from tokjax.corpus.files import FileFormat
from tokjax.datasets.columns import parse_columns
from tokjax.datasets.fields.conversation import TrainOn, WithoutTargets
from tokjax.datasets.fields.registry import FIELDS, FIRST_CUSTOM_TYPE_ID
from tokjax.datasets.fields.text_fields import BucketedTokenField, RawTextField
from tokjax.datasets.manifest import (
    DROPPED,
    FORMAT,
    MANIFEST_FILE,
    TOTALS,
    WRITE_AGAIN,
    Manifest,
    Plan,
    Shard,
    ShardTable,
    pack_shard,
    parse_file_records,
    parse_shard,
    unseal_contents,
)
from tokjax.errors import DatasetCorruptError, DatasetIncompleteError, Hint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokjax._util.atomic_files import FileIdentity
    from tokjax.datasets.manifest import FileRecord


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
    contents = unseal_contents(data, path, FORMAT, WRITE_AGAIN, _parse_json)
    try:
        totals = {name: contents.pop(name) for name in TOTALS if name in contents or name != DROPPED}
        plan = Plan(**contents.pop("plan"))
        rows = [
            row if isinstance(row, bytes) else pack_shard(parse_shard(row)) for row in contents.pop("shards")
        ]
        files = parse_file_records(contents.pop("files"))
        manifest = Manifest(plan=plan, shards=ShardTable(rows), files=files, **contents)
        _check_types(manifest)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DatasetCorruptError(f"{path} has a missing or invalid field: {error}") from error
    for name, total in totals.items():
        if total != getattr(manifest, name):
            raise DatasetCorruptError(
                f"{path}: the total {name} is {total}, but its shards add up to {getattr(manifest, name)}"
            )
    return manifest


def _parse_json(data: bytes) -> Any:
    """Parses the JSON of a manifest. Each shard becomes a row of a `ShardTable` as soon as it is parsed."""
    return json.loads(data, object_pairs_hook=_pack_if_shard)


def _pack_if_shard(pairs: list[tuple[str, Any]]) -> dict[str, Any] | bytes:
    described = dict(pairs)
    if described.keys() | {DROPPED} != {*Shard.__slots__}:
        return described
    try:
        return pack_shard(parse_shard(described))
    except (TypeError, ValueError, AttributeError):  # (rejected when the shards are parsed)
        return described


def _check_types(manifest: Manifest) -> None:
    """Raises `ValueError` for a value that no writer produces."""
    _check_plan(manifest.plan)
    _check("tokenizer_file", manifest.tokenizer_file, manifest.tokenizer_file in (None, *manifest.files))
    _check("source", manifest.source, _is_source(manifest.source))
    _check("num_skipped", manifest.num_skipped, _is_count(manifest.num_skipped))
    _check_files(manifest.files)
    names = set()
    for shard in manifest.shards:  # (one pass: a `ShardTable` builds each object on access)
        _check_shard(shard, manifest.plan)
        _check_name(shard.name)
        _check_files(shard.files)
        names.add(shard.name)
    if len(names) != len(manifest.shards):
        _check("shards", [shard.name for shard in manifest.shards], is_valid=False)


def _check_files(files: Mapping[str, FileRecord]) -> None:
    for name, record in files.items():
        _check_name(name)
        _check(f"the size of {name}", record.nbytes, _is_count(record.nbytes))
        _check(f"the SHA-256 of {name}", record.sha256, isinstance(record.sha256, str))


def _check_name(name: str) -> None:
    if "/" in name or "\\" in name or name in ("", ".", ".."):
        raise ValueError(f"it names a file outside its directory: {name!r}")


def _check_plan(plan: Plan) -> None:
    is_text = plan.type_id == RawTextField.TYPE_ID
    _check("plan.field", plan.field, isinstance(plan.field, str))
    _check("plan.type_id", plan.type_id, _is_count(plan.type_id))
    _check("plan.options", plan.options, isinstance(plan.options, dict))
    _check("plan.data_dtype", plan.data_dtype, plan.data_dtype in ("uint8", "uint16", "uint32"))
    _check("plan.shard_size", plan.shard_size, _is_count(plan.shard_size))
    columns = parse_columns(plan.columns)
    _check("plan.columns", plan.columns, not is_text or all(column.per == "document" for column in columns))
    if plan.type_id not in FIELDS and plan.type_id < FIRST_CUSTOM_TYPE_ID:
        return
    _check("plan.vocab_size", plan.vocab_size, is_text or _is_count(plan.vocab_size))
    fingerprint = plan.tokenizer_fingerprint
    _check("plan.tokenizer_fingerprint", fingerprint, isinstance(fingerprint, type(None) if is_text else str))
    if plan.type_id < FIRST_CUSTOM_TYPE_ID:  # (a custom field checks its own options)
        _check_options(plan)


def _check_options(plan: Plan) -> None:
    expected = {field.name for field in dataclasses.fields(FIELDS[plan.type_id])} - {"tokenizer", "columns"}
    for name in sorted((expected ^ plan.options.keys()) - (expected & _LATER_OPTIONS)):
        raise ValueError(f"plan.options {'lacks' if name in expected else 'has an unknown'} {name!r}")
    for name, value in plan.options.items():
        _check(f"plan.options[{name!r}]", value, _IS_OPTION[name](value))
    if plan.type_id == BucketedTokenField.TYPE_ID:
        boundaries, maximum = plan.options["bucket_boundaries"], plan.options["max_tokens"]
        is_valid = boundaries == sorted(set(boundaries)) and boundaries[-1:] == [maximum]
        _check("plan.options['bucket_boundaries']", boundaries, is_valid)


def _check_shard(shard: Shard, plan: Plan) -> None:
    _check("a shard's name", shard.name, isinstance(shard.name, str))
    for name in TOTALS:
        _check(f"{shard.name}'s {name}", getattr(shard, name), _is_count(getattr(shard, name)))
    _check(f"{shard.name}'s source_sha256", shard.source_sha256, isinstance(shard.source_sha256, str))
    _check(f"{shard.name}'s is_numbered", shard.is_numbered, isinstance(shard.is_numbered, bool))
    buckets = shard.bucket_documents
    is_valid = buckets is None
    if plan.type_id == BucketedTokenField.TYPE_ID:
        count = len(plan.options["bucket_boundaries"])
        is_valid = buckets is not None and len(buckets) == count and all(map(_is_count, buckets))
        is_valid = is_valid and sum(buckets or ()) == shard.num_documents
    _check(f"{shard.name}'s bucket_documents", buckets, is_valid)
    bits = {f".{column['name']}.npy": (column["per"], column["bits"]) for column in plan.columns}
    for name, record in shard.files.items():
        if name.startswith(shard.name):
            _check_capacity(name, record.nbytes, shard, bits)


def _check_capacity(name: str, nbytes: int, shard: Shard, columns: Mapping[str, tuple[str, int]]) -> None:
    """Raises `ValueError` if a file is too small for the counts of its shard, before arrays are allocated.

    Args:
        name: name of the file.
        nbytes: size of the file.
        shard: description of the shard.
        columns: `per` and `bits` of each side column, by the suffix of its files.
    """
    per, bits = columns.get(name.removeprefix(shard.name), ("document", 8))
    is_data = name.endswith((".tokens.npy", ".text.npy")) or per == "token"
    count_name = "num_items" if is_data else "num_documents"
    count = getattr(shard, count_name)
    if _is_count(nbytes) and 8 * nbytes < bits * count:
        raise ValueError(f"{shard.name}'s {count_name} is {count}, and {name} has {nbytes} bytes")


def _is_source(source: object) -> bool:
    if source is None:
        return True
    if not isinstance(source, Mapping):
        return False
    if source.keys() == {"converted", "num_bytes"}:
        return isinstance(source["converted"], str) and _is_count(source["num_bytes"])
    return (
        source.keys() == {"files", "format", "field", "separator"}
        and isinstance(source["files"], list)
        and all(map(_is_source_file, source["files"]))
        and source["format"] in get_args(FileFormat)
        and isinstance(source["field"], str)
        and isinstance(source["separator"], str | None)
    )


def _is_source_file(file: object) -> bool:
    return isinstance(file, list) and len(file) == 2 and isinstance(file[0], str) and _is_count(file[1])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_size(value: object) -> bool:
    return _is_count(value) and value != 0


def _is_limit(value: object) -> bool:
    return value is None or _is_size(value)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_special(value: object) -> bool:
    return isinstance(value, str) or _are_names(value)


def _are_boundaries(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_size, value))


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_IS_OPTION: Mapping[str, Callable[[object], bool]] = {
    "template": _is_text_or_none,
    "variables": lambda value: isinstance(value, dict),
    "variable_keys": _are_names,
    "date": _is_text_or_none,
    "train_on": lambda value: value in get_args(TrainOn),
    "without_targets": lambda value: value in get_args(WithoutTargets),
    "max_chars": _is_limit,
    "max_tokens": _is_limit,
    "chunk_tokens": _is_size,
    "bucket_boundaries": _are_boundaries,
    "add_special_tokens": _is_bool,
    "trust_answers": _is_bool,
    "add_eos_between_docs": _is_bool,
    "allowed_special": _is_special,
    "disallowed_special": _is_special,
}
_LATER_OPTIONS = {"variables", "variable_keys", "date", "train_on", "without_targets", "trust_answers"}
"""Options that datasets of earlier versions do not have."""


def _check(name: str, value: object, is_valid: bool) -> None:
    if not is_valid:
        raise ValueError(f"{name} is {value!r:.200}")
