"""How things are measured: rounds that go through all contenders in turn, and processes of their own.

Run as a program it calls one function in a fresh process, and prints what that gave as JSON:

    python -m benchmarks.timing MODULE:FUNCTION '{"argument": ...}'
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.record import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


class ProcessError(RuntimeError):
    """A process of its own that failed."""


def time_interleaved(
    contenders: Mapping[str, Callable[[], object]], rounds: int, *, twice: bool = False
) -> dict[str, list[float]]:
    """Seconds of each contender in each round; all of them run once before, and then in turn.

    Args:
        contenders: what to call.
        rounds: how often.
        twice: in its turn, each runs twice, and only the second run counts: so that each finds the memory
            that it gave back itself, and not what others left.
    """
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            if twice:
                run()
            seconds[name].append(measure_seconds(run))
    return seconds


def measure_seconds(run: Callable[[], object]) -> float:
    """How long one call takes, until what it gave is given up too."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def time_call(run: Callable[[], T]) -> tuple[float, T]:
    """How long one call takes, and what it gave."""
    begin = time.perf_counter()
    result = run()
    return time.perf_counter() - begin, result


def get_peak_megabytes() -> float:
    """The peak of this process alone: `getrusage` would begin at that of the process that started it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return _get_peak_without_proc()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else _get_peak_without_proc()


def _get_peak_without_proc() -> float:
    import resource  # noqa: PLC0415 (not on every system)

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def run_in_process(
    function: str, arguments: Mapping[str, Any], *, threads: int = 1, python: str = sys.executable
) -> Any:
    """What a function gives, named as `module:function`, called in a fresh process.

    Args:
        function: of this package; what it takes and gives is JSON.
        arguments: of the function.
        threads: how many its libraries may use, where an environment variable tells them.
        python: the interpreter; its environment needs what the function imports, and not this package.

    Raises:
        ProcessError: the process failed, with what it wrote.
    """
    done = subprocess.run(
        [python, "-m", "benchmarks.timing", function, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=_make_environment(threads),
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise ProcessError(f"{function} failed: {said[-1] if said else f'exit status {done.returncode}'}")
    return json.loads(done.stdout.splitlines()[-1])  # (some libraries print on the way)


def _make_environment(threads: int) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
    }


def _main(function: str, arguments: str) -> None:
    module, name = function.split(":")
    print(json.dumps(getattr(importlib.import_module(module), name)(**json.loads(arguments))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
