"""HTML and JSON output of a vocabulary report. The page is one self-contained file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import check_path, write_atomically
from tokjax._util.display import make_visible
from tokjax._util.imports import import_optional
from tokjax.reports.metrics import (
    TEXT_METRICS,
    USE_METRICS,
    VOCABULARY_METRICS,
    format_number,
    group_by_kind,
    make_printable,
)
from tokjax.reports.plots import (
    get_colour,
    plot_bytes_per_token,
    plot_rank_frequency,
    plot_token_lengths,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokjax.reports.metrics import Metric, TextSize, TokenUse, VocabularyReport


def check_report_libraries() -> None:
    """Raises `MissingExtraError` if matplotlib or jinja2 is not installed."""
    for library in ("matplotlib", "jinja2"):
        import_optional(library, extra="report", purpose="an HTML report")


def save_report_html(report: VocabularyReport, path: str | os.PathLike[str]) -> Path:
    """Saves a report as one self-contained HTML file, without scripts and external resources.

    The write is atomic. The bytes of the file are deterministic for one version of matplotlib.

    Args:
        report: result of `vocabulary_report`.
        path: path of the file.

    Returns:
        The path of the file.

    Raises:
        MissingExtraError: matplotlib or jinja2 is not installed; `pip install 'tokjax[report]'`.
    """
    check_report_libraries()
    target = check_path(path)
    page = _render_report(report).encode("utf-8")
    write_atomically(target, lambda file: file.write(page))
    return target


def _render_report(report: VocabularyReport) -> str:
    plots = [
        (
            "Bytes per token",
            "Higher is better: fewer tokens for the same text.",
            plot_bytes_per_token(report),
        ),
        (
            "Token lengths",
            "Distribution of token lengths in the vocabulary and in the texts.",
            plot_token_lengths(report),
        ),
        (
            "Rank and frequency",
            "Number of occurrences of each token, from the most frequent to the rarest.",
            plot_rank_frequency(report),
        ),
    ]
    jinja2 = import_optional("jinja2", extra="report", purpose="an HTML report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"make_visible": make_visible, "format_number": format_number}
    page: str = environment.get_template("page.html").render(
        names=list(map(make_printable, report.tokenizers)),
        kinds=list(map(make_printable, report.kinds)),
        colours=[get_colour(i) for i in range(len(report.tokenizers))],
        overall=[report.use(name) for name in report.tokenizers],
        groups=group_by_kind(report),
        text_metrics=TEXT_METRICS,
        vocabulary_metrics=VOCABULARY_METRICS,
        use_metrics=USE_METRICS,
        plots=plots,
    )
    return page


def report_to_json(report: VocabularyReport) -> dict[str, Any]:
    """Converts a report to plain JSON values. Keys are attribute names of the records; `nan` becomes `null`.

    Args:
        report: result of `vocabulary_report`.

    Returns:
        A dictionary with these keys, without the counts of single ids:

        - `"tokenizers"` and `"kinds"`: the names.
        - `"texts"`: the attributes of a `TextSize` by kind of text.
        - `"vocabularies"`: by tokenizer, the metrics that do not depend on texts, and the `longest` tokens.
        - `"uses"`: by kind of text and tokenizer, the metrics of a `TokenUse` and its `most_frequent` tokens.
        - `"overall"`: by tokenizer, the same for all kinds of text together.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> from tokjax.reports.vocabulary_statistics import vocabulary_report
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> described = report_to_json(vocabulary_report(tokenizer, {"en": ["low"]}, progress=False))
    >>> described["uses"]["en"]["tokenizer"]["tokens"], described["texts"]["en"]["words"]
    (3, 1)
    """
    overall = {name: report.use(name) for name in report.tokenizers}
    by_kind = {kind: {name: report.use(name, kind) for name in overall} for kind in report.kinds}
    return {
        "tokenizers": list(report.tokenizers),
        "kinds": list(report.kinds),
        "texts": {
            kind: _metrics_to_json(next(iter(uses.values())).text, TEXT_METRICS)
            for kind, uses in by_kind.items()
        },
        "vocabularies": {name: _vocabulary_to_json(use) for name, use in overall.items()},
        "uses": {
            kind: {name: _use_to_json(use) for name, use in uses.items()} for kind, uses in by_kind.items()
        },
        "overall": {name: _use_to_json(use) for name, use in overall.items()},
    }


def _vocabulary_to_json(use: TokenUse) -> dict[str, Any]:
    return _metrics_to_json(use, VOCABULARY_METRICS) | {
        "vocabulary_lengths": use.vocabulary_lengths.tolist(),
        "longest": [token._asdict() for token in use.longest()],
    }


def _use_to_json(use: TokenUse) -> dict[str, Any]:
    return _metrics_to_json(use, USE_METRICS) | {
        "used_lengths": use.used_lengths.tolist(),
        "most_frequent": [token._asdict() for token in use.most_frequent()],
    }


def _metrics_to_json(record: TextSize | TokenUse, metrics: Sequence[Metric]) -> dict[str, Any]:
    return {metric.name: _nan_to_none(metric.get_value(record)) for metric in metrics}


def _nan_to_none(value: float) -> float | None:
    return None if math.isnan(value) else value
