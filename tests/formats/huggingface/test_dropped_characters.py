"""Tests of spans where a BPE model without an unknown token drops characters."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

import tokjax
from tokjax.models.word_engine import FEW_CHARACTERS
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, map_bytes_to_unicode

MERGES = [("b", "c"), ("a", "b"), ("bc", "d"), ("d", "d"), ("ab", "e"), ("e", "é")]
FORMS = [*"abcdeé.", *dict.fromkeys(map("".join, MERGES))]
PRE_TOKENIZERS = {
    "Whitespace": pre_tokenizers.Whitespace(),
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "Split": pre_tokenizers.Split(Regex(" ?[a-z]+"), "isolated"),
    "none": None,
}
texts = st.text("aabbccddeeé.XY日 \n", max_size=30)


@lru_cache
def make_tokenizers(pre_tokenizer, normalizer=None, **model):
    """Returns tokenizers with seven characters in the vocabulary: that of the library and ours."""
    ids = {form: i for i, form in enumerate(FORMS)}
    reference = Tokenizer(models.BPE(ids, MERGES, **model))
    if PRE_TOKENIZERS[pre_tokenizer] is not None:
        reference.pre_tokenizer = PRE_TOKENIZERS[pre_tokenizer]
    if normalizer is not None:
        reference.normalizer = normalizer()
    reference.add_special_tokens(["<s>", "X!"])
    reference.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", reference.token_to_id("<s>"))]
    )
    tokenizer = tokjax.formats.from_huggingface(reference)
    assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
    return reference, tokenizer


def find_spans(text, words):
    """Returns the spans of tokens: in each word, they are found by merging the known characters.

    Args:
        text: the text.
        words: the character spans of the words.
    """
    spans = []
    for first, last in words:
        symbols = [(text[i], i, i + 1) for i in range(first, last) if text[i] in FORMS]
        while pairs := [
            (MERGES.index(pair), i)
            for i in range(len(symbols) - 1)
            if (pair := (symbols[i][0], symbols[i + 1][0])) in MERGES
        ]:
            _, i = min(pairs)
            (left, start, _), (right, _, stop) = symbols[i : i + 2]
            symbols[i : i + 2] = [(left + right, start, stop)]
        spans += [(start, stop) for _, start, stop in symbols]
    return spans


def get_character_spans(text, result):
    """Returns the spans of the tokens of a text, without inserted tokens."""
    spans = tokjax.offsets.byte_to_char_spans(text, result.offsets).tolist()
    return [tuple(span) for span, i in zip(spans, result.sequence_ids.tolist(), strict=True) if i == 0]


@pytest.mark.parametrize(
    ("name", "repeats"), [*((name, 1) for name in PRE_TOKENIZERS), ("WhitespaceSplit", FEW_CHARACTERS)]
)
@given(text=texts)
def test_spans_equal_the_oracle(name, repeats, text):
    """Long texts are encoded word by word, if the words are separate."""
    reference, tokenizer = make_tokenizers(name)
    text = (text + " ") * min(repeats, 1 + repeats // (len(text) + 1))
    pre_tokenizer = PRE_TOKENIZERS[name]
    words = (
        [(0, len(text))]
        if pre_tokenizer is None
        else [span for _, span in pre_tokenizer.pre_tokenize_str(text)]
    )
    result = tokjax.encode_result(tokenizer, text)
    assert result.ids.tolist() == reference.encode(text).ids
    assert get_character_spans(text, result) == find_spans(text, words)


@pytest.mark.parametrize("model", [{}, {"ignore_merges": True}])
def test_special_tokens_in_the_text(model):
    _, tokenizer = make_tokenizers("Whitespace", **model)
    text = "YaX!XYbc dYd<s>Xab"
    result = tokjax.encode_result(tokenizer, text, allowed_special="all")
    assert [text[first:last] for first, last in get_character_spans(text, result)] == [
        *("a", "X!", "bc", "dYd", "<s>", "ab"),
    ]
    _, tokenizer = make_tokenizers("WhitespaceSplit", **model)
    result = tokjax.encode_result(tokenizer, "aX!b Yc", disallowed_special=())
    assert get_character_spans("aX!b Yc", result) == [(0, 4), (6, 7)]


def test_word_that_is_a_token():
    """With `ignore_merges`, a word is a token although one of its characters is not."""
    ids = {form: i for i, form in enumerate([*FORMS, "aYb"])}
    reference = Tokenizer(models.BPE(ids, MERGES, ignore_merges=True))
    reference.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = tokjax.formats.from_huggingface(reference)
    result = tokjax.encode_result(tokenizer, "aYb aYbX Yc")
    assert result.tokens == ("aYb", "ab", "c")
    assert get_character_spans("aYb aYbX Yc", result) == [(0, 3), (4, 7), (10, 11)]


@given(texts)
def test_normalized_text(text):
    _, tokenizer = make_tokenizers("Whitespace", normalizers.NFD)  # U+0301 is not in the vocabulary
    result = tokjax.encode_result(tokenizer, text)
    tokjax.offsets.assert_offsets_contract(text, result.offsets)
    for token, (first, last) in zip(result.tokens[1:], get_character_spans(text, result), strict=True):
        characters = text[first:last].replace("é", "e")
        assert "".join(character for character in characters if character in FORMS) == token


def test_affixes():
    forms = ["a", "##b", "##b</w>", "a</w>", "##bb</w>", "ab"]
    model = models.BPE(
        {form: i for i, form in enumerate(forms)},
        [("##b", "##b</w>"), ("a", "##b")],
        continuing_subword_prefix="##",
        end_of_word_suffix="</w>",
    )
    reference = Tokenizer(model)
    reference.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = tokjax.formats.from_huggingface(reference)
    result = tokjax.encode_result(tokenizer, "aXbXb aXbX a")
    assert result.tokens == ("a", "##bb</w>", "ab", "a</w>")
    assert get_character_spans("aXbXb aXbX a", result) == [(0, 1), (2, 5), (6, 9), (11, 12)]


@pytest.mark.parametrize("trim_offsets", [False, True])
def test_vocabulary_without_some_bytes(trim_offsets):
    forms = [form for form in ALPHABET if form not in ("x", map_bytes_to_unicode(b"\xa5"))]
    forms += ["Ġa", "Ġab"]
    reference = Tokenizer(models.BPE({form: i for i, form in enumerate(forms)}, [("Ġ", "a"), ("Ġa", "b")]))
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    tokenizer = tokjax.formats.from_huggingface(reference)
    text = "xa axbx 日c x日"
    result = tokjax.encode_result(tokenizer, text)
    assert result.ids.tolist() == reference.encode(text).ids
    tokjax.offsets.assert_offsets_contract(text, result.offsets)
    spans = [text.encode()[first - 1 : last - 1] for first, last in result.offsets.tolist()]
    space = b"" if trim_offsets else b" "
    assert spans[:2] == [b"a", space + b"axb"]
    assert b"".join(spans[2:]) == space + "日c".encode() + space + "日".encode()
    assert np.count_nonzero(result.offsets) == result.offsets.size


@pytest.mark.parametrize("repeats", [1, 150])
@pytest.mark.parametrize("affix", [{"end_of_word_suffix": "</w>"}, {"continuing_subword_prefix": "##"}])
def test_bytes_of_affixes_stay_in_their_word(affix, repeats):
    """Unknown characters become the bytes of themselves and of the affix: more tokens than bytes."""
    forms = ["a", "b", "a</w>", "b</w>", "##a", *(f"<0x{byte:02X}>" for byte in range(256))]
    model = models.BPE({form: i for i, form in enumerate(forms)}, [], byte_fallback=True, **affix)
    reference = Tokenizer(model)
    reference.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    texts = ["b中 ab", "aa中 a中中", "b a", "中", "ab b中a", "a 中中 b"]
    tokenizer = tokjax.formats.from_huggingface(reference)
    batch = tokjax.encode_batch_result(tokenizer, texts * repeats)
    for text, row in zip(texts, batch, strict=False):
        assert row.ids.tolist() == reference.encode(text).ids
        tokjax.offsets.assert_offsets_contract(text, row.offsets)
        words = text.split()
        for (first, last), word in zip(row.offsets.tolist(), row.word_ids.tolist(), strict=True):
            start = len(" ".join([*words[:word], ""]).encode()) + 1
            assert start <= first <= last <= start + len(words[word].encode())
