"""Tests of downloaded copies: their limit, and ranges of files that are not downloaded."""

import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.counted_files import NBYTES, NUM_SHARDS, PACKED, TEXTS, TOKENIZER, TOKENS, list_downloads
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.loader_cases import are_equal
from tokjax.datasets import Column, directories as remote_module

fsspec = pytest.importorskip("fsspec")

COLUMNS = [Column("loss_mask", bool), Column("weights", "float32"), Column("score", "int16", per="document")]
FIELD = tokjax.TokenizedTextField(TOKENIZER, columns=COLUMNS)


@pytest.fixture
def no_gaps(monkeypatch):
    """Merges ranges only if they are adjacent, so that a small dataset has several requests."""
    monkeypatch.setattr("tokjax.datasets.downloads._MAX_GAP", 0)


@pytest.fixture(scope="module")
def records():
    random = np.random.default_rng(0)
    lengths = random.integers(0, 90, 60).tolist()
    return [
        {
            "ids": random.integers(0, 256, n).tolist(),
            "loss_mask": random.integers(0, 2, n).tolist(),
            "weights": random.random(n).tolist(),
            "score": i,
        }
        for i, n in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def pair(records, tmp_path_factory):
    """Local dataset with side columns, and the URL of the same dataset."""
    url, path = f"memory://{uuid.uuid4().hex}", tmp_path_factory.mktemp("pair") / "data"
    for target in (url, path):
        tokjax.write_dataset(records, FIELD, target, shard_size=400)
    return tokjax.open_dataset(path), url


def list_copies(directory):
    return sorted(path.name for path in directory.glob("*/[!.]*"))


def read_shard(dataset, shard):
    return dataset.read(1000 * shard, 1000 * (shard + 1)).tolist()


def encode_text(text):
    return tokjax.encode(TOKENIZER, text, add_special_tokens=False).tolist()


def make_shard(shard):
    return [number for text in TEXTS[2 * shard : 2 * shard + 2] for number in (*encode_text(text), 0)]


class TestLimit:
    def test_order_of_uses_is_kept_for_later_runs(self, url, tmp_path):
        options = {"download_dir": tmp_path, "download_bytes": 3 * NBYTES}
        dataset = tokjax.open_dataset(url, **options)
        for shard in (0, 1, 2, 0, 1):
            read_shard(dataset, shard)
        tokjax.open_dataset(url, **options).tokenizer  # noqa: B018 (saves the uses)
        del dataset
        read_shard(tokjax.open_dataset(url, **options), 5)
        assert TOKENS[2] not in list_copies(tmp_path)
        assert TOKENS[1] in list_copies(tmp_path)

    @get_max_examples(30)
    @given(
        limit=st.integers(1, NUM_SHARDS),
        shards=st.lists(st.integers(0, NUM_SHARDS - 1), max_size=20),
        memory_map=st.booleans(),
        is_temporary=st.booleans(),
    )
    def test_any_order(self, url, tmp_path_factory, limit, shards, memory_map, is_temporary):
        """The least recently used files are deleted."""
        directory = None if is_temporary else tmp_path_factory.mktemp("downloads")
        dataset = tokjax.open_dataset(
            url, download_dir=directory, download_bytes=limit * NBYTES, memory_map=memory_map
        )
        used: list[int] = []  # the most recently used last
        for shard in shards:
            assert read_shard(dataset, shard) == make_shard(shard)
            used = [*(other for other in used if other != shard), shard][-limit:]
            copies = sorted(path.name for path in dataset.path.glob("[!.]*"))
            assert copies == sorted(TOKENS[i] for i in used)
            assert [i for i in range(NUM_SHARDS) if (i, "tokens") in dataset._open_shards] == sorted(used)

    def test_batches_of_more_shards_than_the_limit(self, url, tmp_path, caplog):
        dataset = tokjax.open_dataset(url, download_dir=tmp_path, download_bytes=2 * NBYTES)
        options = {"batch_size": 30, "documents": False}
        limited = tokjax.PackedTokenLoader(dataset, **options)
        for batch, other in zip(
            limited, tokjax.PackedTokenLoader(tokjax.open_dataset(url), **options), strict=True
        ):
            assert np.array_equal(batch.ids, other.ids)
        [message] = caplog.messages
        assert "the shards of one batch have" in message
        assert "read_ranges=True" in message
        assert len(list_copies(tmp_path)) == 2
        ids = dataset.read(0, dataset.num_tokens)
        assert np.array_equal(ids, tokjax.open_dataset(url).read(0, dataset.num_tokens))
        dataset.verify()

    def test_deleted_copies_are_unmapped(self, url, tmp_path):
        dataset = tokjax.open_dataset(url, download_dir=tmp_path, download_bytes=2 * NBYTES)
        held = dataset._open(0, dataset._data).data
        for shard in range(1, NUM_SHARDS):
            read_shard(dataset, shard)
        assert held.tolist() == make_shard(0)
        maps = Path("/proc/self/maps")
        if maps.exists():
            assert sum(str(tmp_path) in line for line in maps.read_text().splitlines()) == 3
            del held
            assert sum(str(tmp_path) in line for line in maps.read_text().splitlines()) == 2

    def test_datasets_of_a_directory_share_the_limit(self, url, pair, tmp_path):
        _, other_url = pair
        other = tokjax.open_dataset(other_url, download_dir=tmp_path, download_bytes=5 * NBYTES)
        other.column("score")
        assert len(other[0]) == len(pair[0][0])
        assert (0, "tokens") in other._open_shards
        dataset = tokjax.open_dataset(url, download_dir=tmp_path, download_bytes=3 * NBYTES)
        for shard in range(5):
            read_shard(dataset, shard)
        assert list_copies(tmp_path) == TOKENS[2:5]
        assert (0, "tokens") not in other._open_shards

    def test_other_files_are_neither_counted_nor_deleted(self, url, tmp_path):
        """A dataset, unmarked files and a link have names like those of copies."""
        own, link, elsewhere = tmp_path / "0123456789abcdef", tmp_path / ("f" * 16), tmp_path / "elsewhere"
        tokjax.write_dataset(TEXTS, PACKED, own, shard_size=1000)
        kept = [tmp_path / "notes" / TOKENS[0], tmp_path / ("0" * 16) / TOKENS[0], tmp_path / "a.npy"]
        for path in [*kept, elsewhere / TOKENS[0]]:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(bytes(10 * NBYTES))
        for path in (own, elsewhere):
            (path / ".tokjax-copies").touch()
        link.symlink_to(elsewhere)
        kept += [*own.iterdir(), *link.iterdir()]
        for path in kept:
            os.utime(path, (0, 0))
        dataset = tokjax.open_dataset(url, download_dir=tmp_path, download_bytes=NBYTES)
        for shard in range(3):
            read_shard(dataset, shard)
        assert all(path.exists() for path in kept)
        assert TOKENS[2] in list_copies(tmp_path)

    def test_invalid_options(self, url):
        message = (
            f"download_bytes is {NBYTES - 1}, and {url}/shard-00000.tokens.npy has {NBYTES} bytes; pass "
        )
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=f"{message}download_bytes={NBYTES} or"):
            tokjax.open_dataset(url, download_bytes=NBYTES - 1)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="download_bytes must be at least 1"):
            tokjax.open_dataset(url, download_bytes=0)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="fetch_ahead must be at least 0"):
            tokjax.open_dataset(url, fetch_ahead=-1)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="fetch_ahead must be at least 0"):
            tokjax.open_dataset("no-url", fetch_ahead=-1)


@pytest.mark.parametrize("length", [499, 300])
def test_dataset_that_is_replaced_at_its_url(tmp_path, length):
    url = f"memory://{uuid.uuid4().hex}"
    tokjax.write_dataset(TEXTS, PACKED, url, shard_size=1000)
    dataset = tokjax.open_dataset(url, download_dir=tmp_path)
    read_shard(dataset, 0)
    tokjax.write_dataset(["z" * length] * 2 * NUM_SHARDS, PACKED, url, shard_size=1000, overwrite=True)
    assert read_shard(dataset, 0) == make_shard(0)
    with pytest.raises(
        tokjax.errors.DatasetCorruptError,
        match=f"^{url} was replaced by another dataset after it was opened; open it again$",
    ):
        read_shard(dataset, 1)


class TestInterruptedDownloads:
    def test_failed_download_leaves_no_file(self, url, counted, tmp_path, monkeypatch):
        calls = []

        def fail(name):
            calls.append(name)
            if len(calls) >= 2:  # half of the file is written
                assert {path.suffix for path in tmp_path.glob("*/.shard*")} == {".partial", ".lock"}
                raise ConnectionResetError("reset by the peer")

        monkeypatch.setattr(counted, "before", staticmethod(fail))
        dataset = tokjax.open_dataset(url, download_dir=tmp_path)
        calls.clear()
        with pytest.raises(ConnectionResetError, match="reset by the peer") as raised:
            dataset.read(0, 10)
        assert raised.value.__notes__ == [f"while {url}/{TOKENS[0]} was read"]
        assert list_copies(tmp_path) == []
        monkeypatch.setattr(counted, "before", staticmethod(lambda _: None))
        assert dataset.read(0, 10).tolist() == make_shard(0)[:10]

    def test_partial_files_of_killed_processes_are_deleted(self, url, tmp_path):
        options = {"download_dir": tmp_path, "download_bytes": 2 * NBYTES}
        dataset = tokjax.open_dataset(url, **options)
        partial = dataset.path / f".{TOKENS[7]}.0123456789ab.partial"
        partial.write_bytes(bytes(2 * NBYTES))
        read_shard(dataset, 0)
        read_shard(dataset, 1)
        assert list_copies(tmp_path) == TOKENS[:2]

    @pytest.mark.parametrize("verify", [True, False])
    @pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"\xff"])
    def test_damaged_copies_are_downloaded_again(self, url, counted, tmp_path, damage, verify):
        read_shard(tokjax.open_dataset(url, download_dir=tmp_path), 0)
        [copy] = tmp_path.glob("*/shard*")
        copy.write_bytes(damage(copy.read_bytes()))
        counted.requests.clear()
        dataset = tokjax.open_dataset(url, download_dir=tmp_path, verify_on_touch=verify)
        assert read_shard(dataset, 0) == make_shard(0)
        assert list_downloads() == [TOKENS[0]]

    def test_copy_that_is_deleted_after_the_download(self, url, tmp_path, monkeypatch):
        download, deleted = remote_module.RemoteDirectory.download, []

        def download_and_delete(self, name, target, nbytes):
            download(self, name, target, nbytes)
            if not deleted:
                target.unlink()
                deleted.append(name)

        monkeypatch.setattr(remote_module.RemoteDirectory, "download", download_and_delete)
        assert read_shard(tokjax.open_dataset(url, download_dir=tmp_path), 0) == make_shard(0)
        assert deleted == [TOKENS[0]]

    @pytest.mark.parametrize("is_one_dataset", [True, False])  # (others of the directory share no lock)
    def test_threads_download_a_file_once(self, url, counted, tmp_path, monkeypatch, is_one_dataset):
        monkeypatch.setattr(counted, "before", staticmethod(lambda _: time.sleep(0.05)))
        datasets = [tokjax.open_dataset(url, download_dir=tmp_path) for _ in range(3)]
        datasets = datasets[:1] * 3 if is_one_dataset else datasets
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(read_shard, datasets, [0] * 3)) == [make_shard(0)] * 3
        assert list_downloads() == [TOKENS[0]]
        assert list_copies(tmp_path) == [TOKENS[0]]


KILLED_PROGRAM = """
import os, signal, sys
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
import tokjax

def download_half(self, rpath, lpath, **_):
    Path(lpath).write_bytes(Path(rpath).read_bytes()[:500])
    os.kill(os.getpid(), signal.SIGKILL)

LocalFileSystem.get_file = download_half
tokjax.open_dataset(sys.argv[1], download_dir=sys.argv[2]).read(0, 10)
"""


def test_killed_process(tmp_path):
    source, copies = tmp_path / "source", tmp_path / "copies"
    tokjax.write_dataset(TEXTS, PACKED, source, shard_size=1000)
    command = [sys.executable, "-c", KILLED_PROGRAM, f"file://{source}", str(copies)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert {path.suffix: path.stat().st_size for path in copies.glob("*/.shard*")} == {
        ".partial": 500,
        ".lock": 0,
    }
    dataset = tokjax.open_dataset(f"file://{source}", download_dir=copies, download_bytes=2 * NBYTES)
    for shard in range(NUM_SHARDS):
        assert read_shard(dataset, shard) == make_shard(shard)
    assert list_copies(copies) == TOKENS[-2:]


KILLED_PARENT = """
import os, signal, sys, threading, warnings
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
import tokjax

download, parent, is_downloading = LocalFileSystem.get_file, os.getpid(), threading.Event()

def download_half(self, rpath, lpath, **_):
    if os.getpid() != parent:
        return download(self, rpath, lpath)
    Path(lpath).write_bytes(Path(rpath).read_bytes()[:500])
    is_downloading.set()
    threading.Event().wait()

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
LocalFileSystem.get_file = download_half
dataset = tokjax.open_dataset(sys.argv[1], download_dir=sys.argv[2])
threading.Thread(target=dataset.read, args=(0, 10), daemon=True).start()
is_downloading.wait()
if os.fork():
    os.kill(parent, signal.SIGKILL)
print(dataset.read(0, 10).tolist())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_whose_parent_is_killed_during_a_download(tmp_path):
    source, copies = tmp_path / "source", tmp_path / "copies"
    tokjax.write_dataset(TEXTS, PACKED, source, shard_size=1000)
    command = [sys.executable, "-c", KILLED_PARENT, f"file://{source}", str(copies)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=60)  # (until the child ends)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == -signal.SIGKILL
    assert printed == f"{make_shard(0)[:10]}\n"
    assert list_copies(copies) == [TOKENS[0]]


READING = """
import sys
import numpy as np
import tokjax

url, directory, limit, seed = sys.argv[1:]
dataset = tokjax.open_dataset(url, download_dir=directory, download_bytes=int(limit))
expected = tokjax.open_dataset(url.removeprefix("file://"))
for shard in np.random.default_rng(int(seed)).integers(0, 8, 100).tolist():
    begin, end = 1000 * shard, 1000 * shard + 1000
    assert np.array_equal(dataset.read(begin, end), expected.read(begin, end))
"""


def test_several_processes(tmp_path):
    source = tmp_path / "source"
    tokjax.write_dataset([chr(97 + i) * 999 for i in range(NUM_SHARDS)], PACKED, source, shard_size=1000)
    command = [sys.executable, "-c", READING, f"file://{source}", str(tmp_path / "copies"), str(2 * NBYTES)]
    processes = [subprocess.Popen([*command, str(seed)], stderr=subprocess.PIPE) for seed in (0, 1)]
    assert [process.communicate()[1] for process in processes] == [b""] * 2
    assert [process.returncode for process in processes] == [0] * 2
    copies = list_copies(tmp_path / "copies")
    assert len(copies) <= 2
    assert not any(name.endswith(".partial") for name in copies)


FORKING = """
import os, sys, warnings
import tokjax
from fsspec import register_implementation
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

class AsyncLocal(AsyncFileSystem):
    local = LocalFileSystem()

    async def _cat_file(self, path, start=None, end=None, **_):
        return self.local.cat_file(path, start, end)

    async def _info(self, path, **_):
        return self.local.info(path)

    async def _get_file(self, path, target, **_):
        self.local.get_file(path, target)

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
register_implementation("asynchronous", AsyncLocal)
expected = tokjax.open_dataset(sys.argv[1])
for read_ranges in (False, True):
    dataset = tokjax.open_dataset("asynchronous://" + sys.argv[1], read_ranges=read_ranges)
    assert dataset[0].tolist() == expected[0].tolist()
    child = os.fork()
    is_equal = dataset[15].tolist() == expected[15].tolist()
    if not child:
        sys.exit(not is_equal)
    assert is_equal
    assert os.waitpid(child, 0)[1] == 0
    assert dataset.path.exists()  # the child has not deleted it
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_with_asynchronous_file_system(tmp_path):
    tokjax.write_dataset(TEXTS, PACKED, tmp_path / "data", shard_size=1000)
    subprocess.run([sys.executable, "-c", FORKING, str(tmp_path / "data")], check=True, timeout=120)


class TestRanges:
    def test_a_document_is_one_request(self, url, counted, tmp_path):
        dataset = tokjax.open_dataset(url, download_dir=tmp_path, read_ranges=True)
        counted.requests.clear()
        ids = dataset[5][:200]
        assert ids.tolist() == make_shard(2)[500:700]
        lengths, data = counted.requests
        assert lengths[:2] == ("download", "shard-00002.num_tokens.npy")
        assert data == ("range", TOKENS[2], 1000)
        assert list_copies(tmp_path) == ["shard-00002.num_tokens.npy"]

    @pytest.mark.parametrize(
        ("starts", "length", "requests"),
        [
            ([990], 20, [("range", TOKENS[0], 20), ("range", TOKENS[1], 20)]),
            ([70, 0, 210], 10, [("range", TOKENS[0], 440)]),  # close ranges are one request
            ([0, 590], 10, [("download", TOKENS[0], NBYTES)]),  # the bytes between ranges count
        ],
    )
    def test_requests_for_ranges(self, url, counted, starts, length, requests):
        dataset = tokjax.open_dataset(url, read_ranges=True)
        counted.requests.clear()
        both = make_shard(0) + make_shard(1)
        assert dataset.gather(starts, length).tolist() == [both[start : start + length] for start in starts]
        assert counted.requests == requests

    def test_shard_is_downloaded_after_half_of_it(self, url, counted, tmp_path):
        dataset = tokjax.open_dataset(url, download_dir=tmp_path, read_ranges=True)
        for start in range(0, 1000, 50):
            assert dataset.read(start, start + 50).tolist() == make_shard(0)[start : start + 50]
        nbytes = [request.nbytes for request in counted.requests if request.name == TOKENS[0]]
        assert nbytes == [100] * 10 + [NBYTES]
        counted.requests.clear()
        assert dataset.read(2000, 2999).tolist() == make_shard(2)[:-1]
        assert counted.requests == [("download", TOKENS[2], NBYTES)]

    @pytest.mark.usefixtures("no_gaps")
    def test_no_shard_of_a_dataset_above_the_limit_is_downloaded(self, url, counted, tmp_path):
        """Its copy would be deleted before it is read again."""
        plain = tokjax.open_dataset(url)
        expected = list(tokjax.PackedTokenLoader(plain, batch_size=4, seed=1))
        nbytes = sum(record.nbytes for _, record in plain.manifest.iter_files())
        for limit, is_downloaded in ((nbytes - 1, False), (nbytes, True)):
            directory = tmp_path / str(limit)
            dataset = pickle.loads(
                pickle.dumps(
                    tokjax.open_dataset(url, download_dir=directory, download_bytes=limit, read_ranges=True)
                )
            )
            counted.requests.clear()
            for _ in range(2):
                loader = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=1)
                assert all(map(are_equal, loader, expected))
            copies = list_copies(directory)
            assert [name in copies for name in TOKENS] == [is_downloaded] * NUM_SHARDS
            received = sum(request.nbytes for request in counted.requests if request.name in TOKENS)
            num_bytes = 2 * sum(batch.ids.size for batch in expected)
            assert received <= 1.5 * NUM_SHARDS * NBYTES if is_downloaded else received == 2 * num_bytes

    def test_existing_copies_are_used(self, url, counted, tmp_path):
        read_shard(tokjax.open_dataset(url, download_dir=tmp_path), 3)
        dataset = tokjax.open_dataset(url, download_dir=tmp_path, read_ranges=True)
        counted.requests.clear()
        assert dataset.read(3000, 3001).tolist() == make_shard(3)[:1]
        assert counted.requests == []

    @get_max_examples(50)
    @given(data=st.data())
    def test_any_ranges(self, pair, data):
        local, url = pair
        dataset = tokjax.open_dataset(url, read_ranges=True)
        for _ in range(3):
            starts = data.draw(st.lists(st.integers(0, local.num_tokens - 1), max_size=5))
            stops = [data.draw(st.integers(start, min(start + 90, local.num_tokens))) for start in starts]
            starts, lengths = np.array(starts, np.int64), np.subtract(stops, starts).astype(np.int64)
            for read in (
                lambda each: each.gather_ranges(starts, lengths),  # noqa: B023 (called at once)
                lambda each: each.column("loss_mask").read_ranges(starts, lengths),  # noqa: B023
                lambda each: each.column("weights").read_ranges(starts, lengths),  # noqa: B023
            ):
                assert np.array_equal(read(dataset), read(local))
            rows = data.draw(st.lists(st.integers(0, len(local) - 1), max_size=4))
            assert dataset.rows(rows).ids.tolist() == local.rows(rows).ids.tolist()
            for row in rows:
                for name in ("loss_mask", "weights"):
                    assert dataset.column(name)[row].tolist() == local.column(name)[row].tolist()

    def test_texts(self, counted):
        url = f"memory://{uuid.uuid4().hex}"
        texts = [f"{i}é" * 20 for i in range(40)]
        tokjax.write_dataset(texts, tokjax.RawTextField(), url, shard_size=1000)
        dataset = tokjax.open_dataset(url, TOKENIZER, read_ranges=True)
        assert [dataset[i] for i in (3, 39, 11)] == [texts[i] for i in (3, 39, 11)]
        assert all(request.kind == "range" for request in counted.requests if ".text." in request.name)
        loader = tokjax.datasets.SequenceLoader(dataset, batch_size=3, length=20)
        local = tokjax.datasets.SequenceLoader(tokjax.open_dataset(url, TOKENIZER), batch_size=3, length=20)
        assert np.array_equal(loader[1].ids, local[1].ids)

    @pytest.mark.usefixtures("no_gaps")
    def test_columns_of_a_batch_are_requested_together(self, pair, counted, monkeypatch):
        local, url = pair
        calls, cat_ranges = [], counted.cat_ranges

        def count(self, paths, *arguments, **options):
            calls.append({path.split(".")[-2] for path in paths})
            return cat_ranges(self, paths, *arguments, **options)

        monkeypatch.setattr(counted, "cat_ranges", count)
        dataset = tokjax.open_dataset(url, read_ranges=True)
        for kind, options in (
            (tokjax.datasets.SequenceLoader, {"batch_size": 5, "length": 90}),
            (tokjax.datasets.TokenBudgetLoader, {"budget": 400}),
        ):
            calls.clear()
            batches = [kind(each, **options)[0] for each in (dataset, local)]
            assert sorted(map(sorted, calls)) == [["loss_mask"], ["tokens"], ["weights"]]
            assert are_equal(*batches)

    @pytest.mark.parametrize(
        ("error", "expected", "match"),
        [
            (
                FileNotFoundError("gone"),
                ConnectionError,
                "a file does not exist, but now it does; try again",
            ),
            (ConnectionResetError("reset by the peer"), ConnectionResetError, "reset by the peer"),
        ],
    )
    def test_file_systems_that_return_errors(self, url, counted, monkeypatch, error, expected, match):
        monkeypatch.setattr(counted, "cat_ranges", lambda _, paths, *__, **___: [error] * len(paths))
        with pytest.raises(expected, match=match):
            tokjax.open_dataset(url, read_ranges=True).read(0, 10)

    @pytest.mark.parametrize("options", [{}, {"read_ranges": True}])
    def test_errors_of_servers(self, url, counted, options, monkeypatch):
        """`sizes` of fsspec's HTTP reports any error as a missing file. Errors of aiohttp name no file."""

        class ServerError(Exception):
            """Stands for an error of aiohttp."""

        def fail(name):
            raise ServerError("500, internal server error")

        def raise_missing(self, paths):
            raise FileNotFoundError(paths[0])

        dataset = tokjax.open_dataset(url, **options)
        message = f"^{url}/{TOKENS[0]} can't be read: ServerError: 500, internal server error$"
        with monkeypatch.context() as patch:
            patch.setattr(counted, "before", staticmethod(fail))
            patch.setattr(counted, "sizes", raise_missing)
            with pytest.raises(ConnectionError, match=message):
                dataset.read(0, 10)
            with pytest.raises(
                ConnectionError, match=f"^{url}/manifest.json can't be read: ServerError: 500"
            ):
                tokjax.open_dataset(url)
        assert dataset.read(0, 10).tolist() == make_shard(0)[:10]

    def test_ranges_are_not_compared_with_checksums(self):
        url = f"memory://{uuid.uuid4().hex}"
        tokjax.write_dataset(["a" * 999, "b" * 999], PACKED, url, shard_size=1000)
        system, root = fsspec.core.url_to_fs(url)
        path = f"{root}/shard-00001.tokens.npy"
        data = system.cat_file(path)
        old, new = (np.array(encode_text(letter), np.uint16).tobytes() for letter in "bx")
        system.pipe_file(path, data.replace(old, new))
        assert tokjax.open_dataset(url, read_ranges=True).read(1000, 1010).tolist() == encode_text("x" * 10)
        with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"shard-00001\.tokens\.npy was altered"):
            tokjax.open_dataset(url, read_ranges=True).read(1000, 2000)
        dataset = tokjax.open_dataset(url, read_ranges=True)
        system.pipe_file(path, data[:-2])
        with pytest.raises(
            tokjax.errors.DatasetCorruptError,
            match=rf"^{url}/shard-00001\.tokens\.npy was altered: it has 2126 bytes, the manifest says 2128;",
        ):
            dataset.read(1000, 1010)
        system.pipe_file(path, data)
        assert dataset.read(1000, 1010).tolist() == encode_text("b" * 10)
        system.pipe_file(path, data[:-500])
        with pytest.raises(
            tokjax.errors.DatasetCorruptError,
            match=r"shard-00001\.tokens\.npy: 0 bytes were received for bytes 1728 to 1748; the file is .*"
            "or its server can't send ranges: pass read_ranges=False$",
        ):
            dataset.read(1800, 1810)
        system.rm_file(path)
        for reader in (dataset, tokjax.open_dataset(url, read_ranges=True)):
            with pytest.raises(
                tokjax.errors.DatasetCorruptError, match=rf"^{url}/shard-00001\.tokens\.npy is missing; write"
            ):
                reader.read(990, 1010)
