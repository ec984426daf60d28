"""Tests of NFC normalization, against `unicodedata`."""

import unicodedata

from hypothesis import given, strategies as st

from tokjax.pretokenize import unicode_normalization
from tokjax.pretokenize.unicode_normalization import align_nfc, to_nfc

# Marks of many combining classes, marks of class 0, and marks that decompose to two marks.
MARKS = "\u0300\u0301\u0316\u0323\u0327\u0338\u0344\u0345\u05b0\u093c\u093e\u0f71\u0f72\u0f73\u20dd\u0f81"


@given(st.lists(st.tuples(st.sampled_from("eaq가क \n"), st.text(MARKS, max_size=150)), max_size=4))
def test_nfc_of_long_runs_of_marks(parts):
    text = "".join(letter + marks for letter, marks in parts)
    assert to_nfc(text) == unicodedata.normalize("NFC", text)
    alignment = align_nfc(text)
    assert alignment.before[-1] == len(text.encode())
    assert alignment.after[-1] == len(to_nfc(text).encode())


def test_long_runs_of_marks_are_sorted_before_normalization(monkeypatch):
    """`unicodedata` takes quadratic time for marks that are out of order."""
    normalized = []

    class RecordingUnicodedata:
        combining = unicodedata.combining
        category = unicodedata.category

        @staticmethod
        def normalize(form, text):
            normalized.append(text)
            return unicodedata.normalize(form, text)

    monkeypatch.setattr(unicode_normalization, "unicodedata", RecordingUnicodedata)
    to_nfc("e" + "\u0301\u0316" * 100)
    assert normalized == ["e" + "\u0316" * 100 + "\u0301" * 100]
