r"""Offsets without the whitespace at the edges of tokens.

All texts are concatenated, with a NUL byte after each, and the whitespace of the whole is marked once. A
1-based byte position of a text becomes a 0-based index into the concatenation by adding the text's `shift`:

    texts            "a b", " c"
    data             a   ␣   b   \0  ␣   c   \0
    index            0   1   2   3   4   5   6
    is_whitespace    F   T   F   F   T   F   F
    shift            -1 for text 0, 3 for text 1

    token " b" of text 0:  [2, 4) -> [1, 3) -> start skips one space -> [2, 3) -> [3, 4)
    token " " of text 1:   [1, 2) -> all whitespace -> the empty span at its end, [2, 2)

The search for the last byte that is not whitespace runs over the reversed array, with the same function. A
NUL is not whitespace, and is a complete character, so that neither a search nor a character extends into the
next text. See docs/alignment.md, section "Whitespace and partial overlap".
"""

from __future__ import annotations

import warnings
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_texts
from tokjax.align.flat_tokens import make_flat_tokens, reject_normalized_offsets
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

_BLOCK = 1 << 15
"""Number of tokens that are processed together, so that intermediate arrays stay in the cache."""
_IS_ASCII_WHITESPACE = bytes(chr(code).isspace() and code < 0x80 for code in range(256))
_WIDE_WHITESPACE = [chr(code).encode() for code in range(0x80, 0x3001) if chr(code).isspace()]
_WIDE_TAIL_BYTES = {
    lead: np.array([int.from_bytes(encoded[1:], "big") for encoded in group], np.uint16)
    for lead, group in groupby(_WIDE_WHITESPACE, itemgetter(0))
}
"""Whitespace characters beyond ASCII: first byte to the possible remaining bytes, as big-endian integers."""


def trim_offsets(offsets: Any, texts: Sequence[Text]) -> NDArray[np.int64]:
    """Returns the offsets of tokens without the whitespace at their edges.

    Tokens of byte-level BPE start with the space before their word, and therefore do not lie inside the span
    of that word. Whitespace is defined by `str.isspace`.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, or an array of
            shape `(n, 2)` (one text) or `(batch, length, 2)`.
        texts: the texts that the offsets refer to; a list of one text for a single result.

    Returns:
        `int64`, shape `(n, 2)` with the tokens of all texts, or `(batch, length, 2)`. A token of whitespace
        only becomes the empty span at its end; `(0, 0)` stays.

    Raises:
        InvalidArgumentError: the offsets refer to normalized texts; see `map_offsets_to_input`.
        OffsetsContractError: a token is outside its text.

    >>> trim_offsets(np.array([[1, 4], [4, 9]]), ["New York"]).tolist()
    [[1, 4], [5, 9]]
    """
    tokens = make_flat_tokens(offsets)
    rows = np.repeat(np.arange(tokens.num_rows), np.diff(tokens.row_splits))
    return trim_token_spans(tokens, join_texts(texts, tokens), slice(None), rows).reshape(tokens.shape)


class JoinedTexts(NamedTuple):
    """Concatenated texts with a NUL byte after each, so that no character continues in the next text.

    Attributes:
        data: UTF-8 bytes of all texts.
        is_whitespace: whether each byte belongs to a whitespace character, `bool`, shape `(bytes,)`.
        num_bytes: number of bytes of each text, `int64`, shape `(texts,)`.
        shift: difference between a 0-based index into `data` and a 1-based byte position of each text,
            `int64`, shape `(texts,)`.
        tokens: whether each token is non-empty and consists of whitespace only, `bool`, shape `(n,)`.
    """

    data: bytes
    is_whitespace: NDArray[np.bool_]
    num_bytes: NDArray[np.int64]
    shift: NDArray[np.int64]
    tokens: NDArray[np.bool_]


def join_texts(texts: Sequence[Text], tokens: FlatTokens) -> JoinedTexts:
    """Concatenates texts, and marks their whitespace and the tokens that consist of it.

    Raises:
        InvalidArgumentError: `texts` is a single text instead of a sequence of texts, or the offsets refer to
            the normalized texts.
        OffsetsContractError: a token is outside its text.
    """
    check_texts(texts)
    reject_normalized_offsets(tokens.is_normalized)
    check_rows("texts", len(texts), tokens)
    encoded = [to_utf8(text) for text in texts]
    num_bytes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    joined = b"\0".join([*encoded, b""])
    shift, is_in_whitespace = make_row_splits(num_bytes + 1)[:-1] - 1, np.zeros(len(tokens.offsets), bool)
    result = JoinedTexts(joined, _mark_whitespace(joined), num_bytes, shift, is_in_whitespace)
    # Rows are processed in groups of about `_BLOCK` tokens, so that intermediate arrays stay in the cache.
    row_starts = np.searchsorted(tokens.row_splits, np.arange(0, len(tokens.offsets), _BLOCK), "right") - 1
    for rows in map(slice, row_starts, [*row_starts[1:], tokens.num_rows]):
        _mark_whitespace_tokens(tokens, result, rows)
    return result


def fit_spans(spans: SpanColumns, texts: JoinedTexts, index_base: int) -> SpanColumns:
    """Checks spans against their texts, and trims whitespace at their edges with a warning.

    Args:
        spans: spans with `1 <= start < stop`.
        texts: the texts.
        index_base: index of a text's first byte in the spans of the caller, 0 or 1, for messages.

    Raises:
        OffsetsContractError: a span stops after the end of its text, or starts or stops inside a character.
    """
    rows = np.repeat(np.arange(len(texts.num_bytes)), np.diff(spans.row_splits))
    _reject_long_spans(spans, texts.num_bytes[rows], index_base)
    starts, stops = (np.asarray(ends) + texts.shift[rows] for ends in (spans.starts, spans.stops))
    _reject_split_characters(spans, texts, starts, stops, index_base)
    whitespace = texts.is_whitespace
    padded = np.flatnonzero(whitespace[starts] | whitespace[stops - 1])
    if not len(padded):
        return spans
    position, other = format_span(spans, int(padded[0]), index_base), 1 - index_base
    warnings.warn(
        f"text {rows[padded[0]]}: the span {position} starts or stops with whitespace, which gets no label "
        f"({len(padded)} such spans). If the first byte of a text has index {other}, pass index_base={other}",
        stacklevel=3,
    )
    # A span of whitespace only stays as it is: it has equal counts at both ends.
    count_before = make_row_splits(~whitespace)
    trimmed = padded[count_before[stops[padded]] > count_before[starts[padded]]]
    first, after = starts[trimmed], stops[trimmed]
    starts[trimmed] = _skip_whitespace(whitespace, first, after)
    stops[trimmed] = len(whitespace) - _skip_whitespace(
        whitespace[::-1], len(whitespace) - after, len(whitespace) - first
    )
    return spans._replace(starts=starts - texts.shift[rows], stops=stops - texts.shift[rows])


def _reject_long_spans(spans: SpanColumns, num_bytes: NDArray[np.int64], index_base: int) -> None:
    """Raises `OffsetsContractError` for a span that stops after the end of its text."""
    too_long = np.flatnonzero(np.asarray(spans.stops) > num_bytes + 1)
    if len(too_long):
        span = int(too_long[0])
        raise OffsetsContractError(
            f"text {find_span_row(spans, span)}: the span {format_span(spans, span, index_base)} stops after "
            f"the end of the text, whose last byte is {num_bytes[span] - 1 + index_base}"
        )


def _reject_split_characters(
    spans: SpanColumns,
    texts: JoinedTexts,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    index_base: int,
) -> None:
    """Raises `OffsetsContractError` for a span that starts or stops between the bytes of one character.

    Args:
        spans: the spans.
        texts: the texts.
        starts: start of each span, as a 0-based index into the concatenated texts, shape `(spans,)`.
        stops: stop of each span, as a 0-based index into the concatenated texts, shape `(spans,)`.
        index_base: index of a text's first byte in the spans of the caller, 0 or 1, for messages.
    """
    data = np.frombuffer(texts.data, np.uint8)
    inside = ((data[starts] & 0xC0) == 0x80) | ((data[stops] & 0xC0) == 0x80)
    # A continuation byte may still be a boundary: in invalid UTF-8 each byte is a character.
    for span in np.flatnonzero(inside).tolist():
        ends = (int(starts[span]) + 1, int(stops[span]) + 1)
        if not all(is_valid_string_boundary(texts.data, end) for end in ends):
            position, other = format_span(spans, span, index_base), 1 - index_base
            raise OffsetsContractError(
                f"text {find_span_row(spans, span)}: the span {position} starts or stops inside a "
                f"character: spans are UTF-8 bytes, and the first byte has index {index_base}; for "
                f"0-based characters pass spans_from_characters(texts, spans), for {other}-based bytes pass "
                f"index_base={other}"
            )


def trim_token_spans(
    tokens: FlatTokens,
    texts: JoinedTexts,
    indices: NDArray[np.int64] | slice,
    rows: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Returns the trimmed spans of some tokens.

    Args:
        tokens: all tokens.
        texts: their texts.
        indices: indices of the tokens to trim, shape `(m,)`, or a slice.
        rows: row of each of these tokens, `int64`, shape `(m,)`.

    Returns:
        1-based byte spans, `int64`, shape `(m, 2)`.
    """
    shift, size = texts.shift[tokens.get_text(rows)], len(texts.is_whitespace)
    starts, stops = tokens.offsets[indices].T + shift
    starts = np.where(texts.tokens[indices], stops, starts)
    starts = _skip_whitespace(texts.is_whitespace, starts, stops)
    # Byte i has index size - 1 - i in the reversed array, so that [start, stop) is [size - stop, size -
    # start).
    stops = size - _skip_whitespace(texts.is_whitespace[::-1], size - stops, size - starts)
    return np.stack([starts - shift, stops - shift], axis=1)


def _mark_whitespace_tokens(tokens: FlatTokens, texts: JoinedTexts, rows: slice) -> None:
    """Marks the tokens of some rows that consist of whitespace only."""
    splits = tokens.row_splits[rows.start : rows.stop + 1]
    part, lengths = slice(splits[0], splits[-1]), np.diff(splits)
    text_ids = tokens.get_text(np.arange(rows.start, rows.stop))
    starts, stops = tokens.offsets[part].T
    outside = (stops > np.repeat(texts.num_bytes[text_ids] + 1, lengths)) | ((starts < 1) & (starts < stops))
    if outside.any():
        _reject_outside_token(tokens, texts, int(splits[0] + outside.argmax()))
    shift = np.repeat(texts.shift[text_ids], lengths)
    starts, stops = starts + shift, stops + shift
    first, last = (texts.is_whitespace.take(each, mode="clip") for each in (starts, stops - 1))
    is_whitespace = first & last & (starts < stops)
    # The first and the last byte decide for tokens of up to two bytes. Only longer tokens of which both are
    # whitespace are read as a whole.
    longer = np.flatnonzero(is_whitespace & (stops - starts > 2))
    edges = np.stack([starts[longer], stops[longer]], axis=1).reshape(-1)
    is_whitespace[longer] = np.logical_and.reduceat(texts.is_whitespace, edges)[::2]
    texts.tokens[part] = is_whitespace


def _reject_outside_token(tokens: FlatTokens, texts: JoinedTexts, token: int) -> None:
    """Raises `OffsetsContractError` for a token that is outside its text."""
    text, span = tokens.get_text(tokens.get_row(token)), tuple(tokens.offsets[token].tolist())
    raise OffsetsContractError(
        f"text {text}: a token has the span {span}, and the text has {texts.num_bytes[text]} bytes, of which "
        "the first has index 1; pass the text that was encoded"
    )


def _skip_whitespace(
    is_whitespace: NDArray[np.bool_], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the index of the first byte of each span that is not whitespace.

    Args:
        is_whitespace: whether each byte belongs to a whitespace character, `bool`, shape `(bytes,)`.
        starts: start of each span, 0-based, shape `(spans,)`.
        stops: stop of each span, shape `(spans,)`. A span is empty, and then its start is returned, or has a
            byte that is not whitespace.
    """
    after = starts.copy()
    lead = np.flatnonzero(starts < stops)
    lead = lead[is_whitespace[starts[lead]]]
    after[lead] += 1
    # Most tokens start with at most one space. The few others are searched with `bytes.find` in a loop.
    lead = lead[is_whitespace[after[lead]]]
    if len(lead):
        find = is_whitespace.tobytes().find
        after[lead] = [find(0, start) for start in after[lead].tolist()]
    return after


def _mark_whitespace(text: bytes) -> NDArray[np.bool_]:
    """Returns whether each byte of UTF-8 belongs to a whitespace character, `bool`, shape `(bytes,)`."""
    data = np.frombuffer(text, np.uint8)
    whitespace = np.frombuffer(bytearray(text.translate(_IS_ASCII_WHITESPACE)), np.bool_)
    if text.isascii():
        return whitespace
    leads = np.flatnonzero(data >= min(_WIDE_TAIL_BYTES))
    for lead, tails in _WIDE_TAIL_BYTES.items():
        width = 2 if lead < 0xE0 else 3
        candidates = leads[data[leads] == lead]
        candidates = candidates[candidates <= len(data) - width]
        tail = np.zeros(len(candidates), np.uint16)
        for i in range(1, width):
            tail = tail << np.uint16(8) | data[candidates + i]
        candidates = candidates[np.isin(tail, tails)]
        for i in range(width):
            whitespace[candidates + i] = True
    return whitespace
