"""Tests of writers that are interrupted: the next call produces the bytes of an uninterrupted one."""

import errno
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_executors import RecordingExecutor
from tests.support.byte_tokenizers import make_byte_tokenizer
from tests.support.hypothesis_profiles import get_max_examples
from tokjax.datasets import shard_writing as shards_module
from tokjax.errors import (
    DatasetExistsError,
    DatasetIncompleteError,
    DatasetMismatchError,
)

TOKENIZER = make_byte_tokenizer("</s>", tokens=[b"lo"])
FIELDS = {
    "raw": tokjax.RawTextField(),
    "packed": tokjax.PackedTokenField(TOKENIZER),
    "bucketed": tokjax.datasets.BucketedTokenField(TOKENIZER, bucket_boundaries=[20, 60], max_tokens=100),
}
fields = pytest.mark.parametrize("name", FIELDS)
TEXTS = [f"{i} {text}" for i in range(10) for text in CORPUS]
OPTIONS = {"shard_size": 150}


def read_files(path):
    """Returns the contents of the files of a directory, or of a URL in memory."""
    if isinstance(path, Path):
        return {entry.name: entry.read_bytes() for entry in path.iterdir()}
    system = pytest.importorskip("fsspec").filesystem("memory")
    return {entry.rsplit("/", 1)[-1]: system.cat_file(entry) for entry in system.ls(path, detail=False)}


def change_file(target, name, change):
    """Changes a file that an interrupted writer of a path or URL left."""
    if isinstance(target, Path):
        path = target.with_name("data.incomplete") / name
        path.write_bytes(change(path.read_bytes()))
    else:
        system = pytest.importorskip("fsspec").filesystem("memory")
        system.pipe_file(f"{target}/{name}", change(system.cat_file(f"{target}/{name}")))


@pytest.fixture(params=["path", "url"])
def target(request, tmp_path):
    if request.param == "path":
        return tmp_path / "data"
    pytest.importorskip("fsspec")
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def complete_dataset(tmp_path_factory):
    """Files of datasets whose writers were not interrupted, by name of the field."""
    directory = tmp_path_factory.mktemp("complete")
    for name, field in FIELDS.items():
        tokjax.write_dataset(TEXTS, field, directory / name, **OPTIONS)
    return {name: read_files(directory / name) for name in FIELDS}


class StoppedError(Exception):
    pass


def stop_after_documents(texts, after, error=StoppedError):
    """Yields the first `after` texts, then raises an error."""
    yield from texts[:after]
    raise error


@fields
@get_max_examples(25)
@given(
    stops=st.lists(st.integers(0, len(TEXTS)), max_size=4),
    kind=st.sampled_from([StoppedError, KeyboardInterrupt]),
)
def test_interrupted_source(name, complete_dataset, tmp_path_factory, stops, kind):
    path = tmp_path_factory.mktemp("stopped") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 60)
        for stop in stops:
            with pytest.raises(kind):
                tokjax.write_dataset(stop_after_documents(TEXTS, stop, kind), FIELDS[name], path, **OPTIONS)
            with pytest.raises(DatasetIncompleteError):
                tokjax.open_dataset(path)
        tokjax.write_dataset(iter(TEXTS), FIELDS[name], path, **OPTIONS)
    assert read_files(path) == complete_dataset[name]
    assert [entry.name for entry in path.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("stop", [1, 2, 25])
@pytest.mark.parametrize("shard_size", [4, 7])  # (reached by one text exactly, exceeded by two)
def test_finished_shards_are_not_encoded_again(tmp_path, monkeypatch, stop, shard_size):
    texts, options = [f"{i:04d}" for i in range(30)], {"shard_size": shard_size, "workers": 1}
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 4)
    with pytest.raises(StoppedError):
        tokjax.write_dataset(stop_after_documents(texts, stop), FIELDS["raw"], tmp_path / "data", **options)
    finished = stop if shard_size == 4 else stop // 2 * 2
    assert (tmp_path / "data.incomplete").exists() == (finished > 0)
    encoded = []
    encode = tokjax.datasets.document_encoding.encode_documents
    monkeypatch.setattr(
        "tokjax.datasets.shard_writing.encode_documents",
        lambda field, documents, **options: (
            encoded.extend(documents.doc_ids) or encode(field, documents, **options)
        ),
    )
    tokjax.write_dataset(texts, FIELDS["raw"], tmp_path / "data", **options)
    assert sorted(encoded) == list(range(finished, len(texts)))
    assert list(tokjax.open_dataset(tmp_path / "data")) == texts


class TestInterruptedRun:
    @pytest.fixture
    def interrupted(self, target, monkeypatch):
        monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 60)
        for stop in (10, 45):
            with pytest.raises(StoppedError):
                tokjax.write_dataset(stop_after_documents(TEXTS, stop), FIELDS["packed"], target, **OPTIONS)
            with pytest.raises(DatasetIncompleteError, match="its writer did not finish"):
                tokjax.open_dataset(target)
        return target

    def test_same_source(self, interrupted, complete_dataset):
        tokjax.write_dataset(TEXTS, FIELDS["packed"], interrupted, **OPTIONS)
        assert read_files(interrupted) == complete_dataset["packed"]

    def test_another_source(self, interrupted, complete_dataset):
        for texts, message in (
            (["other", *TEXTS[1:]], r"another source \(documents 0 to \d differ\)"),
            (TEXTS[:3], r"another source \(it now ends after 3 documents\)"),
            (list(enumerate(TEXTS, 5)), r"documents 0 to \d differ"),
        ):
            with pytest.raises(DatasetMismatchError, match=message):
                tokjax.write_dataset(texts, FIELDS["packed"], interrupted, **OPTIONS)
        with pytest.raises(
            DatasetMismatchError,
            match=r"another source \(.*\); pass the same one, or one that can be read again: part of",
        ):
            tokjax.write_dataset(
                iter(["other", *TEXTS]), FIELDS["packed"], interrupted, overwrite=True, **OPTIONS
            )
        tokjax.write_dataset(TEXTS[3:], FIELDS["packed"], interrupted, overwrite=True, **OPTIONS)
        assert len(tokjax.open_dataset(interrupted)) == len(TEXTS) - 3
        assert read_files(interrupted).keys() < complete_dataset["packed"].keys()  # (without old shards)

    @pytest.mark.parametrize(
        ("field", "shard_size", "message"),
        [
            (tokjax.PackedTokenField(TOKENIZER, 7), 150, "started with options=.*pass overwrite=True"),
            (FIELDS["packed"], 151, "was started with shard_size=150, not 151"),
            (
                tokjax.PackedTokenField(tokjax.byte_level(eos_token="</s>", special_tokens=["</s>"])),
                150,
                "started with vocab_size=258, not 257",
            ),
        ],
    )
    def test_other_options(self, interrupted, field, shard_size, message):
        with pytest.raises(DatasetMismatchError, match=message):
            tokjax.write_dataset(TEXTS, field, interrupted, shard_size=shard_size)
        tokjax.write_dataset(iter(TEXTS), field, interrupted, shard_size=shard_size, overwrite=True)
        assert tokjax.open_dataset(interrupted).field == field

    @pytest.mark.parametrize(
        ("name", "change", "error", "message"),
        [
            (
                "shard-00000.tokens.npy",
                lambda data: data[1:],
                "Mismatch",
                "altered; to start over, pass",
            ),
            (
                "progress.jsonl",
                lambda data: data.replace(b"shard-00000", b"shard-00001", 1),
                "Corrupt",
                r"/progress\.jsonl was altered: .*; to start over, pass overwrite=True, or del",
            ),
            ("progress.jsonl", lambda data: data[1:], "Corrupt", r"progress\.jsonl is damaged.*pass overw"),
        ],
    )
    def test_altered_shard_or_record(self, interrupted, complete_dataset, name, change, error, message):
        change_file(interrupted, name, change)
        with pytest.raises(getattr(tokjax.errors, f"Dataset{error}Error"), match=message):
            tokjax.write_dataset(TEXTS, FIELDS["packed"], interrupted, **OPTIONS)
        tokjax.write_dataset(iter(TEXTS), FIELDS["packed"], interrupted, overwrite=True, **OPTIONS)
        assert read_files(interrupted) == complete_dataset["packed"]

    def test_truncated_progress_record(self, interrupted, complete_dataset):
        change_file(interrupted, "progress.jsonl", lambda data: data[:-3])
        tokjax.write_dataset(TEXTS, FIELDS["packed"], interrupted, **OPTIONS)
        assert read_files(interrupted) == complete_dataset["packed"]


def test_source_with_more_documents(tmp_path, monkeypatch):
    def raise_error(*_):
        raise StoppedError

    monkeypatch.setattr("tokjax.datasets.writer.write_manifest", raise_error)
    with pytest.raises(StoppedError):
        tokjax.write_dataset(TEXTS[:31], FIELDS["packed"], tmp_path / "data", **OPTIONS)
    monkeypatch.undo()
    tokjax.write_dataset(TEXTS, FIELDS["packed"], tmp_path / "data", **OPTIONS)
    tokjax.write_dataset(TEXTS, FIELDS["packed"], tmp_path / "fresh", **OPTIONS)
    assert read_files(tmp_path / "data") == read_files(tmp_path / "fresh")


class TestFinishedDataset:
    @pytest.fixture
    def finished(self, target):
        tokjax.write_dataset(TEXTS, FIELDS["packed"], target, **OPTIONS)
        return target

    def test_damaged_dataset_is_only_replaced_with_overwrite(self, tmp_path):
        path = tmp_path / "data"
        tokjax.write_dataset(TEXTS, FIELDS["packed"], path, **OPTIONS)
        shard = path / "shard-00001.tokens.npy"
        shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
        with pytest.raises(DatasetExistsError, match="is damaged: .*; to write it again, pass over"):
            tokjax.write_dataset(TEXTS, FIELDS["packed"], path, **OPTIONS)
        (path / "manifest.json").write_text("{")
        tokjax.write_dataset(TEXTS, FIELDS["packed"], path, overwrite=True, **OPTIONS)
        tokjax.open_dataset(path).verify()

    def test_is_not_written_again(self, finished, monkeypatch):
        monkeypatch.setattr("tokjax.datasets.shard_writing.encode_documents", None)  # (any call would fail)
        again = tokjax.write_dataset(iter(TEXTS), FIELDS["packed"], finished, **OPTIONS)
        assert again.num_documents == len(TEXTS)

    def test_is_not_replaced_by_another_dataset(self, finished):
        for texts, message in (
            (
                TEXTS[:-1],
                r"another source \(it now ends after 59 documents\); to replace it, pass overwrite=True",
            ),
            ([*TEXTS, "more"], "the source now has more documents"),
            ([*TEXTS[:-1], "other"], r"documents \d+ to 59 differ"),
        ):
            with pytest.raises(DatasetExistsError, match=message):
                tokjax.write_dataset(texts, FIELDS["packed"], finished, **OPTIONS)
        other = tokjax.PackedTokenField(TOKENIZER, add_eos_between_docs=False)
        with pytest.raises(DatasetExistsError, match="written with options=.*to replace it, pass over"):
            tokjax.write_dataset(TEXTS, other, finished, **OPTIONS)
        tokjax.write_dataset(CORPUS, other, finished, overwrite=True, **OPTIONS)
        assert len(tokjax.open_dataset(finished)) == len(CORPUS)


def test_full_disk(tmp_path, monkeypatch, complete_dataset):
    """The third shard does not fit. Once there is enough space, the next call resumes."""
    write = shards_module.write_array

    def full(path, *rest):
        if path.name == "shard-00002.tokens.npy":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write(path, *rest)

    monkeypatch.setattr(shards_module, "write_array", full)
    with pytest.raises(OSError, match="No space left"):
        tokjax.write_dataset(TEXTS, FIELDS["packed"], tmp_path / "data", **OPTIONS)
    monkeypatch.undo()
    assert (tmp_path / "data.incomplete" / "shard-00001.tokens.npy").is_file()
    tokjax.write_dataset(TEXTS, FIELDS["packed"], tmp_path / "data", **OPTIONS)
    assert read_files(tmp_path / "data") == complete_dataset["packed"]


WRITER = """
import contextlib, sys
from concurrent.futures import ProcessPoolExecutor
import tokjax
from tests.datasets.test_resuming import FIELDS

if __name__ == "__main__":
    tokjax.datasets.shard_writing._BATCH_SIZE = tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE = 60
    name, source, path = sys.argv[1:]
    with ProcessPoolExecutor(2) if name == "processes" else contextlib.nullcontext() as executor:
        if executor:
            executor.submit(int).result()
        print("ready", flush=True)
        tokjax.write_dataset(
            source, FIELDS.get(name, FIELDS["packed"]), path, separator="|", executor=executor, shard_size=150
        )
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FIELDS, "processes"])
def test_killed_writers(name, tmp_path):
    """Kills writers, with their worker processes, after increasing times, until one finishes."""
    path, source, kills = tmp_path / "data", tmp_path / "a.txt", 0
    source.write_text("|".join(TEXTS * 4))
    for attempt in range(60):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, name, str(source), path],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,
        )
        assert writer.stdout.readline() == b"ready\n"
        try:
            writer.wait(timeout=0.01 * 1.4**attempt)
        except subprocess.TimeoutExpired:
            os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()
            kills += 1
        finally:
            writer.stdout.close()
        if path.exists():
            break
        with pytest.raises(DatasetIncompleteError, match="the path does not exist|its writer did not finish"):
            tokjax.open_dataset(path)
    assert kills > 3
    field = FIELDS.get(name, FIELDS["packed"])
    tokjax.write_dataset(source, field, tmp_path / "expected", separator="|", shard_size=150)
    assert read_files(path) == read_files(tmp_path / "expected")


def test_concurrent_writers(target):
    def texts():
        yield TEXTS[0]
        with pytest.raises(DatasetExistsError, match="another process is writing"):
            tokjax.write_dataset(TEXTS, FIELDS["packed"], target)

    tokjax.write_dataset(texts(), FIELDS["packed"], target)


def test_executors(tmp_path, complete_dataset, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", 200)
    for name, field in FIELDS.items():
        executor = RecordingExecutor()
        tokjax.write_dataset(iter(TEXTS), field, tmp_path / name, executor=executor, **OPTIONS)
        assert len(executor.sent) > 5
        assert read_files(tmp_path / name) == complete_dataset[name]
