"""Cutting files, with plain `split` as the oracle."""

import io
import pathlib

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles.naive_bpe import split_pretokens
from tests.support.hypothesis_profiles import is_thorough
from tests.support.text_strategies import hard_texts
from tokjax.corpus import chunk_boundaries as chunks_module, sources
from tokjax.corpus.chunk_boundaries import refine_boundaries
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import FileChunk, iter_file_chunks
from tokjax.corpus.sources import SpooledTexts, find_source_files, iter_text_chunks
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter
from tokjax.trainer.counting import count_chunk, count_pretokens

separators = st.sampled_from([b"|", b"aa", b"aba", b"<|e|>", b"\n\n"])


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Reads of a few bytes, so that separators straddle them."""
    monkeypatch.setattr(chunks_module, "_WINDOW", 3)


def split_at_boundaries(data, boundaries):
    return [data[a:b] for a, b in zip(boundaries, boundaries[1:], strict=False)]


def check_boundaries(data, boundaries):
    assert boundaries[0] == 0
    assert boundaries[-1] == len(data)
    assert boundaries == sorted(set(boundaries))


@given(st.lists(st.sampled_from(list(b"ab|<e>\n")), max_size=60).map(bytes), st.integers(1, 12), separators)
def test_chunks_split_like_the_full_text(data, number, separator):
    boundaries = tokjax.find_chunk_boundaries(io.BytesIO(data), number, separator)
    check_boundaries(data, boundaries)
    assert len(boundaries) <= number + 1
    pieces = []
    for i, chunk in enumerate(split_at_boundaries(data, boundaries)):
        found = chunk.split(separator)
        if i:
            assert found[0] == b""  # the chunk starts with the separator
            found = found[1:]
        pieces += found
    assert pieces == data.split(separator) or (data == b"" and pieces == [])


def test_a_separator_across_two_reads(monkeypatch):
    monkeypatch.setattr(chunks_module, "_WINDOW", 1 << 16)
    for position in range(65_530, 65_540):
        data = b"x" * (10 + position) + b"<|endoftext|>" + b"y" * 200_000
        assert tokjax.find_chunk_boundaries(io.BytesIO(data), 20_000, b"<|endoftext|>")[1] == 10 + position


def test_several_separators_that_overlap():
    data = b"..abc..bcd..abcd.."
    boundaries = tokjax.find_chunk_boundaries(io.BytesIO(data), 9, [b"abc", b"bcd"])
    assert boundaries == [0, 2, 7, 12, 18]  # not at the "bcd" inside "abcd"


def test_invalid_arguments_are_rejected():
    file = io.BytesIO(b"abc")
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="desired_num_chunks must be at least 1, not 0"
    ):
        tokjax.find_chunk_boundaries(file, 0, b"|")
    for wrong in ("|", b"", [], ["|"], [b""]):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="split_special_token"):
            tokjax.find_chunk_boundaries(file, 2, wrong)
    assert tokjax.find_chunk_boundaries(io.BytesIO(b""), 3, b"|") == [0]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=hard_texts, longest=st.integers(1, 10))
def test_boundaries_preserve_pretokens(pattern, text, longest):
    data = text.encode()
    boundaries = refine_boundaries(
        io.BytesIO(data), [0, len(data)] if data else [0], longest, [b"o w", b"1 \n"]
    )
    check_boundaries(data, boundaries)
    words = [
        w
        for part in split_at_boundaries(data, boundaries)
        for w in make_pattern_splitter(pattern).split(part.decode())
    ]
    assert words == make_pattern_splitter(pattern).split(text)
    assert all(len(part) >= longest for part in split_at_boundaries(data, boundaries)[:-1])
    assert sum(part.count(b"o w") for part in split_at_boundaries(data, boundaries)) == data.count(b"o w")


@given(texts=st.lists(hard_texts, min_size=1, max_size=5), longest=st.integers(8, 40))
def test_files_in_chunks_have_the_words_of_the_file(tmp_path_factory, texts, longest):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_bytes("<|e|>".join(texts).encode())
    for safe_splits in (False, True):
        chunks = list(iter_file_chunks(text_files(path), ["<|e|>"], longest, safe_splits=safe_splits))
        words = [
            pretoken
            for chunk in chunks
            for text, _ in chunk.read()
            for pretoken in split_pretokens(text.decode(), ["<|e|>"], "gpt2")
        ]
        assert words == split_pretokens("<|e|>".join(texts), ["<|e|>"], "gpt2")
        assert sum(chunk.nbytes for chunk in chunks) == path.stat().st_size
        assert [chunk.read()[0][1] for chunk in chunks] == [i == 0 for i in range(len(chunks))]


def test_documents_of_a_file(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"a<|e|><|e|>b\xc3\xa9<|e|>")
    assert list(tokjax.corpus.read_documents(path, "<|e|>")) == [b"a", b"b\xc3\xa9"]
    assert list(tokjax.corpus.read_documents([path, path], None)) == [path.read_bytes()] * 2
    assert list(tokjax.corpus.read_documents(["a<|e|>b", ""], "<|e|>")) == ["a", "b"]
    assert list(tokjax.corpus.read_documents(iter(["a<|e|>b", ""]), None)) == ["a<|e|>b"]
    (tmp_path / "empty.txt").write_bytes(b"")
    assert list(tokjax.corpus.read_documents([path, tmp_path / "empty.txt"], "<|e|>")) == [b"a", b"b\xc3\xa9"]


def test_texts_are_gathered(monkeypatch):
    assert [chunk.texts for chunk in iter_text_chunks(["a", "", "b", "c"], 100)] == [("a", "b"), ("c",)]
    monkeypatch.setattr(sources, "_OBJECT_BYTES", 0)
    chunks = list(iter_text_chunks(["abc", b"de", "", "f", "ghij"], 4))
    assert [chunk.texts for chunk in chunks] == [("abc", b"de"), ("f", "ghij")]
    assert [chunk.nbytes for chunk in chunks] == [5, 5]
    assert list(iter_text_chunks([], 4)) == []


def test_spooled_texts_can_be_read_again():
    texts = ["line\nbreak", b"\xff", "é", "\ud800"]
    with SpooledTexts(iter(texts)) as spooled:
        first = list(spooled)
        assert list(spooled) == first == [tokjax.offsets.to_utf8(text) for text in texts]


def test_sources(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("text")
    assert (
        find_source_files(str(path))
        == find_source_files(path)
        == find_source_files([path])
        == text_files([path])
    )
    assert find_source_files(["some text"]) is None
    assert find_source_files(iter([])) is None
    monkeypatch.chdir(tmp_path)
    for wrong, message in (
        ("no such file", "is not a file"),
        ([tmp_path], "is a directory without Parquet files"),
        ([path, "text"], "mixes paths and texts"),
        (["a.txt"], "pass text_files\\("),
        (["a text", "a.txt"], r"'a\.txt' is the name of a file"),
        ({"code": ["x"]}, r"a dict with the keys \['code'\]; pass one of its values"),
        (b"text", r"pass \[text\]"),
        (3, "not int"),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            find_source_files(wrong)
    assert FileChunk(path, 1, 3, 2).read() == [(b"ex", False)]


def test_a_text_that_is_too_long_for_a_name():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="is not a file"):
        find_source_files("hello world " * 10_000)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"text 0 of the source is a path.*list\(paths\)"
    ):
        list(iter_text_chunks((p for p in [pathlib.Path("a.txt")]), 10))


def test_documents_at_chunk_boundaries_count_once(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"word word aa word aa word word aa" * 40)
    for size in range(5, 60, 1 if is_thorough() else 7):
        split_chunks = iter_file_chunks(text_files(path), ["aa"], size, safe_splits=True)
        documents = sum(
            count_chunk(chunk, special_tokens=("aa",), pattern="gpt2").documents for chunk in split_chunks
        )
        full_text = count_pretokens(path, special_tokens=["aa"], pattern="gpt2", workers=1, progress=False)
        assert documents == full_text.documents
