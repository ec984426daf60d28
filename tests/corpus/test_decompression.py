"""Tests of opening corpus files: binary files, other encodings, directories, pipes and compression."""

import bz2
import gzip
import io
import lzma
import os
import re
import struct
import sys
import types
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.documents import read_bytes_of_documents
from tokjax.corpus.decompression import HEAD_BYTES, open_streams
from tokjax.corpus.files import TextFiles, text_files
from tokjax.corpus.readers import iter_file_chunks
from tokjax.trainer import count_pretokens

BINARY = bytes(range(256)) * 8
zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


@pytest.fixture
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def get_error_message(source, error=tokjax.errors.SourceError):
    """Returns the error message for a source: the same for reading, counting and writing."""
    with pytest.raises(error) as raised:
        read_bytes_of_documents(source)
    with pytest.raises(error, match=re.escape(str(raised.value))):
        count_pretokens(source, progress=False)
    with pytest.raises(error, match=re.escape(str(raised.value))):
        tokjax.write_dataset(source, tokjax.RawTextField(), "never-written")
    assert not list(Path.cwd().glob("never-written*"))
    return str(raised.value)


@pytest.mark.usefixtures("in_tmp_path")
class TestContents:
    @pytest.mark.parametrize(
        ("name", "contents", "message"),
        [
            ("a.txt", BINARY, "a.txt: byte 0 is NUL, but text is expected; the file is probably binary; "),
            ("a.txt", "one café".encode("latin-1"), "byte 7 (0xe9) is not valid UTF-8, but text is expected"),
            ("a.txt", "é".encode("latin-1"), "such as Latin-1; convert it with iconv -f latin1 -t utf-8"),
            ("a.txt", "text".encode("utf-16"), "text in UTF-16; convert it with iconv -f utf-16 -t utf-8"),
            ("a.txt", "text".encode("utf-32"), "text in UTF-32; convert it with iconv -f utf-32 -t utf-8"),
            ("a.txt", gzip.compress(b"text", mtime=0), "a gzip file; rename it to end with .gz"),
            ("a.txt", bz2.compress(BINARY), "a bzip2 file; rename it to end with .bz2"),
            ("a.txt", lzma.compress(b"text"), "an xz file; rename it to end with .xz"),
            ("a.txt", b"\x28\xb5\x2f\xfd\x00", "a zstd file; rename it to end with .zst"),
            ("a.txt", b"PAR1\x15\x00", "a Parquet file; pass text_files(PATH, format='parquet')"),
            ("a.jsonl", BINARY, "a.jsonl: byte 0 is NUL"),
            ("a.csv", BINARY, "a.csv: byte 0 is NUL"),
            ("a.txt.gz", gzip.compress(BINARY, mtime=0), "a.txt.gz: byte 0 is NUL"),
            ("a.txt", b"a" * (HEAD_BYTES - 2) + b"\xe9", f"byte {HEAD_BYTES - 2} (0xe9) is not valid"),
            ("a.txt", b"", "a.txt is empty; there is nothing to read"),
            ("a.txt.xz", lzma.compress(b""), "a.txt.xz is empty; there is nothing to read"),
        ],
    )
    def test_files_that_are_not_text_are_rejected_before_any_work(self, tmp_path, name, contents, message):
        (tmp_path / name).write_bytes(contents)
        (tmp_path / "0.txt").write_text("text")
        if contents and "empty" not in message:
            assert message in get_error_message([tmp_path / "0.txt", tmp_path / name])
        assert message in get_error_message(name)

    def test_bytes_of_binary_files_can_be_read(self, tmp_path):
        path = tmp_path / "a.bin"
        path.write_bytes(BINARY)
        assert "pass [path.read_bytes()]" in get_error_message(path)
        assert read_bytes_of_documents([path.read_bytes()]) == [BINARY]

    def test_character_at_the_end_of_the_checked_bytes(self, tmp_path):
        text = "a" * (HEAD_BYTES - 1) + "é"
        (tmp_path / "a.txt").write_text(text, "utf-8")
        assert read_bytes_of_documents(tmp_path / "a.txt") == [text.encode()]

    def test_empty_files_are_rejected(self, tmp_path):
        for name in "ab":
            (tmp_path / name).touch()
        assert (
            get_error_message([tmp_path / "a", tmp_path / "b"])
            == "all 2 files are empty; there is nothing to read"
        )

    def test_invalid_bytes_are_preserved_and_counted(self, tmp_path, caplog):
        caplog.set_level("WARNING", "tokjax")
        path = tmp_path / "a.txt"
        path.write_bytes(b"word " * HEAD_BYTES + b"<e>caf\xe9 caf\xe9<e>fine<e>\xff")
        assert read_bytes_of_documents(path, "<e>")[1:] == [b"caf\xe9 caf\xe9", b"fine", b"\xff"]
        at = 5 * HEAD_BYTES + 6
        assert caplog.messages == [
            f"2 documents have bytes that are not valid UTF-8, which were kept; the first is byte {at} of "
            + str(path)
        ]
        caplog.clear()
        count_pretokens(path, special_tokens=["<e>"], progress=False)
        assert caplog.messages == [
            "3 pre-tokens of the files are not valid UTF-8, and were kept; for example b'\\xe9'"
        ]

    def test_encode_files_checks_files_immediately(self, tmp_path, plain_tokenizer):
        (tmp_path / "a.txt").write_bytes(BINARY)
        with pytest.raises(tokjax.errors.SourceError, match="byte 0 is NUL"):
            tokjax.encode_files(plain_tokenizer, tmp_path / "a.txt", separator=None)


@pytest.mark.usefixtures("in_tmp_path")
class TestPaths:
    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "d/a.txt",
                r"source 'd' is a directory without Parquet files; pass a pattern, such as 'd/\*\*/\*\.txt'",
            ),
            ("d/v1.0/a.jsonl.gz", r"such as '.*/\*\*/\*\.jsonl\.gz'"),
            ("d/x.arrow", r"is a directory of Arrow files; pass the pattern 'd/\*\*/\*\.arrow'"),
            ("d/manifest.json", "open a tokjax dataset with open_dataset"),
        ],
    )
    def test_other_directories_get_a_hint(self, tmp_path, name, message):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
        assert re.search(message, get_error_message("d", tokjax.errors.InvalidArgumentError))

    def test_only_regular_files_are_opened(self, tmp_path):
        os.mkfifo("pipe")
        Path("loop").symlink_to("loop")
        Path("broken").symlink_to("none")
        for name, message in (
            ("pipe", "is a pipe or a device, not a regular file, and can't be read twice"),
            ("/dev/null", "is a pipe or a device"),
            ("loop", "is a symbolic link to itself"),
            ("broken", "is a broken symbolic link"),
        ):
            assert message in get_error_message(name, tokjax.errors.InvalidArgumentError)
        for name in ("pipe", "."):  # as if the file had been replaced after `text_files`
            replaced = TextFiles((tmp_path / name,))
            with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"is a (pipe|directory)"):
                list(iter_file_chunks(replaced, [], 10, safe_splits=False))

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("a.lz4", "unpack it with lz4 -d, or compress it with gzip, bzip2, xz or zstd"),
            ("a.tgz", "tar -xzf"),
            (
                "a.npy",
                "is not a text file, according to its name; pass numpy.load('a.npy').tolist(), or convert",
            ),
            ("a.txt.br", "unpack it with brotli -d"),
            ("shard.00000.mds", "pass streaming.StreamingDataset(local='.', batch_size=1), or the texts of"),
            ("chunk-0-0.bin", "pass litdata.StreamingDataset('.'), or the texts of its records"),
        ],
    )
    def test_suffixes_of_files_that_are_not_text(self, tmp_path, name, hint):
        (tmp_path / name).write_text("x")
        assert hint in get_error_message(name, tokjax.errors.InvalidArgumentError)
        if "Dataset" in hint:
            (tmp_path / "index.json").touch()
            directory = hint.replace("'.'", repr(str(tmp_path)))
            assert directory in get_error_message(tmp_path, tokjax.errors.InvalidArgumentError)
        assert read_bytes_of_documents(text_files(name, format="text")) == [b"x"]

    def test_hints_for_arrow_files_and_streams(self, tmp_path):
        table = pa.table({"text": ["a", "b"]})
        for name, new in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
            with new(tmp_path / f"{name}.arrow", table.schema) as writer:
                writer.write_table(table)
            (tmp_path / f"{name}.arrow").rename(name)
        assert "the file is an Arrow file; pass text_files(PATH, format='arrow')" in get_error_message("file")
        assert "the file is an Arrow stream; pass text_files(PATH, format='arrow')" in get_error_message(
            "stream"
        )


class TestCompression:
    @pytest.mark.parametrize("suffix", COMPRESS)
    def test_several_streams(self, tmp_path, suffix):
        texts = [bytes([97 + i]) * 100_000 for i in range(3)]
        streams = [COMPRESS[suffix](text) for text in texts]
        path = tmp_path / f"c.txt{suffix}"
        path.write_bytes(b"".join(streams))
        assert read_bytes_of_documents(path) == [b"".join(texts)]
        damaged = bytearray(path.read_bytes())
        damaged[len(streams[0]) + 1] ^= 1  # in the header of the second stream
        for contents in (damaged, b"".join(streams) + b"garbage", b"".join(streams)[:-3]):
            path.write_bytes(contents)
            with pytest.raises(tokjax.errors.SourceError, match=r"c\.txt\.\w+: truncated or damaged, or not"):
                read_bytes_of_documents(path)

    @pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
    @pytest.mark.parametrize("num_zeros", [8, 1 << 17])
    def test_zeros_after_streams(self, tmp_path, suffix, num_zeros):
        stream, zeros = COMPRESS[suffix](b"text"), bytes(num_zeros)
        path = tmp_path / f"c.txt{suffix}"
        path.write_bytes(stream + zeros + stream + zeros)
        assert read_bytes_of_documents(path) == [b"texttext"]

    @pytest.mark.parametrize(("make", "module"), [(bz2.BZ2Decompressor, bz2), (lzma.LZMADecompressor, lzma)])
    @given(
        st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.lists(st.integers(0, 400), max_size=9)
    )
    def test_reads_of_any_size(self, make, module, contents, sizes):
        compressed = b"".join(map(module.compress, contents))
        expected = io.BytesIO(b"".join(contents))
        with open_streams(io.BytesIO(compressed), make) as stream:
            for size in [*sizes, -1]:
                assert stream.read(size) == expected.read(size)
                assert stream.tell() == expected.tell()

    @pytest.mark.parametrize("suffix", COMPRESS)
    def test_files(self, tmp_path, suffix):
        text = b"the quick brown fox jumps over the lazy dog\n" * 2000
        path = tmp_path / f"c.txt{suffix}"
        path.write_bytes(COMPRESS[suffix](text))
        assert count_pretokens(path, progress=False) == count_pretokens([text], progress=False)
        chunks = list(iter_file_chunks(text_files(path), [], 1000, safe_splits=True))
        assert len(chunks) > 20
        assert max(chunk.nbytes for chunk in chunks) < 2500
        assert [chunk.start for chunk in chunks] == [0] + [chunk.stop for chunk in chunks[:-1]]
        assert sum(chunk.read_nbytes for chunk in chunks) == path.stat().st_size
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.raises(
            tokjax.errors.SourceError, match=rf"c\.txt\{suffix}: truncated or damaged, or not "
        ):
            read_bytes_of_documents(path)
        path.write_bytes(b"text")
        with pytest.raises(tokjax.errors.SourceError, match="truncated or damaged, or not "):
            read_bytes_of_documents(path)
        path.write_bytes(b"")
        with pytest.raises(tokjax.errors.SourceError, match="file is never empty"):
            read_bytes_of_documents(path)


class TestZstd:
    @pytest.mark.parametrize("name", ["c.jsonl.zst", "c.json.zstd", "C.JSONL.ZST"])
    def test_records_of_all_frames(self, tmp_path, name):
        """Each part is a frame, as of pzstd, with metadata between the frames."""
        lines = b"".join(b'{"text": "document %d of a corpus"}\n' % i for i in range(400))
        frames = [zstd.compress(lines[i : i + 500]) for i in range(0, len(lines), 500)]
        skippable = struct.pack("<II", 0x184D2A50, 5) + b"notes"
        (tmp_path / name).write_bytes(skippable + skippable.join(frames) + skippable)
        expected = [b"document %d of a corpus" % i for i in range(400)]
        assert read_bytes_of_documents(tmp_path / name) == expected
        assert count_pretokens(tmp_path / name, progress=False) == count_pretokens(expected, progress=False)

    def test_large_windows_are_rejected(self, tmp_path):
        options = {zstd.CompressionParameter.window_log: 28}
        with zstd.open(tmp_path / "c.txt.zst", "wb", options=options) as file:
            file.write(b"text" * 1000)
        with pytest.raises(
            tokjax.errors.SourceError, match=r"a window of more than 128 MiB; .*zstd -d --long=31"
        ):
            read_bytes_of_documents(tmp_path / "c.txt.zst")

    def test_library(self, tmp_path, monkeypatch):
        """It is that of Python 3.14, or another one, with or without other backports beside it."""
        (tmp_path / "c.txt.zst").write_bytes(zstd.compress(b"text"))
        monkeypatch.setitem(sys.modules, "compression", types.ModuleType("compression"))
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "backports.zstd", None)
            patch.setitem(sys.modules, "compression.zstd", zstd)
            assert read_bytes_of_documents(tmp_path / "c.txt.zst") == [b"text"]
        monkeypatch.delitem(sys.modules, "backports.zstd")
        monkeypatch.setitem(sys.modules, "compression.zstd", None)
        for missing in ("backports", "backports.zstd"):
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, missing, None)
                with pytest.raises(
                    tokjax.errors.MissingExtraError,
                    match=r"c\.txt\.zst needs backports\.zstd, which is not installed; pip install 'tokjax",
                ):
                    read_bytes_of_documents(tmp_path / "c.txt.zst")
