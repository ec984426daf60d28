import pytest

import tokjax


def test_quick_tokenize(tokenizer):
    quick = tokjax.quick_tokenize(tokenizer, "low é")
    result = tokjax.encode_result(tokenizer, "low é")
    assert quick.token_pieces == result.tokens
    assert quick.token_ids.tolist() == result.ids.tolist()
    assert quick.decoded_text == quick.tokenization_text == "low é"
    assert quick.offsets.tolist() == result.offsets.tolist()
    assert quick.attention_mask.tolist() == [1] * len(result)
    assert quick.special_tokens_mask.tolist() == [0] * (len(result) - 1) + [1]
    assert quick.token_type_ids.tolist() == [0] * len(result)
    assert quick.metadata.offsets_reference == "input_text"


def test_offsets_are_into_the_view(tokenizer):
    qwen2 = tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary), pattern="qwen2")
    quick = tokjax.quick_tokenize(qwen2, "e\u0301!")
    assert quick.tokenization_text == "é!"
    assert tokjax.validate_offsets_contract("é!", quick.offsets)


def test_quick_encode_batch(tokenizer):
    quick = tokjax.quick_encode_batch(tokenizer, ["low", "low low"])
    assert list(quick.results) == [tokjax.encode_result(tokenizer, t) for t in ("low", "low low")]
    assert quick.sequence_lengths.tolist() == [2, 3]
    assert tokjax.quick_encode_batch(tokenizer, []).sequence_lengths.tolist() == []
    with pytest.raises(tokjax.InvalidArgumentError, match=r"pass \[text\]"):
        tokjax.quick_encode_batch(tokenizer, "low")


def test_quick_causal_lm_batch(tokenizer, plain_tokenizer):
    low, low_, eos, pad = (
        tokjax.token_to_id(tokenizer, t) for t in ("low", " low", "<|endoftext|>", "<|pad|>")
    )
    batch = tokjax.quick_causal_lm_batch(tokenizer, ["low", "low low"])
    assert batch.ids.tolist() == [[low, eos, pad], [low, low_, eos]]
    assert batch.attention_mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.labels.tolist() == [[eos, -100, -100], [low_, eos, -100]]
    given = tokjax.quick_causal_lm_batch(tokenizer, ["low", "low low"], pad_id=7, ignore_index=-1)
    assert given.ids[0, 2] == 7
    assert given.labels.tolist() == [[eos, -1, -1], [low_, eos, -1]]
    only_eos = tokjax.byte_level_bpe(
        dict(tokenizer.vocabulary.ordinary), special_tokens={"</s>": 999}, eos_token="</s>"
    )
    safe = tokjax.quick_causal_lm_batch(only_eos, ["low", "low low"])
    assert safe.ids[0].tolist()[1:] == [999, 999]
    assert safe.labels[0].tolist() == [999, -100, -100]
    with pytest.raises(
        tokjax.MissingSpecialTokenError, match="neither a pad nor an eos token; pass pad_id=ID"
    ):
        tokjax.quick_causal_lm_batch(plain_tokenizer, ["low", "low low"])
    assert tokjax.quick_causal_lm_batch(tokenizer, []).labels.shape == (0, 0)


def test_quick_train_bundle(tmp_path, corpus):
    bundle = tokjax.quick_train_bundle(corpus, vocab_size=300, directory=tmp_path / "new" / "bundle")
    assert bundle.tokenizer == tokjax.load_tokenizer(tmp_path / "new" / "bundle")
    assert bundle.tokenizer_file.parent == bundle.directory
    assert tokjax.decode(bundle.tokenizer, bundle.sample_ids) == bundle.sample_text
    assert bundle.stats.documents == len(corpus)
    by_path = tokjax.quick_tokenize(bundle.directory, "low")
    assert by_path.token_ids.tolist() == tokjax.quick_tokenize(bundle.tokenizer, "low").token_ids.tolist()
    assert tokjax.quick_encode_batch(str(bundle.tokenizer_file), ["a"]).sequence_lengths.tolist() == [2]
