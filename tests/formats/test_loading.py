"""One door: which files of a directory hold a tokenizer, and what is said of those that do not."""

import base64
import json
import os

import pytest
import tokenizers

import tokjax
from tests.conftest import CORPUS
from tokjax.trainer import train_bpe, train_sentencepiece, train_wordpiece

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError
BYTES = {bytes([i]): i for i in range(256)}
RANKS = b"".join(base64.b64encode(token) + b" %d\n" % id_ for token, id_ in BYTES.items())


@pytest.fixture(scope="module")
def all_files(tmp_path_factory):
    """A directory with a tokenizer of every kind."""
    directory = tmp_path_factory.mktemp("all")
    bpe = train_bpe(CORPUS, vocab_size=300, special_tokens=["<|endoftext|>"], progress=False).tokenizer
    pieces = train_sentencepiece(CORPUS, vocab_size=150, progress=False).tokenizer
    for format_ in ("tokjax", "huggingface", "gpt2", "tiktoken"):
        tokjax.formats.export_tokenizer(bpe, directory, format_)
    tokjax.formats.export_tokenizer(pieces, directory, "sentencepiece")
    wordpiece = train_wordpiece(CORPUS, vocab_size=200, progress=False).tokenizer
    tokjax.formats.export_tokenizer(wordpiece, directory, "wordpiece")
    (directory / "encoder.json").write_bytes((directory / "vocab.json").read_bytes())
    (directory / "vocab.bpe").write_bytes((directory / "merges.txt").read_bytes())
    return directory


ORDER = [
    ("tokjax", ["tokenizer.tokjax.json"]),
    ("huggingface", ["tokenizer.json"]),
    ("gpt2", ["vocab.json", "merges.txt"]),
    ("gpt2", ["encoder.json", "vocab.bpe"]),
    ("sentencepiece", ["tokenizer.model"]),
    ("tiktoken", ["ranks.tiktoken"]),
    ("wordpiece", ["vocab.txt"]),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_of_several_kinds_the_first_is_taken(all_files, tmp_path, first):
    for _, names in ORDER[first:]:
        for name in names:
            (tmp_path / name).write_bytes((all_files / name).read_bytes())
    found = tokjax.formats.detect_tokenizer_files(tmp_path)
    format_, names = ORDER[first]
    assert found.format == format_
    assert found.files == tuple(tmp_path / name for name in names)
    assert str(tmp_path) in found.reason
    options = {"pattern": "gpt2"} if format_ == "tiktoken" else {}
    loaded = tokjax.load_tokenizer(tmp_path, **options)
    assert (
        tokjax.encode(loaded, "low").tolist()
        == tokjax.encode(
            tokjax.load_tokenizer(found.files if format_ == "gpt2" else found.files[0], format_, **options),
            "low",
        ).tolist()
    )


@pytest.mark.parametrize(("format_", "names"), ORDER)
def test_format_is_detected_by_content(all_files, tmp_path, format_, names):
    if format_ == "gpt2":
        for name in names:
            assert tokjax.formats.detect_tokenizer_format(all_files / name).files == tuple(
                all_files / each for each in names
            )
        return
    other = tmp_path / f"other{(all_files / names[0]).suffix}"
    other.write_bytes((all_files / names[0]).read_bytes())
    assert tokjax.formats.detect_tokenizer_format(other).format == format_


def test_two_files_in_either_order(all_files):
    vocab, merges = all_files / "vocab.json", all_files / "merges.txt"
    for pair in ([vocab, merges], (str(merges), str(vocab))):
        assert tokjax.formats.detect_tokenizer_files(pair).files == (vocab, merges)
    assert tokjax.load_tokenizer([merges, vocab]) == tokjax.load_tokenizer([vocab, merges])


def test_a_model_may_be_a_file_of_ranks(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(RANKS)
    assert tokjax.formats.detect_tokenizer_files(tmp_path).format == "tiktoken"


class TestAmbiguousOrUnknown:
    def test_several_of_one_kind(self, tmp_path):
        for name in ("b.tiktoken", "a.tiktoken"):
            (tmp_path / name).write_bytes(RANKS)
        with pytest.raises(FormatError, match=r"one kind, a\.tiktoken, b\.tiktoken; pass the"):
            tokjax.load_tokenizer(tmp_path)
        (tmp_path / "spm.model").write_bytes(b"")
        (tmp_path / "tokenizer.model").write_bytes(b"")
        with pytest.raises(FormatError, match=r"one kind, tokenizer\.model, spm\.model"):
            tokjax.load_tokenizer(tmp_path)

    def test_a_directory_without_any(self, tmp_path):
        (tmp_path / "README.md").write_text("hello")
        with pytest.raises(FormatError, match=r"it has \['README.md'\]. Looked for tokenizer.tok"):
            tokjax.load_tokenizer(tmp_path)

    def test_no_such_path(self, tmp_path):
        with pytest.raises(ArgumentError, match="a path is expected, not 5"):
            tokjax.load_tokenizer([5, "x"])
        with pytest.raises(ArgumentError, match="a path, or a pair of them, is expected, not None"):
            tokjax.load_tokenizer(None)
        with pytest.raises(FileNotFoundError):
            tokjax.load_tokenizer(tmp_path / "none")

    @pytest.mark.parametrize(
        ("name", "contents", "message"),
        [
            ("x.bin", b"\x93NUMPY\0", r"holds no tokenizer that is known: it begins with b'\\x93NUMPY"),
            ("x.json", b'{"a": "b"}', r"a JSON object that is no tokenizer; its keys are \['a'\]"),
            ("x.json", b'{"a": 1}', r"it is a table of tokens and ids, which is half a tokenizer; pass both"),
            ("merges.txt", b"#version: 0.2\n", r"it is a list of merges, which is half a tokenizer"),
            ("x.json", b'{"model": {', "not JSON, or cut short"),
            ("x.model", b"", "holds no tokenizer that is known"),
        ],
    )
    def test_invalid_files(self, tmp_path, name, contents, message):
        path = tmp_path / name
        path.write_bytes(contents)
        with pytest.raises(FormatError, match=message) as caught:
            tokjax.load_tokenizer(path)
        assert str(path) in str(caught.value)

    def test_mismatched_files(self, tmp_path):
        with pytest.raises(ArgumentError, match="two files make up a tokenizer at most, not 3"):
            tokjax.load_tokenizer([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
        with pytest.raises(FormatError, match=r"ids \(\.json\), the other a list of merges; got"):
            tokjax.load_tokenizer([tmp_path / "a.txt", tmp_path / "b.txt"])


def test_unknown_formats_and_options(all_files):
    with pytest.raises(ArgumentError, match=r"format must be 'auto', 'tokjax', .*, not 'bpe'"):
        tokjax.load_tokenizer(all_files, "bpe")
    with pytest.raises(ArgumentError, match=r"'tokjax' \(.*\) has no option 'pattern'; it has none"):
        tokjax.load_tokenizer(all_files, pattern="gpt2")
    with pytest.raises(ArgumentError, match=r"has no option 'x'; it has .*max_word_characters"):
        tokjax.load_tokenizer(all_files / "vocab.txt", x=1)
    with pytest.raises(ArgumentError, match=r"the format 'tokjax' \(.*\), not 'wordpiece'; pass"):
        tokjax.load_tokenizer(all_files, "wordpiece")


OF_FILES = {1: "wordpiece", 2: "gpt2"}


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (["vocab.txt"], {"special_tokens": "[A]"}, r"special_tokens must be a list of names, not '\[A\]'"),
        (["vocab.txt"], {"special_tokens": 3}, "special_tokens must be a list of names, not 3"),
        (
            ["vocab.txt"],
            {"handle_chinese_chars": "no"},
            "handle_chinese_chars must be True, False or None, not",
        ),
        (["vocab.txt"], {"clean_text": None}, "clean_text must be True or False, not None"),
        (["vocab.txt"], {"max_word_characters": "3"}, "max_word_characters must be an integer, not '3'"),
        (["vocab.txt"], {"continuing_prefix": None}, "continuing_prefix must be a string, not None"),
        (
            ["vocab.json", "merges.txt"],
            {"add_prefix_space": "no"},
            "add_prefix_space must be True or False, not 'no'",
        ),
        (["vocab.json", "merges.txt"], {"pattern": 3}, "pattern must be a string or None, not 3"),
        (["vocab.json", "merges.txt"], {"eos_token": 5}, "eos_token must be a string or None, not 5"),
    ],
)
def test_values_that_options_cannot_have(all_files, files, options, message):
    with pytest.raises(ArgumentError, match=message):
        tokjax.load_tokenizer([all_files / name for name in files], OF_FILES[len(files)], **options)


def test_special_tokens_of_ranks_have_ids(tmp_path):
    (tmp_path / "x.tiktoken").write_text("YQ== 0\n")
    with pytest.raises(
        ArgumentError, match=r"special_tokens must be a dict of names and ids, or None, not \["
    ):
        tokjax.load_tokenizer(tmp_path / "x.tiktoken", pattern="gpt2", special_tokens=["<s>"])


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
        ours = tokjax.load_tokenizer(self.write(tmp_path, self.vocab(all_files), header + merges))
        assert (
            ours.merges == tokjax.load_tokenizer([all_files / "vocab.json", all_files / "merges.txt"]).merges
        )
        assert tokjax.eos_id(ours) is not None

    @pytest.mark.parametrize(
        ("merges", "message"),
        [
            (b"version 1\nabc\n", r"merges\.txt, line 1: 'version' is no token"),
            (b"#version: 0.2\na b c\n", r"merges\.txt, line 2: two tokens"),
            (b"#version: 0.2\n\na b\n", r"merges\.txt, line 2: two tokens"),
            (b"#version: 0.2\na qqqq\n", r"merges\.txt, line 2: 'qqqq' is no token of the vocabulary"),
            (b"\xff\xfe\n", r"merges\.txt, line 1: not UTF-8"),
            (b"#version: 0.2\nq q\n", r"merges\.txt, line 2: 'q q' make 'qq', which is no token"),
        ],
    )
    def test_invalid_merges(self, all_files, tmp_path, merges, message):
        self.write(tmp_path, self.vocab(all_files), merges)
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(tmp_path)

    def test_duplicate_merge(self, all_files, tmp_path):
        header, first, _ = (all_files / "merges.txt").read_bytes().split(b"\n", 2)
        self.write(tmp_path, self.vocab(all_files), b"\n".join([header, first, first]))
        with pytest.raises(FormatError, match=r"merges\.txt, line 3: holds '.+' once more, after line 2"):
            tokjax.load_tokenizer(tmp_path)

    @pytest.mark.parametrize(
        ("vocab", "message"),
        [
            ({"a": 0, "b": 0}, "id 0 is given to both 'a' and 'b'"),
            ({"a": "0"}, "the id of 'a' is '0'"),
        ],
    )
    def test_invalid_tables(self, tmp_path, vocab, message):
        self.write(tmp_path, vocab, b"#version: 0.2\n")
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(tmp_path)

    def test_words_that_end_in_a_mark(self, tmp_path):
        self.write(tmp_path, {"a": 0, "a</w>": 1}, b"#version: 0.2\n")
        with pytest.raises(FormatError, match="its words end in '</w>', so it is no byte-level BPE"):
            tokjax.load_tokenizer(tmp_path)

    def test_what_the_config_says(self, all_files, tmp_path):
        merges = (all_files / "merges.txt").read_bytes()
        self.write(tmp_path, self.vocab(all_files), merges)
        config = {"add_prefix_space": True, "bos_token": "<|endoftext|>", "eos_token": None}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        ours = tokjax.load_tokenizer(tmp_path, "gpt2")
        assert ours.add_prefix_space
        assert set(ours.vocabulary.roles) == {"bos", "eos"}
        (tmp_path / "added_tokens.json").write_text('{"<new>": 9999}')
        with pytest.raises(FormatError, match="adds the token '<new>', which vocab.json does not hold"):
            tokjax.load_tokenizer(tmp_path, "gpt2")

    def test_special_tokens_that_it_has_not(self, all_files):
        with pytest.raises(FormatError, match="has no token '<s>', which is to be special"):
            tokjax.load_tokenizer(all_files / "vocab.json", special_tokens=["<s>"])


class TestVocabTxt:
    def load(self, directory, text, **options):
        (directory / "vocab.txt").write_bytes(text)
        return tokjax.load_tokenizer(directory / "vocab.txt", **options)

    def test_a_brace_at_the_beginning(self, tmp_path):
        assert tokjax.tokenize(self.load(tmp_path, b"{\n[UNK]\n}\n"), "{}") == ["{", "}"]

    def test_line_ends(self, tmp_path):
        ours = self.load(tmp_path, "[UNK]\r\nfoo\r\n##bar\r\nnaïve".encode())
        assert tokjax.tokenize(ours, "foobar naïve") == ["foo", "##bar", "[UNK]"]

    def test_whether_it_is_lower_case(self, tmp_path):
        with pytest.raises(FormatError, match="has tokens such as 'Foo', which could not be then"):
            self.load(tmp_path, b"[UNK]\nFoo\n")
        cased = self.load(tmp_path, b"[UNK]\nFoo\n", lowercase=False)
        assert tokjax.tokenize(cased, "Foo foo") == ["Foo", "[UNK]"]
        (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
        assert self.load(tmp_path, b"[UNK]\nFoo\n") == cased

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b"[UNK]\na\na\n", r"line 3: holds 'a' once more, after line 2"),
            (b"[UNK]\n\na\n", r"line 2: is empty"),
            (b"[UNK]\n\xff\n", r"line 2: not UTF-8"),
            (b"foo\nbar\n", r"vocab\.txt: .*the special token '\[UNK\]' is not among the tokens"),
        ],
    )
    def test_invalid_files(self, tmp_path, text, message):
        with pytest.raises(FormatError, match=message):
            self.load(tmp_path, text, format="wordpiece")

    def test_it_is_cleaned_up_as_in_the_libraries(self, tmp_path):
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", ",", "world", "!"]
        ours = self.load(tmp_path, "\n".join(tokens).encode())
        theirs = tokenizers.BertWordPieceTokenizer.from_file(str(tmp_path / "vocab.txt"))
        ids = theirs.encode("hello, world!").ids
        assert tokjax.decode(ours, ids, skip_special_tokens=True) == theirs.decode(ids) == "hello, world!"
        plain = tokjax.load_tokenizer(tmp_path / "vocab.txt", cleanup=False)
        assert tokjax.decode(plain, ids, skip_special_tokens=True) == "hello , world !"
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError, match=r"a vocab.txt can't say cleanup=False"
        ):
            tokjax.formats.export_tokenizer(plain, tmp_path, "wordpiece")

    @pytest.mark.parametrize("merges", ["merges.txt", "bpe.codes"])
    def test_a_bpe_of_words(self, tmp_path, merges):
        (tmp_path / merges).write_text("#version: 0.2\nl o\n")
        (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nl\no\nlo\n")
        for path in (tmp_path, tmp_path / "vocab.txt"):
            with pytest.raises(
                FormatError, match=rf"with {merges} beside it is a BPE of words, which is not"
            ):
                tokjax.load_tokenizer(path)
        with pytest.raises(
            FormatError, match="are a BPE of words, which is not supported; convert them to a"
        ):
            tokjax.load_tokenizer([tmp_path / "vocab.txt", tmp_path / merges])
        loaded = tokjax.load_tokenizer(tmp_path / "vocab.txt", "wordpiece")
        assert tokjax.tokenize(loaded, "lo") == ["[CLS]", "lo", "[SEP]"]

    def test_a_vocabulary_of_rwkv(self, tmp_path):
        text = b"1 '\\x00' 1\n2 ' a' 2\n3 b'\\xe3\\x81' 2\n4 \"it's\" 4\n"
        with pytest.raises(FormatError, match=r"vocab\.txt: a vocabulary of RWKV .* which is not supported;"):
            self.load(tmp_path, text)
        with pytest.raises(FormatError, match="a vocabulary of RWKV"):
            tokjax.load_tokenizer(tmp_path)


class TestSentencePiece:
    def test_what_the_config_says(self, tmp_path):
        pieces = train_sentencepiece(CORPUS, vocab_size=150, bos_token="<s>", progress=False).tokenizer
        tokjax.formats.export_tokenizer(pieces, tmp_path, "sentencepiece")
        assert tokjax.load_tokenizer(tmp_path) == pieces  # as the config says that was written beside it
        (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true, "add_eos_token": false}')
        assert dict(tokjax.load_tokenizer(tmp_path).vocabulary.roles) == {"bos": "<s>", "unk": "<unk>"}
        (tmp_path / "tokenizer_config.json").unlink()
        assert tokjax.bos_id(tokjax.load_tokenizer(tmp_path)) is None

    def test_a_truncated_model(self, all_files, tmp_path):
        data = (all_files / "tokenizer.model").read_bytes()
        for size in (1, len(data) // 2, len(data) - 1):
            (tmp_path / "tokenizer.model").write_bytes(data[:size])
            with pytest.raises(FormatError, match="tokenizer.model"):
                tokjax.load_tokenizer(tmp_path)

    def test_of_a_processor_without_a_model(self):
        with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="that has loaded a model, not str"):
            tokjax.formats.from_sentencepiece("x.model")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_not_a_file(all_files, tmp_path, make):
    make(tmp_path / "vocab.json")
    (tmp_path / "merges.txt").write_bytes((all_files / "merges.txt").read_bytes())
    with pytest.raises(FormatError, match=r"vocab\.json: is no regular file"):
        tokjax.load_tokenizer([tmp_path / "vocab.json", tmp_path / "merges.txt"])


def test_a_file_that_is_far_too_large(tmp_path):
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate(1 << 30)
    with pytest.raises(FormatError, match=r"has 1,073,741,824 bytes; the limit is 536,870,912"):
        tokjax.load_tokenizer(path)


def test_a_name_is_no_path():
    with pytest.raises(
        FileNotFoundError, match=r"No such file \(nothing is downloaded: give the path of .*'gpt2'"
    ):
        tokjax.load_tokenizer("gpt2")
