"""Format of benchmark records: measurements with the machine, the versions and the inputs.

A record is a JSON file with a flat list of measurements. Each measurement has the seconds (or the memory) of
one contender for one task in every round, the median, and the ratio to a reference contender of that task:

    {"task": "masking", "contender": "tokjax", "rounds": [0.001, 0.002, 0.003], "median": 0.002,
     "reference": "transformers", "ratio": 0.05}
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
    """Raised when a record does not follow the format."""


@dataclass(frozen=True)
class Input:
    """Input file of a measurement.

    Attributes:
        name: name of the input in the tasks of the record.
        bytes: size of the file.
        sha256: SHA-256 of the file, in hexadecimal.
        note: origin of the file, where the user did not pass it.
    """

    name: str
    bytes: int
    sha256: str
    note: str = ""


@dataclass(frozen=True)
class Measurement:
    """Result of one contender for one task.

    Attributes:
        task: name of the task; the same for all contenders that are compared.
        contender: name of the library, or of its configuration.
        measure: name of the quantity: `"time"`, `"cold"`, `"warm"`, `"memory"` ...
        unit: unit of the rounds and the median, `"s"` or `"MB"`.
        rounds: value of each round; empty where only the median was stored, or nothing was measured.
        median: median of the rounds; `None` if nothing was measured.
        at: position on the x axis of a curve: bytes, ids, documents or threads; `None` for no curve.
        reference: contender of the same task, measure and position that the ratio refers to.
        ratio: the median divided by the median of the reference.
        left_out: reason why nothing was measured; empty otherwise.
        extra: further numbers, such as the fill rate of packed blocks.
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
        """Key that is unique within a record."""
        return self.task, self.at, self.contender, self.measure


@dataclass(frozen=True)
class Record:
    """Measurements of one suite, with all that is needed to reproduce them.

    Attributes:
        benchmark: name of the suite.
        date: day of the run, as `YYYY-MM-DD`.
        commit: commit of the repository; ends in `-dirty` if files were changed since.
        machine: system, processor, number of cores, and memory in GiB where it can be read.
        python: version of Python.
        versions: versions of the packages that were measured, by name.
        settings: options of the run and facts about its inputs, by name.
        inputs: input files.
        measurements: all results, in the order in which tables show them.
    """

    benchmark: str
    date: str
    commit: str
    machine: dict[str, Any]
    python: str
    versions: dict[str, str]
    settings: dict[str, Any]
    inputs: tuple[Input, ...]
    measurements: tuple[Measurement, ...]

    def select(self, measure: str = "time", **attributes: Any) -> list[Measurement]:
        """Returns the measurements of one measure that have these attributes and were not skipped."""
        return [
            one
            for one in self.measurements
            if one.measure == measure and not one.left_out and _matches(one, attributes)
        ]


def _matches(measurement: Measurement, attributes: Mapping[str, Any]) -> bool:
    return all(getattr(measurement, name) == value for name, value in attributes.items())


def make_record(
    benchmark: str,
    packages: Iterable[str],
    settings: dict[str, Any],
    inputs: Iterable[Input],
    measurements: Sequence[Measurement],
) -> Record:
    """Returns a record with the date, the machine and the versions of the packages that are installed."""
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
    """Returns the measurements with medians and ratios computed from their rounds."""
    medians = {one.key: compute_median(one) for one in measurements}
    return [
        replace(one, median=medians[one.key], ratio=_compute_ratio(medians, one) if one.reference else None)
        for one in measurements
    ]


def compute_median(measurement: Measurement) -> float | None:
    """Returns the median of the rounds, or the stored median where a record has only that."""
    return statistics.median(measurement.rounds) if measurement.rounds else measurement.median


def _compute_ratio(medians: Mapping[Any, float | None], one: Measurement) -> float | None:
    median = medians[one.key]
    reference = medians.get((one.task, one.at, one.reference, one.measure))
    return None if median is None or not reference else median / reference


def get_version(package: str) -> str | None:
    """Returns the version of a package; `None` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_record(record: Record, directory: Path) -> Path:
    """Writes `DIRECTORY/BENCHMARK.json`, with one line per measurement, and returns its path."""
    check_record(record)
    body = asdict(record)
    lines = [json.dumps(_drop_defaults(one), ensure_ascii=False) for one in body.pop("measurements")]
    head = json.dumps(body, indent=2, ensure_ascii=False).removesuffix("\n}")
    path = directory / f"{record.benchmark}.json"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(head + ',\n  "measurements": [\n    ' + ",\n    ".join(lines) + "\n  ]\n}\n")
    return path


def _drop_defaults(measurement: dict[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in measurement.items() if value not in (None, "", {}, ())}
    return changed | {"rounds": list(measurement["rounds"])}


def read_record(path: Path) -> Record:
    """Reads and checks a record.

    Raises:
        RecordError: the file is not a record, or the record is inconsistent.
    """
    try:
        fields_by_name = json.loads(path.read_text())
        fields_by_name["inputs"] = tuple(Input(**one) for one in fields_by_name["inputs"])
        fields_by_name["measurements"] = tuple(
            Measurement(**(one | {"rounds": tuple(one["rounds"])})) for one in fields_by_name["measurements"]
        )
        record = Record(**fields_by_name)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path} is not a benchmark record: {error!r}") from error
    check_record(record)
    return record


def check_record(record: Record) -> None:
    """Checks that a record is complete and consistent.

    Raises:
        RecordError: a field is empty, two measurements have the same key, or a median or ratio does not
            follow from the rounds.
    """
    for part in fields(record):
        if getattr(record, part.name) in (None, "", {}):
            raise RecordError(f"{record.benchmark}: {part.name} is empty")
    keys = [one.key for one in record.measurements]
    if len(set(keys)) < len(keys):
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise RecordError(f"{record.benchmark}: duplicate measurement {duplicate}")
    for one, expected in zip(record.measurements, add_ratios(record.measurements), strict=True):
        _check_measurement(record.benchmark, one, expected)


def _check_measurement(benchmark: str, one: Measurement, expected: Measurement) -> None:
    where = f"{benchmark}: {one.key}"
    if one.unit not in UNITS:
        raise RecordError(f"{where}: unknown unit {one.unit!r}; the units are {', '.join(UNITS)}")
    if (one.median is None) != bool(one.left_out):
        raise RecordError(f"{where}: must have either a median or a reason in left_out")
    if not all(isinstance(value, int | float) and 0 <= value < math.inf for value in one.rounds):
        raise RecordError(f"{where}: a round is negative or not a finite number")
    for name in ("median", "ratio"):
        stored, computed = getattr(one, name), getattr(expected, name)
        if stored != computed:
            raise RecordError(f"{where}: the {name} is {stored}, but the rounds give {computed}")


def _get_commit() -> str:
    """Returns the current commit, with the suffix `-dirty` if files were changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "not in git"
    return done.stdout.strip()


def _describe_machine() -> dict[str, Any]:
    machine: dict[str, Any] = {
        "system": platform.system(),
        "processor": _get_processor(),
        "cores": os.cpu_count(),
    }
    info = Path("/proc/meminfo")
    if info.exists() and (match := re.search(r"MemTotal:\s+(\d+) kB", info.read_text())):
        machine["memory_gib"] = round(int(match[1]) / 2**20, 1)
    return machine


def _get_processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
