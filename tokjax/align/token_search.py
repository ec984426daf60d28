"""Search for the tokens of byte spans, in rows of sorted offsets.

The tokens of a row are in the order of their text, so that the tokens of a span are contiguous, and two
searches in sorted arrays find them. Tokens that *touch* a span share a byte with it; tokens that it
*contains* lie inside it:

    byte          1   2   3   4   5   6   7   8
    token         |0          |1      |2      |3  |
    starts        1           4       6       8
    stops         4           6       8       9
    span                          |-----------|              start 5, stop 8

    touched       first = number of stops  <= 5 = 1,  after = number of starts <  8 = 3:  tokens 1 and 2
    contained     first = number of starts <  5 = 2,  after = number of stops  <= 8 = 3:  token 2

The spans of all rows are searched by bisection, one vectorized step at a time, each span in its own row.

`flat_tokens` makes the rows on the host, and `align_span_arrays` in JAX.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.arrays import compute_prefix_maximum, count_bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax._util.arrays import Array


_Condition: TypeAlias = "tuple[Array, Callable[[Any, Any], Any]]"
_USUAL_MAX_TOKENS = 7
"""Number of tokens that few spans exceed."""


class TokenRows(NamedTuple):
    """Tokens in rows: row `i` is `low[i]:high[i]`. Tokens between rows are ignored.

    Attributes:
        starts: first byte of each token, shape `(n,)`.
        stops: one past the last byte of each token, shape `(n,)`.
        low: index of the first token of each row, shape `(rows,)`.
        high: one past the index of the last token of each row, shape `(rows,)`.
        longest: maximum number of tokens of a row.
    """

    starts: Array
    stops: Array
    low: Any
    high: Any
    longest: int


class SpanQueries(NamedTuple):
    """The spans to find tokens for; `(0, 0)` has no tokens.

    Attributes:
        starts: first byte of each span, shape `(spans,)`.
        stops: one past the last byte of each span, shape `(spans,)`.
        rows: index of the row of tokens of each span, shape `(spans,)`.
    """

    starts: Array
    stops: Array
    rows: Any


class TokenRanges(NamedTuple):
    """The range of tokens `first:after` of each span; empty where `first == after`.

    Attributes:
        first: index of the first token of each span, shape `(spans,)`.
        after: one past the index of the last token of each span, shape `(spans,)`.
    """

    first: Any
    after: Any


def find_touched_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """Returns the tokens that share a byte with each span."""
    return _search(xp, tokens, spans, (tokens.stops, operator.le), (tokens.starts, operator.lt))


def find_contained_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """Returns the tokens that lie inside each span."""
    return _search(xp, tokens, spans, (tokens.starts, operator.lt), (tokens.stops, operator.le))


def assign_to_first_span(xp: Any, ranges: TokenRanges) -> TokenRanges:
    """Assigns each token to the first of the spans that have it.

    Each range then starts where the ranges before it have ended:

        first:after           0:4   2:3   3:6
        maximum of after      4     4     6
        result                0:4   4:4   4:6
    """
    if not ranges.first.shape[0]:
        return ranges
    assigned = compute_prefix_maximum(ranges.after)
    first = xp.maximum(ranges.first[1:], assigned[:-1])
    first = xp.concatenate([ranges.first[:1], first])
    return TokenRanges(first, xp.maximum(first, ranges.after))


def _search(
    xp: Any, tokens: TokenRows, spans: SpanQueries, is_earlier: _Condition, is_within: _Condition
) -> TokenRanges:
    """Returns the tokens from the first that is not before each span, up to the last that is not after it.

    Args:
        xp: NumPy or `jax.numpy`.
        tokens: the tokens.
        spans: the spans.
        is_earlier: condition of a token before the span: its start or stop is below that of the span.
        is_within: condition of a token that is not after the span: its start or stop is below its stop.
    """
    steps, high = count_bits(tokens.longest), tokens.high[spans.rows]
    first = _bisect(xp, tokens.low[spans.rows], high, steps, is_earlier, spans.starts)
    if xp is not np:
        return TokenRanges(first, _bisect(xp, first, high, steps, is_within, spans.stops))
    # The end of a span is close to its first token: search there first, and in the rest of the row only for
    # the few spans that are longer.
    near = np.minimum(first + _USUAL_MAX_TOKENS, high)
    after = _bisect(np, first, near, _USUAL_MAX_TOKENS.bit_length(), is_within, spans.stops)
    rest = np.flatnonzero((after == near) & (near < high))
    after[rest] = _bisect(np, near[rest], high[rest], steps, is_within, spans.stops[rest])
    return TokenRanges(first, after)


def _bisect(xp: Any, low: Array, high: Array, steps: int, condition: _Condition, targets: Array) -> Array:
    """Returns the first index of each range `low:high` at which the condition does not hold, or `high`.

    Args:
        xp: NumPy or `jax.numpy`.
        low: start of each range, shape `(spans,)`.
        high: stop of each range, shape `(spans,)`.
        steps: number of bits of the longest range.
        condition: values, which do not decrease within a range, shape `(n,)`, and their comparison with a
            target.
        targets: one target for each range, shape `(spans,)`.
    """
    values, is_before = condition
    if not values.shape[0]:
        return low
    last = high - 1

    def advance(step: Any, before: Array) -> Array:
        """Moves `before`, the last index whose value is known to be before the target, by a power of 2."""
        probe = xp.minimum(before + (1 << (steps - 1 - step)), last)
        return xp.where(is_before(values[probe], targets), probe, before)  # type: ignore[no-any-return]

    before = low - 1
    if xp is np:
        for step in range(steps):
            before = advance(step, before)
        return before + 1
    import jax  # noqa: PLC0415 (loaded already)

    return jax.lax.fori_loop(0, steps, advance, before) + 1  # type: ignore[no-any-return]
