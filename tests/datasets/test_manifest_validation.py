"""Tests of manifests with a correct checksum that no writer produces."""

import functools
import json
import operator

import pytest

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_conversion import TOKENIZER
from tokjax._util.atomic_files import compute_json_checksum
from tokjax.errors import DatasetCorruptError

FIELDS = {
    "raw": tokjax.RawTextField(),
    "tokenized": tokjax.TokenizedTextField(TOKENIZER),
    "packed": tokjax.PackedTokenField(TOKENIZER),
    "bucketed": tokjax.datasets.BucketedTokenField(TOKENIZER, bucket_boundaries=[20, 60], max_tokens=100),
}


def edit_manifest(path, change):
    """Changes a manifest, and recomputes its checksum."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.pop("checksum")
    change(manifest)
    manifest["checksum"] = compute_json_checksum(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


PLAN, OPTIONS, SHARD = ("plan",), ("plan", "options"), ("shards", 0)
"""Keys that lead to a part of a manifest."""
MISSING = object()


@pytest.mark.parametrize(
    ("field", "keys", "value", "message"),
    [
        ("packed", (*SHARD, "files", "/etc/passwd"), [3, "0"], "'/etc/passwd'"),
        ("packed", (*SHARD, "files", "a"), [3, 7], "the sha256 of a is 7"),
        ("packed", (*SHARD, "name"), "../x", "outside its directory"),
        ("packed", (*SHARD, "name"), 5, "a shard's name is 5"),
        ("packed", (*SHARD, "num_documents"), "3", "num_documents is '3'"),
        ("packed", (*SHARD, "num_dropped"), -1, "shard-00000's num_dropped is -1"),
        ("packed", (*SHARD, "num_bytes"), 1 << 62, "shard-00000's num_bytes is 4611686018427387904"),
        ("packed", (*SHARD, "is_numbered"), 1, "shard-00000's is_numbered is 1"),
        ("packed", (*SHARD, "bucket_documents"), [1, -1], "bucket_documents is"),
        ("packed", (*SHARD, "bucket_documents"), [6], r"shard-00000's bucket_documents is \(6,\)"),
        ("bucketed", (*SHARD, "bucket_documents"), None, "shard-00000's bucket_documents is None"),
        ("bucketed", (*SHARD, "bucket_documents"), [6], r"shard-00000's bucket_documents is \(6,\)"),
        ("packed", (*SHARD, "num_documents"), 10**12, r"num_documents is 10{12}, .*num_tokens.npy has \d+"),
        ("packed", (*SHARD, "num_items"), 10**12, r"num_items is 10{12}, and .*tokens.npy has \d+ bytes"),
        ("raw", (*SHARD, "num_documents"), 10**12, r"num_documents is 10{12}, and .*length.npy has \d+ b"),
        ("packed", ("num_items",), MISSING, "num_items"),
        ("packed", (*PLAN, "options"), [], "options is"),
        ("packed", (*PLAN, "data_dtype"), "int32", "plan.data_dtype is 'int32'"),
        ("packed", (*PLAN, "tokenizer_fingerprint"), None, "tokenizer_fingerprint is None"),
        ("raw", (*PLAN, "tokenizer_fingerprint"), "x", "tokenizer_fingerprint is 'x'"),
        ("packed", (*PLAN, "vocab_size"), None, "plan.vocab_size is None"),
        ("packed", (*OPTIONS, "chunk_tokens"), MISSING, "plan.options lacks 'chunk_tokens'"),
        ("packed", (*OPTIONS, "chunk_size"), 3, "plan.options has an unknown 'chunk_size'"),
        ("packed", (*OPTIONS, "chunk_tokens"), 0, "plan.options: chunk_tokens must be at least 1, not 0"),
        ("packed", (*OPTIONS, "add_eos_between_docs"), 1, r"options\['add_eos_between_docs'\] is 1"),
        ("packed", (*OPTIONS, "allowed_special"), [1], "allowed_special must be a list of names, .* is 1"),
        ("tokenized", (*OPTIONS, "max_tokens"), True, "max_tokens must be an integer, not True"),
        ("bucketed", (*OPTIONS, "bucket_boundaries"), [60, 20, 100], r"boundaries'\] is \[60, 20, 100\]"),
        ("packed", ("source",), 5, "source is 5"),
        ("packed", ("source",), {"converted": 1, "num_bytes": 1}, "source is {'converted': 1"),
        ("packed", ("source", "files"), [1], r"source is {'files': \[1\]"),
        ("packed", ("source", "separator"), 1, "source is .*'separator': 1"),
        ("packed", ("tokenizer_file",), "../t.json", r"tokenizer_file is '\.\./t\.json'"),
        ("packed", ("tokenizer_file",), 5, "tokenizer_file is 5"),
        ("packed", ("files",), {}, r"tokenizer_file is 'tokenizer\.tokjax\.json'"),
        ("packed", ("shards", 1), 0, r"shards is \['shard-00000', 'shard-00000'\]"),
    ],
)
def test_invalid_manifests_are_rejected(tmp_path, field, keys, value, message):
    text, path = tmp_path / "a.txt", tmp_path / "data"
    text.write_text("|".join(CORPUS))
    tokjax.write_dataset(text, FIELDS[field], path, separator="|")

    def change(manifest):
        *outer, last = keys
        part = functools.reduce(operator.getitem, outer, manifest)
        if value is MISSING:
            del part[last]
        elif isinstance(part, list):
            part.append(part[value])
        else:
            part[last] = value

    edit_manifest(path, change)
    with pytest.raises(DatasetCorruptError, match=f"has a missing or invalid field: .*{message}"):
        tokjax.open_dataset(path)


def test_totals_must_be_those_of_the_shards(tmp_path):
    tokjax.write_dataset(CORPUS, FIELDS["packed"], tmp_path / "data")
    edit_manifest(tmp_path / "data", lambda m: m.update(num_items=7))
    with pytest.raises(DatasetCorruptError, match="total num_items is 7, but its shards"):
        tokjax.open_dataset(tmp_path / "data")


@pytest.mark.parametrize("dtype", ["uint8", "uint32"])
def test_data_dtype_must_match_the_shards(tmp_path, dtype):
    tokjax.write_dataset(CORPUS, FIELDS["packed"], tmp_path / "data")
    edit_manifest(tmp_path / "data", lambda m: m["plan"].update(data_dtype=dtype))
    dataset = tokjax.open_dataset(tmp_path / "data")
    with pytest.raises(DatasetCorruptError, match=f"dtype uint16, the manifest says .* and {dtype}"):
        dataset[0]


@pytest.mark.parametrize("field", FIELDS)
def test_written_manifests_are_accepted(tmp_path, field):
    tokjax.write_dataset(CORPUS, FIELDS[field], tmp_path / "data")
    edit_manifest(tmp_path / "data", lambda _: None)
    assert len(tokjax.open_dataset(tmp_path / "data")) == len(CORPUS)
