"""Tests of byte-level BPE vocabularies: lookups, invalid arguments, equality, fingerprints and threads."""

import pytest

import tokjax
from tokjax.pretokenize.patterns import PATTERNS

BYTES = {bytes([i]): i for i in range(256)}


class TestVocabulary:
    def test_lookups(self, tokenizer):
        assert tokjax.vocab_size(tokenizer) == 500
        assert tokjax.token_to_id(tokenizer, "<|pad|>") == tokjax.pad_id(tokenizer) == 257
        assert tokjax.id_to_token(tokenizer, 257) == "<|pad|>"
        assert tokjax.id_to_bytes(tokenizer, 0xC3) == b"\xc3"
        assert tokjax.id_to_token(tokenizer, 0xC3) == "\\xc3"
        assert tokjax.token_to_id(tokenizer, b"\xc3") == 0xC3
        assert tokjax.eos_id(tokenizer) == 256
        assert tokjax.bos_id(tokenizer) is None
        assert tokjax.unk_id(tokenizer) is None
        assert list(tokjax.special_tokens(tokenizer).values()) == [256, 257, 258]
        assert tokjax.tokenize(tokenizer, "low low", add_special_tokens=False) == ["low", " low"]

    def test_unknown_ids_and_tokens(self, tokenizer):
        for call in (
            lambda: tokjax.id_to_bytes(tokenizer, 500),
            lambda: tokjax.id_to_token(tokenizer, -1),
            lambda: tokjax.decode(tokenizer, [1, 500]),
        ):
            with pytest.raises(tokjax.errors.UnknownTokenError, match="ids go from 0 to 499"):
                call()
        with pytest.raises(tokjax.errors.UnknownTokenError, match="no token 'no such token'"):
            tokjax.token_to_id(tokenizer, "no such token")
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="unequal length"):
            tokjax.decode(tokenizer, [[1, 2], [3]])

    def test_unused_ids(self):
        tokenizer = tokjax.byte_level_bpe(BYTES, special_tokens={"<x>": 300})
        assert tokjax.vocab_size(tokenizer) == 301
        with pytest.raises(tokjax.errors.UnknownTokenError, match=r"no id 299 \(at position 1\).*44 of them"):
            tokjax.decode(tokenizer, [65, 299])

    def test_empty_token(self, tmp_path):
        ranks = BYTES | {b"": 256, b"lo": 257}
        tokenizer = tokjax.byte_level_bpe(ranks, special_tokens={"<x>": 258})
        assert tokjax.vocab_size(tokenizer) == 259
        assert tokjax.encode(tokenizer, "low").tolist() == [257, 119]
        assert tokjax.decode(tokenizer, [257, 256, 119, 256]) == "low"
        assert tokjax.token_byte_lengths(tokenizer)[256:].tolist() == [0, 2, 0]
        assert tokjax.id_to_token(tokenizer, 256) == ""
        assert tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path)) == tokenizer
        shorter, old_ids = tokjax.truncate_vocabulary(tokenizer, 258)
        assert tokjax.decode(shorter, [256]) == ""
        assert old_ids[256:].tolist() == [256, 258]
        for format_ in ("tiktoken", "gpt2", "huggingface"):
            (tmp_path / format_).mkdir()
            tokjax.formats.export_tokenizer(tokenizer, tmp_path / format_, format_)
            special = {"special_tokens": {"<x>": 258}, "pattern": "gpt2"} if format_ == "tiktoken" else {}
            loaded = tokjax.load_tokenizer(tmp_path / format_, **special)
            assert tokjax.get_vocabulary(loaded).bytes_by_id == tokenizer.vocabulary.bytes_by_id

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"ranks": {b"a": 0}}, "every single byte"),
            ({"ranks": BYTES | {b"ab": 65}}, "id 65 is given to both b'A' and b'ab'"),
            ({"ranks": BYTES | {b"": 65}}, "id 65 is given to both b'A' and 'the empty token'"),
            ({"ranks": BYTES | {b"": -1}}, "the id of 'the empty token' is -1; ids go from 0"),
            ({"ranks": BYTES | {b"ab": -1}}, "is -1; ids go from 0"),
            ({"ranks": BYTES | {b"ab": 2**31}}, "is 2147483648; ids go from 0"),
            ({"ranks": BYTES | {b"ab": "7"}}, "'7'; ids are integers"),
            ({"ranks": BYTES, "special_tokens": {"<x>": 65}}, "id 65 is given to both b'A' and '<x>'"),
            ({"ranks": BYTES, "special_tokens": {"": 300}}, "id 300 is empty"),
            ({"ranks": BYTES, "special_tokens": {"\ud800": 300}}, "lone surrogate"),
            ({"ranks": [b"a"]}, "ranks must map tokens to ids, not be a list"),
            (
                {"ranks": BYTES, "eos_token": "<x>"},
                "eos_token is '<x>', which is not among the special tokens",
            ),
        ],
    )
    def test_invalid_vocabularies_are_rejected(self, arguments, message):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.byte_level_bpe(**arguments)

    def test_values_that_are_no_texts_are_rejected(self, tokenizer):
        for wrong in ({"a"}, iter(["a"]), (text for text in "ab"), None, 3):
            with pytest.raises(
                tokjax.errors.InvalidArgumentError, match=r"must be a sequence.*; pass list\(texts\)"
            ):
                tokjax.encode_batch_result(tokenizer, wrong)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="text 1 must be str or bytes, not NoneType"
        ):
            tokjax.encode_batch_result(tokenizer, ["a", None])


class TestSharing:
    def test_fingerprint_ignores_the_name_of_the_pattern(self, tokenizer):
        ranks = dict(tokenizer.vocabulary.ordinary)
        fingerprints = {
            tokjax.fingerprint(tokjax.byte_level_bpe(ranks, pattern=pattern))
            for pattern in ("cl100k", "llama3", PATTERNS["cl100k"])
        }
        assert len(fingerprints) == 1
