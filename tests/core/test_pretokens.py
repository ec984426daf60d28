"""Tests of pre-tokens, against the pre-tokenizers of the `tokenizers` library."""

import pytest
from hypothesis import given, strategies as st
from tokenizers import PreTokenizedString

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import make_pair
from tests.support.text_strategies import byte_strings, hard_texts
from tests.support.tokenizers import make_tokenizer
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.bytes_to_unicode import map_unicode_to_bytes

encodable_texts = (hard_texts | st.sampled_from(CORPUS)).filter(
    lambda text: isinstance(text, str) and is_encodable(text)
)


def split_by_library(library_tokenizer, text):
    """Returns strings and 1-based byte spans of the pre-tokens of a text, without added tokens."""
    split = PreTokenizedString(text)
    library_tokenizer.pre_tokenizer.pre_tokenize(split)
    splits = split.get_splits(offset_type="byte")
    return [string for string, _, _ in splits], [[start + 1, stop + 1] for _, (start, stop), _ in splits]


@pytest.mark.parametrize(
    "name", ["GPT-2", "Llama 3", "GPT-4o", "StarCoder", "DeepSeek V3", "BLOOM", "RoBERTa", "with a space"]
)
@given(text=encodable_texts)
def test_byte_level_pretokens_equal_the_library(name, text):
    library_tokenizer, tokenizer = make_pair(name)
    strings, offsets = split_by_library(library_tokenizer, text)
    pretokens = tokjax.pre_tokenize(tokenizer, text, disallowed_special=())
    texts = [map_unicode_to_bytes(string).decode() for string in strings]
    if name == "with a space" and text and not text.startswith(" "):
        texts[0] = texts[0][1:]
        offsets[0][1] -= not texts[0]  # the added space alone has an empty span
    assert list(pretokens.strings) == texts
    assert pretokens.offsets.tolist() == offsets


@pytest.mark.parametrize("name", ["BERT", "BERT, cased", "words"])
@given(text=encodable_texts)
def test_pretokens_of_normalized_texts_equal_the_library(name, text):
    library_tokenizer, tokenizer = make_pair(name)
    view = tokjax.tokenization_view(tokenizer, text)
    expected = library_tokenizer.pre_tokenizer.pre_tokenize_str(view)
    pretokens = tokjax.pre_tokenize(tokenizer, text, disallowed_special=())
    assert list(pretokens.strings) == [string for string, _ in expected]
    spans = tokjax.offsets.char_to_byte_spans(view, [span for _, span in expected])
    assert pretokens.offsets.tolist() == spans.tolist()


@pytest.mark.parametrize("name", ["split", "split only"])
@given(text=encodable_texts)
def test_metaspace_pretokens_equal_the_library(name, text):
    library_tokenizer, tokenizer = make_pair(name)
    strings, offsets = split_by_library(library_tokenizer, text)
    pretokens = tokjax.pre_tokenize(tokenizer, text, disallowed_special=())
    assert pretokens.offsets.tolist() == offsets
    if name == "split" and text and text[0] not in " ▁":
        strings[0] = strings[0][1:]
    assert [string.replace(" ", "▁") for string in pretokens.strings] == strings


@pytest.mark.parametrize("name", ["unigram", "punctuation"])
@pytest.mark.parametrize("text", ["low, lower! Newest", "  ½ a", "", "<s> it's <s>"])
def test_pretokens_of_library_tokenizers(name, text):
    _, tokenizer = make_pair(name)
    pretokens = tokjax.pre_tokenize(tokenizer, text, allowed_special="all")
    result = tokjax.encode_result(tokenizer, text, add_special_tokens=False, allowed_special="all")
    assert len(pretokens.strings) == len(set(result.word_ids.tolist()))
    expected = [tokjax.offsets.span_bytes(text, span).decode() for span in pretokens.offsets]
    assert list(pretokens.strings) == expected
    if "<s>" in text:
        assert [string for string in pretokens.strings if "<" in string] == ["<s>", "<s>"]


@given(hard_texts | byte_strings)
def test_pretokens_are_the_words_of_byte_level_results(text):
    tokenizer = make_tokenizer("byte-level BPE")
    pretokens = tokjax.pre_tokenize(tokenizer, text, allowed_special="all")
    result = tokjax.encode_result(tokenizer, text, add_special_tokens=False, allowed_special="all")
    words = [result.offsets[result.word_ids == word] for word in range(len(pretokens.strings))]
    assert [[word[0, 0], word[-1, 1]] for word in words] == pretokens.offsets.tolist()
    assert len(set(result.word_ids.tolist())) == len(words)


def test_special_and_added_tokens_are_pretokens():
    tokenizer = make_tokenizer("byte-level BPE, merges")
    pretokens = tokjax.pre_tokenize(tokenizer, "low<s>renew it", allowed_special="all")
    assert pretokens.strings == ("low", "<s>", "re", "new", " it")
    assert pretokens.offsets.tolist() == [[1, 4], [4, 7], [7, 9], [9, 12], [12, 15]]
    with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="'<s>' at character 3"):
        tokjax.pre_tokenize(tokenizer, "low<s>")
    assert "<s" in "".join(tokjax.pre_tokenize(tokenizer, "low<s>", disallowed_special=()).strings)


def test_bytes_and_surrogates():
    tokenizer = make_tokenizer("byte-level BPE")
    assert tokjax.pre_tokenize(tokenizer, b"a \xff").strings == ("a", " \\xff")
    assert tokjax.pre_tokenize(tokenizer, "\ud83d\ude00 \ud83d").offsets.tolist() == [[1, 5], [5, 9]]


def test_words_of_a_function():
    words = tokjax.models.from_callable(str.split, ["[UNK]"])
    assert tokjax.pre_tokenize(words, "to é be").offsets.tolist() == [[1, 3], [4, 6], [7, 9]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bytes", "a ByteTokenizer has no pre-tokens: it encodes a text as a whole; the word_ids of"),
        ("characters", "a CharTokenizer has no pre-tokens"),
        ("unigram", "a SentencePieceTokenizer has no pre-tokens"),
        ("metaspace BPE", "a MetaspaceBPE has no pre-tokens: without split_words, it encodes"),
    ],
)
def test_tokenizers_without_pretokens(name, message):
    for text in ("low", ""):
        with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match=message):
            tokjax.pre_tokenize(make_tokenizer(name), text)


def test_errors():
    with pytest.raises(
        tokjax.errors.UnsupportedTokenizerError, match="no implementation for 'int'; pass a tok"
    ):
        tokjax.pre_tokenize(3, "a")
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="text must be str or bytes, not list"):
        tokjax.pre_tokenize(make_tokenizer("WordPiece"), ["a"])
    library_tokenizer, _ = make_pair("unigram")
    plain = type(library_tokenizer).from_str(library_tokenizer.to_str())
    plain.pre_tokenizer = None
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="its definition has no pre-tokenizer"):
        tokjax.pre_tokenize(tokjax.formats.from_huggingface(plain), "a")
