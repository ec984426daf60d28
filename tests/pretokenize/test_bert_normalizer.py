"""Tests of BERT's normalizer, against Hugging Face's tokenizers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import normalizers

import tokjax
from tests.support import generate_bert_characters as library
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax.core.utf8 import to_utf8
from tokjax.pretokenize import unicode_classes
from tokjax.pretokenize.normalization import BertNormalizer, map_spans_back

STEPS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
ALL_STEPS = [dict(zip(STEPS, on, strict=True)) for on in itertools.product([False, True], repeat=4)]
# Marks that `strip_accents` sorts but does not remove, characters that decompose to them, letters whose lower
# case depends on their position, ideographs that decompose, and characters that `clean_text` removes.
HARD = "aÉİΣσς \t\x01\x85\ufffd\u200d中豈\ud55c\u0301\u0334\u1b44\u302e\U0001d165\U0001d15e\u0344“¿।\u3000"
bert_texts = st.one_of(st.text(st.sampled_from(HARD), max_size=20), hard_texts)
all_texts = st.one_of(bert_texts, any_strings, byte_strings)


def normalize_with_library(text, steps):
    return normalizers.BertNormalizer(**steps).normalize_str(text)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [*ALL_STEPS[1:3], ALL_STEPS[4], ALL_STEPS[8], ALL_STEPS[15]], ids=str)
def test_every_code_point_between_letters(steps):
    """Each code point is between two letters, so that spaces and marks have an effect."""
    normalize, expected = BertNormalizer(**steps).normalize, normalizers.BertNormalizer(**steps).normalize_str
    texts = [f"a{chr(code)}b" for code in library.list_assigned_code_points()]
    assert [text for text in texts if normalize(text) != expected(text)] == []


@pytest.mark.parametrize("steps", ALL_STEPS, ids=str)
@given(text=bert_texts)
def test_normalize_agrees_with_the_library(steps, text):
    assert BertNormalizer(**steps).normalize(text) == normalize_with_library(text, steps)


def test_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(unicode_classes, "_MAX_CACHED", 3)
    text = "ÀÉÎÕÜ中豈\u0301\u1b44\u302e"
    assert BertNormalizer().normalize(text) == normalize_with_library(text, ALL_STEPS[-1])


@get_max_examples(50)
@given(text=all_texts)
def test_str_and_bytes_are_normalized_alike(text):
    normalizer = BertNormalizer()
    assert to_utf8(normalizer.normalize(text)) == normalizer.normalize(to_utf8(text))


def test_invalid_utf8_is_preserved():
    assert BertNormalizer().normalize(b"A\xff\xc3 \xe4\xb8\xad") == b"a\xff\xc3  \xe4\xb8\xad "


def test_special_tokens_are_preserved():
    text = "[CLS] É\u0301[CLS]\u0301"
    assert BertNormalizer().normalize(text, frozenset({"[CLS]"})) == "[CLS] e[CLS]"


@pytest.mark.parametrize("steps", [ALL_STEPS[0], ALL_STEPS[5], ALL_STEPS[15]], ids=str)
@given(text=all_texts)
def test_groups_cover_the_text(steps, text):
    """The groups cover the text and its normalized form without gaps or overlaps."""
    normalizer = BertNormalizer(**steps)
    alignment = normalizer.align(text)
    assert alignment.before[-1] == len(to_utf8(text))
    assert alignment.after[-1] == len(to_utf8(normalizer.normalize(text)))
    assert (np.diff(alignment.before) > 0).all() or not len(to_utf8(text))
    bytewise_groups = np.flatnonzero(alignment.is_bytewise)
    before, after = to_utf8(text), to_utf8(normalizer.normalize(text))
    for i in bytewise_groups.tolist():
        old = before[alignment.before[i] : alignment.before[i + 1]]
        new = after[alignment.after[i] : alignment.after[i + 1]]
        spaces = bytes.maketrans(b"\t\n\r", b"   ")
        assert old.lower().translate(spaces) == new.lower().translate(spaces)


def test_spans_are_mapped_to_the_original_text():
    text = "A\x00 Café e\u0301t\u00e9 中"
    normalizer = BertNormalizer()
    normalized = normalizer.normalize(text)
    assert normalized == "a cafe ete  中 "
    words = [(1, 2), (3, 7), (8, 11), (13, 16), (0, 0)]
    assert [tokjax.try_span_substring(normalized, span) for span in words] == ["a", "cafe", "ete", "中", ""]
    mapped = map_spans_back(normalizer.align(text), np.array(words))
    assert [tokjax.try_span_substring(text, span) for span in mapped] == ["A", "Café", "e\u0301té", "中", ""]


def test_steps_must_be_booleans():
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="lowercase must be True or False, not 'yes'"
    ):
        BertNormalizer(lowercase="yes")
