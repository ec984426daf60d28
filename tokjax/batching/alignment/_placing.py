"""Which tokens lie in which span, and how those are tagged: array code for flat tokens in rows.

The tokens of a row are in the order of the text, and each has a byte at least. Spans are in the order of
rows, and within a row in that of the text.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._arrays import prefix_maximum, put
from tokjax.batching.alignment.tagset import FIRST, LAST
from tokjax.ragged import ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokjax._namespace import Array
    from tokjax.batching.alignment.tagset import TagSet

_COST_OF_BISECTING = 4
"""A step for one span, in tokens that could be passed over meanwhile."""


class Rows(NamedTuple):
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


class Searched(NamedTuple):
    """The spans that are looked for, `(0, 0)` for one that is not to be found: shape `(spans,)` each."""

    starts: Array
    stops: Array
    rows: Any


class Found(NamedTuple):
    """The tokens of each span: from `first` to before `after`, none where they are equal."""

    first: Any
    after: Any


def touched_tokens(xp: Any, tokens: Rows, spans: Searched) -> Found:
    """The tokens that share a byte with each span."""
    find = _search(xp, tokens, spans.rows)
    first = find(tokens.stops, spans.starts + 1)
    return Found(first, xp.maximum(first, find(tokens.starts, spans.stops)))


def contained_tokens(xp: Any, tokens: Rows, spans: Searched) -> Found:
    """The tokens that lie inside of each span."""
    find = _search(xp, tokens, spans.rows)
    first = find(tokens.starts, spans.starts)
    return Found(first, xp.maximum(first, find(tokens.stops, spans.stops + 1)))


def given_once(xp: Any, found: Found) -> Found:
    """Each token to the first of the spans that have it."""
    if not found.first.shape[0]:
        return found
    reached = prefix_maximum(found.after)
    first = xp.maximum(found.first[1:], reached[:-1])
    first = xp.concatenate([found.first[:1], first])
    return Found(first, xp.maximum(first, found.after))


def tagged(xp: Any, labels: Array, found: Found, classes: Array, tagset: TagSet) -> Array:
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
    roles = tagset.role_at_place
    labels = _filled(xp, labels, found, tag + roles[0])
    labels = put(labels, found.first, tag + roles[FIRST], counts > 1)
    labels = put(labels, found.after - 1, tag + roles[LAST], counts > 1)
    return put(labels, found.first, tag + roles[FIRST | LAST], counts == 1)


def starts_word(xp: Any, covers: Array, words: Array) -> Array:
    """Whether each token is of another word than the last one before it that counts.

    Args:
        xp: NumPy or `jax.numpy`.
        covers: which tokens count, `(rows, length)`.
        words: the word of each token, `(rows, length)`.
    """
    place = xp.arange(1, words.shape[1] + 1, dtype=np.int32)
    seen = prefix_maximum(xp.where(covers, place, np.int32(0)))
    before = xp.concatenate([xp.zeros_like(seen[:, :1]), seen[:, :-1]], axis=1)
    last_word = xp.take_along_axis(words, xp.maximum(before - 1, 0), axis=1)
    return (before == 0) | (last_word != words)  # type: ignore[no-any-return]


def _search(xp: Any, tokens: Rows, rows: Any) -> Callable[[Array, Array], Array]:
    """What finds the first token of each of `rows` whose value is at least a target; `high` if none is.

    Many spans are looked for in all rows at once, as one sorted array: that takes a pass over all tokens, and
    numbers that `int32` may not hold. Few spans, and those in JAX, bisect their rows side by side.
    """
    steps = tokens.longest.bit_length()
    if xp is np and _COST_OF_BISECTING * steps * len(rows) > len(tokens.starts):
        return _search_in_all(tokens, rows)
    return partial(_bisected, xp, tokens.low[rows], tokens.high[rows], steps)


def _search_in_all(tokens: Rows, rows: NDArray[np.int64]) -> Callable[[Array, Array], Array]:
    size, extent = len(tokens.starts), int(tokens.stops.max(initial=0)) + 2
    bases = np.arange(len(tokens.low)) * extent
    ends = np.append(tokens.low[1:], size)
    base_of_token = np.repeat(bases, np.diff(ends, prepend=0))
    between = ranges(tokens.high, ends - tokens.high)
    base_of_span = bases[rows]

    def find(values: Array, targets: Array) -> Array:
        keys = values + base_of_token
        keys[between] = base_of_token[between] + extent - 1
        return np.searchsorted(keys, np.minimum(targets, extent - 1) + base_of_span)

    return find


def _bisected(xp: Any, low: Array, high: Array, steps: int, values: Array, targets: Array) -> Array:
    if not values.shape[0]:
        return low
    last = values.shape[0] - 1

    def halved(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) >> 1
        is_less = (values[xp.minimum(middle, last)] < targets) & (low < high)
        return xp.where(is_less, middle + 1, low), xp.where(is_less, high, middle)

    if xp is np:
        for step in range(steps):
            low, high = halved(step, (low, high))
        return low
    import jax  # noqa: PLC0415 (loaded already)

    return jax.lax.fori_loop(0, steps, halved, (low, high))[0]  # type: ignore[no-any-return]


def _filled(xp: Any, labels: Array, found: Found, tags: Array) -> Array:
    """`labels`, all tokens of each span given its tag."""
    if xp is np:
        counts = found.after - found.first
        labels[ranges(found.first, counts)] = np.repeat(tags, counts)
        return labels
    change = xp.zeros(labels.shape[0] + 1, np.int32).at[found.first].add(tags).at[found.after].add(-tags)
    return labels + xp.cumsum(change, dtype=np.int32)[:-1]  # type: ignore[no-any-return]
