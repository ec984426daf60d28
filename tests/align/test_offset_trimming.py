"""Tests of `trim_offsets`."""

from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.support.text_strategies import any_strings, hard_texts
from tests.support.token_strategies import array, make_ragged_rows

texts_of_whitespace = st.text(" \n\x1f\x85\xa0\u1680\u2003\u202f\u3000\u200ba中🙂", max_size=8)


@given(st.lists(texts_of_whitespace | hard_texts | any_strings | st.binary(max_size=12), max_size=3))
def test_trim_offsets(tokenizer, texts):
    batch = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=())
    for row, (text, trimmed) in enumerate(zip(texts, _trim_rows(batch, texts), strict=True)):
        whitespace = oracle.find_whitespace_bytes(tokjax.offsets.to_utf8(text))
        expected = [oracle.trim_token(tuple(token), whitespace) for token in batch[row].offsets.tolist()]
        assert [*map(tuple, trimmed)] == expected


def test_characters_do_not_span_two_texts():
    """The bytes of U+2000 are not whitespace if they are in two texts."""
    offsets = make_ragged_rows([[(1, 4)], [(1, 2), (2, 3)]])
    assert tokjax.align.trim_offsets(offsets, [b"a\xe2\x80", b"\x80b"]).tolist() == [[1, 4], [1, 2], [2, 3]]


def test_long_whitespace_is_trimmed():
    for whitespace, width in ((" ", 1), ("\u3000", 3)):
        text = f"{whitespace * 500}a{whitespace * 500}"
        offsets = array([(1, len(text.encode()) + 1), (1, 400 * width + 1)])
        letter = 500 * width + 1
        assert tokjax.align.trim_offsets(offsets, [text]).tolist() == [
            [letter, letter + 1],
            [400 * width + 1] * 2,
        ]


def _trim_rows(batch, texts):
    trimmed = tokjax.align.trim_offsets(batch, texts).tolist()
    splits = batch.row_splits.tolist()
    return [trimmed[start:stop] for start, stop in zip(splits, splits[1:], strict=False)]
