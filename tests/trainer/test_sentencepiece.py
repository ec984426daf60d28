"""Tests of SentencePiece training: equality with the library, sentences, statistics, notes, errors."""

import io
import logging

import numpy as np
import pytest
import sentencepiece as library
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.text_strategies import hard_texts
from tokjax.trainer import Trained, sentencepiece as module, train_sentencepiece

TEXTS = CORPUS * 3
LINES = [line.rstrip("\r") for text in TEXTS for line in text.split("\n") if line.rstrip("\r")]
SIZES = {"unigram": 300, "bpe": 300, "char": 100, "word": 60}


def train(source=TEXTS, **options):
    return train_sentencepiece(source, progress=False, **({"vocab_size": 300} | options))


def train_with_library(lines, **options):
    model = io.BytesIO()
    options = {
        "hard_vocab_limit": False,
        "bos_id": -1,
        "eos_id": 1,
        "minloglevel": 2,
        "num_threads": 16,
    } | options
    library.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    return library.SentencePieceProcessor(model_proto=model.getvalue())


def get_pieces(processor):
    ids = list(range(len(processor)))
    return list(zip(processor.id_to_piece(ids), processor.get_score(ids), strict=True))


@pytest.mark.parametrize("model_type", SIZES)
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
def test_model_equals_that_of_library(model_type, normalization):
    options = {"model_type": model_type, "vocab_size": SIZES[model_type]}
    ours = train(normalization=normalization, **options)
    theirs = train_with_library(LINES, normalization_rule_name=normalization, **options)
    assert get_pieces(ours.tokenizer.processor) == get_pieces(theirs)
    assert isinstance(ours, Trained)
    assert ours.tokenizer.model_type == model_type
    assert ours.tokenizer.normalization == normalization
    text = "the apparent\nmeaning ½"
    assert tokjax.encode(ours.tokenizer, text, add_special_tokens=False).tolist() == theirs.encode(text)


def test_options_reach_the_library():
    options = {
        "model_type": "bpe",
        "vocab_size": 500,
        "byte_fallback": True,
        "character_coverage": 0.98,
        "user_defined_symbols": ["<call>", "a,b", 'q"'],
        "split_digits": True,
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    }
    ours = train(
        special_tokens=["<|sep|>", "</s>"], bos_token="<s>", pad_token="[PAD]", unk_token="[UNK]", **options
    )
    theirs = train_with_library(
        LINES,
        control_symbols=["<|sep|>"],
        bos_id=1,
        eos_id=2,
        pad_id=3,
        pad_piece="[PAD]",
        unk_piece="[UNK]",
        max_sentence_length=4192,
        **options,
    )
    assert get_pieces(ours.tokenizer.processor) == get_pieces(theirs)
    assert list(tokjax.special_tokens(ours.tokenizer).items()) == [
        ("[UNK]", 0),
        ("<s>", 1),
        ("</s>", 2),
        ("[PAD]", 3),
        ("<|sep|>", 4),
        ("<call>", 5),
    ]
    assert (tokjax.bos_id(ours.tokenizer), tokjax.pad_id(ours.tokenizer)) == (1, 3)
    assert ours.vocab[5] == b"<call>"
    assert ours.options["trainer"] == "sentencepiece"
    assert ours.options["user_defined_symbols"] == ["<call>", "a,b", 'q"']


def test_symbols_of_whitespace_are_matched():
    symbols = [*"\t\n\r\v\x85\xa0\u2028\u3000", "a\tb", "▁\t"]
    tokenizer = train(vocab_size=120, user_defined_symbols=symbols).tokenizer
    pieces = set(symbols)
    for repeats in (1, 11_000):
        text = "low\u3000\t low\n\n\nx a\tb\v\r\x85\xa0\u2028 \t" * repeats
        result = tokjax.encode_result(tokenizer, text, add_special_tokens=False)
        assert result.ids.tolist() == tokenizer.processor.encode(text)
        assert pieces <= set(result.tokens)
        for token, (first, last) in zip(result.tokens, result.offsets.tolist(), strict=True):
            if token in pieces:
                assert text.encode()[first - 1 : last - 1] == token.replace("▁", " ").encode()


def test_files_and_texts_give_equal_results(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_BYTES", 100)
    separator = "<|endoftext|>"
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_bytes(separator.join(TEXTS[:7]).encode())
    paths[1].write_bytes((separator + separator.join(TEXTS[7:]) + separator).encode())
    from_files = train(paths, special_tokens=[separator], vocab_size=200, model_type="bpe")
    from_texts = train(iter(TEXTS), special_tokens=[separator], vocab_size=200, model_type="bpe")
    assert from_files.tokenizer == from_texts.tokenizer
    for name in ("documents", "bytes", "num_unique_pretokens", "bytes_per_token", "notes"):
        assert getattr(from_files.stats, name) == getattr(from_texts.stats, name), name
    assert from_files.stats.documents == len(TEXTS)
    assert from_files.stats.bytes == sum(len(text.encode()) for text in TEXTS)
    assert [file.path for file in from_files.stats.files] == [str(path) for path in paths]
    assert [file.nbytes for file in from_files.stats.files] == [path.stat().st_size for path in paths]
    assert from_texts.stats.files == ()


def test_stats():
    stats = train(["low low  lower\n\n\r\nlow\tlowest\r\n", "", "lower"], vocab_size=12).stats
    assert (stats.documents, stats.num_unique_pretokens) == (2, 3)
    assert stats.bytes == len(b"low low  lower\n\n\r\nlow\tlowest\r\nlower")
    assert stats.notes == ("sentences trained on: 3 (29 bytes)",)
    assert set(stats.seconds) == {"reading", "training"}
    assert min(stats.seconds.values()) >= 0
    assert not stats.exhausted


def test_bytes_per_token_is_measured(monkeypatch):
    trained = train(model_type="bpe")
    num_tokens = sum(len(tokjax.encode(trained.tokenizer, line, add_special_tokens=False)) for line in LINES)
    assert trained.stats.bytes_per_token == sum(len(line.encode()) for line in LINES) / num_tokens
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 100)
    sample = LINES[:2]
    note = f"bytes_per_token is measured on their first {sum(map(len, sample))} bytes"
    stats = train(model_type="bpe").stats
    assert note in stats.notes
    assert stats.bytes_per_token == sum(map(len, sample)) / sum(
        len(tokjax.encode(trained.tokenizer, line, add_special_tokens=False)) for line in sample
    )


@pytest.mark.parametrize("kind", ["long lines", "characters"])
def test_changes_of_sentences_are_reported(kind):
    """The model is that of the library for the changed sentences."""
    if kind == "long lines":
        texts = ["one two three four five six seven eight\nshort", "é" * 20]
        lines = ["one two three", "four five six", "seven eight", "short", *("é" * n for n in (8, 8, 4))]
        notes = ("lines over 17 bytes, which were split: 2",)
    else:
        texts = ["a\ud800b\udfff", b"c\xff\xfed", "e\0f", "g\u2585h", "\ud83d\ude42", "\ufffd"]
        lines = ["a\ufffdb\ufffd", "c\ufffd\ufffdd", "e\0f", "g", "h", "\U0001f642", "\ufffd"]
        notes = (
            "lone surrogates and invalid UTF-8 bytes, replaced by U+FFFD: 4",
            "U+0000 characters, which can't be in a piece: 1",
            "U+2585 characters, reserved by the library, treated as line ends: 1",
        )
    options = {"vocab_size": 40, "model_type": "char"}
    trained = train(texts, max_sentence_bytes=17, **options)
    assert get_pieces(trained.tokenizer.processor) == get_pieces(train_with_library(lines, **options))
    assert trained.stats.notes[1:] == notes


@given(line=hard_texts, max_bytes=st.integers(16, 40))
def test_parts_of_long_lines_are_bounded_and_complete(line, max_bytes):
    data = line.encode()
    parts = list(module._split_line(data, max_bytes))
    assert max(map(len, parts)) <= max_bytes
    assert "".join("".join(map(bytes.decode, parts)).split()) == "".join(line.split())
    assert 0 <= len(data) - sum(map(len, parts)) <= len(parts) - 1


def test_very_long_line_is_split_in_linear_time():
    assert sum(map(len, module._split_line(b"a" * 3_000_000, 16))) == 3_000_000


def test_special_tokens_are_not_trained_on():
    trained = train(["ab<x>" * 50], special_tokens=["<x>"], vocab_size=8, model_type="bpe")
    assert not any(b"x" in piece or b"<" in piece for piece in list(trained.vocab.values())[3:])
    assert tokjax.special_tokens(trained.tokenizer)["<x>"] == 2


def test_random_sample_of_sentences():
    lines = [f"{i:03}" for i in range(1000)]
    trained = train(iter(lines), vocab_size=1100, model_type="word", max_sentences=200)
    assert trained.stats.notes[0] == "sentences trained on: 200 (600 bytes)"
    assert trained.stats.documents == 1000
    drawn = sorted(int(piece[3:]) for piece in list(trained.vocab.values())[2:])
    assert len(drawn) == 200
    assert drawn == sorted(map(int, module._sample(iter(lines), 200)))
    np.testing.assert_allclose(np.quantile(drawn, [0.25, 0.5, 0.75]), [250, 500, 750], atol=80)
    assert train(lines, max_sentences=1000).tokenizer == train(lines).tokenizer


@pytest.mark.parametrize("model_type", SIZES)
def test_incomplete_vocabulary_is_reported(model_type, caplog):
    with caplog.at_level(logging.WARNING, "tokjax"):
        trained = train(["low lower"], vocab_size=1000, model_type=model_type)
    size = tokjax.vocab_size(trained.tokenizer)
    assert trained.stats.exhausted
    assert caplog.messages == [f"the text has no more pieces: the vocabulary has {size} ids, not 1000"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"vocab_size": 2},
            "2 special tokens and symbols, no bytes and one piece need at least 3",
        ),
        (
            {"byte_fallback": True, "vocab_size": 200},
            "vocab_size is 200; .*, 256 bytes and one piece need at least 259",
        ),
        (
            {"vocab_size": 20},
            r"vocab_size is 20; the special .* need (\d+): pass vocab",
        ),
        ({"vocab_size": "many"}, "vocab_size must be an integer, not 'many'"),
        ({"model_type": "wordpiece"}, "'bpe', 'word' or 'char', not 'wordpiece'"),
        ({"normalization": "nfd"}, "normalization must be 'nmt_nfkc', 'nfkc', .*, not 'nfd'"),
        ({"character_coverage": 0.5}, "character_coverage must be a number, from 0.98 to 1, not 0.5"),
        ({"character_coverage": "all"}, "character_coverage must be a number, from 0.98 to 1, not 'all'"),
        ({"max_sentence_bytes": 3}, "max_sentence_bytes must be at least 16, not 3"),
        ({"max_sentences": 0}, "max_sentences must be at least 1, not 0"),
        ({"split_digits": "no"}, "split_digits must be True or False, not 'no'"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"workers": 10**6}, "workers must be at most 1024, not 1000000"),
        ({"special_tokens": "<x>"}, "special_tokens must be a list of names"),
        ({"user_defined_symbols": "<x>"}, "user_defined_symbols must be a list of names, not '<x>'"),
        ({"user_defined_symbols": [""]}, "'' must be a non-empty string without surrogates"),
        ({"user_defined_symbols": ["</s>"]}, "'</s>' is a duplicate, or a special token"),
        ({"user_defined_symbols": ["<x>", "<x>"]}, "'<x>' is a duplicate, or a special token"),
        (
            {"user_defined_symbols": ["a b"]},
            "symbol 'a b' contains a space or U\\+0000, .*; write U\\+2581 for a space",
        ),
        ({"user_defined_symbols": ["<0x41>"]}, "'<0x41>' is the name of a byte piece"),
        ({"special_tokens": ["\ud800"]}, r"special token '\\ud800' has a lone surrogate"),
        ({"unk_token": None}, "unk_token is None; a model needs that piece"),
        ({"eos_token": "<unk>"}, "eos_token and unk_token are both '<unk>'"),
        ({"source": "no such file"}, "source 'no such file' is not a file"),
        ({"source": [b"a", 3]}, "text 1 of the source must be str or bytes, not int"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        train(**options)


def test_vocab_size_of_error_message_is_sufficient():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="need") as error:
        train(vocab_size=20)
    minimum = int(str(error.value).split("need ")[1].split(":")[0])
    assert tokjax.vocab_size(train(vocab_size=minimum).tokenizer) == minimum
    with pytest.raises(tokjax.errors.InvalidArgumentError):
        train(vocab_size=minimum - 1)


@pytest.mark.parametrize("source", [[], [""], ["\n\n"], [" \n "]])
def test_no_text(source):
    with pytest.raises(tokjax.errors.TrainingError, match="the source has no text to train on"):
        train(source)


@pytest.mark.parametrize("failure", [KeyError("missing"), KeyboardInterrupt(), OSError("disk")])
def test_source_errors_propagate(failure):
    def texts():
        yield from TEXTS
        raise failure

    with pytest.raises(type(failure)) as error:
        train(texts())
    assert error.value is failure


def test_piece_with_several_roles():
    tokenizer = train(eos_token="<e>", pad_token="<e>", bos_token="<e>").tokenizer
    assert tokjax.pad_id(tokenizer) == tokjax.eos_id(tokenizer) == tokjax.bos_id(tokenizer) == 1
    assert tokjax.encode_result(tokenizer, "").ids.tolist() == [1, 1]
