"""Tests of corpus sources: files, documents and iterables of texts."""

import pathlib

import tokjax
from tests.support.rejections import rejects
from tokjax.corpus import sources
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import FileChunk
from tokjax.corpus.sources import find_source_files, iter_text_chunks


def test_documents_of_files_and_texts(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"a<|e|><|e|>b\xc3\xa9<|e|>")
    assert list(tokjax.corpus.read_documents(path, "<|e|>")) == [b"a", b"b\xc3\xa9"]
    assert list(tokjax.corpus.read_documents([path, path], None)) == [path.read_bytes()] * 2
    assert list(tokjax.corpus.read_documents(["a<|e|>b", ""], "<|e|>")) == ["a", "b"]
    assert list(tokjax.corpus.read_documents(iter(["a<|e|>b", ""]), None)) == ["a<|e|>b"]
    (tmp_path / "empty.txt").write_bytes(b"")
    assert list(tokjax.corpus.read_documents([path, tmp_path / "empty.txt"], "<|e|>")) == [b"a", b"b\xc3\xa9"]


def test_texts_are_collected_in_chunks(monkeypatch):
    assert [chunk.items for chunk in iter_text_chunks(["a", "", "b", "c"], 100)] == [("a", "b"), ("c",)]
    monkeypatch.setattr(sources, "_OBJECT_BYTES", 0)
    chunks = list(iter_text_chunks(["abc", b"de", "", "f", "ghij"], 4))
    assert [chunk.items for chunk in chunks] == [("abc", b"de"), ("f", "ghij")]
    assert [chunk.nbytes for chunk in chunks] == [5, 5]
    assert list(iter_text_chunks([], 4)) == []


def test_source_types(tmp_path, monkeypatch):
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
        with rejects(message):
            find_source_files(wrong)
    assert FileChunk(path, 1, 3, 2).read() == [(b"ex", False)]


def test_a_text_that_is_too_long_for_a_path():
    with rejects("is not a file"):
        find_source_files("hello world " * 10_000)
    with rejects(r"text 0 of the source is a path.*list\(paths\)"):
        list(iter_text_chunks((p for p in [pathlib.Path("a.txt")]), 10))
