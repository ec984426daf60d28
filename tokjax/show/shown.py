"""Rows of tokens as text, in colour, and as HTML."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from tokjax._display import SHADES, token_box

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH = 80
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue")
PADDING_SHADE = -1
"""Padding has a colour of its own."""
_PADDING_BACKGROUND = "#e4e4e4"


@dataclass(frozen=True, repr=False)
class ShownBatch:
    """What `show_batch` gives: text, a `rich` renderable, and HTML for a notebook.

    Attributes:
        title: what it is a batch of.
        rows: those that are shown.
        notes: what is counted, and what the signs mean, a line each.
        color: as in `show_batch`.
    """

    title: str
    rows: tuple[ShownRow, ...]
    notes: tuple[str, ...]
    color: bool | None

    def __str__(self) -> str:
        """The text, 80 columns wide."""
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
        """The same in colour, as wide as the terminal."""
        from rich.console import Group  # noqa: PLC0415 (slow to import)
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, header_style="bold" if self.color is not False else "")
        table.add_column("row", justify="right", no_wrap=True)
        table.add_column("tokens", overflow="fold")
        table.add_column("padding", justify="right", no_wrap=True)
        for row in self.rows:
            tokens = Text(" ").join(Text(piece.text, self._style(piece)) for piece in row.pieces)
            table.add_row(str(row.number), tokens, row.waste)
        return Group(Text(self.title), table, *map(Text, self.notes))

    def _style(self, piece: Piece) -> str:
        if self.color is False:
            return ""
        color = "" if piece.shade in {None, PADDING_SHADE} else _COLOURS[piece.shade % len(_COLOURS)]
        return f"{color} dim" if piece.faint else color

    def _repr_html_(self) -> str:
        rows = "".join(map(self._html_of_row, self.rows))
        notes = "".join(f"<div>{escape(note)}</div>" for note in self.notes)
        head = "".join(f'<th style="text-align:left">{name}</th>' for name in ("row", "tokens", "padding"))
        return (
            f'<div style="font-family:monospace"><div>{escape(self.title)}</div>'
            f"<table><tr>{head}</tr>{rows}</table>{notes}</div>"
        )

    def _html_of_row(self, row: ShownRow) -> str:
        boxes = " ".join(
            token_box(piece.text, self._shade(piece), piece.title, faint=piece.faint) for piece in row.pieces
        )
        tokens = f'<td style="text-align:left;white-space:normal;line-height:1.8">{boxes}</td>'
        return f'<tr style="vertical-align:top"><td>{row.number}</td>{tokens}<td>{row.waste}</td></tr>'

    def _shade(self, piece: Piece) -> str | None:
        if self.color is False or piece.shade is None:
            return None
        return _PADDING_BACKGROUND if piece.shade == PADDING_SHADE else SHADES[piece.shade % len(SHADES)]


class ShownRow(NamedTuple):
    """A row of a batch.

    Attributes:
        number: which row, from 0.
        pieces: its tokens, and runs of padding.
        waste: how much of it is padding.
    """

    number: int
    pieces: tuple[Piece, ...]
    waste: str


class Piece(NamedTuple):
    """A token, or a run of padding.

    Attributes:
        text: what is shown.
        shade: which of the colours; `PADDING_SHADE`, or `None` for that of the page.
        faint: whether it is padding, or a token that nothing is learned at.
        title: what a notebook shows on hover.
    """

    text: str
    shade: int | None
    faint: bool
    title: str
