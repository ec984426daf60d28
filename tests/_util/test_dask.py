"""Tests of writing and counting with a Dask executor, with two worker processes on this machine.

One test kills a worker while a dataset is written.
"""

import os
import signal

import pytest

import tokjax
from tests.conftest import CORPUS
from tests.support.byte_tokenizers import make_byte_tokenizer
from tokjax.trainer import count_pretokens

TOKENIZER = make_byte_tokenizer("</s>", tokens=[b"lo"])
TEXTS = [f"{i} {text}" for i in range(40) for text in CORPUS]
FIELD = tokjax.PackedTokenField(TOKENIZER)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def read_files(path):
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def test_datasets_equal_those_of_local_threads(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", 1000)
    path = tmp_path / "corpus.txt"
    path.write_text("|".join(TEXTS), newline="")
    for name, source in (("texts", TEXTS), ("file", path)):
        local, remote = tmp_path / f"{name} local", tmp_path / f"{name} remote"
        options = {"shard_size": 3000, "separator": "|" if source == path else None}
        tokjax.write_dataset(source, FIELD, local, **options)
        tokjax.write_dataset(source, FIELD, remote, executor=cluster.get_executor(), **options)
        assert read_files(local) == read_files(remote)


def test_killed_worker_does_not_change_dataset(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", 1000)
    killed_worker = next(iter(cluster.run(os.getpid).values()))
    assert killed_worker != os.getpid()

    def texts():
        yield from TEXTS[:100]
        os.kill(killed_worker, signal.SIGKILL)
        yield from TEXTS[100:]

    options = {"shard_size": 3000, "executor": cluster.get_executor()}
    tokjax.write_dataset(texts(), FIELD, tmp_path / "killed", **options)
    tokjax.write_dataset(TEXTS, FIELD, tmp_path / "local", shard_size=3000)
    assert read_files(tmp_path / "local") == read_files(tmp_path / "killed")


def test_counts_equal_those_of_local_threads(cluster, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(TEXTS))
    remote = count_pretokens(path, executor=cluster.get_executor(), progress=False)
    local = count_pretokens(path, progress=False)
    assert dict(remote.items()) == dict(local.items())
