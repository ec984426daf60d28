"""Tests of opening datasets, of changes to their directory since, and of the limit on open shards."""

import pickle
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_conversion import TOKENIZER
from tokjax.datasets.downloads import get_max_held_shards, get_max_open_shards
from tokjax.errors import DatasetCorruptError, DatasetIncompleteError, DatasetMismatchError

FIELD = tokjax.PackedTokenField(TOKENIZER, chunk_tokens=4)

LOADING = """
import resource, sys
import numpy as np
import tokjax

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
loader = tokjax.PackedTokenLoader([tokjax.open_dataset(path) for path in sys.argv[1:]], batch_size=64, seed=3)
print(sum(int(np.sum(batch.ids * np.arange(1, 5))) for batch in loader))
"""
"""Prints a sum of the batches, which depends on their order."""


def test_limit_is_shared_by_all_datasets(tmp_path):
    """Three datasets of forty shards each; each batch has more shards than may be open."""
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        texts = [f"{number} {i:04d}" for i in range(40)]
        tokjax.write_dataset(texts, FIELD, path, shard_size=1)
    command = [sys.executable, "-c", LOADING, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-300:]
    loader = tokjax.PackedTokenLoader([tokjax.open_dataset(path) for path in paths], batch_size=64, seed=3)
    assert int(done.stdout) == sum(int(np.sum(batch.ids * np.arange(1, 5))) for batch in loader) > 0


@pytest.mark.parametrize(
    ("files", "max_open", "max_held"),
    [(1000, 500, 125), (2**20, 1024, 256), (9, 4, 1), (1, 1, 1), (resource.RLIM_INFINITY, 1024, 256)],
)
def test_limits_follow_the_file_limit(monkeypatch, files, max_open, max_held):
    monkeypatch.setattr("resource.getrlimit", lambda _: (files, resource.RLIM_INFINITY))
    assert (get_max_open_shards(), get_max_held_shards()) == (max_open, max_held)


def test_unknown_file_limit(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)  # (as on Windows)
    assert get_max_open_shards() == 512


def test_deleted_datasets_free_their_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.downloads._MAX_OPEN", 4)
    tokjax.write_dataset(CORPUS, FIELD, tmp_path / "data", shard_size=1)
    for _ in range(3):
        dataset = tokjax.open_dataset(tmp_path / "data")
        assert len(dataset.read(0, dataset.num_tokens)) == dataset.num_tokens
        assert [dataset._open_shards.get((i, "tokens")) is not None for i in range(6)] == [False] * 2 + [
            True
        ] * 4


def test_missing_dataset(tmp_path):
    with pytest.raises(DatasetIncompleteError, match="the path does not exist; write it with write_dataset"):
        tokjax.open_dataset(tmp_path / "data")
    with pytest.raises(DatasetIncompleteError, match=r"has no manifest\.json"):
        tokjax.open_dataset(tmp_path)


def test_different_tokenizer_is_rejected(written, plain_tokenizer, tokenizer):
    with pytest.raises(DatasetMismatchError) as error:
        tokjax.open_dataset(written, plain_tokenizer)
    assert tokjax.fingerprint(tokenizer) in str(error.value)
    assert tokjax.fingerprint(plain_tokenizer) in str(error.value)


def test_type_of_the_dataset(tmp_path, tokenizer):
    tokjax.write_dataset(["a", "b"], tokjax.RawTextField(), tmp_path / "texts")
    texts = tokjax.open_dataset(tmp_path / "texts", tokenizer, dataset_type=tokjax.datasets.RawTextDataset)
    assert (texts[0], texts.vocab_size) == ("a", tokjax.vocab_size(tokenizer))
    with pytest.raises(
        DatasetMismatchError,
        match="texts is a RawTextDataset, written with RawTextField, not a PackedDataset; pass",
    ):
        tokjax.open_dataset(tmp_path / "texts", dataset_type=tokjax.datasets.PackedDataset)


def test_relative_path_after_chdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokjax.write_dataset(CORPUS, FIELD, "data", shard_size=30)
    dataset = tokjax.open_dataset("data")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(dataset.read(0, dataset.num_tokens)) == dataset.num_tokens
    assert len(pickle.loads(pickle.dumps(dataset))[0]) == len(dataset[0])
    assert dataset.path == tmp_path / "data"


@pytest.mark.parametrize("verify", [True, False])
class TestReplacedDataset:
    @pytest.fixture
    def opened(self, tmp_path, verify):
        tokjax.write_dataset(["aaaa", "bbbb"], FIELD, tmp_path / "data", shard_size=1)
        dataset = tokjax.open_dataset(tmp_path / "data", verify_on_touch=verify)
        assert dataset[0].tolist() == [*b"aaaa", 257]
        return dataset

    def test_other_contents_are_not_read(self, opened):
        before = pickle.dumps(opened)
        tokjax.write_dataset(["cccc", "dddd"], FIELD, opened.path, shard_size=1, overwrite=True)
        assert opened[0].tolist() == [*b"aaaa", 257]  # (the shard is open already)
        for read in (lambda: opened[1], lambda: pickle.loads(before)[1], opened.verify):
            with pytest.raises(
                DatasetCorruptError,
                match="data was replaced by another dataset after it was opened",
            ):
                read()

    def test_equal_contents_are_read(self, opened):
        tokjax.write_dataset(["aaaa", "bbbb"], FIELD, opened.path, shard_size=1, overwrite=True)
        assert opened[1].tolist() == [*b"bbbb", 257]

    def test_deleted_directory(self, opened):
        shutil.rmtree(opened.path)
        with pytest.raises(DatasetCorruptError, match="data was moved or deleted after it was opened"):
            opened[1]
