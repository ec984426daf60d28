"""Tests of chunk boundaries, with `bytes.split` as the oracle."""

import io

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles.naive_bpe import split_pretokens
from tests.support.text_strategies import hard_texts
from tokjax.corpus import chunk_boundaries
from tokjax.corpus.chunk_boundaries import refine_boundaries
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import iter_file_chunks
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter

separators = st.sampled_from([b"|", b"aa", b"aba", b"<|e|>", b"\n\n"])


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Uses windows of a few bytes, so that separators cross them."""
    monkeypatch.setattr(chunk_boundaries, "_WINDOW", 3)


def split_at_boundaries(data, boundaries):
    return [data[a:b] for a, b in zip(boundaries, boundaries[1:], strict=False)]


def check_boundaries(data, boundaries):
    assert boundaries[0] == 0
    assert boundaries[-1] == len(data)
    assert boundaries == sorted(set(boundaries))


@given(st.lists(st.sampled_from(list(b"ab|<e>\n")), max_size=60).map(bytes), st.integers(1, 12), separators)
def test_splitting_chunks_equals_splitting_the_text(data, number, separator):
    boundaries = tokjax.corpus.find_chunk_boundaries(io.BytesIO(data), number, separator)
    check_boundaries(data, boundaries)
    assert len(boundaries) <= number + 1
    pieces = []
    for i, chunk in enumerate(split_at_boundaries(data, boundaries)):
        chunk_pieces = chunk.split(separator)
        if i:
            assert chunk_pieces[0] == b""  # the chunk starts with the separator
            chunk_pieces = chunk_pieces[1:]
        pieces += chunk_pieces
    assert pieces == data.split(separator) or (data == b"" and pieces == [])


def test_a_separator_across_two_reads(monkeypatch):
    monkeypatch.setattr(chunk_boundaries, "_WINDOW", 1 << 16)
    for position in range(65_530, 65_540):
        data = b"x" * (10 + position) + b"<|endoftext|>" + b"y" * 200_000
        assert (
            tokjax.corpus.find_chunk_boundaries(io.BytesIO(data), 20_000, b"<|endoftext|>")[1]
            == 10 + position
        )


def test_overlapping_separators_are_not_split():
    data = b"..abc..bcd..abcd.."
    boundaries = tokjax.corpus.find_chunk_boundaries(io.BytesIO(data), 9, [b"abc", b"bcd"])
    assert boundaries == [0, 2, 7, 12, 18]  # not at the "bcd" inside "abcd"


def test_invalid_arguments_are_rejected():
    file = io.BytesIO(b"abc")
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="desired_num_chunks must be at least 1, not 0"
    ):
        tokjax.corpus.find_chunk_boundaries(file, 0, b"|")
    for wrong in ("|", b"", [], ["|"], [b""]):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="split_special_token"):
            tokjax.corpus.find_chunk_boundaries(file, 2, wrong)
    assert tokjax.corpus.find_chunk_boundaries(io.BytesIO(b""), 3, b"|") == [0]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=hard_texts, target_nbytes=st.integers(1, 10))
def test_boundaries_preserve_pretokens(pattern, text, target_nbytes):
    data = text.encode()
    boundaries = refine_boundaries(
        io.BytesIO(data), [0, len(data)] if data else [0], target_nbytes, [b"o w", b"1 \n"]
    )
    check_boundaries(data, boundaries)
    pretokens = [
        pretoken
        for part in split_at_boundaries(data, boundaries)
        for pretoken in make_pattern_splitter(pattern).split(part.decode())
    ]
    assert pretokens == make_pattern_splitter(pattern).split(text)
    assert all(len(part) >= target_nbytes for part in split_at_boundaries(data, boundaries)[:-1])
    assert sum(part.count(b"o w") for part in split_at_boundaries(data, boundaries)) == data.count(b"o w")


@given(texts=st.lists(hard_texts, min_size=1, max_size=5), target_nbytes=st.integers(8, 40))
def test_chunks_of_files_have_the_pretokens_of_the_file(tmp_path_factory, texts, target_nbytes):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_bytes("<|e|>".join(texts).encode())
    for safe_splits in (False, True):
        chunks = list(iter_file_chunks(text_files(path), ["<|e|>"], target_nbytes, safe_splits=safe_splits))
        pretokens = [
            pretoken
            for chunk in chunks
            for text, _ in chunk.read()
            for pretoken in split_pretokens(text.decode(), ["<|e|>"], "gpt2")
        ]
        assert pretokens == split_pretokens("<|e|>".join(texts), ["<|e|>"], "gpt2")
        assert sum(chunk.nbytes for chunk in chunks) == path.stat().st_size
        assert [chunk.read()[0][1] for chunk in chunks] == [i == 0 for i in range(len(chunks))]
