"""Locks between processes, between threads, and in children that are forked while threads work."""

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

def in_child(work):
    # Whether a forked child process finishes some work.
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

def while_held(lock, work):
    # The same, while another thread holds a lock.
    held, done = threading.Event(), threading.Event()
    def hold():
        with lock:
            held.set()
            done.wait()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    try:
        return in_child(work)
    finally:
        done.set()
"""


def run(program):
    """What a program prints, in a process of its own."""
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
    def test_locks_of_tokenizers(self):
        program = """
import tokjax._util.locks
tokenizer = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)} | {b"ab": 256})
def work(text="new words"):
    tokjax.encode_batch_result(tokenizer, [text * 999] * 9)
work("ab and cd ")
for lock in list(tokjax._util.locks._locks):
    print(while_held(lock.current, work))
"""
        found = run(program)
        assert len(found) > 2
        assert set(found) == {"True"}

    def test_locks_of_datasets(self, tmp_path):
        tokjax.write_dataset(["aaaa", "bbbb"], FIELD, tmp_path / "data", shard_size=1)
        program = f"""
import tokjax.datasets.open_shards
dataset = tokjax.open_dataset({str(tmp_path / "data")!r}, cache_bytes=1000)
loader = tokjax.PackedTokenLoader(dataset, batch_size=1)
for lock in (dataset._lock, dataset._cache._lock, tokjax.datasets.open_shards._lock, loader._lock):
    print(while_held(lock.current, lambda: (dataset[1], next(iter(loader)))))
"""
        assert run(program) == ["True"] * 4

    def test_cached_properties(self, tmp_path):
        tokjax.write_dataset(["aaaa", "bbbb"], FIELD, tmp_path / "data")
        program = f"""
from unittest import mock
from tokjax.datasets.dataset import Dataset
dataset = tokjax.open_dataset({str(tmp_path / "data")!r})
begun, done = threading.Event(), threading.Event()
real = Dataset._fill
def waiting(*args):
    begun.set()
    done.wait()
    real(*args)
with mock.patch.object(Dataset, "_fill", waiting):
    threading.Thread(target=lambda: dataset.document_splits, daemon=True).start()
    begun.wait()
print(in_child(lambda: dataset.document_splits))
done.set()
"""
        assert run(program) == ["True"]

    def test_prefetched_batches_are_rejected(self):
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
print(in_child(work))
batches.close()
"""
        assert run(program) == ["True"]

    def test_the_thread_that_forks_keeps_its_lock(self):
        program = """
from tokjax._util.locks import ThreadLock
lock = ThreadLock()
with lock.current:
    child = os.fork()
if child:
    print(os.waitpid(child, 0)[1] == 0, lock.current.acquire(timeout=0))
"""
        assert run(program) == ["True", "True"]


def test_a_lock_pickles_as_a_new_one():
    lock = ThreadLock()
    with lock.current:
        assert pickle.loads(pickle.dumps(lock)).current.acquire(timeout=0)


class TestBetweenProcesses:
    def test_one_holds_it(self, tmp_path):
        path = tmp_path / "data.lock"
        with lock_file(path) as first, lock_file(path) as second:
            assert (first, second) == (True, False)
            assert path.exists()
        assert not path.exists()

    def test_a_file_that_was_left_is_no_lock(self, tmp_path):
        path = tmp_path / "data.lock"
        path.touch()
        with lock_file(path) as is_locked:
            assert is_locked

    def test_a_file_that_is_deleted_before_it_is_locked_keeps_nobody_out(self, tmp_path, monkeypatch):
        """The holder leaves between opening and locking: a third writer must not get in as well."""
        path, real, inside = tmp_path / "data.lock", fcntl.flock, lock_file(tmp_path / "data.lock")
        inside.__enter__()

        def hooked(descriptor, operation):
            monkeypatch.undo()
            inside.__exit__(None, None, None)
            real(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", hooked)
        with lock_file(path) as second, lock_file(path) as third:
            assert (second, third) == (True, False)

    def test_a_killed_process_holds_nothing(self, tmp_path):
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
    def test_what_is_no_file(self, tmp_path, make):
        make(tmp_path / "data.lock")
        with pytest.raises(OSError, match=r"data\.lock"):
            lock_file(tmp_path / "data.lock").__enter__()


def share_batches(batches, num_threads=4):
    """What threads take of one iterator, in any order."""
    found = []

    def take():
        found.extend(np.asarray(batch.ids).tobytes() for batch in batches)

    threads = [threading.Thread(target=take) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class TestOneIterator:
    @pytest.fixture
    def loader(self, tmp_path, monkeypatch):
        tokjax.write_dataset([f"{i:04d}" for i in range(64)], FIELD, tmp_path / "data", shard_size=50)
        loader = tokjax.PackedTokenLoader(tokjax.open_dataset(tmp_path / "data"), batch_size=1)
        batch_at = loader.batch_at

        def slow(step):
            time.sleep(0.0005)  # (so that others are at the same step, if nothing keeps them out)
            return batch_at(step)

        monkeypatch.setattr(loader, "batch_at", slow)
        return loader

    def test_of_a_loader(self, loader):
        expected = [loader.batch_at(step).ids.tobytes() for step in range(len(loader))]
        assert Counter(share_batches(iter(loader))) == Counter(expected)
        assert loader.get_state()["step"] == len(loader)

    def test_of_prefetched_batches(self, loader):
        expected = [loader.batch_at(step).ids.tobytes() for step in range(len(loader))]
        batches = tokjax.prefetch_to_device(loader)
        assert Counter(share_batches(batches)) == Counter(expected)
        assert batches.get_state()["step"] == len(loader)

    def test_pickles(self, loader, monkeypatch):
        monkeypatch.undo()
        batches = iter(loader)
        first = pickle.loads(pickle.dumps(batches))
        assert np.array_equal(next(first).ids, next(batches).ids)


def test_ctrl_c_while_the_source_of_prefetched_batches_waits():
    program = """
import signal, threading, time
import numpy as np
import tokjax

def source():
    yield np.zeros(2)
    threading.Event().wait()

signal.signal(signal.SIGINT, signal.default_int_handler)
begun = time.monotonic()
try:
    with tokjax.prefetch_to_device(source()) as batches:
        for _ in batches:
            begun = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            signal.signal(signal.SIGALRM, signal.default_int_handler)
except KeyboardInterrupt:
    print("stopped", time.monotonic() - begun < 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=60, text=True
    )
    assert (done.returncode, done.stdout) == (0, "stopped True\n"), done.stderr
