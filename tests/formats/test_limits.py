"""Tests of `tokjax.limits`: files that cost too much time or memory are rejected."""

import base64
import json
import pickle
import struct
from itertools import product

import pytest
from tokenizers import Tokenizer

import tokjax
from tests.support.definition_strategies import BERT, character_map
from tokjax.formats.huggingface.definition_checks import compute_steps_growth
from tokjax.pretokenize.special_tokens import check_comparisons

VOCAB = {character: i for i, character in enumerate("abcdefghijklmnopqrstuvwxyz ▁")}
TEMPLATE = {"type": "TemplateProcessing", "pair": [], "special_tokens": {"a": {"id": "a", "ids": [0] * 2000}}}


def make_replace(pattern, content):
    kind = "Regex" if pattern.startswith("/") else "String"
    return {"type": "Replace", "pattern": {kind: pattern.removeprefix("/")}, "content": content}


def write_tokenizer(path, **parts):
    model = {"type": "BPE", "vocab": VOCAB, "merges": []}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model, **parts}))
    return path


def make_added_token(index, content, *, special):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": len(VOCAB) + index, "content": content, "special": special, **flags}


def make_sequence(steps):
    return {"type": "Sequence", "normalizers": steps}


def make_charsmap(longest):
    return struct.pack("<I", 4) + bytes(4) + b"\0".join([b"a", b"b" * longest, b""])


def make_precompiled(replacement):
    charsmap = struct.pack("<I", 4) + bytes(4) + b"a\0" + replacement.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}


def encode_field(number, value):
    def encode_varint(value):
        return bytes([value & 127 | 128]) + encode_varint(value >> 7) if value > 127 else bytes([value])

    if isinstance(value, int):
        return encode_varint(number << 3) + encode_varint(value)
    return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value


def make_sentencepiece_model(num_pieces=10, longest=1, form="p{}".format):
    pieces = [encode_field(1, encode_field(1, b"<unk>") + encode_field(3, 2))]
    forms = [form(i).encode() for i in range(num_pieces - 1)]
    pieces += [encode_field(1, encode_field(1, piece) + b"\x15" + struct.pack("<f", -1.0)) for piece in forms]
    normalizer = encode_field(1, b"identity") + (
        encode_field(2, make_charsmap(longest)) if longest > 1 else b""
    )
    return b"".join(pieces) + encode_field(2, encode_field(3, 1)) + encode_field(3, normalizer)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"normalizer": make_sequence([make_replace("a", "aa")] * 20)},
            "normalizer can make 1,048,576 characters",
        ),
        # The library reads lists and objects of an unknown type as steps.
        ({"normalizer": make_sequence([make_replace("a", "aa") | {"type": "x"}] * 20)}, "can make 1,048,576"),
        ({"decoder": {"type": "Sequence", "decoders": [[{"String": "a"}, "aa"]] * 20}}, "can make 1,048,576"),
        ({"normalizer": make_replace("b", "c" * 5000)}, "normalizer can make 5,000 characters of one"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 5000}}, "make 5,000 characters of one"),
        (
            {"normalizer": make_sequence([make_replace("/(?=a)", "a")] * 12)},
            "can make 4,096 characters of one",
        ),
        ({"normalizer": make_sequence([{"type": "ByteLevel"}] * 6)}, "can make 4,096 characters of one"),
        ({"normalizer": make_sequence([{"type": "Lowercase"}] * 1025)}, "normalizer has 1,025 steps"),
        (
            {"decoder": {"type": "Sequence", "decoders": [make_replace("a", "aa")] * 20}},
            "its decoder can make",
        ),
        (
            {"post_processor": {**TEMPLATE, "single": [{"Sequence": {"id": "A", "type_id": 0}}]}},
            "2,000 tokens",
        ),
        (
            {"normalizer": make_precompiled("b" * 5000)},
            "make 5,000 characters of one",
        ),
    ],
)
def test_text_growth_is_limited(tmp_path, parts, message):
    path = write_tokenizer(tmp_path / "tokenizer.json", **parts)
    with pytest.raises(
        tokjax.errors.TokenizerFormatError,
        match=rf"{message}.*; the limit is 1,024; .* tokjax\.limits\(text_growth=\.\.\.\)",
    ):
        tokjax.load_tokenizer(path)


def test_limit_can_be_raised(tmp_path):
    path = write_tokenizer(
        tmp_path / "tokenizer.json", normalizer=make_sequence([make_replace("a", "aa")] * 11)
    )
    with pytest.raises(tokjax.errors.TokenizerFormatError, match="2,048 characters"):
        tokjax.load_tokenizer(path)
    with tokjax.limits(text_growth=2048):
        tokenizer = tokjax.load_tokenizer(path)
    assert len(tokjax.encode(tokenizer, "ab")) == 2049
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
    with pytest.raises(tokjax.errors.TokenizerFormatError):
        tokjax.load_tokenizer(path)


@pytest.mark.parametrize(
    ("steps", "growth"),
    [
        ([], 1),
        ([make_replace("½", "1/2"), make_replace("``", '"'), make_replace("ab", "cccc")], 6),
        ([make_replace("/ {2,}", "▁▁"), make_replace("/[\\n\\r]+", " "), make_replace("/\\p{P}", "")], 2),
        ([make_replace("/a*", "-"), make_replace("-", "--")], 4),  # inserts one before each character
        ([{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}], 18),
        ([{"type": "Prepend", "prepend": "▁▁"}, make_replace("▁", "  ")], 4),
        ([{"type": "NFKD"}, BERT, {"type": "NFKC"}], 18),
        ([{"type": "NFKD"}, BERT, BERT], 20),
        ([{"type": "NFC"}, make_precompiled("ﷺ"), BERT], 216),
    ],
)
def test_compute_steps_growth(steps, growth):
    assert compute_steps_growth(steps) == growth


def list_unicode_steps(longest):
    kinds = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip")
    steps = [BERT, BERT | dict.fromkeys(("clean_text", "strip_accents", "lowercase"), False)]
    steps += [{"type": "Precompiled", "precompiled_charsmap": character_map()}]
    steps += [{"type": kind, "strip_left": True, "strip_right": True} for kind in kinds]
    return [row for length in range(1, longest + 1) for row in product(steps, repeat=length)]


def make_normalizer(steps):
    definition = {"model": {"vocab": {}, "merges": []}, "normalizer": make_sequence(steps)}
    return Tokenizer.from_str(json.dumps(definition)).normalizer.normalize_str


def check_character_growth(characters, longest):
    for steps in list_unicode_steps(longest):
        normalize, growth = make_normalizer(steps), compute_steps_growth(steps)
        assert max(len(normalize(character)) for character in characters) <= growth, steps


def test_unicode_steps_stay_below_the_bound():
    """Checks the characters with the largest growth."""
    check_character_growth("aﷺ㍿㈱㍘İᾯ가豈㋿𝆺𝅥𝅯日\u0301\x00 ", 2)


@pytest.mark.slow
def test_all_characters_stay_below_the_bound():
    all_characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    steps = [make_normalizer([*row]) for row in list_unicode_steps(1)]
    # Of the characters that change in the same way, one is enough.
    representatives = {}
    for character in all_characters:
        change = tuple(normalize(character).replace(character, "x") for normalize in steps)
        representatives[change] = character
    check_character_growth(representatives.values(), 3)


def test_special_tokens_with_too_many_comparisons(tmp_path):
    names = ["a" * i + "b" for i in range(2, 200)]
    added = [make_added_token(i, name, special=True) for i, name in enumerate(names)]
    path = write_tokenizer(tmp_path / "tokenizer.json", added_tokens=added)
    message = r"up to 12,\d+ characters are compared at each position .*limits\(special_token_comparisons="
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message):
        tokjax.load_tokenizer(path)
    tokenizer = tokjax.byte_level(special_tokens=names)
    saved = tokjax.save_tokenizer(tokenizer, tmp_path / "own.json")
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message):
        tokjax.load_tokenizer(saved)
    with tokjax.limits(special_token_comparisons=20_000):
        assert tokjax.load_tokenizer(saved) == tokenizer
    branches = [make_added_token(i, f"<{chr(0x4E00 + i)}>", special=True) for i in range(5000)]
    with pytest.raises(tokjax.errors.TokenizerFormatError, match="up to 5,002 characters are compared"):
        tokjax.load_tokenizer(write_tokenizer(path, added_tokens=branches))
    space_runs = [make_added_token(i, " " * (i + 2), special=False) for i in range(80)]
    tokjax.load_tokenizer(write_tokenizer(path, added_tokens=space_runs))


def make_unigram(pieces, **model):
    return {"unk_id": 0, "vocab": [["<unk>", 0.0], *([piece, -1.0] for piece in pieces)], **model}


@pytest.mark.parametrize("kind", [{"type": "Unigram"}, {}])
def test_unigram_pieces_with_too_many_comparisons(tmp_path, kind):
    path = tmp_path / "tokenizer.json"
    message = (
        r"tokenizer.json: up to 20,100 characters are compared at each position of a text: too many pieces "
        r"share a prefix, or are too long \(the longest has 200 characters\); the limit is 20,000; .*"
        r"tokjax\.limits\(piece_comparisons=\.\.\.\)"
    )
    write_tokenizer(path, model=make_unigram(["a" * i for i in range(1, 201)], **kind))
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message):
        tokjax.load_tokenizer(path)
    with tokjax.limits(piece_comparisons=20_100):
        tokenizer = tokjax.load_tokenizer(path)
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
    runs = [character * i for character in "▁-_=. " for i in range(1, 100)]
    assert tokjax.load_tokenizer(write_tokenizer(path, model=make_unigram([*runs, "x" * 5000], **kind)))
    write_tokenizer(path, model=make_unigram(["x" * 20_001], **kind))
    with pytest.raises(tokjax.errors.TokenizerFormatError, match="up to 20,001 characters are compared"):
        tokjax.load_tokenizer(path)


def test_wordpiece_with_long_words(tmp_path):
    path = tmp_path / "tokenizer.json"
    model = {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "vocab": VOCAB}
    write_tokenizer(path, model={**model, "max_input_chars_per_word": 200})
    assert isinstance(tokjax.load_tokenizer(path), tokjax.formats.HuggingFaceTokenizer)
    write_tokenizer(path, model={**model, "max_input_chars_per_word": 10**9})
    with pytest.raises(
        tokjax.errors.TokenizerFormatError, match="position of a text: max_input_chars_per_word is 1,000,"
    ):
        tokjax.load_tokenizer(path)


def test_sentencepiece_models(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(make_sentencepiece_model(40))
    with tokjax.limits(vocab_size=40):
        tokenizer = tokjax.load_tokenizer(path)
    message = r"tokenizer.model: has more than 39 pieces; the limit is 39; .*limits\(vocab_size=\.\.\.\)"
    with tokjax.limits(vocab_size=39):
        with pytest.raises(tokjax.errors.TokenizerFormatError, match=message):
            tokjax.load_tokenizer(path)
        assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
        with (
            tokjax.limits(file_bytes=100),
            pytest.raises(tokjax.errors.TokenizerFormatError, match="limit is 100;"),
        ):
            tokjax.load_tokenizer(path)
    path.write_bytes(make_sentencepiece_model(201, form=lambda i: "a" * (i + 1)))
    with pytest.raises(
        tokjax.errors.TokenizerFormatError, match="tokenizer.model: up to 20,100 characters are comp"
    ):
        tokjax.load_tokenizer(path)
    path.write_bytes(make_sentencepiece_model(longest=5000))
    with pytest.raises(
        tokjax.errors.TokenizerFormatError, match="model: its normalizer can make 5,000 characters"
    ):
        tokjax.load_tokenizer(path)


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\na\n"),
        ("x.tiktoken", "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))),
        ("tokenizer.json", None),
    ],
)
def test_vocab_size_of_other_formats(tmp_path, name, contents):
    path = tmp_path / name
    write_tokenizer(path) if contents is None else path.write_text(contents)
    with (
        tokjax.limits(vocab_size=5),
        pytest.raises(tokjax.errors.TokenizerFormatError, match=r"has \d+ tokens; the limit is 5;"),
    ):
        tokjax.load_tokenizer(path, **({"pattern": "gpt2"} if name == "x.tiktoken" else {}))


def test_pattern_with_too_much_backtracking(tmp_path, capfd):
    pattern = {"type": "Split", "pattern": {"Regex": "(a+)+(?<=b)c"}, "behavior": "Isolated", "invert": False}
    tokenizer = tokjax.load_tokenizer(write_tokenizer(tmp_path / "tokenizer.json", pre_tokenizer=pattern))
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="tokenizers library can't encode these texts: Onig"
    ):
        tokjax.encode_result(tokenizer, "a" * 40)
    capfd.readouterr()  # discards the traceback that the library prints


def test_json_values(tmp_path):
    path = write_tokenizer(tmp_path / "tokenizer.json")
    count = sum(map(path.read_text().count, "[{,"))
    with tokjax.limits(json_values=count):
        tokjax.load_tokenizer(path)
    with (
        tokjax.limits(json_values=count - 1),
        pytest.raises(tokjax.errors.TokenizerFormatError, match=rf"has {count} .*limits\(json_values="),
    ):
        tokjax.load_tokenizer(path)


def test_invalid_limits():
    with (
        pytest.raises(
            tokjax.errors.InvalidArgumentError, match="there is no limit 'vocab'; the limits are file_bytes"
        ),
        tokjax.limits(vocab=1),
    ):
        pass
    with (
        pytest.raises(tokjax.errors.InvalidArgumentError, match="vocab_size must be at least 1, not 0"),
        tokjax.limits(vocab_size=0),
    ):
        pass


@pytest.mark.parametrize(
    "names",
    [
        [f"<unused{i}>" for i in range(6242)] + [c * i for c in "\n\t▁" for i in range(2, 32)],  # Gemma
        [f"<|{second * 0.02:.2f}|>" for second in range(1501)],  # Whisper
        [f"<|visual token {i:06}|>" for i in range(32768)],  # Emu3
    ],
)
def test_published_special_tokens_are_below_a_tenth_of_the_limit(names):
    with tokjax.limits(special_token_comparisons=100):
        check_comparisons(names)
