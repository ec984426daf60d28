"""Tokenizers written for other libraries: each read back by the one that owns the format."""

import base64
import dataclasses
import logging
from functools import lru_cache

import pytest
import sentencepiece
import tiktoken
import tokenizers
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import make_pair
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.patterns import PATTERNS
from tokjax.trainer import train_bpe, train_sentencepiece, train_word_level, train_wordpiece

texts = (hard_texts | st.sampled_from(CORPUS)).filter(is_encodable)
UNSPLIT = ["Llama 2", "Mistral", "Gemma"]
WITH_BYTES = [*UNSPLIT, "split", "split only"]
PUBLISHED = [name for name in PATTERNS if name != "whitespace"]


@lru_cache
def trained(pattern="gpt2"):
    special = ["<|endoftext|>", "<|pad|>"]
    options = {"pattern": pattern, "special_tokens": special, "pad_token": "<|pad|>", "progress": False}
    return train_bpe(CORPUS * 3, vocab_size=500, **options).tokenizer


@lru_cache
def export_to(name, directory):
    """A tokenizer of ours, and the library's of what was written."""
    ours = {
        **{pattern: lambda pattern=pattern: trained(pattern) for pattern in PUBLISHED},
        "merges": make_merge_tokenizer,
        **{kind: lambda kind=kind: make_pair(kind)[1] for kind in WITH_BYTES},
        "wordpiece": lambda: train_wordpiece(CORPUS, vocab_size=300, progress=False).tokenizer,
        "cased wordpiece": lambda: (
            train_wordpiece(
                CORPUS, vocab_size=300, lowercase=False, continuing_prefix="@", progress=False
            ).tokenizer
        ),
        "words": lambda: train_word_level(CORPUS, vocab_size=50, progress=False).tokenizer,
        "lower-case words": lambda: (
            train_word_level(CORPUS, vocab_size=50, splitter="bert", lowercase=True, progress=False).tokenizer
        ),
    }[name]()
    [path] = tokjax.formats.export_tokenizer(ours, directory, "huggingface")
    return ours, tokenizers.Tokenizer.from_file(str(path))


def make_merge_tokenizer():
    merges = [(b"e", b"r"), (b"l", b"o"), (b"lo", b"w"), (b" ", b"low")]
    ids = {bytes([i]): 255 - i for i in range(256)} | {b"er": 300, b"lo": 299, b"low": 298, b" low": 301}
    plain = tokjax.byte_level_bpe(
        ids | {b"new": 302},
        merges=merges,
        add_prefix_space=True,
        trim_offsets="but_first",
        added_tokens=["new"],
        special_tokens={"<s>": 400, "</s>": 401},
        bos_token="<s>",
    )
    return tokjax.with_template(plain, "<s> $A </s>", "<s> $A </s> <s>:1 $B:1")


NAMES = [*PUBLISHED, "merges", *WITH_BYTES, "wordpiece", "cased wordpiece", "words", "lower-case words"]


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    return {name: tmp_path_factory.mktemp("exported") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@given(text=texts, pair=st.none() | texts)
def test_tokenizer_json(directories, name, text, pair):
    ours, theirs = export_to(name, directories[name])
    result = tokjax.encode_result(ours, text, pair, allowed_special="all")
    expected = theirs.encode(text, pair)
    assert result.ids.tolist() == expected.ids
    assert result.token_type_ids.tolist() == expected.type_ids
    if name not in UNSPLIT:  # (all of a text is one word there)
        assert [i if i >= 0 else None for i in result.word_ids.tolist()] == expected.word_ids


@pytest.mark.parametrize("name", NAMES)
def test_tokenizer_json_is_read_again(directories, name, caplog):
    ours, _ = export_to(name, directories[name])
    with caplog.at_level(logging.INFO, "tokjax"):
        again = tokjax.load_tokenizer(directories[name])
    assert "runs on the tokenizers library" not in caplog.text
    assert type(again) is type(ours)
    assert again.vocabulary.special == ours.vocabulary.special
    assert again.vocabulary.roles == ours.vocabulary.roles
    assert again.vocabulary.template == ours.vocabulary.template
    for text in CORPUS:
        assert (
            tokjax.encode_result(again, text).offsets.tolist()
            == tokjax.encode_result(ours, text).offsets.tolist()
        )


def test_transformers_read_a_directory(tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = trained()
    tokjax.formats.export_tokenizer(ours, tmp_path, "huggingface")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert theirs.eos_token == "<|endoftext|>"
    assert theirs.pad_token == "<|pad|>"
    for text in CORPUS:
        assert theirs(text)["input_ids"] == tokjax.encode_result(ours, text).ids.tolist()


@lru_cache
def load_encoding(pattern, path):
    ours = dataclasses.replace(trained(pattern), normalizer=None)
    [written] = tokjax.formats.export_tokenizer(ours, path, "tiktoken")
    lines = written.read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    special = dict(trained(pattern).vocabulary.special)
    return tiktoken.Encoding("ours", pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens=special)


@pytest.mark.parametrize("pattern", PUBLISHED)
@given(text=texts)
def test_tiktoken(directories, pattern, text):
    theirs = load_encoding(pattern, directories[pattern] / "x.tiktoken")
    ours = tokjax.formats.from_tiktoken(theirs)
    assert tokjax.encode(ours, text, allowed_special="all").tolist() == theirs.encode(
        text, allowed_special="all"
    )
    plain = tokjax.byte_level_bpe(
        dict(trained(pattern).vocabulary.ordinary), pattern=pattern, normalizer=None
    )
    assert tokjax.encode(plain, text).tolist() == theirs.encode_ordinary(text)


def test_ranks_are_read_again(tmp_path):
    ours = trained()
    [path] = tokjax.formats.export_tokenizer(ours, tmp_path, "tiktoken")
    assert path == tmp_path / "ranks.tiktoken"
    special = dict(ours.vocabulary.special)
    again = tokjax.load_tokenizer(tmp_path, pattern="gpt2", special_tokens=special, pad_token="<|pad|>")
    assert again.vocabulary.ordinary == ours.vocabulary.ordinary
    assert again.vocabulary.roles == ours.vocabulary.roles
    assert tokjax.encode_result(again, "low").tokens == ("low",)  # nothing is put around texts


@pytest.fixture(scope="module")
def gpt2_files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gpt2")
    vocab, merges = tokjax.formats.export_tokenizer(trained(), directory / "new", "gpt2")
    assert merges.read_text().startswith("#version: 0.2\n")
    theirs = tokenizers.ByteLevelBPETokenizer.from_file(str(vocab), str(merges))
    return tokjax.load_tokenizer(directory / "new"), theirs


@given(text=texts)
def test_gpt2_files(gpt2_files, text):
    again, theirs = gpt2_files
    ours = trained()
    expected = theirs.encode(text).ids
    assert tokjax.encode(ours, text, disallowed_special=(), add_special_tokens=False).tolist() == expected
    assert tokjax.encode(again, text, disallowed_special=(), add_special_tokens=False).tolist() == expected


def test_gpt2_files_are_read_again(gpt2_files):
    again, _ = gpt2_files
    assert again.merges is not None
    assert again.vocabulary.special == trained().vocabulary.special
    assert again.vocabulary.roles == trained().vocabulary.roles
    assert again.vocabulary.ordinary == trained().vocabulary.ordinary


@pytest.mark.parametrize("lowercase", [True, False])
def test_vocab_txt(tmp_path, lowercase):
    ours = train_wordpiece(CORPUS, vocab_size=300, lowercase=lowercase, progress=False).tokenizer
    tokjax.formats.export_tokenizer(ours, tmp_path, "wordpiece")
    assert tokjax.load_tokenizer(tmp_path) == ours
    theirs = tokenizers.BertWordPieceTokenizer.from_file(str(tmp_path / "vocab.txt"), lowercase=lowercase)
    for text in CORPUS:
        assert tokjax.encode_result(ours, text).ids.tolist() == theirs.encode(text).ids


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char"])
def test_sentencepiece_model(tmp_path, model_type):
    trained = train_sentencepiece(
        CORPUS * 2,
        model_type=model_type,
        vocab_size=120 if model_type == "char" else 200,
        bos_token="<s>",
        eos_token="</s>",
        progress=False,
    )
    [path] = tokjax.formats.export_tokenizer(trained.tokenizer, tmp_path, "sentencepiece")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    roles = {"bos_token": "<s>", "eos_token": "</s>"}
    again = tokjax.load_tokenizer(tmp_path, **roles)
    assert again == trained.tokenizer == tokjax.formats.from_sentencepiece(theirs, **roles)
    for text in CORPUS:
        assert (
            theirs.encode(text) == tokjax.encode(trained.tokenizer, text, add_special_tokens=False).tolist()
        )


def test_our_own(tmp_path):
    [path] = tokjax.formats.export_tokenizer(trained(), tmp_path, "tokjax")
    assert tokjax.load_tokenizer(path) == trained()


BYTES = {bytes([i]): i for i in range(256)}


@pytest.mark.parametrize(
    ("make", "format_", "message"),
    [
        (
            lambda: tokjax.byte_level_bpe(BYTES, pattern="qwen2"),
            "tiktoken",
            "a file of ranks can't say normalizer='nfc'",
        ),
        (make_merge_tokenizer, "tiktoken", "a file of ranks can't say add_prefix_space=True"),
        (
            lambda: tokjax.byte_level_bpe(BYTES | {b"ab": 300, b"abc": 301}, merges=[(b"a", b"b")]),
            "tiktoken",
            r"two tokens merge that make one; b'ab' and b'c' do not here",
        ),
        (
            lambda: tokjax.byte_level_bpe(
                BYTES | {b"ab": 301, b"cd": 300}, merges=[(b"a", b"b"), (b"c", b"d")]
            ),
            "tiktoken",
            "merge in the order of their ids; here not",
        ),
        (
            lambda: tokjax.byte_level_bpe(BYTES | {b"xyz": 300}),
            "gpt2",
            r"whether b'xyz' is a token as a word: merging does not arrive there",
        ),
        (lambda: trained("cl100k"), "gpt2", r"GPT-2's format has the pattern 'gpt2', not 'cl100k'"),
        (
            lambda: tokjax.byte_level_bpe(BYTES, special_tokens={"é": 300}),
            "huggingface",
            "can't hold 'é': the token with id 233 is written like that",
        ),
        (lambda: trained(r"\S+|\s"), "huggingface", r"can't be written with the pattern '\\\\S"),
        (lambda: trained("whitespace"), "huggingface", "can't be written with the pattern 'whitespace'"),
        (
            lambda: tokjax.byte_level_bpe(BYTES, pattern="cl100k", add_prefix_space=True),
            "huggingface",
            "can say add_prefix_space=True with the pattern 'gpt2', not 'cl100k'",
        ),
        (lambda: tokjax.wordpiece(["[UNK]", "a\nb"]), "wordpiece", r"can't hold 'a\\nb', which ends a line"),
        (lambda: tokjax.wordpiece({"[UNK]": 0, "a": 2}), "wordpiece", "there is no token with id 1"),
        (lambda: tokjax.wordpiece(["[UNK]"], clean_text=False), "wordpiece", "can't say clean_text=False"),
        (
            lambda: tokjax.byte_level_bpe(BYTES | {b"new": 300}, merges=[], added_tokens=["new"]),
            "gpt2",
            "GPT-2's format can't say that 'new' is always found",
        ),
        (
            lambda: tokjax.wordpiece(["[UNK]"], continuing_prefix="@"),
            "wordpiece",
            "a vocab.txt can't say continuing_prefix='@'",
        ),
        (lambda: tokjax.wordpiece(["[UNK]"]), "tiktoken", "is for a ByteLevelBPE, not a WordPieceTokenizer"),
        (trained, "sentencepiece", "is for a SentencePieceTokenizer, not a ByteLevelBPE"),
        (lambda: "gpt2", "huggingface", "MetaspaceBPE, WordPieceTokenizer, WordLevelTokenizer; not of str"),
    ],
)
def test_what_a_format_can_t_express(tmp_path, make, format_, message):
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match=message):
        tokjax.formats.export_tokenizer(make(), tmp_path, format_)
    assert list(tmp_path.iterdir()) == []


def test_special_tokens_of_any_name_come_back(tmp_path):
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    ours = tokjax.wordpiece(["<unk>", "<s>", "</s>", "<x>", "a"], special_tokens=["<x>"], **names)
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match=r"are \['<unk>'.*; pass a directory"):
        tokjax.formats.export_tokenizer(ours, tmp_path / "vocab.txt", "wordpiece")
    tokjax.formats.export_tokenizer(ours, tmp_path, "wordpiece")
    assert tokjax.load_tokenizer(tmp_path) == ours
    special = {"<|im_end|>": 256, "<|endoftext|>": 257}
    bpe = tokjax.byte_level_bpe(BYTES, special_tokens=special, eos_token="<|endoftext|>")
    tokjax.formats.export_tokenizer(bpe, tmp_path / "bpe", "gpt2")
    tokjax.formats.export_tokenizer(
        bpe, tmp_path / "bpe", "gpt2"
    )  # (with a config, once there is a directory)
    again = tokjax.load_tokenizer(tmp_path / "bpe")
    assert again.vocabulary.special == bpe.vocabulary.special
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path / "bpe")
    assert (
        theirs("a<|im_end|>")["input_ids"]
        == tokjax.encode(again, "a<|im_end|>", allowed_special="all").tolist()
    )


def test_no_such_format(tmp_path):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"format must be 'tokjax', .*, not 'bert'"):
        tokjax.formats.export_tokenizer(trained(), tmp_path, "bert")
