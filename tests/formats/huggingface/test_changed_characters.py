"""Tests of spans of characters that a normalizer changes together."""

import numpy as np
import pytest
from hypothesis import given
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

import tokjax
from tests.support.span_checks import assert_contract, find_uncovered
from tests.support.text_strategies import hard_texts

NFC = normalizers.NFC()
QUOTES = normalizers.Replace("``", '"')
CASES = {
    "an accent": (NFC, "se\u0301s", ["s", "e\u0301", "s"]),
    "several accents": (NFC, "a\u0327\u0301x", ["a\u0327", "\u0301", "x"]),
    "jamo": (NFC, "\u1112\u1161\u11abs", ["\u1112\u1161\u11ab", "s"]),
    "voiced marks": (normalizers.NFKC(), "ｶﾞs", ["ｶﾞ", "s"]),
    "at the end": (NFC, "s\ne\u0301", ["s", "\n", "e\u0301"]),
    "two characters to one": (QUOTES, "s``s", ["s", "``", "s"]),
    "two characters to two": (normalizers.Replace("ab", "ba"), "sabs", ["s", "ab", "", "s"]),
    "repeated": (normalizers.Replace(Regex("s{2,}"), "s"), "xsssx", ["x", "sss", "x"]),
    "removed": (normalizers.Replace("a", ""), "sas", ["s", "s"]),
    "removed marks": (normalizers.StripAccents(), "se\u0301s", ["s", "e", "s"]),
    "prefix": (normalizers.Sequence([normalizers.Prepend("s"), NFC]), "xe\u0301", ["", "x", "e\u0301"]),
}


def make_tokenizer(normalizer, pre_tokenizer=None):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "s": 1}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return tokjax.formats.from_huggingface(tokenizer)


@pytest.mark.parametrize("name", CASES)
def test_spans(name):
    normalizer, text, expected = CASES[name]
    result = tokjax.encode_result(make_tokenizer(normalizer), text)
    assert [tokjax.try_span_substring(text, span) for span in result.offsets] == expected


def test_whitespace_between_words_is_in_no_span():
    tokenizer = make_tokenizer(normalizers.Sequence([NFC, QUOTES]), pre_tokenizers.WhitespaceSplit())
    result = tokjax.encode_result(tokenizer, "e\u0301 \u3000``e\u0301")
    assert result.offsets.tolist() == [[1, 4], [8, 13]]


def test_bytes_that_are_not_utf8():
    text = b"e\xcc\x81\xffe\xcc"
    result = tokjax.encode_result(make_tokenizer(NFC), text)
    assert result.offsets.tolist() == [[1, 4], [4, 5], [5, 6], [6, 7]]


@pytest.mark.parametrize("normalizer", [NFC, normalizers.NFKC(), normalizers.NFKD(), QUOTES])
@given(text=hard_texts)
def test_no_character_is_left_out(normalizer, text):
    result = tokjax.encode_result(make_tokenizer(normalizer), text)
    assert_contract(text, result.offsets.tolist())
    assert find_uncovered(text, result.offsets) == []
    np.testing.assert_array_equal(result.ids, tokjax.encode(make_tokenizer(normalizer), text))
