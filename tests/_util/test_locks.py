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
import os, threading, time
import numpy as np
import tokjax

def succeeds_in_child(work):
    # Returns whether `work` succeeds in a forked child process.
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False

def succeeds_while_held(lock, work):
    # The same, while another thread of this process holds a lock.
    held, done = threading.Event(), threading.Event()
    def hold():
        with lock:
            held.set()
            done.wait()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    try:
        return succeeds_in_child(work)
    finally:
        done.set()
"""


def run_program(program):
    """Runs a program in a fresh process, and returns the words that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING + program],
        capture_output=True,
        check=False,
        timeout=100,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


class TestForks:
    def test_tokenizer_works_in_child(self):
        program = """
import tokjax._util.locks
tokenizer = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)} | {b"ab": 256})
def work(text="new words"):
    tokjax.encode_batch_result(tokenizer, [text * 999] * 9)
work("ab and cd ")
for lock in list(tokjax._util.locks._locks):
    print(succeeds_while_held(lock.current, work))
"""
        printed = run_program(program)
        assert len(printed) > 2
        assert set(printed) == {"True"}

    def test_dataset_works_in_child(self, tmp_path):
        tokjax.write_dataset(["aaaa", "bbbb"], FIELD, tmp_path / "data", shard_size=1)
        program = f"""
import tokjax.datasets.caches
dataset = tokjax.open_dataset({str(tmp_path / "data")!r}, cache_bytes=1000)
loader = tokjax.PackedTokenLoader(dataset, batch_size=1)
shard_lock = dataset._get_lock((1, "tokens"))
for lock in (shard_lock, dataset._cache._lock, tokjax.datasets.caches._lock, loader._lock):
    print(succeeds_while_held(lock.current, lambda: (dataset[1], next(iter(loader)))))
"""
        assert run_program(program) == ["True"] * 4

    def test_dataset_at_a_url_works_in_child(self, tmp_path):
        pytest.importorskip("fsspec")
        tokjax.write_dataset(["aaaa", "bbbb", "cccc"], FIELD, tmp_path / "data", shard_size=1)
        program = f"""
dataset = tokjax.open_dataset("file://{tmp_path / "data"}", fetch_ahead=1)
batches = tokjax.PackedTokenLoader(dataset, batch_size=1, documents=False, shuffle=False).repeat()
next(batches)
while not dataset._files.remote._locks:
    time.sleep(0.01)
for lock in (*dataset._locks.values(), *dataset._files.remote._locks.values()):
    print(succeeds_while_held(lock.current, lambda: [next(batches) for _ in range(4)] and batches.close()))
"""
        assert set(run_program(program)) == {"True"}

    def test_cached_property_works_in_child(self, tmp_path):
        tokjax.write_dataset(["aaaa", "bbbb"], FIELD, tmp_path / "data")
        program = f"""
from unittest import mock
from tokjax.datasets.dataset import Dataset
dataset = tokjax.open_dataset({str(tmp_path / "data")!r})
started, done = threading.Event(), threading.Event()
original = Dataset._fill
def fill_later(*args):
    started.set()
    done.wait()
    original(*args)
with mock.patch.object(Dataset, "_fill", fill_later):
    threading.Thread(target=lambda: dataset.document_splits, daemon=True).start()
    started.wait()
print(succeeds_in_child(lambda: dataset.document_splits))
done.set()
"""
        assert run_program(program) == ["True"]

    def test_prefetched_batches_are_rejected_in_child(self):
        program = """
batches = tokjax.prefetch_to_device(np.zeros(2) for _ in range(9))
next(batches)
def work():
    try:
        next(batches)
    except tokjax.errors.InvalidArgumentError as error:
        assert "forked after prefetch_to_device(...) began" in str(error)
        batches.close()
    else:
        raise AssertionError
print(succeeds_in_child(work))
batches.close()
"""
        assert run_program(program) == ["True"]

    def test_forking_thread_can_release_its_lock(self):
        program = """
from tokjax._util.locks import ThreadLock
lock = ThreadLock()
with lock.current:
    child = os.fork()
if child:
    print(os.waitpid(child, 0)[1] == 0, lock.current.acquire(timeout=0))
"""
        assert run_program(program) == ["True", "True"]


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

    def test_leftover_file_is_not_locked(self, tmp_path):
        path = tmp_path / "data.lock"
        path.touch()
        with lock_file(path) as is_locked:
            assert is_locked

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

    def test_forked_process_does_not_hold_the_lock(self, tmp_path):
        program = f"""
from pathlib import Path
from tokjax._util.locks import keep_locked, lock_file
path = Path({str(tmp_path / "data.lock")!r})
reader, writer = os.pipe()
with keep_locked(path):
    child = os.fork()
    if not child:
        os._exit(os.read(reader, 1) != b"x")  # (waits)
with lock_file(path) as is_locked:
    print(is_locked)
os.write(writer, b"x")
print(os.waitpid(child, 0)[1] == 0)
"""
        assert run_program(program) == ["True", "True"]

    def test_forked_process_does_not_release_the_lock(self, tmp_path):
        program = f"""
from pathlib import Path
from tokjax._util.locks import lock_file
path = Path({str(tmp_path / "data.lock")!r})
holder = lock_file(path)
holder.__enter__()
print(succeeds_in_child(lambda: holder.__exit__(None, None, None)), path.exists())
with lock_file(path) as is_locked:
    print(is_locked)
"""
        assert run_program(program) == ["True", "True", "False"]

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
        batches = tokjax.prefetch_to_device(loader)
        assert Counter(share_batches(batches)) == Counter(expected)
        assert batches.get_state()["step"] == len(loader)

    def test_pickled_iterator(self, loader, monkeypatch):
        monkeypatch.undo()
        batches = iter(loader)
        copied = pickle.loads(pickle.dumps(batches))
        assert np.array_equal(next(copied).ids, next(batches).ids)


def test_keyboard_interrupt_while_prefetching():
    program = """
import signal, threading, time
import numpy as np
import tokjax

def source():
    yield np.zeros(2)
    threading.Event().wait()

signal.signal(signal.SIGINT, signal.default_int_handler)
started = time.monotonic()
try:
    with tokjax.prefetch_to_device(source()) as batches:
        for _ in batches:
            started = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            signal.signal(signal.SIGALRM, signal.default_int_handler)
except KeyboardInterrupt:
    print("stopped", time.monotonic() - started < 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=60, text=True
    )
    assert (done.returncode, done.stdout) == (0, "stopped True\n"), done.stderr
