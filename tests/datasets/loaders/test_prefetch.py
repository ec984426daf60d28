"""Tests of `prefetch_to_device`: order, state, sharding, errors, and exit of the program."""

import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import tokjax
from tests.support.loader_cases import LOADERS, are_equal
from tests.support.rejections import rejects

ENDS = {
    "the end": "",
    "sys.exit": "sys.exit(3)",
    "an error": "raise ValueError('mine')",
    "garbage collection": "batches = None",
}
PROGRAM = """
import itertools, sys
import numpy as np
import tokjax
arrays = (np.ones((1024, 2048), np.int32) for _ in itertools.count())
batches = tokjax.datasets.prefetch_to_device(arrays, size=2)
for _, batch in zip(range(3), batches):
    total = int(batch.sum())
print(total)
"""


class TestPrefetch:
    def test_batches_come_in_order_on_devices(self, datasets):
        loader = LOADERS["packed"](datasets, seed=5)
        prefetched = list(tokjax.datasets.prefetch_to_device(loader.repeat(2), size=3))
        assert len(prefetched) == 2 * len(loader)
        for step, batch in enumerate(prefetched):
            assert isinstance(batch.ids, jax.Array)
            assert are_equal(jax.tree.map(np.asarray, batch), loader.batch_at(step))

    def test_state_follows_yielded_batches(self, datasets):
        loader = LOADERS["packed"](datasets, seed=5)
        with tokjax.datasets.prefetch_to_device(loader.repeat(), size=4) as batches:
            assert batches.get_state()["step"] == 0
            for _ in range(3):
                next(batches)
            state = batches.get_state()
        assert state["step"] == 3
        restored = LOADERS["packed"](datasets, seed=5)
        restored.set_state(state)
        assert are_equal(next(restored.repeat()), LOADERS["packed"](datasets, seed=5).batch_at(3))
        with rejects("do not come from a loader"):
            tokjax.datasets.prefetch_to_device(iter([np.zeros(1)])).get_state()

    def test_errors_are_raised_by_next(self):
        def broken():
            yield np.zeros(2, np.int32)
            raise RuntimeError("the disk is gone")

        batches = tokjax.datasets.prefetch_to_device(broken())
        assert next(batches).shape == (2,)
        with pytest.raises(RuntimeError, match="the disk is gone"):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)

    def test_prefetching_stops(self):
        def endless():
            while True:
                yield np.zeros(2, np.int32)

        with tokjax.datasets.prefetch_to_device(endless()) as batches:
            next(batches)
            assert batches._worker.is_alive()
        assert not batches._worker.is_alive()
        unclosed = tokjax.datasets.prefetch_to_device(endless())
        thread = unclosed._worker
        del unclosed
        thread.join(timeout=5)
        assert not thread.is_alive()
        with rejects("size must be at least 1"):
            tokjax.datasets.prefetch_to_device(endless(), size=0)


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_program_exits_without_close(end):
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", PROGRAM + ENDS[end]], capture_output=True, check=False)
        assert done.returncode == {"sys.exit": 3, "an error": 1}.get(end, 0), done.stderr
        assert done.stdout.split() == [b"2097152"]
        assert (b"ValueError: mine" in done.stderr) == (end == "an error")
        assert b"terminate" not in done.stderr


BLOCKED_PROGRAM = """
import os, signal, threading
import numpy as np
import tokjax
import tokjax.datasets.loaders.prefetch

tokjax.datasets.loaders.prefetch._CLOSE_SECONDS = 0.1

def source():
    yield np.zeros(2)
    threading.Event().wait()

batches = tokjax.datasets.prefetch_to_device(source())
next(batches)
child = os.fork()
if not child:
    signal.alarm(30)
    try:
        next(batches)
    except tokjax.errors.InvalidArgumentError as error:
        batches.close()
        os._exit(0 if "forked after prefetch_to_device(...) began" in str(error) else 1)
print("child", os.waitpid(child, 0)[1])
batches.close()

signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    with tokjax.datasets.prefetch_to_device(source()) as batches:
        for _ in batches:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
except KeyboardInterrupt:
    print("interrupted")

batches = tokjax.datasets.prefetch_to_device(source())
print(next(batches).shape)
"""


def test_source_that_blocks():
    """A forked child gets an error, the waiting program can be interrupted, and the program can exit."""
    command = [sys.executable, "-W", "ignore", "-c", BLOCKED_PROGRAM]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["child 0", "interrupted", "(2,)"]


class Source:
    """Batches without an end, with a state up to a step."""

    def __init__(self, last_step):
        self.last_step, self.received = last_step, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.received += 1
        return np.zeros(2)

    def get_state(self):
        if self.received > self.last_step:
            raise RuntimeError("the state is broken")
        return {"step": self.received}


class TestErrors:
    def test_errors_of_the_state(self):
        batches, results = tokjax.datasets.prefetch_to_device(Source(last_step=2)), []

        def consume():
            try:
                results.extend(batches)
            except RuntimeError as error:
                results.append(error)

        consumer = threading.Thread(target=consume, daemon=True)  # a deadlock fails the test after 30 s
        consumer.start()
        consumer.join(timeout=30)
        assert not consumer.is_alive()
        assert str(results[-1]) == "the state is broken"
        assert batches.get_state() == {"step": 2}

    @pytest.mark.parametrize("wrong", [5, None])
    def test_invalid_iterables(self, wrong):
        with rejects(rf"batches must be an iterable, such as a loader or loader\.repeat\(\), not {wrong}"):
            tokjax.datasets.prefetch_to_device(wrong)


def test_numbers_are_replicated():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    passed = {
        "step": 7,
        "rate": 0.5,
        "scale": np.float32(2),
        "rows": np.arange(4, dtype=np.int32),
        "no": None,
    }
    batch = next(tokjax.datasets.prefetch_to_device([passed], sharding=sharding))
    assert (int(batch["step"]), float(batch["rate"]), float(batch["scale"])) == (7, 0.5, 2.0)
    assert all(batch[name].sharding.is_fully_replicated for name in ("step", "rate", "scale"))
    assert batch["rows"].sharding == sharding
    assert batch["no"] is None
