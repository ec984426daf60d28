"""Tests of the conversion of in-memory tokenizers of tiktoken and SentencePiece."""

import pytest
import tiktoken
from hypothesis import given
from tiktoken_ext.openai_public import r50k_pat_str

import tokjax
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable

BYTES = {bytes([i]): i for i in range(256)}


def test_from_tiktoken(caplog):
    special = {"<|a|>": 300, "<|also a|>": 300}
    encoding = tiktoken.Encoding("x", pat_str=r"\S+|\s+", mergeable_ranks=BYTES, special_tokens=special)
    tokenizer = tokjax.formats.from_tiktoken(encoding)
    assert dict(tokenizer.vocabulary.special) == {"<|a|>": 300}
    [message] = caplog.messages
    assert message.startswith(
        "x: the special token '<|a|>' has a second name '<|also a|>', which texts are not"
    )
    assert tokjax.encode(tokenizer, "a b").tolist() == encoding.encode("a b")
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match=r"takes a tiktoken.Encoding, not str"):
        tokjax.formats.from_tiktoken("gpt2")


TIKTOKEN_EXPRESSIONS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
}


@pytest.mark.parametrize("name", TIKTOKEN_EXPRESSIONS)
@given(text=hard_texts.filter(is_encodable))
def test_tiktoken_expressions_become_named_patterns(name, text):
    assert r50k_pat_str == TIKTOKEN_EXPRESSIONS["gpt2"]
    ranks = BYTES | {b" t": 256, b"he": 257, b"\n\n": 258, b"  ": 259, b"'s": 260}
    encoding = tiktoken.Encoding(
        name, pat_str=TIKTOKEN_EXPRESSIONS[name], mergeable_ranks=ranks, special_tokens={}
    )
    tokenizer = tokjax.formats.from_tiktoken(encoding)
    assert tokenizer.pattern == name
    assert tokjax.encode(tokenizer, text).tolist() == encoding.encode(text)


def test_from_sentencepiece_needs_a_processor_with_a_model():
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="that has loaded a model, not str"):
        tokjax.formats.from_sentencepiece("x.model")
