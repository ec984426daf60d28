"""Tests of `vocab.txt`, BERT's file of a WordPiece vocabulary."""

import pytest

import tokjax

FormatError = tokjax.errors.TokenizerFormatError


class TestVocabTxt:
    def load(self, directory, text, **options):
        (directory / "vocab.txt").write_bytes(text)
        return tokjax.load_tokenizer(directory / "vocab.txt", **options)

    def test_first_token_is_a_brace(self, tmp_path):
        assert tokjax.tokenize(self.load(tmp_path, b"{\n[UNK]\n}\n"), "{}") == ["{", "}"]

    def test_line_ends(self, tmp_path):
        tokenizer = self.load(tmp_path, "[UNK]\r\nfoo\r\n##bar\r\nnaïve".encode())
        assert tokjax.tokenize(tokenizer, "foobar naïve") == ["foo", "##bar", "[UNK]"]

    def test_lowercase(self, tmp_path):
        with pytest.raises(FormatError, match="has tokens such as 'Foo', which could not occur then"):
            self.load(tmp_path, b"[UNK]\nFoo\n")
        cased = self.load(tmp_path, b"[UNK]\nFoo\n", lowercase=False)
        assert tokjax.tokenize(cased, "Foo foo") == ["Foo", "[UNK]"]
        (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
        assert self.load(tmp_path, b"[UNK]\nFoo\n") == cased

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b"[UNK]\na\na\n", r"line 3: duplicate of 'a' in line 2"),
            (b"[UNK]\n\na\n", r"line 2: is empty"),
            (b"[UNK]\n\xff\n", r"line 2: not UTF-8"),
            (b"foo\nbar\n", r"vocab\.txt: .*the special token '\[UNK\]' is not among the tokens"),
        ],
    )
    def test_invalid_files(self, tmp_path, text, message):
        with pytest.raises(FormatError, match=message):
            self.load(tmp_path, text, format="wordpiece")

    def test_a_list_of_merges_beside_it(self, tmp_path):
        (tmp_path / "merges.txt").write_text("#version: 0.2\nx y\n")
        (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nl\no\nlo\n")
        for path in (tmp_path, tmp_path / "vocab.txt", [tmp_path / "merges.txt", tmp_path / "vocab.txt"]):
            with pytest.raises(
                FormatError, match=r"vocab\.txt and .*merges\.txt do not match: no merge makes"
            ):
                tokjax.load_tokenizer(path)
        loaded = tokjax.load_tokenizer(tmp_path / "vocab.txt", "wordpiece")
        assert tokjax.tokenize(loaded, "lo") == ["[CLS]", "lo", "[SEP]"]

    def test_rwkv_vocabulary_is_rejected(self, tmp_path):
        text = b"1 '\\x00' 1\n2 ' a' 2\n3 b'\\xe3\\x81' 2\n4 \"it's\" 4\n"
        with pytest.raises(FormatError, match=r"vocab\.txt: a vocabulary of RWKV .* which is not supported;"):
            self.load(tmp_path, text)
        with pytest.raises(FormatError, match="a vocabulary of RWKV"):
            tokjax.load_tokenizer(tmp_path)
