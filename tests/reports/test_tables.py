"""Tests of the terminal tables of a vocabulary report, its JSON values, and the docs of its metrics."""

import json
import re
from pathlib import Path

import numpy as np
from rich.console import Console

import tokjax
from tests.reports.test_vocabulary_statistics import BYTES
from tokjax.reports.vocabulary_statistics import (
    TEXT_METRICS,
    USE_METRICS,
    VOCABULARY_METRICS,
    compute_length_bins,
    format_metric,
    get_label,
)


def print_tables(tables):
    console = Console(width=80)
    with console.capture() as captured:
        console.print(*tables)
    return captured.get()


def test_tables_have_all_metrics(report):
    shown = print_tables(tokjax.reports.report_tables(report))
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown.split("tokens of trained")[0]  # No number and no label is truncated.
    metrics = shown[shown.index("metrics") :]
    section = metrics[metrics.index("\nothers ") : metrics.index("\nall texts")]
    uses = [report.use(name, "others") for name in report.tokenizers]
    for metric in USE_METRICS:
        row = re.search(rf"^  {get_label(metric)} +([^a-z]*)$", section, re.MULTILINE)
        assert row.group(1).split() == [format_metric(use, metric) for use in uses], metric


def test_tables_of_tokens(report):
    shown = print_tables(tokjax.reports.report_tables(report))
    words = shown[shown.index("tokens of words") :]
    assert re.search(r"hello +5 +0 +\[UNK\] +\d+", words)
    lengths = words[words.index("lengths") :]
    assert re.search(r"^1 +25.00% +█+ +\d", lengths, re.MULTILINE)  # One of the four words.


def test_many_tokenizers_are_split_over_several_tables(tokenizer):
    against = {f"number {i}": BYTES for i in range(5)}
    report = tokjax.reports.vocabulary_report(tokenizer, ["low"], against=against, progress=False)
    metrics = [table for table in tokjax.reports.report_tables(report) if str(table.title) == "metrics"]
    assert [len(table.columns) - 1 for table in metrics] == [4, 2]
    assert max(map(len, print_tables(metrics).splitlines())) <= 80


def test_tables_escape_names_and_tokens(hostile_report):
    shown = print_tables(tokjax.reports.report_tables(hostile_report))
    assert "[red]" in shown
    assert "\\x1b[2J" in shown
    assert not set(shown) & set("\x1b\x00\u202e")


def test_json(report):
    described = json.loads(json.dumps(tokjax.reports.report_to_json(report), allow_nan=False))
    assert (described["tokenizers"], described["kinds"]) == (["trained", "bytes", "words"], ["en", "others"])
    for kind in (None, *report.kinds):
        for name in report.tokenizers:
            use = report.use(name, kind)
            values = described["overall"][name] if kind is None else described["uses"][kind][name]
            for metric in USE_METRICS:
                assert values[metric] == getattr(use, metric), metric
            assert values["used_lengths"] == use.used_lengths.tolist()
            assert values["most_frequent"] == [token._asdict() for token in use.most_frequent()]
    assert described["texts"]["en"]["words"] == report.use(kind="en").text.words
    words = described["vocabularies"]["words"]
    assert (words["vocab_size"], words["num_ordinary"], words["num_special"]) == (102, 4, 2)
    assert words["vocabulary_lengths"] == [0, 1, 0, 1, 0, 2]
    assert words["longest"][0] == {"id": 0, "token": "hello", "nbytes": 5, "times": 0}


def test_empty_report(empty_report):
    described = json.loads(json.dumps(tokjax.reports.report_to_json(empty_report), allow_nan=False))
    assert described["overall"]["tokenizer"]["bytes_per_token"] is None
    assert re.search(r"bytes per token +–\n", print_tables(tokjax.reports.report_tables(empty_report)))


def test_docs_define_all_metrics():
    page = (Path(__file__).parents[2] / "docs" / "vocabulary-report.md").read_text("utf-8")
    names = {name: f"text.{name}" for name in TEXT_METRICS}
    for name in (*TEXT_METRICS, *VOCABULARY_METRICS, *USE_METRICS):
        assert f"| {get_label(name)} | `{names.get(name, name)}` |" in page


def test_length_bins():
    lengths = [1, 2, 16, 17, 24, 25, 32, 33, 64, 65, 128, 129, 400]
    ordinary = {bytes([i % 256]) * n: i for i, n in enumerate(lengths)}
    use = tokjax.reports.TokenUse(
        tokjax.make_vocabulary(ordinary), tokjax.reports.TextSize(), np.arange(len(lengths))
    )
    assert [row for row in compute_length_bins(use) if row[1]] == [
        *(("1", 1, 0), ("2", 1, 1), ("16", 1, 2), ("17–24", 2, 3 + 4), ("25–32", 2, 5 + 6)),
        *(("33–64", 2, 7 + 8), ("65–128", 2, 9 + 10), ("129+", 2, 11 + 12)),
    ]
