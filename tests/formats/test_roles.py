"""Tests of the roles of special tokens: which files declare them, and where they are saved."""

import json
import pickle
from dataclasses import dataclass

import pytest

import tokjax
from tests.support.huggingface_tokenizers import DefinitionStub, make_pair
from tests.support.sentencepiece_models import train_by_library
from tokjax.core.vocabulary import ROLES
from tokjax.trainer import train_wordpiece

ArgumentError = tokjax.errors.InvalidArgumentError
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "low", "##er"]
BERT_CONFIG = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "do_lower_case": True}
ALL_BYTES = {bytes([i]): i for i in range(256)}


def get_role_ids(tokenizer):
    return {role: getattr(tokjax, f"{role}_id")(tokenizer) for role in ROLES}


def write_json(path, contents):
    path.write_text(json.dumps(contents))


def make_fast_bert(transformers, **options):
    return transformers.BertTokenizerFast(vocab={token: i for i, token in enumerate(BERT_TOKENS)}, **options)


def make_fast_roberta(transformers):
    model = json.loads(make_pair("RoBERTa")[0].to_str())["model"]
    return transformers.RobertaTokenizerFast(vocab=model["vocab"], merges=list(map(tuple, model["merges"])))


FAST_TOKENIZERS = {
    "BERT": make_fast_bert,
    "BERT with a BOS": lambda transformers: make_fast_bert(
        transformers, bos_token="[BOS]", eos_token="[EOS]"
    ),
    "RoBERTa": make_fast_roberta,
}


@pytest.mark.parametrize("name", FAST_TOKENIZERS)
def test_ids_equal_those_of_transformers(name, tmp_path):
    fast = FAST_TOKENIZERS[name](pytest.importorskip("transformers", minversion="5"))
    expected = {role: getattr(fast, f"{role}_token_id") for role in ROLES}
    assert None not in (expected["cls"], expected["sep"], expected["mask"])
    converted = tokjax.formats.from_huggingface(fast)
    assert get_role_ids(converted) == expected
    fast.save_pretrained(tmp_path)
    loaded = tokjax.load_tokenizer(tmp_path)
    if expected["bos"] is None:  # `load_tokenizer` gives the roles BOS and EOS to CLS and SEP
        expected |= {"bos": expected["cls"], "eos": expected["sep"]}
    assert get_role_ids(loaded) == expected
    for tokenizer in (converted, loaded):
        assert tokjax.encode(tokenizer, "low").tolist() == fast("low")["input_ids"]


@pytest.mark.parametrize("name", FAST_TOKENIZERS)
def test_exported_configuration_has_the_roles(name, tmp_path):
    transformers = pytest.importorskip("transformers", minversion="5")
    tokenizer = tokjax.formats.from_huggingface(FAST_TOKENIZERS[name](transformers))
    tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert "[MASK]" not in config["additional_special_tokens"]
    fast = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert get_role_ids(tokenizer) == {role: getattr(fast, f"{role}_token_id") for role in ROLES}


class TestConfigurationFiles:
    def write_vocab(self, directory, config, tokens=BERT_TOKENS):
        (directory / "vocab.txt").write_text("\n".join(tokens))
        write_json(directory / "tokenizer_config.json", config)

    @pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
    def test_names_and_objects(self, tmp_path, file):
        make_pair("RoBERTa")[0].save(str(tmp_path / "tokenizer.json"))
        mask = {"__type": "AddedToken", "content": "<mask>", "lstrip": True}
        write_json(
            tmp_path / file, {"cls_token": "<s>", "sep_token": {"content": "</s>"}, "mask_token": mask}
        )
        tokenizer = tokjax.load_tokenizer(tmp_path)
        names = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
        assert dict(tokenizer.vocabulary.roles) == names
        assert tokjax.mask_id(tokenizer) == tokjax.token_to_id(tokenizer, "<mask>")

    @pytest.mark.parametrize(("decoder", "expected"), [(None, ("<s>", "</s>")), ({}, ("<pad>", None))])
    def test_roles_that_both_files_declare(self, tmp_path, decoder, expected):
        transformers = pytest.importorskip("transformers", minversion="5")
        make_pair("unigram")[0].save(str(tmp_path / "tokenizer.json"))
        config = {"bos_token": "<pad>"} | ({} if decoder is None else {"added_tokens_decoder": decoder})
        write_json(tmp_path / "tokenizer_config.json", config)
        write_json(tmp_path / "special_tokens_map.json", {"bos_token": "<s>", "eos_token": "</s>"})
        roles = tokjax.load_tokenizer(tmp_path).vocabulary.roles
        fast = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
        assert (roles["bos"], roles.get("eos")) == (fast.bos_token, fast.eos_token) == expected

    def test_mask_token_that_is_not_special_in_the_file(self, tmp_path):
        contents = json.loads(make_pair("RoBERTa")[0].to_str())
        [mask] = (token for token in contents["added_tokens"] if token["content"] == "<mask>")
        mask["special"] = False
        write_json(tmp_path / "tokenizer.json", contents)
        write_json(tmp_path / "tokenizer_config.json", {"mask_token": "<mask>"})
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert "<mask>" not in tokjax.special_tokens(tokenizer)
        assert dict(tokenizer.vocabulary.roles) == {"mask": "<mask>"}
        assert tokjax.mask_id(tokenizer) == mask["id"]

    @pytest.mark.parametrize("name", ["GPT-2", "Mistral", "punctuation"])
    def test_tokens_that_only_the_configuration_marks(self, name, tmp_path):
        transformers = pytest.importorskip("transformers", minversion="5")
        contents = json.loads(make_pair(name)[0].to_str())
        vocab = contents["model"]["vocab"]
        vocab |= {"<end>": len(vocab), "!!": len(vocab) + 1}
        write_json(tmp_path / "tokenizer.json", contents)
        write_json(tmp_path / "tokenizer_config.json", {"eos_token": "<end>", "pad_token": "!!"})
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert tokjax.eos_id(tokenizer) == vocab["<end>"]
        assert tokjax.pad_id(tokenizer) is None
        assert "!!" not in tokjax.special_tokens(tokenizer)
        fast = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
        for text in ("low<end>er", "<end><end> low"):
            ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
            assert ids == fast(text)["input_ids"]

    def test_vocab_txt(self, tmp_path):
        self.write_vocab(tmp_path, BERT_CONFIG)
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert get_role_ids(tokenizer) == {
            "bos": 2, "eos": 3, "pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4
        }  # fmt: skip
        assert tokenizer == tokjax.wordpiece(BERT_TOKENS)
        tokjax.formats.export_tokenizer(tokenizer, tmp_path, "wordpiece")
        config = json.loads((tmp_path / "tokenizer_config.json").read_text())
        assert config["cls_token"] == "[CLS]"
        assert config["sep_token"] == "[SEP]"
        assert config["mask_token"] == "[MASK]"
        assert not {"bos_token", "eos_token"} & config.keys()
        assert config["additional_special_tokens"] == []
        assert tokjax.load_tokenizer(tmp_path) == tokenizer

    def test_vocab_txt_with_cls_and_bos(self, tmp_path):
        roles = {"bos_token": "<s>", "eos_token": "</s>"}
        self.write_vocab(tmp_path, BERT_CONFIG | roles, [*BERT_TOKENS, "<s>", "</s>"])
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert tokjax.tokenize(tokenizer, "lower") == ["[CLS]", "low", "##er", "[SEP]"]
        assert (tokjax.bos_id(tokenizer), tokjax.eos_id(tokenizer)) == (7, 8)
        assert (tokjax.cls_id(tokenizer), tokjax.sep_id(tokenizer)) == (2, 3)
        tokjax.formats.export_tokenizer(tokenizer, tmp_path, "wordpiece")
        assert tokjax.load_tokenizer(tmp_path) == tokenizer
        overridden = tokjax.load_tokenizer(tmp_path, bos_token="<s>")
        assert tokjax.tokenize(overridden, "low") == ["<s>", "low", "[SEP]"]
        assert tokjax.cls_id(overridden) == 2

    def test_mask_option_of_vocab_txt(self, tmp_path):
        self.write_vocab(tmp_path, BERT_CONFIG, [*BERT_TOKENS, "<mask>"])
        assert tokjax.mask_id(tokjax.load_tokenizer(tmp_path, mask_token="<mask>")) == 7
        assert tokjax.mask_id(tokjax.load_tokenizer(tmp_path, mask_token=None)) is None


@pytest.fixture(scope="module")
def proto():
    return train_by_library(
        vocab_size=120,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]"],
        user_defined_symbols=["[MASK]"],
    )


class TestSentencePiece:
    def test_roles_from_the_config_file(self, proto, tmp_path):
        (tmp_path / "spiece.model").write_bytes(proto)
        plain = tokjax.load_tokenizer(tmp_path)
        assert tokjax.mask_id(plain) is tokjax.cls_id(plain) is None
        write_json(tmp_path / "tokenizer_config.json", BERT_CONFIG | {"bos_token": "[CLS]"})
        tokenizer = tokjax.load_tokenizer(tmp_path)
        ids = tuple(map(tokenizer.processor.piece_to_id, ("[CLS]", "[SEP]", "[MASK]")))
        assert (tokjax.cls_id(tokenizer), tokjax.sep_id(tokenizer), tokjax.mask_id(tokenizer)) == ids
        assert tokjax.bos_id(tokenizer) == ids[0]
        assert tokjax.encode(tokenizer, "low").tolist() == tokjax.encode(plain, "low").tolist()
        assert ids[2] in tokjax.encode(tokenizer, "low [MASK]", allowed_special={"[MASK]"})
        write_json(tmp_path / "tokenizer_config.json", BERT_CONFIG)
        assert tokjax.fingerprint(tokjax.load_tokenizer(tmp_path)) == tokjax.fingerprint(plain)

    def test_inserted_tokens(self, tmp_path):
        proto = train_by_library(vocab_size=120, pad_id=3, control_symbols=["<b>", "<e>"])
        (tmp_path / "spiece.model").write_bytes(proto)
        config = {"bos_token": "<b>", "eos_token": "<e>", "pad_token": "<e>", "unk_token": "<b>"}
        write_json(tmp_path / "tokenizer_config.json", config)
        declared = tokjax.load_tokenizer(tmp_path)
        low = tokjax.encode(declared, "low").tolist()
        expected = {"bos": 4, "eos": 5, "pad": 5, "unk": 0}
        assert low == tokjax.encode(tokjax.sentencepiece(proto), "low").tolist()
        assert {role: declared.vocabulary.get_role_id(role) for role in expected} == expected
        write_json(tmp_path / "tokenizer_config.json", config | {"add_bos_token": True})
        for tokenizer, before, after in (
            (tokjax.load_tokenizer(tmp_path), [4], []),
            (tokjax.load_tokenizer(tmp_path, eos_token="auto"), [4], [5]),
            (tokjax.load_tokenizer(tmp_path, bos_token="<s>"), [1], []),
            (tokjax.load_tokenizer(tmp_path, eos_token="</s>", pad_token=None), [4], [2]),
        ):
            assert tokjax.encode(tokenizer, "low").tolist() == [*before, *low, *after]
            assert tokjax.encode(tokenizer, "low", add_special_tokens=False).tolist() == low
        assert tokjax.pad_id(tokenizer) is None
        with pytest.raises(
            ArgumentError, match=r"bos_token is 'low', which is .*extend_vocabulary\(tokenizer, "
        ):
            tokjax.load_tokenizer(tmp_path, bos_token="low")

    def test_pieces_that_the_model_does_not_have(self, proto, tmp_path):
        (tmp_path / "spiece.model").write_bytes(proto)
        write_json(tmp_path / "special_tokens_map.json", {"sep_token": "[SEP]"})
        assert set(tokjax.load_tokenizer(tmp_path).vocabulary.roles) == {"pad", "unk", "sep"}
        with pytest.raises(ArgumentError, match=r"mask_token is '<mask>', which is not a piece of the model"):
            tokjax.sentencepiece(proto, mask_token="<mask>")

    def test_round_trips(self, proto, tmp_path):
        tokenizer = tokjax.sentencepiece(proto, cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
        [path] = tokjax.formats.export_tokenizer(tokenizer, tmp_path, "sentencepiece")
        plain = tokjax.sentencepiece(proto)
        for restored in (
            pickle.loads(pickle.dumps(tokenizer)),
            tokjax.load_tokenizer(path),
            tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path)),
            tokjax.with_roles(plain, cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"),
        ):
            assert restored == tokenizer
            assert get_role_ids(restored) == get_role_ids(tokenizer)


ADDED_TOKEN_OPTIONS = ("single_word", "lstrip", "rstrip", "normalized")
LIBRARY_DEFINITION = {
    "version": "1.0",
    "added_tokens": [
        {"id": i, "content": name, "special": True} | dict.fromkeys(ADDED_TOKEN_OPTIONS, False)
        for i, name in enumerate(["<unk>", "<mask>"])
    ],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [["<unk>", 0.0], ["<mask>", 0.0], ["l", -1.0], ["o", -2.0], ["w", -3.0]],
    },
}
FORMS = ["▁", "l", "o", "lo", *(f"<0x{byte:02X}>" for byte in range(256))]
TOKENIZERS = {
    "byte_level_bpe": lambda: tokjax.byte_level_bpe(
        ALL_BYTES | {b"lo": 256}, special_tokens={"</s>": 300, "<mask>": 301}, eos_token="</s>"
    ),
    "metaspace_bpe": lambda: tokjax.metaspace_bpe(
        {form: i for i, form in enumerate(FORMS)},
        [("l", "o")],
        special_tokens={"<mask>": 300, "</s>": 301},
        eos_token="</s>",
    ),
    "wordpiece": lambda: tokjax.wordpiece([*BERT_TOKENS, "<mask>"], special_tokens=["<mask>"]),
    "word_level": lambda: tokjax.models.word_level(["[UNK]", "<mask>", "low"], special_tokens=["<mask>"]),
    "char_level": lambda: tokjax.models.char_level(["[UNK]", "<mask>", "l"], special_tokens=["<mask>"]),
    "byte_level": lambda: tokjax.byte_level(["</s>", "<mask>"], eos_token="</s>"),
    "from_callable": lambda: tokjax.models.from_callable(
        str.split, ["[UNK]", "<mask>", "low"], special_tokens=["<mask>"]
    ),
    "huggingface": lambda: tokjax.formats.from_huggingface(DefinitionStub(LIBRARY_DEFINITION)),
}


@pytest.mark.parametrize("name", TOKENIZERS)
class TestEachType:
    def test_roles_do_not_change_the_fingerprint(self, name):
        tokenizer = TOKENIZERS[name]()
        masked = tokjax.with_roles(tokenizer, mask_token="<mask>")
        assert masked != tokenizer
        assert tokjax.fingerprint(masked) == tokjax.fingerprint(tokenizer)
        padded = tokjax.with_roles(tokenizer, pad_token="<mask>")
        assert tokjax.fingerprint(padded) != tokjax.fingerprint(tokenizer)

    def test_round_trips(self, name, tmp_path):
        plain = TOKENIZERS[name]()
        tokenizer = tokjax.with_roles(plain, cls_token="<mask>", sep_token="<mask>", mask_token="<mask>")
        mask = tokjax.token_to_id(tokenizer, "<mask>")
        assert tokjax.cls_id(tokenizer) == tokjax.sep_id(tokenizer) == tokjax.mask_id(tokenizer) == mask
        assert tokjax.encode(tokenizer, "low").tolist() == tokjax.encode(plain, "low").tolist()
        restored = [pickle.loads(pickle.dumps(tokenizer))]
        if name != "from_callable":
            restored.append(tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path)))
        for other in restored:
            assert other == tokenizer
            assert get_role_ids(other) == get_role_ids(tokenizer)


class TestWithRoles:
    def test_template_stays_the_same(self):
        bert = tokjax.wordpiece(BERT_TOKENS)
        changed = tokjax.with_roles(bert, bos_token="[PAD]", eos_token="[MASK]")
        assert (tokjax.bos_id(changed), tokjax.eos_id(changed)) == (0, 4)
        assert (tokjax.cls_id(changed), tokjax.sep_id(changed)) == (2, 3)
        assert tokjax.tokenize(changed, "low") == ["[CLS]", "low", "[SEP]"]
        assert tokjax.with_roles(bert, bos_token="[CLS]", pad_token=None) is bert

    def test_errors(self):
        bert = tokjax.wordpiece(BERT_TOKENS)
        for name, problem in (("<mask>", "which is not among the special"), ([], "must be a name or None")):
            with pytest.raises(ArgumentError, match=f"mask_token .*{problem}"):
                tokjax.with_roles(bert, mask_token=name)
        with pytest.raises(
            ArgumentError, match=r"pad_token is .low., .*; add it: .* or extend_vocabulary\(tokenizer, "
        ):
            tokjax.with_roles(bert, pad_token="low")
        assert tokjax.mask_id(tokjax.with_roles(bert, mask_token="low")) == 5
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError,
            match="with_roles needs a tokenizer that tokjax loads or makes, not a str",
        ):
            tokjax.with_roles("bert", mask_token="[MASK]")


@dataclass(frozen=True)
class CustomTokenizer:
    """Tokenizer of a type that only registers `get_vocabulary`."""

    roles: tuple[tuple[str, str], ...] = ()


@tokjax.get_vocabulary.register
def _(tokenizer: CustomTokenizer) -> tokjax.Vocabulary:
    return tokjax.make_vocabulary({b"a": 0}, {"<mask>": 1}, dict(tokenizer.roles))


def test_roles_of_a_custom_type():
    masked = CustomTokenizer((("mask", "<mask>"), ("cls", "a")))
    assert (tokjax.mask_id(masked), tokjax.cls_id(masked), tokjax.sep_id(masked)) == (1, 0, None)
    assert tokjax.fingerprint(masked) == tokjax.fingerprint(CustomTokenizer())
    assert tokjax.fingerprint(masked) != tokjax.fingerprint(CustomTokenizer((("eos", "<mask>"),)))


def test_dataset_opens_with_a_tokenizer_that_declares_more_roles(tmp_path):
    plain = TOKENIZERS["byte_level_bpe"]()
    tokjax.write_dataset(["low"], tokjax.PackedTokenField(plain, chunk_tokens=4), tmp_path / "data")
    masked = tokjax.with_roles(plain, mask_token="<mask>")
    assert tokjax.mask_id(tokjax.open_dataset(tmp_path / "data", masked).tokenizer) == 301


def test_roles_of_trained_wordpiece():
    trained = train_wordpiece(["low lower"], vocab_size=30, progress=False).tokenizer
    assert get_role_ids(trained) == {
        "bos": 2, "eos": 3, "pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4
    }  # fmt: skip
    names = ["<mask>", "[UNK]"]
    options = {"vocab_size": 30, "special_tokens": names, "progress": False}
    assert tokjax.mask_id(train_wordpiece(["low"], **options).tokenizer) is None
    assert tokjax.mask_id(train_wordpiece(["low"], mask_token="<mask>", **options).tokenizer) == 0
    with pytest.raises(ArgumentError, match="'<x>' is not among the tokens; .* another mask_token"):
        train_wordpiece(["low"], mask_token="<x>", **options)
