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
    FULLEST,
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
    from benchmarks.record import Measurement, Record


TOO_SHORT = 0.05
"""Of the longer of step and loading: what is shorter is lost in its noise."""


def loading_table(record: Record) -> str:
    """Tokens a second of each contender, and what they are of the roofline."""
    measured = record.of(reference=ROOFLINE)
    rates = {one.contender: one.extra["tokens"] / one.median / 1e6 for one in measured}
    rows = [
        [name, count(rate), f"{rate / rates[ROOFLINE]:.3f}"]
        for name, rate in sorted(rates.items(), key=lambda item: -item[1])
    ]
    header = ["batches of 64 × 2,048, shuffled", "million tokens a second", "of the roofline"]
    return markdown(header, rows, f"{_more_on_loading(record)} {host(record)}{left_out(record)}")


def _more_on_loading(record: Record) -> str:
    told = record.settings
    checked, plain = (one.median for one in record.of(task=OPENING))
    memory = seconds_of(record, "memory", task=OPENING, contender=UNCHECKED)
    encoding, writing = record.of(task=WRITING)
    jumps = ", ".join(_jump(record, kind) for kind in ("packed", "bucketed"))
    sentences = (
        f"{told['ids'] / 1e6:,.0f} million ids, {2 * told['ids'] / 1e9:.1f} GB, in the memory of the system",
        f"The first batch of a fresh loader, and that of step 10^9: {jumps}",
        (
            f"From opening to the first batch: {checked:.2f} s with the checksums of all that it touches, "
            f"{plain:.2f} s without; {memory:.0f} MB at most after {told['steps']} batches, "
            "mapped pages among them"
        ),
        (
            f"Writing {writing.extra['bytes'] / 1e6:.0f} MB of text: {megabytes_a_second(writing):.0f} MB/s, "
            f"encoding alone {megabytes_a_second(encoding):.0f} ({encoding.median / writing.median:.2f}); "
            f"{told['bytes_a_token']:.4f} bytes a token on disk"
        ),
    )
    return ". ".join(sentences) + "."


def _jump(record: Record, kind: str) -> str:
    near, far = (
        seconds_of(record, task=f"{FRESH_LOADER}, {kind}", contender=name) for name in (FIRST_STEP, FAR_STEP)
    )
    return f"{1e3 * near:.2f} ms and {1e3 * far:.2f} ms ({kind})"


SAID = {
    "raw": ("1.0", "10 to 50", "1,000 to 10,000"),
    "tokenized": ("0.5 to 0.8", "0.1 to 1", "100,000 and more"),
    "packed": ("0.4 to 0.6", "0.1 to 1", "500,000 and more"),
    "bucketed": ("0.5 to 0.8", "0.2 to 2", ""),
}
"""Storage, milliseconds to load, and samples a second, by the table that this was made to check."""


def strategies_table(record: Record) -> str:
    """What each way to store costs, on disk and when it is loaded, beside what was said beforehand."""
    rows = []
    for one in record.of():
        storage, load, samples = SAID[one.contender]
        rate = count(one.extra["samples"] / one.median)
        cells = [f"{one.extra['of_the_text']:.2f}", storage, f"{1e3 * one.median:.2f}", load, rate, samples]
        rows.append([one.contender, *cells, f"{one.extra['padding']:.0%}"])
    header = ["strategy", "storage, of the text", "said", "ms for 32 rows of up to 512", "said"]
    return markdown([*header, "samples a second", "said", "padding"], rows, host(record))


def batching_table(record: Record) -> str:
    """Milliseconds of each contender of each task, and how often the time of the first the others take."""
    rows = []
    for task in names_of(record.of(), "task"):
        for i, one in enumerate(record.of(task=task)):
            fill = f", {one.extra['fill']:.2%} full" if "fill" in one.extra else ""
            ratio = f"{one.ratio:.2f}" if i else ""
            milliseconds = f"{1e3 * one.median:,.2f}"
            rows.append(["" if i else task, f"{one.contender}{fill}", milliseconds, ratio])
    note = f"{about_plans(record)}{host(record)}{left_out(record)}"
    return markdown(["task", "", "ms", "times the first"], rows, note)


def about_plans(record: Record) -> str:
    """How full no plan can be more than, where a record tells."""
    if FULLEST not in record.settings:
        return ""
    bound = record.settings[FULLEST]
    return (
        "No plan of these lengths is fuller that keeps documents of up to a block whole, and cuts longer "
        f"ones at its length: {bound:.2%}. "
    )


def device_table(record: Record) -> str:
    """Gigabytes a second of each function, as a share of the bandwidth, and copies of as many bytes."""
    bandwidth = one_of(record, task=BANDWIDTH, contender=COPY)
    most = None if bandwidth is None else _gigabytes_a_second(bandwidth)
    rows = []
    for one in (one for one in record.of(contender=OWN) if not one.task.startswith(OVERLAP)):
        rate = _gigabytes_a_second(one)
        share = "" if most is None else f"{rate / most:.2f}"
        copies = [seconds_of(record, task=one.task, contender=name) for name in (COPY, MEMCPY)]
        cells = ["" if value is None else f"{1e3 * value:,.2f}" for value in copies]
        rows.append([one.task, f"{1e3 * one.median:,.2f}", f"{rate:.1f}", share, *cells])
    header = ["under jit", "ms", "GB/s", "of the bandwidth", "copy, jitted, ms", "memcpy, ms"]
    copied = "" if most is None else f"A jitted copy of a large array: {most:.1f} GB/s. "
    about = _about_device(record, record.settings["rows"], record.settings["length"])
    return markdown(header, rows, copied + about)


def _gigabytes_a_second(one: Measurement) -> float:
    return megabytes_a_second(one) / 1e3


def _about_device(record: Record, rows: int, length: int) -> str:
    told = record.settings
    return f"On `{told['platform']}` ({told['device']}), {rows:,} rows of {length:,}. {host(record)}"


def _hidden(step: float, loading: float, both: float) -> str:
    shorter, longer = sorted((step, loading))
    if shorter < TOO_SHORT * longer:
        return "too short to tell"
    return f"{(step + loading - both) / shorter:.2f}"


def overlap_table(record: Record) -> str:
    """A step, loading, both, and the share of the shorter of the two that is hidden."""
    rows = []
    for task in (task for task in names_of(record.of(), "task") if task.startswith(OVERLAP)):
        step, loading, both = (
            seconds_of(record, task=task, contender=name) for name in (STEP, LOADING, BOTH)
        )
        cells = [f"{1e3 * value:.2f}" for value in (step, loading, both)]
        rows.append([task.removeprefix(f"{OVERLAP}, "), *cells, _hidden(step, loading, both)])
    if not rows:
        return "Not measured yet."
    header = ["batches of", "step alone, ms", "loading alone, ms", "both, ms", "hidden, of the shorter"]
    about = _about_device(record, record.settings["batch"], record.settings["batch_length"])
    return markdown(header, rows, about)
