"""Tests of reading sentences for SentencePiece training: long lines, unsupported characters, sampling."""

import numpy as np
from hypothesis import given, strategies as st

from tests.support.text_strategies import hard_texts
from tokjax.trainer.sentencepiece.sentences import (
    Tally,
    open_line_corpus,
    read_sentences,
    sample_sentences,
    split_line,
)


def split_sentences(source, *, special=(), max_bytes=4192, long_lines="split"):
    """Returns the sentences of a source, their tally, and the number of bytes that were reported as read."""
    chunks = open_line_corpus(source, special).chunks
    tally, advances = Tally(), []
    sentences = read_sentences(chunks, special, max_bytes, long_lines, tally, advances.append)
    return list(sentences), tally, sum(advances)


def test_long_lines_are_split():
    line = "one two three four five six seven eight"
    sentences, tally, read = split_sentences([f"{line}\nshort"], max_bytes=16)
    assert sentences == [b"one two three", b"four five six", b"seven eight", b"short"]
    assert tally.make_notes(16) == [f"lines over 16 bytes, split into 3 sentences ({len(line)} bytes): 1"]
    assert read == len(line) + 6
    sentences, _, _ = split_sentences(["é" * 20], max_bytes=17)
    assert sentences == ["é".encode() * n for n in (8, 8, 4)]


def test_long_lines_are_dropped_and_counted():
    line = "one two three four five six seven eight"
    sentences, tally, _ = split_sentences([line, "short", line], max_bytes=16, long_lines="drop")
    assert sentences == [b"short"]
    assert tally.make_notes(16) == [f"lines over 16 bytes, left out ({2 * len(line)} bytes): 2"]


@given(line=hard_texts, max_bytes=st.integers(16, 40))
def test_parts_are_bounded_and_complete(line, max_bytes):
    data = line.encode()
    parts = list(split_line(data, max_bytes))
    assert max(map(len, parts)) <= max_bytes
    for part in parts:
        part.decode()

    def remove_spaces(text):
        return text.replace(b" ", b"").replace(b"\t", b"")

    assert remove_spaces(b"".join(parts)) == remove_spaces(data)
    assert 0 <= len(data) - sum(map(len, parts)) <= len(parts) - 1


def test_very_long_line_is_split_in_linear_time():
    assert sum(map(len, split_line(b"a" * 3_000_000, 16))) == 3_000_000


def test_unsupported_characters_are_replaced_and_reported():
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
    assert tally.make_notes(4192) == [
        "lone surrogates and invalid UTF-8 bytes, replaced by U+FFFD: 4",
        "U+0000 characters, which can't be in a piece: 1",
        "U+2585 characters, reserved by the library, treated as line ends: 1",
    ]


def test_special_tokens_split_the_text():
    sentences, tally, _ = split_sentences(["ab<x>cd\nef", b"<x><y>gh"], special=("<x>", "<y>"))
    assert sentences == [b"ab", b"cd", b"ef", b"gh"]
    assert (tally.documents, tally.nbytes) == (3, 9)


def test_random_sample_of_sentences():
    lines = [str(i).encode() for i in range(1000)]
    sample = sample_sentences(lines, 50, seed=3)
    assert sample == sample_sentences(lines, 50, seed=3)
    assert sample != sample_sentences(lines, 50, seed=4)
    assert len(set(sample)) == 50
    assert set(sample) <= set(lines)
    assert sample_sentences(lines, 2000, seed=3) == lines
    sampled_values = np.array(
        [int(line) for seed in range(40) for line in sample_sentences(lines, 50, seed=seed)]
    )
    assert 450 < sampled_values.mean() < 550
