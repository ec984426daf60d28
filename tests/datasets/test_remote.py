"""Tests of datasets at URLs, on fsspec's local and memory file systems."""

import pickle
import re
import sys
import uuid
from pathlib import Path

import pytest

import tokjax
from tests.cli.test_commands import get_output
from tests.datasets.test_resuming import FIELDS, OPTIONS, TEXTS
from tests.support.rejections import rejects
from tokjax.trainer import count_pretokens

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(params=["memory", pytest.param("file", marks=pytest.mark.slow)])
def url(request, tmp_path):
    position = f"/{uuid.uuid4().hex}" if request.param == "memory" else f"{tmp_path}/remote"
    return f"{request.param}://{position}"


def read_files(url):
    system, root = fsspec.core.url_to_fs(url)
    return {path.rsplit("/", 1)[-1]: system.cat_file(path) for path in system.ls(root, detail=False)}


@pytest.mark.parametrize("name", FIELDS)
def test_remote_dataset_equals_local(url, name, tmp_path):
    written = tokjax.write_dataset(TEXTS, FIELDS[name], url, **OPTIONS)
    assert written.path == url
    tokjax.write_dataset(TEXTS, FIELDS[name], tmp_path / "here", **OPTIONS)
    expected = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    assert read_files(url) == expected
    remote, local = tokjax.open_dataset(url), tokjax.open_dataset(tmp_path / "here")
    assert [list(row) for row in remote] == [list(row) for row in local]
    assert remote.field == FIELDS[name]
    remote.verify()
    unpickled = pickle.loads(pickle.dumps(remote))
    assert list(unpickled[3]) == list(local[3])
    assert url in repr(remote)


def test_files_are_downloaded_when_needed(url, tmp_path):
    tokjax.write_dataset(TEXTS, FIELDS["packed"], url, **OPTIONS)
    dataset = tokjax.open_dataset(url, download_dir=tmp_path / "downloads")
    [subdirectory] = (tmp_path / "downloads").iterdir()
    assert not list(subdirectory.iterdir())
    first = dataset.read(0, 10)
    assert [path.name for path in subdirectory.glob("[!.]*")] == ["shard-00000.tokens.npy"]
    system, root = fsspec.core.url_to_fs(url)
    system.rm_file(f"{root}/shard-00000.tokens.npy")
    assert (
        tokjax.open_dataset(url, download_dir=tmp_path / "downloads").read(0, 10).tolist() == first.tolist()
    )
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"shard-00000\.tokens\.npy is missing"):
        tokjax.open_dataset(url).read(0, 10)


def test_changed_files_are_downloaded_again(url, tmp_path):
    for texts in (["aaaa"], ["bbbb"]):
        tokjax.write_dataset(texts, FIELDS["raw"], url, overwrite=True)
        tokjax.write_dataset(texts * 2, FIELDS["raw"], url + "2", overwrite=True)
        for verify in (True, False):
            dataset = tokjax.open_dataset(url, download_dir=tmp_path / "downloads", verify_on_touch=verify)
            assert list(dataset) == texts
            other = tokjax.open_dataset(
                url + "2", download_dir=tmp_path / "downloads", verify_on_touch=verify
            )
            assert list(other) == texts * 2


def test_functions_that_reject_urls(url, tmp_path):
    tokjax.write_dataset(TEXTS, FIELDS["packed"], url)
    for call in (
        lambda: tokjax.datasets.merge_datasets([url], tmp_path / "x"),
        lambda: tokjax.datasets.merge_datasets([tmp_path], url),
        lambda: tokjax.datasets.export_dataset(tokjax.open_dataset(url), url + ".bin"),
        lambda: tokjax.datasets.convert_dataset(tmp_path / "x.bin", FIELDS["packed"].tokenizer, url),
        lambda: tokjax.save_tokenizer(FIELDS["packed"].tokenizer, url),
        lambda: tokjax.formats.export_tokenizer(FIELDS["packed"].tokenizer, url, "gpt2"),
        lambda: tokjax.quick.quick_train_bundle(TEXTS, vocab_size=258, directory=url),
    ):
        with rejects("is a URL; write_dataset and open_dataset"):
            call()


def test_commands(tmp_path):
    url = f"file://{tmp_path}/remote"
    text, tokenizer = (
        tmp_path / "a.txt",
        tokjax.save_tokenizer(FIELDS["packed"].tokenizer, tmp_path / "t.json"),
    )
    text.write_text("low</s>lower</s>")
    get_output("pack", text, "-t", tokenizer, "-o", url)
    assert len(tokjax.open_dataset(url)) == 2
    assert "files verified" in get_output("verify", url)
    assert "PackedTokenField" in get_output("stats", url)


def test_directories_without_a_dataset(url):
    tokjax.write_dataset(TEXTS, FIELDS["packed"], f"{url}/part", **OPTIONS)
    with pytest.raises(
        tokjax.errors.DatasetIncompleteError, match=r"no dataset at .*: it has no manifest\.json$"
    ):
        tokjax.open_dataset(url)
    with pytest.raises(
        tokjax.errors.DatasetIncompleteError, match="the directory is empty or does not exist$"
    ):
        tokjax.open_dataset(f"{url}/none")


def test_messages_name_the_url(url, tmp_path):
    tokjax.write_dataset(TEXTS, FIELDS["packed"], url, **OPTIONS)
    system, root = fsspec.core.url_to_fs(url)
    dataset = tokjax.open_dataset(url)
    message = f"^{url}/manifest.json has at least 101 bytes; the limit is 100;"
    with tokjax.limits(file_bytes=100), pytest.raises(tokjax.errors.DatasetCorruptError, match=message):
        tokjax.open_dataset(url)
    assert tokjax.reports.dataset_report(dataset).path == dataset.location == url
    with rejects(f"^{url} fills no batch"):
        tokjax.datasets.BucketedLoader(
            tokjax.open_dataset(url), batch_size=99, bucket_boundaries=[999], pad_id=0
        )
    for name in ("shard-00001.tokens.npy", "tokenizer.tokjax.json"):
        system.pipe_file(f"{root}/{name}", system.cat_file(f"{root}/{name}")[:-1])
    for read in (dataset.verify, lambda: dataset.tokenizer, lambda: dataset.read(0, dataset.num_tokens)):
        with pytest.raises(
            tokjax.errors.DatasetCorruptError, match=f"^{url}/(shard-00001|tokenizer).* was altered"
        ):
            read()
    with pytest.raises(
        tokjax.errors.DatasetMismatchError, match=f"^{url} was written with another tokenizer"
    ):
        tokjax.open_dataset(url, tokjax.byte_level())
    system.pipe_file(f"{root}/a.jsonl", b'{"text": 3}')
    with pytest.raises(tokjax.errors.SourceError, match=rf"^{url}/a\.jsonl, the line at byte 0"):
        tokjax.write_dataset(f"{url}/a.jsonl", FIELDS["raw"], tmp_path / "data")


def test_unknown_url_schemes(monkeypatch, tmp_path):
    for call in (
        lambda: tokjax.open_dataset("zzz://a/b"),
        lambda: tokjax.write_dataset(TEXTS, FIELDS["raw"], "zzz://a/b"),
        lambda: tokjax.corpus.text_files("zzz://a/b.txt"),
    ):
        with rejects(r"^zzz://a/b.* can't be read: .*zzz; fsspec supports .*file, .*memory, .*s3"):
            call()
    implementation = {"class": "no_such_backend.System", "err": "Install no_such_backend to access it"}
    monkeypatch.setitem(sys.modules["fsspec.registry"].known_implementations, "nosuch", implementation)
    with pytest.raises(
        tokjax.errors.MissingExtraError,
        match="^nosuch://a/b needs a package that is not installed: Install .*; pip install no_such_backend",
    ):
        tokjax.open_dataset("nosuch://a/b")


def test_sources_at_urls(url, tmp_path):
    system, root = fsspec.core.url_to_fs(url)
    system.makedirs(root, exist_ok=True)
    for name, text in (("b.txt", "low|lower"), ("a.txt", "é"), ("c.md", "no")):
        system.pipe_file(f"{root}/{name}", text.encode())
    pattern = f"{url}/*.txt"
    tokjax.write_dataset(pattern, FIELDS["raw"], tmp_path / "data", separator="|")
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert list(dataset) == ["é", "low", "lower"]
    names = [name for name, _ in dataset.manifest.source["files"]]
    assert [name.rsplit("/", 1)[-1] for name in names] == ["a.txt", "b.txt"]
    assert all("://" in name for name in names)
    system.pipe_file(f"{root}/a.txt", b"other")
    tokjax.write_dataset(pattern, FIELDS["raw"], tmp_path / "data", separator="|", overwrite=True)
    assert list(tokjax.open_dataset(tmp_path / "data")) == ["other", "low", "lower"]
    assert count_pretokens(f"{url}/b.txt", progress=False).nbytes == 9
    assert list(tokjax.corpus.read_documents(pattern, None)) == [b"other", b"low|lower"]
    with rejects(r"matches no file"):
        tokjax.corpus.text_files(f"{url}/*.none")
    with rejects(r"matches no file"):
        tokjax.corpus.text_files(f"{url}/none.txt")
    with rejects(r"is a directory; pass a pattern, such as '.*/\*\*/\*\."):
        tokjax.corpus.text_files(url)


class TestErrorsOfServers:
    @pytest.fixture
    def url(self):
        url = f"memory://{uuid.uuid4().hex}"
        fsspec.filesystem("memory").pipe_file(f"{url}/a.jsonl", b'{"text": "low"}')
        return url

    @pytest.mark.parametrize("name", ["a.jsonl", "*.jsonl"])
    def test_missing_files_with_a_cause(self, url, counted, monkeypatch, name):
        """As of `hf://datasets/OWNER/NAME`, if the repository is gated: fsspec finds no file."""

        def fail(*_, **__):
            raise FileNotFoundError(url) from PermissionError("Access is restricted.\n\nLog in.")

        monkeypatch.setattr(counted, "info", fail)
        monkeypatch.setattr(counted, "glob", lambda *_, **__: {})
        monkeypatch.setattr(counted, "cat_file", fail)
        with pytest.raises(
            tokjax.errors.DatasetIncompleteError,
            match=r"does not exist: PermissionError: Access is restricted\. Log in\.$",
        ):
            tokjax.open_dataset(url)
        with rejects(r"matches no file: PermissionError: Access is restricted\. Log in\.$"):
            tokjax.corpus.text_files(f"{url}/{name}")

    @pytest.mark.parametrize("pattern", ["a.jsonl", "*.jsonl"])
    def test_errors_name_the_url(self, url, counted, monkeypatch, pattern):
        def fail(name):
            raise error

        monkeypatch.setattr(counted, "before", staticmethod(fail))
        url = f"{url}/{pattern}"
        error = RuntimeError("401, message='Unauthorized'")
        message = f"{url} can't be read: RuntimeError: 401, message='Unauthorized'"
        with pytest.raises(ConnectionError, match=re.escape(message)):
            tokjax.corpus.text_files(url)
        error = PermissionError("denied")
        with pytest.raises(PermissionError) as raised:
            tokjax.corpus.text_files(url)
        assert raised.value.__notes__ == [f"while {url} was read"]

    def test_no_file_is_left_out_if_the_server_fails(self, url, counted, monkeypatch):
        monkeypatch.setattr(counted, "isfile", lambda *_: False)  # as after any error
        files = tokjax.corpus.text_files(f"{url}/*.jsonl")
        assert list(tokjax.corpus.read_documents(files, None)) == ["low"]


def test_urls_of_http(monkeypatch, tmp_path):
    url = "https://bucket.example/a.jsonl?signature=x/y%20z&expires=1"

    class Served:
        def get_file(self, path, target):
            assert path == url
            Path(target).write_bytes(b'{"text": "low"}')

        def unstrip_protocol(self, path):
            return path

    monkeypatch.setattr("tokjax._util.urls.get_file_system", lambda path: (Served(), path))
    tokjax.write_dataset(url, FIELDS["raw"], tmp_path / "data")
    assert list(tokjax.open_dataset(tmp_path / "data")) == ["low"]
    with rejects("'https://bucket.example/b/' is a direct"):
        tokjax.corpus.text_files("https://bucket.example/b/")
