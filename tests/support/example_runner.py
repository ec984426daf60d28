"""The examples as programs that a user runs, and as modules."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = [path for path in sorted(EXAMPLES.glob("*.py")) if "__main__" in path.read_text("utf-8")]
AS_A_USER = {
    name: value
    for name, value in os.environ.items()
    if name not in ("JAX_NUMPY_DTYPE_PROMOTION", "XLA_FLAGS")  # optax needs implicit promotion
}


def run_example(name, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=AS_A_USER,
    )


def load_example(name, monkeypatch):
    """A module of the examples, which import each other by their bare names."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module(name)
