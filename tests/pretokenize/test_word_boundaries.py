"""Tests of word boundaries, against the pre-tokenizers of Hugging Face's tokenizers."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import pre_tokenizers

from tests.pretokenize.test_bert_normalizer import bert_texts
from tests.support import generate_bert_characters as library
from tests.support.text_strategies import byte_strings
from tokjax.core.utf8 import find_character_starts, to_characters
from tokjax.pretokenize.word_boundaries import (
    SPLITTERS,
    compile_word_expression,
    find_character_word_bounds,
    find_word_bounds,
)

LIBRARY_SPLITTERS = {
    "whitespace": pre_tokenizers.WhitespaceSplit(),
    "bert": pre_tokenizers.BertPreTokenizer(),
}


def split_with_library(splitter, text):
    return [word for word, _ in LIBRARY_SPLITTERS[splitter].pre_tokenize_str(text)]


@pytest.mark.parametrize("splitter", SPLITTERS)
@given(text=st.one_of(bert_texts, st.text(st.sampled_from("a .“\u3000—é中,\n"), max_size=30)))
def test_bytes_characters_and_expression_agree_with_the_library(splitter, text):
    expected = split_with_library(splitter, text)
    data = text.encode() + b"\n"
    bounds = find_word_bounds(splitter, data)
    assert [data[start:stop].decode() for start, stop in zip(*bounds, strict=True)] == expected
    codes = np.frombuffer(f"{text}\n".encode("utf-32-le"), "<u4")
    character_bounds = find_character_word_bounds(splitter, codes, find_character_starts(text + "\n"))
    assert np.array_equal(character_bounds, bounds)
    assert compile_word_expression(splitter).findall(text) == expected


@given(data=byte_strings)
def test_words_of_invalid_utf8(data):
    characters = to_characters(data) + "\n"
    codes = np.frombuffer(characters.encode("utf-32-le", "surrogatepass"), "<u4")
    starts, stops = find_character_word_bounds("bert", codes, find_character_starts(data + b"\n"))
    words = [to_characters(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]
    assert words == compile_word_expression("bert").findall(characters)


@pytest.mark.slow
@pytest.mark.parametrize("splitter", SPLITTERS)
def test_every_code_point_between_letters(splitter):
    text = "".join(f"a{chr(code)}b " for code in library.CODES)
    data = text.encode()
    starts, stops = find_word_bounds(splitter, data)
    words = [data[start:stop].decode() for start, stop in zip(starts, stops, strict=True)]
    assert words == split_with_library(splitter, text)
