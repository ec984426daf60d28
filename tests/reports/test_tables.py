"""Tests of the tables of a vocabulary report, in a terminal and as JSON, and the docs of its metrics."""

import json
from pathlib import Path

from rich.console import Console

import tokjax
from tokjax.reports.vocabulary_statistics import TEXT_METRICS, USE_METRICS, VOCABULARY_METRICS, get_label


def print_tables(tables):
    console = Console(width=80)
    with console.capture() as captured:
        console.print(*tables)
    return captured.get()


def test_tables_have_all_metrics(report):
    shown = print_tables(tokjax.reports.report_tables(report))
    assert max(map(len, shown.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for kind in ("en", "others", None):
        uses = [report.use(name, kind) for name in report.tokenizers]
        for metric in USE_METRICS:
            form = ".2%" if metric.endswith("share") else "," if metric == "tokens" else ".3f"
            values = (format(getattr(use, metric), form) for use in uses)
            assert " ".join([kind or "all texts", get_label(metric), *values]) in lines
    assert "hello 5 0" in lines


def test_tables_escape_names_and_tokens(hostile_report):
    shown = print_tables(tokjax.reports.report_tables(hostile_report))
    assert "[red]" in shown
    assert "\\x1b[2J" in shown
    assert not set(shown) & set("\x1b\x00\u202e")


def test_json(report):
    described = json.loads(json.dumps(tokjax.reports.report_to_json(report), allow_nan=False))
    use = report.use("words", "others")
    metrics = {(row["kind"], row["metric"]): row["words"] for row in described["metrics"]}
    for metric in USE_METRICS:
        assert metrics["others", get_label(metric)] == getattr(use, metric), metric
    assert [metrics["vocabulary", get_label(metric)] for metric in VOCABULARY_METRICS] == [102, 4, 2]
    assert described["texts"][0]["words"] == report.use(kind="en").text.words
    assert described["longest tokens of words"][0] == {"token": "hello", "bytes": 5, "count": 0}
    lengths = described["token lengths of words"]
    assert [(row["bytes"], row["in the vocabulary"]) for row in lengths] == [(1, 0.25), (3, 0.25), (5, 0.5)]


def test_empty_report(empty_report):
    described = json.loads(json.dumps(tokjax.reports.report_to_json(empty_report), allow_nan=False))
    assert described["metrics"][4] == {"kind": "text", "metric": "bytes per token", "tokenizer": None}
    shown = print_tables(tokjax.reports.report_tables(empty_report))
    assert " ".join(shown.split()).count("bytes per token –") == 1


def test_docs_define_all_metrics():
    page = (Path(__file__).parents[2] / "docs" / "vocabulary-report.md").read_text("utf-8")
    names = {name: f"text.{name}" for name in TEXT_METRICS}
    for name in (*TEXT_METRICS, *VOCABULARY_METRICS, *USE_METRICS):
        assert f"| {get_label(name)} | `{names.get(name, name)}` |" in page
