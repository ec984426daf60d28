"""Plots of reports, as SVG elements to embed in an HTML page."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from tokjax._util.imports import import_optional
from tokjax.reports.metrics import compute_length_bins, format_number, group_by_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tokjax.reports.metrics import VocabularyReport

COLOURS = ("#3d85c6", "#e0862a", "#3a9e6f", "#c9557f", "#8b70d0", "#9a8f3a", "#2f9fae", "#8a8f98")
"""Colours of the tokenizers, in order: they can be distinguished on a light and on a dark background."""

_INK = "#010203"  # Placeholder that `_prefix_attribute` replaces by the text colour of the page.
_STYLE = {
    "axes.edgecolor": _INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "font.size": 9,
    "grid.alpha": 0.2,
    "grid.color": _INK,
    "svg.fonttype": "none",  # Text elements instead of paths, in the font of the page.
    "text.color": _INK,
    "text.parse_math": False,  # A name may contain `$`.
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_WIDTH, _HEIGHT = 9.0, 3.0
_MAX_RANKS, _MAX_LABELLED_BARS = 300, 24


def plot_bytes_per_token(report: VocabularyReport) -> str:
    """Plots bytes per token as bars: a group for each kind of text, a bar for each tokenizer."""
    groups = group_by_kind(report)
    bar_width = 0.8 / len(report.tokenizers)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for i in range(len(report.tokenizers)):
            heights = np.nan_to_num([uses[i].bytes_per_token for _, uses in groups])
            positions = np.arange(len(groups)) + bar_width * (i - (len(report.tokenizers) - 1) / 2)
            bars = axes.bar(positions, heights, 0.92 * bar_width, color=get_colour(i))
            if len(groups) * len(report.tokenizers) <= _MAX_LABELLED_BARS:
                axes.bar_label(
                    bars, [format_number(uses[i].bytes_per_token, ".2f") for _, uses in groups], padding=2
                )
        axes.set_xticks(np.arange(len(groups)), [kind for kind, _ in groups])
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("bytes per token")

    return _render_svg("bytes-per-token", draw)


def plot_token_lengths(report: VocabularyReport) -> str:
    """Plots histograms of token lengths: one panel for the vocabularies, one for the texts."""
    histograms = [compute_length_bins(report.use(name)) for name in report.tokenizers]
    labels = [each.label for each in max(histograms, key=len)]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for panel, title in ((left, "in the vocabulary"), (right, "in the texts")):
            panel.set_title(title)
            panel.set_xlabel("bytes per token")
            panel.set_xticks(np.arange(len(labels)), labels, rotation=60)
        left.set_ylabel("% of ordinary tokens")
        for i, bins in enumerate(histograms):
            for panel, counts in (
                (left, [each.num_in_vocabulary for each in bins]),
                (right, [each.num_in_texts for each in bins]),
            ):
                _draw_histogram(panel, counts, get_colour(i))

    return _render_svg("lengths", draw)


def plot_rank_frequency(report: VocabularyReport) -> str:
    """Plots the number of occurrences of each token by rank, on logarithmic axes."""
    frequencies_by_tokenizer = [report.use(name).frequencies for name in report.tokenizers]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for i, frequencies in enumerate(frequencies_by_tokenizer):
            ranks = _select_ranks(len(frequencies))
            axes.plot(ranks, frequencies[ranks - 1], color=get_colour(i))
        if any(map(len, frequencies_by_tokenizer)):  # Without data, a logarithmic scale would warn.
            axes.set_xscale("log")
            axes.set_yscale("log")
        axes.grid(visible=True, axis="both")
        _format_axis(axes.xaxis)
        _format_axis(axes.yaxis)
        axes.set_xlabel("rank of the token")
        axes.set_ylabel("occurrences in the texts")

    return _render_svg("ranks", draw)


def get_colour(tokenizer: int) -> str:
    """Returns the colour of a tokenizer, by its index in the report."""
    return COLOURS[tokenizer % len(COLOURS)]


def _draw_histogram(panel: Any, counts: Sequence[int], colour: str) -> None:
    """Draws a histogram in percent, with bins of equal width."""
    percent = 100 * np.array(counts) / max(sum(counts), 1)
    edges = np.arange(len(counts) + 1) - 0.5
    panel.stairs(percent, edges, color=colour, linewidth=1.5)
    panel.stairs(percent, edges, color=colour, fill=True, alpha=0.15)


def _select_ranks(count: int) -> NDArray[np.int64]:
    """Returns ranks from 1 to `count`, evenly spaced on a logarithmic axis.

    A line through all ranks would look the same, but make a larger file.
    """
    if not count:
        return np.zeros(0, np.int64)
    return np.unique(np.geomspace(1, count, _MAX_RANKS).round().astype(np.int64))


def _format_axis(axis: Any) -> None:
    """Formats the numbers of a logarithmic axis, which matplotlib would write as powers."""
    ticker = import_optional("matplotlib.ticker", extra="report", purpose="a plot")
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _format_power_of_ten(value)))
    axis.set_minor_formatter(ticker.NullFormatter())


def _format_power_of_ten(value: float) -> str:
    """Formats a power of ten with a unit suffix.

    >>> [_format_power_of_ten(value) for value in (0.1, 100, 10_000, 1e6)]
    ['0.1', '100', '10k', '1M']
    """
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{suffix}"
    return f"{value:g}"


def _render_svg(name: str, draw: Callable[[Any], None]) -> str:
    """Renders a figure as an SVG element. The result is deterministic, and global settings stay unchanged.

    Args:
        name: prefix of the identifiers in the SVG, unique within a page.
        draw: function that draws on a matplotlib figure.
    """
    figures = import_optional("matplotlib.figure", extra="report", purpose="a plot")
    style = import_optional("matplotlib.style", extra="report", purpose="a plot")
    buffer = io.BytesIO()
    with style.context([_STYLE | {"svg.hashsalt": name}], after_reset=True), warnings.catch_warnings():
        # The browser renders the text, with its fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = figures.Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", transparent=True)
    return _embed_svg(ElementTree.fromstring(buffer.getvalue()), name)


def _embed_svg(svg: ElementTree.Element, name: str) -> str:
    """Converts an SVG document to an element of an HTML page.

    Namespaces, metadata and the fixed size are removed, text and lines get the text colour of the page, and
    identifiers get the prefix `name`.
    """
    for element in svg.iter():
        element.tag = _strip_namespace(element.tag)
        attributes = {_strip_namespace(key): value for key, value in element.items()}
        element.attrib.clear()
        element.attrib.update({key: _prefix_attribute(key, value, name) for key, value in attributes.items()})
    for metadata in svg.findall("metadata"):  # It contains the date.
        svg.remove(metadata)
    for size in ("width", "height"):
        del svg.attrib[size]
    svg.set("role", "img")
    return ElementTree.tostring(svg, encoding="unicode")


def _prefix_attribute(key: str, value: str, name: str) -> str:
    """Returns the value of an attribute with the prefix `name` on every identifier, and `_INK` replaced."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return value.replace("#", f"#{name}-", 1)
    return value.replace("url(#", f"url(#{name}-").replace(_INK, "currentColor")


def _strip_namespace(name: str) -> str:
    """Returns a tag or attribute name without its XML namespace, which HTML implies."""
    return name.rpartition("}")[2]
