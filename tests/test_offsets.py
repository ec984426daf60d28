"""Tests of the offset functions: conversion between bytes and characters, boundaries, and the contract."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.text_strategies import any_strings, byte_strings
from tokjax.core.utf8 import find_character_starts, from_characters, to_characters, to_utf8


def find_starts_sequentially(text):
    """Returns the byte positions of characters, by encoding each character separately."""
    starts = [0]
    i = 0
    while i < len(text):
        pair = text[i : i + 2]
        if len(pair) == 2 and "\ud800" <= pair[0] <= "\udbff" and "\udc00" <= pair[1] <= "\udfff":
            starts += [starts[-1] + 4] * 2
            i += 2
        else:
            starts.append(starts[-1] + len(to_utf8(text[i])))
            i += 1
    return starts


@given(any_strings)
def test_character_starts_of_str(text):
    assert find_character_starts(text).tolist() == find_starts_sequentially(text)
    assert find_character_starts(text)[-1] == len(to_utf8(text))


@given(byte_strings)
def test_character_starts_of_bytes(data):
    widths = [1 if "\udc80" <= c <= "\udcff" else len(c.encode()) for c in to_characters(data)]
    assert find_character_starts(data).tolist() == np.cumsum([0, *widths]).tolist()
    assert from_characters(to_characters(data)) == data


@given(any_strings)
def test_utf8_of_characters(text):
    assert from_characters(to_characters(text)) == to_utf8(text)
    assert to_utf8(text) == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


@given(any_strings, st.data())
def test_byte_spans_are_rounded_outward(text, data):
    size = len(to_utf8(text))
    start = data.draw(st.integers(1, size + 1))
    stop = data.draw(st.integers(start, size + 1))
    first, last = tokjax.offsets.byte_to_char_spans(text, [(start, stop)])[0]
    starts = find_starts_sequentially(text)
    assert starts[first] <= start - 1
    if start == stop:
        assert first == last
    else:
        assert starts[last] >= stop - 1
        assert starts[first + 1] > start - 1 or starts[first] == start - 1
        assert first < last
        assert starts[last - 1] < stop - 1 or starts[last - 1] == starts[last]


@given(any_strings, st.data())
def test_round_trip_of_character_spans(text, data):
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, len(text)))
    spans = tokjax.offsets.char_to_byte_spans(text, [(first, last), (-1, -1)])
    assert spans[1].tolist() == [0, 0]
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert tokjax.try_span_substring(text, spans[0]) == text[first:last]
        assert tokjax.offsets.byte_to_char_spans(text, spans).tolist() == [[first, last], [-1, -1]]


def test_spans_of_surrogate_pairs():
    spans = tokjax.offsets.byte_to_char_spans("\ud83d\ude42!", [(1, 5), (5, 6), (1, 4), (4, 5), (4, 6)])
    assert spans.tolist() == [[0, 2], [2, 3], [0, 2], [0, 2], [0, 3]]
    spans = tokjax.offsets.char_to_byte_spans("\ud83d\ude42!", [(0, 1), (0, 2), (2, 3)])
    assert spans.tolist() == [[1, 5], [1, 5], [5, 6]]


def test_constants_of_the_contract():
    assert tokjax.offsets.offsets_coordinate_system() == "utf8_bytes"
    assert tokjax.offsets.offsets_index_base() == 1
    assert tokjax.offsets.offsets_span_style() == "half_open"
    assert tokjax.offsets.offsets_sentinel() == (0, 0)


def test_invalid_arguments_are_rejected():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"shape \(n, 2\)"):
        tokjax.offsets.assert_offsets_contract("abc", [1, 2, 3])
    for span in ((1, 2, 3), (1,), (1.5, 2), None):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="a pair of integers"):
            tokjax.offsets.has_span(span)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="not rows of unequal length"):
        tokjax.offsets.assert_offsets_contract("abc", [(1, 2), (3,)])
    with pytest.raises(tokjax.errors.OffsetsContractError, match=r"span 0 is \(0, 4\)"):
        tokjax.offsets.char_to_byte_spans("abc", [(0, 4)])
    assert tokjax.offsets.byte_to_char_spans("abc", []).shape == (0, 2)


def test_offsets_under_jit():
    jax = pytest.importorskip("jax")
    tokenizer = tokjax.byte_level()
    for function in (
        lambda spans: tokjax.offsets.byte_to_char_spans("abc", spans),
        lambda spans: tokjax.map_offsets_to_input(tokenizer, "abc", spans),
        lambda spans: tokjax.offsets.assert_offsets_contract("abc", [spans[0]]),
        lambda spans: tokjax.reports.compute_entropy([*spans[0]]),
    ):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="are unknown under jax.jit; call the func"
        ):
            jax.eval_shape(function, np.ones((1, 2), np.int32))
