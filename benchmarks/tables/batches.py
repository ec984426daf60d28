"""Tables of datasets, loading and batching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.names import (
    BANDWIDTH,
    BOTH,
    COPY,
    DECODE_JIT,
    ENCODE_JIT,
    ENCODING_JIT,
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
    TIKTOKEN,
    TRANSFER,
    UNCHECKED,
    WINDOWS,
    WRITING,
)
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


TOO_SHORT = 0.05
"""Minimum of loading time over step time, or the reverse, for which their overlap can be measured."""


def make_loading_table(record: Record) -> str:
    """Renders tokens per second of each loader, also as a share of the roofline."""
    measurements = record.select(reference=ROOFLINE)
    rates = {
        one.contender: one.extra["tokens"] * one.extra.get("fill", 1) / one.median / 1e6
        for one in measurements
    }
    rows = [
        [name, format_count(rate), f"{rate / rates[ROOFLINE]:.3f}"]
        for name, rate in sorted(rates.items(), key=lambda item: -item[1])
    ]
    header = ["batches of 64 × 2,048, shuffled", "million tokens/s", "share of roofline"]
    return format_markdown_table(
        header, rows, f"{_format_loading_notes(record)} {format_host(record)}{format_skipped(record)}"
    )


def _format_loading_notes(record: Record) -> str:
    settings = record.settings
    checked, unchecked = (one.median for one in record.select(task=OPENING))
    memory = get_median(record, "memory", task=OPENING, contender=UNCHECKED)
    encoding, writing = record.select(task=WRITING)
    jumps = ", ".join(_format_jump(record, kind) for kind in ("packed", "bucketed"))
    sentences = (
        f"{settings['ids'] / 1e6:,.0f} million ids, {2 * settings['ids'] / 1e9:.1f} GB, in the page cache",
        f"Time of a new loader to the first batch, and to the batch of step 10^9: {jumps}",
        (
            f"From opening to the first batch: {checked:.2f} s with checksums of all files that are read, "
            f"{unchecked:.2f} s without; peak memory after {settings['steps']} batches {memory:.0f} MB, "
            "including mapped pages"
        ),
        (
            f"Writing {writing.extra['bytes'] / 1e6:.0f} MB of text: "
            f"{compute_megabytes_per_second(writing):.0f} MB/s, "
            f"{encoding.median / writing.median:.2f} of the rate of encoding alone "
            f"({compute_megabytes_per_second(encoding):.0f} MB/s); "
            f"{settings['bytes_a_token']:.4f} bytes per token on disk"
        ),
    )
    return ". ".join(sentences) + "."


def _format_jump(record: Record, kind: str) -> str:
    near, far = (
        get_median(record, task=f"{FRESH_LOADER}, {kind}", contender=name) for name in (FIRST_STEP, FAR_STEP)
    )
    return f"{1e3 * near:.2f} ms and {1e3 * far:.2f} ms ({kind})"


def make_windows_table(record: Record) -> str:
    """Renders how full planned rows are, and how evenly batches sample the corpus, for each window."""
    measurements = record.select(task=WINDOWS)
    if not measurements:
        return "Not measured yet."
    [unplanned] = (one for one in measurements if one.contender == "concat")
    rows = [
        [
            one.contender,
            f"{one.extra['fill']:.2%}",
            f"{one.median:.2f}",
            f"{one.extra['single']:.0%}",
            f"{one.extra['low']:.0f} to {one.extra['high']:.0f}",
            f"{one.extra['spread'] / unplanned.extra['spread']:.2f}",
        ]
        for one in measurements
    ]
    header = ["window", "fill", "planning, s", "rows with one document", "documents per row", "spread"]
    return format_markdown_table(header, rows, format_host(record))


def make_strategies_table(record: Record) -> str:
    """Renders size on disk and loading time of each storage strategy."""
    rows = []
    for one in record.select():
        rate = format_count(one.extra["samples"] / one.median)
        cells = [f"{one.extra['of_the_text']:.2f}", f"{1e3 * one.median:.2f}", rate]
        rows.append([one.contender, *cells, f"{one.extra['padding']:.0%}"])
    header = ["strategy", "size / text size", "ms per batch, 32 × up to 512", "samples/s", "padding"]
    return format_markdown_table(header, rows, format_host(record))


def make_batching_table(record: Record) -> str:
    """Renders milliseconds of each contender of each task, and the ratio to the first contender."""
    rows = []
    for task in get_names(record.select(), "task"):
        for i, one in enumerate(record.select(task=task)):
            fill = f", {one.extra['fill']:.2%} full" if "fill" in one.extra else ""
            ratio = f"{one.ratio:.2f}" if i else ""
            milliseconds = f"{1e3 * one.median:,.2f}"
            rows.append(["" if i else task, f"{get_label(one.contender)}{fill}", milliseconds, ratio])
    note = f"{_format_plans(record)}{format_host(record)}{format_skipped(record)}"
    return format_markdown_table(["task", "contender", "ms", "ratio to the first"], rows, note)


def _format_plans(record: Record) -> str:
    """Returns a sentence with the upper bound of the fill rate; `""` if the record has none."""
    if FULLEST_PLAN not in record.settings:
        return ""
    bound = record.settings[FULLEST_PLAN]
    return (
        "Upper bound of the fill rate for plans that split only documents longer than a block, at multiples "
        f"of its size: {bound:.2%}. "
    )


def make_device_table(record: Record) -> str:
    """Renders the time of each function, and of copies of as many bytes."""
    rows = []
    for one in (one for one in record.select(contender=OWN) if not one.task.startswith(OVERLAP)):
        copies = [get_median(record, task=one.task, contender=name) for name in (COPY, MEMCPY)]
        cells = ["" if value is None else f"{1e3 * value:,.2f}" for value in copies]
        rows.append([get_label(one.task), f"{1e3 * one.median:,.2f}", *cells])
    header = ["under jit, ms", "tokjax", "jitted copy", "memcpy"]
    bandwidth = get_measurement(record, task=BANDWIDTH, contender=COPY)
    rate = "" if bandwidth is None else f"{compute_megabytes_per_second(bandwidth) / 1e3:.1f} GB/s"
    note = f"Bandwidth of a jitted copy of a large array: {rate}. " if rate else ""
    note += _format_device(record, record.settings["rows"], record.settings["length"])
    return format_markdown_table(header, rows, note)


def _format_device(record: Record, rows: int, length: int) -> str:
    platform, device = record.settings["platform"], record.settings["device"]
    return f"Platform `{platform}` ({device}), {rows:,} rows of {length:,}. {format_host(record)}"


def make_device_encoding_table(record: Record) -> str:
    """Renders MB/s of encoding, decoding and the transfer, for each size of text."""
    rows = []
    for task in get_names(record.select(contender=ENCODE_JIT), "task"):
        measured = {one.contender: one for one in record.select(task=task)}
        rates = {name: compute_megabytes_per_second(one) for name, one in measured.items()}
        ratio = f"{rates[ENCODE_JIT] / rates[TIKTOKEN]:.2f}" if TIKTOKEN in rates else ""
        cells = [f"{rates[name]:,.1f}" if name in rates else "" for name in (ENCODE_JIT, TIKTOKEN)]
        others = [f"{rates[name]:,.0f}" for name in (DECODE_JIT, TRANSFER)]
        rows.append([task.removeprefix(f"{ENCODING_JIT}, "), *cells, ratio, *others])
    header = ["text in one call", "encode_jit, MB/s", "tiktoken, MB/s", "ratio", "decode_jit, MB/s"]
    return _format_encoding_table(record, [*header, "transfer, MB/s"], rows)


def make_device_costs_table(record: Record) -> str:
    """Renders the bytes that the compiled program moves, and its numbers of fusions and loops."""
    rows, seen = [], set()
    for one in record.select(contender=ENCODE_JIT):
        size, _, _ = one.task.partition(" of ")
        if size in seen:  # texts of the same size have about the same program
            continue
        seen.add(size)
        moved = one.extra["moved"] / one.extra["bytes"]
        counts = [f"{one.extra[name]:,.0f}" for name in ("fusions", "loops")]
        rows.append([size.removeprefix(f"{ENCODING_JIT}, "), f"{moved:,.0f}", *counts])
    header = ["text in one call", "bytes moved per byte of text, at least", "fusions", "loops"]
    return _format_encoding_table(record, header, rows)


def _format_encoding_table(record: Record, header: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return "Not measured yet."
    platform, device = record.settings["platform"], record.settings["device"]
    return format_markdown_table(header, rows, f"Platform `{platform}` ({device}). {format_host(record)}")


def _compute_hidden_share(step: float, loading: float, both: float) -> str:
    shorter, longer = sorted((step, loading))
    if shorter < TOO_SHORT * longer:
        return "too short to measure"
    return f"{(step + loading - both) / shorter:.2f}"


def make_overlap_table(record: Record) -> str:
    """Renders a step, loading, both, and the share of the shorter of the two that the other hides."""
    rows = []
    for task in (task for task in get_names(record.select(), "task") if task.startswith(OVERLAP)):
        step, loading, both = (
            get_median(record, task=task, contender=name) for name in (STEP, LOADING, BOTH)
        )
        cells = [f"{1e3 * value:.2f}" for value in (step, loading, both)]
        rows.append([task.removeprefix(f"{OVERLAP}, "), *cells, _compute_hidden_share(step, loading, both)])
    if not rows:
        return "Not measured yet."
    header = ["batches of", "step alone, ms", "loading alone, ms", "both, ms", "hidden share of the shorter"]
    note = _format_device(record, record.settings["batch"], record.settings["batch_length"])
    return format_markdown_table(header, rows, note)
