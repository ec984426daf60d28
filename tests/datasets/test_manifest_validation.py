"""Manifests that no writer wrote, with a checksum that is right: refused when they are opened, by name."""

import dataclasses
import json
import pickle

import pytest

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_conversion import TOKENIZER
from tokjax._util.files import compute_json_checksum
from tokjax.datasets.manifest import MANIFEST_FILE, parse_shard, write_manifest
from tokjax.datasets.manifest_validation import read_manifest
from tokjax.datasets.shard_table import ShardTable, parse_with_shards

FIELDS = {
    "raw": tokjax.RawTextField(),
    "tokenized": tokjax.TokenizedTextField(TOKENIZER),
    "packed": tokjax.PackedTokenField(TOKENIZER),
    "bucketed": tokjax.BucketedTokenField(TOKENIZER, bucket_boundaries=[20, 60], max_tokens=100),
}


def edit_manifest(path, change):
    """Alter a manifest, and seal it again."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.pop("checksum")
    change(manifest)
    manifest["checksum"] = compute_json_checksum(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def options(**changes):
    return lambda manifest: manifest["plan"]["options"].update(changes)


def shard(**changes):
    return lambda manifest: manifest["shards"][0].update(changes)


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("packed", lambda m: m["plan"].update(options={}), "plan.options lacks '(chunk_tokens|a.*)'"),
        ("packed", lambda m: m["plan"]["options"].pop("chunk_tokens"), "plan.options lacks 'chunk_tokens'"),
        ("packed", options(chunk_size=3), "plan.options has an unknown 'chunk_size'"),
        ("packed", options(chunk_tokens="x"), r"plan.options\['chunk_tokens'\] is 'x'"),
        ("packed", options(chunk_tokens=0), r"plan.options\['chunk_tokens'\] is 0"),
        ("packed", options(add_eos_between_docs=1), r"plan.options\['add_eos_between_docs'\] is 1"),
        ("packed", options(allowed_special=[1]), r"plan.options\['allowed_special'\] is \[1\]"),
        ("tokenized", options(max_tokens=True), r"plan.options\['max_tokens'\] is True"),
        ("tokenized", options(add_special_tokens=None), r"plan.options\['add_special_tokens'\] is None"),
        ("raw", options(max_chars=-1), r"plan.options\['max_chars'\] is -1"),
        ("bucketed", options(bucket_boundaries=8), r"plan.options\['bucket_boundaries'\] is 8"),
        ("bucketed", options(bucket_boundaries=[]), r"plan.options\['bucket_boundaries'\] is \[\]"),
        ("bucketed", options(bucket_boundaries=[60, 20, 100]), r"'bucket_boundaries'\] is \[60, 20, 100\]"),
        ("bucketed", options(max_tokens=None), r"plan.options\['bucket_boundaries'\] is \[20, 60, 100\]"),
        ("bucketed", shard(bucket_documents=None), "shard-00000's bucket_documents is None"),
        ("bucketed", shard(bucket_documents=[6]), r"shard-00000's bucket_documents is \(6,\)"),
        ("packed", shard(bucket_documents=[6]), r"shard-00000's bucket_documents is \(6,\)"),
        ("packed", shard(is_numbered=1), "shard-00000's is_numbered is 1"),
        ("packed", shard(name=5), "a shard's name is 5"),
        ("packed", shard(num_bytes=1 << 62), "shard-00000's num_bytes is 4611686018427387904"),
        (
            "packed",
            shard(num_documents=10**12),
            r"num_documents is 10{12}, and .*num_tokens.npy has \d+ bytes",
        ),
        ("packed", shard(num_items=10**12), r"num_items is 10{12}, and .*tokens.npy has \d+ bytes"),
        ("raw", shard(num_documents=10**12), r"num_documents is 10{12}, and .*length.npy has \d+ bytes"),
        (
            "packed",
            lambda m: m["shards"].append(m["shards"][0]),
            r"shards is \['shard-00000', 'shard-00000'\]",
        ),
        ("packed", lambda m: m["plan"].update(data_dtype="int32"), "plan.data_dtype is 'int32'"),
        ("packed", shard(num_dropped=-1), "shard-00000's num_dropped is -1"),
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
        ("packed", lambda m: next(iter(m["files"].values())).__setitem__(1, 7), "the SHA-256 of .* is 7"),
    ],
)
def test_invalid_manifests_are_rejected(tmp_path, field, change, message):
    text, path = tmp_path / "a.txt", tmp_path / "data"
    text.write_text("|".join(CORPUS))
    tokjax.write_dataset(text, FIELDS[field], path, separator="|")
    edit_manifest(path, change)
    with pytest.raises(
        tokjax.errors.DatasetCorruptError, match=f"lacks a field, or has a wrong one: .*{message}"
    ):
        tokjax.open_dataset(path)


def test_a_tokenizer_s_file_is_one_of_the_files(tmp_path):
    tokjax.write_dataset(CORPUS, FIELDS["packed"], tmp_path / "data")
    edit_manifest(tmp_path / "data", lambda m: m["files"].clear())
    with pytest.raises(
        tokjax.errors.DatasetCorruptError, match=r"tokenizer_file is 'tokenizer\.tokjax\.json'"
    ):
        tokjax.open_dataset(tmp_path / "data")


@pytest.mark.parametrize("dtype", ["uint8", "uint32"])
def test_ids_of_any_size_are_accepted(tmp_path, dtype):
    tokjax.write_dataset(CORPUS, FIELDS["packed"], tmp_path / "data")
    edit_manifest(tmp_path / "data", lambda m: m["plan"].update(data_dtype=dtype))
    dataset = tokjax.open_dataset(tmp_path / "data")
    with pytest.raises(
        tokjax.errors.DatasetCorruptError, match=f"of uint16, the manifest says .* of {dtype}"
    ):
        dataset[0]


@pytest.mark.parametrize("field", FIELDS)
def test_what_writers_write_is_accepted(tmp_path, field):
    tokjax.write_dataset(CORPUS, FIELDS[field], tmp_path / "data")
    edit_manifest(tmp_path / "data", lambda _: None)
    assert len(tokjax.open_dataset(tmp_path / "data")) == len(CORPUS)


class TestManyShards:
    """Shards are kept in a table, and come out of it as they were written."""

    @pytest.fixture(params=["packed", "bucketed"])
    def path(self, request, tmp_path):
        tokjax.write_dataset(CORPUS * 3, FIELDS[request.param], tmp_path / "data", shard_size=40)
        return tmp_path / "data"

    def test_of_a_table(self, path):
        manifest = read_manifest(path)
        assert isinstance(manifest.shards, ShardTable)
        described = json.loads((path / MANIFEST_FILE).read_text())["shards"]
        assert len(manifest.shards) == len(described) > 5
        assert manifest.shards[:] == tuple(map(parse_shard, described)) == tuple(manifest.shards)
        assert manifest.shards[-1] == manifest.shards[len(described) - 1]
        for name in ("num_items", "num_documents", "num_dropped"):
            assert list(manifest.get_counts(name)) == [shard[name] for shard in described]
        assert manifest.shards == manifest.shards[:]
        assert manifest.shards != manifest.shards[:-1]
        as_objects = dataclasses.replace(manifest, shards=manifest.shards[:])
        assert as_objects.fingerprint == manifest.fingerprint
        assert as_objects.num_bytes == manifest.num_bytes
        assert list(pickle.loads(pickle.dumps(manifest)).shards) == list(manifest.shards)
        with pytest.raises(IndexError):
            manifest.shards[len(described)]

    def test_that_are_written_again(self, path):
        before = (path / MANIFEST_FILE).read_bytes()
        write_manifest(path, read_manifest(path))
        assert (path / MANIFEST_FILE).read_bytes() == before

    @pytest.mark.parametrize(
        "change",
        [
            lambda m: m["shards"][1].update(source_sha256="of another writer"),
            lambda m: m["shards"][1].update(name="another name"),
            lambda m: m.update(shards=m["shards"][::-1]),
        ],
    )
    def test_of_another_writer(self, path, change):
        edit_manifest(path, change)
        described = json.loads((path / MANIFEST_FILE).read_text())["shards"]
        assert list(read_manifest(path).shards) == list(map(parse_shard, described))

    def test_elsewhere_in_a_manifest(self, path):
        """A description of a shard elsewhere takes no part."""
        edit_manifest(path, lambda m: m["plan"]["options"].update(more=m["shards"][0]))
        with pytest.raises(tokjax.errors.DatasetCorruptError):
            tokjax.open_dataset(path)

    def test_take_little_memory(self, path):
        described = json.loads((path / MANIFEST_FILE).read_text())["shards"][0]
        many = [
            {
                **described,
                "name": f"shard-{i:05d}",
                "files": {
                    name.replace("00000", f"{i:05d}"): record for name, record in described["files"].items()
                },
            }
            for i in range(1000)
        ]
        table = parse_with_shards(json.dumps({"shards": many}).encode())["shards"]
        assert len(pickle.dumps(table)) < 250 * 1000
        assert list(table) == list(map(parse_shard, many))
