"""Tests of the conversion of in-memory tokenizers of tiktoken and SentencePiece."""

import pickle

import pytest
import tiktoken
from hypothesis import given
from tiktoken_ext.openai_public import r50k_pat_str

import tokjax
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable

BYTES = {bytes([i]): i for i in range(256)}


def test_from_tiktoken(tmp_path):
    special = {"<|x|>": 300, "<|also x|>": 300, "<|a|>": 300, "<|b|>": 301}
    encoding = tiktoken.Encoding("x", pat_str=r"\S+|\s+", mergeable_ranks=BYTES, special_tokens=special)
    tokenizer = tokjax.formats.from_tiktoken(encoding)
    assert dict(tokenizer.vocabulary.special) == special
    longer, _ = tokjax.extend_vocabulary(tokenizer, ["<|c|>"], special=True)
    shorter, _ = tokjax.truncate_vocabulary(longer, 259)  # renumbers the special tokens
    for same in (
        tokenizer,
        pickle.loads(pickle.dumps(tokenizer)),
        tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path / "saved.json")),
        tokjax.with_roles(tokenizer, pad_token="<|a|>"),
        shorter,
    ):
        text = "a b<|also x|> <|a|><|x|>"
        ids = tokjax.encode(same, text, allowed_special="all")
        assert tokjax.decode(same, ids) == "a b<|x|> <|x|><|x|>"
        if same is not shorter:
            assert ids.tolist() == encoding.encode(text, allowed_special="all")
        with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="token '<|also x|>' at char"):
            tokjax.encode(same, text)
    assert tokjax.vocab_size(tokenizer) == 302
    tokjax.testing.check_tokenizer(tokenizer)


def test_export_of_second_names(tmp_path, caplog):
    special = {"<|x|>": 300, "<|a|>": 300, "<|b|>": 301}
    encoding = tiktoken.Encoding("x", pat_str=r"\S+|\s+", mergeable_ranks=BYTES, special_tokens=special)
    tokenizer = tokjax.formats.from_tiktoken(encoding)
    tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    assert set(caplog.messages) == {
        "the file will not have the special token '<|a|>', a second name of '<|x|>'"
    }
    exported = tokjax.load_tokenizer(tmp_path)
    assert dict(tokjax.special_tokens(exported)) == {"<|x|>": 300, "<|b|>": 301}
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
