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

The rows of a batch are searched together. There are two ways, with the same result:

1. Bisection: one vectorized step at a time for all spans, each in its own row. This is the way under
   `jax.jit`, and on the host where there are few spans.
2. One `np.searchsorted` over all rows. A multiple of `gap_key + 1` is added to the values of each row, so
   that they increase across rows too. Positions between rows (special tokens, padding) get `gap_key`, which
   is greater than any target of the row before them:

       row        0   0   -   1   1         gap_key = 9 + 2 = 11
       stops      4   9   0   3   7
       base       0   0       12  12
       key        4   9   11  15  19        stop 3 in row 1 is searched for as 3 + 12 = 15

`flat_tokens` makes the rows on the host, and `align_span_arrays` in JAX.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from tokjax._util.arrays import compute_prefix_maximum, count_bits
from tokjax.core.ragged import concatenate_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax._util.arrays import Array


Side: TypeAlias = Literal["left", "right"]
"""Side of equal values on which a search stops, as in `np.searchsorted`."""
_BISECTION_COST = 2
"""Cost of one bisection step for one span, relative to the cost per token of a search in all rows."""
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
    find = _make_search(xp, tokens, spans.rows)
    first = find(tokens.stops, spans.starts, side="right")
    return TokenRanges(first, find(tokens.starts, spans.stops, side="left", minimum=first))


def find_contained_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """Returns the tokens that lie inside each span."""
    find = _make_search(xp, tokens, spans.rows)
    first = find(tokens.starts, spans.starts, side="left")
    return TokenRanges(first, find(tokens.stops, spans.stops, side="right", minimum=first))


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


class _SearchFunction(Protocol):
    """A search for the first token of each row whose value is at least, or greater than, a target."""

    def __call__(self, values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        """Returns the index of that token for each target, or `high` of the row without such a token.

        Args:
            values: starts or stops of all tokens, shape `(n,)`.
            targets: value to search for in the row of each span, shape `(spans,)`.
            side: `"left"` for values `>= target`, `"right"` for values `> target`, as in `np.searchsorted`.
            minimum: lower bound of each result, shape `(spans,)`; `None` for the start of the row.
        """


def _make_search(xp: Any, tokens: TokenRows, rows: Any) -> _SearchFunction:
    """Returns a search function for one target in each of `rows`.

    Many spans on the host are searched for in all rows at once, as one sorted array. That takes a pass over
    all tokens, and keys that may exceed `int32`. Few spans, and spans in JAX, bisect their rows in parallel.
    """
    steps = count_bits(tokens.longest)
    if xp is np and _BISECTION_COST * steps * len(rows) > len(tokens.starts):
        return _make_sorted_search(tokens, rows)
    low, high = tokens.low[rows], tokens.high[rows]

    def find(values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        if minimum is None:
            return _bisect(xp, low, high, steps, values, targets, side)
        if xp is not np:
            return _bisect(xp, minimum, high, steps, values, targets, side)
        # The end of a span is close to its first token: search there first, and in the rest of the row only
        # for the few spans that are longer.
        near = np.minimum(minimum + _USUAL_MAX_TOKENS, high)
        indices = _bisect(np, minimum, near, _USUAL_MAX_TOKENS.bit_length(), values, targets, side)
        unfinished = np.flatnonzero((indices == near) & (near < high))
        indices[unfinished] = _bisect(
            np, near[unfinished], high[unfinished], steps, values, targets[unfinished], side
        )
        return indices

    return find


def _make_sorted_search(tokens: TokenRows, rows: NDArray[np.int64]) -> _SearchFunction:
    """Returns a search function that searches all rows as one sorted array (see the head of this module)."""
    size, gap_key = len(tokens.starts), int(tokens.stops.max(initial=0)) + 2
    bases = np.arange(len(tokens.low)) * (gap_key + 1)
    token_base = np.repeat(bases, np.diff(np.append(tokens.low[1:], size), prepend=0))
    gap_starts = np.append(0, tokens.high)
    gap_lengths = np.append(tokens.low, size) - gap_starts
    gap_indices = concatenate_ranges(gap_starts, gap_lengths)
    gap_keys = np.repeat(
        np.append(-1, bases + gap_key), gap_lengths
    )  # (-1: less than all, before the first row)
    span_base = bases[rows]

    def find(values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        keys = values + token_base
        keys[gap_indices] = gap_keys
        # A target beyond all tokens must not reach the keys of the next row.
        indices = np.searchsorted(keys, np.minimum(targets, np.int64(gap_key - 1)) + span_base, side)
        if minimum is not None:
            return np.maximum(indices, minimum)
        return indices

    return find


def _bisect(xp: Any, low: Array, high: Array, steps: int, values: Array, targets: Array, side: Side) -> Array:
    """Returns the first index of each range `low:high` whose value is not before the target, or `high`.

    Args:
        xp: NumPy or `jax.numpy`.
        low: start of each range, shape `(spans,)`.
        high: stop of each range, shape `(spans,)`.
        steps: number of bits of the longest range.
        values: values that do not decrease within a range, shape `(n,)`.
        targets: one target for each range, shape `(spans,)`.
        side: `"left"` if values less than the target are before it, `"right"` if equal values are too.
    """
    if not values.shape[0]:
        return low
    last = high - 1
    is_before = operator.lt if side == "left" else operator.le

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
