"""A report as a page: one file, which needs nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.display import make_visible
from tokjax._util.files import write_atomically
from tokjax._util.imports import import_optional
from tokjax.errors import InvalidArgumentError
from tokjax.reports.metrics import (
    TEXT_METRICS,
    USE_METRICS,
    VOCABULARY_METRICS,
    format_number,
    make_printable,
    sections,
)
from tokjax.reports.plots import (
    get_colour,
    plot_bytes_per_token,
    plot_rank_frequency,
    plot_size_curves,
    plot_token_lengths,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokjax.reports.curves import SizeCurve
    from tokjax.reports.metrics import Metric
    from tokjax.reports.records import TextSize, TokenUse, VocabularyReport


def check_report_libraries() -> None:
    """Raise `MissingExtraError` where a page can't be made."""
    for library in ("matplotlib", "jinja2"):
        import_optional(library, extra="report", purpose="the page of a report")


def render_page(template: str, **values: Any) -> str:
    """A page.

    Args:
        template: the name of its template, beside this file.
        **values: what stands in it.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    jinja2 = import_optional("jinja2", extra="report", purpose="the page of a report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"visible": make_visible, "shown": format_number}
    page: str = environment.get_template(template).render(values)
    return page


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
    check_report_libraries()
    for curve in curves:
        if curve.tokenizer not in report.tokenizers:
            raise InvalidArgumentError(
                f"a curve is of {curve.tokenizer!r}, and the report of "
                f"{', '.join(map(repr, report.tokenizers))}; pass name= and against= alike to "
                "vocabulary_report and size_curves"
            )
    target = Path(path)
    page = _render_report(report, curves).encode("utf-8")
    write_atomically(target, lambda file: file.write(page))
    return target


def _render_report(report: VocabularyReport, curves: Sequence[SizeCurve]) -> str:
    plots = [
        (
            "Bytes per token",
            "Higher is shorter: fewer tokens for the same text.",
            plot_bytes_per_token(report),
        ),
        ("Lengths of tokens", "Of the vocabulary, and weighted by use.", plot_token_lengths(report)),
        ("Rank and frequency", "From the most frequent token to the rarest.", plot_rank_frequency(report)),
    ]
    if curves:
        about = "What the first ids alone would give: the vocabulary, had it been trained smaller."
        plots.insert(1, ("Size of the vocabulary", about, plot_size_curves(curves, report.tokenizers)))
    return render_page(
        "page.html",
        names=list(map(make_printable, report.tokenizers)),
        kinds=list(map(make_printable, report.kinds)),
        colours=[get_colour(i) for i in range(len(report.tokenizers))],
        overall=[report.use(name) for name in report.tokenizers],
        sections=sections(report),
        of_text=TEXT_METRICS,
        of_vocabulary=VOCABULARY_METRICS,
        of_use=USE_METRICS,
        plots=plots,
    )


def report_to_json(report: VocabularyReport, curves: Sequence[SizeCurve] = ()) -> dict[str, Any]:
    """A report as plain JSON values, under the names of the records' attributes; `nan` is `null`.

    Args:
        report: what `vocabulary_report` gave.
        curves: what `size_curves` gave for the same tokenizers and texts, if they are wanted too.

    Returns:
        `"texts"`: kind to `TextSize`. `"vocabularies"`: tokenizer to what holds for any text, its
        `longest` tokens among it. `"uses"`: kind to tokenizer to the numbers of a `TokenUse`, with its
        `most_frequent` tokens. `"overall"`: the same of all kinds together, without the kind. `"curves"`: the
        attributes of each `SizeCurve`. Counts of single ids are left out.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> from tokjax.reports.vocabulary_report import vocabulary_report
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
        "curves": [_curve_to_json(curve) for curve in curves],
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


def _curve_to_json(curve: SizeCurve) -> dict[str, Any]:
    return {
        "tokenizer": curve.tokenizer,
        "kind": curve.kind,
        "nbytes": curve.nbytes,
        "sizes": list(curve.sizes),
        "tokens": list(curve.tokens),
        "bytes_per_token": list(map(_nan_to_none, curve.bytes_per_token)),
    }


def _metrics_to_json(record: TextSize | TokenUse, numbers: Sequence[Metric]) -> dict[str, Any]:
    return {number.name: _nan_to_none(number.get_value(record)) for number in numbers}


def _nan_to_none(value: float) -> float | None:
    return None if math.isnan(value) else value
