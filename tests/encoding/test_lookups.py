"""Tests of lookups in encoded texts: tokens of bytes, characters and words."""

import pytest

import tokjax
from tests.encoding.wordpiece_tokenizers import (
    make_tokenizers,
)


class TestLookups:
    result = tokjax.encode_result(make_tokenizers()[0], "not éa", "be", assume_normalized=True)

    def test_tokens(self):
        assert self.result.tokens == ("[CLS]", "not", "é", "##a", "[SEP]", "be", "[SEP]")

    def test_bytes(self):
        tokens = [tokjax.align.byte_to_token(self.result, byte) for byte in range(1, 9)]
        assert tokens == [1, 1, 1, None, 2, 2, 3, None]
        assert tokjax.align.byte_to_token(self.result, 1, sequence_id=1) == 5
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="byte must be at least 1, not 0"):
            tokjax.align.byte_to_token(self.result, 0)

    def test_characters(self):
        text = "not éa"
        assert [tokjax.align.char_to_token(self.result, text, i) for i in range(6)] == [1, 1, 1, None, 2, 3]
        with pytest.raises(tokjax.errors.OffsetsContractError):
            tokjax.align.char_to_token(self.result, text, 6)

    def test_spans(self):
        assert tokjax.align.token_to_span(self.result, 2) == (5, 7)
        assert tokjax.align.token_to_span(self.result, 0) == (0, 0)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="token is 7, and the result has 7 tokens"
        ):
            tokjax.align.token_to_span(self.result, 7)

    def test_words(self):
        assert [tokjax.align.token_to_word(self.result, i) for i in range(7)] == [
            None,
            0,
            1,
            1,
            None,
            0,
            None,
        ]
        assert tokjax.align.word_to_tokens(self.result, 1) == slice(2, 4)
        assert tokjax.align.word_to_tokens(self.result, 0, sequence_id=1) == slice(5, 6)
        assert tokjax.align.word_to_tokens(self.result, 2) is None

    def test_without_offsets(self):
        without_offsets = tokjax.encode_result(make_tokenizers()[0], "not", return_offsets=False)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="no offsets; encode with return_offsets=True"
        ):
            tokjax.align.byte_to_token(without_offsets, 1)
