"""Tests of decoding with WordPiece and word-level tokenizers: equality with Hugging Face's tokenizers."""

import json
import pickle

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import tokjax
from tests.models.test_wordpiece import OPTIONS, make_wordpieces


@pytest.mark.parametrize("name", ["uncased", "other prefix", "no prefix"])
@given(data=st.data(), skip=st.booleans())
def test_decoding_equals_the_library(name, data, skip):
    ours, theirs = make_wordpieces(name)
    theirs.decoder = decoders.WordPiece(prefix=OPTIONS[name].get("continuing_prefix", "##"), cleanup=True)
    rows = data.draw(st.lists(st.lists(st.integers(0, tokjax.vocab_size(ours) - 1), max_size=9), max_size=4))
    expected = [
        theirs.decoder.decode([theirs.id_to_token(i) for i in row if i > 4 or not skip]) for row in rows
    ]
    assert tokjax.decode_batch(ours, rows, skip_special_tokens=skip) == expected
    assert [tokjax.decode(ours, row, skip_special_tokens=skip) for row in rows] == expected


@given(st.lists(st.lists(st.integers(0, 24), max_size=6), max_size=4))
def test_cleanup_equals_the_library(rows):
    tokens = ["[UNK]", "don", "n't", "'", "t", "##'s", "'s", "'ve", "'re", "'m", "not", "do not", "##n't"]
    tokens += [".", ",", "!", "?", "...", "?!", ".5", "## .", "x . y", "a ' b", "word", "##ing"]
    ours = tokjax.wordpiece(tokens, special_tokens=["do not"], cleanup=True)
    theirs = Tokenizer(models.WordPiece(dict(zip(tokens, range(25), strict=True)), unk_token="[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.decoder = decoders.WordPiece(cleanup=True)
    theirs.add_special_tokens(["[UNK]", "do not"])
    decoded = [theirs.decoder.decode([tokens[i] for i in row]) for row in rows]
    assert tokjax.decode_batch(ours, rows) == decoded
    for tokenizer in (tokjax.formats.from_huggingface(theirs), pickle.loads(pickle.dumps(ours))):
        assert type(tokenizer) is tokjax.models.WordPieceTokenizer
        assert tokjax.decode_batch(tokenizer, rows) == decoded


def test_cleanup_is_exported_and_loaded(tmp_path):
    tokens = ["[UNK]", "word", "."]
    clean, plain = (tokjax.wordpiece(tokens, cleanup=cleanup) for cleanup in (True, False))
    assert tokjax.fingerprint(clean) != tokjax.fingerprint(plain)
    for tokenizer, decoded in ((clean, "word."), (plain, "word .")):
        tokjax.formats.export_tokenizer(tokenizer, tmp_path / "tokenizer.json", format="huggingface")
        assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).decode([1, 2]) == decoded
        assert tokjax.load_tokenizer(tmp_path / "tokenizer.json").cleanup == tokenizer.cleanup
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    definition["decoder"]["prefix"] = "@@"
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    other = tokjax.load_tokenizer(tmp_path / "tokenizer.json")
    assert "its decoder is WordPiece with the prefix '@@'" in other.reason
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="cleanup must be True or False, not 1"):
        tokjax.wordpiece(tokens, cleanup=1)


def test_decoding_words():
    tokenizer = tokjax.models.word_level(["[UNK]", "to", "be", "[PAD]"])
    assert tokjax.decode(tokenizer, [1, 2, 0, 1, 3]) == "to be [UNK] to [PAD]"
    assert tokjax.decode(tokenizer, [3, 1, 2], skip_special_tokens=True) == "to be"
