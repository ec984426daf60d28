"""Timing: interleaved rounds in one process, and calls in fresh processes.

Run as a program, this module calls one function and prints its result as JSON. `run_in_process` uses that:

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
CORES_VARIABLE = "BENCHMARKS_CORES"
"""Name of the environment variable with the number of cores of a measured process."""


class ProcessError(RuntimeError):
    """Raised when a subprocess fails."""


def time_interleaved(
    contenders: Mapping[str, Callable[[], object]], rounds: int, *, twice: bool = False
) -> dict[str, list[float]]:
    """Times contenders in interleaved rounds, after one warm-up call of each.

    Interleaving spreads slow phases of the machine over all contenders. With two rounds of `a` and `b`, the
    calls are `a b` (warm-up), `a b`, `a b`. With `twice`, they are `a b` (warm-up), `a a b b`, `a a b b`.

    Args:
        contenders: functions without arguments, by name.
        rounds: number of rounds.
        twice: whether to call each contender twice per round and to time only the second call. That call
            reuses memory that the same contender freed, so that contenders do not affect one another.

    Returns:
        The seconds of each round, by contender.
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
    """Returns the seconds that one call takes, including the deallocation of its result."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def time_call(run: Callable[[], T]) -> tuple[float, T]:
    """Returns the seconds that one call takes, and its result."""
    begin = time.perf_counter()
    result = run()
    return time.perf_counter() - begin, result


def get_peak_megabytes() -> float:
    """Returns the peak resident memory of this process and of its child processes that run, in MiB.

    `getrusage` is only the fallback: in a new process it starts at the peak of the parent process.
    """
    try:
        children = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
        own, *others = (_read_peak(process) for process in ["self", *" ".join(children).split()])
    except OSError:
        return _get_peak_without_proc()
    return own + sum(others) if own else _get_peak_without_proc()


def _read_peak(process: str) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 1024 if match else 0.0


def _get_peak_without_proc() -> float:
    import resource  # noqa: PLC0415 (not on every system)

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def run_in_process(
    function: str, arguments: Mapping[str, Any], *, threads: int = 1, python: str = sys.executable
) -> Any:
    """Calls a function in a fresh process, and returns its result.

    Args:
        function: name of the function, as `module:function`. Its arguments and result must be JSON values.
        arguments: keyword arguments of the function.
        threads: number of threads, for libraries that read it from an environment variable. With 1, the
            process runs on one core, since other libraries use all cores that they find.
        python: interpreter to run. Its environment needs the imports of the function, but not this package.

    Raises:
        ProcessError: the process failed; the message has the last line of its error output.
    """
    done = subprocess.run(
        [python, "-m", "benchmarks.timing", function, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=_make_environment(threads),
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ProcessError(f"{function} failed: {lines[-1] if lines else f'exit status {done.returncode}'}")
    return json.loads(done.stdout.splitlines()[-1])  # (libraries may print lines before the result)


def _make_environment(threads: int) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        CORES_VARIABLE: str(threads),
        "PYTHONDONTWRITEBYTECODE": "",  # off, so that modules are compiled once, as when they are installed
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
    }


def _limit_cores() -> None:
    """Runs this process on as many cores as the environment variable says, where the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-int(os.environ[CORES_VARIABLE]) :])


def _main(function: str, arguments: str) -> None:
    _limit_cores()
    module, name = function.split(":")
    print(json.dumps(getattr(importlib.import_module(module), name)(**json.loads(arguments))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
