"""Tests of NFC normalization, against `unicodedata` and the `tokenizers` library."""

import unicodedata

from hypothesis import given, strategies as st
from tokenizers import normalizers

from tokjax.pretokenize import normalization
from tokjax.pretokenize.normalization import align_nfc, to_nfc

# Marks of many combining classes, marks of class 0, and marks that decompose to two marks.
MARKS = "\u0300\u0301\u0316\u0323\u0327\u0338\u0344\u0345\u05b0\u093c\u093e\u0f71\u0f72\u0f73\u20dd\u0f81"


@given(st.lists(st.tuples(st.sampled_from("eaq가क \n"), st.text(MARKS, max_size=150)), max_size=4))
def test_nfc_of_long_runs_of_marks(parts):
    text = "".join(letter + marks for letter, marks in parts)
    assert to_nfc(text) == unicodedata.normalize("NFC", text)
    alignment = align_nfc(text)
    assert alignment.before[-1] == len(text.encode())
    assert alignment.after[-1] == len(to_nfc(text).encode())


LIBRARY = normalizers.NFC()
NEW = "\u07fd\u0898\u1acf\U0001e08f\U00010d24\U00011930\U00011935\U00011938\U000105d2"
"""Characters that Unicode has since a version after 9."""


def list_characters_that_combine():
    codes = range(0x80, 0x1F000)
    return [chr(c) for c in codes if unicodedata.combining(chr(c)) or unicodedata.decomposition(chr(c))]


def test_every_character_that_combines():
    """The tables of Unicode in `unicodedata` are newer than those of the library."""
    contexts = ("a{}\u0301", "a\u0301{}\u0323", "\u0334{}\u0334\u0345", "{}\u0307", "\U00011935{}")
    forms = (form for c in list_characters_that_combine() for form in (c, unicodedata.normalize("NFD", c)))
    texts = [context.format(form) for form in forms for context in contexts]
    assert [text for text in texts if to_nfc(text) != LIBRARY.normalize_str(text)] == []


@given(st.text(st.sampled_from("ae\u0301\u0323\u0334\u0307 가\u11a8" + NEW), max_size=12))
def test_new_characters_in_context(text):
    assert to_nfc(text) == LIBRARY.normalize_str(text)
    assert align_nfc(text).after[-1] == len(to_nfc(text).encode())


def test_long_runs_of_marks_are_sorted_before_normalization(monkeypatch):
    """`unicodedata` takes quadratic time for marks that are out of order."""
    normalized = []

    class RecordingUnicodedata:
        combining = unicodedata.combining
        category = unicodedata.category
        decomposition = unicodedata.decomposition

        @staticmethod
        def normalize(form, text):
            normalized.append(text)
            return unicodedata.normalize(form, text)

    monkeypatch.setattr(normalization, "unicodedata", RecordingUnicodedata)
    to_nfc("e" + "\u0301\u0316" * 100)
    assert normalized == ["e" + "\u0316" * 100 + "\u0301" * 100]
