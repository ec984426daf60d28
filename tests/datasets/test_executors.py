"""Tests of writing datasets from files with executors: workers receive positions in files.

Each test compares with a dataset that was written by this process from the same documents in memory. Workers
are the threads and processes of `concurrent.futures`, and those of loky, Ray and MPI.
"""

import concurrent.futures
import hashlib
import importlib.util
import json
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.documents import write_texts
from tests.support.variants import mark_slow_except
from tokjax.datasets import Column

SEPARATOR = "<|endoftext|>"
TEXTS = [f"{i} {text}" for i in range(50) for text in CORPUS if text]
TOKENIZER = tokjax.byte_level(["</s>"], eos_token="</s>")
FIELD = tokjax.PackedTokenField(TOKENIZER)
OPTIONS = {"shard_size": 3000}


class RecordingExecutor(concurrent.futures.Executor):
    """Runs everything immediately, in this process, on unpickled copies.

    `sent` and `received` are the numbers of bytes of each task and of each result.
    """

    def __init__(self):
        self.sent, self.received = [], []

    def submit(self, function, /, *arguments):
        data = pickle.dumps((function, arguments))
        self.sent.append(len(data))
        future = concurrent.futures.Future()
        function, arguments = pickle.loads(data)
        try:
            result = pickle.dumps(function(*arguments))
            self.received.append(len(result))
            future.set_result(pickle.loads(result))
        except BaseException as error:
            future.set_exception(error)
        return future


@contextmanager
def start_processes():
    with concurrent.futures.ProcessPoolExecutor(2, get_context("spawn")) as executor:
        yield executor


@contextmanager
def start_loky():
    loky = pytest.importorskip("loky")
    executor = loky.get_reusable_executor(2)
    yield executor
    executor.shutdown()


EXECUTORS = {
    "threads": lambda: concurrent.futures.ThreadPoolExecutor(2),
    "processes": start_processes,
    "loky": start_loky,
}


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", 500)


def read_files(path):
    """Returns the contents of all files; of the manifest, all but the source and the checksum."""
    files = {entry.name: entry.read_bytes() for entry in path.iterdir()}
    manifest = json.loads(files.pop("manifest.json"))
    return files, {key: manifest[key] for key in manifest.keys() - {"source", "checksum"}}


@pytest.mark.parametrize("name", EXECUTORS)
def test_executors(name, small_batches, tmp_path):
    source = write_texts(tmp_path / "corpus.txt", TEXTS)
    tokjax.write_dataset(TEXTS, FIELD, tmp_path / "expected", **OPTIONS)
    with EXECUTORS[name]() as executor:
        tokjax.write_dataset(
            source, FIELD, tmp_path / "data", separator=SEPARATOR, executor=executor, **OPTIONS
        )
    assert read_files(tmp_path / "data") == read_files(tmp_path / "expected")


PROGRAM = """
import sys
from concurrent.futures import Executor
import tokjax.datasets.shard_writing
from tests.datasets.test_executors import FIELD, OPTIONS, SEPARATOR
{start}
if __name__ == "__main__":
    tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE = 500
    source, path = sys.argv[1:]
    with start() as executor:
        tokjax.write_dataset(source, FIELD, path, separator=SEPARATOR, executor=executor, **OPTIONS)
"""
START_RAY = """
import ray

class RayExecutor(Executor):
    def submit(self, function, /, *args):
        return ray.remote(function).remote(*args).future()

def start():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    return RayExecutor()
"""
START_MPI = "from mpi4py.futures import MPIPoolExecutor as start"
MPIEXEC = [name for name in (str(Path(sys.executable).with_name("mpiexec")), "mpiexec") if shutil.which(name)]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["ray", "mpi4py"])
def test_programs(library, tmp_path):
    """Ray and MPI change the path and the signal handlers of their process, so they run in another one."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"could not import {library!r}")
    command, start = [sys.executable], START_RAY
    if library == "mpi4py":
        if not MPIEXEC:
            pytest.skip("mpiexec is not installed")
        command, start = [MPIEXEC[0], "-n", "3", sys.executable, "-m", "mpi4py.futures"], START_MPI
    source, program = write_texts(tmp_path / "corpus.txt", TEXTS), tmp_path / "program.py"
    program.write_text(PROGRAM.format(start=start))
    environment = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    subprocess.run(
        [*command, str(program), str(source), str(tmp_path / "data")],
        env={**os.environ, **environment},
        check=True,
    )
    tokjax.write_dataset(TEXTS, FIELD, tmp_path / "expected", **OPTIONS)
    assert read_files(tmp_path / "data") == read_files(tmp_path / "expected")


WITH_COLUMNS = ("c.jsonl", "c.parquet", "c.tar", "c.arrow")


def write_many(directory):
    """Writes a file for each text, and some empty ones."""
    directory.mkdir()
    for i, text in enumerate(TEXTS):
        (directory / f"{i:04}.txt").write_bytes(text.encode())
        (directory / f"{i:04}b.txt").write_bytes(b"")
    return str(directory / "*.txt")


def write_crlf_lines(path):
    """Writes lines of records between empty lines, and some without a text."""
    lines = [json.dumps({"text": text}) for part in TEXTS for text in (part, None)]
    path.write_text("\r\n\r\n".join(lines), newline="")
    return path


@pytest.mark.parametrize("size", mark_slow_except([1, 500, 1 << 24], [500]))  # (of 1: row groups are large)
@pytest.mark.parametrize("name", ["c.txt", "c.txt.gz", "crlf.jsonl", "files", *WITH_COLUMNS])
def test_formats(name, size, tmp_path, monkeypatch):
    writers = {"crlf.jsonl": write_crlf_lines, "files": write_many}
    source = writers.get(name, partial(write_texts, texts=TEXTS, group_size=7))(tmp_path / name)
    columns = [Column("n", "int32", per="document")] if name in WITH_COLUMNS else []
    field = tokjax.PackedTokenField(TOKENIZER, columns=columns)
    separator = SEPARATOR if ".txt" in name else None
    records = [{"text": text, "n": i} for i, text in enumerate(TEXTS)]
    tokjax.write_dataset(records, field, tmp_path / "expected", **OPTIONS)
    executor = RecordingExecutor()
    monkeypatch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", size)
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", size)
    for path, options in (("remote", {"executor": executor}), ("local", {})):
        tokjax.write_dataset(source, field, tmp_path / path, separator=separator, **OPTIONS, **options)
        assert read_files(tmp_path / path) == read_files(tmp_path / "expected")
    assert len(executor.sent) > 5 or size > 500
    manifests = [(tmp_path / path / "manifest.json").read_bytes() for path in ("remote", "local")]
    assert manifests[0] == manifests[1]


def test_positions_are_sent(tmp_path, monkeypatch):
    """What is sent does not grow with the texts. What is received are the ids and a digest per document."""
    monkeypatch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", 1 << 16)
    text = "some words of a document " * 400
    path = tmp_path / "corpus.txt"
    path.write_text(SEPARATOR.join([text] * 100))
    executor = RecordingExecutor()
    written = tokjax.write_dataset(
        path, FIELD, tmp_path / "data", separator=SEPARATOR, executor=executor, workers=1
    )
    *first, last = executor.sent
    assert len(first) >= 8
    assert last < 1000
    assert sum(executor.received) < 2 * written.num_items + 100 * 100 + 2000 * len(executor.received)


def test_batches_without_documents(tmp_path, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", 4)
    (tmp_path / "c.txt").write_text("|" * 50 + "a text" + "|" * 50 + "more" + "|" * 50)
    (tmp_path / "c.jsonl").write_text(
        '{"text": null}\n' * 20 + '{"text": "a text"}\n{"text": "more"}\n' + "\n" * 30
    )
    tokjax.write_dataset(["a text", "more"], FIELD, tmp_path / "expected")
    for name, separator in (("c.txt", "|"), ("c.jsonl", None)):
        for _ in range(2):  # (the second call compares)
            options = {"separator": separator, "executor": RecordingExecutor()}
            tokjax.write_dataset(tmp_path / name, FIELD, tmp_path / f"{name}-data", **options)
        assert read_files(tmp_path / f"{name}-data") == read_files(tmp_path / "expected")


def test_digests_of_documents(tmp_path):
    """`source_sha256` is as docs/dataset-format.md describes it."""

    def compute(digests, start=0):
        rows = (struct.pack("<Q", i) + digest for i, digest in enumerate(digests, start))
        return hashlib.sha256(b"".join(rows)).hexdigest()

    def read(name):
        return [shard.source_sha256 for shard in tokjax.open_dataset(tmp_path / name).manifest.shards]

    texts = ["a text", "é", "", "\ud800", "more"]
    digests = [hashlib.sha256(tokjax.offsets.to_utf8(text)).digest() for text in texts]
    tokjax.write_dataset(texts, FIELD, tmp_path / "texts", shard_size=8)
    assert read("texts") == [compute(digests[:2]), compute(digests[2:], 2)]
    tokjax.write_dataset([{"ids": [1, 2]}], FIELD, tmp_path / "ids")
    ids = hashlib.sha256(struct.pack("<ii", 1, 2)).digest()
    assert read("ids") == [compute([ids])]
    field = tokjax.PackedTokenField(
        TOKENIZER, columns=[Column("n", "int16"), Column("x", "float32", per="document")]
    )
    tokjax.write_dataset([{"ids": [1, 2], "n": [3, 4], "x": 0.5}], field, tmp_path / "columns")
    values = struct.pack("<Qhh", 2, 3, 4) + struct.pack("<Qf", 1, 0.5)
    assert read("columns") == [compute([hashlib.sha256(ids + values).digest()])]


def test_files_at_urls_are_sent(tmp_path):
    """They are in a temporary directory of the driver, which workers on other machines can't read."""
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/executors/corpus.txt", SEPARATOR.join(TEXTS).encode())
    fsspec.filesystem("memory").pipe(
        "/executors/corpus.parquet", write_texts(tmp_path / "c.parquet", TEXTS).read_bytes()
    )
    tokjax.write_dataset(TEXTS, FIELD, tmp_path / "expected", **OPTIONS)
    for name in ("corpus.txt", "corpus.parquet"):
        executor = RecordingExecutor()
        tokjax.write_dataset(
            f"memory://executors/{name}",
            FIELD,
            tmp_path / name,
            separator=SEPARATOR if name.endswith("txt") else None,
            executor=executor,
            **OPTIONS,
        )
        assert read_files(tmp_path / name) == read_files(tmp_path / "expected")
        assert sum(executor.sent) > sum(map(len, TEXTS))


@given(data=st.data())
def test_any_bytes(data, tmp_path_factory):
    """Documents of any bytes, split at any size: invalid UTF-8, and separators that overlap positions."""
    separator = data.draw(st.sampled_from(["\n\n", "aba", "é", "\r\n"]))
    pieces = st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\xc3", b"\xa9", b"\xff", b"word ", b"aba"])
    contents = b"".join(data.draw(st.lists(pieces, min_size=1, max_size=60)))
    directory = tmp_path_factory.mktemp("bytes")
    (directory / "c.txt").write_bytes(contents)
    texts = [text for text in contents.split(separator.encode()) if text]
    tokjax.write_dataset(texts, tokjax.RawTextField(), directory / "expected", shard_size=50)
    with pytest.MonkeyPatch.context() as patch:
        size = data.draw(st.integers(1, 100))
        patch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", size)
        patch.setattr("tokjax.corpus.sources.check_are_text", bool)
        tokjax.write_dataset(
            directory / "c.txt",
            tokjax.RawTextField(),
            directory / "data",
            separator=separator,
            executor=RecordingExecutor(),
            shard_size=50,
        )
    assert read_files(directory / "data") == read_files(directory / "expected")


def test_invalid_utf8_is_logged(small_batches, tmp_path, caplog):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"|".join([b"text"] * 20000 + [b"caf\xe9"] * 3))
    tokjax.write_dataset(
        path, FIELD, tmp_path / "data", separator="|", executor=RecordingExecutor(), workers=1
    )
    assert "3 documents have bytes that are not valid UTF-8" in caplog.text
    assert f"the first is byte {20000 * 5 + 3} of {path}" in caplog.text


@pytest.mark.usefixtures("small_batches")
class TestErrors:
    def write(self, source, path, field=FIELD, **options):
        tokjax.write_dataset(source, field, path, executor=RecordingExecutor(), **OPTIONS, **options)

    def test_disallowed_special_tokens(self, tmp_path):
        path = tmp_path / "corpus.txt"
        path.write_text("|".join(["some text"] * 300 + ["a </s> b"]))
        with pytest.raises(
            tokjax.errors.DisallowedSpecialTokenError,
            match=r"in document \d+ of .*corpus\.txt, bytes \d+ to 3007, the text holds .*'</s>'",
        ):
            self.write(path, tmp_path / "data", separator="|")

    def test_invalid_records(self, tmp_path):
        path = write_texts(tmp_path / "corpus.jsonl", TEXTS)
        path.write_bytes(path.read_bytes() + b"{")
        with pytest.raises(
            tokjax.errors.SourceError,
            match=rf"corpus\.jsonl, the line at byte {path.stat().st_size - 1}: not JSON",
        ):
            self.write(path, tmp_path / "data")

    def test_missing_files(self, tmp_path):
        path = write_texts(tmp_path / "corpus.txt", TEXTS)
        executor = RecordingExecutor()
        submit = executor.submit

        def submit_elsewhere(*arguments):
            moved = path.rename(tmp_path / "moved.txt")
            future = submit(*arguments)
            moved.rename(path)
            return future

        executor.submit = submit_elsewhere
        with pytest.raises(
            tokjax.errors.SourceError, match=r"a worker did not find .*corpus\.txt: .*read_documents"
        ):
            tokjax.write_dataset(path, FIELD, tmp_path / "data", separator=SEPARATOR, executor=executor)

    @pytest.mark.parametrize("change", ["truncated", "overwritten", "deleted"])
    @pytest.mark.parametrize("kind", ["path", "url"])
    def test_files_that_change(self, tmp_path, kind, change):
        """The same call works afterwards. It keeps finished shards if their documents are the same."""
        path = write_texts(tmp_path / "corpus.txt", TEXTS)
        out = tmp_path / "data" if kind == "path" else f"file://{tmp_path}/data"
        executor = RecordingExecutor()
        submit, original = executor.submit, path.read_bytes()

        def change_and_submit(*arguments):
            if len(executor.sent) == 5:
                if change == "deleted":
                    path.unlink(missing_ok=True)
                else:
                    with path.open("r+b") as file:
                        file.write(original.replace(b"e", b"f"))
                        file.truncate(len(original) // 2 if change == "truncated" else None)
            return submit(*arguments)

        executor.submit = change_and_submit
        expected = "no longer exists, and finished" if change == "deleted" else "changed while it was read"
        with pytest.raises(tokjax.errors.SourceError, match=rf"corpus\.txt: {expected}"):
            tokjax.write_dataset(path, FIELD, out, separator=SEPARATOR, executor=executor, **OPTIONS)
        if change == "deleted":
            path.write_bytes(original)
        self.write(path, out, separator=SEPARATOR)
        tokjax.write_dataset(path, FIELD, tmp_path / "expected", separator=SEPARATOR, **OPTIONS)
        assert read_files(tmp_path / "data") == read_files(tmp_path / "expected")


@pytest.mark.usefixtures("small_batches")
class TestResuming:
    def write(self, source, path, executor, **options):
        tokjax.write_dataset(
            source, FIELD, path, separator=SEPARATOR, executor=executor, **OPTIONS, **options
        )

    @pytest.mark.parametrize("stop", [5, 20, 40])
    def test_interrupted_writes(self, stop, tmp_path, monkeypatch):
        source = write_texts(tmp_path / "corpus.txt", TEXTS)
        executor = RecordingExecutor()
        submit = executor.submit

        def interrupt(*arguments):
            if len(executor.sent) == stop:
                raise KeyboardInterrupt
            return submit(*arguments)

        executor.submit = interrupt
        with pytest.raises(KeyboardInterrupt):
            self.write(source, tmp_path / "data", executor, workers=1)
        finished = {
            path: path.stat().st_mtime_ns for path in (tmp_path / "data.incomplete").glob("shard-*.npy")
        }
        assert bool(finished) == (stop > 5)
        monkeypatch.setattr("tokjax.datasets.shard_writing._EXECUTOR_BATCH_SIZE", 777)
        self.write(source, tmp_path / "data", RecordingExecutor())
        tokjax.write_dataset(TEXTS, FIELD, tmp_path / "expected", **OPTIONS)
        assert read_files(tmp_path / "data") == read_files(tmp_path / "expected")
        for path, modified in finished.items():
            assert (tmp_path / "data" / path.name).stat().st_mtime_ns == modified

    def test_finished_dataset_is_unchanged(self, tmp_path):
        source = write_texts(tmp_path / "corpus.txt", TEXTS)
        self.write(source, tmp_path / "data", None)
        self.write(source, tmp_path / "data", RecordingExecutor())
        self.write(source, tmp_path / "data", None)
        source.write_bytes(source.read_bytes() + SEPARATOR.encode() * 3)
        self.write(source, tmp_path / "data", RecordingExecutor())  # (the same documents)
        source.write_bytes(source.read_bytes() + b"more")
        with pytest.raises(tokjax.errors.DatasetExistsError, match="the source now has more documents"):
            self.write(source, tmp_path / "data", RecordingExecutor())

    def test_errors_ahead_of_compared_documents(self, tmp_path):
        """Workers compare some batches ahead. An error there must not look like the end of the source."""
        texts = TEXTS[:200]

        def stop_at(count):
            yield from texts[:count]
            raise OSError("stopped")

        for count in (100, 100, 102, 150):
            with pytest.raises(OSError, match="stopped"):
                tokjax.write_dataset(
                    stop_at(count), FIELD, tmp_path / "data", executor=RecordingExecutor(), **OPTIONS
                )
        assert (tmp_path / "data.incomplete").exists()
        tokjax.write_dataset(texts, FIELD, tmp_path / "data", **OPTIONS)
        tokjax.write_dataset(texts, FIELD, tmp_path / "expected", **OPTIONS)
        assert read_files(tmp_path / "data") == read_files(tmp_path / "expected")

    def test_killed_workers(self, tmp_path):
        source = write_texts(tmp_path / "corpus.txt", TEXTS)
        with concurrent.futures.ProcessPoolExecutor(1, get_context("spawn")) as executor:
            worker = executor.submit(os.getpid).result()
            submit, submitted = executor.submit, []

            def kill_and_submit(*arguments):
                submitted.append(arguments)
                if len(submitted) == 20:
                    os.kill(worker, signal.SIGKILL)
                    time.sleep(0.2)
                return submit(*arguments)

            executor.submit = kill_and_submit
            with pytest.raises(tokjax.errors.DatasetError, match=r"process died .*call write_dataset again"):
                self.write(source, tmp_path / "data", executor)
        assert list((tmp_path / "data.incomplete").glob("shard-*.npy"))
        self.write(source, tmp_path / "data", RecordingExecutor())
        tokjax.write_dataset(TEXTS, FIELD, tmp_path / "expected", **OPTIONS)
        assert read_files(tmp_path / "data") == read_files(tmp_path / "expected")
