"""Terminal tables of a vocabulary report."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from tokjax._util.display import make_visible
from tokjax.reports.vocabulary_statistics import TEXT_METRICS, USE_METRICS, VOCABULARY_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table
    from rich.text import Text

    from tokjax.reports.metrics import TextSize, TokenUse, VocabularyReport

_COLUMNS_PER_TABLE = 4
"""Maximum number of numeric columns that fit in 80 characters."""
_MAX_TOKENS = 10
_TOKEN_WIDTH, _BAR_WIDTH = 26, 24
_NAN_TEXT = "–"
_ALL_KINDS = "all texts"
"""Label of all kinds of text together."""
_BINS = (*range(1, 18), 25, 33, 65, 129)
"""Minimum length of each bin of a histogram, in bytes."""
_LABELS = {
    "nbytes": "bytes",
    "vocab_size": "ids",
    "num_ordinary": "ordinary tokens",
    "num_special": "special tokens",
    "huffman_bits_per_token": "Huffman bits per token",
    "huffman_bits_per_byte": "Huffman bits per byte",
    "renyi_efficiency": "Rényi efficiency",
    "unused_share": "never used",
    "single_use_share": "used once",
    "unknown_share": "unknown tokens",
    "single_byte_share": "single-byte tokens",
}
"""Labels of metrics whose label is not their name with spaces."""


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
    overall = [(_make_printable(name), report.use(name)) for name in report.tokenizers]
    return (
        _make_texts_table(report),
        *_iter_metric_tables(report),
        *itertools.chain.from_iterable(
            (_make_tokens_table(name, use), _make_lengths_table(name, use)) for name, use in overall
        ),
    )


def _make_texts_table(report: VocabularyReport) -> Table:
    table = _make_table("texts", "kind", list(map(get_label, TEXT_METRICS)))
    for kind, (use, *_) in _group_by_kind(report):
        table.add_row(_make_text(kind), *(format_metric(use.text, name) for name in TEXT_METRICS))
    return table


def _iter_metric_tables(report: VocabularyReport) -> Iterator[Table]:
    for start in range(0, len(report.tokenizers), _COLUMNS_PER_TABLE):
        columns = slice(start, start + _COLUMNS_PER_TABLE)
        table = _make_table("metrics", "", list(map(_make_printable, report.tokenizers[columns])))
        for title, metrics, uses in _iter_metric_groups(report):
            table.add_section()
            table.add_row(_make_text(title, "bold"))
            for name in metrics:
                table.add_row(f"  {get_label(name)}", *(format_metric(use, name) for use in uses[columns]))
        yield table


def _iter_metric_groups(
    report: VocabularyReport,
) -> Iterator[tuple[str, Sequence[str], tuple[TokenUse, ...]]]:
    """Yields the sections of the table of metrics: title, metrics, and the token counts of each tokenizer."""
    by_kind = _group_by_kind(report)
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
    columns = [counts for _, *counts in bins]
    totals, maxima = map(sum, zip(*columns, strict=True)), map(max, zip(*columns, strict=True))
    scales = list(zip(totals, maxima, strict=True))
    for label, *counts in bins:
        bars = (_format_bar(count, *scale) for count, scale in zip(counts, scales, strict=True))
        table.add_row(label, *itertools.chain.from_iterable(bars))
    return table


def compute_length_bins(use: TokenUse) -> list[tuple[str, int, int]]:
    """Computes a histogram of token lengths, up to the bin of the longest token of the vocabulary.

    Bins are one byte wide up to 16 bytes, and wider above.

    Returns:
        For each bin its range of lengths, such as `17–24` or `129+`, and the number of ordinary tokens in the
        vocabulary and in the texts.
    """
    lengths = use.vocabulary_lengths, use.used_lengths
    bins = []
    for minimum, stop in zip(_BINS, [*_BINS[1:], None], strict=True):
        label = f"{minimum}+" if stop is None else str(minimum)
        if stop is not None and stop - minimum > 1:
            label = f"{minimum}–{stop - 1}"
        if minimum < len(lengths[0]):
            in_vocabulary, in_texts = (int(numbers[minimum:stop].sum()) for numbers in lengths)
            bins.append((label, in_vocabulary, in_texts))
    return bins


def _format_bar(count: int, total: int, maximum: int) -> tuple[str, str]:
    """Returns the share of a count in its column, and a bar whose length is relative to the largest count."""
    share = f"{count / total:.2%}" if total else _NAN_TEXT
    return share, "█" * (maximum and round(_BAR_WIDTH * count / maximum))


def get_label(name: str) -> str:
    """Returns the label of a metric."""
    return _LABELS.get(name, name.replace("_", " "))


def format_metric(record: TextSize | TokenUse, name: str) -> str:
    """Returns a metric as text: a count, a share in percent or a ratio; `nan` becomes a dash."""
    value = getattr(record, name)
    form = "," if isinstance(value, int) else ".2%" if name.endswith("share") else ".3f"
    return _NAN_TEXT if math.isnan(value) else format(value, form)


def _group_by_kind(report: VocabularyReport) -> list[tuple[str, tuple[TokenUse, ...]]]:
    """Returns each kind of text with the token counts of all tokenizers.

    A report of several kinds of text has one more entry, for all kinds together, at the end.
    """
    kinds: list[str | None] = [*report.kinds, *([None] if len(report.kinds) > 1 else [])]
    return [
        (
            _ALL_KINDS if kind is None else _make_printable(kind),
            tuple(report.use(each, kind) for each in report.tokenizers),
        )
        for kind in kinds
    ]


def _make_printable(name: str) -> str:
    """Returns the name of a tokenizer or kind of text with its control characters escaped."""
    return name if name.isprintable() else make_visible(name)


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
