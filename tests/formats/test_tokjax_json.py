"""Tests of tokjax's own tokenizer format."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, strategies as st

import tokjax
from tokjax._util.atomic_files import compute_json_checksum

BYTES = {bytes([i]): i for i in range(256)}


@pytest.fixture
def saved_path(tokenizer, tmp_path):
    return tokjax.save_tokenizer(tokenizer, tmp_path / "tokenizer.json")


@given(
    tokens=st.sets(st.binary(min_size=2, max_size=5), max_size=8),
    special=st.sets(st.text(min_size=1, max_size=8).filter(lambda s: s.isprintable()), max_size=3),
    pattern=st.sampled_from(["gpt2", "o200k", "qwen2", r"\w+|\W"]),
)
def test_round_trip(tmp_path_factory, tokens, special, pattern):
    ranks = BYTES | {token: 256 + i for i, token in enumerate(sorted(tokens))}
    names = {name: 1000 + 7 * i for i, name in enumerate(sorted(special))}
    roles = {"eos_token": next(iter(names), None), "pad_token": next(iter(names), None)}
    tokenizer = tokjax.byte_level_bpe(ranks, pattern=pattern, special_tokens=names, **roles)
    path = tmp_path_factory.mktemp("formats") / "tokenizer.json"
    assert tokjax.save_tokenizer(tokenizer, path) == path
    again = tokjax.load_tokenizer(path)
    assert again == tokenizer
    assert tokjax.fingerprint(again) == tokjax.fingerprint(tokenizer)


@given(
    tokens=st.sets(st.text(min_size=1, max_size=5).filter(lambda s: s.isprintable()), max_size=8),
    steps=st.tuples(*[st.booleans()] * 4),
    prefix=st.sampled_from(["##", "", "é"]),
    max_characters=st.integers(1, 200),
    splitter=st.sampled_from(["whitespace", "bert"]),
)
def test_round_trip_of_word_vocabularies(tmp_path_factory, tokens, steps, prefix, max_characters, splitter):
    special_names = ["[UNK]", "[SEP]", "<x>"]
    vocabulary = [*special_names, *sorted(tokens.difference(special_names))]
    names = ("lowercase", "strip_accents", "clean_text", "handle_chinese_chars")
    options = dict(zip(names, steps, strict=True))
    path = tmp_path_factory.mktemp("formats")
    for tokenizer in (
        tokjax.wordpiece(
            {token: 3 * i for i, token in enumerate(vocabulary)},
            special_tokens=["<x>"],
            continuing_prefix=prefix,
            max_word_characters=max_characters,
            **options,
        ),
        tokjax.word_level(vocabulary, splitter=splitter, lowercase=steps[0], eos_token="[SEP]"),
    ):
        tokjax.save_tokenizer(tokenizer, path)
        again = tokjax.load_tokenizer(path)
        assert again == tokenizer
        assert type(again) is type(tokenizer)
        assert tokjax.fingerprint(again) == tokjax.fingerprint(tokenizer)


def test_fields_of_byte_level_bpe(saved_path, tokenizer):
    contents = json.loads(saved_path.read_text("ascii"))
    assert contents["format"] == "tokjax-tokenizer"
    assert contents["version"] == 2
    assert contents["pattern"] == "gpt2"
    assert {base64.b64decode(t): i for t, i in contents["ranks"]} == dict(tokenizer.vocabulary.ordinary)
    assert contents["special_tokens"]["<|endoftext|>"] == contents["ranks"][256][1] - 3 == 256
    assert contents["eos_token"] == "<|endoftext|>"


def test_file_name_in_a_directory(tokenizer, tmp_path):
    path = tokjax.save_tokenizer(tokenizer, tmp_path)
    assert path == tmp_path / "tokenizer.tokjax.json"
    assert tokjax.load_tokenizer(tmp_path) == tokenizer


def test_saving_again_replaces_atomically(saved_path, plain_tokenizer):
    tokjax.save_tokenizer(plain_tokenizer, saved_path)
    assert tokjax.load_tokenizer(saved_path) == plain_tokenizer
    assert [p.name for p in saved_path.parent.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(pattern="cl100k"), "altered or damaged"),
        (lambda c: c["ranks"].pop(), "altered or damaged"),
        (lambda c: c.pop("checksum"), "altered or damaged"),
        (lambda c: c.update(version=1), "version 1 of the format; this version of tokjax reads version 2"),
        (lambda c: c.update(format="tokenizers"), "not a tokjax tokenizer: its 'format' is 'tokenizers'"),
    ],
)
def test_altered_file(saved_path, change, message):
    contents = json.loads(saved_path.read_text())
    change(contents)
    saved_path.write_text(json.dumps(contents))
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message) as error:
        tokjax.load_tokenizer(saved_path)
    assert str(saved_path) in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("pattern"), "the field 'pattern' is missing"),
        (lambda c: c.update(model="word2vec"), "unknown model 'word2vec'"),
        (lambda c: c.update(model=[1]), "unknown model"),
        (lambda c: c.update(ranks=[["!!", 0]]), "values are invalid"),
        (lambda c: c.update(ranks=[["AA==", 0]]), "every single byte"),
        (lambda c: c["ranks"].append(["AA==", 999]), "duplicate token in 'ranks'"),
        (lambda c: c.update(ranks=5), "values are invalid"),
        (lambda c: c.update(special_tokens=[1]), "values are invalid"),
        (lambda c: c.update(special_tokens={"<x>": 1.5}), "ids are integers"),
        (lambda c: c.update(pattern=7), "pattern must be"),
        (lambda c: c.update(normalizer="nfkc"), "normalizer must be"),
        (lambda c: c.update(normalizer="auto"), "normalizer must be"),
        (lambda c: c.update(eos_token="<nope>"), "not among the special tokens"),
    ],
)
def test_invalid_values_with_a_valid_checksum(saved_path, change, message):
    contents = json.loads(saved_path.read_text())
    contents.pop("checksum")
    change(contents)
    contents["checksum"] = compute_json_checksum(contents)
    saved_path.write_text(json.dumps(contents))
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message):
        tokjax.load_tokenizer(saved_path)


TOKENS = ["[UNK]", "[SEP]", "a", "##b"]
MAKERS = {
    "wordpiece": lambda: tokjax.wordpiece(TOKENS),
    "word_level": lambda: tokjax.word_level(TOKENS),
}


def test_fields_of_wordpiece(tmp_path):
    contents = json.loads(tokjax.save_tokenizer(MAKERS["wordpiece"](), tmp_path).read_text("ascii"))
    contents.pop("checksum")
    assert contents == {
        "format": "tokjax-tokenizer",
        "version": 2,
        "model": "wordpiece",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": True,
        "lowercase": True,
        "continuing_prefix": "##",
        "max_word_characters": 100,
        "cleanup": True,
        "tokens": [["a", 2], ["##b", 3]],
        "special_tokens": {"[UNK]": 0, "[SEP]": 1},
        "bos_token": None,
        "eos_token": "[SEP]",
        "pad_token": None,
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
    }


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        ("wordpiece", lambda c: c.pop("tokens"), "the field 'tokens' is missing"),
        ("wordpiece", lambda c: c.pop("lowercase"), "the field 'lowercase' is missing"),
        ("wordpiece", lambda c: c["tokens"].append(["a", 9]), "duplicate token in 'tokens'"),
        ("wordpiece", lambda c: c["tokens"].append(["c", 2]), "id 2 is given to both"),
        ("wordpiece", lambda c: c["tokens"].append(["c", "3"]), "ids are integers"),
        ("wordpiece", lambda c: c["tokens"].append([5, 9]), "values are invalid"),
        ("wordpiece", lambda c: c["tokens"].append(["\ud800", 9]), "values are invalid"),
        ("wordpiece", lambda c: c.update(tokens=5), "values are invalid"),
        ("wordpiece", lambda c: c.update(clean_text="yes"), "clean_text must be True or False, not 'yes'"),
        ("wordpiece", lambda c: c.update(strip_accents=None), "strip_accents must be True or False"),
        ("wordpiece", lambda c: c.update(continuing_prefix=None), "continuing_prefix must be a string"),
        ("wordpiece", lambda c: c.update(max_word_characters=0), "max_word_characters must be at least 1"),
        ("wordpiece", lambda c: c.update(unk_token=None), "needs the tokenizer's unk token"),
        ("wordpiece", lambda c: c.update(eos_token="<s>"), "not among the special tokens"),
        ("word_level", lambda c: c.pop("splitter"), "the field 'splitter' is missing"),
        ("word_level", lambda c: c.update(splitter="gpt2"), "splitter must be 'whitespace' or 'bert'"),
        ("word_level", lambda c: c.update(splitter=["bert"]), "splitter must be 'whitespace' or 'bert'"),
        ("word_level", lambda c: c.update(lowercase=0), "lowercase must be True or False, not 0"),
        ("word_level", lambda c: c.update(unk_token="[SEP]", special_tokens={}), "not among the special"),
    ],
)
def test_invalid_values_of_word_vocabularies(tmp_path, model, change, message):
    path = tokjax.save_tokenizer(MAKERS[model](), tmp_path)
    contents = json.loads(path.read_text())
    contents.pop("checksum")
    change(contents)
    contents["checksum"] = compute_json_checksum(contents)
    path.write_text(json.dumps(contents))
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message):
        tokjax.load_tokenizer(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\xff"])
def test_not_a_json_object(saved_path, text):
    saved_path.write_text(text, "latin-1")
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=str(saved_path)):
        tokjax.load_tokenizer(saved_path)


def test_truncated_file(saved_path):
    data = saved_path.read_bytes()
    for size in (1, len(data) // 2, len(data) - 2):
        saved_path.write_bytes(data[:size])
        with pytest.raises(tokjax.errors.TokenizerFormatError, match="not JSON, or truncated"):
            tokjax.load_tokenizer(saved_path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        tokjax.load_tokenizer(tmp_path / "nothing.json")


def test_unsupported_tokenizers_are_rejected(tmp_path):
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="can't write a str"):
        tokjax.save_tokenizer("tokenizer", tmp_path / "t.json")


def test_threads_save_to_one_path(tokenizer, plain_tokenizer, tmp_path):
    path = tmp_path / "t.json"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda t: tokjax.save_tokenizer(t, path), [tokenizer, plain_tokenizer] * 20))
    assert tokjax.load_tokenizer(path) in (tokenizer, plain_tokenizer)
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_missing_directory(tokenizer, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such directory: '.*nope'"):
        tokjax.save_tokenizer(tokenizer, tmp_path / "nope" / "t.json")
