"""Tests of GPT-2's two files, `vocab.txt`, and classic BPE, with an oracle of KeemenaSubwords.jl."""

import json

import pytest
from hypothesis import given
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import tokjax
from tests.conftest import CORPUS
from tests.models.test_word_bpe import encode_slowly
from tests.support.text_strategies import hard_texts
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, map_bytes_to_unicode

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError
SPECIAL = ["<unk>", "<pad>", "<s>", "</s>"]
SYMBOL_MERGES = ["l o", "lo w", "low </w>", "e r", "er </w>"]
SUFFIX_MERGES = ["l o", "lo w</w>", "e r</w>", "lo w"]


def write_txt(directory, tokens, merges, header="# made by hand\n"):
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
    (directory / "merges.txt").write_text(header + "".join(f"{merge}\n" for merge in merges), "utf-8")
    return directory


def write_json(directory, vocab, merges):
    (directory / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    (directory / "merges.txt").write_bytes(merges)
    return directory


class TestGPT2:
    def vocab(self, all_files):
        return json.loads((all_files / "vocab.json").read_text())

    @pytest.mark.parametrize("header", [b"", b"#version: 0.2\n", b"#version: 0.2 - x\r\n"])
    def test_headers_and_line_ends(self, all_files, tmp_path, header):
        merges = (all_files / "merges.txt").read_bytes().partition(b"\n")[2]
        if b"\r" in header:
            merges = merges.replace(b"\n", b"\r\n") + b"\r\n\r\n"
        tokenizer = tokjax.load_tokenizer(write_json(tmp_path, self.vocab(all_files), header + merges))
        assert tokenizer == tokjax.load_tokenizer([all_files / "vocab.json", all_files / "merges.txt"])
        assert tokjax.eos_id(tokenizer) is not None

    @pytest.mark.parametrize(
        ("merges", "message"),
        [
            (b"version 1\n", r"merges\.txt, line 1: 'version' is not a token"),
            (b"#version: 0.2\na b c\n", r"merges\.txt, line 2: expected two tokens"),
            (b"#version: 0.2\na qqqq\n", r"merges\.txt, line 2: 'qqqq' is not a token of the vocabulary"),
            (b"\xff\xfe\n", r"merges\.txt, line 1: not UTF-8"),
            (b"#version: 0.2\nq q\n", r"line 2: 'qq' is not a token .*, which the merge 'q q' needs"),
            (b"e r\ne r\n", r"merges\.txt, line 2: duplicate of 'e r' in line 1"),
        ],
    )
    def test_invalid_merges(self, all_files, tmp_path, merges, message):
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(write_json(tmp_path, self.vocab(all_files), merges))

    @pytest.mark.parametrize(
        ("vocab", "message"),
        [
            ({"a": 0, "b": 0}, "id 0 is given to both 'a' and 'b'"),
            ({"a": "0"}, "the id of 'a' is '0'"),
            ({"a": 0, "a</w>": 1}, r"has tokens that end in '</w>', .*, splitter=\.\.\.\)"),
            ({"a": 0, "b</w>": 1}, r"vocab\.json: has tokens that end in '</w>'"),
            ({"a": 0}, "has no token for the byte 0x21, as GPT-2's files have; put the"),
        ],
    )
    def test_invalid_vocabulary(self, tmp_path, vocab, message):
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(write_json(tmp_path, vocab, b""))

    def test_options(self, all_files, tmp_path):
        write_json(tmp_path, self.vocab(all_files), (all_files / "merges.txt").read_bytes())
        (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<|endoftext|>", "eos_token": null}')
        tokenizer = tokjax.load_tokenizer(tmp_path, "gpt2", pattern="qwen2")
        assert (tokenizer.normalizer, tokenizer.pattern) == ("nfc", "qwen2")
        assert set(tokenizer.vocabulary.roles) == {"bos", "eos"}
        with pytest.raises(FormatError, match="the special token '<s>' is not in the vocabulary"):
            tokjax.load_tokenizer(tmp_path, special_tokens=["<s>"])
        with pytest.raises(ArgumentError, match="pad_token is 'a', which is not among the special tokens"):
            tokjax.load_tokenizer(tmp_path, pad_token="a")

    def test_merges_with_a_mark_as_text_are_not_classic_bpe(self, tmp_path):
        tokens = [*ALPHABET, "</", "w>", "</w>", "</w>Ċ"]
        vocab = {token: id_ for id_, token in enumerate(tokens)}
        tokenizer = tokjax.load_tokenizer(write_json(tmp_path, vocab, "< /\nw >\n</ w>\n</w> Ċ\n".encode()))
        assert isinstance(tokenizer, tokjax.models.ByteLevelBPE)


class TestWordPiece:
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
            (b"[UNK]\na\na\n", r"line 3: duplicate of 'a'; each line must be"),
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


def list_tokens(merges, *others):
    """Returns special tokens, and the symbols and products of merges."""
    parts = [part for merge in merges for part in (*merge.split()[:2], "".join(merge.split()[:2]))]
    return list(dict.fromkeys([*SPECIAL, *parts, *others]))


class TestClassicBPE:
    @pytest.mark.parametrize(
        ("merges", "others", "end_of_word", "tokens"),
        [
            (SYMBOL_MERGES, (), "symbol", ["low</w>", "low", "er</w>", "<unk>"]),
            (SUFFIX_MERGES, (), "suffix", ["low</w>", "low", "er</w>", "<unk>"]),
            (["l o", "lo w", "e r"], (), None, ["low", "low", "er", "<unk>"]),
            ([], ["a", "</w>"], "symbol", ["<unk>", "<unk>", "<unk>"]),
            ([], ["a", "a</w>"], "suffix", ["<unk>", "<unk>", "<unk>"]),
        ],
    )
    def test_end_of_word(self, tmp_path, merges, others, end_of_word, tokens):
        write_txt(tmp_path, list_tokens(merges, *others), merges, "# a comment\n#version: 0.2\n")
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert tokenizer.end_of_word == end_of_word
        assert tokjax.tokenize(tokenizer, "low  lower\nLow", add_special_tokens=False) == tokens
        assert tokjax.tokenize(tokenizer, "") == ["<s>", "</s>"]
        assert [tokjax.unk_id(tokenizer), tokjax.pad_id(tokenizer)] == [0, 1]
        assert tokjax.formats.detect_tokenizer_files(tmp_path).format == "word_bpe"
        files = [tmp_path / "merges.txt", tmp_path / "vocab.txt"]
        for path in (*files, files, files[::-1]):
            assert tokjax.load_tokenizer(path) == tokenizer

    @pytest.mark.parametrize("byte_level", [False, True])
    @pytest.mark.parametrize("mark", ["</w>", ""])
    def test_trained_files_equal_the_oracle(self, tmp_path, byte_level, mark):
        """The merges are trained by the library on words with a character for the end of the word."""
        library = Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.BpeTrainer(
            vocab_size=600 if byte_level else 300,
            initial_alphabet=list(ALPHABET) if byte_level else [],
            show_progress=False,
        )
        end = "\u2e3b" if mark else ""
        lines = [word + end for line in CORPUS for word in line.split()]
        library.train_from_iterator(
            [map_bytes_to_unicode(line.removesuffix(end).encode()) + end for line in lines]
            if byte_level
            else lines,
            trainer,
        )
        model = json.loads(library.to_str())["model"]
        tokens = [token.replace("\u2e3b", "</w>") for token in sorted(model["vocab"], key=model["vocab"].get)]
        merges = [" ".join(pair).replace("\u2e3b", "</w>") for pair in model["merges"]]
        tokenizer = tokjax.load_tokenizer(write_txt(tmp_path, ["<unk>", *tokens], merges))
        assert (tokenizer.byte_level, tokenizer.end_of_word) == (byte_level, "symbol" if mark else None)

        @given(hard_texts)
        def check(text):
            for each in (text, f"{CORPUS[0]} {text}"):
                expected = [token or "<unk>" for token in encode_slowly(tokenizer, each)]
                assert tokjax.tokenize(tokenizer, each, disallowed_special=()) == expected

        check()
        if mark:
            ids = tokjax.encode(tokenizer, CORPUS[0])
            assert tokjax.decode(tokenizer, ids) == " ".join(CORPUS[0].split())

    def test_options(self, tmp_path):
        write_txt(tmp_path, list_tokens(SUFFIX_MERGES, "[MASK]", "<x>"), SUFFIX_MERGES)
        tokenizer = tokjax.load_tokenizer(tmp_path, special_tokens=["<x>"], eos_token="[MASK]")
        assert tokjax.tokenize(tokenizer, "low") == ["<s>", "low</w>", "[MASK]"]
        assert set(tokjax.special_tokens(tokenizer)) == {*SPECIAL, "[MASK]", "<x>"}
        with pytest.raises(
            FormatError, match=r"vocab\.txt: .*the special token '<y>' is not among the tokens"
        ):
            tokjax.load_tokenizer(tmp_path, special_tokens=["<y>"])
        with pytest.raises(
            ArgumentError, match=r"no option 'unknown'; it has bos_token, .*; call tokjax\.word_bpe with it$"
        ):
            tokjax.load_tokenizer(tmp_path, unknown="token")
        (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<x>"}')
        assert tokjax.tokenize(tokjax.load_tokenizer(tmp_path), "low") == ["<x>", "low</w>", "</s>"]

    def test_lines_are_stripped(self, tmp_path):
        (tmp_path / "vocab.txt").write_bytes("\ufeff<unk>\r\n\r\n l\u3000\r\n\x1c\r\no\n lo".encode())
        (tmp_path / "merges.txt").write_bytes(b"#version: 0.2\r\n\r\nl\to\r\n")
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert tokjax.encode(tokenizer, "lo l\x1clo").tolist() == [4, 1, 2, 4]

    def test_merges_that_begin_with_a_number_sign(self, tmp_path):
        write_txt(tmp_path, ["<unk>", "#", "##", "a"], ["# #"], "# a\n")
        assert tokjax.tokenize(tokjax.load_tokenizer(tmp_path), "## #a") == ["##", "#", "a"]

    @pytest.mark.parametrize(
        ("tokens", "merges", "message"),
        [
            (["a", "b", "ab"], ["a b"], "needs the tokenizer's unk token, and it declares none"),
            (["<unk>", "a", "a"], [], r"vocab\.txt, line 3: duplicate of 'a'; each line must be a new"),
            (
                ["<unk>", "ab"],
                ["a b 3"],
                r"merges\.txt, line 2: expected two tokens; remove counts .* 'a b 3'",
            ),
            (["<unk>", "ab"], ["a b", "a b"], r"merges\.txt, line 3: duplicate of 'a b' in line 2"),
            (["<unk>", "x"], ["a b"], r"merges\.txt do not match: no merge makes a token of the vocabulary"),
            (
                ["<unk>", "ab"],
                ["a b", "ab c</w>"],
                r"such as 'lo@@' by subword-nmt, write them .*, and call tokjax\.word_bpe\(TOKENS, MERGES\)",
            ),
            (
                ["<unk>", "a</w>", "</w>", "ab</w>"],
                ["a b</w>", "b </w>", "c d</w>", "d a</w>"],
                "'</w>' occurs alone, and as part of 'a</w>', which no merge makes; call tokjax.word_bpe",
            ),
            (
                ["<unk>", "Ã", "©"],
                [],
                "could also write bytes, as in GPT-2's files, but some .*word_bpe.*byte_level",
            ),
        ],
    )
    def test_invalid_files(self, tmp_path, tokens, merges, message):
        write_txt(tmp_path, tokens, merges)
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(tmp_path)
