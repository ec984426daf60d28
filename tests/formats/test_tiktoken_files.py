"""Ranks in tiktoken's format, and its encodings in memory: what is read, and what is refused."""

import base64
import json

import pytest
import tiktoken
from hypothesis import given
from tiktoken_ext.openai_public import r50k_pat_str

import tokjax
from tests.conftest import PUBLISHED
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable
from tokjax.formats.tiktoken_files import ENCODINGS, parse_json_ranks
from tokjax.pretokenize.patterns import PATTERNS

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError
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

    def test_unknown_encoding(self, tmp_path):
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
    def test_invalid_rank_lines(self, tmp_path, line, message):
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
        ours = tokjax.formats.from_tiktoken(theirs)
        assert dict(ours.vocabulary.special) == {"<|a|>": 300}
        assert tokjax.encode(ours, "a b").tolist() == theirs.encode("a b")
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError, match=r"takes a tiktoken.Encoding, not str"
        ):
            tokjax.formats.from_tiktoken("gpt2")


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
    ours = tokjax.formats.from_tiktoken(theirs)
    assert ours.pattern == name
    assert tokjax.encode(ours, text).tolist() == theirs.encode(text)


def make_tekken(num_special=8, extra=(b"th", b"the", b"ab"), **config):
    """A `make_tekken.json`: all bytes, and a few tokens more than it counts."""
    tokens = [*BYTES, *extra]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    names = ["<unk>", "<s>", "</s>", "<pad>", "[INST]"]
    special = [{"rank": id_, "token_str": name, "is_control": True} for id_, name in enumerate(names)]
    sizes = {"default_num_special_tokens": num_special, "default_vocab_size": num_special + len(tokens) - 1}
    described = {"pattern": PATTERNS["tekken"], "version": "v11", **sizes, **config}
    return {"config": described, "vocab": vocab, "special_tokens": special}


def compress_ranks(tokens=(*BYTES, b"th", b"the"), first=2, **changes):
    """As `claude.json`."""
    encoded = [base64.b64encode(token).decode() for token in tokens]
    lines = [f"! {first} {' '.join(encoded[:100])}", f"! {first + 100} {' '.join(encoded[100:])}"]
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    special = {"<EOT>": 0, "<META>": 1}
    return {"pat_str": pattern, "special_tokens": special, "bpe_ranks": "\n".join(lines), **changes}


@pytest.fixture(scope="module")
def load_both_tekken():
    contents = make_tekken()
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in contents["vocab"][:258]}
    theirs = tiktoken.Encoding(
        "tekken", pat_str=contents["config"]["pattern"], mergeable_ranks=ranks, special_tokens={}
    )
    table = parse_json_ranks(contents, "it")
    return tokjax.byte_level_bpe(table.ranks, pattern=table.pattern), theirs


class TestJson:
    def load(self, tmp_path, contents, name="tekken.json", **options):
        (tmp_path / name).write_text(json.dumps(contents))
        return tokjax.load_tokenizer(tmp_path / name, **options)

    def test_tekken(self, tmp_path):
        ours = self.load(tmp_path, make_tekken())
        special = {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "[INST]": 4}
        assert dict(ours.vocabulary.special) == special | {f"<SPECIAL_{i}>": i for i in (5, 6, 7)}
        assert [tokjax.bos_id(ours), tokjax.eos_id(ours), tokjax.pad_id(ours), tokjax.unk_id(ours)] == [
            1,
            2,
            3,
            0,
        ]
        assert ours.pattern == "tekken"
        assert tokjax.vocab_size(ours) == 8 + 258
        assert tokjax.formats.detect_tokenizer_files(tmp_path).files == (tmp_path / "tekken.json",)
        assert tokjax.load_tokenizer(tmp_path) == ours
        other = self.load(tmp_path, make_tekken(pattern=r"\w+|\W"), pad_token="[INST]")
        assert (other.pattern, tokjax.pad_id(other)) == (r"\w+|\W", 4)

    def test_tekken_without_special_tokens(self, tmp_path):
        contents = make_tekken(num_special=25, version="v3") | {"special_tokens": None}
        special = dict(self.load(tmp_path, contents).vocabulary.special)
        assert list(special)[:3] + list(special)[18:21] == [
            *("<unk>", "<s>", "</s>", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "<SPECIAL_20>")
        ]
        contents["config"]["version"] = "v11"
        with pytest.raises(FormatError, match="lists no special tokens, and its version is 'v11'"):
            self.load(tmp_path, contents)

    @given(text=hard_texts)
    def test_tekken_gives_the_ids_of_tiktoken(self, load_both_tekken, text):
        ours, theirs = load_both_tekken
        if isinstance(text, str) and is_encodable(text):
            assert tokjax.encode(ours, text).tolist() == [id_ + 8 for id_ in theirs.encode(text)]

    def test_compressed_ranks(self, tmp_path):
        ours = self.load(tmp_path, compress_ranks(), "claude.json", eos_token="<EOT>")
        assert (ours.pattern, dict(ours.vocabulary.special)) == ("gpt2", {"<EOT>": 0, "<META>": 1})
        assert tokjax.encode(ours, "the!").tolist() == [259, 35]
        assert tokjax.eos_id(ours) == 0
        assert tokjax.formats.detect_tokenizer_files(tmp_path).format == "tiktoken"
        with pytest.raises(ArgumentError, match="holds a pattern and special tokens; leave encoding= out"):
            tokjax.load_tokenizer(tmp_path / "claude.json", encoding="gpt2")

    @pytest.mark.parametrize(
        ("contents", "message"),
        [
            (
                make_tekken(default_vocab_size=300),
                "default_vocab_size=300 and default_num_special_tokens=8",
            ),
            (
                make_tekken(num_special=4),
                "=4, and it lists 259 tokens and 5 special ones",
            ),
            (make_tekken(default_vocab_size="9"), "its config has default_vocab_size='9'"),
            (
                make_tekken(default_num_special_tokens=1 << 40),
                "has default_num_special_tokens=1099511627776",
            ),
            (make_tekken(pattern=7), "the split pattern is 7; an expression"),
            (make_tekken(pattern="("), "neither a name"),
            (make_tekken(extra=(b"th", b"th", b"x")), "1 tokens are there twice"),
            (make_tekken() | {"vocab": make_tekken()["vocab"][1:]}, "token 0 of 'vocab' has not the rank 0"),
            (make_tekken() | {"special_tokens": 3}, "'special_tokens' is 3"),
            (
                make_tekken() | {"special_tokens": [{"rank": 0, "token_str": ["a"]}]},
                "is no name, or is listed twice",
            ),
            (make_tekken() | {"special_tokens": [{"rank": "0", "token_str": "a"}]}, "the id of 'a' is '0'"),
            (
                compress_ranks(bpe_ranks="? 5 YQ=="),
                "line 1 of 'bpe_ranks': '! OFFSET TOKEN ...' is exp",
            ),
            (
                compress_ranks(bpe_ranks="! 5 YQ== ??"),
                r"'bpe_ranks': a token in base64 is expected, not '\?",
            ),
            (compress_ranks(bpe_ranks="! 5 YQ=="), "255 of 256 missing"),
            (compress_ranks(tokens=[*BYTES, b"a"]), "1 tokens are there twice"),
            (compress_ranks(first=1), "id 1 is given to both"),
            (compress_ranks(special_tokens=["a"]), "'special_tokens' is \\['a'\\]; names and ids"),
            (compress_ranks(pat_str=None), "the split pattern is None"),
            ({"a": [1]}, "a JSON object without ranks: .* its keys are \\['a'\\]"),
        ],
    )
    def test_invalid_tekken_files(self, tmp_path, contents, message):
        with pytest.raises(FormatError, match=message):
            self.load(tmp_path, contents, format="tiktoken")
