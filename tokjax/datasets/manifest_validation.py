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
import functools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from tokjax._util.atomic_files import NotRegularFileError, get_identity, open_regular
from tokjax.corpus.files import FileFormat
from tokjax.datasets.columns import parse_columns
from tokjax.datasets.fields.registry import FIELDS, FIRST_CUSTOM_TYPE_ID, make_field
from tokjax.datasets.fields.text_fields import (
    BucketedTokenField,
    RawTextField,
    SentencePieceTextField,
    TokenizedTextField,
)
from tokjax.datasets.manifest import (
    DROPPED,
    FORMAT,
    MANIFEST_FILE,
    SKIPPED,
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
from tokjax.models.byte_level import byte_level

if TYPE_CHECKING:
    from pathlib import Path

    from tokjax._util.atomic_files import FileIdentity
    from tokjax.datasets.columns import Column
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
    for shard in manifest.shards:  # (one pass: a `ShardTable` builds each object on access)
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
