"""Terminal tables of a vocabulary report."""

from __future__ import annotations

import itertools
from math import nan
from typing import TYPE_CHECKING

from tokjax._util.display import make_visible
from tokjax.reports.metrics import (
    SHARE,
    TEXT_METRICS,
    USE_METRICS,
    VOCABULARY_METRICS,
    compute_length_bins,
    format_number,
    group_by_kind,
    make_printable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table
    from rich.text import Text

    from tokjax.reports.metrics import Metric, TokenUse, VocabularyReport

_COLUMNS_PER_TABLE = 4
"""Maximum number of numeric columns that fit in 80 characters."""
_MAX_TOKENS = 10
_TOKEN_WIDTH, _BAR_WIDTH = 26, 24


def report_tables(report: VocabularyReport) -> tuple[Table, ...]:
    """Renders a report as `rich` tables of at most 80 columns. Print them with `rich.print(*tables)`.

    Args:
        report: result of `vocabulary_report`.

    Returns:
        In this order: the sizes of the texts; the metrics by kind of text, with up to four tokenizers side by
        side per table; for each tokenizer, its longest and its most frequent tokens, and a histogram of
        token lengths.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> from tokjax.reports.vocabulary_statistics import vocabulary_report
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> tables = report_tables(vocabulary_report(tokenizer, ["low"], progress=False))
    >>> [str(table.title) for table in tables]
    ['texts', 'metrics', 'tokens of tokenizer', 'token lengths of tokenizer']
    """
    overall = [(make_printable(name), report.use(name)) for name in report.tokenizers]
    return (
        _make_texts_table(report),
        *_iter_metric_tables(report),
        *itertools.chain.from_iterable(
            (_make_tokens_table(name, use), _make_lengths_table(name, use)) for name, use in overall
        ),
    )


def _make_texts_table(report: VocabularyReport) -> Table:
    table = _make_table("texts", "kind", [metric.label for metric in TEXT_METRICS])
    for kind, (use, *_) in group_by_kind(report):
        table.add_row(_make_text(kind), *(metric.format_number(use.text) for metric in TEXT_METRICS))
    return table


def _iter_metric_tables(report: VocabularyReport) -> Iterator[Table]:
    for start in range(0, len(report.tokenizers), _COLUMNS_PER_TABLE):
        columns = slice(start, start + _COLUMNS_PER_TABLE)
        table = _make_table("metrics", "", list(map(make_printable, report.tokenizers[columns])))
        for title, metrics, uses in _iter_metric_groups(report):
            table.add_section()
            table.add_row(_make_text(title, "bold"))
            for metric in metrics:
                table.add_row(f"  {metric.label}", *map(metric.format_number, uses[columns]))
        yield table


def _iter_metric_groups(
    report: VocabularyReport,
) -> Iterator[tuple[str, Sequence[Metric], tuple[TokenUse, ...]]]:
    """Yields the sections of the table of metrics: title, metrics, and the token counts of each tokenizer."""
    by_kind = group_by_kind(report)
    yield "vocabulary", VOCABULARY_METRICS, by_kind[-1][1]
    for kind, uses in by_kind:
        yield kind, USE_METRICS, uses


def _make_tokens_table(name: str, use: TokenUse) -> Table:
    """Returns a table of the longest and the most frequent tokens, side by side."""
    table = _make_table(f"tokens of {name}", "longest", ["bytes", "count"])
    table.add_column("most frequent")
    table.add_column("count", justify="right")
    longest, most_frequent = use.longest(_MAX_TOKENS), use.most_frequent(_MAX_TOKENS)
    for long, frequent in itertools.zip_longest(longest, most_frequent):
        left = (
            ["", "", ""] if long is None else [_format_token(long.token), str(long.nbytes), f"{long.times:,}"]
        )
        right = ["", ""] if frequent is None else [_format_token(frequent.token), f"{frequent.times:,}"]
        table.add_row(*left, *right)
    return table


def _make_lengths_table(name: str, use: TokenUse) -> Table:
    """Returns a histogram of token lengths, of the vocabulary and of the texts, drawn with characters."""
    table = _make_table(f"token lengths of {name}", "bytes", [])
    for title in ("in the vocabulary", "in the texts"):
        table.add_column("", justify="right")
        table.add_column(title, min_width=_BAR_WIDTH)
    bins = compute_length_bins(use)
    columns = [[each.num_in_vocabulary for each in bins], [each.num_in_texts for each in bins]]
    for each, *counts in zip(bins, *columns, strict=True):
        cells = itertools.chain.from_iterable(map(_format_bar, counts, columns))
        table.add_row(each.label, *cells)
    return table


def _format_bar(count: int, column: Sequence[int]) -> tuple[str, str]:
    """Returns the share of a count in its column, and a bar whose length is relative to the largest count."""
    maximum, total = max(column), sum(column)
    return format_number(count / total if total else nan, SHARE), "█" * (
        maximum and round(_BAR_WIDTH * count / maximum)
    )


def _make_table(title: str, first: str, columns: Sequence[str]) -> Table:
    from rich.table import Table  # noqa: PLC0415 (slow to import)

    heading = _make_text(title)
    table = Table(
        title=heading,
        title_justify="left",
        min_width=heading.cell_len,  # Otherwise rich wraps a title that is wider than the columns.
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    table.add_column(_make_text(first))
    for column in columns:
        table.add_column(_make_text(column), justify="right")
    return table


def _format_token(token: str) -> Text:
    text = _make_text(make_visible(token), "cyan")
    text.truncate(_TOKEN_WIDTH, overflow="ellipsis")
    return text


def _make_text(text: str, style: str = "") -> Text:
    """Returns text that `rich` does not parse as markup."""
    from rich.text import Text  # noqa: PLC0415 (slow to import)

    return Text(text, style=style)
