"""Datasets while they are open: how many files that takes, and what may become of their place."""

import pickle
import resource
import shutil
import subprocess
import sys

import pytest

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_conversion import TOKENIZER
from tokjax.datasets.open_shards import get_max_held_shards, get_max_open_shards

FIELD = tokjax.PackedTokenField(TOKENIZER, chunk_tokens=4)

LOADING = """
import resource, sys
import numpy as np
import tokjax

limit, *paths = sys.argv[1:]
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(limit), hard))
loader = tokjax.PackedTokenLoader([tokjax.open_dataset(path) for path in paths], batch_size=64, seed=3)
print(sum(int(np.sum(batch.ids * np.arange(1, 5))) for batch in loader))
"""


@pytest.mark.parametrize("limit", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_files_are_bounded_for_all_datasets_together(tmp_path, limit):
    """Three datasets of a hundred shards each, in batches of more shards than may be open."""
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        texts = [f"{number} {i:04d}" for i in range(100)]
        tokjax.write_dataset(texts, FIELD, path, shard_size=1)
    sums = [
        subprocess.run(
            [sys.executable, "-c", LOADING, str(files), *map(str, paths)], capture_output=True, check=False
        )
        for files in (limit, 1000)
    ]
    assert [done.returncode for done in sums] == [0, 0], sums[0].stderr.decode()[-300:]
    assert int(sums[0].stdout) == int(sums[1].stdout) > 0


@pytest.mark.parametrize(
    ("files", "most_open", "most_held"),
    [(1000, 500, 125), (2**20, 1024, 256), (9, 4, 1), (1, 1, 1), (resource.RLIM_INFINITY, 1024, 256)],
)
def test_half_of_the_files_that_a_process_may_have(monkeypatch, files, most_open, most_held):
    monkeypatch.setattr("resource.getrlimit", lambda _: (files, resource.RLIM_INFINITY))
    assert (get_max_open_shards(), get_max_held_shards()) == (most_open, most_held)


def test_unknown_file_limit(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)  # (as on Windows)
    assert get_max_open_shards() == 512


def test_deleted_dataset_frees_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.open_shards._MAX_OPEN", 4)
    tokjax.write_dataset(CORPUS, FIELD, tmp_path / "data", shard_size=1)
    for _ in range(3):
        dataset = tokjax.open_dataset(tmp_path / "data")
        assert len(dataset.read(0, dataset.num_tokens)) == dataset.num_tokens
        assert [dataset._open_shards.get(i) is not None for i in range(6)] == [False] * 2 + [True] * 4


def test_a_relative_path_stays_what_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokjax.write_dataset(CORPUS, FIELD, "data", shard_size=30)
    dataset = tokjax.open_dataset("data")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(dataset.read(0, dataset.num_tokens)) == dataset.num_tokens
    assert len(pickle.loads(pickle.dumps(dataset))[0]) == len(dataset[0])
    assert dataset.path == tmp_path / "data"


@pytest.mark.parametrize("verify", [True, False])
class TestReplacedTokenizer:
    @pytest.fixture
    def opened(self, tmp_path, verify):
        tokjax.write_dataset(["aaaa", "bbbb"], FIELD, tmp_path / "data", shard_size=1)
        dataset = tokjax.open_dataset(tmp_path / "data", verify_on_touch=verify)
        assert dataset[0].tolist() == [*b"aaaa", 257]
        return dataset

    def test_is_not_read(self, opened):
        before = pickle.dumps(opened)
        tokjax.write_dataset(["cccc", "dddd"], FIELD, opened.path, shard_size=1, overwrite=True)
        assert opened[0].tolist() == [*b"aaaa", 257]  # (what is open stays)
        for read in (lambda: opened[1], lambda: pickle.loads(before)[1], opened.verify):
            with pytest.raises(
                tokjax.errors.DatasetCorruptError,
                match="data was replaced by another dataset after it was opened",
            ):
                read()

    def test_is_read_if_it_is_the_same(self, opened):
        tokjax.write_dataset(["aaaa", "bbbb"], FIELD, opened.path, shard_size=1, overwrite=True)
        assert opened[1].tolist() == [*b"bbbb", 257]

    def test_missing_tokenizer(self, opened):
        shutil.rmtree(opened.path)
        with pytest.raises(
            tokjax.errors.DatasetCorruptError, match="data was moved or deleted after it was opened"
        ):
            opened[1]


def test_a_saved_tokenizer_that_was_altered(tmp_path):
    tokjax.write_dataset(CORPUS, FIELD, tmp_path / "data")
    file = tmp_path / "data" / "tokenizer.tokjax.json"
    file.write_bytes(file.read_bytes().replace(b"</s>", b"</t>"))
    with pytest.raises(
        tokjax.errors.DatasetCorruptError, match=r"tokenizer\.tokjax\.json was altered: its SHA-256"
    ):
        tokjax.open_dataset(tmp_path / "data").tokenizer  # noqa: B018
