"""Tests of the split patterns, against the `regex` package."""

import itertools

import pytest
import regex
from hypothesis import given

from tests.pretokenize.test_boundary_tables import ALPHABET
from tests.support.text_strategies import any_strings
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter
from tokjax.pretokenize.unicode_classes import map_text_to_representatives

EXPRESSIONS = {name: regex.compile(pattern) for name, pattern in PATTERNS.items()}
MORE = ["t", "L", "v", "E", "\x0b", "\x1c", "\x1f", "\x00", "\ufeff"]


def split_with_regex(name, text):
    spans = [match.span() for match in EXPRESSIONS[name].finditer(map_text_to_representatives(text))]
    return [text[start:stop] for start, stop in spans]


@pytest.mark.parametrize("name", PATTERNS)
def test_all_combinations_of_classes_equal_regex(name):
    split = make_pattern_splitter(name).split
    for length in (1, 2, 3):
        for characters in itertools.product([*ALPHABET, *MORE], repeat=length):
            text = "".join(characters)
            assert split(text) == split_with_regex(name, text), text
    for letters in itertools.product("'sStTlLvVrReEmMdD ſ", repeat=3):
        text = "'" + "".join(letters)
        assert split(text) == split_with_regex(name, text), text


@pytest.mark.parametrize("name", PATTERNS)
@given(any_strings.filter(is_encodable))
def test_any_text_equals_regex(name, text):
    """Texts of up to 100 characters are mapped by a dictionary, and longer ones by arrays."""
    split = make_pattern_splitter(name).split
    assert split(text) == split_with_regex(name, text)
    assert split(text * 3 + "é" * 101) == split_with_regex(name, text * 3 + "é" * 101)
