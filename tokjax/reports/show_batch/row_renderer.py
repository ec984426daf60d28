"""What stands at each place of a batch, as it is shown."""

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
"""Brackets around tokens."""
SEGMENT, TAGGED, PADDING = "│", "→", "▯"
_NUM_SHADES = 5
"""After how many segments, or places, colours begin again."""


class RowRenderer(NamedTuple):
    """Reads the places of a batch.

    Attributes:
        positions: the batch.
        table: what ids mean.
        tagset: what labels mean; `None` where they are ids too.
    """

    positions: BatchPositions
    table: Vocabulary
    tagset: TagSet | None

    def render_row(self, number: int, max_positions: int) -> RenderedRow:
        """A row, and so many of its places."""
        start, stop = self.positions.splits[number : number + 2].tolist()
        last = min(stop, start + max_positions)
        pieces: list[RenderedToken] = []
        index = start
        for kind, alike in itertools.groupby(self.positions.iter_statuses(start, last)):
            length = sum(1 for _ in alike)
            pieces += self._render_run(kind, range(index, index + length), start)
            index += length
        if last < stop:
            pieces.append(RenderedToken(f"and {format_count(stop - last, 'place')} more", None, True, ""))
        padding = int(np.count_nonzero(~self.positions.present[start:stop]))
        known = self.positions.has_padding_info
        return RenderedRow(number, tuple(pieces), f"{padding if known else '?'} of {stop - start}")

    def build_legend(self) -> tuple[RenderedToken, ...]:
        """The classes whose tags there are, each in its colour."""
        positions, tagset = self.positions, self.tagset
        if tagset is None or positions.labels is None or positions.counted is None:
            return ()
        labels = np.unique(positions.labels[positions.counted & positions.present])
        classes = np.unique(tagset.tag_classes[labels[(labels > 0) & (labels < len(tagset))]]).tolist()
        return tuple(
            RenderedToken(make_visible(tagset.labels[class_]), class_, False, "") for class_ in classes
        )

    def _render_run(self, kind: TokenStatus, run: range, start: int) -> Iterator[RenderedToken]:
        """The tokens of a run of places of one kind, or one piece for all of its padding."""
        if not kind.present:
            times = f"×{len(run)}" if len(run) > 1 else ""
            yield RenderedToken(
                f"{PADDING}{times}", PADDING_SHADE, True, f"padding, id {self.positions.ids[run[0]]}"
            )
            return
        signs = ((NOT_IN_LOSS, kind.in_loss), (IGNORED, kind.counted))
        brackets = [sign for sign, counts in signs if not counts]
        segments = self.positions.segments
        begins = segments is not None and (run[0] == start or segments[run[0] - 1] != kind.segment)
        for index in run:
            text = self._format_text(index, kind)
            if index == run[0]:
                text = (f"{kind.segment}{SEGMENT}" if begins else "") + "".join(b[0] for b in brackets) + text
            if index == run[-1]:
                text += "".join(sign[1] for sign in reversed(brackets))
            position = index - start
            yield RenderedToken(
                text,
                self._get_shade(index, position, kind),
                bool(brackets),
                self._format_title(index, position, kind),
            )

    def _format_text(self, index: int, kind: TokenStatus) -> str:
        """A token, with its tag unless that is `O`."""
        text, label = self._get_token_text(int(self.positions.ids[index])), self._get_label(index)
        if self.tagset is None or not kind.counted or not label:
            return text
        return f"{text}{TAGGED}{self._get_label_text(label) or label}"

    def _get_shade(self, index: int, position: int, kind: TokenStatus) -> int | None:
        """The colour of the class, of the segment, or one unlike the next token's."""
        if self.tagset is None:
            return (position if self.positions.segments is None else kind.segment - 1) % _NUM_SHADES
        label = self._get_label(index)
        is_tag = kind.counted and label is not None and 0 < label < len(self.tagset)
        return int(self.tagset.tag_classes[label]) if is_tag else None

    def _format_title(self, index: int, position: int, kind: TokenStatus) -> str:
        title, label = f"place {position}, id {self.positions.ids[index]}", self._get_label(index)
        if label is None:
            return title
        meaning = self._get_label_text(label) if kind.counted else None
        return f"{title}, label {label}" + (f" ({meaning})" if meaning else "")

    def _get_label(self, index: int) -> int | None:
        return None if self.positions.labels is None else int(self.positions.labels[index])

    def _get_label_text(self, label: int) -> str | None:
        """The token or the tag that a label is; `None` if it is no tag."""
        if self.tagset is None:
            return self._get_token_text(label)
        return make_visible(self.tagset.tags[label]) if 0 <= label < len(self.tagset) else None

    def _get_token_text(self, id_: int) -> str:
        token = self.table.strings[id_] if 0 <= id_ < self.table.size else None
        return f"<no-token:{id_}>" if token is None else make_visible(token)


def format_count(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
