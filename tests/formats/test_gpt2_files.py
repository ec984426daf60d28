"""Tests of GPT-2's two files: `vocab.json` and `merges.txt`."""

import json

import pytest
from hypothesis import given

import tokjax
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError


class TestGPT2Files:
    def write(self, directory, vocab, merges):
        (directory / "vocab.json").write_text(json.dumps(vocab), "utf-8")
        (directory / "merges.txt").write_bytes(merges)
        return directory

    def vocab(self, all_files):
        return json.loads((all_files / "vocab.json").read_text())

    @pytest.mark.parametrize("header", [b"", b"#version: 0.2\n", b"#version: 0.2 - x\r\n"])
    def test_headers_and_line_ends(self, all_files, tmp_path, header):
        merges = (all_files / "merges.txt").read_bytes().partition(b"\n")[2]
        if b"\r" in header:
            merges = merges.replace(b"\n", b"\r\n") + b"\r\n\r\n"
        tokenizer = tokjax.load_tokenizer(self.write(tmp_path, self.vocab(all_files), header + merges))
        assert (
            tokenizer.merges
            == tokjax.load_tokenizer([all_files / "vocab.json", all_files / "merges.txt"]).merges
        )
        assert tokjax.eos_id(tokenizer) is not None

    @pytest.mark.parametrize(
        ("merges", "message"),
        [
            (b"version 1\nabc\n", r"merges\.txt, line 1: 'version' is not a token"),
            (b"#version: 0.2\na b c\n", r"merges\.txt, line 2: expected two tokens"),
            (b"#version: 0.2\n\na b\n", r"merges\.txt, line 2: expected two tokens"),
            (b"#version: 0.2\na qqqq\n", r"merges\.txt, line 2: 'qqqq' is not a token of the vocabulary"),
            (b"\xff\xfe\n", r"merges\.txt, line 1: not UTF-8"),
            (b"#version: 0.2\nq q\n", r"merges\.txt, line 2: 'q q' merges to 'qq', which is not a token"),
        ],
    )
    def test_invalid_merges(self, all_files, tmp_path, merges, message):
        self.write(tmp_path, self.vocab(all_files), merges)
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(tmp_path)

    def test_duplicate_merge(self, all_files, tmp_path):
        header, first, _ = (all_files / "merges.txt").read_bytes().split(b"\n", 2)
        self.write(tmp_path, self.vocab(all_files), b"\n".join([header, first, first]))
        with pytest.raises(FormatError, match=r"merges\.txt, line 3: duplicate of '.+' in line 2"):
            tokjax.load_tokenizer(tmp_path)

    @pytest.mark.parametrize(
        ("vocab", "message"),
        [
            ({"a": 0, "b": 0}, "id 0 is given to both 'a' and 'b'"),
            ({"a": "0"}, "the id of 'a' is '0'"),
        ],
    )
    def test_invalid_vocabulary(self, tmp_path, vocab, message):
        self.write(tmp_path, vocab, b"#version: 0.2\n")
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(tmp_path)

    @pytest.mark.parametrize("character", "ab")
    def test_classic_bpe_without_merges_is_rejected(self, tmp_path, character):
        vocab = {"a": 0, f"{character}</w>": 1}
        self.write(tmp_path, vocab, b"#version: 0.2\n")
        with pytest.raises(
            FormatError, match=r"vocab\.json has tokens that end in '</w>', .*, splitter=\.\.\.\)"
        ):
            tokjax.load_tokenizer(tmp_path)

    def test_config_file(self, all_files, tmp_path):
        merges = (all_files / "merges.txt").read_bytes()
        self.write(tmp_path, self.vocab(all_files), merges)
        config = {"add_prefix_space": True, "bos_token": "<|endoftext|>", "eos_token": None}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = tokjax.load_tokenizer(tmp_path, "gpt2")
        assert tokenizer.add_prefix_space
        assert set(tokenizer.vocabulary.roles) == {"bos", "eos"}

    def write_with_tokens(self, all_files, tmp_path, names, **config):
        """Writes the files with more tokens in the vocabulary; returns the ids of all tokens."""
        vocab = self.vocab(all_files)
        vocab |= {name: id_ for id_, name in enumerate(names, len(vocab))}
        self.write(tmp_path, vocab, (all_files / "merges.txt").read_bytes())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return vocab

    def check_equal_to_transformers(self, directory, texts, roles):
        transformers = pytest.importorskip("transformers", minversion="5")
        reference, tokenizer = (
            transformers.AutoTokenizer.from_pretrained(directory),
            tokjax.load_tokenizer(directory),
        )
        assert isinstance(tokenizer, tokjax.models.ByteLevelBPE)
        for text in texts:
            expected = reference(text)
            result = tokjax.encode_result(tokenizer, text, allowed_special="all")
            assert result.ids.tolist() == expected["input_ids"]
            assert tokjax.decode(tokenizer, result.ids) == reference.decode(result.ids)
        pair = tokjax.encode_result(tokenizer, "low", " lower")
        expected = reference("low", " lower", return_token_type_ids=True)
        assert pair.ids.tolist() == expected["input_ids"]
        assert pair.token_type_ids.tolist() == expected["token_type_ids"]
        for role in roles:
            role_id = getattr(tokjax, f"{role}_id")(tokenizer)
            assert role_id == getattr(reference, f"{role}_token_id") is not None
        return tokenizer

    @pytest.mark.parametrize("special", [True, False])
    def test_declared_tokens(self, all_files, tmp_path, special):
        """The ids in the configuration have no effect in transformers."""
        flags = dict.fromkeys(("rstrip", "single_word", "normalized"), False) | {"special": special}
        declared = {
            str(id_): {"content": name, "lstrip": name == "<mask>", **flags}
            for id_, name in enumerate(("<mask>", "<new>", "[X]"))
        }
        self.write_with_tokens(
            all_files,
            tmp_path,
            ["[X]", "<mask>"],
            tokenizer_class="GPT2Tokenizer",
            pad_token="<pad>",
            mask_token="<mask>",
            added_tokens_decoder=declared,
        )
        texts = ["low <mask> lower", "low\n <mask><new> [X]a", "[X]  <mask> <pad> low"]
        tokenizer = self.check_equal_to_transformers(tmp_path, texts, ["pad", "mask"])
        assert tokjax.vocab_size(tokenizer) == len(self.vocab(all_files)) + 4
        plain = tokjax.load_tokenizer(tmp_path, special_tokens=["[X]"])
        assert [*tokjax.special_tokens(plain)] == ["[X]"]

    def test_special_token_that_merges_make(self, all_files, tmp_path):
        """The merges that make it still apply, as in transformers."""
        transformers = pytest.importorskip("transformers", minversion="5")
        vocab = self.write_with_tokens(all_files, tmp_path, [])
        name = next(form for form in vocab if form.isascii() and form.isalpha() and len(form) == 2)
        token = {"content": name, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        config = {"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {str(vocab[name]): token}}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert tokenizer.reason == "a special token is a part or the result of a merge"
        text = f"a {name} {name}er lowest"
        ids = tokjax.encode(tokenizer, text, allowed_special={name}).tolist()
        assert ids == transformers.AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"]

    @pytest.mark.parametrize(
        "config",
        [
            {"add_bos_token": True},
            {"add_bos_token": True, "bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"},  # OPT
            {"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>", "eos_token": "</s>"},
            {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": True, "add_eos_token": True},
        ],
    )
    def test_added_bos_and_eos(self, all_files, tmp_path, config):
        config = {"tokenizer_class": "GPT2Tokenizer", **config}
        self.write_with_tokens(all_files, tmp_path, ["<s>", "</s>", "<pad>"], **config)
        roles = ("bos", "eos") if config["tokenizer_class"] == "GPT2Tokenizer" else ("eos",)
        self.check_equal_to_transformers(tmp_path, ["", "low", " lower </s>"], roles)

    def test_added_bos_with_the_library(self, tmp_path):
        transformers = pytest.importorskip("transformers", minversion="5")
        write_gpt2_files(tmp_path, range(255))
        config = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert tokjax.encode(tokenizer, "he he").tolist() == reference("he he")["input_ids"]
        assert tokjax.encode_result(tokenizer, "he", "h").ids.tolist() == reference("he", "h")["input_ids"]

    def test_pattern_of_the_class(self, all_files, tmp_path):
        transformers = pytest.importorskip("transformers", minversion="5")
        self.write(tmp_path, self.vocab(all_files), (all_files / "merges.txt").read_bytes())
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert (tokenizer.pattern, tokenizer.normalizer) == ("qwen2", "nfc")
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
        for text in ("DON'T 1234 (low\n\n  lower)\n ", "e\u0301t\u0301 lowest"):
            assert tokjax.encode(tokenizer, text).tolist() == reference(text)["input_ids"]
        assert tokjax.load_tokenizer(tmp_path, pattern="gpt2").pattern == "gpt2"
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen3_5Tokenizer"}')
        assert tokjax.load_tokenizer(tmp_path).pattern == "qwen3_5"

    def test_missing_special_token(self, all_files):
        with pytest.raises(FormatError, match="the special token '<s>' is not in the vocabulary"):
            tokjax.load_tokenizer(all_files / "vocab.json", special_tokens=["<s>"])


def write_gpt2_files(directory, byte_values):
    vocab = {map_bytes_to_unicode(bytes([byte])): i for i, byte in enumerate(byte_values)}
    merges = [("h", "e"), ("Ġ", "he"), ("Ã", "©")]
    for token in (*map("".join, merges), "<|endoftext|>"):
        vocab[token] = len(vocab)
    (directory / "vocab.json").write_text(json.dumps(vocab))
    (directory / "merges.txt").write_text("".join(f"{left} {right}\n" for left, right in merges))
    return vocab, merges


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory):
    """Returns a tokenizer without some of the 256 bytes, and that of transformers."""
    transformers = pytest.importorskip("transformers", minversion="5")
    directory = tmp_path_factory.mktemp("incomplete")
    vocab, merges = write_gpt2_files(directory, [*range(32, 127), 0xC3, 0xA9])
    return tokjax.load_tokenizer(directory), transformers.GPT2Tokenizer(vocab=vocab, merges=merges)


@given(hard_texts)
def test_incomplete_bytes_give_the_ids_of_transformers(incomplete, text):
    tokenizer, reference = incomplete
    assert tokenizer.reason == "its vocabulary does not contain every single byte"
    if isinstance(text, str) and is_encodable(text) and "<|" not in text:
        assert tokjax.encode(tokenizer, text).tolist() == reference(text)["input_ids"]


def test_incomplete_bytes_by_example(incomplete, tmp_path):
    tokenizer, _ = incomplete
    assert tokjax.encode_result(tokenizer, "he hé\n日").tokens == ("he", " ", "h", "é")
    assert tokjax.eos_id(tokenizer) == tokjax.get_vocabulary(tokenizer).special["<|endoftext|>"]
    write_gpt2_files(tmp_path, range(256))
    assert isinstance(tokjax.load_tokenizer(tmp_path), tokjax.models.ByteLevelBPE)
    write_gpt2_files(tmp_path, range(255))
    other = tokjax.load_tokenizer(tmp_path, pattern="qwen2")
    assert tokjax.encode_result(other, " he e\u0301 12").tokens == (" he", " ", "é", " ", "1", "2")
    spaced = tokjax.load_tokenizer(tmp_path, add_prefix_space=True)
    assert tokjax.encode_result(spaced, "he").tokens == (" he",)
    with pytest.raises(ArgumentError, match="pattern='qwen2' needs a vocabulary with every single"):
        tokjax.load_tokenizer(tmp_path, pattern="qwen2", add_prefix_space=True)
