"""Exhaustive tests of the offset functions: all spans in and around small texts, against simple oracles."""

import itertools
import re

import pytest

import tokjax
from tokjax.core.utf8 import to_utf8

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


def test_empty_offsets():
    for function in (tokjax.offsets.byte_to_char_spans, tokjax.offsets.char_to_byte_spans):
        assert function("a", []).shape == (0, 2)
    assert tokjax.offsets.offsets_are_nonoverlapping([])
