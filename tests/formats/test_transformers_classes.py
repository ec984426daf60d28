"""Tests of files whose ids only a class of transformers defines, and of the way to load them."""

import gzip
import json

import pytest

import tokjax
from tests.support.sentencepiece_models import train_by_library
from tokjax.formats.detection import list_candidates, select_files

FormatError = tokjax.errors.TokenizerFormatError
LOAD = r"AutoTokenizer\.from_pretrained\('.*'\)\.save_pretrained\(OUT\), then load_tokenizer\(OUT\); or pass"
WRAP = r"has no tokenizer\.json for them: register a custom type that wraps .* \(docs/extending\.md\)"
ALBERT = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
}
CASES = {
    "ALBERT": ("spiece.model", {"tokenizer_class": "AlbertTokenizerFast"}, LOAD),
    "model_type of XLNet": ("spiece.model", {"model_type": "xlnet"}, LOAD),
    "XLM-R": ("sentencepiece.bpe.model", {"model_type": "xlm-roberta"}, LOAD),
    "NLLB": ("sentencepiece.bpe.model", {"tokenizer_class": "NllbTokenizer"}, LOAD),
    "Pegasus": ("spiece.model", {"tokenizer_class": "PegasusTokenizer", "offset": 0}, LOAD),
    "DeBERTa-v2": ("spm.model", {"model_type": "deberta-v2"}, LOAD),
    "SigLIP": ("spiece.model", {"tokenizer_class": "SiglipTokenizer"}, WRAP),
    "Cohere": ("vocab.json", {"model_type": "cohere"}, LOAD),
    "RoBERTa": ("vocab.json", {"model_type": "roberta"}, LOAD),
    "BART": ("vocab.json", {"tokenizer_class": "BartTokenizerFast"}, LOAD),
    "DeBERTa": ("vocab.json", {"tokenizer_class": "DebertaTokenizer"}, LOAD),
    "CLIP": ("vocab.json", {"tokenizer_class": "CLIPTokenizer"}, LOAD),
    "OpenAI's GPT": ("vocab.json", {"model_type": "openai-gpt"}, LOAD),
    "HerBERT": ("vocab.json", {"tokenizer_class": "HerbertTokenizerFast"}, LOAD),
    "FlauBERT": ("vocab.json", {"model_type": "flaubert"}, WRAP),
    "PhoBERT": ("vocab.txt", {"tokenizer_class": "PhobertTokenizer"}, WRAP),
    "BioGPT": ("vocab.json", {"tokenizer_class": "BioGptTokenizer"}, WRAP),
    "Marian": ("source.model", {"model_type": "marian"}, WRAP),
}


@pytest.fixture(scope="module")
def model():
    return train_by_library(vocab_size=120, **ALBERT)


def write(directory, name, config, model):
    (directory / name).write_bytes(model if ".model" in name else b'{"a": 0}')
    (directory / "merges.txt").write_text("#version: 0.2\na b</w>\n")
    field = "config.json" if "model_type" in config else "tokenizer_config.json"
    (directory / field).write_text(json.dumps(config))
    return directory / name


@pytest.mark.parametrize("case", CASES)
def test_files_are_rejected(case, tmp_path, model):
    name, config, message = CASES[case]
    path = write(tmp_path, name, config, model)
    for source in (path, tmp_path):
        with pytest.raises(FormatError, match=f"its files name .*{message}"):
            tokjax.load_tokenizer(source)


def test_converted_files_have_the_ids_of_transformers(tmp_path, model):
    transformers = pytest.importorskip("transformers", minversion="5")
    path = write(tmp_path, "spiece.model", {"tokenizer_class": "AlbertTokenizer"}, model)
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    reference.save_pretrained(tmp_path / "out")
    converted = tokjax.load_tokenizer(tmp_path / "out")
    by_object = tokjax.formats.from_huggingface(reference.backend_tokenizer)
    for tokenizer in (converted, by_object):
        assert tokjax.encode(tokenizer, "The  ``Low''").tolist() == reference("The  ``Low''")["input_ids"]
    (tmp_path / "tokenizer.json").write_bytes((tmp_path / "out" / "tokenizer.json").read_bytes())
    assert tokjax.encode_result(tokjax.load_tokenizer(tmp_path), "low").tokens[0] == "[CLS]"
    with pytest.raises(FormatError, match=r"those of the model itself are tokjax\.sentencepiece\('.*spiece"):
        tokjax.load_tokenizer(path)


def test_files_without_a_class(tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0, "b</w>": 1, "ab</w>": 2}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b</w>\n")
    pair = [tmp_path / "vocab.json", tmp_path / "merges.txt"]
    for source, format_ in ((tmp_path, "auto"), (pair, "auto"), (pair, "gpt2"), (pair, "word_bpe")):
        with pytest.raises(FormatError, match=f"vocab.json has tokens that end in '</w>', .*{LOAD}"):
            tokjax.load_tokenizer(source, format_)
    merges = b'"bpe_simple_vocab_16e6.txt#version: 0.2\nt h\n'
    for name, data in (("x.txt", merges), ("bpe_simple_vocab_16e6.txt.gz", gzip.compress(merges))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FormatError, match=r"clip-vit-base-patch32: .* has CLIP's merges, .*" + LOAD):
            tokjax.load_tokenizer(tmp_path / name)


def test_configuration_of_the_model_is_downloaded():
    present = ["spiece.model", "config.json", "README.md"]
    assert select_files(present, None, "x") == ["config.json", "spiece.model"]
    assert "config.json" in list_candidates("spiece.model")
