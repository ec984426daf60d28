"""The table of the front page: how many times as fast as others tokjax is, from several records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.names import IDS, OFFSETS, run_name
from benchmarks.record import read_record
from benchmarks.tables.common import machine_of, markdown, megabytes_a_second, one_of
from benchmarks.tables.encoding import other_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.record import Measurement, Record

PEERS = ("tiktoken", "tokie", "gigatoken")


class Comparison(NamedTuple):
    """One row.

    Attributes:
        what: what is done.
        benchmark: the record that holds it.
        where: the task, and its measure and place if need be.
        ours: the contender that is tokjax.
        theirs: how others are called here, and the contenders that they are.
        told: tokjax's own measurement for the reader.
    """

    what: str
    benchmark: str
    where: Mapping[str, object]
    ours: str
    theirs: Mapping[str, str]
    told: Callable[[Measurement], str]


def _rate(one: Measurement) -> str:
    return f"{megabytes_a_second(one):.0f} MB/s"


def _time(one: Measurement) -> str:
    seconds = one.median or 0.0
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _tokens(one: Measurement) -> str:
    return f"{one.extra['tokens'] / 1e6 / (one.median or 1):.0f} million ids/s"


def _on_one_thread(kind: str, *libraries: str) -> dict[str, str]:
    return {library: run_name(f"{library}, {kind}", 1) for library in libraries}


COMPARISONS = (
    Comparison(
        "ids of 50 MB of English, one thread, at first sight",
        "encode",
        {"task": "en", "measure": "cold"},
        run_name(f"tokjax, {IDS}", 1),
        _on_one_thread(IDS, *PEERS),
        _rate,
    ),
    Comparison(
        "the same once its words are known",
        "encode",
        {"task": "en", "measure": "warm"},
        run_name(f"tokjax, {IDS}", 1),
        _on_one_thread(IDS, *PEERS),
        _rate,
    ),
    Comparison(
        "ids with offsets and masks, at first sight",
        "encode",
        {"task": "en", "measure": "cold"},
        run_name(f"tokjax, {OFFSETS}", 1),
        _on_one_thread(OFFSETS, "tokenizers", "tokie"),
        _rate,
    ),
    Comparison(
        "32,000 tokens trained on 120 MB",
        "train",
        {"task": "120 MB", "at": 32_000},
        "tokjax",
        {name: name for name in ("tokenizers", "sentencepiece (bpe)", "rustbpe", "gigatoken")},
        _time,
    ),
    Comparison(
        "lists of ids padded to batches",
        "batching",
        {"task": "collation, 8 batches"},
        "tokjax, from lists",
        {"transformers' `pad`": "transformers pad"},
        _time,
    ),
    Comparison(
        "the same of arrays of ids",
        "batching",
        {"task": "collation, 8 batches"},
        "tokjax",
        {"transformers' `pad`": "transformers pad, from arrays", "a loop over rows": "row loop"},
        _time,
    ),
    Comparison(
        "documents packed whole",
        "batching",
        {"task": "packing"},
        "tokjax, best fit",
        {"Grain": "Grain, best fit of 64", "seqio": "seqio", "TRL": "TRL, best fit"},
        _time,
    ),
    Comparison(
        "tokens hidden, as BERT has it",
        "batching",
        {"task": "masking"},
        "tokjax, drawing too",
        {
            "transformers' collator, its arrays alone": "transformers, arrays alone",
            "with lists to arrays": "transformers",
        },
        _time,
    ),
    Comparison(
        "marked names to labels of tokens",
        "batching",
        {"task": "alignment"},
        "tokjax",
        {
            "`char_to_token` of each character": "char_to_token of each character",
            "of both ends alone": "char_to_token of both ends",
        },
        _time,
    ),
    Comparison(
        "shuffled batches from a dataset on disk",
        "loading",
        {"task": "64 x 2048, shuffled"},
        "tokjax, ids",
        {
            "Grain": "Grain, by record",
            "torch": "torch DataLoader",
            "nanoGPT's loop, int64 and targets too": "nanoGPT's loop",
        },
        _tokens,
    ),
)


def front_table(results: Path) -> str:
    """A row a comparison; what was not measured is left out."""
    records = {one.benchmark: results / f"{one.benchmark}.json" for one in COMPARISONS}
    read = {name: read_record(path) for name, path in records.items() if path.exists()}
    rows = [row for one in COMPARISONS if one.benchmark in read and (row := _row(one, read[one.benchmark]))]
    return markdown(["", "tokjax", "times as fast as"], rows, _note(read) if read else "")


def _row(comparison: Comparison, record: Record) -> list[str]:
    ours = one_of(record, **{"contender": comparison.ours, **comparison.where})
    if ours is None or not ours.median:
        return []
    ratios = []
    for name, contender in comparison.theirs.items():
        theirs = one_of(record, **{"contender": contender, **comparison.where})
        if theirs is not None and theirs.median:
            ratio = theirs.median / ours.median
            ratios.append(f"{name} {ratio:.0f}" if ratio >= 10 else f"{name} {ratio:.2g}")
    return [comparison.what, comparison.told(ours), "; ".join(ratios)]


def _note(records: Mapping[str, Record]) -> str:
    first = next(iter(records.values()))
    versions = {name: number for record in records.values() for name, number in record.versions.items()}
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    dates = sorted({record.date for record in records.values()})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    others = other_ids(records["encode"]) if "encode" in records else ""
    return f"Below 1: slower. {others}{machine_of(first)}, {named}; {when}."
