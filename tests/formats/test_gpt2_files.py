"""Tests of GPT-2's two files: `vocab.json` and `merges.txt`."""

import json

import pytest

import tokjax

FormatError = tokjax.errors.TokenizerFormatError


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
            (b"version 1\n", r"merges\.txt, line 1: 'version' is not a token"),
            (b"#version: 0.2\na b c\n", r"merges\.txt, line 2: expected two tokens"),
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
            FormatError, match=r"vocab\.json: has tokens that end in '</w>', .*, splitter=\.\.\.\)"
        ):
            tokjax.load_tokenizer(tmp_path)

    def test_config_file(self, all_files, tmp_path):
        self.write(tmp_path, self.vocab(all_files), (all_files / "merges.txt").read_bytes())
        config = {"bos_token": "<|endoftext|>", "eos_token": None}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = tokjax.load_tokenizer(tmp_path, "gpt2", add_prefix_space=True, pattern="qwen2")
        assert (tokenizer.add_prefix_space, tokenizer.pattern) == (True, "qwen2")
        assert set(tokenizer.vocabulary.roles) == {"bos", "eos"}

    def test_missing_byte(self, all_files, tmp_path):
        vocab = self.vocab(all_files)
        del vocab["¡"]
        self.write(tmp_path, vocab, b"")
        with pytest.raises(
            FormatError, match="has no token for the byte 0xa1, as GPT-2's files have; put the"
        ):
            tokjax.load_tokenizer(tmp_path)

    def test_missing_special_token(self, all_files):
        with pytest.raises(FormatError, match="the special token '<s>' is not in the vocabulary"):
            tokjax.load_tokenizer(all_files / "vocab.json", special_tokens=["<s>"])
