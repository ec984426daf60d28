"""Tables of what makes ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import ENCODING, OTHER_IDS, OURS, SLOW, THEIRS, format_run_name
from benchmarks.tables.common import (
    compute_megabytes_per_second,
    format_count,
    format_host,
    format_markdown_table,
    format_seconds,
    get_measurement,
    get_names,
    left_out,
)

if TYPE_CHECKING:
    from benchmarks.record import Record

REFERENCE = format_run_name(THEIRS, 1)


def make_encode_table(record: Record) -> str:
    """Megabytes a second, warm and cold, times tiktoken's rate on one thread; a column a text."""
    texts = get_names(record.of("warm"), "task")
    header = ["", "threads", *(f"{text}, {measure}" for text in texts for measure in ("warm", "cold"))]
    rows = []
    for run in get_names(record.of("warm"), "contender"):
        cells = [_format_rate(record, run, text, measure) for text in texts for measure in ("warm", "cold")]
        memory = max(one.median for one in record.of("memory", contender=run))
        rows.append([*run.split("; "), *cells, f"{memory:.0f}"])
    sizes = ", ".join(f"{one.name} {one.bytes / 1e6:.3g} MB" for one in record.inputs if one.name in texts)
    about = f"{format_other_ids(record)}{format_host(record)}{left_out(record)}"
    note = f"MB/s, in brackets times tiktoken on one thread. {sizes}. {about}"
    return format_markdown_table([*header, "memory, MB"], rows, note)


def format_other_ids(record: Record) -> str:
    """Whose ids are not tiktoken's, and on which text."""
    reported = record.settings.get(OTHER_IDS, {})
    return "".join(
        f"Other ids than tiktoken's on {text}: {'; '.join(names)}. " for text, names in reported.items()
    )


def _format_rate(record: Record, run: str, text: str, measure: str) -> str:
    found = get_measurement(record, measure, task=text, contender=run)
    theirs = format_seconds(record, measure, task=text, contender=REFERENCE)
    return "" if found is None else f"{compute_megabytes_per_second(found):.1f} ({theirs / found.median:.1f})"


def make_growth_table(record: Record) -> str:
    """Seconds by size, what the last doubling multiplies them with, memory, and tiktoken's seconds."""
    sizes = get_names(record.of("cold"), "at")
    columns = [f"{size / 1e6:g} MB" for size in sizes]
    header = ["input", *columns, "last doubling", "memory, MB", "tiktoken, the largest"]
    rows = []
    for name in get_names(record.of("cold"), "task"):
        seconds = [one.median for one in record.of("cold", task=name, contender=OURS)]
        memory = format_seconds(record, "memory", task=name, contender=OURS, at=sizes[-1])
        cells = [f"{value:.3f} s" for value in seconds]
        theirs = _format_seconds_or_reason(record, name, sizes[-1])
        rows.append([name, *cells, f"{seconds[-1] / seconds[-2]:.1f} times", f"{memory:.0f}", theirs])
    return format_markdown_table(header, rows, format_host(record))


def _format_seconds_or_reason(record: Record, task: str, at: float) -> str:
    wanted = (task, at, THEIRS, "cold")
    found = next(one for one in record.measurements if one.key == wanted)
    return found.left_out or f"{found.median:.3f} s"


def make_short_table(record: Record) -> str:
    """Microseconds a call, in brackets times tiktoken's."""
    libraries = get_names(record.of(), "contender")
    rows = []
    for name in get_names(record.of(), "task"):
        found = [get_measurement(record, task=name, contender=library) for library in libraries]
        rows.append([name, *(f"{1e6 * one.median:.1f} ({one.ratio:.1f})" for one in found)])
    note = f"Microseconds, in brackets times tiktoken. {format_host(record)}"
    return format_markdown_table(["one text", *libraries], rows, note)


def make_first_table(record: Record) -> str:
    """Milliseconds of each library, and how often the time of tokenizers tokjax takes."""
    rows = []
    for name in get_names(record.of(), "task"):
        ours, theirs = (get_measurement(record, task=name, contender=who) for who in ("tokjax", "tokenizers"))
        rows.append([name, f"{1e3 * ours.median:.3f}", f"{1e3 * theirs.median:.3f}", f"{ours.ratio:.1f}"])
    return format_markdown_table(["ms", "tokjax", "tokenizers", "times"], rows, format_host(record))


def make_kinds_table(record: Record) -> str:
    """Megabytes a second of tokjax and of each library, and how often the one is the other."""
    rows = []
    for name in get_names(record.of(), "task"):
        ours, theirs = (
            compute_megabytes_per_second(get_measurement(record, task=name, contender=who))
            for who in ("tokjax", "library")
        )
        rows.append([name, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.1f}"])
    size = record.inputs[0].bytes / 1e6
    note = f"MB/s, {size:.3g} MB, all cores. {format_host(record)}"
    return format_markdown_table(["ids with offsets and masks", "tokjax", "the library", "times"], rows, note)


DESCRIPTIONS = {
    SLOW: ("100,000 to 500,000", "1 to 10"),
    "Hugging Face, fast": ("1,000,000 to 5,000,000", "0.1 to 1"),
    THEIRS: ("5,000,000 to 20,000,000", "0.05 to 0.2"),
}
"""Tokens a second, and milliseconds a document, by the table that this comparison was made to check."""


def make_tokenizers_table(record: Record) -> str:
    """Tokens a second and milliseconds a document, beside what was said of them beforehand."""
    kinds = {one.task: one.extra["characters"] for one in record.of("latency")}
    header = ["one thread", "tokens a second, first pass", "second pass", "MB/s, second pass"]
    header += [f"{kind}, ms" for kind in kinds]
    rows = []
    for name in get_names(record.of("warm"), "contender"):
        cold, warm = (
            get_measurement(record, measure, task=ENCODING, contender=name) for measure in ("cold", "warm")
        )
        rates = [format_count(one.extra["tokens"] / one.median) for one in (cold, warm)]
        latency = [format_seconds(record, "latency", task=kind, contender=name) for kind in kinds]
        cells = [f"{1e3 * value:.3f}" if value else "" for value in latency]
        said = DESCRIPTIONS.get(name, ("", ""))
        rows.append([name, *rates, f"{compute_megabytes_per_second(warm):.2f}", *cells, *said])
    lengths = ", ".join(f"{kind} {characters:,} characters" for kind, characters in kinds.items())
    slow = record.settings.get(SLOW)
    parts = [f"{lengths}.", f"{SLOW}: {slow}." if slow else "", format_host(record)]
    note = " ".join(filter(None, parts)) + left_out(record)
    return format_markdown_table([*header, "said: tokens a second", "said: ms a document"], rows, note)
