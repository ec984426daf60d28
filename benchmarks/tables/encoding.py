"""Tables of encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import ENCODING, OTHER_IDS, OURS, SLOW, THEIRS, format_run_name
from benchmarks.tables.common import (
    compute_megabytes_per_second,
    format_count,
    format_host,
    format_markdown_table,
    format_skipped,
    get_label,
    get_measurement,
    get_median,
    get_names,
)

if TYPE_CHECKING:
    from benchmarks.record import Record

REFERENCE = format_run_name(THEIRS, 1)


def make_encode_table(record: Record) -> str:
    """Renders MB/s with warm and cold cache for each text, and the ratio to tiktoken on one thread."""
    texts = get_names(record.select("warm"), "task")
    header = [
        "contender",
        "threads",
        *(f"{text}, {measure}" for text in texts for measure in ("warm", "cold")),
    ]
    rows = []
    for run in get_names(record.select("warm"), "contender"):
        cells = [_format_rate(record, run, text, measure) for text in texts for measure in ("warm", "cold")]
        memory = max(one.median for one in record.select("memory", contender=run))
        rows.append([*run.split("; "), *cells, f"{memory:.0f}"])
    sizes = ", ".join(f"{one.name} {one.bytes / 1e6:.3g} MB" for one in record.inputs if one.name in texts)
    details = f"{format_other_ids(record)}{format_host(record)}{format_skipped(record)}"
    note = f"MB/s; in brackets the ratio to tiktoken on one thread. {sizes}. {details}"
    return format_markdown_table([*header, "memory, MB"], rows, note)


def format_other_ids(record: Record) -> str:
    """Returns a sentence per text with the contenders whose ids differ from tiktoken's."""
    names_by_text = record.settings.get(OTHER_IDS, {})
    return "".join(
        f"Ids that differ from tiktoken's on {text}: {'; '.join(names)}. "
        for text, names in names_by_text.items()
    )


def _format_rate(record: Record, run: str, text: str, measure: str) -> str:
    one = get_measurement(record, measure, task=text, contender=run)
    theirs = get_median(record, measure, task=text, contender=REFERENCE)
    return "" if one is None else f"{compute_megabytes_per_second(one):.1f} ({theirs / one.median:.1f})"


def make_growth_table(record: Record) -> str:
    """Renders the largest size: seconds, the factor of the last doubling, memory, and tiktoken's seconds."""
    *_, size = get_names(record.select("cold"), "at")
    header = [f"{size / 1e6:g} MB of", "tokjax, s", "last doubling", "memory, MB", "tiktoken, s"]
    rows = []
    for name in get_names(record.select("cold"), "task"):
        *_, half, full = (one.median for one in record.select("cold", task=name, contender=OURS))
        memory = get_median(record, "memory", task=name, contender=OURS, at=size)
        theirs = _format_seconds_or_reason(record, name, size)
        rows.append([name, f"{full:.3f}", f"{full / half:.1f}", f"{memory:.0f}", theirs])
    return format_markdown_table(header, rows, format_host(record))


def _format_seconds_or_reason(record: Record, task: str, at: float) -> str:
    key = (task, at, THEIRS, "cold")
    measurement = next(one for one in record.measurements if one.key == key)
    return measurement.left_out or f"{measurement.median:.3f}"


def make_short_table(record: Record) -> str:
    """Renders microseconds per call, and the ratio to tiktoken."""
    libraries = get_names(record.select(), "contender")
    rows = []
    for name in get_names(record.select(), "task"):
        measurements = [get_measurement(record, task=name, contender=library) for library in libraries]
        rows.append([name, *(f"{1e6 * one.median:.1f} ({one.ratio:.1f})" for one in measurements)])
    note = f"Microseconds; in brackets the ratio to tiktoken. {format_host(record)}"
    return format_markdown_table(["one text", *libraries], rows, note)


def make_first_table(record: Record) -> str:
    """Renders milliseconds of tokjax and tokenizers, and their ratio."""
    rows = []
    for name in get_names(record.select(), "task"):
        ours, theirs = (get_measurement(record, task=name, contender=who) for who in ("tokjax", "tokenizers"))
        rows.append([name, f"{1e3 * ours.median:.3f}", f"{1e3 * theirs.median:.3f}", f"{ours.ratio:.1f}"])
    return format_markdown_table(["ms", "tokjax", "tokenizers", "ratio"], rows, format_host(record))


def make_kinds_table(record: Record) -> str:
    """Renders MB/s of tokjax and of the reference library of each type, and their ratio."""
    rows = []
    for name in get_names(record.select(), "task"):
        ours, theirs = (
            compute_megabytes_per_second(get_measurement(record, task=name, contender=who))
            for who in ("tokjax", "library")
        )
        rows.append([get_label(name), f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.1f}"])
    size = record.inputs[0].bytes / 1e6
    note = f"MB/s, {size:.3g} MB, all cores. {format_host(record)}"
    return format_markdown_table(
        ["ids with offsets and masks", "tokjax", "reference library", "speedup"], rows, note
    )


def make_tokenizers_table(record: Record) -> str:
    """Renders tokens per second and milliseconds per document."""
    kinds = {one.task: one.extra["characters"] for one in record.select("latency")}
    header = ["one thread", "tokens/s, cold cache", "tokens/s, warm cache", "MB/s, warm cache"]
    header += [f"{kind}, ms" for kind in kinds]
    rows = []
    for name in get_names(record.select("warm"), "contender"):
        cold, warm = (
            get_measurement(record, measure, task=ENCODING, contender=name) for measure in ("cold", "warm")
        )
        rates = [format_count(one.extra["tokens"] / one.median) for one in (cold, warm)]
        latency = [get_median(record, "latency", task=kind, contender=name) for kind in kinds]
        cells = [f"{1e3 * value:.3f}" if value else "" for value in latency]
        rows.append([name, *rates, f"{compute_megabytes_per_second(warm):.2f}", *cells])
    lengths = ", ".join(f"{kind} {characters:,} characters" for kind, characters in kinds.items())
    slow = record.settings.get(SLOW)
    parts = [f"{lengths}.", f"{SLOW}: {slow}." if slow else "", format_host(record)]
    note = " ".join(filter(None, parts)) + format_skipped(record)
    return format_markdown_table(header, rows, note)
