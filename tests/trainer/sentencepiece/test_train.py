"""Training SentencePiece models: what the library makes of the same lines, and nothing lost unsaid."""

import io
import logging

import numpy as np
import pytest
import sentencepiece as library
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.text_strategies import hard_texts
from tokjax.trainer import Trained, train_sentencepiece
from tokjax.trainer.sentencepiece import sentences
from tokjax.trainer.sentencepiece.sentences import (
    Tally,
    open_line_corpus,
    read_sentences,
    sample_sentences,
    split_line,
)

TEXTS = CORPUS * 3
LINES = [line.rstrip("\r") for text in TEXTS for line in text.split("\n") if line.rstrip("\r")]
SIZES = {"unigram": 300, "bpe": 300, "char": 100, "word": 60}


def train(source=TEXTS, **options):
    return train_sentencepiece(source, progress=False, **({"vocab_size": 300} | options))


def train_by_library(lines, **options):
    written = io.BytesIO()
    options = {
        "hard_vocab_limit": False,
        "bos_id": -1,
        "eos_id": 1,
        "minloglevel": 2,
        "num_threads": 16,
    } | options
    library.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=written, **options)
    return library.SentencePieceProcessor(model_proto=written.getvalue())


def get_pieces(processor):
    ids = list(range(len(processor)))
    return list(zip(processor.id_to_piece(ids), processor.get_score(ids), strict=True))


def split_sentences(source, *, special=(), longest=4192, long_lines="split"):
    chunks = open_line_corpus(source, special).chunks
    tally, read = Tally(), []
    sentences = read_sentences(chunks, special, longest, long_lines, tally, read.append)
    return list(sentences), tally, sum(read)


@pytest.mark.parametrize("model_type", SIZES)
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
def test_it_is_what_the_library_trains(model_type, normalization):
    options = {"model_type": model_type, "vocab_size": SIZES[model_type]}
    ours = train(normalization=normalization, **options)
    theirs = train_by_library(LINES, normalization_rule_name=normalization, **options)
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
    theirs = train_by_library(
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
    ]
    assert (tokjax.bos_id(ours.tokenizer), tokjax.pad_id(ours.tokenizer)) == (1, 3)
    assert ours.vocab[5] == b"<call>"
    assert ours.options["trainer"] == "sentencepiece"
    assert ours.options["user_defined_symbols"] == ["<call>", "a,b", 'q"']


@pytest.mark.parametrize("model_type", SIZES)
def test_training_again_gives_the_same_bytes(model_type):
    first, second = (train(model_type=model_type, vocab_size=SIZES[model_type]) for _ in range(2))
    assert first.tokenizer.model_proto == second.tokenizer.model_proto
    assert first.tokenizer == second.tokenizer


def test_files_and_texts_are_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(sentences, "_CHUNK_BYTES", 100)
    separator = "<|endoftext|>"
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_bytes(separator.join(TEXTS[:7]).encode())
    paths[1].write_bytes((separator + separator.join(TEXTS[7:]) + separator).encode())
    from_files = train(paths, special_tokens=[separator], vocab_size=200, model_type="bpe")
    from_texts = train(iter(TEXTS), special_tokens=[separator], vocab_size=200, model_type="bpe")
    assert from_files.tokenizer == from_texts.tokenizer
    for name in ("documents", "bytes", "unique_words", "bytes_per_token", "notes"):
        assert getattr(from_files.stats, name) == getattr(from_texts.stats, name), name
    assert from_files.stats.documents == len(TEXTS)
    assert from_files.stats.bytes == sum(len(text.encode()) for text in TEXTS)
    assert [file.path for file in from_files.stats.files] == [str(path) for path in paths]
    assert [file.nbytes for file in from_files.stats.files] == [path.stat().st_size for path in paths]
    assert from_texts.stats.files == ()


def test_what_training_saw():
    stats = train(["low low  lower\n\n\r\nlow\tlowest\r\n", "", "lower"], vocab_size=12).stats
    assert (stats.documents, stats.unique_words) == (2, 3)
    assert stats.bytes == len(b"low low  lower\n\n\r\nlow\tlowest\r\nlower")
    assert stats.notes == ("sentences trained on: 3 (29 bytes)",)
    assert set(stats.seconds) == {"reading", "training"}
    assert min(stats.seconds.values()) >= 0
    assert not stats.exhausted


def test_bytes_per_token_is_measured(monkeypatch):
    trained = train(model_type="bpe")
    num_tokens = sum(len(tokjax.encode(trained.tokenizer, line, add_special_tokens=False)) for line in LINES)
    assert trained.stats.bytes_per_token == sum(len(line.encode()) for line in LINES) / num_tokens
    monkeypatch.setattr("tokjax.trainer.sentencepiece.train._MEASURED_BYTES", 100)
    measured = LINES[:2]
    note = f"bytes_per_token is of the first {sum(map(len, measured))} bytes of them"
    stats = train(model_type="bpe").stats
    assert note in stats.notes
    assert stats.bytes_per_token == sum(map(len, measured)) / sum(
        len(tokjax.encode(trained.tokenizer, line, add_special_tokens=False)) for line in measured
    )


def test_long_lines_are_split():
    line = "one two three four five six seven eight"
    sentences, tally, read = split_sentences([f"{line}\nshort"], longest=16)
    assert sentences == [b"one two three", b"four five six", b"seven eight", b"short"]
    assert tally.notes(16) == [f"lines over 16 bytes, split into 3 sentences ({len(line)} bytes): 1"]
    assert read == len(line) + 6
    sentences, _, _ = split_sentences(["é" * 20], longest=17)
    assert sentences == ["é".encode() * n for n in (8, 8, 4)]


def test_long_lines_are_dropped_and_counted():
    line = "one two three four five six seven eight"
    sentences, tally, _ = split_sentences([line, "short", line], longest=16, long_lines="drop")
    assert sentences == [b"short"]
    assert tally.notes(16) == [f"lines over 16 bytes, left out ({2 * len(line)} bytes): 2"]
    trained = train([*LINES, "x" * 5000], long_lines="drop", model_type="bpe")
    assert get_pieces(trained.tokenizer.processor) == get_pieces(
        train_by_library([*LINES, "x" * 5000], vocab_size=300, model_type="bpe")
    )
    assert "lines over 4,192 bytes, left out (5,000 bytes): 1" in trained.stats.notes


def test_line_at_the_limit_is_used():
    assert split_sentences(["a" * 16], longest=16)[0] == [b"a" * 16]
    assert split_sentences(["a" * 17], longest=16)[0] == [b"a" * 16, b"a"]
    in_two = train(["ab" * 2500], vocab_size=12)
    assert in_two.stats.notes[1] == "lines over 4,192 bytes, split into 2 sentences (5,000 bytes): 1"


@given(line=hard_texts, longest=st.integers(16, 40))
def test_no_part_is_too_long_and_nothing_is_lost(line, longest):
    data = line.encode()
    parts = list(split_line(data, longest))
    assert max(map(len, parts)) <= longest
    for part in parts:
        part.decode()

    def remove_spaces(text):
        return text.replace(b" ", b"").replace(b"\t", b"")

    assert remove_spaces(b"".join(parts)) == remove_spaces(data)
    assert 0 <= len(data) - sum(map(len, parts)) <= len(parts) - 1


def test_a_very_long_line_takes_linear_time():
    assert sum(map(len, split_line(b"a" * 3_000_000, 16))) == 3_000_000


def test_unsupported_characters():
    texts = ["a\ud800b\udfff", b"c\xff\xfed", "e\0f", "g\u2585h", "\ud83d\ude42", "\ufffd"]
    sentences, tally, _ = split_sentences(texts)
    assert sentences == [
        "a\ufffdb\ufffd".encode(),
        "c\ufffd\ufffdd".encode(),
        b"e\0f",
        b"g",
        b"h",
        "🙂".encode(),
        "\ufffd".encode(),
    ]
    assert tally.notes(4192) == [
        "lone surrogates and bytes that are no UTF-8, made U+FFFD: 4",
        "characters U+0000, which can be in no piece: 1",
        "characters U+2585, which the library reserves, made ends of lines: 1",
    ]
    trained = train(texts, vocab_size=14, model_type="char", normalization="identity", character_coverage=1.0)
    pieces = set(trained.vocab.values())
    assert {letter.encode() for letter in "abcdefgh🙂\ufffd"} <= pieces
    assert not any(b"\0" in piece for piece in pieces)


def test_special_tokens_split_the_text():
    sentences, tally, _ = split_sentences(["ab<x>cd\nef", b"<x><y>gh"], special=("<x>", "<y>"))
    assert sentences == [b"ab", b"cd", b"ef", b"gh"]
    assert (tally.documents, tally.nbytes) == (3, 9)
    trained = train(["ab<x>" * 50], special_tokens=["<x>"], vocab_size=8, model_type="bpe")
    assert not any(b"x" in piece or b"<" in piece for piece in list(trained.vocab.values())[3:])
    assert tokjax.special_tokens(trained.tokenizer)["<x>"] == 2


def test_some_of_the_sentences():
    lines = [str(i).encode() for i in range(1000)]
    some = sample_sentences(lines, 50, seed=3)
    assert some == sample_sentences(lines, 50, seed=3)
    assert some != sample_sentences(lines, 50, seed=4)
    assert len(set(some)) == 50
    assert set(some) <= set(lines)
    assert sample_sentences(lines, 2000, seed=3) == lines
    chosen = np.array([int(line) for seed in range(40) for line in sample_sentences(lines, 50, seed=seed)])
    assert 450 < chosen.mean() < 550
    stats = train(max_sentences=5, vocab_size=150, seed=1).stats
    assert stats.notes[0].startswith("sentences trained on: 5 (")
    assert stats.documents == len(TEXTS)


@pytest.mark.parametrize("model_type", SIZES)
def test_a_vocabulary_that_can_not_be_filled(model_type, caplog):
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
        ({"model_type": "wordpiece"}, "model_type must be one of unigram, bpe, word, char, not 'wordpiece'"),
        ({"normalization": "nfd"}, "normalization must be one of nmt_nfkc, nfkc, .*, not 'nfd'"),
        ({"long_lines": "keep"}, "long_lines must be one of split, drop, not 'keep'"),
        ({"character_coverage": 0.5}, "character_coverage must be a number, from 0.98 to 1, not 0.5"),
        ({"character_coverage": "all"}, "character_coverage must be a number, from 0.98 to 1, not 'all'"),
        ({"max_sentence_bytes": 3}, "max_sentence_bytes must be at least 16, not 3"),
        ({"max_sentences": 0}, "max_sentences must be at least 1, not 0"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"special_tokens": "<x>"}, "special_tokens is a list of names"),
        ({"user_defined_symbols": "<x>"}, "user_defined_symbols is a list of names, not '<x>'"),
        ({"user_defined_symbols": [""]}, "user-defined symbol 0 must be a text, not ''"),
        ({"user_defined_symbols": ["</s>"]}, "'</s>' stands twice, or is a special token"),
        ({"user_defined_symbols": ["<x>", "<x>"]}, "'<x>' stands twice, or is a special token"),
        ({"special_tokens": ["\ud800"]}, r"special token '\\ud800' has a lone surrogate"),
        ({"unk_token": None}, "unk_token is None; a model needs that piece"),
        ({"eos_token": "<unk>"}, "eos_token and unk_token are both '<unk>'"),
        ({"source": "no such file"}, "source 'no such file' is not a file"),
        ({"source": [b"a", 3]}, "text 1 of the source must be str or bytes, not int"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        train(**options)


def test_the_vocab_size_that_is_named_is_enough():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="need") as error:
        train(vocab_size=20)
    minimum = int(str(error.value).split("need ")[1].split(":")[0])
    assert tokjax.vocab_size(train(vocab_size=minimum).tokenizer) == minimum
    with pytest.raises(tokjax.errors.InvalidArgumentError):
        train(vocab_size=minimum - 1)


@pytest.mark.parametrize("source", [[], [""], ["\n\n"], ["x" * 100]])
def test_no_text(source):
    with pytest.raises(tokjax.errors.TrainingError, match="the source has no text to train on"):
        train(source, long_lines="drop", max_sentence_bytes=50)


@pytest.mark.parametrize("failure", [KeyError("gone"), KeyboardInterrupt(), OSError("disk")])
def test_source_errors_propagate(failure):
    def texts():
        yield from TEXTS
        raise failure

    with pytest.raises(type(failure)) as error:
        train(texts())
    assert error.value is failure


def test_what_is_shown(capfd):
    train_sentencepiece(TEXTS, vocab_size=300)
    shown = capfd.readouterr()
    assert shown.out == ""
    lines = [line for line in shown.err.splitlines() if line.strip()]
    assert {line.split()[0] for line in lines} == {"reading", "training"}
    train()
    assert capfd.readouterr().err == ""


def test_one_piece_with_two_roles():
    tokenizer = train(eos_token="<e>", pad_token="<e>", bos_token="<e>").tokenizer
    assert tokjax.pad_id(tokenizer) == tokjax.eos_id(tokenizer) == tokjax.bos_id(tokenizer) == 1
    assert tokjax.encode_result(tokenizer, "").ids.tolist() == [1, 1]


def test_the_tokenizer_works_with_the_rest(tmp_path):
    tokenizer = train(byte_fallback=True, vocab_size=480, model_type="bpe", pad_token="<pad>").tokenizer
    batch = tokjax.encode_batch_result(tokenizer, TEXTS)
    padded = tokjax.collate_padded_batch(batch, pad_id=tokjax.pad_id(tokenizer))
    assert padded.ids.shape == (len(TEXTS), batch.lengths.max())
    assert (padded.ids[np.arange(len(TEXTS)), batch.lengths - 1] == tokjax.eos_id(tokenizer)).all()
    again = tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path / "tokenizer.json"))
    assert again == tokenizer
    field = tokjax.PackedTokenField(tokenizer)
    tokjax.write_dataset(TEXTS, field, tmp_path / "packed")
    dataset = tokjax.open_dataset(tmp_path / "packed")
    assert dataset.tokenizer == tokenizer
    assert dataset.read(0, len(batch.ids)).tolist() == batch.ids.tolist()
    assert tokjax.quick_causal_lm_batch(tokenizer, TEXTS[:2]).labels.shape[0] == 2
