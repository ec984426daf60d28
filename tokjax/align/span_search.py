"""Which tokens lie in which span, and how those are tagged: array code for flat tokens in rows.

The tokens of a row are in the order of the text, and each has a byte at least. Spans are in the order of
rows, and within a row in that of the text.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from tokjax._util.arrays import bit_length, compute_prefix_maximum, scatter
from tokjax.align.tagset import FIRST, LAST
from tokjax.core.ragged import concatenate_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax._util.array_namespace import Array
    from tokjax.align.tagset import TagSet

Side: TypeAlias = Literal["left", "right"]

_BISECTION_COST = 2
"""A step for one span, in tokens that could be passed over meanwhile."""
_USUAL_MAX_TOKENS = 7
"""How many tokens most spans have at most."""


class TokenRows(NamedTuple):
    """Tokens in rows, those of row `i` from `low[i]` to before `high[i]`; what is between rows is no matter.

    Attributes:
        starts: the first byte of each token, shape `(n,)`.
        stops: one past the last byte, shape `(n,)`.
        low: shape `(rows,)`.
        high: shape `(rows,)`.
        longest: how many tokens a row has at most.
    """

    starts: Array
    stops: Array
    low: Any
    high: Any
    longest: int


class SpanQueries(NamedTuple):
    """The spans that are looked for, `(0, 0)` for one that is not to be found: shape `(spans,)` each."""

    starts: Array
    stops: Array
    rows: Any


class TokenRanges(NamedTuple):
    """The tokens of each span: from `first` to before `after`, none where they are equal."""

    first: Any
    after: Any


def find_touched_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """The tokens that share a byte with each span."""
    find = _make_search(xp, tokens, spans.rows)
    first = find(tokens.stops, spans.starts, side="right")
    return TokenRanges(first, find(tokens.starts, spans.stops, side="left", minimum=first))


def find_contained_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """The tokens that lie inside of each span."""
    find = _make_search(xp, tokens, spans.rows)
    first = find(tokens.starts, spans.starts, side="left")
    return TokenRanges(first, find(tokens.stops, spans.stops, side="right", minimum=first))


def assign_to_first_span(xp: Any, found: TokenRanges) -> TokenRanges:
    """Each token to the first of the spans that have it."""
    if not found.first.shape[0]:
        return found
    reached = compute_prefix_maximum(found.after)
    first = xp.maximum(found.first[1:], reached[:-1])
    first = xp.concatenate([found.first[:1], first])
    return TokenRanges(first, xp.maximum(first, found.after))


def write_tags(xp: Any, labels: Array, found: TokenRanges, classes: Array, tagset: TagSet) -> Array:
    """The labels, with the tags of each span's tokens put in.

    Args:
        xp: NumPy or `jax.numpy`.
        labels: all of them 0 where a span has a token, `int32`, shape `(n,)`; a NumPy array is written to.
        found: the tokens of each span, none of them twice.
        classes: the label of each span, `int32`, shape `(spans,)`.
        tagset: the tags.
    """
    counts = found.after - found.first
    tag = 1 + classes * np.int32(tagset.num_roles)
    roles = tagset.role_at_position
    labels = _fill_tags(xp, labels, found, tag + roles[0])
    labels = scatter(labels, found.first, tag + roles[FIRST], counts > 1)
    labels = scatter(labels, found.after - 1, tag + roles[LAST], counts > 1)
    return scatter(labels, found.first, tag + roles[FIRST | LAST], counts == 1)


def is_word_start(xp: Any, is_selected: Array, words: Array) -> Array:
    """Whether each token is of another word than the last one before it that counts.

    Args:
        xp: NumPy or `jax.numpy`.
        is_selected: which tokens count, `(rows, length)`.
        words: the word of each token, `(rows, length)`.
    """
    position = xp.arange(1, words.shape[1] + 1, dtype=np.int32)[None]
    seen = compute_prefix_maximum(xp.where(is_selected, position, np.int32(0)))
    before = xp.pad(seen, ((0, 0), (1, 0)))[:, :-1]
    last_word = xp.take_along_axis(words, xp.maximum(before - 1, 0), axis=1)
    return (before == 0) | (last_word != words)  # type: ignore[no-any-return]


class _SearchFunction(Protocol):
    """What finds the first token of each row whose value is at least a target, or above it."""

    def __call__(self, values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        """The tokens, `high` of the row if it has none, but none before `minimum`.

        Sides are those of `np.searchsorted`.
        """


def _make_search(xp: Any, tokens: TokenRows, rows: Any) -> _SearchFunction:
    """A search in each of `rows`.

    Many spans are looked for in all rows at once, as one sorted array: that takes a pass over all tokens, and
    numbers that `int32` may not hold. Few spans, and those in JAX, bisect their rows side by side.
    """
    steps = bit_length(tokens.longest)
    if xp is np and _BISECTION_COST * steps * len(rows) > len(tokens.starts):
        return _make_sorted_search(tokens, rows)
    low, high = tokens.low[rows], tokens.high[rows]

    def find(values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        if minimum is None:
            return _bisect(xp, low, high, steps, values, targets, side)
        if xp is not np:
            return _bisect(xp, minimum, high, steps, values, targets, side)
        near = np.minimum(minimum + _USUAL_MAX_TOKENS, high)
        found = _bisect(np, minimum, near, _USUAL_MAX_TOKENS.bit_length(), values, targets, side)
        more = np.flatnonzero((found == near) & (near < high))
        found[more] = _bisect(np, near[more], high[more], steps, values, targets[more], side)
        return found

    return find


def _make_sorted_search(tokens: TokenRows, rows: NDArray[np.int64]) -> _SearchFunction:
    size, beyond = len(tokens.starts), int(tokens.stops.max(initial=0)) + 2
    bases = np.arange(len(tokens.low)) * (beyond + 1)
    token_base = np.repeat(bases, np.diff(np.append(tokens.low[1:], size), prepend=0))
    gap_starts = np.append(0, tokens.high)
    gap_lengths = np.append(tokens.low, size) - gap_starts
    between = concatenate_ranges(gap_starts, gap_lengths)
    key_between = np.repeat(np.append(-1, bases + beyond), gap_lengths)
    span_base = bases[rows]

    def find(values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        keys = values + token_base
        keys[between] = key_between
        found = np.searchsorted(keys, np.minimum(targets, np.int64(beyond - 1)) + span_base, side)
        if minimum is not None:
            return np.maximum(found, minimum)
        return found

    return find


def _bisect(xp: Any, low: Array, high: Array, steps: int, values: Array, targets: Array, side: Side) -> Array:
    if not values.shape[0]:
        return low
    last = high - 1
    is_before = operator.lt if side == "left" else operator.le

    def advance(step: Any, before: Array) -> Array:
        """The last of the tokens that are known to come before; one that is not in the row, at first."""
        probe = xp.minimum(before + (1 << (steps - 1 - step)), last)
        return xp.where(is_before(values[probe], targets), probe, before)  # type: ignore[no-any-return]

    before = low - 1
    if xp is np:
        for step in range(steps):
            before = advance(step, before)
        return before + 1
    import jax  # noqa: PLC0415 (loaded already)

    return jax.lax.fori_loop(0, steps, advance, before) + 1  # type: ignore[no-any-return]


def _fill_tags(xp: Any, labels: Array, found: TokenRanges, tags: Array) -> Array:
    """`labels`, all tokens of each span given its tag."""
    if xp is np:
        counts = found.after - found.first
        labels[concatenate_ranges(found.first, counts)] = np.repeat(tags, counts)
        return labels
    change = xp.zeros(labels.shape[0] + 1, np.int32).at[found.first].add(tags).at[found.after].add(-tags)
    return labels + xp.cumsum(change, dtype=np.int32)[:-1]  # type: ignore[no-any-return]
