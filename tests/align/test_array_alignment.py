"""Tests of `align_span_arrays` against a loop, and against `align_spans`."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.support.numpy_jax_agreement import assert_agrees, assert_same
from tests.support.token_strategies import (
    LABELS,
    draw_labelled_texts,
    draw_token_rows,
    get_word_ids,
    schemes,
    tags_to_ids,
)
from tests.support.variants import mark_slow_except


def to_dense(rows, width, fill):
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows], np.int32).reshape(
        len(rows), width, len(fill)
    )


@cache
def make_aligner(tagset, on_partial):
    """Returns the same function object for the same options, so that JAX compiles it once."""

    def align(offsets, spans, word_ids=None):
        options = {"on_partial": on_partial, "word_ids": word_ids}
        return tokjax.align.align_span_arrays(offsets, spans, tagset, **options)

    return align


any_span = st.tuples(st.integers(-1, 20), st.integers(-1, 20), st.integers(-2, 3))


draw_row_pairs = st.tuples(
    st.lists(draw_token_rows(), min_size=2, max_size=2),
    st.lists(st.lists(any_span, max_size=4), min_size=2, max_size=2),
)


@given(draw_row_pairs, schemes, st.sampled_from(["include", "exclude"]), st.booleans())
def test_align_span_arrays(texts, scheme, on_partial, first_subword_only):
    """All examples have one shape, so that JAX compiles the functions once."""
    rows, spans = texts
    tagset = tokjax.align.TagSet(LABELS, scheme)
    offsets, padded_spans = to_dense(rows, 8, (0, 0)), to_dense(spans, 4, (0, 0, -1))
    words = [np.tile(get_word_ids(range(8)), (2, 1))] if first_subword_only else []
    aligned = assert_agrees(make_aligner(tagset, on_partial), offsets, padded_spans, *words)
    assert aligned.labels.shape == (2, 8)
    assert aligned.token_counts.shape == (2, 4)
    for i, (tokens, row) in enumerate(zip(rows, spans, strict=True)):
        is_valid = [1 <= start < stop and 0 <= label < 3 for start, stop, label in row]
        valid_spans = [(*span[:2], LABELS[span[2]]) for span, ok in zip(row, is_valid, strict=True) if ok]
        row_words = get_word_ids(tokens) if first_subword_only else None
        tags, counts = oracle.tag_tokens(tokens, valid_spans, scheme, on_partial, row_words)
        assert aligned.labels[i].tolist() == [*tags_to_ids(tagset, tags), *[-100] * (8 - len(tokens))]
        remaining = iter(counts)
        assert aligned.token_counts[i].tolist() == [
            *[next(remaining) if ok else 0 for ok in is_valid],
            *[0] * (4 - len(row)),
        ]


EMPTY_SHAPES = [((0, 3), 2), ((2, 0), 2), ((2, 3), 0), ((1, 1, 2), 1)]


@pytest.mark.parametrize("shape_and_width", mark_slow_except(EMPTY_SHAPES, EMPTY_SHAPES[2:3]))
def test_empty_arrays_and_several_batch_axes(shape_and_width):
    shape, width = shape_and_width
    offsets = np.full((*shape, 2), (1, 2), np.int32)
    spans = np.full((*shape[:-1], width, 3), (1, 2, 0), np.int32)
    align = make_aligner(tokjax.align.TagSet(LABELS), "include")
    assert_same(align(offsets, spans), jax.jit(align)(jnp.asarray(offsets), jnp.asarray(spans)), jax.Array)
    assert align(np.array([(1, 2), (2, 4)]), np.array([(1, 4, 1)])).labels.tolist() == [3, 4]


@pytest.mark.parametrize("on_partial", mark_slow_except(["include", "exclude"], ["include"]))
def test_span_up_to_the_maximum_of_int32(on_partial):
    align = make_aligner(tokjax.align.TagSet(LABELS), on_partial)
    last = 2**31 - 1
    spans = np.array([(1, last, 0)], np.int32)
    for offsets in (np.array([(1, 3), (3, 5)], np.int32), np.array([(1, 3), (last - 1, last)], np.int32)):
        assert align(offsets, spans).labels.tolist() == [1, 2]
        assert jax.jit(align)(jnp.asarray(offsets), jnp.asarray(spans)).labels.tolist() == [1, 2]


@given(draw_labelled_texts(), schemes)
def test_align_spans_equals_align_span_arrays(texts, scheme):
    spans = [row for _, row in texts]
    offsets = to_dense([tokens for tokens, _ in texts], 8, (0, 0))
    from_lists = tokjax.align.align_spans(offsets, spans, labels=LABELS, scheme=scheme)
    padded = tokjax.align.pad_spans(tokjax.align.span_columns(spans, LABELS))
    from_arrays = tokjax.align.align_span_arrays(offsets, padded, tokjax.align.TagSet(LABELS, scheme))
    assert from_lists.labels.tolist() == from_arrays.labels.tolist()
    counts = [
        n for row, ns in zip(spans, from_arrays.token_counts.tolist(), strict=True) for n in ns[: len(row)]
    ]
    assert from_lists.token_counts.tolist() == counts
