"""Ranks in tiktoken's format, and its encodings in memory: what is read, and what is refused."""

import base64

import pytest
import tiktoken
from hypothesis import given
from tiktoken_ext.openai_public import r50k_pat_str

import tokjax
from tests.conftest import PUBLISHED
from tests.strategies import hard_texts
from tokjax.formats.tiktoken_ranks import ENCODINGS
from tokjax.utf8 import is_encodable

FormatError, ArgumentError = tokjax.TokenizerFormatError, tokjax.InvalidArgumentError
BYTES = {bytes([i]): i for i in range(256)}
RANKS = b"".join(base64.b64encode(token) + b" %d\n" % id_ for token, id_ in BYTES.items())


class TestTiktoken:
    def test_a_published_encoding_by_its_name(self):
        for name in ("gpt2", "cl100k_base"):
            path = PUBLISHED / f"{name}.tiktoken"
            if not path.exists():
                pytest.skip("the published ranks are not beside this checkout")
            ours = tokjax.load_tokenizer(path)
            encoding = ENCODINGS[name]
            assert dict(ours.vocabulary.special) == dict(
                sorted(encoding.special_tokens.items(), key=lambda i: i[1])
            )
            assert ours.pattern == encoding.pattern
            assert tokjax.eos_id(ours) == encoding.special_tokens["<|endoftext|>"]
            assert tokjax.encode_result(ours, "hello world").tokens == ("hello", " world")

    def test_of_which_there_are_fewer_ranks(self, tmp_path):
        path = tmp_path / "cl100k_base.tiktoken"
        path.write_bytes(RANKS)
        with pytest.raises(FormatError, match="256 ranks, and the encoding 'cl100k_base' has 100256"):
            tokjax.load_tokenizer(path)
        assert tokjax.load_tokenizer(path, pattern="cl100k").pattern == "cl100k"

    def test_an_unknown_one(self, tmp_path):
        path = tmp_path / "mine.tiktoken"
        path.write_bytes(RANKS.replace(b"\n", b"\r\n") + b"\r\n")
        with pytest.raises(ArgumentError, match="'mine' is no published encoding"):
            tokjax.load_tokenizer(path)
        with pytest.raises(ArgumentError, match="encoding must be one of gpt2, .*, not 'gpt5'"):
            tokjax.load_tokenizer(path, encoding="gpt5")
        ours = tokjax.load_tokenizer(path, pattern="o200k", special_tokens={"<s>": 300}, bos_token="<s>")
        assert tokjax.bos_id(ours) == 300
        with pytest.raises(ArgumentError, match="eos_token is '</s>', which is not among"):
            tokjax.load_tokenizer(path, pattern="o200k", eos_token="</s>")

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (
                b"no base64!! 300",
                r"line 257: a token in base64, a blank and its rank are expected, not b'no b",
            ),
            (b"YWI= three", r"line 257: a token in base64"),
            (b"YWI=", r"line 257: a token in base64"),
            (b"YWI= -1", r"line 257: the token b'ab' has rank -1"),
            (b"YWI= 99999999999", r"line 257: the token b'ab' has rank 99999999999"),
            (b"YWI= 97", r"line 257: rank 97 is given to both b'a' and b'ab'"),
            (b"YQ== 300", r"line 257: the token b'a' stands twice"),
        ],
    )
    def test_lines_that_are_no_ranks(self, tmp_path, line, message):
        path = tmp_path / "x.tiktoken"
        path.write_bytes(RANKS + line + b"\n")
        with pytest.raises(FormatError, match=message) as caught:
            tokjax.load_tokenizer(path, pattern="gpt2")
        assert str(path) in str(caught.value)

    def test_a_mark_before_the_ranks(self, tmp_path):
        path = tmp_path / "x.tiktoken"
        path.write_bytes(b"\xef\xbb\xbf" + RANKS)
        assert tokjax.load_tokenizer(path, pattern="gpt2").vocabulary.ordinary == BYTES

    def test_a_missing_byte(self, tmp_path):
        path = tmp_path / "x.tiktoken"
        path.write_bytes(RANKS.partition(b"\n")[2])
        with pytest.raises(FormatError, match=r"x\.tiktoken: .* none for b'\\x00' \(1 of 256"):
            tokjax.load_tokenizer(path, pattern="gpt2")

    def test_an_encoding_in_memory(self):
        special = {"<|a|>": 300, "<|also a|>": 300}
        theirs = tiktoken.Encoding("x", pat_str=r"\S+|\s+", mergeable_ranks=BYTES, special_tokens=special)
        ours = tokjax.from_tiktoken(theirs)
        assert dict(ours.vocabulary.special) == {"<|a|>": 300}
        assert tokjax.encode(ours, "a b").tolist() == theirs.encode("a b")
        with pytest.raises(tokjax.UnsupportedTokenizerError, match=r"takes a tiktoken.Encoding, not str"):
            tokjax.from_tiktoken("gpt2")


WRITTEN_BY_TIKTOKEN = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
}


@pytest.mark.parametrize("name", WRITTEN_BY_TIKTOKEN)
@given(text=hard_texts.filter(is_encodable))
def test_patterns_as_tiktoken_writes_them(name, text):
    assert r50k_pat_str == WRITTEN_BY_TIKTOKEN["gpt2"]
    merged = BYTES | {b" t": 256, b"he": 257, b"\n\n": 258, b"  ": 259, b"'s": 260}
    theirs = tiktoken.Encoding(
        name, pat_str=WRITTEN_BY_TIKTOKEN[name], mergeable_ranks=merged, special_tokens={}
    )
    ours = tokjax.from_tiktoken(theirs)
    assert ours.pattern == name
    assert tokjax.encode(ours, text).tolist() == theirs.encode(text)
