"""Tests of the split patterns, against the `regex` package."""

import itertools

import numpy as np
import pytest
import regex
import tiktoken
from hypothesis import given, strategies as st

import tokjax
from tests.support.pinned_unicode import replace_new_characters
from tests.support.text_strategies import any_strings, hard_texts
from tests.support.variants import mark_slow_except
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize import pretoken_starts
from tokjax.pretokenize.patterns import PATTERNS, _split_by_tables, make_pattern_splitter
from tokjax.pretokenize.pretoken_starts import find_pretoken_starts
from tokjax.pretokenize.unicode_classes import CODE_POINTS

# Patterns with properties that the named ones lack: text between matches, unbounded lookahead, nested sets,
# ambiguous alternatives, lazy and counted repetitions.
CUSTOM = {
    "bloom": " ?[^(\\s|[.,!?…。，、।۔،])]+",
    "superbpe": r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)",
    "digits": "[0-9][0-9][0-9]",
    "groups": r"'(?:s|t)\d{0,2}| ?\p{N}{1,3}|[a-z]?\p{L}+|[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "alternatives": "(?:a|as)(?:t|s t)?|[^a-z]+s",
    "lazy": r"\d{2,4}?l|\s*?a|l+?",
    "lookahead": r"a+(?=s)|[\p{Lu}&&[^S]]+(?![a-z])",
}
NAMED_AND_CUSTOM = [*PATTERNS, *CUSTOM]
# A character of every category, every character that a pattern names, and others that are often special.
ALPHABET = list("asSAé日あ\u0301١1\t \n\r'/!\u2028ſl\x0c\x85ʰǅ€Ⅷ")
DIGITS_OF_UNICODE_17 = "".join(map(chr, (*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7))))
MORE = ["t", "L", "v", "E", "\x0b", "\x1c", "\x1f", "\x00", "\ufeff"]


def get_pattern(name):
    return CUSTOM.get(name, name)


def compile_steps(name):
    pattern = make_pattern_splitter(get_pattern(name)).expression
    steps = [pattern] if isinstance(pattern, str) else pattern
    return [regex.compile(step, regex.V1) for step in steps]


STEPS = {name: compile_steps(name) for name in NAMED_AND_CUSTOM}


def split_at_matches(expression, text):
    """Returns the matches, and the text between them."""
    spans = [match.span() for match in expression.finditer(text) if match.group()]
    bounds = {0, len(text)}.union(*spans)
    return [text[start:stop] for start, stop in itertools.pairwise(sorted(bounds))]


def split_with_regex(name, text):
    named = DIGITS_OF_UNICODE_17 if name == "starcoder" else ""
    parts = [replace_new_characters(text, named)]
    for step in STEPS[name]:
        parts = [piece for part in parts for piece in split_at_matches(step, part)]
    stops = list(itertools.accumulate(map(len, parts)))
    return [text[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def compute_starts(name, texts):
    """Returns the pre-token starts of several texts from arrays, with a newline after each."""
    joined = "".join(f"{text}\n" for text in texts)
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    starts = find_pretoken_starts(get_tables(name), codes, ends)
    if is_encodable(joined):
        assert np.array_equal(find_pretoken_starts(get_tables(name), joined.encode(), ends), starts)
    return np.flatnonzero(starts).tolist()


def get_tables(name):
    splitter = make_pattern_splitter(get_pattern(name))
    assert splitter.has_tables
    return splitter.tables


def compute_expected_starts(split, texts):
    lengths = [length for text in texts for length in [*map(len, split(text)), 1]]
    return (np.cumsum(lengths) - lengths).tolist()


@pytest.mark.parametrize("name", NAMED_AND_CUSTOM)
@pytest.mark.parametrize("length", mark_slow_except([0, 1, 2, 3, 4], [0, 1, 2]))
def test_all_short_texts_equal_regex(name, length):
    split = make_pattern_splitter(get_pattern(name)).split
    texts = ["".join(text) for text in itertools.product(ALPHABET, repeat=length)]
    for start in range(0, len(texts), 5000):
        part = texts[start : start + 5000]
        expected = compute_expected_starts(lambda text: split_with_regex(name, text), part)
        assert compute_starts(name, part) == expected
        assert compute_expected_starts(split, part) == expected


@pytest.mark.parametrize("name", mark_slow_except(PATTERNS, ["gpt2", "o200k", "deepseek_v3", "starcoder"]))
def test_more_short_texts_equal_regex(name):
    texts = ["".join(text) for text in itertools.product([*ALPHABET[::2], *MORE], repeat=2)]
    texts += ["'" + "".join(letters) for letters in itertools.product("'sStTlLvVrReEmMdD ſ", repeat=3)]
    expected = compute_expected_starts(lambda text: split_with_regex(name, text), texts)
    assert compute_starts(name, texts) == expected
    assert compute_expected_starts(make_pattern_splitter(name).split, texts) == expected


@pytest.mark.parametrize("name", NAMED_AND_CUSTOM)
@given(
    texts=st.lists(st.text(st.sampled_from([*ALPHABET, "²", "“", "\u3000", "🙂"]), max_size=200), max_size=5)
)
def test_long_texts_equal_regex(name, texts):
    expected = compute_expected_starts(lambda text: split_with_regex(name, text), [*texts, ""])
    assert compute_starts(name, [*texts, ""]) == expected


@pytest.mark.parametrize("name", NAMED_AND_CUSTOM)
@given(any_strings.filter(is_encodable) | hard_texts)
def test_the_splitter_equals_regex(name, text):
    """Texts of up to 100 characters are mapped by a dictionary, and longer ones by arrays."""
    split = make_pattern_splitter(get_pattern(name)).split
    for repeated in (text, text * 3 + "é" * 101):
        assert split(repeated) == split_with_regex(name, repeated)
        assert compute_starts(name, [repeated]) == compute_expected_starts(split, [repeated])


@pytest.mark.parametrize("name", NAMED_AND_CUSTOM)
@pytest.mark.parametrize("part", ["é'", "a!\u0301", "1", " \n\t", "Aあ", "((a"])
def test_long_pretokens_equal_regex(name, part):
    """Places that need much context are read by the automaton, the longest ones one by one."""
    for text in (part * 150, "x" + part[0] * 400 + part, (part + "a" * 120) * 4):
        expected = compute_expected_starts(lambda text: split_with_regex(name, text), [text])
        assert compute_starts(name, [text]) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_every_code_point_equals_regex(name):
    texts = [f"a{chr(c)}b {chr(c)}" for c in range(CODE_POINTS) if not 0xD800 <= c <= 0xDFFF]
    for start in range(0, len(texts), 100_000):
        part = texts[start : start + 100_000]
        expected = compute_expected_starts(lambda text: split_with_regex(name, text), part)
        assert compute_starts(name, part) == expected


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


sets = st.sampled_from(["a", "b", "c", " ", "[ab]", "[^a]", "[a-c]"])
quantifiers = st.sampled_from(["+", "*", "?", "{1,3}", "*?", "+?", "{2,}"])
expressions = st.recursive(
    sets,
    lambda parts: st.one_of(
        st.lists(parts, min_size=2, max_size=3).map("".join),
        st.lists(parts, min_size=2, max_size=3).map(lambda options: f"(?:{'|'.join(options)})"),
        st.tuples(parts, quantifiers).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(parts, st.sampled_from(["(?=[ab])", "(?![bc])"])).map("".join),
    ),
    max_leaves=6,
)


@given(expression=expressions, texts=st.lists(st.text("aabbc \n日", max_size=20), min_size=1, max_size=3))
def test_random_expressions_equal_regex(expression, texts):
    splitter = make_pattern_splitter(f"(?:{expression})")
    compiled = regex.compile(expression, regex.V1)
    for text in texts:
        expected = split_at_matches(compiled, text)
        assert splitter.split(text) == expected
        if splitter.has_tables:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(pretoken_starts, "_FAR", 1)
                assert _split_by_tables(splitter.tables[0], text) == expected


LONG = 50_000
BACKTRACKING = {
    "a+(?=s)": ("a" * LONG, ["a" * LONG]),
    "a*a*a*b": ("a" * LONG, ["a" * LONG]),
    "(?:a+)+b": ("a" * 100, ["a" * 100]),
    "a?" * 64 + "b": ("a" * 100, ["a" * 100]),
    "(?:a|b)*c|a": ("ab" * LONG, ["a", "b"] * LONG),
    "(?:a|b)*c|[ab]": (("ab" * 500 + "d") * 100, [*["a", "b"] * 500, "d"] * 100),
}


@pytest.mark.parametrize("expression", BACKTRACKING)
def test_expressions_that_backtrack_take_linear_time(expression):
    """With `re` or `regex`, these take minutes, or for ever."""
    text, expected = BACKTRACKING[expression]
    assert make_pattern_splitter(expression).split(text) == expected


UNSUPPORTED = [
    r"(a)\1|b",
    "a*",
    r"(?<=a)b",
    "a++b|c",
    r"\bab",
    "(?i:ss)",
    "(?:|a)*b",
    "a{2}?b",
    r"\pL+",
    r"(?i:[^\p{Lu}])",
    "a(?=b)c",
    "[a&&b]",
    r"[\p{L}&&[^a]]++|x(?<=y)z",
]


@pytest.mark.parametrize("expression", UNSUPPORTED)
def test_patterns_that_arrays_do_not_support(expression):
    splitter = make_pattern_splitter(expression)
    assert not splitter.has_tables
    text = "aab ab,ab ss abba BC"
    assert splitter.split(text) == split_at_matches(regex.compile(expression, regex.V1), text)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?:" * 7_000 + "a" + ")" * 7_000, "is too large: more than 50 groups inside of one another"),
        ("(" * 10_000 + "a" + ")" * 10_000, "is not a regular expression: maximum recursion depth"),
        ("a{" + "9" * 5000 + "}", "is not a regular expression: "),
        ("a|" * 20_000, "is too large: more than 30,000 characters"),
        (r"(a)\1(?:(?:x{1000}){1000}){1000}", "multiply to more than 10,000,000 characters; write `\\*` or"),
        ("(?:(?:a{64}){64}){64}", "is too large: more than 2000 characters, with repetitions"),
        ("a{3,1}", "is not a regular expression: "),
        ("[z-a]", "is not a regular expression: bad character range"),
        (["a", 1], r"pattern must be a name .*, a regular expression, or a tuple of these, not \['a', 1\]"),
        ({"a"}, r"a tuple of these, not \{'a'\}"),
        ((), r"a tuple of these, not \(\)"),
    ],
)
def test_invalid_patterns(pattern, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        make_pattern_splitter(pattern)
