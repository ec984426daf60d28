"""Batches on devices: threads that end with the program, errors that reach the user, leaves of every kind."""

import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import tokjax

ENDS = {
    "the end": "",
    "sys.exit": "sys.exit(3)",
    "an error": "raise ValueError('mine')",
    "forgotten": "batches = None",
}
PROGRAM = """
import itertools, sys
import numpy as np
import tokjax
batches = tokjax.prefetch_to_device((np.ones((1024, 2048), np.int32) for _ in itertools.count()), size=2)
for _, batch in zip(range(3), batches):
    total = int(batch.sum())
print(total)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_without_closing_it(end):
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", PROGRAM + ENDS[end]], capture_output=True, check=False)
        assert done.returncode == {"sys.exit": 3, "an error": 1}.get(end, 0), done.stderr
        assert done.stdout.split() == [b"2097152"]
        assert (b"ValueError: mine" in done.stderr) == (end == "an error")
        assert b"terminate" not in done.stderr


def test_a_program_ends_while_the_source_waits():
    program = """
import threading
import numpy as np
import tokjax
import tokjax.datasets.loaders.prefetch
tokjax.datasets.loaders.prefetch._CLOSE_SECONDS = 0.1
def source():
    yield np.zeros(2)
    threading.Event().wait()
batches = tokjax.prefetch_to_device(source())
print(next(batches).shape)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"(2,)\n", b"")


class TestErrors:
    def test_errors_of_the_state(self):
        class Source:
            received = 0

            def __iter__(self):
                return self

            def __next__(self):
                self.received += 1
                return np.zeros(2)

            def get_state(self):
                if self.received > 2:
                    raise RuntimeError("the state is broken")
                return {"taken": self.received}

        batches, found = tokjax.prefetch_to_device(Source()), []

        def take():
            try:
                found.extend(batches)
            except RuntimeError as error:
                found.append(error)

        taker = threading.Thread(target=take, daemon=True)  # (so that a hang fails, and does not hang)
        taker.start()
        taker.join(timeout=30)
        assert not taker.is_alive()
        assert str(found[-1]) == "the state is broken"
        assert batches.get_state() == {"taken": 2}

    def test_errors_of_the_first_state(self):
        class Source:
            def __iter__(self):
                return self

            def __next__(self):
                return np.zeros(2)

            def get_state(self):
                raise RuntimeError("no state yet")

        with pytest.raises(RuntimeError, match="no state yet"):
            tokjax.prefetch_to_device(Source())

    @pytest.mark.parametrize("wrong", [5, None])
    def test_what_is_no_iterable(self, wrong):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match=rf"batches must be an iterable, such as a loader or loader\.repeat\(\), not {wrong}",
        ):
            tokjax.prefetch_to_device(wrong)


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
    batch = next(tokjax.prefetch_to_device([passed], sharding=sharding))
    assert (int(batch["step"]), float(batch["rate"]), float(batch["scale"])) == (7, 0.5, 2.0)
    assert all(batch[name].sharding.is_fully_replicated for name in ("step", "rate", "scale"))
    assert batch["rows"].sharding == sharding
    assert batch["no"] is None
