"""Tokens without the white space at their edges."""

from __future__ import annotations

import warnings
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import reject_one_text
from tokjax.align.flat_tokens import BLOCK, make_flat_tokens
from tokjax.align.spans import check_rows, find_span_row, format_span
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import to_utf8
from tokjax.errors import OffsetsContractError
from tokjax.offsets import is_valid_string_boundary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.align.flat_tokens import FlatTokens
    from tokjax.align.spans import SpanColumns
    from tokjax.core.utf8 import Text

_IS_ASCII_WHITESPACE = bytes(chr(code).isspace() and code < 0x80 for code in range(256))
_WIDE_SPACES = [chr(code).encode() for code in range(0x80, 0x3001) if chr(code).isspace()]
_WIDE_TAIL_BYTES = {
    lead: np.array([int.from_bytes(encoded[1:], "big") for encoded in group], np.uint16)
    for lead, group in groupby(_WIDE_SPACES, itemgetter(0))
}
"""White space beyond ASCII: its first byte, and what the others may be."""


def trim_offsets(offsets: Any, texts: Sequence[Text]) -> NDArray[np.int64]:
    """The spans of tokens without the white space at their edges.

    Tokens of byte-level BPE begin with the blank before their word, so that none of them lies inside the
    span of that word. White space is what `str.isspace` says.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, or an array of
            shape `(n, 2)` (one text) or `(batch, length, 2)`.
        texts: what the offsets are places in; a list of one for one text.

    Returns:
        `int64`, shape `(n, 2)` with all tokens of all texts, or `(batch, length, 2)`. A token of nothing but
        white space becomes the empty span at its end; `(0, 0)` stays.

    Raises:
        OffsetsContractError: a token is no place in its text.

    >>> trim_offsets(np.array([[1, 4], [4, 9]]), ["New York"]).tolist()
    [[1, 4], [5, 9]]
    """
    tokens = make_flat_tokens(offsets)
    rows = np.repeat(np.arange(tokens.num_rows), np.diff(tokens.row_splits))
    return trim_token_spans(tokens, mark_whitespace(tokens, join_texts(texts)), slice(None), rows).reshape(
        tokens.shape
    )


class JoinedTexts(NamedTuple):
    """Texts as the bytes of one, with a NUL after each (so that no character goes on in the next text).

    Attributes:
        data: their UTF-8.
        is_whitespace: which bytes are of white space, `bool`, shape `(bytes,)`.
        num_bytes: how many bytes each text has, `int64`, shape `(texts,)`.
        shift: what makes a byte of a text, from 1, one of all, from 0, `int64`, shape `(texts,)`.
    """

    data: bytes
    is_whitespace: NDArray[np.bool_]
    num_bytes: NDArray[np.int64]
    shift: NDArray[np.int64]


def join_texts(texts: Sequence[Text]) -> JoinedTexts:
    """Joins texts, and finds their white space.

    Raises:
        InvalidArgumentError: it is one text instead of a sequence of texts.
    """
    reject_one_text(texts)
    encoded = [to_utf8(text) for text in texts]
    num_bytes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    joined = b"\0".join([*encoded, b""])
    return JoinedTexts(joined, _find_whitespace(joined), num_bytes, make_row_splits(num_bytes + 1)[:-1] - 1)


def fit_spans(spans: SpanColumns, texts: JoinedTexts, index_base: int) -> SpanColumns:
    """Checks spans against their texts, and trims white space at their ends, of which it warns.

    Args:
        spans: spans with `1 <= start < stop`.
        texts: the texts.
        index_base: the index of a text's first byte in the spans as they were given, for errors.

    Raises:
        OffsetsContractError: a span ends after its text, or begins or ends inside a character.
    """
    rows = np.repeat(np.arange(len(texts.num_bytes)), np.diff(spans.row_splits))
    _reject_spans_beyond(spans, texts.num_bytes[rows], index_base)
    starts, stops = (np.asarray(ends) + texts.shift[rows] for ends in (spans.starts, spans.stops))
    _reject_split_characters(spans, texts, starts, stops, index_base)
    whitespace = texts.is_whitespace
    padded = np.flatnonzero(whitespace[starts] | whitespace[stops - 1])
    if not len(padded):
        return spans
    shown, other = format_span(spans, int(padded[0]), index_base), 1 - index_base
    warnings.warn(
        f"text {rows[padded[0]]}: the span {shown} begins or ends with white space, which gets no label "
        f"({len(padded)} such spans). If spans are counted from {other}, pass index_base={other}",
        stacklevel=3,
    )
    filled = make_row_splits(~whitespace)  # (number of bytes before each that are not white space)
    some = padded[filled[stops[padded]] > filled[starts[padded]]]  # (a span of nothing else stays as it is)
    first, after = starts[some], stops[some]
    starts[some] = _skip_whitespace(whitespace, first, after)
    stops[some] = len(whitespace) - _skip_whitespace(
        whitespace[::-1], len(whitespace) - after, len(whitespace) - first
    )
    return spans._replace(starts=starts - texts.shift[rows], stops=stops - texts.shift[rows])


def _reject_spans_beyond(spans: SpanColumns, num_bytes: NDArray[np.int64], index_base: int) -> None:
    beyond = np.flatnonzero(np.asarray(spans.stops) > num_bytes + 1)
    if len(beyond):
        span = int(beyond[0])
        raise OffsetsContractError(
            f"text {find_span_row(spans, span)}: the span {format_span(spans, span, index_base)} ends after the "
            f"text, whose last byte is {num_bytes[span] - 1 + index_base}"
        )


def _reject_split_characters(
    spans: SpanColumns,
    texts: JoinedTexts,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    index_base: int,
) -> None:
    """Raise `OffsetsContractError` for a span that begins or ends between the bytes of one character.

    Args:
        spans: the spans.
        texts: the texts.
        starts: where each span begins in the joined texts, from 0, shape `(spans,)`.
        stops: where it ends.
        index_base: the index of a text's first byte in the spans as they were given, for the error.
    """
    data = np.frombuffer(texts.data, np.uint8)
    inside = ((data[starts] & 0xC0) == 0x80) | ((data[stops] & 0xC0) == 0x80)
    for span in np.flatnonzero(inside).tolist():  # (in bytes that are no UTF-8, each is a character)
        ends = (int(starts[span]) + 1, int(stops[span]) + 1)
        if not all(is_valid_string_boundary(texts.data, end) for end in ends):
            shown, other = format_span(spans, span, index_base), 1 - index_base
            raise OffsetsContractError(
                f"text {find_span_row(spans, span)}: the span {shown} begins or ends inside a character: spans "
                f"are UTF-8 bytes counted from {index_base}; for 0-based characters pass "
                f"spans_from_characters(texts, spans), for bytes counted from {other} index_base={other}"
            )


class TextWhitespace(NamedTuple):
    """The white space of texts that are laid end to end, and the tokens in it.

    Attributes:
        is_whitespace: which bytes are of white space, `bool`, shape `(bytes,)`.
        num_bytes: how many bytes the text of each row has, `int64`, shape `(rows,)`.
        shift: what makes a byte of that text, from 1, one of all, from 0, `int64`, shape `(rows,)`.
        tokens: which tokens are nothing else, `bool`, shape `(n,)`.
    """

    is_whitespace: NDArray[np.bool_]
    num_bytes: NDArray[np.int64]
    shift: NDArray[np.int64]
    tokens: NDArray[np.bool_]


def mark_whitespace(tokens: FlatTokens, texts: JoinedTexts) -> TextWhitespace:
    """What of the texts, and which of the tokens, is white space.

    Raises:
        OffsetsContractError: a token is no place in its text.
    """
    check_rows("texts", len(texts.num_bytes), tokens)
    num_bytes, shift = texts.num_bytes, texts.shift
    if tokens.text_ids is not None:
        num_bytes, shift = num_bytes[tokens.text_ids], shift[tokens.text_ids]
    space = TextWhitespace(texts.is_whitespace, num_bytes, shift, np.zeros(len(tokens.offsets), bool))
    row_starts = np.searchsorted(tokens.row_splits, np.arange(0, len(tokens.offsets), BLOCK), "right") - 1
    for rows in map(slice, row_starts, [*row_starts[1:], tokens.num_rows]):
        _mark_whitespace_tokens(tokens, space, rows)
    return space


def trim_token_spans(
    tokens: FlatTokens, space: TextWhitespace, indices: NDArray[np.int64] | slice, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The spans of some of the tokens, trimmed, `int64`, shape `(indices, 2)`; the row of each is given."""
    shift, last = space.shift[rows], len(space.is_whitespace)
    starts, stops = tokens.offsets[indices].T + shift
    starts = np.where(space.tokens[indices], stops, starts)
    starts = _skip_whitespace(space.is_whitespace, starts, stops)
    stops = last - _skip_whitespace(space.is_whitespace[::-1], last - stops, last - starts)
    return np.stack([starts - shift, stops - shift], axis=1)


def _mark_whitespace_tokens(tokens: FlatTokens, space: TextWhitespace, rows: slice) -> None:
    """Mark those tokens of some rows that are nothing but white space."""
    splits = tokens.row_splits[rows.start : rows.stop + 1]
    part, lengths = slice(splits[0], splits[-1]), np.diff(splits)
    starts, stops = tokens.offsets[part].T
    outside = (stops > np.repeat(space.num_bytes[rows] + 1, lengths)) | ((starts < 1) & (starts < stops))
    if outside.any():
        _reject_outside_token(tokens, space, int(splits[0] + outside.argmax()))
    shift = np.repeat(space.shift[rows], lengths)
    starts, stops = starts + shift, stops + shift
    is_whitespace = space.is_whitespace.take(starts, mode="clip") & space.is_whitespace.take(
        stops - 1, mode="clip"
    )
    is_whitespace &= starts < stops
    longer = np.flatnonzero(is_whitespace & (stops - starts > 2))
    edges = np.stack([starts[longer], stops[longer]], axis=1).reshape(-1)
    is_whitespace[longer] = np.logical_and.reduceat(space.is_whitespace, edges)[::2]
    space.tokens[part] = is_whitespace


def _reject_outside_token(tokens: FlatTokens, space: TextWhitespace, token: int) -> None:
    row = tokens.get_row(token)
    span = tuple(tokens.offsets[token].tolist())
    raise OffsetsContractError(
        f"text {tokens.get_text(row)}: a token has the span {span}, and the text has "
        f"{space.num_bytes[row]} bytes, counted from 1; is it the text that was encoded? (see "
        "tokenization_view)"
    )


def _skip_whitespace(
    is_whitespace: NDArray[np.bool_], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The first byte of each span that is not blank. Each has one, but for empty spans, which stay."""
    after = starts.copy()
    lead = np.flatnonzero(starts < stops)
    lead = lead[is_whitespace[starts[lead]]]
    after[lead] += 1
    lead = lead[is_whitespace[after[lead]]]  # of most tokens one blank is all
    if len(lead):
        find = is_whitespace.tobytes().find
        after[lead] = [find(0, start) for start in after[lead].tolist()]
    return after


def _find_whitespace(text: bytes) -> NDArray[np.bool_]:
    """Which bytes of UTF-8 are of white space."""
    data = np.frombuffer(text, np.uint8)
    whitespace = np.frombuffer(bytearray(text.translate(_IS_ASCII_WHITESPACE)), np.bool_)
    if text.isascii():
        return whitespace
    leads = np.flatnonzero(data >= min(_WIDE_TAIL_BYTES))
    for lead, tails in _WIDE_TAIL_BYTES.items():
        width = 2 if lead < 0xE0 else 3
        found = leads[data[leads] == lead]
        found = found[found <= len(data) - width]
        rest = np.zeros(len(found), np.uint16)
        for i in range(1, width):
            rest = rest << np.uint16(8) | data[found + i]
        found = found[np.isin(rest, tails)]
        for i in range(width):
            whitespace[found + i] = True
    return whitespace
