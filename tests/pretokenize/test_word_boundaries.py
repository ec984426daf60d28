"""Tests of word boundaries, against the pre-tokenizers of Hugging Face's tokenizers."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import pre_tokenizers

from tests.pretokenize.test_bert_normalizer import bert_texts
from tests.support import generate_bert_characters as library
from tests.support.text_strategies import byte_strings
from tokjax.core.utf8 import is_encodable, to_characters
from tokjax.pretokenize.word_boundaries import SPLITTERS, compile_word_expression, find_word_bounds

LIBRARY_SPLITTERS = {
    "whitespace": pre_tokenizers.WhitespaceSplit(),
    "bert": pre_tokenizers.BertPreTokenizer(),
}


def split_with_library(splitter, text):
    return [word for word, _ in LIBRARY_SPLITTERS[splitter].pre_tokenize_str(text)]


def split_with_arrays(splitter, texts):
    joined = "".join(f"{text}\n" for text in texts)
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    bounds = find_word_bounds(splitter, codes, ends)
    if is_encodable(joined):
        assert np.array_equal(find_word_bounds(splitter, joined.encode(), ends), bounds)
    return [joined[start:stop] for start, stop in zip(*bounds, strict=True)]


@pytest.mark.parametrize("splitter", SPLITTERS)
@given(text=st.one_of(bert_texts, st.text(st.sampled_from("a .“\u3000—é中,\n"), max_size=30)))
def test_arrays_and_expression_agree_with_the_library(splitter, text):
    expected = split_with_library(splitter, text)
    assert split_with_arrays(splitter, [text]) == expected
    assert split_with_arrays(splitter, [text, "", text]) == expected * 2
    assert compile_word_expression(splitter).findall(text) == expected


@given(data=byte_strings)
def test_words_of_invalid_utf8(data):
    characters = to_characters(data)
    assert split_with_arrays("bert", [characters]) == compile_word_expression("bert").findall(characters)


@pytest.mark.slow
@pytest.mark.parametrize("splitter", SPLITTERS)
def test_every_code_point_between_letters(splitter):
    text = "".join(f"a{chr(code)}b " for code in library.CODES)
    assert split_with_arrays(splitter, [text]) == split_with_library(splitter, text)
