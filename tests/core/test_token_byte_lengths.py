"""Tests of the byte lengths of tokens: those of a text add up to the bytes of the decoded text."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

import tokjax
from tests.conftest import CORPUS
from tests.core.test_protocol import LetterTokenizer
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.tokenizers import ALL_TOKENIZERS, ALL_VARIANTS, make_tokenizer
from tests.support.variants import mark_slow_except
from tokjax.core.protocol import BYTE_PIECE


def list_text_ids(tokenizer):
    """Returns the ids of tokens with text that is independent of the next token."""
    vocabulary = tokjax.get_vocabulary(tokenizer)
    ordinary = {token: id_ for token, id_ in vocabulary.ordinary.items() if not vocabulary.is_special[id_]}
    return [id_ for token, id_ in ordinary.items() if not BYTE_PIECE.fullmatch(token)]


def check_lengths(tokenizer, ids):
    """Checks that ids between two others add the sum of their lengths to the decoded text."""
    lengths = tokjax.token_byte_lengths(tokenizer)
    assert lengths.dtype == np.int32
    assert lengths.shape == (tokjax.vocab_size(tokenizer),)
    text_ids = list_text_ids(tokenizer)
    left, right = text_ids[len(text_ids) // 2], text_ids[len(text_ids) // 3]
    inner = [text_ids[i % len(text_ids)] for i in ids]
    whole, outer = (tokjax.decode_bytes(tokenizer, row) for row in ([left, *inner, right], [left, right]))
    assert lengths[inner].sum() == len(whole) - len(outer)
    vocabulary = tokjax.get_vocabulary(tokenizer)
    assert not lengths[vocabulary.is_special].any()
    assert not lengths[vocabulary.byte_lengths < 0].any()


@pytest.mark.parametrize("name", mark_slow_except(ALL_TOKENIZERS, ALL_TOKENIZERS.keys() - ALL_VARIANTS))
@get_max_examples(25)
@given(ids=st.lists(st.integers(0, 2**16), max_size=8))
def test_lengths_add_up(name, ids):
    check_lengths(make_tokenizer(name), ids)


def make_library_byte_fallback():
    """Returns a unigram tokenizer with byte fallback, which runs on the library."""
    pieces = ["<unk>", "▁", *(f"<0x{byte:02X}>" for byte in range(256)), *"aehimnt", "▁th", "ing"]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    converted = tokjax.formats.from_huggingface(tokenizer)
    assert isinstance(converted, tokjax.formats.HuggingFaceTokenizer)
    return converted


BYTE_FALLBACK = {
    "metaspace": lambda: make_tokenizer("metaspace BPE"),
    "SentencePiece": lambda: make_tokenizer("SentencePiece, bpe with bytes"),
    "library": make_library_byte_fallback,
}


@pytest.mark.parametrize("name", BYTE_FALLBACK)
@pytest.mark.parametrize("text", [CORPUS[0], "a 🍣\U0001f9a4 b", "ᚠ ǅ"])
def test_byte_pieces_count_one_byte(name, text):
    """Models that add a space before a text count it."""
    tokenizer = BYTE_FALLBACK[name]()
    ids = tokjax.encode(tokenizer, text, add_special_tokens=False)
    assert BYTE_PIECE.search(b"".join(tokjax.id_to_bytes(tokenizer, id_) for id_ in ids)) or text == CORPUS[0]
    decoded = tokjax.decode_bytes(tokenizer, ids)
    assert tokjax.token_byte_lengths(tokenizer)[ids].sum() == len(decoded) + 1


def test_lengths_of_custom_types():
    lengths = tokjax.token_byte_lengths(LetterTokenizer())
    assert lengths.tolist() == [1] * 26 + [0]
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="no implementation for 'str'"):
        tokjax.token_byte_lengths("tokenizer")
