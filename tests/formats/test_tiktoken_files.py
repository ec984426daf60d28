"""Tests of tiktoken's rank files, and of Mistral's `tekken.json`."""

import base64
import json

import pytest
import tiktoken

import tokjax
from tests.conftest import CORPUS
from tokjax.formats.tiktoken_files import ENCODINGS
from tokjax.pretokenize.patterns import PATTERNS

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError
BYTES = {bytes([i]): i for i in range(256)}
RANKS = b"".join(base64.b64encode(token) + b" %d\n" % id_ for token, id_ in BYTES.items())


class TestRankFiles:
    @pytest.mark.parametrize(
        ("name", "pattern", "roles", "ids"),
        [
            ("llama3", "llama3", "bos 128000, eos 128001", {"<|eot_id|>": 128009}),
            (
                "llama3_1",
                "llama3",
                "bos 128000, eos 128001, pad 128004",
                {"<|python_tag|>": 128010, "<|reserved_special_token_247|>": 128255},
            ),
            (
                "llama4",
                "o200k",
                "bos 200000, eos 200001, pad 200018",
                {
                    "<|header_start|>": 200005,
                    "<|eot|>": 200008,
                    "<|text_post_train_reserved_special_token_68|>": 200079,
                    "<|image_start|>": 200080,
                    "<|image|>": 200090,
                    "<|patch|>": 200092,
                    "<|vision_reserved_special_token_1047|>": 201133,
                    "<|reasoning_thinking_end|>": 201143,
                },
            ),
            ("qwen", "qwen2", "eos 151643, pad 151643", {"<|im_start|>": 151644, "<|extra_204|>": 151850}),
            ("qwen2", "qwen2", "eos 151643, pad 151643", {"<|im_end|>": 151645}),
            ("glm4", "llama3", "eos 151329, pad 151329", {"[gMASK]": 151331, "<|end_of_video|>": 151342}),
            (
                "kimi_k2",
                "kimi_k2",
                "bos 163584, eos 163585, pad 163839, unk 163838",
                {"<|im_end|>": 163586, "<|reserved_token_163589|>": 163589},
            ),
        ],
    )
    def test_published_encodings(self, name, pattern, roles, ids):
        encoding = ENCODINGS[name]
        special = encoding.special_tokens
        assert encoding.pattern == pattern
        assert special.items() >= ids.items()
        assert sorted(special.values()) == list(range(encoding.num_ranks, encoding.vocab_size))
        assert ", ".join(f"{role} {special[token]}" for role, token in encoding.roles.items()) == roles

    def test_published_encoding_with_missing_ranks(self, tmp_path):
        path = tmp_path / "cl100k_base.tiktoken"
        path.write_bytes(RANKS)
        with pytest.raises(FormatError, match="256 ranks, but the encoding 'cl100k_base' has 100256"):
            tokjax.load_tokenizer(path)
        assert tokjax.load_tokenizer(path, pattern="cl100k").pattern == "cl100k"

    def test_unknown_encoding(self, tmp_path):
        path = tmp_path / "mine.tiktoken"
        path.write_bytes(RANKS.replace(b"\n", b"\r\n") + b"\r\n")
        with pytest.raises(ArgumentError, match="'mine' is not a published encoding"):
            tokjax.load_tokenizer(path)
        with pytest.raises(ArgumentError, match="encoding must be 'gpt2', .*, 'kimi_k2' or None, not 'gpt5'"):
            tokjax.load_tokenizer(path, encoding="gpt5")
        tokenizer = tokjax.load_tokenizer(path, pattern="o200k", special_tokens={"<s>": 300}, bos_token="<s>")
        assert tokjax.bos_id(tokenizer) == 300
        with pytest.raises(ArgumentError, match="eos_token is '</s>', which is not among"):
            tokjax.load_tokenizer(path, pattern="o200k", eos_token="</s>")

    def test_empty_token_of_whisper(self, tmp_path):
        path = tmp_path / "multilingual.tiktoken"
        lines = [*(base64.b64encode(bytes([i])) + b" %d" % i for i in range(256)), b"= 256"]
        path.write_bytes(b"\n".join(lines))
        tokenizer = tokjax.load_tokenizer(path, pattern="gpt2", special_tokens={"<|endoftext|>": 257})
        encoding = tiktoken.Encoding(
            "whisper",
            pat_str=PATTERNS["gpt2"],
            mergeable_ranks=BYTES | {b"": 256},
            special_tokens={"<|endoftext|>": 257},
        )
        assert tokjax.formats.from_tiktoken(encoding) == tokenizer
        assert tokjax.encode(tokenizer, "hé").tolist() == encoding.encode("hé")
        assert tokjax.decode(tokenizer, [104, 256, 257]) == encoding.decode([104, 256, 257])

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (
                b"no base64!! 300",
                r"line 257: expected a base64 token, a space and a rank, got b'no b",
            ),
            (b"YWI= three", r"line 257: expected a base64 token"),
            (b"YWI=", r"line 257: expected a base64 token"),
            (b"YWI= -1", r"line 257: the token b'ab' has rank -1"),
            (b"YWI= 99999999999", r"line 257: the token b'ab' has rank 99999999999"),
            (b"YWI= 97", r"line 257: rank 97 is given to both b'a' and b'ab'"),
            (b"YQ== 300", r"line 257: duplicate token b'a'"),
        ],
    )
    def test_invalid_rank_lines(self, tmp_path, line, message):
        path = tmp_path / "x.tiktoken"
        path.write_bytes(RANKS + line + b"\n")
        with pytest.raises(FormatError, match=message) as caught:
            tokjax.load_tokenizer(path, pattern="gpt2")
        assert str(path) in str(caught.value)

    def test_byte_order_mark(self, tmp_path):
        path = tmp_path / "x.tiktoken"
        path.write_bytes(b"\xef\xbb\xbf" + RANKS)
        assert tokjax.load_tokenizer(path, pattern="gpt2").vocabulary.ordinary == BYTES

    def test_missing_byte(self, tmp_path):
        path = tmp_path / "x.tiktoken"
        path.write_bytes(RANKS.partition(b"\n")[2])
        with pytest.raises(FormatError, match=r"x\.tiktoken: .* has no b'\\x00' \(1 of 256"):
            tokjax.load_tokenizer(path, pattern="gpt2")


def make_tekken(num_special=8, extra=(b"th", b"the", b"ab"), **config):
    """Makes the contents of a `tekken.json`: all bytes, some tokens, and one token that is not counted."""
    tokens = [*BYTES, *extra]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    names = ["<unk>", "<s>", "</s>", "<pad>", "[INST]"]
    special = [{"rank": id_, "token_str": name, "is_control": True} for id_, name in enumerate(names)]
    sizes = {"default_num_special_tokens": num_special, "default_vocab_size": num_special + len(tokens) - 1}
    config = {"pattern": PATTERNS["tekken"], "version": "v11", **sizes, **config}
    return {"config": config, "vocab": vocab, "special_tokens": special}


class TestJsonFiles:
    def load(self, tmp_path, contents, name="tekken.json", **options):
        (tmp_path / name).write_text(json.dumps(contents))
        return tokjax.load_tokenizer(tmp_path / name, **options)

    def test_tekken(self, tmp_path):
        tokenizer = self.load(tmp_path, make_tekken())
        special = {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "[INST]": 4}
        assert dict(tokenizer.vocabulary.special) == special | {f"<SPECIAL_{i}>": i for i in (5, 6, 7)}
        roles = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
        assert dict(tokenizer.vocabulary.roles) == roles
        assert tokenizer.pattern == "tekken"
        assert tokjax.vocab_size(tokenizer) == 8 + 258
        assert tokjax.formats.detect_tokenizer_files(tmp_path).files == (tmp_path / "tekken.json",)
        assert tokjax.load_tokenizer(tmp_path) == tokenizer
        ranks = {token: id_ - 8 for token, id_ in tokenizer.vocabulary.ordinary.items()}
        encoding = tiktoken.Encoding(
            "x", pat_str=PATTERNS["tekken"], mergeable_ranks=ranks, special_tokens={}
        )
        for text in CORPUS:
            assert tokjax.encode(tokenizer, text).tolist() == [id_ + 8 for id_ in encoding.encode(text)]
        with pytest.raises(ArgumentError, match="contains a pattern and special tokens; leave out encoding="):
            tokjax.load_tokenizer(tmp_path, encoding="o200k_base")
        other = self.load(tmp_path, make_tekken(pattern=r"\w+|\W"), pad_token="[INST]")
        assert (other.pattern, tokjax.pad_id(other)) == (r"\w+|\W", 4)

    def test_tekken_without_special_tokens(self, tmp_path):
        contents = make_tekken(num_special=25, version="v3") | {"special_tokens": None}
        special = dict(self.load(tmp_path, contents).vocabulary.special)
        assert list(special)[:3] + list(special)[18:21] == [
            *("<unk>", "<s>", "</s>", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "<SPECIAL_20>")
        ]

    @pytest.mark.parametrize(
        ("contents", "message"),
        [
            (
                make_tekken(default_vocab_size=300),
                "default_vocab_size=300 and default_num_special_tokens=8",
            ),
            (make_tekken(default_vocab_size="9"), "its config has default_vocab_size='9'"),
            (make_tekken(pattern=7), "the split pattern is 7; expected a regular expression"),
            (make_tekken(pattern="("), "is not a regular expression"),
            (make_tekken(extra=(b"th", b"th", b"x")), "token 257 of 'vocab' is a duplicate: b'th'"),
            (
                make_tekken() | {"vocab": make_tekken()["vocab"][1:]},
                "token 0 of 'vocab' must have the rank 0",
            ),
            (make_tekken() | {"special_tokens": 3}, "'special_tokens' is 3"),
            (
                make_tekken() | {"special_tokens": [{"rank": 0, "token_str": ["a"]}]},
                "is not a string, or is a duplicate",
            ),
            (make_tekken() | {"special_tokens": [{"rank": "0", "token_str": "a"}]}, "the id of 'a' is '0'"),
            ({"a": [1]}, "a JSON object without ranks: .* its keys are \\['a'\\]"),
        ],
    )
    def test_invalid_json_files(self, tmp_path, contents, message):
        with pytest.raises(FormatError, match=message):
            self.load(tmp_path, contents, format="tiktoken")
