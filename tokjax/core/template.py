"""Templates: special tokens around a text or a pair of texts, the assembly of rows from them, truncation.

Encoders first encode all texts without special tokens, as one `Ragged`. Then `apply_template` copies the
tokens of each text, and the special tokens around them, to their positions in the result. The template
`[CLS] $A [SEP] $B:1 [SEP]:1` and one pair of texts with the tokens `10 11` and `12`:

    pieces            [CLS]   $A      [SEP]   $B:1   [SEP]:1
    lengths           1       2       1       1      1           of each piece in each row
    starts            0       1       3       4      5           positions in the result
    ids               2       10 11   3       12     3
    token_type_ids    0       0  0    0       1      1
    sequence_ids      -1      0  0    -1      1      -1
    word_ids          -1      copied  -1      copied -1
    offsets           (0, 0)  copied  (0, 0)  copied (0, 0)

A row need not have all tokens of a text. Truncation and windows compute slices of the tokens of each text
(`TokenSlices`), and `apply_template` copies these to the rows. The template `[CLS] $A [SEP] $B [SEP]` and
`max_length=10` leave a capacity of 7 tokens for the texts. Pairs of texts keep these numbers of tokens:

    lengths   longest_first   only_first   only_second
    2, 9      2, 5            (error)      2, 5
    5, 9      3, 4            (error)      5, 2
    9, 5      4, 3            2, 5         (error)

An error means that the text that is not truncated is longer than the capacity. Windows cover a text that is
longer than the capacity, so that no token is removed. With a capacity of 4 and a stride of 2:

    token index    0   1   2   3   4   5   6
    window 0       |-------------|                   start 0, length 4
    window 1               |-------------|           start 2, length 4
    window 2                       |---------|       start 4, length 3

See `encoding.encode` for windows over pairs of texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tokjax._util.checks import check_int, is_iterable
from tokjax.core.json_records import register_record
from tokjax.core.ragged import Ragged, concatenate_ranges, make_row_splits
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


_TYPED_PIECE = re.compile(r"(?s)(.+):(\d+)")
"""Piece with a token type id, such as `[SEP]:1`."""
_TEXT_NAMES = ("$A", "$B")
"""Name of each text, by index."""
_INSERTED_VALUES = {"offsets": 0, "special_tokens_mask": 1, "word_ids": -1}
"""Value of inserted tokens in each column; 0 in the other columns that `apply_template` gathers."""


Truncation = Literal["longest_first", "only_first", "only_second"]
"""Which text of a pair is truncated."""


class TemplatePiece(NamedTuple):
    """A piece of a template: a text, or a special token that is inserted.

    Attributes:
        text: 0 for the first text of a pair, 1 for the second; `None` for a special token.
        token: name of the special token; `None` for a text.
        type_id: token type id of all tokens of the piece.
    """

    text: int | None
    token: str | None
    type_id: int

    def __str__(self) -> str:
        """Formats the piece in the notation of `make_template`."""
        name = self.token if self.text is None else _TEXT_NAMES[self.text]
        return f"{name}:{self.type_id}"


@dataclass(frozen=True)
class Template:
    """Template of special tokens around texts. Make one with `make_template`.

    Attributes:
        single: pieces for a single text, in order; exactly one of them is the text.
        pair: pieces for a pair of texts. Empty if pairs can't be encoded, because the template of a loaded
            file omits or repeats one of the texts.
    """

    single: tuple[TemplatePiece, ...]
    pair: tuple[TemplatePiece, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the inserted special tokens, in order, with repetitions."""
        return tuple(piece.token for piece in (*self.single, *self.pair) if piece.token is not None)

    @property
    def around_text(self) -> tuple[tuple[TemplatePiece, ...], tuple[TemplatePiece, ...]]:
        """Pieces of `single` before its text, and pieces after it."""
        text = [piece.text for piece in self.single].index(0)
        return self.single[:text], self.single[text + 1 :]

    def check_tokens(self, special: Collection[str], added_tokens: Container[str]) -> None:
        """Raises `InvalidArgumentError` if a token of the template is neither special nor an added token.

        Args:
            special: names of the special tokens.
            added_tokens: names of the added tokens.
        """
        for token in self.tokens:
            if token not in special and token not in added_tokens:
                raise InvalidArgumentError(
                    f"the template has {token!r}, which is not among the special tokens "
                    f"{list(special)}; texts are written $A and $B"
                )


class TokenSlices(NamedTuple):
    """A slice of the tokens of one text for each row of a result.

    Attributes:
        rows: row of each text in the `Ragged` of all texts, `int64`, shape `(n,)`.
        starts: first token of each slice, counted from the start of its text, `int64`, shape `(n,)`.
        lengths: number of tokens of each slice, `int64`, shape `(n,)`.
    """

    rows: Ints
    starts: Ints
    lengths: Ints


def make_template(single: str | Sequence[str], pair: str | Sequence[str] | None = None) -> Template:
    """Makes a template from the notation of Hugging Face's `TemplateProcessing`.

    Args:
        single: pieces for a single text: names of special tokens, and `$A` for the text, as a list or as a
            string in which they are separated by whitespace. A piece can have a token type id, as in
            `"[SEP]:1"`; the default is 0.
        pair: pieces for a pair of texts, with `$A` and `$B`. The default, `None`, is the single template,
            followed by `$B:1` and by a copy of all pieces after `$A`, with type id 1.

    Raises:
        InvalidArgumentError: a text is missing or repeated, or a piece is not valid.

    >>> str(make_template("[CLS] $A [SEP]").pair[-1])
    '[SEP]:1'
    """
    single_pieces = _parse_pieces("single", single, 1)
    if pair is not None:
        return Template(single_pieces, _parse_pieces("pair", pair, 2))
    _, after = Template(single_pieces, ()).around_text
    second_text = (TemplatePiece(1, None, 1), *(piece._replace(type_id=1) for piece in after))
    return Template(single_pieces, (*single_pieces, *second_text))


@register_record(Template)
def restore_template(single: tuple[TemplatePiece, ...], pair: tuple[TemplatePiece, ...]) -> Template:
    """Makes a template from its pieces, and checks it. It has no pair if `pair` is empty."""
    template = make_template(list(map(str, single)), list(map(str, pair)) or None)
    return template if pair else Template(template.single, ())


def list_text_indices(pieces: Sequence[TemplatePiece]) -> list[int]:
    """Returns the sorted indices of the texts in a template: `[0, 1]` if a pair has each text once."""
    return sorted(piece.text for piece in pieces if piece.text is not None)


def apply_template(
    texts: Ragged,
    parts: Sequence[TokenSlices],
    pieces: Sequence[TemplatePiece],
    get_id: Callable[[str], int],
) -> Ragged:
    """Assembles rows of texts and special tokens. See the example at the head of the module.

    The loop is over the few pieces of the template. Each step handles the piece in all rows at once.

    Args:
        texts: tokens of all texts, without special tokens.
        parts: slices of the first texts, and for pairs of the second texts. Each has one slice for each row.
        pieces: the template.
        get_id: function that returns the id of a special token.

    Returns:
        Rows with the same columns as `texts`. Inserted tokens have the offsets `(0, 0)`.
    """
    num_rows = len(parts[0].rows)
    # Lengths of all pieces in all rows, in the order of the result: their running sum is where each piece
    # stops.
    lengths = np.ones((num_rows, len(pieces)), np.int64)
    for column, piece in enumerate(pieces):
        if piece.text is not None:
            lengths[:, column] = parts[piece.text].lengths
    stops = np.cumsum(lengths.reshape(-1)).reshape(lengths.shape)
    starts = stops - lengths
    total = int(stops[-1, -1]) if num_rows else 0
    source = np.zeros(total, np.int64)  # index in `texts` of each token of the result, 0 for inserted tokens
    inserted, ids = np.zeros(total, bool), np.zeros(total, np.int32)
    piece_columns = {
        "token_type_ids": np.zeros(total, np.int32),
        "sequence_ids": np.full(total, -1, np.int32),
    }
    for column, piece in enumerate(pieces):
        target = concatenate_ranges(starts[:, column], lengths[:, column])
        piece_columns["token_type_ids"][target] = piece.type_id
        if piece.token is not None:
            inserted[target], ids[target] = True, get_id(piece.token)
        elif piece.text is not None:
            piece_columns["sequence_ids"][target] = piece.text
            part = parts[piece.text]
            row_starts = np.asarray(texts.row_splits)[part.rows]
            source[target] = concatenate_ranges(row_starts + part.starts, part.lengths)
    # Gather all tokens at once, then overwrite the inserted ones, for which `source` is 0.
    columns: dict[str, Any] = {}
    for name, values in texts._asdict().items():
        if name in piece_columns and values is not None:
            columns[name] = piece_columns[name]
        elif name != "row_splits" and values is not None:
            filled = values if len(values) else np.zeros((1, *values.shape[1:]), values.dtype)
            columns[name] = filled.take(source, axis=0, mode="clip")
            columns[name][inserted] = _INSERTED_VALUES.get(name, 0)
    columns["ids"][inserted] = ids[inserted]
    return Ragged(row_splits=make_row_splits(lengths.sum(axis=1)), **columns)


def compute_text_capacity(max_length: int, pieces: Sequence[TemplatePiece]) -> int:
    """Computes how many tokens of the texts fit in a row beside the special tokens of the template.

    Args:
        max_length: maximum number of tokens of a row.
        pieces: the template.

    Raises:
        InvalidArgumentError: the special tokens alone are longer than `max_length`.
    """
    inserted = sum(piece.text is None for piece in pieces)
    if max_length < inserted:
        raise InvalidArgumentError(
            f"max_length is {max_length}, and the tokenizer's template alone has {inserted} tokens"
        )
    return max_length - inserted


def compute_truncated_lengths(lengths: Sequence[Ints], capacity: int, truncation: Truncation) -> list[Ints]:
    """Computes how many tokens of each text are kept, so that a row has at most `capacity` tokens of texts.

    The lengths equal those of Hugging Face's `tokenizers`. `"longest_first"` truncates only the longer text
    if the shorter one has at most half of the capacity. Otherwise both get half, and the longer one gets the
    extra token of an odd capacity. See the example at the head of the module.

    Args:
        lengths: numbers of tokens of the first texts, and for pairs of the second texts, `int64`, shape
            `(n,)`.
        capacity: maximum number of tokens of texts in a row.
        truncation: which text of a pair is truncated.

    Returns:
        Numbers of kept tokens, arrays like `lengths`.

    Raises:
        InvalidArgumentError: the text that must not be truncated is longer than the capacity.
    """
    if len(lengths) == 1:
        return [np.minimum(lengths[0], capacity)]
    first, second = lengths
    if truncation == "longest_first":
        return _truncate_longest_first(first, second, capacity)
    truncated, untruncated = (first, second) if truncation == "only_first" else (second, first)
    check_capacity(untruncated, capacity, truncation)
    remaining = np.minimum(truncated, capacity - untruncated)
    return [remaining, untruncated] if truncation == "only_first" else [untruncated, remaining]


def compute_truncated_starts(lengths: Ints, truncated_lengths: Ints, side: Literal["left", "right"]) -> Ints:
    """Computes the first kept token of each text.

    Args:
        lengths: number of tokens of each text, `int64`, shape `(n,)`.
        truncated_lengths: number of kept tokens, `int64`, shape `(n,)`.
        side: side of the text from which tokens are removed.
    """
    return lengths - truncated_lengths if side == "left" else np.zeros(len(lengths), np.int64)


def check_capacity(untruncated: Ints, capacity: int, truncation: Truncation) -> None:
    """Raises `InvalidArgumentError` if a text that must not be truncated is longer than the capacity."""
    if (untruncated > capacity).any():
        row = int(np.flatnonzero(untruncated > capacity)[0])
        raise InvalidArgumentError(
            f"pair {row}: the text that truncation={truncation!r} does not truncate has {untruncated[row]} "
            f"tokens, and max_length leaves {capacity}; increase max_length, or truncate the other text"
        )


def compute_windows(lengths: Ints, capacities: Ints, stride: int) -> TokenSlices:
    """Computes overlapping windows over texts. An empty text has one empty window.

    Args:
        lengths: number of tokens of each text, `int64`, shape `(n,)`.
        capacities: maximum number of tokens of a window over each text, `int64`, shape `(n,)`.
        stride: number of tokens that two consecutive windows have in common.

    Returns:
        The slice of each window, in the order of the texts.
    """
    steps = capacities - stride
    # One window, and more for the tokens that do not fit it, rounded up: -(-a // b).
    counts = 1 + np.maximum(-(-(lengths - capacities) // steps), 0)
    rows = np.repeat(np.arange(len(lengths)), counts)
    starts = concatenate_ranges(0, counts) * steps[rows]
    return TokenSlices(rows, starts, np.minimum(capacities[rows], lengths[rows] - starts))


def _truncate_longest_first(first: Ints, second: Ints, capacity: int) -> list[Ints]:
    # The longer text is first truncated to the remaining capacity, but not below the length of the shorter
    # one.
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.minimum(longer, np.maximum(capacity - shorter, shorter))
    too_long = shorter + longer > capacity
    shorter = np.where(too_long, capacity // 2, shorter)
    longer = np.where(too_long, capacity - capacity // 2, longer)
    swapped = first > second
    return [np.where(swapped, longer, shorter), np.where(swapped, shorter, longer)]


def _parse_pieces(name: str, spec: str | Sequence[str], num_texts: int) -> tuple[TemplatePiece, ...]:
    if not is_iterable(spec):
        raise InvalidArgumentError(f"the {name} template must be a str or a list, not {spec!r:.100}")
    parts = spec.split() if isinstance(spec, str) else list(spec)
    pieces = tuple(map(_parse_piece, parts))
    if list_text_indices(pieces) != list(range(num_texts)):
        expected = " and ".join(f"{text_name} once" for text_name in _TEXT_NAMES[:num_texts])
        raise InvalidArgumentError(f"the {name} template must hold {expected}; got {spec!r}")
    return pieces


def _parse_piece(part: str) -> TemplatePiece:
    if not isinstance(part, str) or not part:
        raise InvalidArgumentError(f"a template is made of names and $A or $B, but one piece is {part!r}")
    typed = _TYPED_PIECE.fullmatch(part)
    name, type_id = (typed[1], int(typed[2])) if typed else (part, 0)
    text = _TEXT_NAMES.index(name) if name in _TEXT_NAMES else None
    return TemplatePiece(text, name if text is None else None, check_int("type_id", type_id, minimum=0))


EMPTY_TEMPLATE = make_template("$A", "$A $B:1")
"""Template without special tokens."""
