"""Rendered batches: rows of tokens as plain text, coloured text and HTML."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from tokjax._util.display import SHADES, render_token_box

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_WIDTH = 80
_LEGEND = "classes: "
PADDING_SHADE = -1
"""Shade of padding, which has a separate colour in HTML."""
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
_BRIGHT = tuple(f"bright_{colour}" for colour in _COLOURS)
_STYLES = (*_COLOURS, *_BRIGHT, *(f"{colour} underline" for colour in _COLOURS + _BRIGHT))
"""Colours in a terminal, as styles of `rich`."""
_SHADES = (
    *SHADES,
    *("#ffd3cc", "#c3f0ec", "#e6f7a8", "#ffdcb0", "#ffc6ea", "#c9d0ff", "#ffb9ae"),
    *("#9fd0f7", "#aee39b", "#f7d582", "#e8a5bf", "#bfa8ea", "#f79c8e"),
    *("#86dcd4", "#c9e45f", "#ffb766", "#f58fd2", "#97a5fa", "#e88777"),
)
"""Background colours in HTML, as many as there are colours in a terminal."""
_PADDING_BACKGROUND = "#e4e4e4"


@dataclass(frozen=True, repr=False)
class RenderedBatch:
    """Result of `show_batch`: plain text with `str`, a `rich` renderable, and HTML for notebooks.

    Attributes:
        title: type of the batch and its number of rows and positions.
        rows: the rendered rows.
        notes: lines below the rows: numbers of tokens and labels, and the meaning of the symbols.
        legend: classes of tags, each in its colour.
        color: colour setting, as in `show_batch`.
    """

    title: str
    rows: tuple[RenderedRow, ...]
    notes: tuple[str, ...]
    legend: tuple[RenderedToken, ...]
    color: bool | None

    def __str__(self) -> str:
        """Returns the batch as text, 80 columns wide."""
        from rich.console import Console  # noqa: PLC0415 (slow to import)

        console = Console(
            file=io.StringIO(),
            width=_WIDTH,
            force_terminal=bool(self.color),
            force_jupyter=False,
            color_system="standard" if self.color else None,
            no_color=not self.color,
            legacy_windows=False,
        )
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    __repr__ = __str__

    def __rich__(self) -> RenderableType:
        """Returns a renderable in colour, as wide as the terminal."""
        from rich.console import Group  # noqa: PLC0415 (slow to import)
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, header_style="bold" if self.color is not False else "")
        table.add_column("row", justify="right", no_wrap=True)
        table.add_column("tokens", overflow="fold")
        table.add_column("padding", justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(str(row.number), self._make_text(row.pieces), row.padding_text)
        legend = [Text(_LEGEND).append_text(self._make_text(self.legend))] if self.legend else []
        return Group(Text(self.title), table, *map(Text, self.notes), *legend)

    def _make_text(self, pieces: tuple[RenderedToken, ...]) -> Text:
        from rich.text import Text  # noqa: PLC0415 (slow to import)

        # One `Text` per run of equal style, because rich is slow with many small ones.
        runs = itertools.groupby(pieces, self._get_style)
        return Text(" ").join(Text(" ".join(piece.text for piece in run), style) for style, run in runs)

    def _get_style(self, piece: RenderedToken) -> str:
        if self.color is False:
            return ""
        style = "" if piece.shade in {None, PADDING_SHADE} else _STYLES[piece.shade % len(_STYLES)]
        return f"{style} dim" if piece.faint else style

    def _repr_html_(self) -> str:
        rows = "".join(map(self._render_row_html, self.rows))
        notes = "".join(f"<div>{escape(note)}</div>" for note in self.notes)
        if self.legend:
            notes += f"<div>{_LEGEND}{self._render_boxes(self.legend)}</div>"
        head = "".join(f'<th style="text-align:left">{name}</th>' for name in ("row", "tokens", "padding"))
        return (
            f'<div style="font-family:monospace"><div>{escape(self.title)}</div>'
            f"<table><tr>{head}</tr>{rows}</table>{notes}</div>"
        )

    def _render_row_html(self, row: RenderedRow) -> str:
        boxes = self._render_boxes(row.pieces)
        tokens = f'<td style="text-align:left;white-space:normal;line-height:1.8">{boxes}</td>'
        return f'<tr style="vertical-align:top"><td>{row.number}</td>{tokens}<td>{row.padding_text}</td></tr>'

    def _render_boxes(self, pieces: tuple[RenderedToken, ...]) -> str:
        return " ".join(
            render_token_box(piece.text, self._get_shade(piece), piece.title, faint=piece.faint)
            for piece in pieces
        )

    def _get_shade(self, piece: RenderedToken) -> str | None:
        if self.color is False or piece.shade is None:
            return None
        return _PADDING_BACKGROUND if piece.shade == PADDING_SHADE else _SHADES[piece.shade % len(_SHADES)]


class RenderedRow(NamedTuple):
    """Rendered row of a batch.

    Attributes:
        number: index of the row, from 0.
        pieces: tokens and runs of padding.
        padding_text: number of padding positions of the row, such as `3 of 7`.
    """

    number: int
    pieces: tuple[RenderedToken, ...]
    padding_text: str


class RenderedToken(NamedTuple):
    """Rendered token or run of padding.

    Attributes:
        text: text to show.
        shade: index of the colour, `PADDING_SHADE`, or `None` for the colour of the page.
        faint: whether it is padding, or a token that does not contribute to the loss.
        title: text that a notebook shows on hover.
    """

    text: str
    shade: int | None
    faint: bool
    title: str
