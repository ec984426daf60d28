"""Tables that compare the speed of tokjax with that of other libraries, from several records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.names import IDS, OFFSETS, format_run_name
from benchmarks.record import read_record
from benchmarks.tables.common import (
    compute_megabytes_per_second,
    format_markdown_table,
    get_machine,
    get_measurement,
)
from benchmarks.tables.encoding import format_other_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.record import Measurement, Record

PEERS = ("tiktoken", "tokie", "gigatoken")
_HEADER = ["task", "tokjax", "speedup over"]


class Comparison(NamedTuple):
    """A row of the table.

    Attributes:
        title: the first cell.
        benchmark: the name of the record.
        where: the values that select a measurement of the record.
        ours: the name of the contender that is tokjax.
        theirs: the names of the other contenders, by the names in the table.
        describe: a function that formats the measurement of tokjax.
        is_headline: whether the row is in the README, too.
    """

    title: str
    benchmark: str
    where: Mapping[str, object]
    ours: str
    theirs: Mapping[str, str]
    describe: Callable[[Measurement], str]
    is_headline: bool = False


def _format_rate(one: Measurement) -> str:
    return f"{compute_megabytes_per_second(one):.0f} MB/s"


def _format_time(one: Measurement) -> str:
    seconds = one.median or 0.0
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _format_tokens(one: Measurement) -> str:
    return f"{one.extra['tokens'] / 1e6 / (one.median or 1):,.0f} million ids/s"


def _get_single_threaded(kind: str, *libraries: str) -> dict[str, str]:
    """Returns the contenders of libraries on one thread, by the name of the library."""
    return {library: format_run_name(f"{library}, {kind}", 1) for library in libraries}


COMPARISONS = (
    Comparison(
        "encoding 50 MB of English, one thread, cold cache",
        "encode",
        {"task": "en", "measure": "cold"},
        format_run_name(f"tokjax, {IDS}", 1),
        _get_single_threaded(IDS, *PEERS),
        _format_rate,
        is_headline=True,
    ),
    Comparison(
        "the same, warm cache",
        "encode",
        {"task": "en", "measure": "warm"},
        format_run_name(f"tokjax, {IDS}", 1),
        _get_single_threaded(IDS, *PEERS),
        _format_rate,
    ),
    Comparison(
        "encoding with offsets and masks, cold cache",
        "encode",
        {"task": "en", "measure": "cold"},
        format_run_name(f"tokjax, {OFFSETS}", 1),
        _get_single_threaded(OFFSETS, "tokenizers", "tokie"),
        _format_rate,
        is_headline=True,
    ),
    Comparison(
        "training a vocabulary of 32,000 tokens on 100 MB of English",
        "texts",
        {"task": "en, training"},
        "tokjax",
        {name: name for name in ("rustbpe", "gigatoken")},
        _format_time,
        is_headline=True,
    ),
    Comparison(
        "padding lists of ids",
        "batching",
        {"task": "collation, 8 batches"},
        "tokjax, from lists",
        {"transformers (`pad`)": "transformers pad"},
        _format_time,
    ),
    Comparison(
        "padding arrays of ids",
        "batching",
        {"task": "collation, 8 batches"},
        "tokjax",
        {"transformers (`pad`)": "transformers pad, from arrays", "a Python loop": "row loop"},
        _format_time,
    ),
    Comparison(
        "packing 20,000 documents (28.7 million tokens)",
        "batching",
        {"task": "packing"},
        "tokjax, best fit",
        {"Grain": "Grain, best fit of 64", "seqio": "seqio", "TRL": "TRL, best fit"},
        _format_time,
        is_headline=True,
    ),
    Comparison(
        "masking tokens as in BERT",
        "batching",
        {"task": "masking"},
        "tokjax, drawing too",
        {
            "transformers (collator on arrays)": "transformers, arrays alone",
            "transformers (on lists)": "transformers",
        },
        _format_time,
    ),
    Comparison(
        "aligning named entities with tokens",
        "batching",
        {"task": "alignment"},
        "tokjax",
        {
            "tokenizers (`char_to_token` of each character)": "char_to_token of each character",
            "tokenizers (of both ends)": "char_to_token of both ends",
        },
        _format_time,
    ),
    Comparison(
        "shuffled batches from a dataset on disk",
        "loading",
        {"task": "64 x 2048, shuffled"},
        "tokjax, ids",
        {
            "Grain": "Grain, by record",
            "torch": "torch DataLoader",
            "nanoGPT's loop (int64, with targets)": "nanoGPT's loop",
        },
        _format_tokens,
    ),
)


def make_front_table(results: Path, *, only_headlines: bool = False) -> str:
    """Renders the comparisons that were measured, one row for each.

    Args:
        results: the directory of the records.
        only_headlines: whether to render only the rows of the README.
    """
    comparisons = [one for one in COMPARISONS if one.is_headline or not only_headlines]
    records = {one.benchmark: results / f"{one.benchmark}.json" for one in comparisons}
    read = {name: read_record(path) for name, path in records.items() if path.exists()}
    rows = [
        row for one in comparisons if one.benchmark in read and (row := _make_row(one, read[one.benchmark]))
    ]
    if not read:
        return format_markdown_table(_HEADER, rows, "")
    return format_markdown_table(
        _HEADER, rows, _format_machines_and_dates(read) if only_headlines else _format_note(read)
    )


def _make_row(comparison: Comparison, record: Record) -> list[str]:
    ours = get_measurement(record, **{"contender": comparison.ours, **comparison.where})
    if ours is None or not ours.median:
        return []
    ratios = []
    for name, contender in comparison.theirs.items():
        theirs = get_measurement(record, **{"contender": contender, **comparison.where})
        if theirs is not None and theirs.median:
            ratio = theirs.median / ours.median
            formatted = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"
            ratios.append(f"{_add_version(name, record)}: {formatted}")
    return [comparison.title, comparison.describe(ours), "; ".join(ratios)]


def _add_version(name: str, record: Record) -> str:
    """Returns the name of a contender with the version of its library, if it begins with a library."""
    library, *rest = name.split(" ", 1)
    version = record.versions.get(library.lower())
    return " ".join([library, version, *rest]) if version else name


def _format_machines_and_dates(records: Mapping[str, Record]) -> str:
    machines = " and ".join(dict.fromkeys(map(get_machine, records.values())))
    dates = sorted({record.date for record in records.values()})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return f"Below 1: tokjax is slower. {machines}; {when}."


def _format_note(records: Mapping[str, Record]) -> str:
    versions = {name: number for record in records.values() for name, number in record.versions.items()}
    formatted = ", ".join(f"{name} {number}" for name, number in versions.items())
    others = format_other_ids(records["encode"]) if "encode" in records else ""
    return f"{_format_machines_and_dates(records)} {others}{formatted}."
