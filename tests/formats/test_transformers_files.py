"""Tests of directories that transformers reads: their ids depend on a class or on configuration files."""

import json
import sys

import pytest

import tokjax
from tests.support.huggingface_tokenizers import make_pair, make_word_bpe
from tests.support.sentencepiece_models import train_by_library
from tokjax.formats.file_formats import list_candidates, select_files

FormatError = tokjax.errors.TokenizerFormatError
CONFIG = "tokenizer_config.json"
TEXTS = ("The low lower  widest é 12", "", " x", "  low", "low<pad>er <mask>the <new> the!", "[mask] 12")
SPECIAL_PIECES = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "low", "##er", "the", "x"]


def make_merge_files(library_tokenizer):
    model = json.loads(library_tokenizer.to_str())["model"]
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": "#version: 0.2\n" + merges}


MODELS = {
    "spiece.model": lambda: train_by_library(
        vocab_size=120, **SPECIAL_PIECES, control_symbols=["[CLS]", "[SEP]"]
    ),
    "sentencepiece.bpe.model": lambda: train_by_library(vocab_size=120),
    "tokenizer.model": lambda: train_by_library(vocab_size=150, model_type="bpe"),
}
FILES = {
    "gpt2": lambda: make_merge_files(make_pair("GPT-2")[0]),
    "words": lambda: make_merge_files(make_word_bpe()),
    "vocab.txt": lambda: {"vocab.txt": "\n".join(BERT)},
    **{name: lambda name=name, train=train: {name: train()} for name, train in MODELS.items()},
}
PAD = {"150": {"content": "<pad>", "special": True}}
CASES = {
    "XLM-R": ("sentencepiece.bpe.model", {"tokenizer_class": "XLMRobertaTokenizer"}),
    "T5": ("spiece.model", {"tokenizer_class": "T5Tokenizer", "eos_token": "[SEP]", "unk_token": "<unk>"}),
    "Gemma": ("tokenizer.model", {"tokenizer_class": "GemmaTokenizer"}),
    "Llama": ("tokenizer.model", {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": PAD}),
    "RoBERTa": ("gpt2", {"tokenizer_class": "RobertaTokenizer"}),
    "Qwen 2": ("gpt2", {"tokenizer_class": "Qwen2Tokenizer"}),
    "OPT": ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": "</s>"}),
    "GPT-2 with padding": ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<new>"}),
    "GPT-2 with an added token": (
        "gpt2",
        {
            "tokenizer_class": "GPT2Tokenizer",
            "added_tokens_decoder": {"3": {"content": "<mask>", "special": True}},
        },
    ),
    "GPT-2 with a byte that is special": ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "pad_token": "!"}),
    "BERT": ("vocab.txt", {"tokenizer_class": "BertTokenizer", "mask_token": "<mask>"}),
    "BERT with a token of lower-cased texts": (
        "vocab.txt",
        {
            "tokenizer_class": "BertTokenizer",
            "added_tokens_decoder": {"4": {"content": "[MASK]", "special": True, "normalized": True}},
        },
    ),
}


def write(directory, files, config=None, name=CONFIG):
    for file, contents in FILES[files]().items():
        data = contents if isinstance(contents, bytes) else contents.encode()
        (directory / file).write_bytes(data)
    if config is not None:
        (directory / name).write_text(json.dumps(config))
    return directory


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers", minversion="5")


@pytest.fixture
def without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)


def check_equal(tokenizer, reference):
    for text in TEXTS:
        ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
        assert ids == reference(text)["input_ids"], text


@pytest.mark.parametrize("case", CASES)
def test_ids_are_those_of_transformers(transformers, case, tmp_path):
    write(tmp_path, *CASES[case])
    check_equal(tokjax.load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path))


def test_the_configuration_of_the_model_names_the_class(transformers, tmp_path):
    write(tmp_path, "sentencepiece.bpe.model", {"model_type": "xlm-roberta"}, "config.json")
    tokenizer = tokjax.load_tokenizer(tmp_path / "sentencepiece.bpe.model", bos_token="<mask>")
    assert tokenizer.vocabulary.roles["bos"] == "<mask>"
    check_equal(tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path))
    write(tmp_path, "tokenizer.model", {"model_type": "llama"}, "config.json")
    (tmp_path / "sentencepiece.bpe.model").unlink()
    tokenizer = tokjax.load_tokenizer(tmp_path)
    assert isinstance(tokenizer, tokjax.models.SentencePieceTokenizer)
    check_equal(tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path))
    present = ["spiece.model", "config.json", "README.md"]
    assert select_files(present, None, "x") == ["config.json", "spiece.model"]
    assert "config.json" in list_candidates("spiece.model")


def test_bert_inserts_cls_even_if_only_bos_is_declared(transformers, tmp_path):
    config = {"tokenizer_class": "BertTokenizer", "bos_token": "low", "do_lower_case": True}
    tokenizer = tokjax.load_tokenizer(write(tmp_path, "vocab.txt", config))
    check_equal(tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path))


def test_the_type_of_the_model_can_replace_the_class(transformers, tmp_path):
    write(tmp_path, "gpt2", {"model_type": "qwen2"}, "config.json")
    (tmp_path / CONFIG).write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(reference).__name__ == "Qwen2Tokenizer"
    check_equal(tokjax.load_tokenizer(tmp_path), reference)


def test_other_files_in_the_directory_have_no_effect(transformers, tmp_path):
    write(tmp_path, "gpt2", {"tokenizer_class": "Qwen2Tokenizer"})
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    make_pair("BERT")[0].save(str(tmp_path / "tokenizer.json"))
    for old, new in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")):
        (tmp_path / new).write_bytes((tmp_path / old).read_bytes())
    for pair in (["vocab.json", "merges.txt"], ["encoder.json", "vocab.bpe"]):
        check_equal(tokjax.load_tokenizer([tmp_path / name for name in pair]), reference)
    make_pair("GPT-2")[0].save(str(tmp_path / "my.json"))
    (tmp_path / CONFIG).write_text('{"pad_token": "<new>"}')
    tokenizer = tokjax.load_tokenizer(tmp_path / "my.json")
    assert tokjax.pad_id(tokenizer) == tokjax.vocab_size(tokenizer) - 1
    assert tokjax.tokenize(tokenizer, "low", add_special_tokens=False) == ["low"]


@pytest.mark.parametrize(
    ("files", "config", "message"),
    [
        (
            "vocab.txt",
            {"tokenizer_class": "EsmTokenizer"},
            "a slow tokenizer has no offsets: load it with use_fast=True, or register a custom",
        ),
        (
            "vocab.txt",
            {"tokenizer_class": "NoTokenizer"},
            "names? NoTokenizer, and transformers can't read it: ",
        ),
        ("gpt2", {"pad_token": "<new>"}, r"declare the token '<new>', which vocab\.json does not have, and"),
        (
            "spiece.model",
            {"tokenizer_class": "XLMRobertaTokenizer"},
            r"XLMRobertaTokenizer of transformers did not read spiece\.model: it has 5 other tokens",
        ),
    ],
)
def test_directories_that_transformers_does_not_convert(transformers, files, config, message, tmp_path):
    with pytest.raises(FormatError, match=message):
        tokjax.load_tokenizer(write(tmp_path, files, config))


@pytest.mark.usefixtures("without_transformers")
class TestWithoutTransformers:
    @pytest.mark.parametrize("case", CASES)
    def test_error(self, case, tmp_path):
        message = (
            r"reading .*, since its configuration files .*, needs transformers, which is not installed; pip "
            r"install 'tokjax\[transformers\]'$"
        )
        with pytest.raises(tokjax.errors.MissingExtraError, match=message):
            tokjax.load_tokenizer(write(tmp_path, *CASES[case]))

    @pytest.mark.parametrize(
        ("files", "config"),
        [
            ("tokenizer.model", {"bos_token": "<s>", "pad_token": "</s>"}),
            ("tokenizer.model", {"added_tokens_decoder": {"2": {"content": "</s>", "special": True}}}),
            ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "pad_token": "</s>"}),
            ("vocab.txt", {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "cls_token": "[CLS]"}),
        ],
    )
    def test_files_with_all_tokens(self, files, config, tmp_path):
        tokenizer = tokjax.load_tokenizer(write(tmp_path, files, config))
        (tmp_path / CONFIG).write_text("{}")
        plain = tokjax.load_tokenizer(tmp_path)
        assert [tokjax.encode(tokenizer, "low the").tolist()] == [tokjax.encode(plain, "low the").tolist()]
        assert tokenizer.vocabulary.roles.get("pad", "</s>") in ("</s>", "[PAD]")

    @pytest.mark.parametrize(
        ("files", "config", "reason"),
        [
            (
                "tokenizer.model",
                {"added_tokens_decoder": {"0": {"content": "<s>"}}},
                "'<s>', .* with this id",
            ),
            ("tokenizer.model", {"extra_ids": 100}, "set extra_ids"),
            ("gpt2", {"mask_token": {"content": "<mask>", "lstrip": True}}, "declare options of .* '<mask>'"),
            (
                "gpt2",
                {"added_tokens_decoder": {"0": {"content": "<s>"}}},
                "declare options of the token '<s>'",
            ),
            ("gpt2", {"add_prefix_space": True}, "set add_prefix_space"),
        ],
    )
    def test_reasons(self, files, config, reason, tmp_path):
        with pytest.raises(
            tokjax.errors.MissingExtraError, match=f"since its configuration files .*{reason}"
        ):
            tokjax.load_tokenizer(write(tmp_path, files, config))

    @pytest.mark.parametrize(
        ("files", "options"),
        [
            ("gpt2", {"pattern": "qwen2"}),
            ("vocab.txt", {"lowercase": False}),
            ("vocab.txt", {"special_tokens": ["low"]}),
            ("spiece.model", {"bos_token": "auto"}),
        ],
    )
    def test_options(self, files, options, tmp_path):
        write(tmp_path, files, {"tokenizer_class": "NoTokenizer"})
        [name] = options
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match=rf"{name} is .*, and transformers reads .*, since .* name NoTokenizer; leave it",
        ):
            tokjax.load_tokenizer(tmp_path, **options)

    @pytest.mark.parametrize("decoder", [[], {"x": {"content": "a"}}, {"1": "a"}, {"1": {"content": ""}}])
    def test_damaged_declarations(self, decoder, tmp_path):
        for files in ("tokenizer.model", "gpt2"):
            with pytest.raises(FormatError, match="'added_tokens_decoder': expected ids and tokens, got "):
                tokjax.load_tokenizer(write(tmp_path, files, {"added_tokens_decoder": decoder}))

    def test_merges_of_words_without_a_configuration(self, tmp_path):
        write(tmp_path, "words")
        pair = [tmp_path / "vocab.json", tmp_path / "merges.txt"]
        for source, format_ in ((tmp_path, "auto"), (pair, "auto"), (pair, "gpt2")):
            with pytest.raises(
                FormatError, match=r"has tokens that end in '</w>', as in .* tokjax\.word_bpe\("
            ):
                tokjax.load_tokenizer(source, format_)


class TestTokenizerJson:
    """Added tokens that only the configuration files beside a `tokenizer.json` declare."""

    def write(self, directory, name, config, added=None):
        definition = json.loads(make_pair(name)[0].to_str())
        definition["post_processor"] = None
        (directory / "tokenizer.json").write_text(json.dumps(definition))
        (directory / CONFIG).write_text(json.dumps(config))
        if added is not None:
            (directory / "added_tokens.json").write_text(json.dumps(added))
        return directory

    @pytest.mark.parametrize("name", ["GPT-2", "Mistral", "BERT", "punctuation"])
    @pytest.mark.parametrize(
        ("config", "added"),
        [
            ({"added_tokens_decoder": {"700": {"content": "<new>", "special": True, "lstrip": True}}}, None),
            ({"added_tokens_decoder": {"3": {"content": "<mask>", "special": True, "rstrip": True}}}, None),
            ({"pad_token": "<new>", "bos_token": "</s>"}, None),
            ({"additional_special_tokens": ["!"]}, {"<new>": 700}),
        ],
    )
    def test_ids_are_those_of_transformers(self, transformers, name, config, added, tmp_path):
        self.write(tmp_path, name, config, added)
        fast = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
        tokenizer = tokjax.load_tokenizer(tmp_path)
        check_equal(tokenizer, fast)
        assert tokjax.vocab_size(tokenizer) == len(fast)
        assert "!" not in tokjax.special_tokens(tokenizer) or name in ("BERT", "Mistral")  # (no word there)
        assert tokenizer.vocabulary.roles.get("pad", "<new>") in ("<new>", "<pad>")

    @pytest.mark.usefixtures("without_transformers")
    def test_without_transformers(self, tmp_path):
        declared = {str(i): {"content": name, "special": True} for i, name in enumerate(["<s>", "</s>"])}
        config = {"added_tokens_decoder": declared, "pad_token": "<pad>"}
        assert tokjax.load_tokenizer(self.write(tmp_path, "GPT-2", config)) is not None
        with pytest.raises(
            tokjax.errors.MissingExtraError,
            match=r"declare the token '<new>' otherwise than tokenizer\.json, needs transformers",
        ):
            tokjax.load_tokenizer(self.write(tmp_path, "GPT-2", config | {"pad_token": "<new>"}))
