"""Tests of the metrics of a vocabulary report: definitions in the docs, and bins of token lengths."""

from pathlib import Path

import numpy as np

import tokjax
from tokjax.reports.metrics import (
    TEXT_METRICS,
    USE_METRICS,
    VOCABULARY_METRICS,
    LengthBin,
    compute_length_bins,
)


def test_docs_define_all_metrics():
    page = (Path(__file__).parents[2] / "docs" / "vocabulary-report.md").read_text("utf-8")
    for metrics, prefix in ((TEXT_METRICS, "text."), (VOCABULARY_METRICS, ""), (USE_METRICS, "")):
        for metric in metrics:
            assert f"| {metric.label} | `{prefix}{metric.name}` |" in page


def test_length_bins():
    lengths = [1, 2, 16, 17, 24, 25, 32, 33, 64, 65, 128, 129, 400]
    ordinary = {bytes([i % 256]) * n: i for i, n in enumerate(lengths)}
    use = tokjax.reports.TokenUse(
        tokjax.make_vocabulary(ordinary), tokjax.reports.TextSize(), np.arange(len(lengths))
    )
    bins = compute_length_bins(use)
    assert [each.label for each in bins if each.num_in_vocabulary] == [
        *("1", "2", "16", "17–24", "25–32", "33–64", "65–128", "129+")
    ]
    assert bins[-5:] == [
        LengthBin(17, 24, 2, 3 + 4),
        LengthBin(25, 32, 2, 5 + 6),
        LengthBin(33, 64, 2, 7 + 8),
        LengthBin(65, 128, 2, 9 + 10),
        LengthBin(129, None, 2, 11 + 12),
    ]
    short = tokjax.reports.TokenUse(
        tokjax.make_vocabulary({b"abc": 0}), tokjax.reports.TextSize(), np.ones(1, np.int64)
    )
    assert [each.label for each in compute_length_bins(short)] == ["1", "2", "3"]
