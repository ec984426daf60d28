"""Tables that the commands print."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from tokjax._util.display import make_visible
from tokjax.offsets import has_span
from tokjax.reports.dataset_statistics import compute_length_quantiles

if TYPE_CHECKING:
    from pathlib import Path

    from tokjax.core.records import TokenizationResult
    from tokjax.datasets.dataset import Dataset
    from tokjax.reports.dataset_statistics import DatasetReport
    from tokjax.reports.mixture import MixtureEstimate
    from tokjax.trainer import Trained

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue")


def make_token_table(result: TokenizationResult, limit: int, *, is_complete: bool) -> Table:
    """Returns a table with one row per token: index, readable token, id, byte span.

    Args:
        result: tokens of the text.
        limit: maximum number of rows.
        is_complete: whether the whole text was encoded; `False` if only its start was.
    """
    table = Table("#", "token")
    for name in ("id", "bytes", "special"):
        table.add_column(name, no_wrap=True)
    rows = zip(result.tokens, result.ids, result.offsets, result.special_tokens_mask, strict=True)
    for i, (token, id_, span, special) in enumerate(itertools.islice(rows, limit)):
        style = "reverse" if special else _COLOURS[i % len(_COLOURS)]
        token_text = Text(make_visible(token), style=style)
        span_text = f"[{span[0]}, {span[1]})" if has_span(span) else "none"
        table.add_row(str(i), token_text, str(id_), Text(span_text), "yes" if special else "")
    count = f"{len(result):,} tokens"
    if len(result) > limit:
        count = f"{limit:,} of {count if is_complete else 'more tokens'} (see --limit)"
    table.caption = f"{count}; bytes are 1-based and half-open"
    return table


def make_padding_table(report: DatasetReport) -> Table:
    """Returns a table with the share of padding and the number of shapes for each batching strategy."""
    table = Table("batches", title=f"padding with {report.batch_size} documents per batch")
    for name in ("padding", "shapes"):
        table.add_column(name, no_wrap=True, justify="right")
    for padding in report.padding:
        table.add_row(Text(padding.strategy), f"{padding.share:.1%}", f"{padding.shapes:,}")
    return table


def make_stats_table(dataset: Dataset) -> Table:
    """Returns a table with the properties of a dataset."""
    manifest, plan = dataset.manifest, dataset.manifest.plan
    lengths = dataset.document_lengths
    unit = "bytes" if plan.tokenizer_fingerprint is None else "tokens"
    table = _make_two_column_table(dataset.location)
    table.add_row("field", Text(manifest.plan.field))
    table.add_row(unit, f"{manifest.num_items:,}")
    table.add_row("documents", f"{manifest.num_documents:,}")
    if (
        manifest.num_bytes or not manifest.num_items
    ):  # 0 bytes: the ids were converted, and their text is unknown
        table.add_row("bytes of text", f"{manifest.num_bytes:,}")
    if manifest.bytes_per_token is not None:
        table.add_row("bytes per token", f"{manifest.bytes_per_token:.3f}")
    if manifest.num_cut:
        table.add_row("truncated documents", f"{manifest.num_cut:,}")
        table.add_row(f"{unit} removed by truncation", f"{manifest.num_dropped:,}")
    if manifest.num_dropped_documents:
        table.add_row("documents left out, without targets", f"{manifest.num_dropped_documents:,}")
    if manifest.num_skipped:
        table.add_row("skipped bad records", f"{manifest.num_skipped:,}")
    if len(lengths):
        quantiles = compute_length_quantiles(lengths)
        summary = f"median {quantiles['median']:,}, longest {quantiles['longest']:,}"
        table.add_row(f"{unit} per document", summary)
    table.add_row("dtype", manifest.plan.data_dtype)
    for column in dataset.columns:
        table.add_row(f"column {column.name}", f"{column.dtype} per {column.per}")
    table.add_row("shards", str(len(manifest.shards)))
    if plan.vocab_size is not None:
        table.add_row("vocabulary", f"{plan.vocab_size:,}")
        table.add_row("tokenizer", str(plan.tokenizer_fingerprint))
    return table


def make_training_table(trained: Trained[Any], file: Path) -> Table:
    """Returns a table with the results and the statistics of training, and its notes as the caption."""
    stats = trained.stats
    table = _make_two_column_table(str(file))
    table.add_row("vocabulary", f"{trained.tokenizer.vocabulary.size:,}")
    table.add_row("documents", f"{stats.documents:,}")
    table.add_row("bytes of text", f"{stats.bytes:,}")
    table.add_row("unique pre-tokens", f"{stats.num_unique_pretokens:,}")
    table.add_row("bytes per token", f"{stats.bytes_per_token:.3f}")
    for phase, seconds in stats.seconds.items():
        table.add_row(phase, f"{seconds:.1f} s")
    if stats.notes:
        table.caption = Text("\n".join(stats.notes))
        table.caption_justify = "left"
    return table


def make_mixture_table(tokenizer: str, estimate: MixtureEstimate) -> Table:
    """Returns a table with the estimated share of each source, and how well the shares explain the merges."""
    table = _make_two_column_table(tokenizer)
    for source, share in estimate.shares.items():
        lowest, highest = estimate.ranges[source]
        table.add_row(Text(source), f"{share:.1%} ({lowest:.1%} to {highest:.1%})")
    table.add_section()
    table.add_row("merges", f"{estimate.num_merges:,}")
    table.add_row("shortfall", f"{estimate.shortfall:.1f}")
    return table


def _make_two_column_table(title: str) -> Table:
    table = Table(title=Text(title), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right", overflow="fold")
    return table
