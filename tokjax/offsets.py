"""Offsets: spans that map tokens to UTF-8 bytes of a text, and the contract that they satisfy.

A span `(start, stop)` counts UTF-8 bytes from 1 and is half-open: it contains the bytes from `start` up to,
but without, `stop`. An example of all three kinds of spans, for the text `naïve!`:

    text             n    a    ï         v    e    !
    bytes            6E   61   C3   AF   76   65   21
    position         1    2    3    4    5    6    7    8       nbytes + 1 = 8 is the end of the text

    token            span      0-based slice of the bytes
    [CLS]            (0, 0)    none: the sentinel, for "no source text"
    na               (1, 3)    [0:2]
    ï                (3, 5)    [2:4]
    ve               (5, 7)    [4:6]
    (trimmed)        (7, 7)    [6:6], an empty span at position 7
    !                (7, 8)    [6:7]

The contract:

* `1 <= start <= stop <= nbytes + 1` for every span except the sentinel.
* `(0, 0)` is the sentinel of tokens without source text: inserted special tokens and padding.
* `(k, k)` with `k >= 1` is an empty span, of a token that was trimmed to nothing or has no text. It has a
  position, so it is not the sentinel.

The 0-based slice of the same bytes is `[start - 1 : stop - 1]`. With 1-based positions, the sentinel differs
from every empty span. See docs/offsets.md.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tokjax._util.arrays import as_known
from tokjax._util.checks import check_int
from tokjax._util.imports import mark_namespace
from tokjax.core.encode_options import accept_options
from tokjax.core.utf8 import count_bytes, find_character_starts, to_utf8
from tokjax.errors import InvalidArgumentError, OffsetsContractError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text

__all__ = [
    "assert_offsets_contract",
    "byte_to_char_spans",
    "char_to_byte_spans",
    "has_nonempty_span",
    "has_span",
    "is_valid_string_boundary",
    "offsets_are_nonoverlapping",
    "offsets_coordinate_system",
    "offsets_index_base",
    "offsets_sentinel",
    "offsets_span_style",
    "span_bytes",
    "span_nbytes",
    "to_utf8",
    "try_span_substring",
    "validate_offsets_contract",
]
mark_namespace(__name__)

Span: TypeAlias = "Sequence[int] | NDArray[Any]"
"""One span: two integers."""
Spans: TypeAlias = "Sequence[Span] | NDArray[Any]"
"""Spans, shape `(n, 2)`: an integer array, or a sequence of pairs."""


def offsets_coordinate_system() -> Literal["utf8_bytes"]:
    """Returns the unit of offsets: UTF-8 bytes."""
    return "utf8_bytes"


def offsets_index_base() -> Literal[1]:
    """Returns the position of the first byte."""
    return 1


def offsets_span_style() -> Literal["half_open"]:
    """Returns the style of spans: the stop is not part of a span."""
    return "half_open"


def offsets_sentinel() -> tuple[Literal[0], Literal[0]]:
    """Returns the span of tokens that have no source text."""
    return (0, 0)


def has_span(span: Span) -> bool:
    """Returns whether a span has a position in the text. An empty span has one; the sentinel has not.

    >>> has_span((1, 6)), has_span((3, 3)), has_span((0, 0))
    (True, True, False)
    """
    start, stop = _as_pair(span)
    return (start, stop) != offsets_sentinel()


def has_nonempty_span(span: Span) -> bool:
    """Returns whether a span covers at least one byte. Label alignment selects tokens by this function.

    >>> has_nonempty_span((1, 6)), has_nonempty_span((3, 3)), has_nonempty_span((0, 0))
    (True, False, False)
    """
    start, stop = _as_pair(span)
    return 1 <= start < stop


def span_nbytes(span: Span) -> int:
    """Returns the number of bytes that a span covers, 0 for the sentinel.

    >>> span_nbytes((7, 12))
    5
    """
    start, stop = _as_pair(span)
    return max(stop - start, 0)


def span_bytes(text: Text, span: Span) -> bytes:
    """Returns the bytes that a span covers. Empty for the sentinel, and for a span outside of the text.

    For many spans of one long `str`, pass `to_utf8(text)` instead: a `str` is encoded in each call.

    >>> span_bytes("hello world", (7, 12))
    b'world'
    """
    start, stop = _as_pair(span)
    data = to_utf8(text)
    if not 1 <= start <= stop <= len(data) + 1:
        return b""
    return data[start - 1 : stop - 1]


def try_span_substring(text: Text, span: Span) -> str | None:
    """Returns the text that a span covers, or `None` if the span does not cover valid text.

    For many spans of one long `str`, pass `to_utf8(text)` instead: a `str` is encoded in each call.

    Args:
        text: text that the span refers to.
        span: 1-based byte span `(start, stop)`.

    Returns:
        `""` for the sentinel and for an empty span in the text. `None` for a span that starts or stops inside
        a character, covers bytes that are not valid UTF-8, or is outside of the text.

    >>> try_span_substring("naïve", (3, 5)), try_span_substring("naïve", (3, 4))
    ('ï', None)
    """
    start, stop = _as_pair(span)
    if (start, stop) == offsets_sentinel():
        return ""
    data = to_utf8(text)
    if not 1 <= start <= stop <= len(data) + 1:
        return None
    if not (_is_boundary(data, start) and _is_boundary(data, stop)):
        return None
    try:
        return data[start - 1 : stop - 1].decode("utf-8")
    except UnicodeDecodeError:
        return None


def is_valid_string_boundary(text: Text, position: int) -> bool:
    """Returns whether a 1-based byte position is between two characters, or at the start or end of the text.

    >>> [is_valid_string_boundary("é!", k) for k in (0, 1, 2, 3, 4, 5)]
    [False, True, False, True, True, False]
    """
    return _is_boundary(to_utf8(text), check_int("position", position))


@accept_options()
def offsets_are_nonoverlapping(
    offsets: Spans, *, ignore_sentinel: bool = True, ignore_empty: bool = True
) -> bool:
    """Returns whether each span starts no earlier than the one before it stops, as in KeemenaSubwords.jl.

    Args:
        offsets: spans in token order, shape `(n, 2)`. If a span stops before it starts, the result is
            `False`.
        ignore_sentinel: ignore `(0, 0)`. Otherwise the result is `False` if there is a sentinel, since it has
            no position.
        ignore_empty: ignore `(k, k)`.

    >>> offsets_are_nonoverlapping([(0, 0), (1, 6), (6, 12)])
    True
    >>> offsets_are_nonoverlapping([(0, 0), (1, 6)], ignore_sentinel=False)
    False
    """
    spans = _as_spans(offsets)
    sentinel = (spans == 0).all(axis=1)
    if (sentinel.any() and not ignore_sentinel) or (spans[:, 1] < spans[:, 0]).any():
        return False
    compared = spans[~sentinel & ((spans[:, 0] != spans[:, 1]) | (not ignore_empty))]
    return bool((compared[1:, 0] >= compared[:-1, 1]).all())


@accept_options()
def validate_offsets_contract(text: Text, offsets: Spans, *, require_string_boundaries: bool = False) -> bool:
    """Returns whether every span satisfies the offset contract. `assert_offsets_contract` raises instead.

    Args:
        text: text that the offsets refer to.
        offsets: spans, shape `(n, 2)`.
        require_string_boundaries: also reject spans that start or stop inside a character.

    >>> validate_offsets_contract("abc", [(0, 0), (1, 4)]), validate_offsets_contract("abc", [(1, 5)])
    (True, False)
    """
    return _find_violation(text, offsets, require_string_boundaries) is None


@accept_options()
def assert_offsets_contract(text: Text, offsets: Spans, *, require_string_boundaries: bool = False) -> None:
    """Raises for the first span that violates the offset contract.

    Args:
        text: text that the offsets refer to.
        offsets: spans, shape `(n, 2)`. Each must be the sentinel, or `1 <= start <= stop <= nbytes + 1`.
        require_string_boundaries: also reject spans that start or stop inside a character.

    Raises:
        OffsetsContractError: a span violates the contract.
    """
    violation = _find_violation(text, offsets, require_string_boundaries)
    if violation is not None:
        raise OffsetsContractError(violation)


def byte_to_char_spans(text: Text, offsets: Spans) -> NDArray[np.int64]:
    """Converts 1-based byte spans to 0-based character spans, for `text[start:stop]`.

    A span that starts or stops inside a character is rounded outward to full characters. An empty span
    remains empty. The sentinel becomes `(-1, -1)`, since `(0, 0)` is a valid 0-based span.

    Args:
        text: text that the offsets refer to. The characters of `bytes` are those of
            `decode("utf-8", "surrogateescape")`.
        offsets: 1-based byte spans, shape `(n, 2)`.

    Returns:
        0-based character spans, `int64`, shape `(n, 2)`.

    Raises:
        OffsetsContractError: a span violates the offset contract.

    >>> byte_to_char_spans("naïve", [(0, 0), (3, 5), (5, 7)]).tolist()
    [[-1, -1], [2, 3], [3, 5]]
    """
    assert_offsets_contract(text, offsets)
    spans = _as_spans(offsets) - 1
    starts = find_character_starts(text)
    first = np.searchsorted(starts, spans[:, 0], "right") - 1
    last = np.searchsorted(starts, spans[:, 1], "left")
    # The second half of a surrogate pair has no bytes, so two characters stop at the same byte: include both.
    last = np.searchsorted(starts, starts[last], "right") - 1
    last = np.where(spans[:, 0] == spans[:, 1], first, last)
    chars = np.stack([first, last], axis=1)
    chars[spans[:, 0] < 0] = -1
    return chars


def char_to_byte_spans(text: Text, spans: Spans) -> NDArray[np.int64]:
    """Converts 0-based character spans (`text[start:stop]`) to 1-based byte spans.

    Args:
        text: text of `n` characters that the spans refer to.
        spans: character spans, `0 <= start <= stop <= n`, shape `(m, 2)`. `(-1, -1)` becomes the sentinel
            `(0, 0)`.

    Returns:
        1-based byte spans, `int64`, shape `(m, 2)`.

    Raises:
        OffsetsContractError: a span is not in the text.

    >>> char_to_byte_spans("naïve", [(-1, -1), (2, 3), (3, 5)]).tolist()
    [[0, 0], [3, 5], [5, 7]]
    """
    chars = _as_spans(spans)
    starts = find_character_starts(text)
    absent = (chars == -1).all(axis=1)
    inside = (chars[:, 0] >= 0) & (chars[:, 0] <= chars[:, 1]) & (chars[:, 1] < len(starts))
    _reject_first(~(inside | absent), chars, f"0 <= start <= stop <= {len(starts) - 1} characters")
    offsets = starts[np.where(absent[:, None], 0, chars)] + 1
    offsets[absent] = 0
    return offsets


def _as_pair(span: Span) -> tuple[int, int]:
    try:
        start, stop = map(operator.index, span)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"a span is a pair of integers (start, stop), not {span!r}") from None
    return start, stop


def _as_spans(offsets: Spans) -> NDArray[np.int64]:
    spans = as_known("offsets", offsets)
    if spans.size == 0:
        return np.zeros((0, 2), np.int64)
    if spans.ndim != 2 or spans.shape[1] != 2 or spans.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"offsets must be integers of shape (n, 2), not {spans.dtype} of shape {spans.shape}"
        )
    return spans.astype(np.int64)


def _is_boundary(data: bytes, position: int) -> bool:
    """Returns whether a 1-based position is between characters. Reads only the bytes near the position.

    A character that contains the position begins at most three bytes before it. Bytes of other characters
    are cut off there, and then are separate characters, which have no position inside.
    """
    if not 1 <= position <= len(data) + 1:
        return False
    start = max(position - 4, 0)
    return position - 1 - start in find_character_starts(data[start : position + 2])


def _find_violation(text: Text, offsets: Spans, require_string_boundaries: bool) -> str | None:
    """Describes the first span that violates the contract, or returns `None`."""
    spans = _as_spans(offsets)
    nbytes = count_bytes(text)
    start, stop = spans[:, 0], spans[:, 1]
    inside = (start >= 1) & (start <= stop) & (stop <= nbytes + 1)
    bad = ~(inside | (spans == 0).all(axis=1))
    rule = f"(0, 0) or 1 <= start <= stop <= {nbytes + 1} (nbytes + 1)"
    if require_string_boundaries and not bad.any():
        starts = find_character_starts(text) + 1
        bad = inside & ~np.isin(spans, starts).all(axis=1)
        rule = "spans that start and stop between characters"
    if not bad.any():
        return None
    index = int(np.flatnonzero(bad)[0])
    return f"offset {index} is {tuple(spans[index].tolist())}; the contract requires {rule}"


def _reject_first(bad: NDArray[np.bool_], spans: NDArray[np.int64], rule: str) -> None:
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        raise OffsetsContractError(f"span {index} is {tuple(spans[index].tolist())}; it must keep {rule}")
