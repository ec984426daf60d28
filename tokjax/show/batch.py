"""A batch to look at: which tokens stand where, of which segment, what is learned, and what is wasted."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax import protocol
from tokjax._checks import checked_int
from tokjax._display import visible
from tokjax._namespace import as_integers
from tokjax.batching._inputs import as_ragged, of_the_same_shape
from tokjax.errors import InvalidArgumentError
from tokjax.records import TokenizationResult
from tokjax.show.shown import Piece, ShownBatch, ShownRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokjax._namespace import Array
    from tokjax.vocabulary import Vocabulary

_MOST_PLACES = 512
"""How many places of a row are shown."""
_PADDING = "▯"
_IGNORED, _NOT_IN_LOSS = "⟨⟩", "⟦⟧"
"""Brackets around tokens."""


def show_batch(
    batch: Any,
    tokenizer: Any,
    *,
    labels: Array | None = None,
    loss_mask: Array | None = None,
    ignore_index: int = -100,
    max_rows: int = 8,
    color: bool | None = None,
) -> ShownBatch:
    """A batch for a person: `print` it, `rich.print` it in colour, or let a notebook show it.

    Each token is shown in its readable form, white space as signs; a space parts two tokens. What a token is
    stands in signs too, so that colour only repeats it: `2│` where segment 2 begins, `⟨x⟩` where the label
    is ignored, `⟦x⟧` where the loss mask is 0, `▯×3` for three places of padding.

    Args:
        batch: a `PaddedBatch`, `PackedBlocks`, `CausalLMBatch`, `TokenChunks` or any other with `ids` of
            shape `(rows, length)`, whose `attention_mask`, `segment_ids`, `labels` and `loss_mask` are shown
            where it has them; or a `TokenizationBatch`, a `Ragged`, or `TokenizationResult`s.
        tokenizer: whose ids they are.
        labels: what is predicted at each place, of the shape of the ids; by default the batch's own.
        loss_mask: 0 on tokens that are no targets, of the shape of the ids; by default the batch's own.
        ignore_index: the label that does not count.
        max_rows: how many rows are shown. The numbers below them are of all.
        color: `None` for colour where a terminal or notebook shows it; `True` for the terminal's codes in
            `str()` as well; `False` for none anywhere.

    >>> import tokjax
    >>> tokenizer = tokjax.byte_level()
    >>> rows = tokjax.ragged_from_rows([[110, 111], [32, 110, 111, 10, 33]])
    >>> print(show_batch(tokjax.pack_blocks(rows, block_size=4, pad_id=0), tokenizer))
    PackedBlocks: 2 rows of 4 places
    row  tokens          padding
      0  1│n o 2│␣ n      0 of 4
      1  1│o ↵ ! ▯        1 of 4
    padding 1 of 8 places (12.5%)
    n│ segment n   ▯ padding
    """
    places = _places_of(batch, labels, loss_mask, ignore_index)
    table = protocol.vocabulary_of(tokenizer)
    most = checked_int("max_rows", max_rows, least=0)
    rows = tuple(_row(places, number, table) for number in range(min(most, len(places.splits) - 1)))
    return ShownBatch(_title(batch, places), rows, tuple(_notes(places, most)), color)


class _Places(NamedTuple):
    """All places of a batch, its rows end to end: columns of shape `(n,)`, `None` where it has none.

    Attributes:
        ids: token ids.
        splits: where each row starts, and the last one ends, shape `(rows + 1,)`.
        present: whether it is a token, and no padding.
        segments: its segment.
        labels: its label.
        counted: whether that is not ignored.
        in_loss: whether the loss mask lets it be a target.
    """

    ids: NDArray[np.int32]
    splits: NDArray[np.int64]
    present: NDArray[np.bool_]
    segments: NDArray[Any] | None
    labels: NDArray[Any] | None
    counted: NDArray[np.bool_] | None
    in_loss: NDArray[np.bool_] | None

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.splits) - 1

    def kind(self, place: int) -> tuple[bool, int, bool, bool]:
        """Whether it is a token, its segment, and whether its label and it itself count."""
        if not self.present[place]:
            return False, 0, False, False
        segment = 0 if self.segments is None else int(self.segments[place])
        counted = self.counted is None or bool(self.counted[place])
        return True, segment, counted, self.in_loss is None or bool(self.in_loss[place])


def _places_of(batch: Any, labels: Any, loss_mask: Any, ignore_index: int) -> _Places:
    rectangle = hasattr(batch, "ids") and not hasattr(batch, "row_splits")
    columns = batch if rectangle and not isinstance(batch, TokenizationResult) else as_ragged(batch)
    ids = as_integers("ids", columns.ids, np.int32)
    splits = getattr(columns, "row_splits", None)
    if splits is None:
        if ids.ndim != 2:
            raise InvalidArgumentError(
                f"ids must have shape (rows, length), not {ids.shape}; show one part of the batch at a time"
            )
        splits = np.arange(len(ids) + 1) * ids.shape[1]

    def column(name: str, given: Any = None) -> NDArray[Any] | None:
        values = getattr(columns, name, None) if given is None else given
        if values is None:
            return None
        return of_the_same_shape(name, np.asarray(values), ids).reshape(-1)  # type: ignore[no-any-return]

    mask, segments = column("attention_mask"), column("segment_ids")
    targets, in_loss = column("labels", labels), column("loss_mask", loss_mask)
    told_by = segments if mask is None else mask
    return _Places(
        ids=ids.reshape(-1),
        splits=np.asarray(splits),
        present=np.ones(ids.size, bool) if told_by is None else told_by != 0,
        segments=segments,
        labels=targets,
        counted=None if targets is None else targets != ignore_index,
        in_loss=None if in_loss is None else in_loss != 0,
    )


def _row(places: _Places, number: int, table: Vocabulary) -> ShownRow:
    start, stop = places.splits[number : number + 2].tolist()
    last = min(stop, start + _MOST_PLACES)
    runs = [list(run) for _, run in itertools.groupby(range(start, last), places.kind)]
    pieces = [piece for run in runs for piece in _pieces(places, run, start, table)]
    if last < stop:
        pieces.append(Piece(f"and {_count(stop - last, 'place')} more", None, True, ""))
    padding = int(np.count_nonzero(~places.present[start:stop]))
    return ShownRow(number, tuple(pieces), f"{padding} of {stop - start}")


def _pieces(places: _Places, run: list[int], start: int, table: Vocabulary) -> Iterator[Piece]:
    """The tokens of a run of places of one kind, or one piece for all of its padding."""
    present, segment, counted, in_loss = places.kind(run[0])
    if not present:
        times = f"×{len(run)}" if len(run) > 1 else ""
        yield Piece(f"{_PADDING}{times}", None, True, f"padding, id {places.ids[run[0]]}")
        return
    brackets = [sign for sign, counts in ((_NOT_IN_LOSS, in_loss), (_IGNORED, counted)) if not counts]
    begins = places.segments is not None and (run[0] == start or int(places.segments[run[0] - 1]) != segment)
    for place in run:
        text = _readable(table, int(places.ids[place]))
        if place == run[0]:
            text = (f"{segment}│" if begins else "") + "".join(sign[0] for sign in brackets) + text
        if place == run[-1]:
            text += "".join(sign[1] for sign in reversed(brackets))
        shade = place - start if places.segments is None else segment - 1
        yield Piece(text, shade, bool(brackets), _title_of(places, place, place - start, table))


def _readable(table: Vocabulary, id_: int) -> str:
    token = table.strings[id_] if 0 <= id_ < table.size else None
    return f"<no-token:{id_}>" if token is None else visible(token)


def _title_of(places: _Places, place: int, position: int, table: Vocabulary) -> str:
    title = f"place {position}, id {places.ids[place]}"
    if places.labels is None or places.counted is None:
        return title
    label = int(places.labels[place])
    return f"{title}, label {label}" + (f" ({_readable(table, label)})" if places.counted[place] else "")


def _title(batch: Any, places: _Places) -> str:
    lengths = np.unique(np.diff(places.splits))
    of_length = f" of {_count(int(lengths[0]), 'place')}" if len(lengths) == 1 else ""
    return f"{type(batch).__name__}: {_count(places.num_rows, 'row')}{of_length}"


def _notes(places: _Places, most: int) -> Iterator[str]:
    """What is counted, over all rows, and what the signs mean."""
    if places.num_rows > most:
        yield f"and {_count(places.num_rows - most, 'row')} more"
    tokens = int(np.count_nonzero(places.present))
    padding, total = len(places.ids) - tokens, len(places.ids)
    yield f"padding {padding} of {_count(total, 'place')} ({padding / max(total, 1):.1%})"
    signs = ["n│ segment n"] if places.segments is not None else []
    if places.counted is not None:
        on_tokens = int(np.count_nonzero(places.counted & places.present))
        on_padding = int(np.count_nonzero(places.counted & ~places.present))
        also = f", and at {_count(on_padding, 'place')} of padding" if on_padding else ""
        yield f"labels count at {on_tokens} of {_count(tokens, 'token')}{also}"
        signs.append(f"{_IGNORED[0]}x{_IGNORED[1]} label ignored")
    if places.in_loss is not None:
        in_loss = int(np.count_nonzero(places.in_loss & places.present))
        yield f"the loss mask has {in_loss} of {_count(tokens, 'token')}"
        signs.append(f"{_NOT_IN_LOSS[0]}x{_NOT_IN_LOSS[1]} loss mask 0")
    if padding:
        signs.append(f"{_PADDING} padding")
    if signs:
        yield "   ".join(signs)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
