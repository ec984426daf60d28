"""Tests of `encode_windows`, as in Hugging Face's `tokenizers` for single texts."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.encoding.wordpiece_tokenizers import (
    assert_equal_results,
    get_input_spans,
    get_reference_spans,
    make_tokenizers,
    texts,
)


@given(text=texts, question=texts, max_length=st.integers(9, 24), stride=st.integers(0, 4))
def test_windows(text, question, max_length, stride):
    tokenizer, reference = make_tokenizers()
    capacity = max_length - 2
    reference.enable_truncation(max_length, stride=stride)
    encoding = reference.encode(text)
    expected = [encoding, *encoding.overflowing]
    reference.no_truncation()
    windows = tokjax.encode_windows(tokenizer, [text], max_length=max_length, stride=stride)
    assert windows.text_ids.tolist() == [0] * len(expected)
    for result, window in zip(windows.batch, expected, strict=True):
        assert_equal_results(result, window)
        assert len(result) <= capacity + 2
        assert get_input_spans(tokenizer, text, result, 0) == get_reference_spans(text, window, 0)


@given(pairs=st.lists(st.tuples(texts, texts), max_size=4), stride=st.integers(0, 3))
def test_windows_of_pairs_cover_the_context(pairs, stride):
    tokenizer, _ = make_tokenizers()
    questions, contexts = [q for q, _ in pairs], [c for _, c in pairs]
    longest = max((len(tokjax.encode(tokenizer, q, add_special_tokens=False)) for q in questions), default=0)
    max_length = longest + 3 + stride + 2
    windows = tokjax.encode_windows(
        tokenizer, questions, contexts, max_length=max_length, stride=stride, truncation="only_second"
    )
    assert sorted(set(windows.text_ids.tolist())) == list(range(len(pairs)))
    for i, (question, context) in enumerate(pairs):
        results = [windows.batch[j] for j in np.flatnonzero(windows.text_ids == i)]
        full = tokjax.encode_result(tokenizer, context, add_special_tokens=False)
        seen = []  # offsets in the context; consecutive windows have `stride` tokens in common
        for number, result in enumerate(results):
            assert (
                result.ids[result.sequence_ids == 0].tolist()
                == tokjax.encode(tokenizer, question, add_special_tokens=False).tolist()
            )
            part = result.offsets[result.sequence_ids == 1].tolist()
            assert part[:stride] == seen[-stride:] if stride and number else True
            seen += part[stride if number else 0 :]
        assert seen == full.offsets.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 3, "max_length": 5}, r"stride is 3, and a window holds 3 tokens of its text"),
        ({"stride": -1, "max_length": 5}, r"stride must be at least 0, not -1"),
        (
            {"max_length": 5, "truncation": "longest_first"},
            r"truncation of windows must be 'only_first'",
        ),
        ({"max_length": 5, "pairs": ["to be or"]}, r"'only_first' does not truncate has 3 tokens, and"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.encode_windows(make_tokenizers()[0], ["to be or not"], **options)
