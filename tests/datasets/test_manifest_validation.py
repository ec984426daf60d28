"""Tests of manifests with a correct checksum that no writer produces."""

import json

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
    "bucketed": tokjax.BucketedTokenField(TOKENIZER, bucket_boundaries=[20, 60], max_tokens=100),
}


def edit_manifest(path, change):
    """Changes a manifest, and recomputes its checksum."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.pop("checksum")
    change(manifest)
    manifest["checksum"] = compute_json_checksum(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def set_options(**changes):
    return lambda manifest: manifest["plan"]["options"].update(changes)


def set_shard(**changes):
    return lambda manifest: manifest["shards"][0].update(changes)


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("packed", lambda m: m.update(tokenizer_file="../t.json"), r"tokenizer_file is '\.\./t\.json'"),
        ("packed", lambda m: m["shards"][0]["files"].update({"/etc/passwd": [3, "0"]}), "'/etc/passwd'"),
        ("packed", set_shard(name="../x"), "outside its directory"),
        ("packed", lambda m: m.pop("num_items"), "num_items"),
        ("packed", set_shard(num_documents="3"), "num_documents is '3'"),
        ("packed", set_shard(num_items=-1), "num_items is -1"),
        ("packed", set_shard(bucket_documents=[1, -1]), "bucket_documents is"),
        ("packed", lambda m: m["plan"].update(options=[]), "options is"),
        ("packed", lambda m: m["plan"].update(options={}), "plan.options lacks '(chunk_tokens|a.*)'"),
        ("packed", lambda m: m["plan"]["options"].pop("chunk_tokens"), "plan.options lacks 'chunk_tokens'"),
        ("packed", set_options(chunk_size=3), "plan.options has an unknown 'chunk_size'"),
        ("packed", set_options(chunk_tokens="x"), "plan.options: chunk_tokens must be an integer, not 'x'"),
        ("packed", set_options(chunk_tokens=0), "plan.options: chunk_tokens must be at least 1, not 0"),
        ("packed", set_options(add_eos_between_docs=1), r"plan.options\['add_eos_between_docs'\] is 1"),
        (
            "packed",
            set_options(allowed_special=[1]),
            r"plan.options: allowed_special must be names .*, not \[1\]",
        ),
        ("tokenized", set_options(max_tokens=True), "plan.options: max_tokens must be an integer, not True"),
        ("tokenized", set_options(add_special_tokens=None), r"plan.options\['add_special_tokens'\] is None"),
        ("raw", set_options(max_chars=-1), "plan.options: max_chars must be at least 1, not -1"),
        (
            "bucketed",
            set_options(bucket_boundaries=8),
            "plan.options: bucket_boundaries must be integers, .*, not 8",
        ),
        ("bucketed", set_options(bucket_boundaries=[]), r"plan.options\['bucket_boundaries'\] is \[\]"),
        (
            "bucketed",
            set_options(bucket_boundaries=[60, 20, 100]),
            r"'bucket_boundaries'\] is \[60, 20, 100\]",
        ),
        ("bucketed", set_options(max_tokens=None), "plan.options: max_tokens must be an integer, not None"),
        ("bucketed", set_shard(bucket_documents=None), "shard-00000's bucket_documents is None"),
        ("bucketed", set_shard(bucket_documents=[6]), r"shard-00000's bucket_documents is \(6,\)"),
        ("packed", set_shard(bucket_documents=[6]), r"shard-00000's bucket_documents is \(6,\)"),
        ("packed", set_shard(is_numbered=1), "shard-00000's is_numbered is 1"),
        ("packed", set_shard(name=5), "a shard's name is 5"),
        ("packed", set_shard(num_bytes=1 << 62), "shard-00000's num_bytes is 4611686018427387904"),
        (
            "packed",
            set_shard(num_documents=10**12),
            r"num_documents is 10{12}, and .*num_tokens.npy has \d+ bytes",
        ),
        ("packed", set_shard(num_items=10**12), r"num_items is 10{12}, and .*tokens.npy has \d+ bytes"),
        ("raw", set_shard(num_documents=10**12), r"num_documents is 10{12}, and .*length.npy has \d+ bytes"),
        (
            "packed",
            lambda m: m["shards"].append(m["shards"][0]),
            r"shards is \['shard-00000', 'shard-00000'\]",
        ),
        ("packed", lambda m: m["plan"].update(data_dtype="int32"), "plan.data_dtype is 'int32'"),
        ("packed", set_shard(num_dropped=-1), "shard-00000's num_dropped is -1"),
        ("packed", lambda m: m.update(source=5), "source is 5"),
        ("packed", lambda m: m.update(source={"files": [1]}), r"source is {'files': \[1\]}"),
        ("packed", lambda m: m["source"].update(files=[1]), r"source is {'files': \[1\]"),
        ("packed", lambda m: m["source"].update(separator=1), "source is .*'separator': 1"),
        ("packed", lambda m: m.update(source={"converted": 1, "num_bytes": 1}), "source is {'converted': 1"),
        ("packed", lambda m: m.update(tokenizer_file="none.json"), r"tokenizer_file is 'none\.json'"),
        ("packed", lambda m: m.update(tokenizer_file=5), "tokenizer_file is 5"),
        ("packed", lambda m: m["plan"].update(tokenizer_fingerprint=None), "tokenizer_fingerprint is None"),
        ("raw", lambda m: m["plan"].update(tokenizer_fingerprint="x"), "tokenizer_fingerprint is 'x'"),
        ("packed", lambda m: m["plan"].update(vocab_size=None), "plan.vocab_size is None"),
        ("packed", lambda m: next(iter(m["files"].values())).__setitem__(1, 7), "the sha256 of .* is 7"),
    ],
)
def test_invalid_manifests_are_rejected(tmp_path, field, change, message):
    text, path = tmp_path / "a.txt", tmp_path / "data"
    text.write_text("|".join(CORPUS))
    tokjax.write_dataset(text, FIELDS[field], path, separator="|")
    edit_manifest(path, change)
    with pytest.raises(DatasetCorruptError, match=f"has a missing or invalid field: .*{message}"):
        tokjax.open_dataset(path)


def test_totals_must_be_those_of_the_shards(tmp_path):
    tokjax.write_dataset(CORPUS, FIELDS["packed"], tmp_path / "data")
    edit_manifest(tmp_path / "data", lambda m: m.update(num_items=7))
    with pytest.raises(DatasetCorruptError, match="total num_items is 7, but its shards"):
        tokjax.open_dataset(tmp_path / "data")


def test_tokenizer_file_must_be_listed(tmp_path):
    tokjax.write_dataset(CORPUS, FIELDS["packed"], tmp_path / "data")
    edit_manifest(tmp_path / "data", lambda m: m["files"].clear())
    with pytest.raises(DatasetCorruptError, match=r"tokenizer_file is 'tokenizer\.tokjax\.json'"):
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
