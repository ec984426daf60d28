"""Tests of classic BPE: equality with a slow oracle; `test_wordpiece.py` compares it with the library."""

import pickle

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.span_checks import assert_contract
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import to_utf8
from tokjax.models.words import merge_order_is_unique
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode

ArgumentError = tokjax.errors.InvalidArgumentError
WHITESPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def merge_slowly(symbols, merges):
    """Merges all occurrences of the first pair of the list that occurs, until none occurs."""
    while True:
        present = set(zip(symbols, symbols[1:], strict=False))
        pair = next((pair for pair in merges if pair in present), None)
        if pair is None:
            return symbols
        merged = []
        while symbols:
            size = 2 if tuple(symbols[:2]) == pair else 1
            merged.append("".join(symbols[:size]))
            symbols = symbols[size:]
        symbols = merged


def split_at_whitespace(text):
    """Splits a text at the characters with the property White_Space."""
    return "".join(" " if character in WHITESPACE else character for character in text).split(" ")


def encode_slowly(tokenizer, text):
    """Returns the tokens of a text without a normalizer, `None` for unknown ones."""
    tokens = []
    for word in filter(None, split_at_whitespace(text)):
        symbols = list(map_bytes_to_unicode(word.encode()) if tokenizer.byte_level else word)
        if tokenizer.end_of_word == "symbol":
            symbols.append("</w>")
        elif tokenizer.end_of_word == "suffix":
            symbols[-1] += "</w>"
        merged = merge_slowly(symbols, tokenizer.merges)
        known = [token if token.encode() in tokenizer.vocabulary.ordinary else None for token in merged]
        tokens += [None] if tokenizer.unknown == "word" and None in known else known
    return tokens


@st.composite
def draw_merges(draw, alphabet, end_of_word):
    """Draws merges in any order; several may make the same token. Returns symbols, and merges."""
    symbols = list(alphabet)
    if end_of_word == "suffix":
        symbols += [f"{letter}</w>" for letter in alphabet]
    elif end_of_word == "symbol":
        symbols.append("</w>")
    tokens, merges = list(symbols), []
    for _ in range(draw(st.integers(0, 25))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if "</w>" not in left and (left, right) not in merges and len(left + right) < 12:
            merges.append((left, right))
            tokens.append(left + right)
    return list(dict.fromkeys(tokens)), draw(st.permutations(merges)) if draw(st.booleans()) else merges


@st.composite
def draw_tokenizers(draw):
    end_of_word = draw(st.sampled_from(["suffix", "symbol", None]))
    byte_level = draw(st.booleans())
    alphabet = map_bytes_to_unicode("abé日 ".encode()) if byte_level else "abé日<"
    tokens, merges = draw(draw_merges(alphabet, end_of_word))
    kept = [token for token in tokens if draw(st.integers(0, 9)) > 0]
    return tokjax.word_bpe(
        ["<unk>", "<s>", *kept],
        merges,
        end_of_word=end_of_word,
        byte_level=byte_level,
        unknown=draw(st.sampled_from(["token", "word"])),
        bos_token="<s>",
    )


@given(
    tokenizer=draw_tokenizers(), drawn_texts=st.lists(st.text("abé日ü< \u3000\n") | hard_texts, max_size=4)
)
def test_any_merges_equal_the_oracle(tokenizer, drawn_texts):
    batch = tokjax.encode_batch_result(tokenizer, drawn_texts, disallowed_special=())
    for text, result in zip(drawn_texts, batch, strict=True):
        expected = encode_slowly(tokenizer, text)
        assert list(result.tokens[1:]) == [token or "<unk>" for token in expected]
        assert_contract(text, result.offsets[1:].tolist())
        data = to_utf8(text)
        for token, (start, stop) in zip(expected, result.offsets[1:].tolist(), strict=True):
            covered = data[start - 1 : stop - 1]
            form = map_bytes_to_unicode(covered) if tokenizer.byte_level else covered.decode()
            if token is not None:
                assert token in ({form, f"{form}</w>"} if tokenizer.end_of_word else {form})
        covered = b"".join(data[start - 1 : stop - 1] for start, stop in result.offsets[1:].tolist())
        assert covered.decode() == "".join(split_at_whitespace(text))
    restored = pickle.loads(pickle.dumps(tokenizer))
    assert restored == tokenizer
    assert [*tokjax.encode_batch_result(restored, drawn_texts, disallowed_special=())] == [*batch]


def test_decoding_of_bytes():
    tokens = ["<unk>", *map_bytes_to_unicode("é日".encode()), "</w>"]
    tokenizer = tokjax.word_bpe(tokens, [], end_of_word="symbol", byte_level=True)
    ids = tokjax.encode(tokenizer, "é 日é")
    assert tokjax.decode(tokenizer, ids) == "é 日é"
    assert tokjax.decode(tokenizer, [0, *ids], skip_special_tokens=True) == "é 日é"
    assert tokjax.encode_result(tokenizer, "é日").offsets.tolist() == [[i, i + 1] for i in range(1, 6)] + [
        [6, 6]
    ]


def test_order_of_merges():
    """All occurrences of a pair merge together, also where `tokenizers` merges in another order."""
    merges = [("ab", "ab"), ("a", "b")]
    tokenizer = tokjax.word_bpe(["<unk>", "a", "b", "ab", "abab", "aba"], merges, end_of_word=None)
    assert tokjax.tokenize(tokenizer, "ababab") == ["abab", "ab"]
    assert not merge_order_is_unique(merges)
    assert merge_order_is_unique(merges[::-1])


def test_long_words_take_little_time():
    tokens, merges = ["<unk>", "a"], []
    for i in range(15):
        merges.append(("a" * 2**i, "a" * 2**i))
        tokens.append("a" * 2 ** (i + 1))
    tokenizer = tokjax.word_bpe(tokens, merges, end_of_word=None)
    assert len(tokjax.encode(tokenizer, "a" * 2**17)) == 4
    assert tokjax.encode_result(tokenizer, "ab" * 50_000).offsets[-1].tolist() == [100_000, 100_001]


@pytest.mark.parametrize(
    ("tokens", "merges", "options", "message"),
    [
        (["a"], [], {}, "the special token '<unk>' is not among the tokens"),
        (
            ["<unk>"],
            [],
            {"end_of_word": "</w>"},
            "end_of_word must be 'suffix', 'symbol' or None, not '</w>'",
        ),
        (["<unk>"], [], {"splitter": "gpt2"}, "splitter must be 'whitespace' or 'bert', not 'gpt2'"),
        (["<unk>"], [], {"unknown": None}, "unknown must be 'token' or 'word', not None"),
        (["<unk>"], [], {"byte_level": 1}, "byte_level must be True or False, not 1"),
        (["<unk>"], [("a", "b"), ("a", "b")], {}, "merge 1 of 'a' and 'b': it is a duplicate"),
        (["<unk>"], [("a", "")], {}, "merge 0 of 'a' and '': a part is empty"),
        (["<unk>"], ["ab"], {}, "merge 0 must be a pair of str, not 'ab'"),
        (
            ["<unk>"],
            [("</", "w>")],
            {},
            "merge 0 of '</' and 'w>': it makes '</w>' from text; pass end_of_word=None if tokens do",
        ),
        ({"<unk>": 0, "a": 2_097_146}, [], {}, "too large: 2,097,147 ids and the 4 bytes of the longest"),
    ],
)
def test_invalid_arguments(tokens, merges, options, message):
    with pytest.raises(ArgumentError, match=message):
        tokjax.word_bpe(tokens, merges, **options)
