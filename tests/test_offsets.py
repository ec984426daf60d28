"""Tests of the offset functions: conversion between bytes and characters, boundaries, and the contract.

All spans in and around small texts are compared with simple oracles.
"""

import itertools
import re

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
    for function in (tokjax.offsets.byte_to_char_spans, tokjax.offsets.char_to_byte_spans):
        assert function("abc", []).shape == (0, 2)
    assert tokjax.offsets.offsets_are_nonoverlapping([])


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


TEXTS = ["", "a", "ab", "é!", "a€", "😀b", "\u0800", "é\U00010000", "߿", "\ud800a"]
TEXTS += [b"\xff", b"a\xe2\x82", b"\xed\xa0\x80", b"\xe0\x80\x80a"]
texts = pytest.mark.parametrize("text", TEXTS, ids=repr)


def find_starts(data):
    """Returns the 1-based starts of all characters, and the end of the text. Invalid bytes are characters."""
    starts, index = [1], 0
    while index < len(data):
        index += next((n for n in (1, 2, 3, 4) if is_character(data[index : index + n])), 1)
        starts.append(index + 1)
    return starts


def is_character(data):
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


def iter_spans(size):
    return itertools.product(range(-2, size + 5), repeat=2)


def get_substring(data, start, stop):
    if (start, stop) == (0, 0):
        return ""
    starts = find_starts(data)
    if not start <= stop or start not in starts or stop not in starts:
        return None
    try:
        return data[start - 1 : stop - 1].decode()
    except UnicodeDecodeError:
        return None


@texts
def test_functions_of_one_span(text):
    data = to_utf8(text)
    for start, stop in iter_spans(len(data)):
        span, inside = (start, stop), 1 <= start <= stop <= len(data) + 1
        assert tokjax.offsets.has_span(span) == (span != (0, 0))
        assert tokjax.offsets.has_nonempty_span(span) == (start > 0 and stop > start)
        assert tokjax.offsets.span_nbytes(span) == (stop - start if stop > start else 0)
        assert tokjax.offsets.span_bytes(text, span) == (data[start - 1 : stop - 1] if inside else b"")
        assert tokjax.try_span_substring(text, span) == get_substring(data, start, stop)
    for position in range(-2, len(data) + 5):
        assert tokjax.offsets.is_valid_string_boundary(text, position) == (position in find_starts(data))


@texts
def test_offsets_contract(text):
    data = to_utf8(text)
    for span in iter_spans(len(data)):
        start, stop = span
        valid = span == (0, 0) or 1 <= start <= stop <= len(data) + 1
        at_boundaries = valid and (span == (0, 0) or {start, stop} <= {*find_starts(data)})
        assert tokjax.offsets.validate_offsets_contract(text, [(0, 0), span]) == valid
        assert (
            tokjax.offsets.validate_offsets_contract(text, [span], require_string_boundaries=True)
            == at_boundaries
        )
        rule = f"(0, 0) or 1 <= start <= stop <= {len(data) + 1} (nbytes + 1)"
        if not valid:
            with pytest.raises(
                tokjax.errors.OffsetsContractError,
                match=re.escape(f"offset 1 is {span}; the contract requires {rule}"),
            ):
                tokjax.offsets.assert_offsets_contract(text, [(1, 1), span])


@texts
def test_character_spans(text):
    starts = find_starts(to_utf8(text))
    for span in iter_spans(len(starts) - 1):
        start, stop = span
        if span == (-1, -1):
            assert tokjax.offsets.char_to_byte_spans(text, [span]).tolist() == [[0, 0]]
        elif 0 <= start <= stop < len(starts):
            positions = [starts[start], starts[stop]]
            assert tokjax.offsets.char_to_byte_spans(text, [span]).tolist() == [positions]
            assert tokjax.offsets.byte_to_char_spans(text, [positions]).tolist() == [[start, stop]]
        else:
            message = f"span 0 is {span}; it must keep 0 <= start <= stop <= {len(starts) - 1} characters"
            with pytest.raises(tokjax.errors.OffsetsContractError, match=re.escape(message)):
                tokjax.offsets.char_to_byte_spans(text, [span])


@pytest.mark.parametrize("ignore_sentinel", [True, False])
@pytest.mark.parametrize("ignore_empty", [True, False])
def test_overlaps_of_three_spans(ignore_sentinel, ignore_empty):
    options = {"ignore_sentinel": ignore_sentinel, "ignore_empty": ignore_empty}
    for spans in itertools.product(
        [(0, 0), (1, 1), (2, 2), (1, 2), (2, 3), (1, 3), (2, 4), (2, 1)], repeat=3
    ):
        selected = [
            (start, stop)
            for start, stop in spans
            if (start, stop) != (0, 0) and not (ignore_empty and start == stop > 0)
        ]
        expected = all(left[1] <= right[0] for left, right in itertools.pairwise(selected))
        expected = expected and (2, 1) not in spans and (ignore_sentinel or (0, 0) not in spans)
        assert tokjax.offsets.offsets_are_nonoverlapping(spans, **options) == expected, spans
