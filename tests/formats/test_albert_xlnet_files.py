"""Tests of SentencePiece models that the classes ALBERT and XLNet of transformers read."""

import json
import sys

import numpy as np
import pytest

import tokjax
from tests.support.edge_case_texts import EDGE_CASES
from tests.support.sentencepiece_models import train_by_library
from tests.support.span_checks import assert_spans_agree
from tokjax.core.vocabulary import ROLES
from tokjax.models.sentencepiece_files import iter_pieces

FormatError = tokjax.errors.TokenizerFormatError
SIZE = 160
MARKS = ["(", ")", '"', "-", ".", "–", "£", "€"]
TRAINING = {
    "albert": {
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "normalization_rule_name": "nmt_nfkc_cf",
        "user_defined_symbols": MARKS,
    },
    "xlnet": {
        "control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"],
        "user_defined_symbols": MARKS,
    },
    "plain": {},
    "without a character map": {"normalization_rule_name": "identity"},
}
TEXTS = [
    *EDGE_CASES,
    *("[CLS]", "low [MASK]  the [SEP]x", "<unk> <pad>", "``low'' '''", "``É'' lower. the", "(low)-lower.Est"),
    *("low <mask>  the<sep>", "<s></s><cls> <eod>", "▁▁low ▁", "Ж zzz Ж", "e\u0301(e\u0301", "=" * 60),
]
CASES = {
    "ALBERT": ("albert", "AlbertTokenizer", {}),
    "ALBERT with case and accents": (
        "albert",
        "AlbertTokenizerFast",
        {"do_lower_case": False, "keep_accents": True, "add_prefix_space": False},
    ),
    "ALBERT with added tokens": (
        "albert",
        "AlbertTokenizer",
        {
            "added_tokens_decoder": {
                4: {"content": "[MASK]", "lstrip": True, "special": True},
                SIZE: {"content": "<new>", "special": True},
            }
        },
    ),
    "ALBERT with BOS only": ("albert", "AlbertTokenizer", {"add_bos_token": True}),
    "ALBERT with a new mask": ("albert", "AlbertTokenizer", {"mask_token": "<mask>"}),
    "XLNet": ("xlnet", "XLNetTokenizer", {"keep_accents": True}),
    "XLNet in lower case": ("xlnet", "XLNetTokenizer", {"do_lower_case": True, "add_bos_token": True}),
    "XLNet with listed tokens": (
        "xlnet",
        "XLNetTokenizer",
        {"additional_special_tokens": ["<eop>", "<eod>"], "cls_token": "<c>"},
    ),
    "XLNet without pieces": ("plain", "XLNetTokenizer", {}),
    "XLNet without a character map": ("without a character map", "XLNetTokenizer", {}),
}


@pytest.fixture(scope="module")
def protos():
    return {name: train_by_library(vocab_size=SIZE, **options) for name, options in TRAINING.items()}


@pytest.fixture
def write(protos, tmp_path):
    def write(model, name, **config):
        (tmp_path / "spiece.model").write_bytes(protos[model])
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **config}))
        return tmp_path

    return write


@pytest.mark.parametrize("case", CASES)
def test_transformers(case, write):
    transformers = pytest.importorskip("transformers", minversion="5")
    model, name, config = CASES[case]
    directory = write(model, name, **config)
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    tokenizer = tokjax.load_tokenizer(directory)
    forms = {tokjax.id_to_token(tokenizer, id_): id_ for id_ in range(tokjax.vocab_size(tokenizer))}
    assert forms == reference.get_vocab()
    assert {role: getattr(tokjax, f"{role}_id")(tokenizer) for role in ROLES} == {
        role: getattr(reference, f"{role}_token_id") for role in ROLES
    }
    results = tokjax.encode_batch_result(tokenizer, TEXTS, allowed_special="all")
    for text, result in zip(TEXTS, results, strict=True):
        expected = reference(text, return_offsets_mapping=True)
        assert result.ids.tolist() == expected["input_ids"], text
        assert result.ids.tolist() == tokjax.encode(tokenizer, text, allowed_special="all").tolist()
        is_inserted = (result.offsets == 0).all(axis=1)
        spans = np.array(expected["offset_mapping"]).reshape(-1, 2)[~is_inserted]
        assert_spans_agree(text, result.offsets[~is_inserted].tolist(), spans.tolist())
        assert tokjax.decode(tokenizer, result.ids) == reference.decode(expected["input_ids"])
    pair = tokjax.encode_result(tokenizer, "the low", pair="lower")
    expected = reference("the low", "lower", return_token_type_ids=True)
    assert pair.ids.tolist() == expected["input_ids"]
    assert pair.token_type_ids.tolist() == expected["token_type_ids"]


@pytest.mark.parametrize(
    ("model", "name", "tokens"),
    [
        ("albert", "AlbertTokenizer", ["[CLS]", "▁low", "[SEP]"]),
        ("xlnet", "XLNetTokenizer", ["▁low", "<sep>", "<cls>"]),
    ],
)
def test_options(model, name, tokens, write):
    directory = write(model, name)
    bos, eos = ("[CLS]", "[SEP]") if model == "albert" else ("<s>", "</s>")
    for options, expected in [
        ({}, tokens),
        ({"bos_token": "auto"}, [bos, "▁low"]),
        ({"bos_token": "<pad>", "eos_token": "auto"}, ["<pad>", "▁low", eos]),
        ({"eos_token": "<pad>"}, ["▁low", "<pad>"]),
    ]:
        tokenizer = tokjax.load_tokenizer(directory, **options)
        assert tokjax.encode_result(tokenizer, "low").tokens == tuple(expected)
        for role in ("bos", "eos"):
            if options.get(f"{role}_token", "auto") != "auto":
                assert tokjax.id_to_token(tokenizer, getattr(tokjax, f"{role}_id")(tokenizer)) == "<pad>"
    assert tokjax.pad_id(tokjax.load_tokenizer(directory)) == tokjax.token_to_id(tokenizer, "<pad>")
    assert tokjax.pad_id(tokjax.load_tokenizer(directory, pad_token=None)) is None
    assert tokjax.pad_id(tokjax.load_tokenizer(directory, pad_token=bos)) == tokjax.token_to_id(
        tokenizer, bos
    )
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"eos_token is '<x>', which is not among"):
        tokjax.load_tokenizer(directory, eos_token="<x>")


@pytest.mark.parametrize("model", ["albert", "plain"])
def test_library_has_the_scores_of_the_model(model, write, protos):
    tokenizer = tokjax.load_tokenizer(write(model, "XLNetTokenizer"))
    pieces, scores, _ = zip(*iter_pieces(protos[model]), strict=True)
    vocab = json.loads(tokenizer.loaded.library_tokenizer.to_str())["model"]["vocab"]
    assert tuple(piece for piece, _ in vocab) == pieces
    read = np.array([score for _, score in vocab])
    np.testing.assert_allclose(read, scores, rtol=1e-15)
    assert (read != scores).mean() < 0.03  # of the shortest decimal numbers, the library rounds a tenth
    assert [score for _, score in tokenizer.loaded.contents["model"]["vocab"]] == list(scores)


def test_class_of_the_model_type(write):
    directory = write("albert", None)
    (directory / "config.json").write_text('{"model_type": "albert"}')
    assert tokjax.encode_result(tokjax.load_tokenizer(directory), "Low").tokens == ("[CLS]", "▁low", "[SEP]")


def test_files_are_saved_and_loaded(write, tmp_path):
    tokenizer = tokjax.load_tokenizer(write("xlnet", "XLNetTokenizer"))
    saved = tokjax.save_tokenizer(tokenizer, tmp_path / "tokenizer.tokjax.json")
    assert tokjax.load_tokenizer(saved) == tokenizer
    [exported] = tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    assert tokjax.encode_result(tokjax.load_tokenizer(exported), "the low").tokens[-2:] == ("<sep>", "<cls>")


def test_missing_piece(write):
    message = (
        r"has no piece '\[CLS\]', which AlbertTokenizer inserts .* call tokjax\.sentencepiece\('.*model'\)"
    )
    with pytest.raises(FormatError, match=message):
        tokjax.load_tokenizer(write("plain", "AlbertTokenizer"))


def test_library_is_missing(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(tokjax.errors.MissingExtraError, match=r"tokjax\[huggingface\]"):
        tokjax.load_tokenizer(write("albert", "AlbertTokenizer"))


def test_damaged_models(write, protos):
    directory = write("albert", "AlbertTokenizer")
    long_score = b"\n\x0c\n\x01x\x11" + bytes(8)
    for data in (protos["albert"][:-20], protos["albert"][:60], long_score + protos["albert"]):
        (directory / "spiece.model").write_bytes(data)
        with pytest.raises(FormatError, match=r"spiece\.model"):
            tokjax.load_tokenizer(directory, format="sentencepiece")
