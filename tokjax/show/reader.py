"""What stands at each place of a batch, as it is shown."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._display import visible
from tokjax.show.shown import PADDING_SHADE, Piece, ShownRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokjax.show.places import Kind, Places
    from tokjax.vocabulary import Vocabulary

IGNORED, NOT_IN_LOSS = "⟨⟩", "⟦⟧"
"""Brackets around tokens."""
SEGMENT, PADDING = "│", "▯"
_TURN = 5
"""After how many segments, or places, colours begin again."""


class Reader(NamedTuple):
    """Reads the places of a batch.

    Attributes:
        places: the batch.
        table: what ids mean.
    """

    places: Places
    table: Vocabulary

    def row(self, number: int, most: int) -> ShownRow:
        """A row, and so many of its places."""
        start, stop = self.places.splits[number : number + 2].tolist()
        last = min(stop, start + most)
        pieces: list[Piece] = []
        place = start
        for kind, alike in itertools.groupby(self.places.kinds(start, last)):
            length = sum(1 for _ in alike)
            pieces += self._run(kind, range(place, place + length), start)
            place += length
        if last < stop:
            pieces.append(Piece(f"and {count_of(stop - last, 'place')} more", None, True, ""))
        padding = int(np.count_nonzero(~self.places.present[start:stop]))
        known = self.places.padding_is_known
        return ShownRow(number, tuple(pieces), f"{padding if known else '?'} of {stop - start}")

    def _run(self, kind: Kind, run: range, start: int) -> Iterator[Piece]:
        """The tokens of a run of places of one kind, or one piece for all of its padding."""
        if not kind.present:
            times = f"×{len(run)}" if len(run) > 1 else ""
            yield Piece(f"{PADDING}{times}", PADDING_SHADE, True, f"padding, id {self.places.ids[run[0]]}")
            return
        signs = ((NOT_IN_LOSS, kind.in_loss), (IGNORED, kind.counted))
        brackets = [sign for sign, counts in signs if not counts]
        segments = self.places.segments
        begins = segments is not None and (run[0] == start or segments[run[0] - 1] != kind.segment)
        for place in run:
            text = self._token(int(self.places.ids[place]))
            if place == run[0]:
                text = (f"{kind.segment}{SEGMENT}" if begins else "") + "".join(b[0] for b in brackets) + text
            if place == run[-1]:
                text += "".join(sign[1] for sign in reversed(brackets))
            position = place - start
            yield Piece(text, self._shade(position, kind), bool(brackets), self._title(place, position, kind))

    def _shade(self, position: int, kind: Kind) -> int:
        return (position if self.places.segments is None else kind.segment - 1) % _TURN

    def _title(self, place: int, position: int, kind: Kind) -> str:
        title, label = f"place {position}, id {self.places.ids[place]}", self._label(place)
        if label is None:
            return title
        return f"{title}, label {label}" + (f" ({self._token(label)})" if kind.counted else "")

    def _label(self, place: int) -> int | None:
        return None if self.places.labels is None else int(self.places.labels[place])

    def _token(self, id_: int) -> str:
        token = self.table.strings[id_] if 0 <= id_ < self.table.size else None
        return f"<no-token:{id_}>" if token is None else visible(token)


def count_of(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
