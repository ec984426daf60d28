"""Tests of added tokens that are declared beside a vocabulary."""

import json
import pickle

import pytest

import tokjax
from tests.support.sentencepiece_models import train_by_library

FormatError = tokjax.errors.TokenizerFormatError
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "low", "##er", "user", "<", ">", "x"]
BERT_ROLES = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}


def describe(name, *, special=True, **options):
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {"content": name, "special": special} | flags | options


@pytest.fixture(scope="module")
def proto():
    return train_by_library(vocab_size=120, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)


class TestSentencePiece:
    def load(self, directory, proto, decoder=None, added=None, **config):
        (directory / "tokenizer.model").write_bytes(proto)
        if decoder is not None:
            config["added_tokens_decoder"] = decoder
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
        if added is not None:
            (directory / "added_tokens.json").write_text(json.dumps(added))
        return tokjax.load_tokenizer(directory)

    def test_special_tokens(self, proto, tmp_path):
        decoder = {120: describe("<|im_start|>"), 121: describe("[PAD]"), 2: describe("</s>")}
        tokenizer = self.load(tmp_path, proto, decoder, pad_token="[PAD]")
        plain = tokjax.sentencepiece(proto)
        assert tokjax.vocab_size(tokenizer) == 122
        assert tokjax.pad_id(tokenizer) == 121
        text = "low <|im_start|>lower"
        before, after = (tokjax.encode(plain, part).tolist() for part in ("low ", "lower"))
        result = tokjax.encode_result(tokenizer, text, allowed_special="all")
        assert result.ids.tolist() == [*before, 120, *after]
        assert result.offsets[len(before)].tolist() == [5, 17]
        assert result.special_tokens_mask.tolist() == [0] * len(before) + [1] + [0] * len(after)
        with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="'<|im_start|>' at character 4"):
            tokjax.encode(tokenizer, text)
        ordinary = tokjax.encode(tokenizer, text, disallowed_special=())
        assert ordinary.tolist() == tokjax.encode(plain, text).tolist()

    def test_ids_equal_transformers(self, proto, tmp_path):
        transformers = pytest.importorskip("transformers", minversion="5")
        decoder = {120: describe("<extra_id_0>")}
        tokenizer = self.load(
            tmp_path, proto, decoder, tokenizer_class="T5Tokenizer", extra_ids=1, pad_token="<s>"
        )
        (tmp_path / "tokenizer.model").rename(tmp_path / "spiece.model")
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
        for text in ("low", "<extra_id_0>low", "low <extra_id_0> lower<extra_id_0>"):
            ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
            assert reference(text, add_special_tokens=False)["input_ids"] == ids

    def test_tokens_that_are_not_special(self, proto, tmp_path):
        decoder = {120: describe("<user>", special=False, lstrip=True), 121: describe("<b>", rstrip=True)}
        tokenizer = self.load(tmp_path, proto, decoder)
        low = tokjax.encode(tokenizer, "low").tolist()
        result = tokjax.encode_result(tokenizer, "low <user>low")
        assert result.ids.tolist() == [*low, 120, *low]
        assert result.offsets[len(low)].tolist() == [4, 11]
        result = tokjax.encode_result(tokenizer, "<b> low", allowed_special="all")
        assert result.offsets[0].tolist() == [1, 5]
        for restored in (
            pickle.loads(pickle.dumps(tokenizer)),
            tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path / "saved.json")),
            tokjax.with_roles(tokenizer, pad_token="<b>"),
            tokjax.extend_vocabulary(tokenizer, ["<c>"], special=True)[0],
        ):
            assert restored.vocabulary.added_tokens == tokenizer.vocabulary.added_tokens
            assert tokjax.encode(restored, "low <user>low").tolist() == [*low, 120, *low]
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError, match="can't mark '<b>' as an added token"
        ):
            tokjax.formats.export_tokenizer(tokenizer, tmp_path, "sentencepiece")

    def test_older_file(self, proto, tmp_path):
        added = {"<user>": 121, "[PAD]": 120}
        tokenizer = self.load(tmp_path, proto, None, added, pad_token={"content": "[PAD]"})
        assert tokjax.pad_id(tokenizer) == 120
        assert dict(tokjax.special_tokens(tokenizer)) == {"<unk>": 0, "<s>": 1, "</s>": 2, "[PAD]": 120}
        assert tokjax.encode(tokenizer, "<user>").tolist() == [121]
        assert tokjax.decode(tokenizer, [121]) == "<user>"

    def test_exported_model(self, proto, tmp_path):
        tokenizer = self.load(tmp_path, proto, {120: describe("[PAD]")}, pad_token="[PAD]")
        (tmp_path / "other").mkdir()
        tokjax.formats.export_tokenizer(tokenizer, tmp_path / "other", "sentencepiece")
        assert tokjax.load_tokenizer(tmp_path / "other") == tokenizer

    def test_other_ids(self, proto, tmp_path):
        with pytest.raises(
            FormatError,
            match=r"added token '<s>' has the id 0, but in tokenizer\.model it has the id 1, so .* pass a t",
        ):
            self.load(tmp_path, proto, {0: describe("<s>")})
        with pytest.raises(
            FormatError,
            match=r"added token '<a>' has the id 121, but the next id after .* is 120; pass a tok",
        ):
            self.load(tmp_path, proto, {121: describe("<a>")})
        with pytest.raises(FormatError, match=r"added token '<a>' has the id 3, but the next id after"):
            self.load(tmp_path, proto, {3: describe("<a>")})

    def test_single_words(self, proto, tmp_path):
        with pytest.raises(FormatError, match="the added token '<a>' is to be matched as a single word"):
            self.load(tmp_path, proto, {120: describe("<a>", single_word=True)})

    def test_texts_after_tokens_without_a_space(self, proto, tmp_path):
        with pytest.raises(
            FormatError,
            match='with "legacy": false, .* after the added token .<a>., but tokenizer.model adds',
        ):
            self.load(tmp_path, proto, {120: describe("<a>")}, legacy=False)
        assert tokjax.vocab_size(self.load(tmp_path, proto, {1: describe("<s>")}, legacy=False)) == 120

    def test_spaces_in_symbols(self, proto, tmp_path):
        with pytest.raises(FormatError, match="a SentencePiece symbol can't contain a space, as 'a b' doe"):
            self.load(tmp_path, proto, {120: describe("a b", special=False)})

    @pytest.mark.parametrize(
        "decoder", [{"x": describe("<a>")}, {"5": "<a>"}, {"5": {"content": 5}}, {"5": {"content": ""}}]
    )
    def test_damaged_entries(self, proto, tmp_path, decoder):
        with pytest.raises(
            FormatError, match=r"'added_tokens_decoder': expected an id and a token, each once, got '[x5]': "
        ):
            self.load(tmp_path, proto, decoder)

    def test_damaged_files(self, proto, tmp_path):
        with pytest.raises(FormatError, match="'added_tokens_decoder': expected a JSON object that maps ids"):
            self.load(tmp_path, proto, ["<a>"])
        with pytest.raises(
            FormatError, match="'added_tokens_decoder': expected an id and a token, each once"
        ):
            self.load(tmp_path, proto, {120: describe("<a>"), 121: describe("<a>")})
        with pytest.raises(FormatError, match=r"added_tokens\.json: the id of '<a>' is 'b'"):
            self.load(tmp_path, proto, None, {"<a>": "b"})


class TestSentinels:
    def load(self, directory, decoder=None, **config):
        proto = train_by_library(vocab_size=120, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
        (directory / "spiece.model").write_bytes(proto)
        if decoder is not None:
            config["added_tokens_decoder"] = decoder
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
        return tokjax.load_tokenizer(directory)

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"extra_ids": 3},
            {"legacy": False, "additional_special_tokens": [f"<extra_id_{i}>" for i in range(100)]},
            {"extra_ids": 1, "decoder": {120: describe("<extra_id_0>"), 121: describe("<x>", lstrip=True)}},
        ],
    )
    def test_ids_equal_transformers(self, tmp_path, config):
        transformers = pytest.importorskip("transformers", minversion="5")
        tokenizer = self.load(tmp_path, **{"tokenizer_class": "T5Tokenizer"} | config)
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert tokjax.vocab_size(tokenizer) == len(reference)
        assert tokjax.token_to_id(tokenizer, "<extra_id_0>") == 119 + config.get("extra_ids", 100)
        for text in ("low", "<extra_id_0>low", "low <extra_id_0> lower<extra_id_2><extra_id_99>", "a <x> b"):
            ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
            assert reference(text, add_special_tokens=False)["input_ids"] == ids

    def test_without_a_class(self, tmp_path):
        assert tokjax.vocab_size(self.load(tmp_path, extra_ids=2)) == 122
        assert tokjax.vocab_size(self.load(tmp_path, tokenizer_class="T5Tokenizer", extra_ids=0)) == 120
        assert tokjax.vocab_size(self.load(tmp_path, tokenizer_class="LlamaTokenizer")) == 120
        (tmp_path / "tokenizer_config.json").unlink()
        assert tokjax.vocab_size(tokjax.load_tokenizer(tmp_path)) == 120
        (tmp_path / "config.json").write_text('{"model_type": "t5"}')
        assert tokjax.vocab_size(tokjax.load_tokenizer(tmp_path)) == 220

    @pytest.mark.parametrize("count", [-1, "5", True, 2.5])
    def test_invalid_numbers(self, tmp_path, count):
        with pytest.raises(FormatError, match=f"'extra_ids' is {count!r}, not a number of tokens"):
            self.load(tmp_path, extra_ids=count)

    def test_limit(self, tmp_path):
        with tokjax.limits(vocab_size=200), pytest.raises(FormatError, match="vocab_size"):
            self.load(tmp_path, extra_ids=100)

    def test_other_ids(self, tmp_path):
        with pytest.raises(FormatError, match=r"'<x>' has the id 120, but the next id after .* is 121; pass"):
            self.load(tmp_path, {120: describe("<x>")}, extra_ids=2)


class TestVocabTxt:
    def load(self, directory, decoder=None, added=None, **config):
        (directory / "vocab.txt").write_text("\n".join(BERT_TOKENS) + "\n")
        if decoder is not None:
            config["added_tokens_decoder"] = decoder
        (directory / "tokenizer_config.json").write_text(
            json.dumps({"do_lower_case": True} | BERT_ROLES | config)
        )
        if added is not None:
            (directory / "added_tokens.json").write_text(json.dumps(added))
        return tokjax.load_tokenizer(directory)

    def test_ids_equal_transformers(self, tmp_path):
        transformers = pytest.importorskip("transformers", minversion="5")
        decoder = {
            11: describe("<user>"),
            12: describe("<X>", special=False),
            10: describe("x"),
            4: describe("[MASK]", lstrip=True),
        }
        tokenizer = self.load(tmp_path, decoder, tokenizer_class="BertTokenizer")
        assert tokjax.vocab_size(tokenizer) == 13
        assert "x" in tokjax.special_tokens(tokenizer)
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
        for text in ("low <user>lower", "LOW<X>er <x>", "low<USER>", "lowxlow", "<X><user> [MASK]"):
            ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
            assert reference(text)["input_ids"] == ids
        restored = tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path / "saved.json"))
        assert restored == tokenizer

    def test_words_that_are_special(self, tmp_path):
        transformers = pytest.importorskip("transformers", minversion="5")
        tokenizer = self.load(tmp_path, {10: describe("x")}, tokenizer_class="BertTokenizer")
        assert tokenizer.reason == "text can become the special token 'x'"
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
        for text in ("low x X", "xX LOWX", "[MASK]x"):
            ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
            assert reference(text)["input_ids"] == ids
        with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="becomes the special token 'x'"):
            tokjax.encode(tokenizer, "low X")
        assert tokjax.mask_id(tokenizer) == 4

    def test_special_tokens_that_the_vocabulary_does_not_have(self, tmp_path):
        transformers = pytest.importorskip("transformers", minversion="5")
        mask = describe("<mask>", lstrip=True) | {"__type": "AddedToken"}
        tokenizer = self.load(
            tmp_path,
            {11: describe("<user>")},
            tokenizer_class="BertTokenizer",
            pad_token="<pad>",
            mask_token=mask,
            bos_token="<s>",
            additional_special_tokens=["USER", "<user>"],
        )
        assert (tokjax.bos_id(tokenizer), tokjax.pad_id(tokenizer)) == (12, 13)
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert tokjax.vocab_size(tokenizer) == len(reference)
        for text in ("low USER user User", "<user> <mask><pad>"):
            ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
            assert reference(text)["input_ids"] == ids

    def test_older_file(self, tmp_path):
        tokenizer = self.load(tmp_path, None, {"<user>": 11}, additional_special_tokens=["<user>"])
        assert tokjax.tokenize(tokenizer, "<user>low", allowed_special="all")[1:-1] == ["<user>", "low"]
        assert tokjax.pad_id(self.load(tmp_path, None, {"<pad>": 11}, pad_token="<pad>")) == 11

    def test_tokens_in_normalized_texts(self, tmp_path):
        with pytest.raises(
            FormatError, match="the added token '<user>' is to be matched in normalized texts, .* pass a tok"
        ):
            self.load(tmp_path, None, {"<user>": 11})

    def test_other_ids(self, tmp_path):
        with pytest.raises(FormatError, match=r"'low' has the id 11, but in vocab\.txt it has the id 5"):
            self.load(tmp_path, {11: describe("low")})

    def test_classic_bpe(self, tmp_path):
        (tmp_path / "vocab.txt").write_text("<unk>\n</w>\nl\no\nlo\n")
        (tmp_path / "merges.txt").write_text("l o\n")
        (tmp_path / "added_tokens.json").write_text('{"<user>": 5}')
        with pytest.raises(
            FormatError, match=r"has an added token '<user>', which is not in vocab\.txt; pass"
        ):
            tokjax.load_tokenizer(tmp_path)
