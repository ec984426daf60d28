"""Tests of the tokenizer protocol: custom types with two functions, and objects that are not tokenizers."""

from dataclasses import dataclass

import numpy as np
import pytest

import tokjax
from tokjax.trainer import continue_bpe, count_pretokens, train_bpe


@dataclass(frozen=True)
class LetterTokenizer:
    """Tokenizer with one id for each lower-case ASCII letter."""


@tokjax.get_vocabulary.register
def _(tokenizer: LetterTokenizer) -> tokjax.Vocabulary:
    letters = {bytes([c]): c - 97 for c in range(97, 123)}
    return tokjax.make_vocabulary(letters, {"<eos>": 26}, {"eos": "<eos>"})


@tokjax.encode_texts.register
def _(tokenizer: LetterTokenizer, texts, *, add_special_tokens=True, **options) -> tokjax.TokenizationBatch:
    rows = [[ord(c) - 97 for c in text] + [26] * add_special_tokens for text in texts]
    vocabulary = tokjax.get_vocabulary(tokenizer)
    return tokjax.TokenizationBatch(
        tokjax.ragged_from_rows(rows), tokjax.ResultMetadata("letters"), vocabulary.get_token_strings
    )


def test_default_implementations(tmp_path):
    tokenizer = LetterTokenizer()
    result = tokjax.encode_result(tokenizer, "abc")
    assert result.tokens == ("a", "b", "c", "<eos>")
    assert tokjax.encode(tokenizer, "abc", add_special_tokens=False).tolist() == [0, 1, 2]
    assert tokjax.tokenize(tokenizer, "abc", add_special_tokens=False) == ["a", "b", "c"]
    assert tokjax.decode(tokenizer, [0, 26, 2], skip_special_tokens=True) == "ac"
    assert tokjax.vocab_size(tokenizer) == 27
    assert tokjax.eos_id(tokenizer) == 26
    assert tokjax.tokenization_view(tokenizer, "abc") == "abc"
    assert tokjax.fingerprint(tokenizer) == tokjax.fingerprint(LetterTokenizer())
    assert tokjax.quick.quick_causal_lm_batch(tokenizer, ["ab", "c"]).labels.tolist() == [
        [1, 26, -100],
        [26, -100, -100],
    ]
    field = tokjax.PackedTokenField(tokenizer, chunk_tokens=2)
    tokjax.write_dataset(["ab", "c"], field, tmp_path / "letters")
    dataset = tokjax.open_dataset(tmp_path / "letters", tokenizer)
    assert dataset.read(0, 5).tolist() == [0, 1, 26, 2, 26]
    assert dataset.manifest.plan.data_dtype == "uint8"
    with pytest.raises(tokjax.errors.DatasetIncompleteError, match=r"open_dataset\(path, tokenizer\)"):
        _ = tokjax.open_dataset(tmp_path / "letters").tokenizer


@pytest.mark.parametrize(
    "call",
    [
        lambda: tokjax.encode("gpt2", "text"),
        lambda: tokjax.decode(None, [1]),
        lambda: tokjax.vocab_size(object()),
        lambda: tokjax.normalize(3, "text"),
        lambda: tokjax.fingerprint("gpt2"),
    ],
)
def test_non_tokenizers_are_rejected(call):
    with pytest.raises(
        tokjax.errors.UnsupportedTokenizerError, match=r"register your own type with @tokjax\."
    ):
        call()


def test_decode_accepts_all_integer_dtypes(tokenizer):
    for dtype in (np.uint8, np.int64, np.uint32):
        assert tokjax.decode(tokenizer, np.array([104, 105], dtype)) == "hi"
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="integers"):
        tokjax.decode(tokenizer, [1.5])


@pytest.mark.parametrize(
    "call",
    [
        lambda trained: tokjax.encode(trained, "low"),
        tokjax.PackedTokenField,
        tokjax.load_tokenizer,
        lambda trained: continue_bpe(trained, ["low"], vocab_size=260),
        lambda trained: tokjax.reports.estimate_mixture(trained, {"a": count_pretokens(["low"])}),
    ],
)
def test_results_of_trainers(call):
    """The record of a trainer is passed instead of its tokenizer."""
    trained = train_bpe(["low low"], vocab_size=258, progress=False)
    with pytest.raises((TypeError, ValueError), match=r"not a? ?Trained.*; pass its attribute \.tokenizer$"):
        call(trained)
