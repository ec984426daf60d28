"""Tables of what makes and loads batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import (
    BANDWIDTH,
    BOTH,
    COPY,
    FAR_STEP,
    FIRST_STEP,
    FRESH_LOADER,
    FULLEST_PLAN,
    LOADING,
    MEMCPY,
    OPENING,
    OVERLAP,
    OWN,
    ROOFLINE,
    STEP,
    UNCHECKED,
    WRITING,
)
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
    from benchmarks.record import Measurement, Record


TOO_SHORT = 0.05
"""Of the longer of step and loading: what is shorter is lost in its noise."""


def make_loading_table(record: Record) -> str:
    """Tokens a second of each contender, and what they are of the roofline."""
    measured = record.of(reference=ROOFLINE)
    rates = {one.contender: one.extra["tokens"] / one.median / 1e6 for one in measured}
    rows = [
        [name, format_count(rate), f"{rate / rates[ROOFLINE]:.3f}"]
        for name, rate in sorted(rates.items(), key=lambda item: -item[1])
    ]
    header = ["batches of 64 × 2,048, shuffled", "million tokens a second", "of the roofline"]
    return format_markdown_table(
        header, rows, f"{_format_loading_notes(record)} {format_host(record)}{left_out(record)}"
    )


def _format_loading_notes(record: Record) -> str:
    reported = record.settings
    checked, plain = (one.median for one in record.of(task=OPENING))
    memory = format_seconds(record, "memory", task=OPENING, contender=UNCHECKED)
    encoding, writing = record.of(task=WRITING)
    jumps = ", ".join(_format_jump(record, kind) for kind in ("packed", "bucketed"))
    sentences = (
        f"{reported['ids'] / 1e6:,.0f} million ids, {2 * reported['ids'] / 1e9:.1f} GB, in the memory of the system",
        f"The first batch of a fresh loader, and that of step 10^9: {jumps}",
        (
            f"From opening to the first batch: {checked:.2f} s with the checksums of all that it touches, "
            f"{plain:.2f} s without; {memory:.0f} MB at most after {reported['steps']} batches, "
            "mapped pages among them"
        ),
        (
            f"Writing {writing.extra['bytes'] / 1e6:.0f} MB of text: {compute_megabytes_per_second(writing):.0f} MB/s, "
            f"encoding alone {compute_megabytes_per_second(encoding):.0f} ({encoding.median / writing.median:.2f}); "
            f"{reported['bytes_a_token']:.4f} bytes a token on disk"
        ),
    )
    return ". ".join(sentences) + "."


def _format_jump(record: Record, kind: str) -> str:
    near, far = (
        format_seconds(record, task=f"{FRESH_LOADER}, {kind}", contender=name)
        for name in (FIRST_STEP, FAR_STEP)
    )
    return f"{1e3 * near:.2f} ms and {1e3 * far:.2f} ms ({kind})"


DESCRIPTIONS = {
    "raw": ("1.0", "10 to 50", "1,000 to 10,000"),
    "tokenized": ("0.5 to 0.8", "0.1 to 1", "100,000 and more"),
    "packed": ("0.4 to 0.6", "0.1 to 1", "500,000 and more"),
    "bucketed": ("0.5 to 0.8", "0.2 to 2", ""),
}
"""Storage, milliseconds to load, and samples a second, by the table that this was made to check."""


def make_strategies_table(record: Record) -> str:
    """What each way to store costs, on disk and when it is loaded, beside what was said beforehand."""
    rows = []
    for one in record.of():
        storage, load, samples = DESCRIPTIONS[one.contender]
        rate = format_count(one.extra["samples"] / one.median)
        cells = [f"{one.extra['of_the_text']:.2f}", storage, f"{1e3 * one.median:.2f}", load, rate, samples]
        rows.append([one.contender, *cells, f"{one.extra['padding']:.0%}"])
    header = ["strategy", "storage, of the text", "said", "ms for 32 rows of up to 512", "said"]
    return format_markdown_table([*header, "samples a second", "said", "padding"], rows, format_host(record))


def make_batching_table(record: Record) -> str:
    """Milliseconds of each contender of each task, and how often the time of the first the others take."""
    rows = []
    for task in get_names(record.of(), "task"):
        for i, one in enumerate(record.of(task=task)):
            fill = f", {one.extra['fill']:.2%} full" if "fill" in one.extra else ""
            ratio = f"{one.ratio:.2f}" if i else ""
            milliseconds = f"{1e3 * one.median:,.2f}"
            rows.append(["" if i else task, f"{one.contender}{fill}", milliseconds, ratio])
    note = f"{format_plans(record)}{format_host(record)}{left_out(record)}"
    return format_markdown_table(["task", "", "ms", "times the first"], rows, note)


def format_plans(record: Record) -> str:
    """How full no plan can be more than, where a record tells."""
    if FULLEST_PLAN not in record.settings:
        return ""
    bound = record.settings[FULLEST_PLAN]
    return (
        "No plan of these lengths is fuller that keeps documents of up to a block whole, and cuts longer "
        f"ones at its length: {bound:.2%}. "
    )


def make_device_table(record: Record) -> str:
    """Gigabytes a second of each function, as a share of the bandwidth, and copies of as many bytes."""
    bandwidth = get_measurement(record, task=BANDWIDTH, contender=COPY)
    maximum = None if bandwidth is None else _compute_gigabytes_per_second(bandwidth)
    rows = []
    for one in (one for one in record.of(contender=OWN) if not one.task.startswith(OVERLAP)):
        rate = _compute_gigabytes_per_second(one)
        share = "" if maximum is None else f"{rate / maximum:.2f}"
        copies = [format_seconds(record, task=one.task, contender=name) for name in (COPY, MEMCPY)]
        cells = ["" if value is None else f"{1e3 * value:,.2f}" for value in copies]
        rows.append([one.task, f"{1e3 * one.median:,.2f}", f"{rate:.1f}", share, *cells])
    header = ["under jit", "ms", "GB/s", "of the bandwidth", "copy, jitted, ms", "memcpy, ms"]
    copied = "" if maximum is None else f"A jitted copy of a large array: {maximum:.1f} GB/s. "
    about = _format_device(record, record.settings["rows"], record.settings["length"])
    return format_markdown_table(header, rows, copied + about)


def _compute_gigabytes_per_second(one: Measurement) -> float:
    return compute_megabytes_per_second(one) / 1e3


def _format_device(record: Record, rows: int, length: int) -> str:
    reported = record.settings
    return f"On `{reported['platform']}` ({reported['device']}), {rows:,} rows of {length:,}. {format_host(record)}"


def _compute_hidden_share(step: float, loading: float, both: float) -> str:
    shorter, longer = sorted((step, loading))
    if shorter < TOO_SHORT * longer:
        return "too short to tell"
    return f"{(step + loading - both) / shorter:.2f}"


def make_overlap_table(record: Record) -> str:
    """A step, loading, both, and the share of the shorter of the two that is hidden."""
    rows = []
    for task in (task for task in get_names(record.of(), "task") if task.startswith(OVERLAP)):
        step, loading, both = (
            format_seconds(record, task=task, contender=name) for name in (STEP, LOADING, BOTH)
        )
        cells = [f"{1e3 * value:.2f}" for value in (step, loading, both)]
        rows.append([task.removeprefix(f"{OVERLAP}, "), *cells, _compute_hidden_share(step, loading, both)])
    if not rows:
        return "Not measured yet."
    header = ["batches of", "step alone, ms", "loading alone, ms", "both, ms", "hidden, of the shorter"]
    about = _format_device(record, record.settings["batch"], record.settings["batch_length"])
    return format_markdown_table(header, rows, about)
