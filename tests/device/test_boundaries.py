"""Tests of the starts of pre-tokens under jit, against the split patterns."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.device_texts import NUM_BYTES, PIECES, fit, to_arrays
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import byte_strings
from tests.support.variants import mark_slow_except
from tokjax.device.boundaries import decode_characters, find_starts, make_split_tables
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter
from tokjax.pretokenize.unicode_classes import CODE_POINTS


@lru_cache
def compile_pattern(pattern, num_bytes):
    tables = make_pattern_splitter(pattern).tables
    steps = jax.tree.map(jnp.asarray, tuple(map(make_split_tables, tables)))

    @jax.jit
    def find(data, splits):
        is_cut = jnp.zeros(data.shape, bool).at[splits].set(True, mode="drop")
        return find_starts(steps, decode_characters(data, is_cut), is_cut, num_bytes)

    return find


def find_expected(pattern, texts):
    """Returns where pre-tokens start, by the split pattern itself."""
    splitter, flags = make_pattern_splitter(pattern), []
    for text in texts:
        pretokens = splitter.split(text.decode("utf-8", "surrogateescape"))
        lengths = [len(pretoken.encode("utf-8", "surrogateescape")) for pretoken in pretokens]
        starts = np.zeros(len(text), bool)
        starts[np.cumsum([0, *lengths])[:-1]] = True
        flags.append(starts)
    return np.concatenate([np.zeros(0, bool), *flags])


def assert_same_starts(pattern, texts, num_bytes=NUM_BYTES):
    data, splits = to_arrays(texts, num_bytes)
    starts, _ = compile_pattern(pattern, num_bytes)(data, splits)
    expected = find_expected(pattern, texts)
    np.testing.assert_array_equal(np.asarray(starts)[: len(expected)], expected)


@pytest.mark.parametrize("pattern", mark_slow_except(PATTERNS, ["deepseek_v3"]))
@get_max_examples(60)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join), max_size=12))
def test_starts_of_hard_texts(pattern, texts):
    assert_same_starts(pattern, fit(texts))


@pytest.mark.slow
@get_max_examples(40)
@given(st.lists(byte_strings, max_size=12))
def test_starts_of_any_bytes(texts):
    assert_same_starts("o200k", fit(texts))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_all_code_points_in_context(pattern):
    size = 1 << 20
    part = []
    used = 0
    for code in range(CODE_POINTS):
        if 0xD800 <= code < 0xE000:
            continue
        character = chr(code)
        text = f"a{character}B{character} {character}1{character}{character}'s \n{character}".encode()
        if used + len(text) > size:
            assert_same_starts(pattern, [b"".join(part)], size)
            part, used = [], 0
        part.append(text)
        used += len(text)
    assert_same_starts(pattern, [b"".join(part)], size)


@pytest.mark.parametrize(
    "text",
    [
        b"1" * 1000,
        "٣".encode() * 300,
        b" " * 1000 + b"x",
        b"'" * 500 + b"s" * 500,
        b"aB" * 500,
        b"\n \n" * 300,
        b"\x80" * 1000,
    ],
)
@pytest.mark.parametrize(
    "pattern", mark_slow_except(["cl100k", "o200k", "kimi_k2", "deepseek_v3"], ["deepseek_v3"])
)
def test_long_runs(pattern, text):
    assert_same_starts(pattern, [text, text[:-1]])
