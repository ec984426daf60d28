"""Rendering of a batch: rows of tokens with symbols for segments, labels and padding, as text or HTML."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.display import SHADES, make_visible, render_token_box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.text import Text

    from tokjax.align.tagset import TagSet
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.reports.show_batch.columns import BatchPositions, TokenStatus


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


IGNORED, NOT_IN_LOSS = "⟨⟩", "⟦⟧"
"""Brackets around tokens with an ignored label, and around tokens with a loss mask of 0."""
SEGMENT, TAGGED, PADDING = "│", "→", "▯"
_NUM_SHADES = 5
"""Number of colours that alternate between segments, or between positions without segments."""


class RowRenderer(NamedTuple):
    """Renderer of the rows of one batch.

    Attributes:
        positions: positions of the batch.
        vocabulary: vocabulary of the ids; `None` to show numbers.
        tagset: tag set of the labels; `None` if labels are token ids.
    """

    positions: BatchPositions
    vocabulary: Vocabulary | None
    tagset: TagSet | None

    def render_row(self, number: int, max_positions: int) -> RenderedRow:
        """Renders a row, or its first `max_positions` positions."""
        start, stop = self.positions.splits[number : number + 2].tolist()
        shown_stop = min(stop, start + max_positions)
        pieces: list[RenderedToken] = []
        index = start
        for status, run in itertools.groupby(self.positions.iter_statuses(start, shown_stop)):
            length = sum(1 for _ in run)
            pieces += self._render_run(status, range(index, index + length), start)
            index += length
        if shown_stop < stop:
            omitted = format_count(stop - shown_stop, "more position")
            pieces.append(RenderedToken(f"and {omitted}", None, True, ""))
        padding = int(np.count_nonzero(~self.positions.is_token[start:stop]))
        padding_text = str(padding) if self.positions.has_padding_info else "?"
        return RenderedRow(number, tuple(pieces), f"{padding_text} of {stop - start}")

    def build_legend(self) -> tuple[RenderedToken, ...]:
        """Returns the classes of the tags that occur in the batch, each in its colour."""
        positions, tagset = self.positions, self.tagset
        if tagset is None or positions.labels is None or positions.has_label is None:
            return ()
        labels = np.unique(positions.labels[positions.has_label & positions.is_token])
        classes = np.unique(tagset.tag_classes[labels[(labels > 0) & (labels < len(tagset))]]).tolist()
        return tuple(
            RenderedToken(make_visible(tagset.labels[class_]), class_, False, "") for class_ in classes
        )

    def _render_run(self, status: TokenStatus, run: range, start: int) -> Iterator[RenderedToken]:
        """Yields the rendered tokens of a run of positions with equal status, or one piece for padding.

        Args:
            status: status of all positions of the run.
            run: flat indices of the positions.
            start: flat index of the start of the row.
        """
        if not status.is_token:
            times = f"×{len(run)}" if len(run) > 1 else ""
            yield RenderedToken(
                f"{PADDING}{times}", PADDING_SHADE, True, f"padding, id {self.positions.ids[run[0]]}"
            )
            return
        conditions = ((NOT_IN_LOSS, status.in_loss), (IGNORED, status.has_label))
        brackets = [pair for pair, holds in conditions if not holds]
        segments = self.positions.segments
        begins = segments is not None and (run[0] == start or segments[run[0] - 1] != status.segment)
        segment_mark = f"{status.segment}{SEGMENT}" if begins else ""
        for index in run:
            text = self._format_text(index, status)
            if index == run[0]:
                text = segment_mark + "".join(pair[0] for pair in brackets) + text
            if index == run[-1]:
                text += "".join(pair[1] for pair in reversed(brackets))
            position = index - start
            yield RenderedToken(
                text,
                self._get_shade(index, position, status),
                bool(brackets),
                self._format_title(index, position, status),
            )

    def _format_text(self, index: int, status: TokenStatus) -> str:
        """Formats a token, with its tag unless the tag is `O`."""
        text, label = self._get_token_text(int(self.positions.ids[index])), self._get_label(index)
        if self.tagset is None or not status.has_label or not label:
            return text
        return f"{text}{TAGGED}{self._get_label_text(label) or label}"

    def _get_shade(self, index: int, position: int, status: TokenStatus) -> int | None:
        """Returns the colour of the class, or of the segment, or one that differs from the next token's."""
        if self.tagset is None:
            return (position if self.positions.segments is None else status.segment - 1) % _NUM_SHADES
        label = self._get_label(index)
        is_tag = status.has_label and label is not None and 0 < label < len(self.tagset)
        return int(self.tagset.tag_classes[label]) if is_tag else None

    def _format_title(self, index: int, position: int, status: TokenStatus) -> str:
        title, label = f"position {position}, id {self.positions.ids[index]}", self._get_label(index)
        if label is None:
            return title
        meaning = self._get_label_text(label) if status.has_label else None
        return f"{title}, label {label}" + (f" ({meaning})" if meaning else "")

    def _get_label(self, index: int) -> int | None:
        return None if self.positions.labels is None else int(self.positions.labels[index])

    def _get_label_text(self, label: int) -> str | None:
        """Returns the token or the tag of a label; `None` if the tag set has no such tag."""
        if self.tagset is None:
            return self._get_token_text(label)
        return make_visible(self.tagset.tags[label]) if 0 <= label < len(self.tagset) else None

    def _get_token_text(self, id_: int) -> str:
        if self.vocabulary is None:
            return str(id_)
        token = self.vocabulary.strings[id_] if 0 <= id_ < self.vocabulary.size else None
        return f"<no-token:{id_}>" if token is None else make_visible(token)


def format_count(number: int, noun: str) -> str:
    """Formats a number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
