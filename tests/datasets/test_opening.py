"""Tests of opening datasets, and of changes to their directory while they are open."""

import pickle
import shutil

import pytest

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_open_shards import FIELD
from tokjax.errors import DatasetCorruptError, DatasetIncompleteError, DatasetMismatchError


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
