"""Tests of locks between threads and processes, of forks, and of the iterators that use locks."""

import fcntl
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest

import tokjax
from tokjax._util.locks import ThreadLock, lock_file

FIELD = tokjax.PackedTokenField(tokjax.byte_level(["</s>"], eos_token="</s>"), chunk_tokens=4)

FORKING = """
import os, sys, threading, time
from pathlib import Path
from unittest import mock
import tokjax
import tokjax.datasets.downloads
from tokjax._util import locks
from tokjax.datasets.dataset import Dataset

directory = Path(sys.argv[1])

def succeeds_in_child(work):
    # Returns whether `work` succeeds in a forked child process.
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    for _ in range(1000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False

def check(name, locks, work):
    # Prints for each lock whether `work` succeeds in a child while another thread of this process holds it.
    for lock in locks:
        held, done = threading.Event(), threading.Event()
        def hold():
            with lock.current:
                held.set()
                done.wait()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        print(name, succeeds_in_child(work))
        done.set()

tokenizer = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)} | {b"ab": 256})
def encode(text="new words"):
    tokjax.encode_batch_result(tokenizer, [text * 999] * 9)
encode("ab and cd ")
check("tokenizer", list(locks._locks), encode)

dataset = tokjax.open_dataset(directory / "data")
loader = tokjax.PackedTokenLoader(dataset, batch_size=1)
held = dataset._get_lock((1, "tokens")), tokjax.datasets.downloads._lock, loader._position.lock
check("dataset", held, lambda: (dataset[1], next(iter(loader))))

remote = tokjax.open_dataset(f"file://{directory / 'data'}", fetch_ahead=1)
batches = tokjax.PackedTokenLoader(remote, batch_size=1, documents=False, shuffle=False).repeat()
next(batches)
while not remote._locks:
    time.sleep(0.01)
held = list(remote._locks.values())
check("URL", held, lambda: [next(batches) for _ in range(4)] and batches.close())
batches.close()

started, done = threading.Event(), threading.Event()
fill = Dataset._fill
def fill_later(*args):
    started.set()
    done.wait()
    fill(*args)
with mock.patch.object(Dataset, "_fill", fill_later):
    threading.Thread(target=lambda: dataset.document_splits, daemon=True).start()
    started.wait()
print("property", succeeds_in_child(lambda: dataset.document_splits))
done.set()

lock = locks.ThreadLock()
with lock.current:
    child = os.fork()
if not child:
    os._exit(0)
print("forking thread", os.waitpid(child, 0)[1] == 0)
print("forking thread", lock.current.acquire(timeout=0))

reader, writer = os.pipe()
with locks.keep_locked(directory / "data.lock"):
    child = os.fork()
    if not child:
        os._exit(os.read(reader, 1) != b"x")  # (waits)
with locks.lock_file(directory / "data.lock") as is_locked:
    print("child does not hold the file", is_locked)
os.write(writer, b"x")
print("child does not hold the file", os.waitpid(child, 0)[1] == 0)

holder = locks.lock_file(directory / "data.lock")
holder.__enter__()
print("child does not release the file", succeeds_in_child(lambda: holder.__exit__(None, None, None)))
print("child does not release the file", (directory / "data.lock").exists())
with locks.lock_file(directory / "data.lock") as is_locked:
    print("child does not release the file", not is_locked)
"""
"""Prints facts about forked child processes: a name and whether it is true."""


def test_forked_processes(tmp_path):
    """One program shows all facts: its imports take longer than all its forks."""
    pytest.importorskip("fsspec")
    tokjax.write_dataset(["aaaa", "bbbb", "cccc"], FIELD, tmp_path / "data", shard_size=1)
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=200, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.endswith(" True")] == []
    counts = Counter(line.removesuffix(" True") for line in lines)
    assert counts.pop("tokenizer") > 2
    assert counts.pop("URL") > 0
    assert counts == {
        "dataset": 3,
        "property": 1,
        "forking thread": 2,
        "child does not hold the file": 2,
        "child does not release the file": 3,
    }


def test_pickled_lock_is_not_held():
    lock = ThreadLock()
    with lock.current:
        assert pickle.loads(pickle.dumps(lock)).current.acquire(timeout=0)


class TestFileLock:
    def test_only_one_holder(self, tmp_path):
        path = tmp_path / "data.lock"
        with lock_file(path) as first, lock_file(path) as second:
            assert (first, second) == (True, False)
            assert path.exists()
        assert not path.exists()

    def test_file_deleted_before_it_is_locked(self, tmp_path, monkeypatch):
        """The first holder releases after the second one opened the file. A third must not get it too."""
        path, original, first = tmp_path / "data.lock", fcntl.flock, lock_file(tmp_path / "data.lock")
        first.__enter__()

        def release_first_then_lock(descriptor, operation):
            monkeypatch.undo()
            first.__exit__(None, None, None)
            original(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", release_first_then_lock)
        with lock_file(path) as second, lock_file(path) as third:
            assert (second, third) == (True, False)

    def test_killed_process_releases_lock(self, tmp_path):
        path = tmp_path / "data.lock"
        program = f"""
import os
from pathlib import Path
from tokjax._util.locks import lock_file
with lock_file(Path({str(path)!r})):
    os.kill(os.getpid(), 9)
"""
        subprocess.run([sys.executable, "-c", program], check=False)
        assert path.exists()
        with lock_file(path) as is_locked:
            assert is_locked

    @pytest.mark.parametrize("make", [os.mkdir, lambda path: path.symlink_to(path.name)])
    def test_path_that_is_not_a_file(self, tmp_path, make):
        make(tmp_path / "data.lock")
        with pytest.raises(OSError, match=r"data\.lock"):
            lock_file(tmp_path / "data.lock").__enter__()


def share_batches(batches, num_threads=4):
    """Iterates over one iterator in several threads, and returns the ids of all batches, in any order."""
    ids = []

    def collect():
        ids.extend(np.asarray(batch.ids).tobytes() for batch in batches)

    threads = [threading.Thread(target=collect) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ids


class TestIteratorSharedByThreads:
    @pytest.fixture
    def loader(self, tmp_path, monkeypatch):
        tokjax.write_dataset([f"{i:04d}" for i in range(64)], FIELD, tmp_path / "data", shard_size=50)
        loader = tokjax.PackedTokenLoader(tokjax.open_dataset(tmp_path / "data"), batch_size=1)
        batch_at = loader.batch_at

        def get_batch_slowly(step):
            time.sleep(0.0005)  # without a lock, several threads would be at the same step
            return batch_at(step)

        monkeypatch.setattr(loader, "batch_at", get_batch_slowly)
        return loader

    def test_loader(self, loader):
        expected = [loader.batch_at(step).ids.tobytes() for step in range(len(loader))]
        assert Counter(share_batches(iter(loader))) == Counter(expected)
        assert loader.get_state()["step"] == len(loader)

    def test_prefetched_batches(self, loader):
        expected = [loader.batch_at(step).ids.tobytes() for step in range(len(loader))]
        batches = tokjax.datasets.prefetch_to_device(loader)
        assert Counter(share_batches(batches)) == Counter(expected)
        assert batches.get_state()["step"] == len(loader)

    def test_pickled_iterator(self, loader, monkeypatch):
        monkeypatch.undo()
        batches = iter(loader)
        copied = pickle.loads(pickle.dumps(batches))
        assert np.array_equal(next(copied).ids, next(batches).ids)
