"""The plots of a report, as SVG to be put inside a page."""

from __future__ import annotations

import io
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from tokjax._util.imports import import_optional
from tokjax.reports.metrics import compute_length_bins, format_number, make_printable, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tokjax.reports.curves import SizeCurve
    from tokjax.reports.records import VocabularyReport

COLOURS = ("#3d85c6", "#e0862a", "#3a9e6f", "#c9557f", "#8b70d0", "#9a8f3a", "#2f9fae", "#8a8f98")
"""Of tokenizers in turn: they can be told apart on white and on black."""

_INK = "#010203"  # stands for the colour of the page's text
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
    "svg.fonttype": "none",  # text stays text, in the page's font
    "text.color": _INK,
    "text.parse_math": False,  # names are names
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_WIDTH, _HEIGHT, _PANELS_PER_ROW = 9.0, 3.0, 3
_MAX_RANKS, _MAX_LABELLED_BARS = 300, 24


def plot_bytes_per_token(report: VocabularyReport) -> str:
    """A group of bars for each kind of text, a bar for each tokenizer."""
    groups = sections(report)
    bar = 0.8 / len(report.tokenizers)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for i in range(len(report.tokenizers)):
            heights = np.nan_to_num([uses[i].bytes_per_token for _, uses in groups])
            positions = np.arange(len(groups)) + bar * (i - (len(report.tokenizers) - 1) / 2)
            bars = axes.bar(positions, heights, 0.92 * bar, color=get_colour(i))
            if len(groups) * len(report.tokenizers) <= _MAX_LABELLED_BARS:
                axes.bar_label(
                    bars, [format_number(uses[i].bytes_per_token, ".2f") for _, uses in groups], padding=2
                )
        axes.set_xticks(np.arange(len(groups)), [kind for kind, _ in groups])
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("bytes per token")

    return _render_svg("bytes-per-token", draw)


def plot_size_curves(curves: Sequence[SizeCurve], tokenizers: Sequence[str]) -> str:
    """A panel for each kind of text: bytes a token by how many ids are kept.

    Args:
        curves: what to draw.
        tokenizers: the names of all tokenizers, in the order of their colours.
    """
    kinds = list(dict.fromkeys(curve.kind for curve in curves))

    def draw(figure: Any) -> None:
        for index, (panel, kind) in enumerate(zip(_make_panels(figure, len(kinds)), kinds, strict=True)):
            for curve in curves:
                if curve.kind == kind:
                    colour = get_colour(tokenizers.index(curve.tokenizer))
                    panel.plot(curve.sizes, curve.bytes_per_token, color=colour, marker="o", markersize=3)
            panel.set_xscale("log", base=2)
            _format_axis(panel.xaxis, partial(format_number, form=".0f"))
            panel.set_title(make_printable(kind))
            panel.set_xlabel("ids")
            panel.set_ylabel("bytes per token" if index % _PANELS_PER_ROW == 0 else "")

    return _render_svg("sizes", draw, rows=-(-len(kinds) // _PANELS_PER_ROW))


def plot_token_lengths(report: VocabularyReport) -> str:
    """Two panels: the lengths of the vocabularies' tokens, and of the texts'."""
    all_values = [compute_length_bins(report.use(name)) for name in report.tokenizers]
    labels = [each.label for each in max(all_values, key=len)]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for panel, title in ((left, "of the vocabulary"), (right, "of the texts")):
            panel.set_title(title)
            panel.set_xlabel("bytes of a token")
            panel.set_xticks(np.arange(len(labels)), labels, rotation=60)
        left.set_ylabel("% of ordinary tokens")
        for i, bins in enumerate(all_values):
            for panel, counts in (
                (left, [each.num_in_vocabulary for each in bins]),
                (right, [each.num_in_texts for each in bins]),
            ):
                _draw_histogram(panel, counts, get_colour(i))

    return _render_svg("lengths", draw)


def plot_rank_frequency(report: VocabularyReport) -> str:
    """How often the most frequent token stands, the second, and so on, on logarithmic axes."""
    all_values = [report.use(name).frequencies for name in report.tokenizers]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for i, frequencies in enumerate(all_values):
            ranks = _select_ranks(len(frequencies))
            axes.plot(ranks, frequencies[ranks - 1], color=get_colour(i))
        if any(map(len, all_values)):  # (nothing has no logarithm)
            axes.set_xscale("log")
            axes.set_yscale("log")
        axes.grid(visible=True, axis="both")
        _format_axis(axes.xaxis, _format_power_of_ten)
        _format_axis(axes.yaxis, _format_power_of_ten)
        axes.set_xlabel("rank of a token")
        axes.set_ylabel("times it stands in the texts")

    return _render_svg("ranks", draw)


def plot_document_lengths(bins: Sequence[int], counts: Sequence[int], unit: str) -> str:
    """A histogram of lengths, on a logarithmic axis."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        edges = np.maximum(np.array(bins, float), 0.5)  # (nothing has no logarithm)
        axes.stairs(counts, edges, color=COLOURS[0], linewidth=1.5)
        axes.stairs(counts, edges, color=COLOURS[0], fill=True, alpha=0.15)
        axes.set_xscale("log", base=2)
        _format_axis(axes.xaxis, partial(format_number, form=".0f"))
        axes.set_xlabel(f"{unit} of a document")
        axes.set_ylabel("documents")

    return _render_svg("dataset-lengths", draw)


def plot_padding(shares: Sequence[tuple[str, float]]) -> str:
    """A bar for each strategy: how much of its batches is padding."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        positions = np.arange(len(shares))[::-1]
        bars = axes.barh(positions, [100 * share for _, share in shares], 0.7, color=COLOURS[1])
        axes.bar_label(bars, [f"{share:.1%}" for _, share in shares], padding=3)
        axes.set_yticks(positions, [strategy for strategy, _ in shares])
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of all places")

    return _render_svg("padding", draw)


def get_colour(tokenizer: int) -> str:
    """The colour of a tokenizer, by its place among them."""
    return COLOURS[tokenizer % len(COLOURS)]


def _make_panels(figure: Any, count: int) -> list[Any]:
    """Axes side by side, in rows of a few."""
    columns = min(count, _PANELS_PER_ROW)
    rows = -(-count // columns)
    panels: list[Any] = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel().tolist()
    for panel in panels[count:]:
        panel.remove()
    return panels[:count]


def _draw_histogram(panel: Any, counts: Sequence[int], colour: str) -> None:
    """A histogram in percent, one bin a place."""
    percent = 100 * np.array(counts) / max(sum(counts), 1)
    edges = np.arange(len(counts) + 1) - 0.5
    panel.stairs(percent, edges, color=colour, linewidth=1.5)
    panel.stairs(percent, edges, color=colour, fill=True, alpha=0.15)


def _select_ranks(count: int) -> NDArray[np.int64]:
    """Ranks from 1 to `count`, evenly spaced on a logarithmic axis: a line of all would look the same."""
    if not count:
        return np.zeros(0, np.int64)
    return np.unique(np.geomspace(1, count, _MAX_RANKS).round().astype(np.int64))


def _format_axis(axis: Any, written: Callable[[float], str]) -> None:
    """Numbers on a logarithmic axis as people write them."""
    ticker = import_optional("matplotlib.ticker", extra="report", purpose="a plot")
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: written(value)))
    axis.set_minor_formatter(ticker.NullFormatter())


def _format_power_of_ten(value: float) -> str:
    """A power of ten in a few characters.

    >>> _format_power_of_ten(0.1), _format_power_of_ten(100), _format_power_of_ten(10_000), _format_power_of_ten(1e6)
    ('0.1', '100', '10k', '1M')
    """
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{suffix}"
    return f"{value:g}"


def _render_svg(name: str, draw: Callable[[Any], None], rows: int = 1) -> str:
    """What `draw` puts on a figure, the same each time, without any state that others see."""
    figures = import_optional("matplotlib.figure", extra="report", purpose="a plot")
    style = import_optional("matplotlib.style", extra="report", purpose="a plot")
    drawn = io.BytesIO()
    with style.context([_STYLE | {"svg.hashsalt": name}], after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the page's font draws it
        figure = figures.Figure(figsize=(_WIDTH, _HEIGHT * rows), layout="constrained")
        draw(figure)
        figure.savefig(drawn, format="svg", transparent=True)
    return _embed_svg(ElementTree.fromstring(drawn.getvalue()), name)


def _embed_svg(svg: ElementTree.Element, name: str) -> str:
    """An image as a part of a page: as wide as it may be, in the page's ink, with identifiers of its own."""
    for element in svg.iter():
        element.tag = _strip_namespace(element.tag)
        attributes = {_strip_namespace(key): value for key, value in element.items()}
        element.attrib.clear()
        element.attrib.update({key: _prefix_attribute(key, value, name) for key, value in attributes.items()})
    for about in svg.findall("metadata"):  # (the date, among others)
        svg.remove(about)
    for size in ("width", "height"):
        del svg.attrib[size]
    svg.set("role", "img")
    return ElementTree.tostring(svg, encoding="unicode")


def _prefix_attribute(key: str, value: str, name: str) -> str:
    """An attribute's value, with `name` before every identifier."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return value.replace("#", f"#{name}-", 1)
    return value.replace("url(#", f"url(#{name}-").replace(_INK, "currentColor")


def _strip_namespace(name: str) -> str:
    """A name without its namespace, which a page knows."""
    return name.rpartition("}")[2]
