"""Tests of the export of tokenizers, against the library of each format."""

import base64
import dataclasses
import logging
from functools import lru_cache, partial
from pathlib import Path

import pytest
import sentencepiece
import tiktoken
import tokenizers
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import make_pair
from tests.support.sentencepiece_models import build_bpe_model
from tests.support.split_patterns import SINGLE_EXPRESSIONS
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.patterns import PATTERNS
from tokjax.trainer import train_bpe, train_sentencepiece, train_word_level, train_wordpiece

texts = (hard_texts | st.sampled_from(CORPUS)).filter(is_encodable)
WITHOUT_PRE_TOKENS = ["Llama 2", "Mistral", "Gemma"]
BYTE_FALLBACK = [*WITHOUT_PRE_TOKENS, "split", "split only"]
WORD_BPE = ["OpenAI GPT", "HerBERT", "word BPE at whitespace", "word BPE without a mark"]
PUBLISHED = [name for name in PATTERNS if name != "whitespace"]


@lru_cache
def train_tokenizer(pattern="gpt2"):
    special = ["<|endoftext|>", "<|pad|>"]
    options = {"pattern": pattern, "special_tokens": special, "pad_token": "<|pad|>", "progress": False}
    return train_bpe(CORPUS * 3, vocab_size=500, **options).tokenizer


SENTENCEPIECE = {
    "sentencepiece": {"byte_fallback": True, "normalization": "identity", "remove_extra_whitespaces": False},
    "sentencepiece, normalized": {"byte_fallback": True, "bos_token": "<s>"},
    "sentencepiece, no space added": {"add_dummy_prefix": False},
}


def train_sentencepiece_bpe(**options):
    return train_sentencepiece(
        CORPUS * 3, model_type="bpe", vocab_size=480, progress=False, **options
    ).tokenizer


@lru_cache
def export_to(name, directory):
    """Exports a tokenizer; returns it, and the library's tokenizer that was read from the file."""
    tokenizer = {
        **{pattern: lambda pattern=pattern: train_tokenizer(pattern) for pattern in PUBLISHED},
        "merges": make_merge_tokenizer,
        **{kind: lambda kind=kind: make_pair(kind)[1] for kind in BYTE_FALLBACK},
        "wordpiece": lambda: train_wordpiece(CORPUS, vocab_size=300, progress=False).tokenizer,
        "cased wordpiece": lambda: (
            train_wordpiece(
                CORPUS, vocab_size=300, lowercase=False, continuing_prefix="@", progress=False
            ).tokenizer
        ),
        **{kind: lambda kind=kind: make_pair(kind)[1] for kind in WORD_BPE},
        **{kind: lambda kind=kind: train_sentencepiece_bpe(**SENTENCEPIECE[kind]) for kind in SENTENCEPIECE},
        "words": lambda: train_word_level(CORPUS, vocab_size=50, progress=False).tokenizer,
        "lower-case words": lambda: (
            train_word_level(CORPUS, vocab_size=50, splitter="bert", lowercase=True, progress=False).tokenizer
        ),
    }[name]()
    [path] = tokjax.formats.export_tokenizer(tokenizer, directory, "huggingface")
    return tokenizer, tokenizers.Tokenizer.from_file(str(path))


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


NAMES = [
    *PUBLISHED,
    "merges",
    *BYTE_FALLBACK,
    *WORD_BPE,
    "wordpiece",
    "cased wordpiece",
    "words",
    "lower-case words",
    *SENTENCEPIECE,
]


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    return {name: tmp_path_factory.mktemp("exported") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@given(text=texts, pair=st.none() | texts)
def test_tokenizer_json_gives_the_same_ids(directories, name, text, pair):
    tokenizer, reference = export_to(name, directories[name])
    result = tokjax.encode_result(tokenizer, text, pair, allowed_special="all")
    expected = reference.encode(text, pair)
    assert result.ids.tolist() == expected.ids
    assert result.token_type_ids.tolist() == expected.type_ids
    if name not in (
        *WITHOUT_PRE_TOKENS,
        *SENTENCEPIECE,
    ):  # in the library, a whole text is one pre-token there
        assert [i if i >= 0 else None for i in result.word_ids.tolist()] == expected.word_ids


@pytest.mark.parametrize("name", NAMES)
def test_tokenizer_json_round_trip(directories, name, caplog):
    tokenizer, _ = export_to(name, directories[name])
    with caplog.at_level(logging.INFO, "tokjax"):
        again = tokjax.load_tokenizer(directories[name])
    assert again.vocabulary.special == tokenizer.vocabulary.special
    assert again.vocabulary.roles == tokenizer.vocabulary.roles
    assert again.vocabulary.template == tokenizer.vocabulary.template
    if name in SENTENCEPIECE:
        return
    assert "runs on the tokenizers library" not in caplog.text
    assert type(again) is type(tokenizer)
    for text in CORPUS:
        assert (
            tokjax.encode_result(again, text).offsets.tolist()
            == tokjax.encode_result(tokenizer, text).offsets.tolist()
        )


@given(
    pieces=st.lists(st.text("ab▁", min_size=2, max_size=5), min_size=1, max_size=9, unique=True),
    text=st.text("aab <", max_size=20),
    bytes_=st.booleans(),
)
def test_random_sentencepiece_models(tmp_path_factory, pieces, text, bytes_):
    proto = build_bpe_model([*pieces, *"ab▁<"], byte_fallback=bytes_)
    path = tmp_path_factory.getbasetemp() / "sentencepiece.json"
    tokjax.formats.export_tokenizer(tokjax.sentencepiece(proto), path, "huggingface")
    reference = sentencepiece.SentencePieceProcessor(model_proto=proto)
    assert tokenizers.Tokenizer.from_file(str(path)).encode(text).ids == reference.encode(text)


def test_transformers_load_a_directory(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = train_tokenizer()
    tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    reference = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert reference.eos_token == "<|endoftext|>"
    assert reference.pad_token == "<|pad|>"
    for text in CORPUS:
        assert reference(text)["input_ids"] == tokjax.encode_result(tokenizer, text).ids.tolist()


def make_gpt2(directory, _):
    tokenizer = train_tokenizer()
    paths = tokjax.formats.export_tokenizer(tokenizer, directory, "gpt2")
    library = tokenizers.ByteLevelBPETokenizer.from_file(*map(str, paths))
    return tokenizer, tokjax.load_tokenizer(directory), lambda text: library.encode(text).ids


def make_tiktoken(directory, pattern):
    tokenizer = dataclasses.replace(train_tokenizer(pattern), normalizer=None)
    [path] = tokjax.formats.export_tokenizer(tokenizer, directory, "tiktoken")
    ranks = {base64.b64decode(t): int(i) for t, i in map(bytes.split, path.read_bytes().splitlines())}
    options = {"pad_token": "<|pad|>", "special_tokens": dict(tokenizer.vocabulary.special)}
    again = dataclasses.replace(tokjax.load_tokenizer(directory, pattern=pattern, **options), normalizer=None)
    expression = SINGLE_EXPRESSIONS[pattern]
    library = tiktoken.Encoding("x", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    return tokenizer, again, library.encode_ordinary


def make_wordpiece(directory, case):
    options = {"lowercase": case == "uncased"}
    tokenizer = train_wordpiece(CORPUS, vocab_size=300, progress=False, **options).tokenizer
    [path] = tokjax.formats.export_tokenizer(tokenizer, directory, "wordpiece")
    library = tokenizers.BertWordPieceTokenizer.from_file(str(path), **options)
    encode = partial(library.encode, add_special_tokens=False)
    return tokenizer, tokjax.load_tokenizer(directory), lambda text: encode(text).ids


def make_sentencepiece(directory, model_type):
    roles = {"bos_token": "<s>", "eos_token": "</s>"}
    options = {"model_type": model_type, "vocab_size": 120 if model_type == "char" else 200, **roles}
    tokenizer = train_sentencepiece(CORPUS * 2, progress=False, **options).tokenizer
    [path] = tokjax.formats.export_tokenizer(tokenizer, directory, "sentencepiece")
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert tokjax.formats.from_sentencepiece(library, **roles) == tokenizer
    return tokenizer, tokjax.load_tokenizer(directory, **roles), library.encode


EXPORTS = [
    *((make_gpt2, ""), (make_wordpiece, "uncased"), (make_wordpiece, "cased")),
    *((make_sentencepiece, model_type) for model_type in ("unigram", "bpe", "char")),
    *((make_tiktoken, pattern) for pattern in PUBLISHED if pattern in SINGLE_EXPRESSIONS),
]


@lru_cache
def export_and_load(export, directory):
    """Returns a tokenizer, the one that was loaded from its files, and the `encode` of a library."""
    make, kind = export
    return make(directory, kind)


@pytest.fixture(scope="module")
def file_directories(tmp_path_factory):
    return {export: tmp_path_factory.mktemp("files") for export in EXPORTS}


@pytest.mark.parametrize("export", EXPORTS)
@given(text=texts)
def test_files_give_the_same_ids(file_directories, export, text):
    tokenizer, again, encode = export_and_load(export, file_directories[export])
    for each in (tokenizer, again):
        ids = tokjax.encode(each, text, disallowed_special=(), add_special_tokens=False)
        assert ids.tolist() == encode(text)


@pytest.mark.parametrize("export", EXPORTS)
def test_round_trips_of_files(file_directories, export):
    tokenizer, again, _ = export_and_load(export, file_directories[export])
    assert again.vocabulary.ordinary == tokenizer.vocabulary.ordinary
    assert again.vocabulary.special == tokenizer.vocabulary.special
    assert again.vocabulary.roles == tokenizer.vocabulary.roles
    if export[0] in (make_wordpiece, make_sentencepiece):  # the other files have no template
        assert again == tokenizer


def test_tokjax_format(tmp_path, caplog):
    [path] = tokjax.formats.export_tokenizer(train_tokenizer(), tmp_path, "tokjax")
    assert tokjax.load_tokenizer(path) == train_tokenizer()
    assert not caplog.messages
    tokjax.save_tokenizer(train_tokenizer(), tmp_path / "tokenizer.json")
    assert (
        "tokenizer.json is a file of tokjax, which other libraries can't read, with the name" in caplog.text
    )


BYTES = {bytes([i]): i for i in range(256)}


@pytest.mark.parametrize(
    ("make", "format_", "message"),
    [
        (make_merge_tokenizer, "tiktoken", "a rank file can't represent add_prefix_space=True"),
        (
            lambda: tokjax.byte_level_bpe(BYTES | {b"ab": 300, b"abc": 301}, merges=[(b"a", b"b")]),
            "tiktoken",
            r"b'ab' and b'c' are not among the merges",
        ),
        (
            lambda: tokjax.byte_level_bpe(
                BYTES | {b"ab": 301, b"cd": 300}, merges=[(b"a", b"b"), (b"c", b"d")]
            ),
            "tiktoken",
            "needs merges in the order of the ids that they produce",
        ),
        (
            lambda: tokjax.byte_level_bpe(BYTES | {b"xyz": 300}),
            "gpt2",
            r"can't represent ignore_merges, and merging does not produce the token b'xyz'",
        ),
        (
            lambda: train_tokenizer("cl100k"),
            "gpt2",
            r"GPT-2's format implies the pattern 'gpt2', not 'cl100k'",
        ),
        (
            lambda: tokjax.byte_level_bpe(BYTES, special_tokens={"é": 300}),
            "huggingface",
            "can't represent 'é': it is also the written form of the token with id 233",
        ),
        (lambda: train_tokenizer(r"\w+|\W"), "huggingface", r"can't be written with the pattern '\\\\w"),
        (
            lambda: tokjax.byte_level_bpe(BYTES, pattern="cl100k", add_prefix_space=True),
            "huggingface",
            "supports add_prefix_space=True with the pattern 'gpt2', not with 'cl100k'",
        ),
        (
            lambda: tokjax.wordpiece(["[UNK]", "a\nb"]),
            "wordpiece",
            r"can't contain 'a\\nb', which has a line break",
        ),
        (
            lambda: tokjax.wordpiece({"[UNK]": 0, "a": 2}),
            "wordpiece",
            "needs consecutive ids, and no token has id 1",
        ),
        (
            lambda: tokjax.wordpiece(["[UNK]"], clean_text=False),
            "wordpiece",
            "can't represent clean_text=False",
        ),
        (lambda: tokjax.wordpiece(["[UNK]"]), "tiktoken", "is for a ByteLevelBPE, not a WordPieceTokenizer"),
        (train_tokenizer, "sentencepiece", "is for a SentencePieceTokenizer, not a ByteLevelBPE"),
        (
            lambda: tokjax.word_bpe(["<unk>", "a", "</w>"], [], end_of_word="symbol"),
            "huggingface",
            "a tokenizer.json can't represent end_of_word='symbol'",
        ),
        (
            lambda: tokjax.word_bpe(["<unk>", "a", "b</w>"], [("a", "b</w>")]),
            "huggingface",
            "'ab</w>', which the merge of 'a' and 'b</w>' needs, is not an ordinary token",
        ),
        (
            lambda: tokjax.word_bpe(["<unk>", *"ab", "ab", "abb"], [("ab", "b"), ("a", "b")]),
            "huggingface",
            "a merge uses a token that a later merge makes, too",
        ),
        (
            lambda: train_sentencepiece(CORPUS, vocab_size=120, progress=False).tokenizer,
            "huggingface",
            "model of the type unigram, only bpe; pass format='sentencepiece' to write the .model",
        ),
        (
            lambda: train_sentencepiece_bpe(user_defined_symbols=["<call>"]),
            "huggingface",
            "a SentencePiece model with unused pieces or user-defined symbols; pass format=",
        ),
        (
            lambda: tokjax.sentencepiece(build_bpe_model(["ab", "ba", *"ab"], scores=[-1, -1, -2, -3])),
            "huggingface",
            "model with the pieces '(ab|ba)' and '(ab|ba)' of equal scores",
        ),
    ],
)
def test_options_that_a_format_can_t_represent(tmp_path, make, format_, message):
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match=message):
        tokjax.formats.export_tokenizer(make(), tmp_path, format_)
    assert list(tmp_path.iterdir()) == []


def test_round_trip_of_special_tokens_with_custom_names(tmp_path):
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = tokjax.wordpiece(["<unk>", "<s>", "</s>", "<x>", "a"], special_tokens=["<x>"], **names)
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match=r"are \['<unk>'.*; pass a directory"):
        tokjax.formats.export_tokenizer(tokenizer, tmp_path / "vocab.txt", "wordpiece")
    tokjax.formats.export_tokenizer(tokenizer, tmp_path, "wordpiece")
    assert tokjax.load_tokenizer(tmp_path) == tokenizer
    special = {"<|im_end|>": 256, "<|endoftext|>": 257}
    bpe = tokjax.byte_level_bpe(BYTES, special_tokens=special, eos_token="<|endoftext|>")
    tokjax.formats.export_tokenizer(bpe, tmp_path / "bpe", "gpt2")
    # The second call writes a tokenizer_config.json, since the directory exists.
    tokjax.formats.export_tokenizer(bpe, tmp_path / "bpe", "gpt2")
    again = tokjax.load_tokenizer(tmp_path / "bpe")
    assert again.vocabulary.special == bpe.vocabulary.special
    transformers = pytest.importorskip("transformers")
    reference = transformers.GPT2Tokenizer.from_pretrained(tmp_path / "bpe")
    assert (
        reference("a<|im_end|>")["input_ids"]
        == tokjax.encode(again, "a<|im_end|>", allowed_special="all").tolist()
    )


@pytest.mark.parametrize(
    ("format_", "names"),
    [
        ("huggingface", ["tokenizer.json"]),
        ("tokjax", ["tokenizer.tokjax.json"]),
        ("tiktoken", ["ranks.tiktoken"]),
        ("gpt2", ["vocab.json", "merges.txt"]),
    ],
)
def test_files_and_directories(tmp_path, format_, names):
    """A path with the suffix of the format is a file. All others are directories, which are created."""
    tokenizer, export = train_tokenizer(), tokjax.formats.export_tokenizer
    file = tmp_path / "a" / f"x{Path(names[0]).suffix}"
    if format_ != "gpt2":
        assert export(tokenizer, file, format_) == (file,)
    file.with_name("x").mkdir(parents=True)
    for directory in (tmp_path / "b" / "hf", tmp_path / "v1.5", file.with_name("x")):
        for _ in range(2):
            written = export(tokenizer, directory, format_)
            assert written == tuple(directory / name for name in names)
        config = directory / "tokenizer_config.json"
        assert config.exists() == (format_ in ("huggingface", "gpt2"))
    other = tmp_path / "other"
    other.touch()
    message = (
        f"{other} is a file; to write the format '{format_}', pass .*a directory, in which {names[0]} is"
    )
    for path in (other, other / "x", other / names[0]):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            export(tokenizer, path, format_)


def test_unknown_format(tmp_path):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"format must be 'tokjax', .*, not 'bert'"):
        tokjax.formats.export_tokenizer(train_tokenizer(), tmp_path, "bert")
