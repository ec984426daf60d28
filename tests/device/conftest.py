"""Settings of the tests of tokenization on a device."""

from pathlib import Path

import jax
import pytest

MAPS = Path("/proc/self/maps")
MAX_NUM_MAPS = 20_000
"""Linux ends a process that has more than 65,530 memory maps. Compiled programs have thousands of them."""


@pytest.fixture(autouse=True)
def _free_compiled_programs():
    """Frees the compiled programs of earlier tests before they exhaust the memory maps of the process."""
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MAX_NUM_MAPS:
        jax.clear_caches()
