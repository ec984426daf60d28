"""A report as tables for a terminal."""

from __future__ import annotations

import itertools
from math import nan
from typing import TYPE_CHECKING

from tokjax._util.display import visible
from tokjax.reports.numbers import (
    OF_TEXT,
    OF_USE,
    OF_VOCABULARY,
    SHARE,
    length_bins,
    readable_name,
    sections,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table
    from rich.text import Text

    from tokjax.reports.curves import SizeCurve
    from tokjax.reports.numbers import Number
    from tokjax.reports.records import TokenUse, VocabularyReport

_SIDE_BY_SIDE = 4
"""So many columns of numbers fit 80 characters."""
_TOKENS_SHOWN = 10
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
    >>> from tokjax.reports.measuring import vocabulary_report
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> tables = report_tables(vocabulary_report(tokenizer, ["low"], progress=False))
    >>> [str(table.title) for table in tables]
    ['texts', 'numbers', 'tokens of tokenizer', 'lengths of tokens of tokenizer']
    """
    overall = [(readable_name(name), report.use(name)) for name in report.tokenizers]
    return (
        _texts_table(report),
        *_numbers_tables(report),
        *_curves_tables(curves),
        *itertools.chain.from_iterable(
            (_tokens_table(name, use), _lengths_table(name, use)) for name, use in overall
        ),
    )


def _texts_table(report: VocabularyReport) -> Table:
    table = _table("texts", "kind", [number.label for number in OF_TEXT])
    for kind, (use, *_) in sections(report):
        table.add_row(_text(kind), *(number.shown(use.text) for number in OF_TEXT))
    return table


def _numbers_tables(report: VocabularyReport) -> Iterator[Table]:
    for start in range(0, len(report.tokenizers), _SIDE_BY_SIDE):
        some = slice(start, start + _SIDE_BY_SIDE)
        table = _table("numbers", "", list(map(readable_name, report.tokenizers[some])))
        for name, numbers, uses in _blocks(report):
            table.add_section()
            table.add_row(_text(name, "bold"))
            for number in numbers:
                table.add_row(f"  {number.label}", *map(number.shown, uses[some]))
        yield table


def _blocks(report: VocabularyReport) -> Iterator[tuple[str, Sequence[Number], tuple[TokenUse, ...]]]:
    """What belongs together: a name, the numbers, and the tokenizers that they are of."""
    by_kind = sections(report)
    yield "vocabulary", OF_VOCABULARY, by_kind[-1][1]
    for kind, uses in by_kind:
        yield kind, OF_USE, uses


def _curves_tables(curves: Sequence[SizeCurve]) -> Iterator[Table]:
    """Bytes a token on each kind of text, a row a size, tokenizers side by side."""
    for kind in dict.fromkeys(curve.kind for curve in curves):
        of_kind = [curve for curve in curves if curve.kind == kind]
        for start in range(0, len(of_kind), _SIDE_BY_SIDE):
            yield _curves_table(kind, of_kind[start : start + _SIDE_BY_SIDE])


def _curves_table(kind: str, curves: Sequence[SizeCurve]) -> Table:
    names = [readable_name(curve.tokenizer) for curve in curves]
    table = _table(f"bytes per token by size: {readable_name(kind)}", "ids", names)
    by_size = [dict(zip(curve.sizes, curve.bytes_per_token, strict=True)) for curve in curves]
    for size in sorted(set().union(*by_size)):
        table.add_row(f"{size:,}", *(shown(of[size]) if size in of else "" for of in by_size))
    return table


def _tokens_table(name: str, use: TokenUse) -> Table:
    """The longest tokens, and the most frequent ones beside them."""
    table = _table(f"tokens of {name}", "longest", ["bytes", "times"])
    table.add_column("most frequent")
    table.add_column("times", justify="right")
    longest, frequent = use.longest(_TOKENS_SHOWN), use.most_frequent(_TOKENS_SHOWN)
    for long, often in itertools.zip_longest(longest, frequent):
        left = ["", "", ""] if long is None else [_token(long.token), str(long.nbytes), f"{long.times:,}"]
        right = ["", ""] if often is None else [_token(often.token), f"{often.times:,}"]
        table.add_row(*left, *right)
    return table


def _lengths_table(name: str, use: TokenUse) -> Table:
    """A histogram in characters: of the vocabulary, and of the texts."""
    table = _table(f"lengths of tokens of {name}", "bytes", [])
    for title in ("of the vocabulary", "of the texts"):
        table.add_column("", justify="right")
        table.add_column(title, min_width=_BAR_WIDTH)
    bins = length_bins(use)
    columns = [[each.of_vocabulary for each in bins], [each.of_texts for each in bins]]
    for each, *counts in zip(bins, *columns, strict=True):
        cells = itertools.chain.from_iterable(map(_bar, counts, columns))
        table.add_row(each.label, *cells)
    return table


def _bar(count: int, column: Sequence[int]) -> tuple[str, str]:
    """Which part of a column a count is, and a bar for it."""
    most, total = max(column), sum(column)
    return shown(count / total if total else nan, SHARE), "█" * (most and round(_BAR_WIDTH * count / most))


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    from rich.table import Table  # noqa: PLC0415 (slow to import)

    heading = _text(title)
    table = Table(
        title=heading,
        title_justify="left",
        min_width=heading.cell_len,  # (a table is else as wide as its columns, and breaks its title)
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    table.add_column(_text(first))
    for column in columns:
        table.add_column(_text(column), justify="right")
    return table


def _token(token: str) -> Text:
    text = _text(visible(token), "cyan")
    text.truncate(_TOKEN_WIDTH, overflow="ellipsis")
    return text


def _text(text: str, style: str = "") -> Text:
    """Text that is not markup."""
    from rich.text import Text  # noqa: PLC0415 (slow to import)

    return Text(text, style=style)
