"""Virtual environment for transformers 4, the last major version with tokenizers in pure Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from typing import TYPE_CHECKING

from benchmarks.inputs import InputError, get_cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REQUIREMENT = "transformers>=4.45,<5"
NAME = "transformers4"


def get_python(directory: Path) -> Path:
    """Returns the path of the interpreter of a virtual environment."""
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def make_slow_environment(say: Callable[[str], None]) -> Path:
    """Returns the interpreter of the environment; creates the environment if it does not exist.

    Args:
        say: function that shows the current step to the user.

    Raises:
        InputError: pip could not install transformers 4.
    """
    directory = get_cache_directory() / NAME
    if directory.exists():
        return get_python(directory)
    say(f"installing {REQUIREMENT} into a separate environment")
    partial = directory.with_name(f"{NAME}.part")
    venv.create(partial, with_pip=True, clear=True)
    command = [str(get_python(partial)), "-m", "pip", "install", "-q", REQUIREMENT]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        shutil.rmtree(partial)
        lines = done.stderr.strip().splitlines()
        raise InputError(f"pip can't install {REQUIREMENT}: {lines[-1] if lines else 'no error message'}")
    partial.rename(directory)
    return get_python(directory)
