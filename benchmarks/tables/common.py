"""Functions that all tables share: Markdown, numbers, and lookups in records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.record import Measurement, Record

QUICK = "Small inputs and few rounds: these numbers show that the suite runs, not how fast it is."
LABELS = {
    "counts kept up to date": "incremental counts",
    "many at a time": "batched merges",
    "tokjax, drawing too": "tokjax, with random draws",
    "transformers, arrays alone": "transformers, array part only",
    "labels, holes": "labels, mask with gaps",
}
"""Labels that tables show instead of names in records, which stay the same for the sake of old records."""


def format_markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Returns a table in Markdown, followed by a note."""
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", note] if note else lines)


def format_host(record: Record) -> str:
    """Returns the machine, the versions, the date, and the origin of the ranks if they are not published."""
    versions = ", ".join(f"{package} {number}" for package, number in record.versions.items())
    parts = [f"{get_machine(record)}, {versions}; {record.date}."]
    parts += [f"{one.name}: {one.note}." for one in record.inputs if one.note and one.name == "ranks"]
    return " ".join([*parts, QUICK] if record.settings["quick"] else parts)


def get_machine(record: Record) -> str:
    """Returns the processor, the number of cores, the memory where the record has it, and Python."""
    machine = record.machine
    memory = f", {machine['memory_gib']:.0f} GiB" if "memory_gib" in machine else ""
    return f"{machine['processor']}, {machine['cores']} cores{memory}, Python {record.python}"


def get_names(measurements: Iterable[Measurement], attribute: str) -> list[str]:
    """Returns the distinct values of an attribute, in order of first occurrence."""
    return list(dict.fromkeys(getattr(one, attribute) for one in measurements))


def get_label(name: str) -> str:
    """Returns the label that tables show for the name of a task or contender."""
    return LABELS.get(name, name)


def get_measurement(record: Record, measure: str = "time", **attributes: object) -> Measurement | None:
    """Returns the first measurement with these attributes, or `None`."""
    return next(iter(record.select(measure, **attributes)), None)


def get_median(record: Record, measure: str = "time", **attributes: object) -> float | None:
    """Returns the median of the first measurement with these attributes, or `None`."""
    measurement = get_measurement(record, measure, **attributes)
    return None if measurement is None else measurement.median


def compute_megabytes_per_second(measurement: Measurement) -> float:
    """Returns the throughput of a measurement that has the number of its bytes."""
    return measurement.extra["bytes"] / 1e6 / (measurement.median or 1)


def format_skipped(record: Record) -> str:
    """Returns the contenders that were not measured, with the reasons; `""` if all were measured."""
    skipped = dict.fromkeys((one.contender, one.left_out) for one in record.measurements if one.left_out)
    return "".join(f" {contender}: {reason}." for contender, reason in skipped)


def format_count(value: float) -> str:
    """Returns a rounded number with thousands separators."""
    return f"{value:,.0f}"
