"""The examples as programs that a user runs, and as modules."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = [path for path in sorted(EXAMPLES.glob("*.py")) if "__main__" in path.read_text("utf-8")]
AS_A_USER = {
    name: value
    for name, value in os.environ.items()
    if name not in ("JAX_NUMPY_DTYPE_PROMOTION", "XLA_FLAGS")  # optax needs implicit promotion
}


def run_example(name, *arguments, exit_code=0, cwd=None):
    """Runs a program that must end with an exit code, and returns its two outputs."""
    command = [sys.executable, EXAMPLES / name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=AS_A_USER, cwd=cwd)
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done


def start_example(name, *arguments):
    """Starts a program; the caller waits for it. Its output is that of both streams."""
    return subprocess.Popen(
        [sys.executable, EXAMPLES / name, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=AS_A_USER,
    )


def wait_for_lines(path, count, process):
    """Waits until a running program has written this number of lines to a file."""
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_text().count("\n") < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def load_example(name, monkeypatch):
    """A module of the examples, which import each other by their bare names."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module(name)
