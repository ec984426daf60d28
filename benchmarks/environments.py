"""An environment of its own for transformers 4, the last that has tokenizers in Python."""

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
    """The interpreter of a virtual environment."""
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def make_slow_environment(say: Callable[[str], None]) -> Path:
    """The interpreter of the environment, which is made if it is not there.

    Raises:
        InputError: pip can't install it.
    """
    directory = get_cache_directory() / NAME
    if directory.exists():
        return get_python(directory)
    say(f"installing {REQUIREMENT} into an environment of its own")
    part = directory.with_name(f"{NAME}.part")
    venv.create(part, with_pip=True, clear=True)
    command = [str(get_python(part)), "-m", "pip", "install", "-q", REQUIREMENT]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        shutil.rmtree(part)
        said = done.stderr.strip().splitlines()
        raise InputError(f"pip can't install {REQUIREMENT}: {said[-1] if said else 'it says nothing'}")
    part.rename(directory)
    return get_python(directory)
