"""Tests of `tokenizer.json` files and of in-memory tokenizers, against the `tokenizers` library."""

import json
import pickle
import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import assume, given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import LIBRARY_TOKENIZERS, NATIVE_TOKENIZERS, SPECIAL, make_pair
from tests.support.span_checks import assert_spans_agree
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.core.utf8 import to_characters


@pytest.mark.parametrize("name", NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)
def test_type_of_the_tokenizer(name):
    _, tokenizer = make_pair(name)
    assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer) == (name in LIBRARY_TOKENIZERS)


def replace_surrogates(text):
    return to_characters(text).translate(dict.fromkeys(range(0xD800, 0xE000), "\ufffd"))


specials = st.lists(st.sampled_from([*SPECIAL, "<unk>", "<S>", "<MÁSK>", " ", "a", "é"]), max_size=5).map(
    "".join
)


@pytest.mark.parametrize("name", NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)
@given(text=hard_texts | specials | st.sampled_from(CORPUS), pair=st.none() | hard_texts)
def test_ids_and_offsets_equal_those_of_the_library(name, text, pair):
    reference, tokenizer = make_pair(name)
    if isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer):
        input_texts = text, pair
    else:  # built-in tokenizers do not encode surrogates as U+FFFD
        text, pair = (None if one is None else replace_surrogates(one) for one in (text, pair))
        input_texts = text, pair
    expected = reference.encode(replace_surrogates(text), None if pair is None else replace_surrogates(pair))
    result = tokjax.encode_result(tokenizer, *input_texts, allowed_special="all")
    assert result.ids.tolist() == expected.ids
    assert result.token_type_ids.tolist() == expected.type_ids
    assert result.sequence_ids.tolist() == [-1 if i is None else i for i in expected.sequence_ids]
    spans = result.offsets
    if result.metadata.offsets_reference == "tokenizer_normalized_text":
        spans = tokjax.map_offsets_to_input(tokenizer, text, spans) if pair is None else None
    composes = name in ("Qwen 2", "Qwen 3.5") and not unicodedata.is_normalized("NFC", text)
    if pair is None and not composes:  # the library's spans leave out marks that were composed
        from_text = result.sequence_ids == 0
        library_spans = np.array(expected.offsets).reshape(-1, 2)[from_text]
        assert_spans_agree(replace_surrogates(text), spans[from_text].tolist(), library_spans)
    ids_without_special = tokjax.encode(tokenizer, text, allowed_special="all", add_special_tokens=False)
    assert (
        ids_without_special.tolist()
        == reference.encode(replace_surrogates(text), add_special_tokens=False).ids
    )


@pytest.mark.parametrize("name", NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)
@given(texts=st.lists(hard_texts | byte_strings, max_size=5))
def test_batch_equals_single_texts(name, texts):
    reference, tokenizer = make_pair(name)
    if "unigram" in name:  # they match special tokens even where ordinary text is requested
        normalized = [reference.normalizer.normalize_str(replace_surrogates(text)) for text in texts]
        assume(not any(special in text for text in normalized for special in SPECIAL))
    options = {"disallowed_special": ()}
    batch = tokjax.encode_batch_result(tokenizer, texts, **options)
    assert list(batch) == [tokjax.encode_result(tokenizer, text, **options) for text in texts]
    for text, row in zip(texts, batch, strict=True):
        view = (
            text
            if row.metadata.offsets_reference == "input_text"
            else tokjax.tokenization_view(tokenizer, text)
        )
        assert tokjax.offsets.validate_offsets_contract(view, row.offsets)
    ids_only = tokjax.encode_batch_result(
        tokenizer, texts, return_offsets=False, return_masks=False, **options
    )
    assert ids_only.ids.tolist() == batch.ids.tolist()


@pytest.mark.parametrize("name", NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)
def test_round_trips_and_equality(name, tmp_path):
    reference, tokenizer = make_pair(name)
    again = tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path))
    for other in (again, pickle.loads(pickle.dumps(tokenizer)), tokjax.formats.from_huggingface(reference)):
        assert other == tokenizer
        assert hash(other) == hash(tokenizer)
        assert tokjax.fingerprint(other) == tokjax.fingerprint(tokenizer)
        assert (
            tokjax.encode(other, CORPUS[0], add_special_tokens=False).tolist()
            == reference.encode(CORPUS[0], add_special_tokens=False).ids
        )


def test_bytes_of_one_character_have_separate_spans():
    result = tokjax.encode_result(make_pair("Llama 2")[1], "a日", add_special_tokens=False)
    assert result.tokens[-3:] == ("<0xE6>", "<0x97>", "<0xA5>")
    assert result.offsets[-3:].tolist() == [[2, 3], [3, 4], [4, 5]]
    result = tokjax.encode_result(make_pair("punctuation")[1], "1\U0001f9e0", add_special_tokens=False)
    assert result.offsets.tolist() == [[1, 2], [2, 4], [4, 5], [5, 6]]


def test_lstrip_and_rstrip_use_the_input_text():
    """The normalizer removes control characters between a token and whitespace. They still separate them."""
    reference = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "[L]": 2, "[R]": 3}, unk_token="[UNK]"))
    reference.normalizer = normalizers.BertNormalizer()
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    reference.decoder = decoders.WordPiece()
    tokens = [AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True), "[UNK]"]
    reference.add_special_tokens(tokens)
    tokenizer = tokjax.formats.from_huggingface(reference)
    assert isinstance(tokenizer, tokjax.models.WordPieceTokenizer)
    for text in (
        "a \x00[L]",
        "a\x00 [L]",
        "a \u200b [L]",
        "[R]\x00 a",
        "[R] \x00a",
        "a\u3000\n[L][R]\t\xa0a",
    ):
        for input_text in (text, text.encode()):
            result = tokjax.encode_result(tokenizer, input_text, allowed_special="all")
            spans = tokjax.map_offsets_to_input(tokenizer, input_text, result.offsets)
            assert result.ids.tolist() == reference.encode(text).ids
            assert_spans_agree(text, spans.tolist(), reference.encode(text).offsets)


@pytest.mark.parametrize("name", ["unigram", "unsplit unigram", "GPT-2", "punctuation", "Llama 2"])
def test_special_tokens_in_texts(name):
    _, tokenizer = make_pair(name)
    with pytest.raises(
        tokjax.errors.DisallowedSpecialTokenError, match=r"special token '</s>' at character 2"
    ):
        tokjax.encode(tokenizer, "a </s>")
    if "unigram" in name:
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"contains '</s>', which this model encodes"
        ):
            tokjax.encode(tokenizer, "a </s>", disallowed_special=())
    else:
        ordinary = tokjax.encode_result(tokenizer, "a </s>", disallowed_special=(), add_special_tokens=False)
        assert tokjax.token_to_id(tokenizer, "</s>") not in ordinary.ids
    matched = tokjax.encode_result(tokenizer, "a </s>", allowed_special={"</s>"}, add_special_tokens=False)
    assert matched.special_tokens_mask.tolist()[-1] == 1
    assert matched.offsets[-1].tolist() == [3, 7]


def test_allowed_and_ordinary_special_tokens_in_one_text():
    _, tokenizer = make_pair("unsplit unigram")
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"all special tokens in a text or none.*'<s>'"
    ):
        tokjax.encode(tokenizer, "<s></s>", allowed_special={"</s>"}, disallowed_special=())


def test_repr_and_metadata(caplog, tmp_path):
    path = tmp_path / "tokenizer.json"
    make_pair("unsplit unigram")[0].save(str(path))
    with caplog.at_level("INFO", "tokjax"):
        tokenizer = tokjax.load_tokenizer(path)
    assert f"{path} runs on the tokenizers library: its Metaspace has split=False" in caplog.text
    assert "reason='its Metaspace has split=False'" in repr(tokenizer)
    assert tokenizer.normalization == "NFKC+Lowercase"
    assert tokjax.unk_id(tokenizer) == 4


def test_truncation_and_padding_of_the_file_are_not_applied():
    reference, _ = make_pair("unigram")
    padded = Tokenizer.from_str(reference.to_str())
    padded.enable_truncation(3)
    padded.enable_padding(length=20)
    tokenizer = tokjax.formats.from_huggingface(padded)
    assert tokjax.encode_result(tokenizer, CORPUS[0]).ids.tolist() == reference.encode(CORPUS[0]).ids


@pytest.mark.parametrize("name", ["GPT-2", "punctuation"])
def test_token_without_bytes(tmp_path, name):
    contents = json.loads(make_pair(name)[0].to_str())
    vocab = contents["model"]["vocab"]
    vocab[""] = len(vocab)
    (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    tokenizer = tokjax.load_tokenizer(tmp_path)
    reference = Tokenizer.from_str(json.dumps(contents))
    assert isinstance(tokenizer, tokjax.models.ByteLevelBPE) == (name in NATIVE_TOKENIZERS)
    for text in CORPUS:
        ids = reference.encode(text).ids
        assert tokjax.encode(tokenizer, text).tolist() == ids
        with_empty = [vocab[""], *ids, vocab[""]]
        assert tokjax.decode(tokenizer, with_empty) == reference.decode(with_empty, skip_special_tokens=False)


class TestRoles:
    def test_special_tokens_from_arguments(self):
        tokenizer = tokjax.formats.from_huggingface(make_pair("RoBERTa")[0], pad_token="<pad>")
        assert tokjax.pad_id(tokenizer) == 2
        assert (
            tokjax.encode_result(tokenizer, "a").tokens
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
        tokenizer = tokjax.formats.from_huggingface(fast)
        assert dict(tokenizer.vocabulary.roles) == {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
        assert tokjax.encode_result(tokenizer, CORPUS[2]).ids.tolist() == fast(CORPUS[2])["input_ids"]


def test_other_objects_are_rejected():
    with pytest.raises(
        tokjax.errors.UnsupportedTokenizerError, match=r"not str; a slow tokenizer has no offsets"
    ):
        tokjax.formats.from_huggingface("bert-base-uncased")


def test_versions_of_the_library_with_another_interface(monkeypatch, tmp_path):
    """Version 1 has no definitions, offsets and word ids. The file is not to blame."""
    make_pair("unsplit unigram")[0].save(str(tmp_path / "tokenizer.json"))
    new = type("Tokenizer", (), {"__module__": "tokenizers.tokenizers"})()
    monkeypatch.setattr(tokenizers, "__version__", "1.0.0-rc.3")
    message = (
        r"needs tokenizers>=0\.22,<1, and version 1\.0\.0-rc\.3 is installed; .* 'tokjax\[huggingface\]'"
    )
    for load, source in (
        (tokjax.load_tokenizer, tmp_path),
        (tokjax.load_tokenizer, new),
        (tokjax.formats.from_huggingface, new),
    ):
        with pytest.raises(tokjax.errors.MissingExtraError, match=message):
            load(source)
