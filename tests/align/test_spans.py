"""Labelled spans of texts, tag sets, and tokens without their white space."""

import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tests.support.token_strategies import LABELS, array, make_ragged_rows
from tokjax.core.utf8 import to_characters


def test_tag_sets():
    expected = {
        "BIO": "O B-PER I-PER B-ORG I-ORG",
        "BILOU": "O B-PER I-PER L-PER U-PER B-ORG I-ORG L-ORG U-ORG",
        "IOBES": "O B-PER I-PER E-PER S-PER B-ORG I-ORG E-ORG S-ORG",
        "IO": "O I-PER I-ORG",
        "IOE2": "O I-PER E-PER I-ORG E-ORG",
    }
    for scheme, tags in expected.items():
        tagset = tokjax.align.TagSet(["PER", "ORG"], scheme)
        assert " ".join(tagset.tags) == tags
        assert len(tagset) == len(tagset.tags)
        assert tagset.get_ids(tagset.tags).tolist() == list(range(len(tagset)))
        assert tagset.get_tags([*range(len(tagset)), -100]) == [*tagset.tags, "_"]
        assert pickle.loads(pickle.dumps(tagset)) == tagset == tokjax.align.TagSet(("PER", "ORG"), scheme)
        assert hash(tagset) == hash(tokjax.align.TagSet(("PER", "ORG"), scheme))
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="no tag 'B-DOG'; the tags are O, I-PER, I-ORG"
    ):
        tokjax.align.TagSet(["PER", "ORG"], "IO").get_id("B-DOG")
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="7 is no tag: there are 7, from 0"):
        tokjax.align.TagSet(LABELS).get_tags([7])
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="ignore_index is 6, which is the tag 'I-A-B'"
    ):
        tokjax.align.TagSet(LABELS).get_tags([6], ignore_index=6)
    for labels in ({"PER", "ORG"}, frozenset(LABELS)):
        for make in (tokjax.align.TagSet, lambda labels: tokjax.align.span_columns([], labels)):
            with pytest.raises(
                tokjax.errors.InvalidArgumentError, match=r"labels is a set, .* sorted\(labels\)"
            ):
                make(labels)
    assert tokjax.align.TagSet(dict.fromkeys(LABELS)).labels == LABELS


def test_tags_of_a_batch():
    ids = np.array([[0, 3, -100], [1, 2, 0]])
    assert tokjax.align.TagSet(LABELS).get_tags(ids) == [["O", "B-ORG", "_"], ["B-PER", "I-PER", "O"]]
    assert tokjax.align.TagSet(LABELS).get_tags(ids[:, :0]) == [[], []]
    assert tokjax.align.TagSet(LABELS).get_tags([]) == []


@given(st.lists(st.tuples(hard_texts, st.randoms(use_true_random=False)), max_size=3))
def test_characters_to_bytes_and_back(given_texts):
    texts, spans = [], []
    for text, random in given_texts:
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
    """Spans of places from 0 to a count, and such as are nowhere, `None`."""
    position = st.integers(0, count)
    pairs = draw(st.lists(st.none() | st.tuples(position, position).map(sorted), max_size=4))
    return [None if pair is None else tuple(pair) for pair in pairs]


@given(st.lists(any_strings | byte_strings | hard_texts | hard_texts.map(str.encode), max_size=4), st.data())
def test_many_texts_are_converted_as_each_alone(texts, data):
    """Surrogates, bytes that are no UTF-8, places inside of characters."""
    for convert, convert_one, length, first, nowhere in (
        (
            tokjax.align.spans_from_characters,
            tokjax.offsets.char_to_byte_spans,
            lambda t: len(to_characters(t)),
            0,
            -1,
        ),
        (
            tokjax.align.spans_to_characters,
            tokjax.offsets.byte_to_char_spans,
            lambda t: len(tokjax.offsets.to_utf8(t)),
            1,
            0,
        ),
    ):
        spans = []
        for text in texts:
            count = length(text) if isinstance(text, bytes) or first else len(text)
            pairs = data.draw(draw_spans(count))
            spans.append(
                [(nowhere,) * 2 if pair is None else (pair[0] + first, pair[1] + first) for pair in pairs]
            )
        labelled = [[(*pair, f"{i}") for i, pair in enumerate(row)] for row in spans]
        expected = [
            [(*pair, f"{i}") for i, pair in enumerate(convert_one(text, row).tolist())]
            for text, row in zip(texts, spans, strict=True)
        ]
        assert convert(texts, labelled) == expected


@pytest.mark.parametrize("text", ["abc", "äbc", b"abc", "äbc".encode(), b"\x80bc", "\ud83d\ude42c"])
@pytest.mark.parametrize("pair", [(0, 9), (2, 1), (-1, 1), (-2, -2), (1, 2**40)])
def test_positions_out_of_range(text, pair):
    for convert, convert_one in (
        (tokjax.align.spans_from_characters, tokjax.offsets.char_to_byte_spans),
        (tokjax.align.spans_to_characters, tokjax.offsets.byte_to_char_spans),
    ):
        with pytest.raises(tokjax.errors.OffsetsContractError) as alone:
            convert_one(text, [(1, 1), pair])
        with pytest.raises(tokjax.errors.OffsetsContractError) as among:
            convert(["é", text, "a"], [[], [(1, 1, "PER"), (*pair, "PER")], [(0, 9, "PER")]])
        assert str(among.value) == f"text 1: {alone.value}"


def test_spans_of_characters_are_refused():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="spans has 1 rows, and there are 2 texts"):
        tokjax.align.spans_to_characters(["a", "b"], [[]])
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"text 0: a span is \(start, stop, label\), not \(0, 1\)"
    ):
        tokjax.align.spans_from_characters(["abc"], [[(0, 1)]])


white_texts = st.text(" \n\x1f\x85\xa0\u1680\u2003\u202f\u3000\u200ba中🙂", max_size=8)


@given(st.lists(white_texts | hard_texts | any_strings | st.binary(max_size=12), max_size=3))
def test_trim_offsets(tokenizer, texts):
    batch = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=())
    for row, (text, trimmed) in enumerate(zip(texts, _trim_rows(batch, texts), strict=True)):
        white = oracle.find_whitespace_bytes(tokjax.offsets.to_utf8(text))
        expected = [oracle.trimmed(tuple(token), white) for token in batch[row].offsets.tolist()]
        assert [*map(tuple, trimmed)] == expected


def test_a_text_ends_where_the_next_begins():
    """The two halves of a U+2000 are no white space if they are of two texts."""
    offsets = make_ragged_rows([[(1, 4)], [(1, 2), (2, 3)]])
    assert tokjax.align.trim_offsets(offsets, [b"a\xe2\x80", b"\x80b"]).tolist() == [[1, 4], [1, 2], [2, 3]]


def test_trim_long_white_space():
    for space, width in ((" ", 1), ("\u3000", 3)):
        text = f"{space * 500}a{space * 500}"
        full = array([(1, len(text.encode()) + 1), (1, 400 * width + 1)])
        solid = 500 * width + 1
        assert tokjax.align.trim_offsets(full, [text]).tolist() == [[solid, solid + 1], [400 * width + 1] * 2]


def _trim_rows(batch, texts):
    trimmed = tokjax.align.trim_offsets(batch, texts).tolist()
    splits = batch.row_splits.tolist()
    return [trimmed[start:stop] for start, stop in zip(splits, splits[1:], strict=False)]
