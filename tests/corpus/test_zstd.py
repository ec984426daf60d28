"""Tests of files compressed with zstd: frames, damage, windows, and the library that reads them."""

import json
import struct
import sys
import types

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.documents import read_bytes_of_documents
from tokjax.corpus import readers
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import iter_file_chunks
from tokjax.trainer import count_pretokens

TEXTS = [f"document {i} of a corpus\n" * (i % 9 + 1) for i in range(400)]
LINES = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)).encode()


@pytest.fixture(scope="module")
def zstd():
    return pytest.importorskip("backports.zstd")


def compress_in_frames(zstd, data, size):
    """Compresses each `size` bytes as a frame, as pzstd does, with metadata between the frames."""
    frames = [zstd.compress(data[i : i + size]) for i in range(0, len(data), size)]
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"notes"
    return skippable + skippable.join(frames) + skippable


@pytest.mark.parametrize("name", ["c.jsonl.zst", "c.json.zst", "c.jsonl.zstd", "C.JSONL.ZST"])
def test_records_of_all_frames_are_read(zstd, tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(compress_in_frames(zstd, LINES, 5000))
    expected = [text.encode() for text in TEXTS]
    assert read_bytes_of_documents(tmp_path / name) == expected
    assert count_pretokens(tmp_path / name, progress=False) == count_pretokens(TEXTS, progress=False)
    monkeypatch.setattr(readers, "_STREAM_BLOCK", 1000)
    chunks = list(iter_file_chunks(text_files(tmp_path / name), [], 1000, safe_splits=False))
    assert len(chunks) > 50
    assert sum(chunk.read_nbytes for chunk in chunks) == (tmp_path / name).stat().st_size


@given(
    pieces=st.lists(st.sampled_from(["a", "é", "|", "word ", "\n"]), min_size=1, max_size=40),
    size=st.integers(1, 20),
)
def test_frames_do_not_change_texts(zstd, tmp_path_factory, pieces, size):
    path = tmp_path_factory.mktemp("zstd") / "c.txt.zst"
    text = "".join(pieces)
    path.write_bytes(compress_in_frames(zstd, text.encode(), size))
    assert read_bytes_of_documents(path, "|") == [part.encode() for part in text.split("|") if part]


def test_interrupted_writes_resume(zstd, tmp_path, monkeypatch):
    path = tmp_path / "c.jsonl.zst"
    path.write_bytes(compress_in_frames(zstd, LINES, 5000))
    read = readers._iter_stream_chunks

    def stop_early(*arguments, **options):
        for i, chunk in enumerate(read(*arguments, **options)):
            if i == 15:
                raise KeyboardInterrupt
            yield chunk

    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 1000)
    with monkeypatch.context() as patch:
        patch.setattr(readers, "_iter_stream_chunks", stop_early)
        with pytest.raises(KeyboardInterrupt):
            tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "data", shard_size=3000)
    assert list((tmp_path / "data.incomplete").glob("shard-*.npy"))
    tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "data", shard_size=3000)
    assert list(tokjax.open_dataset(tmp_path / "data")) == TEXTS


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-30], "truncated or damaged, or not zstd: Compressed file ended before"),
        (lambda data: data + b"text", "truncated or damaged, or not zstd: .*Unknown frame descriptor"),
        (lambda _: b"text", "truncated or damaged, or not zstd: .*Unknown frame descriptor"),
        (lambda _: b"", "is empty, but a valid zstd file is never empty; is it truncated?"),
    ],
)
def test_damaged_files(zstd, tmp_path, damage, message):
    path = tmp_path / "c.txt.zst"
    path.write_bytes(damage(zstd.compress(LINES * 20)))
    with pytest.raises(tokjax.errors.SourceError, match=rf"c\.txt\.zst:? {message}"):
        read_bytes_of_documents(path)


def test_large_windows_are_rejected(zstd, tmp_path):
    options = {zstd.CompressionParameter.window_log: 28}
    with zstd.open(tmp_path / "c.txt.zst", "wb", options=options) as file:
        file.write(LINES)
    with pytest.raises(
        tokjax.errors.SourceError, match=r"a window of more than 128 MiB; .*zstd -d --long=31"
    ):
        read_bytes_of_documents(tmp_path / "c.txt.zst")


def test_the_standard_library_of_python_3_14(zstd, tmp_path, monkeypatch):
    (tmp_path / "c.txt.zst").write_bytes(zstd.compress(b"text"))
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression", types.ModuleType("compression"))
    monkeypatch.setitem(sys.modules, "compression.zstd", zstd)
    assert read_bytes_of_documents(tmp_path / "c.txt.zst") == [b"text"]
    (tmp_path / "c.txt.zst").write_bytes(b"text")
    with pytest.raises(tokjax.errors.SourceError, match="truncated or damaged, or not zstd"):
        read_bytes_of_documents(tmp_path / "c.txt.zst")


@pytest.mark.parametrize("missing", ["backports", "backports.zstd"])  # with or without other backports
def test_missing_library_is_reported(tmp_path, monkeypatch, missing):
    (tmp_path / "c.txt.zst").write_bytes(b"text")
    monkeypatch.delitem(sys.modules, "backports.zstd", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)  # which Python has from 3.14
    with pytest.raises(
        tokjax.errors.MissingExtraError,
        match=r"c\.txt\.zst needs backports\.zstd, which is not installed; pip install 'tokjax\[zstd\]'",
    ):
        read_bytes_of_documents(tmp_path / "c.txt.zst")
