"""Tests of the detection of tokenizer files and their formats."""

import base64

import pytest

import tokjax
from tests.support.sentencepiece_models import build_bpe_model
from tokjax.models.sentencepiece_files import iter_fields

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError
BYTES = {bytes([i]): i for i in range(256)}
RANKS = b"".join(base64.b64encode(token) + b" %d\n" % id_ for token, id_ in BYTES.items())


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
def test_first_format_in_order_is_detected(all_files, tmp_path, first):
    for _, names in ORDER[first:]:
        for name in names:
            (tmp_path / name).write_bytes((all_files / name).read_bytes())
    detected = tokjax.formats.detect_tokenizer_files(tmp_path)
    format_, names = ORDER[first]
    assert detected.format == format_
    assert detected.files == tuple(tmp_path / name for name in names)
    assert str(tmp_path) in detected.reason
    options = {"pattern": "gpt2"} if format_ == "tiktoken" else {}
    loaded = tokjax.load_tokenizer(tmp_path, **options)
    assert (
        tokjax.encode(loaded, "low").tolist()
        == tokjax.encode(
            tokjax.load_tokenizer(
                detected.files if format_ == "gpt2" else detected.files[0], format_, **options
            ),
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


def test_pair_of_files_in_either_order(all_files):
    vocab, merges = all_files / "vocab.json", all_files / "merges.txt"
    for pair in ([vocab, merges], (str(merges), str(vocab))):
        assert tokjax.formats.detect_tokenizer_files(pair).files == (vocab, merges)
    assert tokjax.load_tokenizer([merges, vocab]) == tokjax.load_tokenizer([vocab, merges])


@pytest.mark.parametrize("name", ["tokenizer.model", "tiktoken.model"])
def test_model_can_be_a_rank_file(tmp_path, name):
    (tmp_path / name).write_bytes(RANKS)
    assert tokjax.formats.detect_tokenizer_files(tmp_path).format == "tiktoken"


@pytest.mark.parametrize("name", ["en-de.model", "Model 1.model", "mistral.model.v7", "x.vocab.model"])
def test_single_model_with_any_name(tmp_path, all_files, name):
    model = (all_files / "tokenizer.model").read_bytes()
    (tmp_path / name).write_bytes(model)
    (tmp_path / f"._{name}").write_bytes(b"metadata of macOS")
    (tmp_path / "vocab.txt").write_text("a\n")
    detected = tokjax.formats.detect_tokenizer_files(tmp_path)
    assert (detected.format, detected.files) == ("sentencepiece", (tmp_path / name,))
    assert tokjax.load_tokenizer(tmp_path) == tokjax.load_tokenizer(all_files / "tokenizer.model")
    (tmp_path / "a.model").write_bytes(model)
    with pytest.raises(
        FormatError, match=r"one format, .*a\.model.*; pass the path .* load_tokenizer\('.*model.*'"
    ):
        tokjax.load_tokenizer(tmp_path)


@pytest.mark.parametrize("first", [2, 3])
def test_model_that_begins_with_its_settings(tmp_path, first):
    model = build_bpe_model(["l", "o", "lo"])
    fields = sorted(iter_fields(model), key=lambda field: field[0] != first)
    path = tmp_path / "tokenizer_gemma4.model"
    path.write_bytes(b"".join(bytes([number << 3 | 2, len(value)]) + value for number, value in fields))
    assert tokjax.formats.detect_tokenizer_files(path).format == "sentencepiece"
    expected = tokjax.encode(tokjax.sentencepiece(model), "lo")
    assert tokjax.encode(tokjax.load_tokenizer(path), "lo").tolist() == expected.tolist()


SCORES = "a list of the pieces and scores .* path of the .model, .*, export the tokenizer with format=:hf_"


class TestTextVocabularies:
    """Vocabularies that the trainer of SentencePiece writes, and others with pieces and scores."""

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("m.vocab", "<unk>\t0\n<s>\t0\n\u2581low\t-1.5\n"),
            ("vocab.txt", "<unk>\t0\n<s>\t0\n\u2581low\t-1.5\n"),
            ("unigram.tsv", "<unk>\t-99\tunk\nlow\t-0.1\n"),
            ("spm.model", "# a\ntype=unigram\npiece\t<unk>\t-99.0\tunk\n"),
        ],
    )
    def test_scores(self, tmp_path, name, text):
        (tmp_path / name).write_text(text)
        with pytest.raises(FormatError, match=SCORES):
            tokjax.load_tokenizer(tmp_path / name)
        message = SCORES if name in ("vocab.txt", "spm.model") else "contains no tokenizer"
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(tmp_path)

    def test_ranks_after_a_tab(self, tmp_path):
        (tmp_path / "x.tiktoken").write_bytes(RANKS.replace(b" ", b"\t"))
        assert tokjax.load_tokenizer(tmp_path, pattern="gpt2").vocabulary.ordinary == BYTES


class TestAmbiguousOrUnknownFiles:
    def test_directory_without_tokenizer(self, tmp_path):
        (tmp_path / "README.md").write_text("hello")
        with pytest.raises(FormatError, match=r"only \['README.md'\]. Looked for tokenizer.tok"):
            tokjax.load_tokenizer(tmp_path)

    def test_invalid_paths(self, tmp_path):
        with pytest.raises(ArgumentError, match="expected a path, got 5"):
            tokjax.load_tokenizer([5, "x"])
        for path, format_ in ((None, "auto"), (5, "gpt2"), (b"a.model", "auto")):
            message = f"path must be a path, a pair of paths, a name or a tokenizer, not {path!r}"
            with pytest.raises(ArgumentError, match=message):
                tokjax.load_tokenizer(path, format_)
        with pytest.raises(FileNotFoundError):
            tokjax.load_tokenizer(tmp_path / "none")

    @pytest.mark.parametrize(
        ("name", "contents", "message"),
        [
            ("x.bin", b"\x93NUMPY\0", r"unknown tokenizer format; the file begins with b'\\x93NUMPY"),
            (
                "x.json",
                b'{"bpe_ranks": "! 0 IQ=="}',
                r"the file begins with b'{\"bpe_ranks\".*; if it has ranks, pass them to tokjax\.",
            ),
            ("x.gz", b"\x1f\x8b\0", "is compressed with gzip; decompress it first"),
            (
                "x.json",
                b'{"a": 1}',
                r"it maps tokens to ids, which is one of the two files of a tokenizer; pass both",
            ),
            (
                "merges.txt",
                b"#version: 0.2\n",
                r"it is a list of merges, which is one of the two files of a tokenizer",
            ),
            ("x.json", b'{"model": {', "not JSON, or truncated"),
            ("x.model", b"", r"x\.model: is empty$"),
        ],
    )
    def test_invalid_files(self, tmp_path, name, contents, message):
        path = tmp_path / name
        path.write_bytes(contents)
        with pytest.raises(FormatError, match=message) as caught:
            tokjax.load_tokenizer(path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize(
        ("names", "format_", "message"),
        [
            (
                ["a", "b", "c"],
                "auto",
                "a tokenizer has one file, or a pair of files, not a list of 3: .*/a, ",
            ),
            (["vocab.json"], "gpt2", "a tokenizer has 2 in 'gpt2', not a list of 1: .*/vocab.json$"),
            (
                ["a.txt", "b.txt"],
                "auto",
                "a pair of files is a .json file that maps tokens to ids, and a list",
            ),
        ],
    )
    def test_invalid_pairs(self, tmp_path, names, format_, message):
        with pytest.raises((ArgumentError, FormatError), match=message):
            tokjax.load_tokenizer([tmp_path / name for name in names], format_)


@pytest.mark.parametrize("name", ["tekken_240718.json", "tekken.json"])
def test_usual_names(tmp_path, name):
    (tmp_path / "params.json").write_text("{}")
    (tmp_path / "tekken_notes.json").write_text("{}")
    (tmp_path / name).write_text("")
    assert tokjax.formats.detect_tokenizer_files(tmp_path)[:2] == ("tiktoken", (tmp_path / name,))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "vocab.txt", "x.tiktoken"])
def test_pointers_of_git_lfs(tmp_path, name):
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0f\nsize 499723\n")
    format_ = {"json": "huggingface", "model": "sentencepiece", "txt": "wordpiece", "tiktoken": "tiktoken"}
    for source, chosen in ((tmp_path, "auto"), (path, "auto"), (path, format_[name.rpartition(".")[2]])):
        with pytest.raises(FormatError, match="is a pointer of Git LFS, not the file itself; run 'git lfs"):
            tokjax.load_tokenizer(source, chosen)
