"""What stands at each place of a batch, as it is shown."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.display import visible
from tokjax.reports.show_batch.rendering import PADDING_SHADE, Piece, ShownRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokjax.batching.alignment.tagset import TagSet
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.reports.show_batch.positions import Kind, Places

IGNORED, NOT_IN_LOSS = "⟨⟩", "⟦⟧"
"""Brackets around tokens."""
SEGMENT, TAGGED, PADDING = "│", "→", "▯"
_TURN = 5
"""After how many segments, or places, colours begin again."""


class Reader(NamedTuple):
    """Reads the places of a batch.

    Attributes:
        places: the batch.
        table: what ids mean.
        tagset: what labels mean; `None` where they are ids too.
    """

    places: Places
    table: Vocabulary
    tagset: TagSet | None

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

    def legend(self) -> tuple[Piece, ...]:
        """The classes whose tags there are, each in its colour."""
        places, tagset = self.places, self.tagset
        if tagset is None or places.labels is None or places.counted is None:
            return ()
        labels = np.unique(places.labels[places.counted & places.present])
        classes = np.unique(tagset.class_of_tag[labels[(labels > 0) & (labels < len(tagset))]]).tolist()
        return tuple(Piece(visible(tagset.labels[class_]), class_, False, "") for class_ in classes)

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
            text = self._text(place, kind)
            if place == run[0]:
                text = (f"{kind.segment}{SEGMENT}" if begins else "") + "".join(b[0] for b in brackets) + text
            if place == run[-1]:
                text += "".join(sign[1] for sign in reversed(brackets))
            position = place - start
            yield Piece(
                text, self._shade(place, position, kind), bool(brackets), self._title(place, position, kind)
            )

    def _text(self, place: int, kind: Kind) -> str:
        """A token, with its tag unless that is `O`."""
        text, label = self._token(int(self.places.ids[place])), self._label(place)
        if self.tagset is None or not kind.counted or not label:
            return text
        return f"{text}{TAGGED}{self._meaning(label) or label}"

    def _shade(self, place: int, position: int, kind: Kind) -> int | None:
        """The colour of the class, of the segment, or one unlike the next token's."""
        if self.tagset is None:
            return (position if self.places.segments is None else kind.segment - 1) % _TURN
        label = self._label(place)
        is_tag = kind.counted and label is not None and 0 < label < len(self.tagset)
        return int(self.tagset.class_of_tag[label]) if is_tag else None

    def _title(self, place: int, position: int, kind: Kind) -> str:
        title, label = f"place {position}, id {self.places.ids[place]}", self._label(place)
        if label is None:
            return title
        meaning = self._meaning(label) if kind.counted else None
        return f"{title}, label {label}" + (f" ({meaning})" if meaning else "")

    def _label(self, place: int) -> int | None:
        return None if self.places.labels is None else int(self.places.labels[place])

    def _meaning(self, label: int) -> str | None:
        """The token or the tag that a label is; `None` if it is no tag."""
        if self.tagset is None:
            return self._token(label)
        return visible(self.tagset.tags[label]) if 0 <= label < len(self.tagset) else None

    def _token(self, id_: int) -> str:
        token = self.table.strings[id_] if 0 <= id_ < self.table.size else None
        return f"<no-token:{id_}>" if token is None else visible(token)


def count_of(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
