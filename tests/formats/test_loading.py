"""Tests of `load_tokenizer`: formats, options, SentencePiece models, and paths that are not files."""

import os

import pytest

import tokjax

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError


def test_unknown_formats_and_options(all_files):
    with pytest.raises(ArgumentError, match=r"format must be 'auto', 'tokjax', .*, not 'bpe'"):
        tokjax.load_tokenizer(all_files, "bpe")
    with pytest.raises(
        ArgumentError, match=r"'tokjax' \(.*\) has no option 'pattern'; it has bos_token, cls"
    ):
        tokjax.load_tokenizer(all_files, pattern="gpt2")
    with pytest.raises(ArgumentError, match=r"the format 'tokjax' \(.*\), not 'wordpiece'; pass"):
        tokjax.load_tokenizer(all_files, "wordpiece")


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("vocab.txt", {"special_tokens": "[A]"}, r"special_tokens must be a list of names, not '\[A\]'"),
        ("vocab.txt", {"lowercase": "no"}, "lowercase must be True, False or None, not 'no'"),
        ("vocab.txt", {"cleanup": False}, r"has no option 'cleanup'; .*; call tokjax\.wordpiece with it$"),
        ("vocab.json", {"pattern": 3}, "pattern must be a string or None, not 3"),
        ("vocab.json", {"eos_token": 5}, "eos_token must be a string or None, not 5"),
        ("vocab.json", {"normalizer": None}, r"'normalizer'; .*; call tokjax\.byte_level_bpe with it$"),
        ("ranks.tiktoken", {"special_tokens": ["<s>"]}, "special_tokens must be a dict of names to ids, or"),
    ],
)
def test_invalid_options(all_files, file, options, message):
    with pytest.raises(ArgumentError, match=message):
        tokjax.load_tokenizer(all_files / file, **options)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_irregular_file(all_files, tmp_path, make):
    make(tmp_path / "vocab.json")
    (tmp_path / "merges.txt").write_bytes((all_files / "merges.txt").read_bytes())
    with pytest.raises(FormatError, match=r"vocab\.json: is not a regular file"):
        tokjax.load_tokenizer([tmp_path / "vocab.json", tmp_path / "merges.txt"])


def test_file_above_the_size_limit(tmp_path):
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate(1 << 30)
    with pytest.raises(FormatError, match=r"has 1,073,741,824 bytes; the limit is 536,870,912"):
        tokjax.load_tokenizer(path)


class TestObjects:
    """Tokenizer objects instead of paths. `tests/test_quick.py` tests those of other libraries."""

    def test_tokenizer_of_tokjax(self, tokenizer):
        assert tokjax.load_tokenizer(tokenizer) is tokenizer
        with pytest.raises(
            ArgumentError,
            match="the conversion of ByteLevelBPE objects has no option 'eos_token'; it has none",
        ):
            tokjax.load_tokenizer(tokenizer, eos_token="<|pad|>")
        with pytest.raises(ArgumentError, match="format='gpt2' is for paths, not for ByteLevelBPE"):
            tokjax.load_tokenizer(tokenizer, "gpt2")

    def test_options_of_a_conversion(self):
        tiktoken = pytest.importorskip("tiktoken")
        ranks, special = {bytes([i]): i for i in range(256)}, {"<a>": 256, "<b>": 257}
        encoding = tiktoken.Encoding("x", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens=special)
        assert tokjax.eos_id(tokjax.load_tokenizer(encoding, eos_token="<b>")) == 257
        with pytest.raises(
            ArgumentError, match="conversion of Encoding objects has no option 'unk_token'; it has bos"
        ):
            tokjax.load_tokenizer(encoding, unk_token="<b>")
