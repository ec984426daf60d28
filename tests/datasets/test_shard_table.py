"""Tests of the compact table of shards."""

import dataclasses
import json
import pickle

import pytest

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_manifest_validation import FIELDS, edit_manifest
from tokjax.datasets.manifest import MANIFEST_FILE, parse_shard, write_manifest
from tokjax.datasets.manifest_validation import read_manifest
from tokjax.datasets.shard_table import ShardTable, parse_with_shards


class TestShardTable:
    """A table returns the shards that were parsed."""

    @pytest.fixture(params=["packed", "bucketed"])
    def path(self, request, tmp_path):
        tokjax.write_dataset(CORPUS * 3, FIELDS[request.param], tmp_path / "data", shard_size=40)
        return tmp_path / "data"

    def test_table_equals_the_shards(self, path):
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

    def test_round_trip(self, path):
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
    def test_unusual_names_and_checksums(self, path, change):
        edit_manifest(path, change)
        described = json.loads((path / MANIFEST_FILE).read_text())["shards"]
        assert list(read_manifest(path).shards) == list(map(parse_shard, described))

    def test_shard_outside_of_the_list(self, path):
        """A description of a shard elsewhere in the manifest is not one of its shards."""
        edit_manifest(path, lambda m: m["plan"]["options"].update(more=m["shards"][0]))
        with pytest.raises(tokjax.errors.DatasetCorruptError):
            tokjax.open_dataset(path)

    def test_memory(self, path):
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
