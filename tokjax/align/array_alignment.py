"""Spans of text to labels of tokens, for arrays of static shapes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, as_int32, get_namespace, vmap_rows
from tokjax._util.eager_jit import jit_eager
from tokjax.align.flat_tokens import (
    SpanQueries,
    TokenRows,
    assign_to_first_span,
    find_contained_tokens,
    find_touched_tokens,
    is_word_start,
    write_tags,
)
from tokjax.align.spans_to_labels import SpanLabels
from tokjax.align.tagset import check_tagset
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tokjax.align.tagset import TagSet

_LAST_START = np.int32(np.iinfo(np.int32).max)


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
    """`align_spans` for arrays of static shapes: runs under `jax.jit` and `jax.vmap`.

    Values are not checked. Spans may overlap: a token is tagged for the first of those that have it, by their
    starts and then by the order given. Tokens must be in the order of their text, as those of tokenizers are.

    Args:
        offsets: 1-based byte spans of tokens, `(..., length, 2)`; `(0, 0)` on padding.
        spans: start, stop and class, `(..., spans, 3)`; classes are places in the labels, -1 on padding. See
            `pad_spans`.
        tagset: the tags; static under `jax.jit`.
        on_partial: `"include"` or `"exclude"`, as in `align_spans`.
        word_ids: which word each token is of, `(..., length)`; if given, only the first token of each is
            labelled.
        ignore_index: the label of tokens without bytes, and of other subwords.

    Returns:
        `int32`, of the kind that was given: labels `(..., length)` and counts `(..., spans)`.

    >>> from tokjax.align.tagset import TagSet
    >>> offsets, spans = np.array([[1, 4], [4, 9], [0, 0]]), np.array([[5, 9, 0]])
    >>> align_span_arrays(offsets, spans, TagSet(("LOC",))).labels
    array([   0,    1, -100], dtype=int32)
    """
    xp = get_namespace(offsets, spans, word_ids)
    check_tagset(tagset, ignore_index)
    if on_partial not in ("include", "exclude"):
        raise InvalidArgumentError(
            f"on_partial must be 'include' or 'exclude' for arrays, not {on_partial!r}; to refuse values "
            "call align_spans(offsets, spans, labels=LABELS, on_partial='error') on the host"
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
    rank = xp.cumsum(keep, dtype=np.int32)
    order = _find_indices(xp, keep)
    sorted_spans = _sort_spans(xp, span_array.reshape(rows, width, 3), len(tagset.labels))
    counts = keep.reshape(rows, length).sum(axis=1, dtype=np.int32)
    high = xp.cumsum(counts, dtype=np.int32)
    among = TokenRows(starts[order], stops[order], high - counts, high, length)
    in_row = xp.broadcast_to(xp.arange(rows, dtype=np.int32)[:, None], (rows, width)).reshape(-1)
    searched = SpanQueries(sorted_spans.starts.reshape(-1), sorted_spans.stops.reshape(-1), in_row)
    find = find_touched_tokens if on_partial == "include" else find_contained_tokens
    found = assign_to_first_span(xp, find(xp, among, searched))
    dense_labels = write_tags(
        xp, xp.zeros(rows * length, np.int32), found, sorted_spans.classes.reshape(-1), tagset
    )
    labels = xp.where(keep, dense_labels[xp.maximum(rank - 1, 0)], xp.asarray(ignore_index, dtype=np.int32))
    token_counts = (found.after - found.first).reshape(rows, width).astype(np.int32)
    token_counts = xp.take_along_axis(token_counts, xp.argsort(sorted_spans.order, axis=1), axis=1)
    return SpanLabels(labels.reshape(*leading, length), token_counts.reshape(*leading, width))


class _SortedSpans(NamedTuple):
    """The spans of each row in the order of the text, those that are none last: `(rows, spans)` each.

    Attributes:
        starts: the first byte; 0 if it is no span.
        stops: one past the last byte; 0 if it is no span.
        classes: the label.
        order: which of the given spans it is.
    """

    starts: Array
    stops: Array
    classes: Array
    order: Array


def _sort_spans(xp: Any, spans: Array, num_labels: int) -> _SortedSpans:
    starts, stops, classes = spans[..., 0], spans[..., 1], spans[..., 2]
    is_valid = (starts >= 1) & (starts < stops) & (classes >= 0) & (classes < num_labels)
    stably = {"kind": "stable"} if xp is np else {}  # (JAX sorts so in any case)
    order = xp.argsort(xp.where(is_valid, starts, _LAST_START), axis=1, **stably)
    absent = np.int32(0)
    starts = xp.where(is_valid, starts, absent)
    stops = xp.where(is_valid, stops, absent)
    columns = (xp.take_along_axis(values, order, axis=1) for values in (starts, stops, classes))
    return _SortedSpans(*columns, order)  # type: ignore[call-arg]


def _find_indices(xp: Any, keep: Array) -> Array:
    """Where `keep` is true; in JAX, where shapes are static, other places follow."""
    if xp is np:
        return np.flatnonzero(keep)
    return xp.flatnonzero(keep, size=keep.shape[0], fill_value=0)  # type: ignore[no-any-return]


def _check_shapes(tokens: Array, spans: Array, words: Array | None) -> None:
    if tokens.ndim < 2 or tokens.shape[-1] != 2:
        raise InvalidArgumentError(f"offsets must have shape (..., length, 2), not {tokens.shape}")
    if spans.ndim < 2 or spans.shape[-1] != 3 or spans.shape[:-2] != tokens.shape[:-2]:
        expected = ", ".join([*map(str, tokens.shape[:-2]), "spans", "3"])
        raise InvalidArgumentError(f"spans must have shape ({expected}), not {spans.shape}; see pad_spans")
    if words is not None and words.shape != tokens.shape[:-1]:
        raise InvalidArgumentError(f"word_ids must have shape {tokens.shape[:-1]}, not {words.shape}")
