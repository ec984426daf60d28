"""The normal form against the library's own, also where that is slow."""

import unicodedata

from hypothesis import given, strategies as st

from tokjax.pretokenize import unicode_normalization
from tokjax.pretokenize.unicode_normalization import align_nfc, to_nfc

# Marks of many classes, marks of class 0, and some that are themselves two marks.
MARKS = "\u0300\u0301\u0316\u0323\u0327\u0338\u0344\u0345\u05b0\u093c\u093e\u0f71\u0f72\u0f73\u20dd\u0f81"


@given(st.lists(st.tuples(st.sampled_from("eaq가क \n"), st.text(MARKS, max_size=150)), max_size=4))
def test_long_runs_of_marks(parts):
    text = "".join(letter + marks for letter, marks in parts)
    assert to_nfc(text) == unicodedata.normalize("NFC", text)
    alignment = align_nfc(text)
    assert alignment.before[-1] == len(text.encode())
    assert alignment.after[-1] == len(to_nfc(text).encode())


def test_marks_are_sorted_before_the_library_sees_them(monkeypatch):
    """It takes quadratic time for marks that are out of order."""
    seen = []

    class Watched:
        combining = unicodedata.combining
        category = unicodedata.category

        @staticmethod
        def normalize(form, text):
            seen.append(text)
            return unicodedata.normalize(form, text)

    monkeypatch.setattr(unicode_normalization, "unicodedata", Watched)
    to_nfc("e" + "\u0301\u0316" * 100)
    assert seen == ["e" + "\u0316" * 100 + "\u0301" * 100]
