"""The one format of all records: what was measured, where, with which versions and on which inputs.

A record is a JSON file. Its measurements are a flat list; each says how long one contender took for one task
(or how much memory), round by round, with the median, and the ratio to a reference contender of that task.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
UNITS = ("s", "MB")


class RecordError(ValueError):
    """A record that does not keep to the format."""


@dataclass(frozen=True)
class Input:
    """What was measured on.

    Attributes:
        name: what the contenders know it by.
        bytes: its size.
        sha256: of all of it, in hexadecimal.
        note: where it comes from, if that is not plain.
    """

    name: str
    bytes: int
    sha256: str
    note: str = ""


@dataclass(frozen=True)
class Measurement:
    """One contender at one task.

    Attributes:
        task: what is done; the same for all contenders that are compared.
        contender: who does it.
        measure: which of its numbers: `"time"`, `"cold"`, `"warm"`, `"memory"` ...
        unit: `"s"` or `"MB"`, of rounds and median.
        rounds: the value of each round; empty where only a median was kept, or nothing measured.
        median: of the rounds; `None` if nothing was measured.
        at: the place on the axis of a curve: bytes, ids, documents or threads; `None` for no curve.
        reference: the contender that the ratio is to, of the same task, measure and place.
        ratio: the median, divided by that of the reference.
        left_out: why nothing was measured.
        extra: other numbers that belong to it, such as how full blocks are.
    """

    task: str
    contender: str
    measure: str = "time"
    unit: str = "s"
    rounds: tuple[float, ...] = ()
    median: float | None = None
    at: float | None = None
    reference: str | None = None
    ratio: float | None = None
    left_out: str = ""
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, float | None, str, str]:
        """What no two measurements of a record share."""
        return self.task, self.at, self.contender, self.measure


@dataclass(frozen=True)
class Record:
    """All measurements of a suite, and what is needed to make them again."""

    benchmark: str
    date: str
    commit: str
    machine: dict[str, Any]
    python: str
    versions: dict[str, str]
    settings: dict[str, Any]
    inputs: tuple[Input, ...]
    measurements: tuple[Measurement, ...]

    def of(self, measure: str = "time", **wanted: Any) -> list[Measurement]:
        """What was measured, in order, of one measure and with the given attributes."""
        return [
            one
            for one in self.measurements
            if one.measure == measure and not one.left_out and _matches(one, wanted)
        ]

    def input(self, name: str) -> Input | None:
        """The input of that name."""
        return next((one for one in self.inputs if one.name == name), None)


def _matches(measurement: Measurement, wanted: Mapping[str, Any]) -> bool:
    return all(getattr(measurement, name) == value for name, value in wanted.items())


def make_record(
    benchmark: str,
    packages: Iterable[str],
    settings: dict[str, Any],
    inputs: Iterable[Input],
    measurements: Sequence[Measurement],
) -> Record:
    """The record of today and of this machine; packages that are not installed have no version."""
    return Record(
        benchmark=benchmark,
        date=time.strftime("%Y-%m-%d"),
        commit=_get_commit(),
        machine=_describe_machine(),
        python=platform.python_version(),
        versions={package: number for package in packages if (number := get_version(package))},
        settings=settings,
        inputs=tuple(inputs),
        measurements=tuple(add_ratios(measurements)),
    )


def add_ratios(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The measurements, with medians and ratios as they follow from the rounds."""
    own = {one.key: compute_median(one) for one in measurements}
    return [
        replace(one, median=own[one.key], ratio=_compute_ratio(own, one) if one.reference else None)
        for one in measurements
    ]


def compute_median(measurement: Measurement) -> float | None:
    """The median of the rounds; where these were not kept, the median that was."""
    return statistics.median(measurement.rounds) if measurement.rounds else measurement.median


def _compute_ratio(medians: Mapping[Any, float | None], one: Measurement) -> float | None:
    own = medians[one.key]
    reference = medians.get((one.task, one.at, one.reference, one.measure))
    return None if own is None or not reference else own / reference


def get_version(package: str) -> str | None:
    """The installed version of a package; `None` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_record(record: Record, directory: Path) -> Path:
    """Write `DIRECTORY/BENCHMARK.json`, a measurement a line."""
    check_record(record)
    body = asdict(record)
    lines = [json.dumps(_drop_defaults(one), ensure_ascii=False) for one in body.pop("measurements")]
    head = json.dumps(body, indent=2, ensure_ascii=False).removesuffix("\n}")
    path = directory / f"{record.benchmark}.json"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(head + ',\n  "measurements": [\n    ' + ",\n    ".join(lines) + "\n  ]\n}\n")
    return path


def _drop_defaults(measurement: dict[str, Any]) -> dict[str, Any]:
    measured = {name: value for name, value in measurement.items() if value not in (None, "", {}, ())}
    return measured | {"rounds": list(measurement["rounds"])}


def read_record(path: Path) -> Record:
    """Read a record, and see that it keeps to the format."""
    try:
        reported = json.loads(path.read_text())
        reported["inputs"] = tuple(Input(**one) for one in reported["inputs"])
        reported["measurements"] = tuple(
            Measurement(**(one | {"rounds": tuple(one["rounds"])})) for one in reported["measurements"]
        )
        record = Record(**reported)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path} is no record of a benchmark: {error!r}") from error
    check_record(record)
    return record


def check_record(record: Record) -> None:
    """Raise `RecordError` unless medians and ratios follow from rounds, and no two measurements are one."""
    for part in fields(record):
        if getattr(record, part.name) in (None, "", {}):
            raise RecordError(f"{record.benchmark}: {part.name} is empty")
    keys = [one.key for one in record.measurements]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RecordError(f"{record.benchmark}: {twice} was measured twice")
    for one, worked_out in zip(record.measurements, add_ratios(record.measurements), strict=True):
        _check_measurement(record.benchmark, one, worked_out)


def _check_measurement(benchmark: str, one: Measurement, worked_out: Measurement) -> None:
    where = f"{benchmark}: {one.key}"
    if one.unit not in UNITS:
        raise RecordError(f"{where}: the unit {one.unit!r} is none of {', '.join(UNITS)}")
    if (one.median is None) != bool(one.left_out):
        raise RecordError(f"{where}: there is either a median or a reason to have left it out")
    if not all(isinstance(value, int | float) and 0 <= value < math.inf for value in one.rounds):
        raise RecordError(f"{where}: a round is negative, or no number")
    for name in ("median", "ratio"):
        stored, right = getattr(one, name), getattr(worked_out, name)
        if stored != right:
            raise RecordError(f"{where}: the {name} is {stored}, but {right} by the rounds")


def _get_commit() -> str:
    """The commit that was measured; `-dirty` behind it says that files were changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "not in git"
    return done.stdout.strip()


def _describe_machine() -> dict[str, Any]:
    reported: dict[str, Any] = {
        "system": platform.system(),
        "processor": _get_processor(),
        "cores": os.cpu_count(),
    }
    info = Path("/proc/meminfo")
    if info.exists() and (found := re.search(r"MemTotal:\s+(\d+) kB", info.read_text())):
        reported["memory_gib"] = round(int(found[1]) / 2**20, 1)
    return reported


def _get_processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
