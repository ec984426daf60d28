"""Labels of tokens from labelled spans, for arrays of static shapes under `jax.jit`.

`align_spans` works on lists of spans, whose number is known only on the host. Here all shapes are static, and
invalid or padded entries are handled by value. An example with one row, the label `LOC` (tags
`O B-LOC I-LOC`) and a padded span:

    offsets   (0, 0)   (1, 4)   (5, 9)   (9, 10)   (0, 0)      first and last: no bytes
    spans     (1, 9, 0)   (0, 0, -1)

    1. keep              F    T    T    T    F       tokens that can carry a label
       rank              0    1    2    3    3       running sum of keep
    2. order             1    2    3    0    0       indices of these tokens, padded with 0
       dense tokens      (1, 4)   (5, 9)   (9, 10)
    3. ranges            span 0 touches dense tokens 0:2, see `token_search`
    4. dense labels      1    2    0    0    0       B-LOC I-LOC O
    5. labels         -100    1    2    0 -100       dense_labels[rank - 1] where keep

Step 2 makes these tokens contiguous, because the search needs sorted offsets, which `(0, 0)` would interrupt.
See docs/alignment.md for the rules, and `spans_to_labels` for the same on the host.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, as_int32, get_namespace, scatter, vmap_rows
from tokjax._util.eager_jit import jit_eager
from tokjax.align.spans_to_labels import SpanLabels
from tokjax.align.tagset import FIRST, LAST, check_tagset
from tokjax.align.token_search import (
    SpanQueries,
    TokenRows,
    assign_to_first_span,
    find_contained_tokens,
    find_touched_tokens,
)
from tokjax.align.word_labels import is_word_start
from tokjax.core.ragged import concatenate_ranges
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tokjax.align.tagset import TagSet
    from tokjax.align.token_search import TokenRanges


_LAST_START = np.int32(np.iinfo(np.int32).max)
"""Start of padding and of invalid spans in the sort, which places them last."""


@jit_eager
def align_span_arrays(
    offsets: Array,
    spans: Array,
    tagset: TagSet,
    *,
    on_partial: Literal["include", "exclude"] = "include",
    word_ids: Array | None = None,
    ignore_index: int = -100,
) -> SpanLabels:
    """Computes tags of tokens from labelled spans in arrays of static shapes.

    Runs under `jax.jit` and `jax.vmap`. Use `align_spans` on the host: it takes lists of spans and checks
    them. Here values are not checked. Spans may overlap: a token gets the tag of the first span that has it,
    where spans are ordered by their starts, and spans with equal starts by their order in `spans`. The tokens
    of a row must be in the order of their text, as tokenizers return them.

    Args:
        offsets: 1-based byte spans of tokens, integers, `(..., length, 2)`; `(0, 0)` on padding.
        spans: start, stop and class of each span, integers, `(..., spans, 3)`. A class is an index into the
            labels of the tag set, and -1 on padding. See `pad_spans`.
        tagset: the tags; static under `jax.jit`.
        on_partial: `"include"` to tag tokens that are partly inside a span, or `"exclude"`, as in
            `align_spans`.
        word_ids: index of the word of each token, integers, `(..., length)`; with it, only the first token of
            each word is labelled.
        ignore_index: label of tokens without bytes, and of all but the first token of a word.

    Returns:
        Labels, `int32`, `(..., length)`, and token counts, `int32`, `(..., spans)`: NumPy arrays for NumPy
        inputs and JAX arrays for JAX inputs.

    Raises:
        InvalidArgumentError: shapes do not match, or an option is invalid.

    >>> from tokjax.align.tagset import TagSet
    >>> offsets, spans = np.array([[1, 4], [4, 9], [0, 0]]), np.array([[5, 9, 0]])
    >>> align_span_arrays(offsets, spans, TagSet(("LOC",))).labels
    array([   0,    1, -100], dtype=int32)
    """
    xp = get_namespace(offsets, spans, word_ids)
    check_tagset(tagset, ignore_index)
    if on_partial not in ("include", "exclude"):
        raise InvalidArgumentError(
            f"on_partial must be 'include' or 'exclude' for arrays, not {on_partial!r}; to reject partial "
            "overlap, call align_spans(offsets, spans, labels=LABELS, on_partial='error') on the host"
        )
    tokens, span_array = as_int32("offsets", offsets), as_int32("spans", spans)
    words = None if word_ids is None else as_int32("word_ids", word_ids)
    _check_shapes(tokens, span_array, words)
    if xp is not np and tokens.ndim > 2:

        def align_row(offsets: Array, spans: Array, word_ids: Array | None) -> SpanLabels:
            return align_span_arrays(
                offsets, spans, tagset, on_partial=on_partial, word_ids=word_ids, ignore_index=ignore_index
            )

        return vmap_rows(align_row, tokens.ndim - 2)(tokens, span_array, words)
    leading, length, width = tokens.shape[:-2], tokens.shape[-2], span_array.shape[-2]
    rows = math.prod(leading)
    starts, stops = tokens.reshape(rows * length, 2).T
    keep = starts < stops
    if words is not None:
        keep &= is_word_start(xp, keep.reshape(rows, length), words.reshape(rows, length)).reshape(-1)
    # The tokens of all rows are flat here. Kept tokens become contiguous, so that they can be searched.
    rank = xp.cumsum(keep, dtype=np.int32)
    order = _find_indices(xp, keep)
    sorted_spans = _sort_spans(xp, span_array.reshape(rows, width, 3), len(tagset.labels))
    counts = keep.reshape(rows, length).sum(axis=1, dtype=np.int32)
    high = xp.cumsum(counts, dtype=np.int32)
    dense_tokens = TokenRows(starts[order], stops[order], high - counts, high, length)
    span_rows = xp.broadcast_to(xp.arange(rows, dtype=np.int32)[:, None], (rows, width)).reshape(-1)
    queries = SpanQueries(sorted_spans.starts.reshape(-1), sorted_spans.stops.reshape(-1), span_rows)
    find = find_touched_tokens if on_partial == "include" else find_contained_tokens
    ranges = assign_to_first_span(xp, find(xp, dense_tokens, queries))
    dense_labels = _write_tags(
        xp, xp.zeros(rows * length, np.int32), ranges, sorted_spans.classes.reshape(-1), tagset
    )
    labels = xp.where(keep, dense_labels[xp.maximum(rank - 1, 0)], xp.asarray(ignore_index, dtype=np.int32))
    token_counts = (ranges.after - ranges.first).reshape(rows, width).astype(np.int32)
    # The argsort of a permutation is its inverse: counts go back to the order of the input.
    token_counts = xp.take_along_axis(token_counts, xp.argsort(sorted_spans.order, axis=1), axis=1)
    return SpanLabels(labels.reshape(*leading, length), token_counts.reshape(*leading, width))


class _SortedSpans(NamedTuple):
    """The spans of each row in the order of the text, with padding and invalid spans last.

    Attributes:
        starts: first byte of each span, `int32`, `(rows, spans)`; 0 for padding and invalid spans.
        stops: one past the last byte of each span, `int32`, `(rows, spans)`; 0 for padding and invalid spans.
        classes: index of the label of each span, `int32`, `(rows, spans)`.
        order: index of each span in its row of the input, integers, `(rows, spans)`.
    """

    starts: Array
    stops: Array
    classes: Array
    order: Array


def _sort_spans(xp: Any, spans: Array, num_labels: int) -> _SortedSpans:
    """Sorts the spans of each row by their starts; equal starts keep their order."""
    starts, stops, classes = spans[..., 0], spans[..., 1], spans[..., 2]
    is_valid = (starts >= 1) & (starts < stops) & (classes >= 0) & (classes < num_labels)
    options = {"kind": "stable"} if xp is np else {}  # (the sort of JAX is always stable)
    order = xp.argsort(xp.where(is_valid, starts, _LAST_START), axis=1, **options)
    # A span (0, 0) touches and contains no token, so that padding needs no mask in the search.
    sentinel = np.int32(0)
    starts = xp.where(is_valid, starts, sentinel)
    stops = xp.where(is_valid, stops, sentinel)
    columns = (xp.take_along_axis(values, order, axis=1) for values in (starts, stops, classes))
    return _SortedSpans(*columns, order)  # type: ignore[call-arg]


def _find_indices(xp: Any, keep: Array) -> Array:
    """Returns the indices where `keep` is true, in JAX padded with 0 to the length of `keep`."""
    if xp is np:
        return np.flatnonzero(keep)
    return xp.flatnonzero(keep, size=keep.shape[0], fill_value=0)  # type: ignore[no-any-return]


def _write_tags(xp: Any, labels: Array, ranges: TokenRanges, classes: Array, tagset: TagSet) -> Array:
    """Returns the labels with the tags of each span's tokens.

    Args:
        xp: NumPy or `jax.numpy`.
        labels: labels to update, `int32`, shape `(n,)`, 0 at the tokens of spans. A NumPy array is updated in
            place.
        ranges: the tokens of each span; no token is in two ranges.
        classes: index of the label of each span, `int32`, shape `(spans,)`.
        tagset: the tags.
    """
    counts = ranges.after - ranges.first
    tag = 1 + classes * np.int32(tagset.num_roles)
    roles = tagset.role_at_position
    # All tokens of a span get its inside tag first. Those at its ends are then overwritten.
    labels = _fill_tags(xp, labels, ranges, tag + roles[0])
    labels = scatter(labels, ranges.first, tag + roles[FIRST], counts > 1)
    labels = scatter(labels, ranges.after - 1, tag + roles[LAST], counts > 1)
    return scatter(labels, ranges.first, tag + roles[FIRST | LAST], counts == 1)


def _fill_tags(xp: Any, labels: Array, ranges: TokenRanges, tags: Array) -> Array:
    """Returns `labels` with one tag, `tags[i]`, for all tokens of span `i`."""
    if xp is np:
        counts = ranges.after - ranges.first
        labels[concatenate_ranges(ranges.first, counts)] = np.repeat(tags, counts)
        return labels
    # The number of tokens is dynamic. Their tags are therefore the running sum of `tag` at the first token of
    # each span and `-tag` after the last.
    change = xp.zeros(labels.shape[0] + 1, np.int32).at[ranges.first].add(tags).at[ranges.after].add(-tags)
    return labels + xp.cumsum(change, dtype=np.int32)[:-1]  # type: ignore[no-any-return]


def _check_shapes(tokens: Array, spans: Array, words: Array | None) -> None:
    """Raises `InvalidArgumentError` if the shapes of the arrays do not match."""
    if tokens.ndim < 2 or tokens.shape[-1] != 2:
        raise InvalidArgumentError(f"offsets must have shape (..., length, 2), not {tokens.shape}")
    if spans.ndim < 2 or spans.shape[-1] != 3 or spans.shape[:-2] != tokens.shape[:-2]:
        expected = ", ".join([*map(str, tokens.shape[:-2]), "spans", "3"])
        raise InvalidArgumentError(f"spans must have shape ({expected}), not {spans.shape}; see pad_spans")
    if words is not None and words.shape != tokens.shape[:-1]:
        raise InvalidArgumentError(f"word_ids must have shape {tokens.shape[:-1]}, not {words.shape}")
