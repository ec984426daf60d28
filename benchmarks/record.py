"""What every benchmark writes down: the machine, the versions, the inputs, each round, medians and ratios."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RESULTS = Path(__file__).parent / "results"


def interleaved(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round; all of them run once before, and then in turn."""
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """The median seconds of each contender."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def write_record(name: str, packages: list[str], body: dict[str, Any]) -> Path:
    """Write `results/NAME.json`."""
    record = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%d"),
        "machine": {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count()},
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        **body,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def described_input(data: bytes) -> dict[str, Any]:
    """The size and checksum of an input."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
