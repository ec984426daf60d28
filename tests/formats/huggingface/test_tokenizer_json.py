"""Tokenizers of Hugging Face's library, from a `tokenizer.json` and from memory: against that library."""

import json
import pickle
import unicodedata

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import LIBRARY_TOKENIZERS, NATIVE_TOKENIZERS, SPECIAL, make_pair
from tests.support.span_checks import assert_spans_agree
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.core.utf8 import to_characters


@pytest.mark.parametrize("name", NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)
def test_native_tokenizers(name):
    _, ours = make_pair(name)
    assert isinstance(ours, tokjax.formats.HuggingFaceTokenizer) == (name in LIBRARY_TOKENIZERS)


def plain(text):
    return to_characters(text).translate(dict.fromkeys(range(0xD800, 0xE000), "\ufffd"))


specials = st.lists(st.sampled_from([*SPECIAL, "<unk>", "<S>", "<MÁSK>", " ", "a", "é"]), max_size=5).map(
    "".join
)


@pytest.mark.parametrize("name", NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)
@given(text=hard_texts | specials | st.sampled_from(CORPUS), pair=st.none() | hard_texts)
def test_ids_and_offsets_are_the_library_s(name, text, pair):
    theirs, ours = make_pair(name)
    if isinstance(ours, tokjax.formats.HuggingFaceTokenizer):
        given_texts = text, pair
    else:  # ours encodes other characters for surrogates than U+FFFD
        text, pair = (None if one is None else plain(one) for one in (text, pair))
        given_texts = text, pair
    expected = theirs.encode(plain(text), None if pair is None else plain(pair))
    result = tokjax.encode_result(ours, *given_texts, allowed_special="all")
    assert result.ids.tolist() == expected.ids
    assert result.token_type_ids.tolist() == expected.type_ids
    assert result.sequence_ids.tolist() == [-1 if i is None else i for i in expected.sequence_ids]
    spans = result.offsets
    if result.metadata.offsets_reference == "tokenizer_normalized_text":
        spans = tokjax.map_offsets_to_input(ours, text, spans) if pair is None else None
    composes = name == "Qwen 2" and not unicodedata.is_normalized("NFC", text)
    if pair is None and not composes:  # (the library's spans leave out the marks that were composed)
        own = result.sequence_ids == 0
        of_text = np.array(expected.offsets).reshape(-1, 2)[own]
        assert_spans_agree(plain(text), spans[own].tolist(), of_text)
    alone = tokjax.encode(ours, text, allowed_special="all", add_special_tokens=False)
    assert alone.tolist() == theirs.encode(plain(text), add_special_tokens=False).ids


@pytest.mark.parametrize("name", NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)
@given(texts=st.lists(hard_texts | byte_strings, max_size=5))
def test_a_batch_is_its_texts_one_by_one(name, texts):
    _, ours = make_pair(name)
    options = {"disallowed_special": ()}
    batch = tokjax.encode_batch_result(ours, texts, **options)
    assert list(batch) == [tokjax.encode_result(ours, text, **options) for text in texts]
    for text, row in zip(texts, batch, strict=True):
        view = (
            text if row.metadata.offsets_reference == "input_text" else tokjax.tokenization_view(ours, text)
        )
        assert tokjax.offsets.validate_offsets_contract(view, row.offsets)
    without_special = tokjax.encode_batch_result(
        ours, texts, return_offsets=False, return_masks=False, **options
    )
    assert without_special.ids.tolist() == batch.ids.tolist()


@pytest.mark.parametrize("name", NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)
def test_it_pickles_is_written_and_is_equal(name, tmp_path):
    theirs, ours = make_pair(name)
    again = tokjax.load_tokenizer(tokjax.save_tokenizer(ours, tmp_path))
    for other in (again, pickle.loads(pickle.dumps(ours)), tokjax.formats.from_huggingface(theirs)):
        assert other == ours
        assert hash(other) == hash(ours)
        assert tokjax.fingerprint(other) == tokjax.fingerprint(ours)
        assert (
            tokjax.encode(other, CORPUS[0], add_special_tokens=False).tolist()
            == theirs.encode(CORPUS[0], add_special_tokens=False).ids
        )


@pytest.mark.parametrize("name", ["digits", "unigram", "Llama 2", "Gemma"])
def test_decoding_is_the_library_s(name):
    theirs, ours = make_pair(name)
    for text in CORPUS:
        ids = theirs.encode(text).ids
        assert tokjax.decode(ours, ids) == theirs.decode(ids, skip_special_tokens=False)
        skipped = theirs.decode(ids, skip_special_tokens=True)
        assert tokjax.decode(ours, ids, skip_special_tokens=True) == skipped
        assert tokjax.decode_batch(ours, [ids, []], skip_special_tokens=True) == [skipped, ""]


def test_bytes_of_one_character_have_spans_of_their_own():
    result = tokjax.encode_result(make_pair("Llama 2")[1], "a日", add_special_tokens=False)
    assert result.tokens[-3:] == ("<0xE6>", "<0x97>", "<0xA5>")
    assert result.offsets[-3:].tolist() == [[2, 3], [3, 4], [4, 5]]
    result = tokjax.encode_result(make_pair("digits")[1], "1\U0001f9e0", add_special_tokens=False)
    assert result.offsets.tolist() == [[1, 2], [2, 4], [4, 5], [5, 6]]


def test_whitespace_comes_from_the_input():
    """Control characters stand between a token and the white space, and are dropped by the normalizer."""
    theirs = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "[L]": 2, "[R]": 3}, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer()
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.decoder = decoders.WordPiece()
    tokens = [AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True), "[UNK]"]
    theirs.add_special_tokens(tokens)
    ours = tokjax.formats.from_huggingface(theirs)
    assert isinstance(ours, tokjax.models.WordPieceTokenizer)
    for text in (
        "a \x00[L]",
        "a\x00 [L]",
        "a \u200b [L]",
        "[R]\x00 a",
        "[R] \x00a",
        "a\u3000\n[L][R]\t\xa0a",
    ):
        for given_text in (text, text.encode()):
            result = tokjax.encode_result(ours, given_text, allowed_special="all")
            spans = tokjax.map_offsets_to_input(ours, given_text, result.offsets)
            assert result.ids.tolist() == theirs.encode(text).ids
            assert_spans_agree(text, spans.tolist(), theirs.encode(text).offsets)


@pytest.mark.parametrize("name", ["unigram", "GPT-2", "digits", "Llama 2"])
def test_special_tokens_in_texts(name):
    _, ours = make_pair(name)
    with pytest.raises(
        tokjax.errors.DisallowedSpecialTokenError, match=r"special token '</s>' at character 2"
    ):
        tokjax.encode(ours, "a </s>")
    if name == "unigram":
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"text 0 holds '</s>', and this model makes"
        ):
            tokjax.encode(ours, "a </s>", disallowed_special=())
    else:
        ordinary = tokjax.encode_result(ours, "a </s>", disallowed_special=(), add_special_tokens=False)
        assert tokjax.token_to_id(ours, "</s>") not in ordinary.ids
    found = tokjax.encode_result(ours, "a </s>", allowed_special={"</s>"}, add_special_tokens=False)
    assert found.special_tokens_mask.tolist()[-1] == 1
    assert found.offsets[-1].tolist() == [3, 7]


def test_the_library_can_t_keep_some_special_and_others_not():
    _, ours = make_pair("unigram")
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"all special tokens in a text or none.*'<s>'"
    ):
        tokjax.encode(ours, "<s></s>", allowed_special={"</s>"}, disallowed_special=())


def test_repr_and_metadata(caplog, tmp_path):
    path = tmp_path / "tokenizer.json"
    make_pair("unigram")[0].save(str(path))
    with caplog.at_level("INFO", "tokjax"):
        ours = tokjax.load_tokenizer(path)
    assert f"{path} runs on the tokenizers library: its model is Unigram" in caplog.text
    assert repr(ours).endswith("runs on the tokenizers library: its model is Unigram)")
    assert ours.normalization == "NFKC+Lowercase"
    assert tokjax.unk_id(ours) == 4


def test_truncation_and_padding_of_the_file_are_not_done():
    theirs, _ = make_pair("unigram")
    strict = Tokenizer.from_str(theirs.to_str())
    strict.enable_truncation(3)
    strict.enable_padding(length=20)
    ours = tokjax.formats.from_huggingface(strict)
    assert tokjax.encode_result(ours, CORPUS[0]).ids.tolist() == theirs.encode(CORPUS[0]).ids


class TestRoles:
    def test_special_tokens_from_config_files(self, tmp_path):
        make_pair("RoBERTa")[0].save(str(tmp_path / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "pad_token": None}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "<pad>", "cls_token": "<s>"}')
        ours = tokjax.load_tokenizer(tmp_path)
        assert dict(ours.vocabulary.roles) == {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}

    def test_special_tokens_from_arguments(self):
        ours = tokjax.formats.from_huggingface(make_pair("RoBERTa")[0], pad_token="<pad>")
        assert tokjax.pad_id(ours) == 2
        assert (
            tokjax.encode_result(ours, "a").tokens
            == tokjax.encode_result(make_pair("RoBERTa")[1], "a").tokens
        )
        for name in ("unigram", "GPT-2"):
            with pytest.raises(
                tokjax.errors.InvalidArgumentError, match="eos_token is '<eos>', which is not among"
            ):
                tokjax.formats.from_huggingface(make_pair(name)[0], eos_token="<eos>")

    def test_tokenizers_from_transformers(self):
        transformers = pytest.importorskip("transformers")
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=make_pair("unigram")[0], eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
        )
        ours = tokjax.formats.from_huggingface(fast)
        assert dict(ours.vocabulary.roles) == {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
        assert tokjax.encode_result(ours, CORPUS[2]).ids.tolist() == fast(CORPUS[2])["input_ids"]


def test_other_objects_are_rejected():
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match=r"not str; a slow one has no offsets"):
        tokjax.formats.from_huggingface("bert-base-uncased")


def test_a_dataset_keeps_the_tokenizer(tmp_path):
    ours = tokjax.formats.from_huggingface(make_pair("unigram")[0], eos_token="</s>")
    tokjax.write_dataset(CORPUS, tokjax.PackedTokenField(ours, chunk_tokens=50), tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert dataset.tokenizer == ours
    assert (
        tokjax.encode(dataset.tokenizer, CORPUS[0]).tolist()
        == dataset.read(0, len(tokjax.encode(ours, CORPUS[0]))).tolist()
    )


@pytest.mark.parametrize("texts", ["ab", b"ab", iter(["ab"])])
def test_what_is_no_sequence_of_texts(texts):
    for options in ({}, {"max_length": 5}, {"pairs": ["a"]}):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="texts"):
            tokjax.encode_batch_result(make_pair("BERT")[1], texts, **options)
