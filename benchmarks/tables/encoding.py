"""Tables of what makes ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import ENCODING, OTHER_IDS, OURS, SLOW, THEIRS, run_name
from benchmarks.tables.common import (
    count,
    host,
    left_out,
    markdown,
    megabytes_a_second,
    names_of,
    one_of,
    seconds_of,
)

if TYPE_CHECKING:
    from benchmarks.record import Record

REFERENCE = run_name(THEIRS, 1)


def encode_table(record: Record) -> str:
    """Megabytes a second, warm and cold, times tiktoken's rate on one thread; a column a text."""
    texts = names_of(record.of("warm"), "task")
    header = ["", "threads", *(f"{text}, {measure}" for text in texts for measure in ("warm", "cold"))]
    rows = []
    for run in names_of(record.of("warm"), "contender"):
        cells = [_rate(record, run, text, measure) for text in texts for measure in ("warm", "cold")]
        memory = max(one.median for one in record.of("memory", contender=run))
        rows.append([*run.split("; "), *cells, f"{memory:.0f}"])
    sizes = ", ".join(f"{one.name} {one.bytes / 1e6:.3g} MB" for one in record.inputs if one.name in texts)
    about = f"{other_ids(record)}{host(record)}{left_out(record)}"
    note = f"MB/s, in brackets times tiktoken on one thread. {sizes}. {about}"
    return markdown([*header, "memory, MB"], rows, note)


def other_ids(record: Record) -> str:
    """Whose ids are not tiktoken's, and on which text."""
    told = record.settings.get(OTHER_IDS, {})
    return "".join(
        f"Other ids than tiktoken's on {text}: {'; '.join(names)}. " for text, names in told.items()
    )


def _rate(record: Record, run: str, text: str, measure: str) -> str:
    found = one_of(record, measure, task=text, contender=run)
    theirs = seconds_of(record, measure, task=text, contender=REFERENCE)
    return "" if found is None else f"{megabytes_a_second(found):.1f} ({theirs / found.median:.1f})"


def growth_table(record: Record) -> str:
    """Seconds by size, what the last doubling multiplies them with, memory, and tiktoken's seconds."""
    sizes = names_of(record.of("cold"), "at")
    columns = [f"{size / 1e6:g} MB" for size in sizes]
    header = ["input", *columns, "last doubling", "memory, MB", "tiktoken, the largest"]
    rows = []
    for name in names_of(record.of("cold"), "task"):
        seconds = [one.median for one in record.of("cold", task=name, contender=OURS)]
        memory = seconds_of(record, "memory", task=name, contender=OURS, at=sizes[-1])
        cells = [f"{value:.3f} s" for value in seconds]
        theirs = _seconds_or_reason(record, name, sizes[-1])
        rows.append([name, *cells, f"{seconds[-1] / seconds[-2]:.1f} times", f"{memory:.0f}", theirs])
    return markdown(header, rows, host(record))


def _seconds_or_reason(record: Record, task: str, at: float) -> str:
    wanted = (task, at, THEIRS, "cold")
    found = next(one for one in record.measurements if one.key == wanted)
    return found.left_out or f"{found.median:.3f} s"


def short_table(record: Record) -> str:
    """Microseconds a call, in brackets times tiktoken's."""
    libraries = names_of(record.of(), "contender")
    rows = []
    for name in names_of(record.of(), "task"):
        found = [one_of(record, task=name, contender=library) for library in libraries]
        rows.append([name, *(f"{1e6 * one.median:.1f} ({one.ratio:.1f})" for one in found)])
    note = f"Microseconds, in brackets times tiktoken. {host(record)}"
    return markdown(["one text", *libraries], rows, note)


def first_table(record: Record) -> str:
    """Milliseconds of each library, and how often the time of tokenizers tokjax takes."""
    rows = []
    for name in names_of(record.of(), "task"):
        ours, theirs = (one_of(record, task=name, contender=who) for who in ("tokjax", "tokenizers"))
        rows.append([name, f"{1e3 * ours.median:.3f}", f"{1e3 * theirs.median:.3f}", f"{ours.ratio:.1f}"])
    return markdown(["ms", "tokjax", "tokenizers", "times"], rows, host(record))


def kinds_table(record: Record) -> str:
    """Megabytes a second of tokjax and of each library, and how often the one is the other."""
    rows = []
    for name in names_of(record.of(), "task"):
        ours, theirs = (
            megabytes_a_second(one_of(record, task=name, contender=who)) for who in ("tokjax", "library")
        )
        rows.append([name, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.1f}"])
    size = record.inputs[0].bytes / 1e6
    note = f"MB/s, {size:.3g} MB, all cores. {host(record)}"
    return markdown(["ids with offsets and masks", "tokjax", "the library", "times"], rows, note)


SAID = {
    SLOW: ("100,000 to 500,000", "1 to 10"),
    "Hugging Face, fast": ("1,000,000 to 5,000,000", "0.1 to 1"),
    THEIRS: ("5,000,000 to 20,000,000", "0.05 to 0.2"),
}
"""Tokens a second, and milliseconds a document, by the table that this comparison was made to check."""


def tokenizers_table(record: Record) -> str:
    """Tokens a second and milliseconds a document, beside what was said of them beforehand."""
    kinds = {one.task: one.extra["characters"] for one in record.of("latency")}
    header = ["one thread", "tokens a second, first pass", "second pass", "MB/s, second pass"]
    header += [f"{kind}, ms" for kind in kinds]
    rows = []
    for name in names_of(record.of("warm"), "contender"):
        cold, warm = (one_of(record, measure, task=ENCODING, contender=name) for measure in ("cold", "warm"))
        rates = [count(one.extra["tokens"] / one.median) for one in (cold, warm)]
        latency = [seconds_of(record, "latency", task=kind, contender=name) for kind in kinds]
        cells = [f"{1e3 * value:.3f}" if value else "" for value in latency]
        said = SAID.get(name, ("", ""))
        rows.append([name, *rates, f"{megabytes_a_second(warm):.2f}", *cells, *said])
    lengths = ", ".join(f"{kind} {characters:,} characters" for kind, characters in kinds.items())
    slow = record.settings.get(SLOW)
    parts = [f"{lengths}.", f"{SLOW}: {slow}." if slow else "", host(record)]
    note = " ".join(filter(None, parts)) + left_out(record)
    return markdown([*header, "said: tokens a second", "said: ms a document"], rows, note)
