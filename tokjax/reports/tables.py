"""A report as tables for a terminal."""

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
    make_printable,
    sections,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table
    from rich.text import Text

    from tokjax.reports.curves import SizeCurve
    from tokjax.reports.metrics import Metric
    from tokjax.reports.records import TokenUse, VocabularyReport

_COLUMNS_PER_TABLE = 4
"""So many columns of numbers fit 80 characters."""
_MAX_TOKENS = 10
_TOKEN_WIDTH, _BAR_WIDTH = 26, 24


def report_tables(report: VocabularyReport, curves: Sequence[SizeCurve] = ()) -> tuple[Table, ...]:
    """A report as `rich` tables, readable in 80 columns; print them with `rich.print(*tables)`.

    Args:
        report: what `vocabulary_report` gave.
        curves: what `size_curves` gave for the same tokenizers and texts, if a table of them is wanted too.

    Returns:
        How much text there was; the numbers, tokenizers side by side (four a table), kind by kind; bytes a
        token by size of vocabulary; for each tokenizer, its longest and most frequent tokens, and a histogram
        of the lengths of its tokens.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> from tokjax.reports.vocabulary_report import vocabulary_report
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> tables = report_tables(vocabulary_report(tokenizer, ["low"], progress=False))
    >>> [str(table.title) for table in tables]
    ['texts', 'numbers', 'tokens of tokenizer', 'lengths of tokens of tokenizer']
    """
    overall = [(make_printable(name), report.use(name)) for name in report.tokenizers]
    return (
        _make_texts_table(report),
        *_iter_metric_tables(report),
        *_iter_curve_tables(curves),
        *itertools.chain.from_iterable(
            (_make_tokens_table(name, use), _make_lengths_table(name, use)) for name, use in overall
        ),
    )


def _make_texts_table(report: VocabularyReport) -> Table:
    table = _make_table("texts", "kind", [number.label for number in TEXT_METRICS])
    for kind, (use, *_) in sections(report):
        table.add_row(_make_text(kind), *(number.format_number(use.text) for number in TEXT_METRICS))
    return table


def _iter_metric_tables(report: VocabularyReport) -> Iterator[Table]:
    for start in range(0, len(report.tokenizers), _COLUMNS_PER_TABLE):
        some = slice(start, start + _COLUMNS_PER_TABLE)
        table = _make_table("numbers", "", list(map(make_printable, report.tokenizers[some])))
        for name, numbers, uses in _iter_metric_groups(report):
            table.add_section()
            table.add_row(_make_text(name, "bold"))
            for number in numbers:
                table.add_row(f"  {number.label}", *map(number.format_number, uses[some]))
        yield table


def _iter_metric_groups(
    report: VocabularyReport,
) -> Iterator[tuple[str, Sequence[Metric], tuple[TokenUse, ...]]]:
    """What belongs together: a name, the numbers, and the tokenizers that they are of."""
    by_kind = sections(report)
    yield "vocabulary", VOCABULARY_METRICS, by_kind[-1][1]
    for kind, uses in by_kind:
        yield kind, USE_METRICS, uses


def _iter_curve_tables(curves: Sequence[SizeCurve]) -> Iterator[Table]:
    """Bytes a token on each kind of text, a row a size, tokenizers side by side."""
    for kind in dict.fromkeys(curve.kind for curve in curves):
        curves_of_kind = [curve for curve in curves if curve.kind == kind]
        for start in range(0, len(curves_of_kind), _COLUMNS_PER_TABLE):
            yield _make_curve_table(kind, curves_of_kind[start : start + _COLUMNS_PER_TABLE])


def _make_curve_table(kind: str, curves: Sequence[SizeCurve]) -> Table:
    names = [make_printable(curve.tokenizer) for curve in curves]
    table = _make_table(f"bytes per token by size: {make_printable(kind)}", "ids", names)
    by_size = [dict(zip(curve.sizes, curve.bytes_per_token, strict=True)) for curve in curves]
    for size in sorted(set().union(*by_size)):
        table.add_row(f"{size:,}", *(format_number(of[size]) if size in of else "" for of in by_size))
    return table


def _make_tokens_table(name: str, use: TokenUse) -> Table:
    """The longest tokens, and the most frequent ones beside them."""
    table = _make_table(f"tokens of {name}", "longest", ["bytes", "times"])
    table.add_column("most frequent")
    table.add_column("times", justify="right")
    longest, frequent = use.longest(_MAX_TOKENS), use.most_frequent(_MAX_TOKENS)
    for long, often in itertools.zip_longest(longest, frequent):
        left = (
            ["", "", ""] if long is None else [_format_token(long.token), str(long.nbytes), f"{long.times:,}"]
        )
        right = ["", ""] if often is None else [_format_token(often.token), f"{often.times:,}"]
        table.add_row(*left, *right)
    return table


def _make_lengths_table(name: str, use: TokenUse) -> Table:
    """A histogram in characters: of the vocabulary, and of the texts."""
    table = _make_table(f"lengths of tokens of {name}", "bytes", [])
    for title in ("of the vocabulary", "of the texts"):
        table.add_column("", justify="right")
        table.add_column(title, min_width=_BAR_WIDTH)
    bins = compute_length_bins(use)
    columns = [[each.num_in_vocabulary for each in bins], [each.num_in_texts for each in bins]]
    for each, *counts in zip(bins, *columns, strict=True):
        cells = itertools.chain.from_iterable(map(_format_bar, counts, columns))
        table.add_row(each.label, *cells)
    return table


def _format_bar(count: int, column: Sequence[int]) -> tuple[str, str]:
    """Which part of a column a count is, and a bar for it."""
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
        min_width=heading.cell_len,  # (a table is else as wide as its columns, and breaks its title)
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
    """Text that is not markup."""
    from rich.text import Text  # noqa: PLC0415 (slow to import)

    return Text(text, style=style)
