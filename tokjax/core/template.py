"""What is put around a text, or around a pair of them: the special tokens before, between and behind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tokjax._util.checks import checked_int
from tokjax.core.errors import InvalidArgumentError
from tokjax.core.ragged import Ragged, ranges, splits_from_lengths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


_TYPED = re.compile(r"(?s)(.+):(\d+)")
_TEXTS = {"$A": 0, "$B": 1}
_MARK_OF_TEXT = ("$A", "$B")


class Place(NamedTuple):
    """One place of a template: a text, or a token that is inserted.

    Attributes:
        text: 0 for the first text of a pair, 1 for the second; `None` for an inserted token.
        token: the name of the special token to insert; `None` for a text.
        type_id: the token type id of what stands here.
    """

    text: int | None
    token: str | None
    type_id: int

    def __str__(self) -> str:
        """The place as `make_template` reads it."""
        what = self.token if self.text is None else _MARK_OF_TEXT[self.text]
        return f"{what}:{self.type_id}"


@dataclass(frozen=True)
class Template:
    """What is put around texts. Make one with `make_template`.

    Attributes:
        single: the places of a text alone, in order; one of them is the text.
        pair: those of a pair of texts; empty if pairs can't be encoded, since the template of the file leaves
            a text out or repeats it.
    """

    single: tuple[Place, ...]
    pair: tuple[Place, ...]

    def check_tokens(self, special: Mapping[str, int]) -> None:
        """Raise `InvalidArgumentError` if a token is not among the special ones."""
        for place in (*self.single, *self.pair):
            if place.token is not None and place.token not in special:
                raise InvalidArgumentError(
                    f"the template has {place.token!r}, which is not among the special tokens "
                    f"{list(special)}; texts are written $A and $B"
                )


def make_template(single: str | Sequence[str], pair: str | Sequence[str] | None = None) -> Template:
    """A checked `Template`, in the notation of Hugging Face's `TemplateProcessing`.

    Args:
        single: what a text alone becomes: the names of special tokens with `$A` for the text, parted by
            blanks, or as a list. Each may have a token type id, as in `"[SEP]:1"`; otherwise it is 0.
        pair: what a pair becomes, with `$A` and `$B`. `None` for the single template with `$B:1` behind it,
            and behind that once more what is behind `$A`.

    Raises:
        InvalidArgumentError: a text is missing, or stands twice.

    >>> str(make_template("[CLS] $A [SEP]").pair[-1])
    '[SEP]:1'
    """
    alone = _places("single", single, 1)
    if pair is not None:
        return Template(alone, _places("pair", pair, 2))
    behind = alone[[place.text for place in alone].index(0) + 1 :]
    return Template(alone, (*alone, Place(1, None, 1), *(place._replace(type_id=1) for place in behind)))


def template_to_json(template: Template | None) -> Any:
    """A template as plain JSON values."""
    if template is None:
        return None
    return {name: list(map(str, getattr(template, name))) for name in ("single", "pair")}


def template_from_json(described: Any) -> Template | None:
    """The template that `template_to_json` described."""
    if described is None:
        return None
    template = make_template(described["single"], described["pair"] or None)
    return template if described["pair"] else Template(template.single, ())


def _places(name: str, given: str | Sequence[str], texts: int) -> tuple[Place, ...]:
    parts = given.split() if isinstance(given, str) else list(given)
    places = tuple(map(_place, parts))
    found = sorted(place.text for place in places if place.text is not None)
    if found != list(range(texts)):
        wanted = " and ".join(f"{mark} once" for mark in _MARK_OF_TEXT[:texts])
        raise InvalidArgumentError(f"the {name} template must hold {wanted}; got {given!r}")
    return places


def _place(part: str) -> Place:
    if not isinstance(part, str) or not part:
        raise InvalidArgumentError(f"a template is made of names and $A or $B, and one part is {part!r}")
    typed = _TYPED.fullmatch(part)
    name, type_id = (typed[1], int(typed[2])) if typed else (part, 0)
    text = _TEXTS.get(name)
    return Place(text, name if text is None else None, checked_int("type_id", type_id, least=0))


NOTHING_AROUND = make_template("$A", "$A $B:1")
"""The template of texts as they are."""


Truncation = Literal["longest_first", "only_first", "only_second"]
TRUNCATIONS: tuple[Truncation, ...] = ("longest_first", "only_first", "only_second")
_OF_INSERTED = {"offsets": 0, "special_tokens_mask": 1, "word_ids": -1}


class Part(NamedTuple):
    """For each row of a result, the tokens of a text that it has.

    Attributes:
        rows: the rows of the texts, `int64`, shape `(n,)`.
        starts: the first token of each that is taken, `int64`, shape `(n,)`.
        lengths: how many are taken, `int64`, shape `(n,)`.
    """

    rows: Ints
    starts: Ints
    lengths: Ints


class Filled(NamedTuple):
    """One place of a template, for all rows: a text, or an id.

    Attributes:
        text: 0 for the first text, 1 for the second; `None` for an id.
        id_: the id, where there is no text.
        type_id: the token type id of what stands here.
    """

    text: int | None
    id_: int
    type_id: int


def arranged(texts: Ragged, parts: Sequence[Part], places: Sequence[Filled]) -> Ragged:
    """Rows of tokens put into a template.

    Args:
        texts: the tokens of all texts.
        parts: those of the first texts, and of the second ones.
        places: the template.

    Returns:
        The columns that `texts` has, with `(0, 0)` for the offsets of inserted tokens.
    """
    rows = len(parts[0].rows)
    lengths = np.ones((rows, len(places)), np.int64)
    for column, place in enumerate(places):
        if place.text is not None:
            lengths[:, column] = parts[place.text].lengths
    stops = np.cumsum(lengths.reshape(-1)).reshape(lengths.shape)
    starts = stops - lengths
    total = int(stops[-1, -1]) if rows else 0
    source = np.zeros(total, np.int64)
    inserted, ids = np.zeros(total, bool), np.zeros(total, np.int32)
    of_place = {"token_type_ids": np.zeros(total, np.int32), "sequence_ids": np.full(total, -1, np.int32)}
    for column, place in enumerate(places):
        to = ranges(starts[:, column], lengths[:, column])
        of_place["token_type_ids"][to] = place.type_id
        if place.text is None:
            inserted[to], ids[to] = True, place.id_
        else:
            of_place["sequence_ids"][to] = place.text
            part = parts[place.text]
            row_starts = np.asarray(texts.row_splits)[part.rows]
            source[to] = ranges(row_starts + part.starts, part.lengths)
    columns: dict[str, Any] = {}
    for name, values in texts._asdict().items():
        if name in of_place and values is not None:
            columns[name] = of_place[name]
        elif name != "row_splits" and values is not None:
            columns[name] = values.take(source, axis=0, mode="clip") if len(values) else _zeros(values, total)
            columns[name][inserted] = _OF_INSERTED.get(name, 0)
    columns["ids"][inserted] = ids[inserted]
    return Ragged(row_splits=splits_from_lengths(lengths.sum(axis=1)), **columns)


def kept_lengths(lengths: Sequence[Ints], room: int, truncation: Truncation) -> list[Ints]:
    """How many tokens each text keeps so that both together are at most `room`.

    As with Hugging Face's `tokenizers`: `"longest_first"` leaves the shorter text as it is as long as it has
    less than half, and otherwise gives both the same; where that is odd, one more to the longer of the two.

    Args:
        lengths: of the first texts, and of the second ones if they are pairs, `int64`, shape `(n,)`.
        room: how many tokens fit.
        truncation: which of the two are cut.

    Raises:
        InvalidArgumentError: the text that is not to be cut leaves no room for the other.
    """
    if len(lengths) == 1:
        return [np.minimum(lengths[0], room)]
    first, second = lengths
    if truncation == "longest_first":
        return _both_cut(first, second, room)
    cut, whole = (first, second) if truncation == "only_first" else (second, first)
    check_room(whole, room, truncation)
    left = np.minimum(cut, room - whole)
    return [left, whole] if truncation == "only_first" else [whole, left]


def check_room(whole: Ints, room: int, truncation: Truncation) -> None:
    """Raise `InvalidArgumentError` if texts that are not to be cut are longer than what fits."""
    if (whole > room).any():
        row = int(np.flatnonzero(whole > room)[0])
        raise InvalidArgumentError(
            f"pair {row}: the text that truncation={truncation!r} leaves whole has {whole[row]} tokens, and "
            f"max_length has room for {room}; raise max_length, or let the other text be cut"
        )


def kept_starts(lengths: Ints, kept: Ints, side: Literal["left", "right"]) -> Ints:
    """The first token that each text keeps, if it is cut on one side."""
    return lengths - kept if side == "left" else np.zeros(len(lengths), np.int64)


def windows_of(lengths: Ints, rooms: Ints, stride: int) -> Part:
    """Windows over texts, each beginning before the one before it ends.

    Args:
        lengths: how many tokens each text has, `int64`, shape `(n,)`.
        rooms: how many a window of it has at most, `int64`, shape `(n,)`.
        stride: how many tokens two windows side by side have in common.
    """
    steps = rooms - stride
    counts = 1 + np.maximum(-(-(lengths - rooms) // steps), 0)
    rows = np.repeat(np.arange(len(lengths)), counts)
    starts = ranges(0, counts) * steps[rows]
    return Part(rows, starts, np.minimum(rooms[rows], lengths[rows] - starts))


def _both_cut(first: Ints, second: Ints, room: int) -> list[Ints]:
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.minimum(longer, np.maximum(room - shorter, shorter))
    too_long = shorter + longer > room
    shorter = np.where(too_long, room // 2, shorter)
    longer = np.where(too_long, room - room // 2, longer)
    swapped = first > second
    return [np.where(swapped, longer, shorter), np.where(swapped, shorter, longer)]


def _zeros(values: NDArray[Any], total: int) -> NDArray[Any]:
    return np.zeros((total, *values.shape[1:]), values.dtype)
