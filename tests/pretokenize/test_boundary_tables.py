"""Tests of boundary tables, against regular expressions and tiktoken."""

import itertools

import numpy as np
import pytest
import regex
import tiktoken
from hypothesis import given, strategies as st

import tokjax
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import find_character_starts
from tokjax.pretokenize.boundary_tables import find_pretoken_starts, find_pretoken_starts_in_bytes
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter
from tokjax.pretokenize.unicode_classes import CODE_POINTS, END, load_code_point_classes

# A character of every class, and every character that a pattern names.
ALPHABET = [
    "a",
    "s",
    "S",
    "A",
    "é",
    "あ",
    "\u0301",
    "1",
    "\t",
    " ",
    "\n",
    "\r",
    "'",
    "/",
    "!",
    "\u2028",
    "ſ",
    "l",
    "\x0c",
    "\x85",
]
EXPRESSIONS = {name: regex.compile(pattern) for name, pattern in PATTERNS.items()}


def get_code_points(text):
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def compute_starts(pattern, texts):
    """Returns the pre-token starts of several texts, with an `END` after each."""
    codes = np.concatenate([np.append(get_code_points(text), np.uint32(0)) for text in texts])
    classes = load_code_point_classes().take(codes)
    classes[np.cumsum([len(text) + 1 for text in texts]) - 1] = END
    return np.flatnonzero(find_pretoken_starts(pattern, classes, codes)).tolist()


def compute_expected_starts(pattern, texts):
    starts, text_start = [], 0
    for text in texts:
        starts += [text_start + match.start() for match in EXPRESSIONS[pattern].finditer(text)]
        starts.append(text_start + len(text))
        text_start += len(text) + 1
    return starts


def assert_bytes_agree(pattern, texts):
    """Checks that bytes give the same starts as characters, or `None` for a good reason."""
    joined = "".join(text + "\n" for text in texts)
    ends = np.cumsum([len(text.encode()) + 1 for text in texts]) - 1
    flags = find_pretoken_starts_in_bytes(pattern, joined.encode(), ends)
    if flags is None:
        assert not joined.isascii()
        assert pattern in ("o200k", "tekken") or any(not c.isascii() and c.isnumeric() for c in joined)
    else:
        expected = find_character_starts(joined)[compute_starts(pattern, texts)]
        assert np.flatnonzero(flags).tolist() == expected.tolist()


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", [0, 1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_all_short_texts_agree_with_the_expression(pattern, length):
    texts = ["".join(text) for text in itertools.product(ALPHABET, repeat=length)]
    for start in range(0, len(texts), 5000):
        part = texts[start : start + 5000]
        assert compute_starts(pattern, part) == compute_expected_starts(pattern, part)
        assert_bytes_agree(pattern, part)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(texts=st.lists(st.text(st.sampled_from(ALPHABET), max_size=40), min_size=1, max_size=5))
def test_long_texts_agree_with_the_expression(pattern, texts):
    assert compute_starts(pattern, texts) == compute_expected_starts(pattern, texts)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(
    texts=st.lists(
        st.text(st.sampled_from([*ALPHABET, "²", "“", "\u3000", "🙂"]), max_size=40), min_size=1, max_size=5
    )
)
def test_bytes_and_characters_split_alike(pattern, texts):
    assert_bytes_agree(pattern, texts)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(texts=st.lists(hard_texts, min_size=1, max_size=4))
def test_any_texts_agree_with_the_splitter(pattern, texts):
    lengths_by_text = [list(map(len, make_pattern_splitter(pattern).split(text))) for text in texts]
    lengths = [length for text_lengths in lengths_by_text for length in [*text_lengths, 1]]
    assert compute_starts(pattern, texts) == (np.cumsum(lengths) - lengths).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
def test_every_code_point_splits_as_in_tiktoken(pattern):
    """Each code point is between two letters. The tokens show which of the letters it is joined to."""
    ranks = {bytes([i]): i for i in range(256)}
    ranks |= {b"a" + bytes([i]): 256 + i for i in range(256)} | {
        bytes([i]) + b"b": 512 + i for i in range(256)
    }
    ranks.pop(b"ab")
    ranks[b"ab"] = 256 + ord("b")
    encoding = tiktoken.Encoding("x", pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens={})
    tokenizer = tokjax.byte_level_bpe(ranks, pattern=pattern)
    text = "".join(f"a{chr(c)}b " for c in range(CODE_POINTS) if not 0xD800 <= c <= 0xDFFF)
    assert tokjax.encode(tokenizer, text).tolist() == encoding.encode_ordinary(text)
