"""BERT's normaliser and the words after it, against Hugging Face's tokenizers."""

import itertools
import unicodedata

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import normalizers, pre_tokenizers

import tokjax
from tests.support import generate_bert_characters as library
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax.core.utf8 import find_character_starts, to_characters, to_utf8
from tokjax.pretokenize import unicode_classes
from tokjax.pretokenize.bert_normalizer import BertNormalizer
from tokjax.pretokenize.unicode_classes import load_code_point_flags, load_lowercase_map
from tokjax.pretokenize.unicode_normalization import map_spans_back
from tokjax.pretokenize.word_boundaries import (
    SPLITTERS,
    compile_word_expression,
    find_character_word_bounds,
    find_word_bounds,
)

STEPS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
ALL_STEPS = [dict(zip(STEPS, on, strict=True)) for on in itertools.product([False, True], repeat=4)]
LIBRARY_SPLITTERS = {
    "whitespace": pre_tokenizers.WhitespaceSplit(),
    "bert": pre_tokenizers.BertPreTokenizer(),
}
# Marks that stay when accents are stripped and are put in order, what decomposes to them, cased letters whose
# lower case depends on their place, ideographs that decompose, and what is dropped.
HARD = "aÉİΣσς \t\x01\x85\ufffd\u200d中豈\ud55c\u0301\u0334\u1b44\u302e\U0001d165\U0001d15e\u0344“¿।\u3000"
bert_texts = st.one_of(st.text(st.sampled_from(HARD), max_size=20), hard_texts)
texts_with_any = st.one_of(bert_texts, any_strings, byte_strings)


def normalize_with_library(text, steps):
    return normalizers.BertNormalizer(**steps).normalize_str(text)


def iter_code_points():
    """All but surrogates, and but those that Unicode gave out after this Python: other releases of the
    library may know another lower case of them."""
    return [code for code in library.CODES if unicodedata.category(chr(code)) != "Cn"]


@pytest.mark.slow
def test_the_table_of_bits_is_the_library_s():
    assert np.flatnonzero(load_code_point_flags() != library.compute_library_bits()).tolist() == []


@pytest.mark.slow
def test_the_table_of_lower_case_is_the_library_s():
    theirs, ours = library.compute_library_lowercase(), load_lowercase_map()
    assert [code for code in iter_code_points() if theirs.get(code) != ours.get(code)] == []


@pytest.mark.slow
@pytest.mark.parametrize("steps", [*ALL_STEPS[1:3], ALL_STEPS[4], ALL_STEPS[8], ALL_STEPS[15]], ids=str)
def test_every_code_point(steps):
    """Between two letters, so that blanks and marks show."""
    ours, theirs = BertNormalizer(**steps).normalize, normalizers.BertNormalizer(**steps).normalize_str
    differ = [c for c in iter_code_points() if ours(f"a{chr(c)}b") != theirs(f"a{chr(c)}b")]
    assert differ == []


@pytest.mark.parametrize("steps", ALL_STEPS, ids=str)
@given(text=bert_texts)
def test_any_text(steps, text):
    assert BertNormalizer(**steps).normalize(text) == normalize_with_library(text, steps)


def test_cache_is_bounded(monkeypatch):
    from tokjax.pretokenize import bert_normalizer

    monkeypatch.setattr(bert_normalizer, "_MAX_CACHED", 3)
    text = "ÀÉÎÕÜ中豈\u0301\u1b44\u302e"
    assert BertNormalizer().normalize(text) == normalize_with_library(text, ALL_STEPS[-1])


@get_max_examples(50)
@given(text=texts_with_any)
def test_str_and_bytes_alike(text):
    normalizer = BertNormalizer()
    assert to_utf8(normalizer.normalize(text)) == normalizer.normalize(to_utf8(text))


def test_bytes_that_are_no_utf8_stay():
    assert BertNormalizer().normalize(b"A\xff\xc3 \xe4\xb8\xad") == b"a\xff\xc3  \xe4\xb8\xad "


def test_special_tokens_stay():
    text = "[CLS] É\u0301[CLS]\u0301"
    assert BertNormalizer().normalize(text, frozenset({"[CLS]"})) == "[CLS] e[CLS]"


@pytest.mark.parametrize("steps", [ALL_STEPS[0], ALL_STEPS[5], ALL_STEPS[15]], ids=str)
@given(text=texts_with_any)
def test_groups_concatenate_to_the_text(steps, text):
    """What spans of the normal form map to, put side by side, is the text: nothing lost, nothing twice."""
    normalizer = BertNormalizer(**steps)
    alignment = normalizer.align(text)
    assert alignment.before[-1] == len(to_utf8(text))
    assert alignment.after[-1] == len(to_utf8(normalizer.normalize(text)))
    assert (np.diff(alignment.before) > 0).all() or not len(to_utf8(text))
    starts = np.flatnonzero(alignment.is_bytewise)
    before, after = to_utf8(text), to_utf8(normalizer.normalize(text))
    for i in starts.tolist():
        old = before[alignment.before[i] : alignment.before[i + 1]]
        new = after[alignment.after[i] : alignment.after[i + 1]]
        spaces = bytes.maketrans(b"\t\n\r", b"   ")
        assert old.lower().translate(spaces) == new.lower().translate(spaces)


def test_mapping_to_input():
    text = "A\x00 Café e\u0301t\u00e9 中"
    normalizer = BertNormalizer()
    normal = normalizer.normalize(text)
    assert normal == "a cafe ete  中 "
    words = [(1, 2), (3, 7), (8, 11), (13, 16), (0, 0)]
    assert [tokjax.try_span_substring(normal, span) for span in words] == ["a", "cafe", "ete", "中", ""]
    back = map_spans_back(normalizer.align(text), np.array(words))
    assert [tokjax.try_span_substring(text, span) for span in back] == ["A", "Café", "e\u0301té", "中", ""]


def test_steps_are_reported():
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="lowercase must be True or False, not 'yes'"
    ):
        BertNormalizer(lowercase="yes")


@pytest.mark.parametrize("splitter", SPLITTERS)
@given(text=st.one_of(bert_texts, st.text(st.sampled_from("a .“\u3000—é中,\n"), max_size=30)))
def test_words(splitter, text):
    theirs = [word for word, _ in LIBRARY_SPLITTERS[splitter].pre_tokenize_str(text)]
    data = text.encode() + b"\n"
    in_bytes = find_word_bounds(splitter, data)
    assert [data[start:stop].decode() for start, stop in zip(*in_bytes, strict=True)] == theirs
    codes = np.frombuffer(f"{text}\n".encode("utf-32-le"), "<u4")
    in_characters = find_character_word_bounds(splitter, codes, find_character_starts(text + "\n"))
    assert np.array_equal(in_characters, in_bytes)
    assert compile_word_expression(splitter).findall(text) == theirs


@given(data=byte_strings)
def test_words_of_bytes_that_are_no_utf8(data):
    characters = to_characters(data) + "\n"
    codes = np.frombuffer(characters.encode("utf-32-le", "surrogatepass"), "<u4")
    starts, stops = find_character_word_bounds("bert", codes, find_character_starts(data + b"\n"))
    words = [to_characters(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]
    assert words == compile_word_expression("bert").findall(characters)


@pytest.mark.slow
@pytest.mark.parametrize("splitter", SPLITTERS)
def test_every_code_point_between_letters(splitter):
    text = "".join(f"a{chr(code)}b " for code in library.CODES)
    theirs = [word for word, _ in LIBRARY_SPLITTERS[splitter].pre_tokenize_str(text)]
    data = text.encode()
    starts, stops = find_word_bounds(splitter, data)
    assert [data[start:stop].decode() for start, stop in zip(starts, stops, strict=True)] == theirs


def test_the_table_holds_every_kind_of_character():
    """So that the comparison of tables can fail."""
    names = ("DROPPED", "ACCENT", "PUNCTUATION", "CHINESE", "DECOMPOSES", "COMBINES")
    counts = {
        name: int((load_code_point_flags() & getattr(unicode_classes, name) != 0).sum()) for name in names
    }
    assert min(counts.values()) > 500
