"""Tests of inputs that take quadratic time in a careless tokenizer, against tiktoken."""

import random
import re

import pytest
import tiktoken
from hypothesis import example, given, strategies as st

import tokjax
from tests.support.split_patterns import SINGLE_EXPRESSIONS
from tests.support.variants import mark_slow_except
from tokjax.pretokenize import special_tokens

SIZE = 12_000
RANDOM = random.Random(0)
INPUTS = {
    "one letter": "a" * SIZE,
    "spaces": " " * SIZE,
    "newlines": "\n" * SIZE,
    "contractions": "'s" * SIZE,
    "digits": "7" * SIZE,
    "zero bytes": "\0" * SIZE,
    "zero bytes in words": "a\0b " * SIZE,
    "ideographs": "".join(chr(RANDOM.randrange(0x4E00, 0x9FFF)) for _ in range(SIZE)),
    "random letters": "".join(RANDOM.choice("etaoinshrdlu") for _ in range(SIZE)),
    "two scripts": "使用Python 和Java" * (SIZE // 10),
    "emoji": "😀" * SIZE,
    "marks": "e\u0301" * SIZE,
    "comments": ";\n//" * SIZE,
    "two letters": "ha" * (SIZE // 2),
    "two punctuation marks": "}*" * (SIZE // 2),
    "three letters": "pls" * (SIZE // 3),
    "long words": ("q" * 200 + " ") * 50,
}


@pytest.mark.parametrize("pattern", mark_slow_except(SINGLE_EXPRESSIONS, ["o200k"]))
@pytest.mark.parametrize("name", INPUTS)
def test_ids_equal_tiktoken(trained, name, pattern):
    ranks = dict(trained.tokenizer.vocabulary.ordinary)
    theirs = tiktoken.Encoding(
        "x", pat_str=SINGLE_EXPRESSIONS[pattern], mergeable_ranks=_make_dense_ranks(ranks), special_tokens={}
    )
    ours = tokjax.byte_level_bpe(_make_dense_ranks(ranks), pattern=pattern, normalizer=None)
    arrays = tokjax.encode_batch_result(ours, [INPUTS[name], "", INPUTS[name].encode()], threads=2)
    expected = theirs.encode_ordinary(INPUTS[name])
    assert [row.ids.tolist() for row in arrays] == [expected, [], expected]
    assert tokjax.decode_batch(ours, arrays) == [INPUTS[name], "", INPUTS[name]]


def _make_dense_ranks(ranks):
    """Returns ranks without gaps, which special tokens leave."""
    return {token: i for i, token in enumerate(sorted(ranks, key=ranks.__getitem__))}


@given(
    names=st.sets(
        st.text("ab<|>é", min_size=1, max_size=6) | st.sampled_from(["a" * 70, "a" * 69 + "b"]), min_size=1
    ),
    text=st.text("ab<|>éx", max_size=60) | st.integers(60, 80).map(lambda n: "a" * n),
)
@example(names={"a" * n for n in range(1, 90)}, text="a" * 200)
def test_longest_special_token_is_matched(names, text):
    longest_first = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    expected = re.compile(f"({longest_first})").split(text)
    assert special_tokens.split_at_special(text, frozenset(names)) == expected
    in_bytes = special_tokens.split_at_special(text.encode(), frozenset(names))
    assert [part.decode() for part in in_bytes] == expected
