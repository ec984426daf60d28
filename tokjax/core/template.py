"""What is put around a text, or around a pair of them: the special tokens before, between and behind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core.ragged import Ragged, concatenate_ranges, make_row_splits
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


_TYPED_PIECE = re.compile(r"(?s)(.+):(\d+)")
_TEXT_INDICES = {"$A": 0, "$B": 1}
_TEXT_MARKS = ("$A", "$B")


class TemplatePiece(NamedTuple):
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
        what = self.token if self.text is None else _TEXT_MARKS[self.text]
        return f"{what}:{self.type_id}"


@dataclass(frozen=True)
class Template:
    """What is put around texts. Make one with `make_template`.

    Attributes:
        single: the places of a text alone, in order; one of them is the text.
        pair: those of a pair of texts; empty if pairs can't be encoded, since the template of the file leaves
            a text out or repeats it.
    """

    single: tuple[TemplatePiece, ...]
    pair: tuple[TemplatePiece, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The names of the special tokens that are inserted, in order, repeated where the template does."""
        return tuple(piece.token for piece in (*self.single, *self.pair) if piece.token is not None)

    @property
    def around_text(self) -> tuple[tuple[TemplatePiece, ...], tuple[TemplatePiece, ...]]:
        """The places of `single` before its text, and those after it."""
        return _around_text(self.single)

    def check_tokens(self, special: Mapping[str, int]) -> None:
        """Raise `InvalidArgumentError` if a token is not among the special ones."""
        for token in self.tokens:
            if token not in special:
                raise InvalidArgumentError(
                    f"the template has {token!r}, which is not among the special tokens "
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
    alone = _parse_pieces("single", single, 1)
    if pair is not None:
        return Template(alone, _parse_pieces("pair", pair, 2))
    _, after = _around_text(alone)
    return Template(
        alone, (*alone, TemplatePiece(1, None, 1), *(piece._replace(type_id=1) for piece in after))
    )


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


def texts_in(pieces: Sequence[TemplatePiece]) -> list[int]:
    """Returns which texts a template has, sorted: `[0, 1]` where a pair has each of its texts once."""
    return sorted(piece.text for piece in pieces if piece.text is not None)


def _around_text(
    single: tuple[TemplatePiece, ...],
) -> tuple[tuple[TemplatePiece, ...], tuple[TemplatePiece, ...]]:
    text = [piece.text for piece in single].index(0)
    return single[:text], single[text + 1 :]


def _parse_pieces(name: str, spec: str | Sequence[str], texts: int) -> tuple[TemplatePiece, ...]:
    parts = spec.split() if isinstance(spec, str) else list(spec)
    pieces = tuple(map(_parse_piece, parts))
    if texts_in(pieces) != list(range(texts)):
        expected = " and ".join(f"{mark} once" for mark in _TEXT_MARKS[:texts])
        raise InvalidArgumentError(f"the {name} template must hold {expected}; got {spec!r}")
    return pieces


def _parse_piece(part: str) -> TemplatePiece:
    if not isinstance(part, str) or not part:
        raise InvalidArgumentError(f"a template is made of names and $A or $B, and one part is {part!r}")
    typed = _TYPED_PIECE.fullmatch(part)
    name, type_id = (typed[1], int(typed[2])) if typed else (part, 0)
    text = _TEXT_INDICES.get(name)
    return TemplatePiece(text, name if text is None else None, check_int("type_id", type_id, minimum=0))


EMPTY_TEMPLATE = make_template("$A", "$A $B:1")
"""The template of texts as they are."""


Truncation = Literal["longest_first", "only_first", "only_second"]
TRUNCATIONS: tuple[Truncation, ...] = ("longest_first", "only_first", "only_second")
_INSERTED_VALUES = {"offsets": 0, "special_tokens_mask": 1, "word_ids": -1}


class TokenSlices(NamedTuple):
    """For each row of a result, the tokens of a text that it has.

    Attributes:
        rows: the rows of the texts, `int64`, shape `(n,)`.
        starts: the first token of each that is taken, `int64`, shape `(n,)`.
        lengths: how many are taken, `int64`, shape `(n,)`.
    """

    rows: Ints
    starts: Ints
    lengths: Ints


class ResolvedPiece(NamedTuple):
    """One place of a template, for all rows: a text, or an id.

    Attributes:
        text: 0 for the first text, 1 for the second; `None` for an id.
        id_: the id, where there is no text.
        type_id: the token type id of what stands here.
    """

    text: int | None
    id_: int
    type_id: int


def resolve_pieces(
    pieces: Sequence[TemplatePiece], special: Mapping[str, int], *, add_special_tokens: bool = True
) -> list[ResolvedPiece]:
    """Returns the places of a template with the ids of its tokens.

    Args:
        pieces: those of a text, or of a pair.
        special: special token to id.
        add_special_tokens: `False` leaves only the texts.
    """
    return [
        ResolvedPiece(piece.text, 0 if piece.token is None else special[piece.token], piece.type_id)
        for piece in pieces
        if add_special_tokens or piece.text is not None
    ]


def compute_text_capacity(max_length: int, pieces: Sequence[ResolvedPiece]) -> int:
    """How many tokens of a length a template leaves to texts; an error if it is longer by itself."""
    inserted = sum(piece.text is None for piece in pieces)
    if max_length < inserted:
        raise InvalidArgumentError(
            f"max_length is {max_length}, and the tokenizer's template alone has {inserted} tokens"
        )
    return max_length - inserted


def apply_template(texts: Ragged, parts: Sequence[TokenSlices], pieces: Sequence[ResolvedPiece]) -> Ragged:
    """Rows of tokens put into a template.

    Args:
        texts: the tokens of all texts.
        parts: those of the first texts, and of the second ones.
        pieces: the template.

    Returns:
        The columns that `texts` has, with `(0, 0)` for the offsets of inserted tokens.
    """
    rows = len(parts[0].rows)
    lengths = np.ones((rows, len(pieces)), np.int64)
    for column, piece in enumerate(pieces):
        if piece.text is not None:
            lengths[:, column] = parts[piece.text].lengths
    stops = np.cumsum(lengths.reshape(-1)).reshape(lengths.shape)
    starts = stops - lengths
    total = int(stops[-1, -1]) if rows else 0
    source = np.zeros(total, np.int64)
    inserted, ids = np.zeros(total, bool), np.zeros(total, np.int32)
    piece_columns = {
        "token_type_ids": np.zeros(total, np.int32),
        "sequence_ids": np.full(total, -1, np.int32),
    }
    for column, piece in enumerate(pieces):
        to = concatenate_ranges(starts[:, column], lengths[:, column])
        piece_columns["token_type_ids"][to] = piece.type_id
        if piece.text is None:
            inserted[to], ids[to] = True, piece.id_
        else:
            piece_columns["sequence_ids"][to] = piece.text
            part = parts[piece.text]
            row_starts = np.asarray(texts.row_splits)[part.rows]
            source[to] = concatenate_ranges(row_starts + part.starts, part.lengths)
    columns: dict[str, Any] = {}
    for name, values in texts._asdict().items():
        if name in piece_columns and values is not None:
            columns[name] = piece_columns[name]
        elif name != "row_splits" and values is not None:
            columns[name] = (
                values.take(source, axis=0, mode="clip") if len(values) else _make_zeros(values, total)
            )
            columns[name][inserted] = _INSERTED_VALUES.get(name, 0)
    columns["ids"][inserted] = ids[inserted]
    return Ragged(row_splits=make_row_splits(lengths.sum(axis=1)), **columns)


def compute_truncated_lengths(lengths: Sequence[Ints], capacity: int, truncation: Truncation) -> list[Ints]:
    """How many tokens each text keeps so that both together are at most `capacity`.

    As with Hugging Face's `tokenizers`: `"longest_first"` leaves the shorter text as it is as long as it has
    less than half, and otherwise gives both the same; where that is odd, one more to the longer of the two.

    Args:
        lengths: of the first texts, and of the second ones if they are pairs, `int64`, shape `(n,)`.
        capacity: how many tokens fit.
        truncation: which of the two are cut.

    Raises:
        InvalidArgumentError: the text that is not to be cut leaves no room for the other.
    """
    if len(lengths) == 1:
        return [np.minimum(lengths[0], capacity)]
    first, second = lengths
    if truncation == "longest_first":
        return _truncate_longest_first(first, second, capacity)
    truncated, untruncated = (first, second) if truncation == "only_first" else (second, first)
    check_capacity(untruncated, capacity, truncation)
    left = np.minimum(truncated, capacity - untruncated)
    return [left, untruncated] if truncation == "only_first" else [untruncated, left]


def check_capacity(untruncated: Ints, capacity: int, truncation: Truncation) -> None:
    """Raise `InvalidArgumentError` if texts that are not to be cut are longer than what fits."""
    if (untruncated > capacity).any():
        row = int(np.flatnonzero(untruncated > capacity)[0])
        raise InvalidArgumentError(
            f"pair {row}: the text that truncation={truncation!r} leaves whole has {untruncated[row]} tokens, and "
            f"max_length has room for {capacity}; raise max_length, or let the other text be cut"
        )


def compute_truncated_starts(lengths: Ints, truncated_lengths: Ints, side: Literal["left", "right"]) -> Ints:
    """The first token that each text keeps, if it is cut on one side."""
    return lengths - truncated_lengths if side == "left" else np.zeros(len(lengths), np.int64)


def compute_windows(lengths: Ints, capacities: Ints, stride: int) -> TokenSlices:
    """Windows over texts, each beginning before the one before it ends.

    Args:
        lengths: how many tokens each text has, `int64`, shape `(n,)`.
        capacities: how many a window of it has at most, `int64`, shape `(n,)`.
        stride: how many tokens two windows side by side have in common.
    """
    steps = capacities - stride
    counts = 1 + np.maximum(-(-(lengths - capacities) // steps), 0)
    rows = np.repeat(np.arange(len(lengths)), counts)
    starts = concatenate_ranges(0, counts) * steps[rows]
    return TokenSlices(rows, starts, np.minimum(capacities[rows], lengths[rows] - starts))


def _truncate_longest_first(first: Ints, second: Ints, capacity: int) -> list[Ints]:
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.minimum(longer, np.maximum(capacity - shorter, shorter))
    too_long = shorter + longer > capacity
    shorter = np.where(too_long, capacity // 2, shorter)
    longer = np.where(too_long, capacity - capacity // 2, longer)
    swapped = first > second
    return [np.where(swapped, longer, shorter), np.where(swapped, shorter, longer)]


def _make_zeros(values: NDArray[Any], total: int) -> NDArray[Any]:
    return np.zeros((total, *values.shape[1:]), values.dtype)
