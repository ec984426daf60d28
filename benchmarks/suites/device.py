"""Functions under `jax.jit`, as a share of memory bandwidth, and overlap of loading with training steps.

Each function is compared with copies of as many bytes as it reads and writes: by XLA into new memory, and on
a CPU also by NumPy into allocated memory. The bandwidth is measured with a jitted copy of a large array.
Encoding is compared with tiktoken on the same cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.device_encoding import measure_encoding
from benchmarks.jit_cases import count_bytes, make_cases, put_on_device
from benchmarks.names import BANDWIDTH, COPY, MEMCPY, OWN
from benchmarks.overlap import measure_overlap
from benchmarks.timing import time_interleaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

PACKAGES = ["tokjax", "numpy", "jax", "jaxlib", "tiktoken"]
ROWS, LENGTH = 1024, 2048
ROWS_ON_ACCELERATOR = 8192
QUICK_ROWS, QUICK_LENGTH = 128, 256
LARGE_BYTES, QUICK_LARGE_BYTES = 1 << 28, 1 << 22


def measure_bandwidth(bench: Bench) -> None:
    """Measures a jitted copy of a large array, which reads and writes each byte once."""
    size = bench.choose(LARGE_BYTES, QUICK_LARGE_BYTES)
    run = make_jitted_copy(size)
    bench.compare(BANDWIDTH, {COPY: run}, bench.rounds(20), extra={"bytes": 2 * size})


def make_jitted_copy(size: int) -> Callable[[], object]:
    """Makes a jitted copy of `size` bytes into new memory of the device."""
    source, copy = jnp.ones(size // 4, jnp.int32), jax.jit(jnp.copy)
    return lambda: jax.block_until_ready(copy(source))


def make_memcpy(size: int) -> Callable[[], object]:
    """Makes a NumPy copy of `size` bytes into allocated memory of the host."""
    source = np.ones(size, np.uint8)
    target = np.ones_like(source)
    return lambda: np.copyto(target, source)


def measure_case(bench: Bench, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Measures a function, and copies that move as many bytes: a copy of `n` bytes reads and writes `2 n`."""
    on_device, jitted = put_on_device(arguments), jax.jit(function)
    size = count_bytes(jitted(*on_device), on_device)
    contenders = {OWN: lambda: jax.block_until_ready(jitted(*on_device)), COPY: make_jitted_copy(size // 2)}
    if jax.default_backend() == "cpu":
        contenders[MEMCPY] = make_memcpy(size // 2)
    bench.say(name)
    bench.add_rounds(name, time_interleaved(contenders, bench.rounds(20)), extra={"bytes": size})


def measure(bench: Bench) -> None:
    """Measures the bandwidth, all functions, encoding, and the overlap of loading with training steps."""
    device = jax.devices()[0]
    rows = ROWS if device.platform == "cpu" else ROWS_ON_ACCELERATOR
    rows, length = bench.choose((rows, LENGTH), (QUICK_ROWS, QUICK_LENGTH))
    bench.settings |= {
        "platform": device.platform,
        "device": device.device_kind,
        "rows": rows,
        "length": length,
    }
    measure_bandwidth(bench)
    for name, (function, arguments) in make_cases(rows, length):
        measure_case(bench, name, function, arguments)
    measure_encoding(bench)
    measure_overlap(bench)
