"""Tests of `spans_from_characters` and `spans_to_characters`."""

import pytest
import regex
from hypothesis import given, strategies as st

import tokjax
from tests.support.rejections import rejects
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax.core.utf8 import to_characters


@given(st.lists(st.tuples(hard_texts, st.randoms(use_true_random=False)), max_size=3))
def test_characters_to_bytes_and_back(texts_and_randoms):
    texts, spans = [], []
    for text, random in texts_and_randoms:
        positions = sorted(random.choices(range(len(text) + 1), k=2))
        texts.append(text)
        spans.append([(*positions, "PER")])
    in_bytes = tokjax.align.spans_from_characters(texts, spans)
    for text, [(start, stop, _)], [(first, last, label)] in zip(texts, spans, in_bytes, strict=True):
        assert tokjax.offsets.to_utf8(text)[first - 1 : last - 1] == tokjax.offsets.to_utf8(text[start:stop])
        assert label == "PER"
    assert tokjax.align.spans_to_characters(texts, in_bytes) == spans


@st.composite
def draw_spans(draw, count):
    """Draws spans of positions from 0 to `count`, and `None` for the sentinel."""
    position = st.integers(0, count)
    pairs = draw(st.lists(st.none() | st.tuples(position, position).map(sorted), max_size=4))
    return [None if pair is None else tuple(pair) for pair in pairs]


@given(st.lists(any_strings | byte_strings | hard_texts | hard_texts.map(str.encode), max_size=4), st.data())
def test_many_texts_equal_separate_texts(texts, data):
    """Includes surrogates, bytes that are not UTF-8, and positions inside characters."""

    def check(convert, convert_one, counts, first):
        pairs = [data.draw(draw_spans(count)) for count in counts]
        spans = [
            [(first - 1,) * 2 if pair is None else (pair[0] + first, pair[1] + first) for pair in row]
            for row in pairs
        ]
        expected = [convert_one(text, row).tolist() for text, row in zip(texts, spans, strict=True)]
        labelled, expected = (
            [[(*pair, f"{i}") for i, pair in enumerate(row)] for row in rows] for rows in (spans, expected)
        )
        assert convert(texts, labelled) == expected

    characters = [len(text if isinstance(text, str) else to_characters(text)) for text in texts]
    check(tokjax.align.spans_from_characters, tokjax.offsets.char_to_byte_spans, characters, 0)
    num_bytes = [len(tokjax.offsets.to_utf8(text)) for text in texts]
    check(tokjax.align.spans_to_characters, tokjax.offsets.byte_to_char_spans, num_bytes, 1)


@pytest.mark.parametrize("text", ["abc", "äbc", b"abc", "äbc".encode(), b"\x80bc", "\ud83d\ude42c"])
@pytest.mark.parametrize("pair", [(0, 9), (2, 1), (-1, 1), (-2, -2), (1, 2**40)])
def test_positions_out_of_range(text, pair):
    for convert, convert_one in (
        (tokjax.align.spans_from_characters, tokjax.offsets.char_to_byte_spans),
        (tokjax.align.spans_to_characters, tokjax.offsets.byte_to_char_spans),
    ):
        with pytest.raises(tokjax.errors.OffsetsContractError) as separate_error:
            convert_one(text, [(1, 1), pair])
        with pytest.raises(tokjax.errors.OffsetsContractError) as batch_error:
            convert(["é", text, "a"], [[], [(1, 1, "PER"), (*pair, "PER")], [(0, 9, "PER")]])
        assert str(batch_error.value) == f"text 1: {separate_error.value}"


EMOJI = "💩This 👩‍👩‍👧 e\u0301 \r\n Zoë"


@given(any_strings | st.text("💩👩\u200de\u0301\r\n🇩🇪a", max_size=12), st.data())
def test_units_equal_counting_the_text_before_each_position(text, data):
    """Each unit, in both directions; the positions between graphemes are valid in all of them."""
    text = to_characters(text)  # with surrogate pairs joined
    edges = [0]
    for grapheme in regex.findall(r"\X", text):
        edges.append(edges[-1] + len(grapheme))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(edges) - 1)] * 2)))
    start, stop = edges[first], edges[last]
    expected = tokjax.align.spans_from_characters([text], [[(start, stop, "X")]])
    utf16 = [len(text[:edge].encode("utf-16-le")) // 2 for edge in (start, stop)]
    for unit, span in (("codepoint", (start, stop)), ("utf16", utf16), ("grapheme", (first, last))):
        spans = [[(*span, "X"), (-1, -1, "Y")]]
        in_bytes = tokjax.align.spans_from_characters([text], spans, unit=unit)
        assert in_bytes == [[*expected[0], (0, 0, "Y")]]
        assert tokjax.align.spans_to_characters([text], in_bytes, unit=unit) == spans


def test_errors_name_the_units_in_which_spans_are_valid():
    for text, unit, span, message in (
        (EMOJI, "utf16", (1, 5), r"inside a surrogate pair; .* unit='codepoint' and unit='grapheme'$"),
        (EMOJI, "utf16", (0, 28), "must keep 0 <= start <= stop <= 25 UTF-16 code units$"),
        (
            EMOJI,
            "codepoint",
            (0, 22),
            "<= 21 characters; the spans of this text are valid with unit='utf16'$",
        ),
        (EMOJI, "grapheme", (0, 16), "<= 15 graphemes; .* unit='codepoint' and unit='utf16'$"),
        ("\ud83d\ude42!", "utf16", (1, 2), "inside a surrogate pair; .* unit='codepoint' "),
    ):
        with pytest.raises(tokjax.errors.OffsetsContractError, match=f"text 1: span 0 is .*{message}"):
            tokjax.align.spans_from_characters(["a", text], [[(0, 1, "X")], [(*span, "X")]], unit=unit)
    with rejects("unit must be 'codepoint', .*, not 'utf8'"):
        tokjax.align.spans_to_characters(["a"], [[]], unit="utf8")
    inside = tokjax.align.spans_to_characters([EMOJI], [[(2, 3, "X")]], unit="utf16")
    assert inside == [[(0, 2, "X")]]  # rounded outward


def test_invalid_spans_are_rejected():
    with rejects("spans has 1 rows, and there are 2 texts"):
        tokjax.align.spans_to_characters(["a", "b"], [[]])
    with rejects(r"text 0: a span is \(start, stop, label\), not \(0, 1\)"):
        tokjax.align.spans_from_characters(["abc"], [[(0, 1)]])
