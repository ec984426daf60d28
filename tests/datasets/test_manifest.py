"""Tests of the compact table of shards."""

import json
import pickle

import pytest

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_manifest_validation import FIELDS, edit_manifest
from tokjax.datasets.manifest import (
    MANIFEST_FILE,
    ShardTable,
    pack_shard,
    parse_shard,
    read_manifest,
    write_manifest,
)


@pytest.fixture(params=["packed", "bucketed"])
def path(request, tmp_path):
    tokjax.write_dataset(CORPUS * 3, FIELDS[request.param], tmp_path / "data", shard_size=40)
    return tmp_path / "data"


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda m: m["shards"][1].update(source_sha256="of another writer"),
        lambda m: m["shards"][1].update(name="another name"),
        lambda m: m.update(shards=m["shards"][::-1]),
    ],
)
def test_table_equals_the_shards(path, change):
    edit_manifest(path, change)
    manifest = read_manifest(path)
    described = json.loads((path / MANIFEST_FILE).read_text())["shards"]
    assert len(manifest.shards) == len(described) > 5
    assert manifest.shards[:] == tuple(map(parse_shard, described)) == tuple(manifest.shards)
    for name in ("num_items", "num_documents", "num_dropped"):
        assert manifest.get_counts(name).tolist() == [shard[name] for shard in described]
    assert list(pickle.loads(pickle.dumps(manifest)).shards) == list(manifest.shards)
    write_manifest(path, manifest)
    again = read_manifest(path)
    assert again == manifest
    assert again.fingerprint == manifest.fingerprint
    assert again.shards != manifest.shards[:-1]


def test_shard_outside_of_the_list(path):
    """A description of a shard elsewhere in the manifest is not one of its shards."""
    edit_manifest(path, lambda m: m["plan"]["options"].update(more=m["shards"][0]))
    with pytest.raises(tokjax.errors.DatasetCorruptError):
        tokjax.open_dataset(path)


def test_memory(path):
    rows = [pack_shard(shard) for shard in read_manifest(path).shards] * 100
    assert len(pickle.dumps(ShardTable(rows[:1000]))) < 350 * 1000
    assert sum(map(len, rows)) < 350 * len(rows)
