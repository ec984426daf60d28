"""Rendering of the rows of a batch: tokens with the symbols for segments, labels and padding."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.display import make_visible
from tokjax.reports.show_batch.rendering import PADDING_SHADE, RenderedRow, RenderedToken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokjax.align.tagset import TagSet
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.reports.show_batch.positions import BatchPositions, TokenStatus

IGNORED, NOT_IN_LOSS = "⟨⟩", "⟦⟧"
"""Brackets around tokens with an ignored label, and around tokens with a loss mask of 0."""
SEGMENT, TAGGED, PADDING = "│", "→", "▯"
_NUM_SHADES = 5
"""Number of colours that alternate between segments, or between positions without segments."""


class RowRenderer(NamedTuple):
    """Renderer of the rows of one batch.

    Attributes:
        positions: positions of the batch.
        table: vocabulary of the ids.
        tagset: tag set of the labels; `None` if labels are token ids.
    """

    positions: BatchPositions
    table: Vocabulary
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
        token = self.table.strings[id_] if 0 <= id_ < self.table.size else None
        return f"<no-token:{id_}>" if token is None else make_visible(token)


def format_count(number: int, noun: str) -> str:
    """Formats a number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
