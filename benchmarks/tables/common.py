"""What all tables are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.record import Measurement, Record

QUICK = "Small inputs, few rounds: this says that it runs, not how fast."


def format_markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """A table, and what is said below it."""
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", note] if note else lines)


def format_host(record: Record) -> str:
    """The machine, the versions and the date; and whose ranks, where they are no published ones."""
    named = ", ".join(f"{package} {number}" for package, number in record.versions.items())
    parts = [f"{get_machine(record)}, {named}; {record.date}."]
    parts += [f"{one.name}: {one.note}." for one in record.inputs if one.note and one.name == "ranks"]
    return " ".join([*parts, QUICK] if record.settings["quick"] else parts)


def get_machine(record: Record) -> str:
    """The processor, its cores, the memory, where it is known, and Python."""
    machine = record.machine
    memory = f", {machine['memory_gib']:.0f} GiB" if "memory_gib" in machine else ""
    return f"{machine['processor']}, {machine['cores']} cores{memory}, Python {record.python}"


def get_names(measurements: Iterable[Measurement], attribute: str) -> list[str]:
    """The different values of an attribute, in order."""
    return list(dict.fromkeys(getattr(one, attribute) for one in measurements))


def get_measurement(record: Record, measure: str = "time", **wanted: object) -> Measurement | None:
    """The first measurement with the given attributes."""
    return next(iter(record.of(measure, **wanted)), None)


def format_seconds(record: Record, measure: str = "time", **wanted: object) -> float | None:
    """The median of that."""
    found = get_measurement(record, measure, **wanted)
    return None if found is None else found.median


def compute_megabytes_per_second(measurement: Measurement) -> float:
    """Of the bytes that it tells."""
    return measurement.extra["bytes"] / 1e6 / (measurement.median or 1)


def left_out(record: Record) -> str:
    """Who was left out, and why; nothing if nobody was."""
    reasons = dict.fromkeys((one.contender, one.left_out) for one in record.measurements if one.left_out)
    return "".join(f" {contender}: {why}." for contender, why in reasons)


def format_count(value: float) -> str:
    """A number for the eye."""
    return f"{value:,.0f}"
