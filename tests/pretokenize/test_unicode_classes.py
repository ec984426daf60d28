"""Tests of the pinned Unicode tables, against the installed tiktoken and tokenizers."""

import numpy as np
import pytest

from tests.support import generate_bert_characters as library
from tests.support.generate_unicode_classes import compute_tiktoken_categories, find_members
from tokjax.pretokenize import unicode_classes
from tokjax.pretokenize.split_expressions import contains, find_property
from tokjax.pretokenize.unicode_classes import (
    load_categories,
    load_code_point_flags,
    load_lowercase_map,
)


def test_categories_of_all_code_points_equal_tiktokens():
    assert (load_categories() == compute_tiktoken_categories()).all()


def test_chinese_characters_equal_tiktokens():
    codes = np.arange(unicode_classes.CODE_POINTS)
    assert (contains(find_property("Han"), codes) == find_members(r"\p{Han}")).all()


@pytest.mark.slow
def test_flags_of_all_code_points_equal_the_librarys():
    differences = load_code_point_flags() ^ library.compute_library_flags()
    # Releases of the library differ in the graphemes of characters that were added later.
    is_old = np.zeros(unicode_classes.CODE_POINTS, bool)
    is_old[library.list_assigned_code_points()] = True
    differences[~is_old] &= ~np.uint16(unicode_classes.EXTENDS)
    assert np.flatnonzero(differences).tolist() == []


@pytest.mark.slow
def test_lower_case_of_all_code_points_equals_the_librarys():
    expected, lowercase = library.compute_library_lowercase(), load_lowercase_map()
    differences = [
        code for code in library.list_assigned_code_points() if expected.get(code) != lowercase.get(code)
    ]
    assert differences == []


def test_every_flag_occurs():
    """Otherwise the comparison of the flags could not fail."""
    names = ("DROPPED", "ACCENT", "PUNCTUATION", "CHINESE", "DECOMPOSES", "COMBINES")
    names += ("EXTENDS", "STRIPPED", "COMPATIBLE")
    counts = {
        name: int((load_code_point_flags() & getattr(unicode_classes, name) != 0).sum()) for name in names
    }
    assert min(counts.values()) > 500
