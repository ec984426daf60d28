"""A report as a page: one file, which needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokjax._util.files import write_atomically
from tokjax.core.errors import InvalidArgumentError
from tokjax.reports.numbers import OF_TEXT, OF_USE, OF_VOCABULARY, readable_name, sections
from tokjax.reports.page_template import check_libraries, render_page
from tokjax.reports.plots import (
    bytes_per_token_plot,
    colour_of,
    curves_plot,
    lengths_plot,
    rank_frequency_plot,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokjax.reports.curves import SizeCurve
    from tokjax.reports.records import VocabularyReport


def save_report_html(
    report: VocabularyReport, path: str | os.PathLike[str], *, curves: Sequence[SizeCurve] = ()
) -> Path:
    """Write a report as a page, whole or not at all: one file of HTML, without scripts, that loads nothing.

    The same report gives the same bytes, with one version of matplotlib.

    Args:
        report: what `vocabulary_report` gave.
        path: the file.
        curves: what `size_curves` gave for the same tokenizers and texts, if they are wanted too.

    Returns:
        The path of the file.

    Raises:
        InvalidArgumentError: a curve is of a tokenizer that is not in the report.
        MissingExtraError: matplotlib or jinja2 is not installed; `pip install 'tokjax[report]'`.
    """
    check_libraries()
    for curve in curves:
        if curve.tokenizer not in report.tokenizers:
            raise InvalidArgumentError(
                f"a curve is of {curve.tokenizer!r}, and the report of "
                f"{', '.join(map(repr, report.tokenizers))}; pass name= and against= alike to "
                "vocabulary_report and size_curves"
            )
    target = Path(path)
    page = _page(report, curves).encode("utf-8")
    write_atomically(target, lambda file: file.write(page))
    return target


def _page(report: VocabularyReport, curves: Sequence[SizeCurve]) -> str:
    plots = [
        (
            "Bytes per token",
            "Higher is shorter: fewer tokens for the same text.",
            bytes_per_token_plot(report),
        ),
        ("Lengths of tokens", "Of the vocabulary, and weighted by use.", lengths_plot(report)),
        ("Rank and frequency", "From the most frequent token to the rarest.", rank_frequency_plot(report)),
    ]
    if curves:
        about = "What the first ids alone would give: the vocabulary, had it been trained smaller."
        plots.insert(1, ("Size of the vocabulary", about, curves_plot(curves, report.tokenizers)))
    return render_page(
        "page.html",
        names=list(map(readable_name, report.tokenizers)),
        kinds=list(map(readable_name, report.kinds)),
        colours=[colour_of(i) for i in range(len(report.tokenizers))],
        overall=[report.use(name) for name in report.tokenizers],
        sections=sections(report),
        of_text=OF_TEXT,
        of_vocabulary=OF_VOCABULARY,
        of_use=OF_USE,
        plots=plots,
    )
