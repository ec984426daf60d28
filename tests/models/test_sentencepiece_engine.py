"""Tests of the array engine of SentencePiece BPE models, against the library."""

import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.sentencepiece_models import (
    build_bpe_model,
    fuzz,
    match_symbols,
    train_sentencepiece_models,
)
from tests.support.small_chunks import use_small_chunks
from tests.support.variants import mark_slow_except
from tokjax.core.utf8 import to_utf8
from tokjax.models import sentencepiece as sentencepiece_module
from tokjax.models.sentencepiece_files import iter_fields
from tokjax.pretokenize.aligned_text import CharacterTrie

ENGINE_NAMES = ["bpe", "bpe with bytes", "identity, bytes"]
GEMMA_LIKE_PIECES = ["▁", "h", "e", "he", "▁h", "▁he", "1", "中", "中1"]
GEMMA_LIKE_SYMBOLS = ["\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "<h1>", "<h2>", "é"]


@pytest.fixture(scope="module")
def models():
    built = {
        "nested symbols": build_bpe_model(["▁", "a", "b", "ab", "abab", "ba"], symbols=["aba", "b\n", "\n"]),
        "gemma": build_bpe_model(GEMMA_LIKE_PIECES, GEMMA_LIKE_SYMBOLS, byte_fallback=True, adds_space=False),
        "symbols, added space": build_bpe_model(GEMMA_LIKE_PIECES, GEMMA_LIKE_SYMBOLS, byte_fallback=True),
        "runs": build_bpe_model(["a", "aa", "aaa", "aaaa", "▁a", "▁", "▁▁", "a▁", "a▁a"]),
        "characters without pieces": build_bpe_model(["▁", "ab", "é中", "é中ab", "▁x"]),
    }
    trained = train_sentencepiece_models()
    return {name: trained[name] for name in ENGINE_NAMES} | {
        name: tokjax.sentencepiece(proto) for name, proto in built.items()
    }


@pytest.fixture
def use_engine(monkeypatch):
    """Makes tokenizers use the array engine for all texts, whatever their length."""
    monkeypatch.setattr(sentencepiece_module, "FEW_CHARACTERS", -1)
    monkeypatch.setattr(sentencepiece_module, "_LIBRARY_BYTES_PER_PIECE", 0)


BUILT_NAMES = ["nested symbols", "gemma", "symbols, added space", "runs", "characters without pieces"]
NAMES = [*ENGINE_NAMES, *BUILT_NAMES]
short_texts = st.lists(
    st.sampled_from([*"abhe1中é \n▁x", "  ", "<h1>", "<h", "aba", "\n\n", "\u0301", "\0", "\ufeff", "ａ"]),
    max_size=30,
).map("".join)
text_lists = st.lists(st.one_of(short_texts, fuzz), min_size=1, max_size=4)


@pytest.mark.parametrize("few_characters", [-1, 11_000])
@pytest.mark.parametrize("name", mark_slow_except(NAMES, ["bpe with bytes", *BUILT_NAMES[:2], "runs"]))
@pytest.mark.usefixtures("use_engine")
@given(texts=text_lists)
def test_results_equal_the_library(models, name, few_characters, texts):
    tokenizer = models[name]
    expected = tokenizer._encode_group([to_utf8(text) for text in texts], sources=True)
    with use_small_chunks(few=few_characters):
        options = {"add_special_tokens": False, **match_symbols(tokenizer)}
        batch = tokjax.encode_batch_result(tokenizer, texts, **options)
        ids_only = tokjax.encode_batch_result(tokenizer, texts, **options, return_offsets=False)
    assert tokenizer._engine is not None
    np.testing.assert_array_equal(batch.ragged.ids, expected.ids)
    np.testing.assert_array_equal(batch.ragged.row_splits, expected.splits)
    np.testing.assert_array_equal(batch.ragged.offsets - 1, expected.spans)
    np.testing.assert_array_equal(ids_only.ragged.ids, expected.ids)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("use_engine")
def test_word_ids_equal_the_library(models, name):
    text = "he  h\nab <h1>é中ab  aaaa a"
    expected = models[name]._encode_group([text.encode()], sources=True)
    result = tokjax.encode_result(models[name], text, add_special_tokens=False, disallowed_special=())
    assert (np.diff(result.word_ids, prepend=-1) > 0).tolist() == expected.begins_word.tolist()


@pytest.mark.usefixtures("use_engine")
def test_long_texts_are_split_only_where_nothing_merges(models):
    text = "abab\n\n\n<h1><h1>hehe   aaaa中1é\naba" * 9
    for tokenizer in models.values():
        expected = tokenizer.processor.encode(text)
        with use_small_chunks(8):
            ids = tokjax.encode(tokenizer, text, add_special_tokens=False, disallowed_special=())
        assert ids.tolist() == expected


def test_the_library_encodes_short_and_first_texts(models):
    tokenizer = tokjax.sentencepiece(models["runs"].model_proto)
    text = "a" * (sentencepiece_module.FEW_CHARACTERS + 1)
    tokjax.encode(tokenizer, "a" * sentencepiece_module.FEW_CHARACTERS)
    assert "_engine" not in vars(tokenizer)
    tokjax.encode(tokenizer, text)  # more than 16 bytes per piece
    assert vars(tokenizer)["_engine"] is not None


UNSUPPORTED = {
    "equal scores": build_bpe_model(["a", "b", "ab", "ba"], scores=[0, -1, -2, -2]),
    "unused pieces": build_bpe_model(["a", "b", "ab"], unused=["ba"]),
    "a space in a piece": build_bpe_model(["a", "b", "a b"]),
    "▁ inside of a symbol": build_bpe_model(["a", "b", "ab"], symbols=["a▁b"]),
    "no ▁": build_bpe_model(["a", "b", "ab"]),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.usefixtures("use_engine")
def test_other_models_use_the_library(name):
    tokenizer = tokjax.sentencepiece(UNSUPPORTED[name])
    text = "abab a b ba "
    ids = tokjax.encode(tokenizer, text, add_special_tokens=False)
    assert tokenizer._engine is None
    assert ids.tolist() == tokenizer.processor.encode(text)


def get_character_map(tokenizer):
    [spec] = [dict(iter_fields(value)) for number, value in iter_fields(tokenizer.model_proto) if number == 3]
    return spec[2]


def test_character_maps_replace_as_the_library_does():
    tokenizer = train_sentencepiece_models()["case folded"]
    trie = CharacterTrie(get_character_map(tokenizer))
    assert [trie.find(key) for key in ("ﬃ", "½", "É", "e\u0301", "x")] == ["ffi", "1⁄2", "é", "é", None]
    for character in map(chr, [*range(0xA0, 0x300), *range(0x2000, 0x20D0), *range(0x2100, 0x3000)]):
        replacement = trie.find(character)
        expected = tokenizer.processor.normalize(f"x{character}y").removeprefix("▁")
        assert f"x{character if replacement is None else replacement}y".replace(" ", "▁") == expected


def test_damaged_character_maps_are_errors():
    charsmap = get_character_map(train_sentencepiece_models()["bpe"])
    with pytest.raises(ValueError, match=r"a trie of 3 bytes can't be in a character map of 7 bytes"):
        CharacterTrie(struct.pack("<I", 3) + b"abc")
    with pytest.raises(ValueError, match="a trie of"):
        CharacterTrie(charsmap[:5000])
    with pytest.raises(ValueError, match="invalid start byte"):
        CharacterTrie(charsmap + b"\xff")
