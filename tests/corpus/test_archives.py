"""Tests of tar archives: samples as in WebDataset, compression, damage and hostile archives."""

import bz2
import contextlib
import gzip
import io
import json
import struct
import tarfile

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.documents import read_bytes_of_documents
from tokjax.corpus import archives
from tokjax.corpus.files import text_files
from tokjax.datasets import Column
from tokjax.errors import SourceError, TokjaxError
from tokjax.trainer import count_pretokens


def make_archive(members, kind=tarfile.PAX_FORMAT, mtime=0):
    """Returns an archive of `(name, contents)` pairs, or `(header, contents)` pairs."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for name, contents in members:
            header = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            header.size, header.mtime = len(contents), mtime
            archive.addfile(header, io.BytesIO(contents))
    return file.getvalue()


def make_header(name, **attributes):
    header = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(header, attribute, value)
    return header


def make_directory(name):
    return make_header(name, type=tarfile.DIRTYPE), b""


def seal(header):
    """Returns the 512 bytes of a header with the right checksum."""
    blank = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(blank) + header[156:]


@pytest.fixture
def read(tmp_path):
    """Returns a function that reads the documents of an archive."""

    def read(data, **options):
        (tmp_path / "c.tar").write_bytes(data)
        return read_bytes_of_documents(text_files(tmp_path / "c.tar", **options))

    return read


class TestSamples:
    MEMBERS = (
        ("a.jpg", b"\xff\xd8"),
        ("a.txt", "café".encode()),
        ("a.json", b'{"url": "u", "score": 0.5, "meta": {"text": "inner"}}'),
        ("dir/b.json", b'{"text": "of the object", "score": 2}'),
        ("dir/b.cls", b"3"),
        ("dir/c.d/e.seg.TXT", b"segments"),
        ("dir/c.d/e.txt", b"text"),
        ("._a.txt", b"of another program"),
    )

    @pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    def test_text_of_each_sample(self, read, kind):
        expected = ["café".encode(), b"of the object", b"text"]
        assert (
            read(make_archive(self.MEMBERS, kind, mtime=1.5 if kind == tarfile.PAX_FORMAT else 1)) == expected
        )

    def test_fields(self, read):
        archive = make_archive(self.MEMBERS[:3])
        for field, expected in (
            ("txt", "café"),
            ("url", "u"),
            ("json.url", "u"),
            ("json.meta.text", "inner"),
        ):
            assert read(archive, field=field) == [expected.encode()]
        assert read(make_archive(self.MEMBERS[5:7]), field="seg.txt") == [b"segments"]
        with pytest.raises(
            SourceError,
            match=r"c\.tar, sample 'a': the record has no field 'x', it has \['url', .*'txt', .*field=NAME",
        ):
            read(archive, field="x")
        with pytest.raises(SourceError, match="sample 'a': the field 'score' is a float"):
            read(archive, field="score")

    def test_long_names(self, read):
        members = [(f"{'é' * 120}/{i}" * 2 + ".txt", f"{i}".encode()) for i in range(5)]
        for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            assert read(make_archive(members, kind)) == [b"0", b"1", b"2", b"3", b"4"]

    def test_null_and_empty_texts_are_skipped(self, read):
        members = [("a.json", b'{"text": null}'), ("b.txt", b""), ("c.txt", b"x")]
        assert read(make_archive(members)) == [b"x"]

    def test_archive_of_other_files(self, read):
        members = [("data/part-0.jsonl", b'{"text": "a"}\n'), ("data/part-1.jsonl", b'{"text": "b"}\n')]
        with pytest.raises(
            SourceError,
            match=r"c\.tar has no members named \.txt or \.json, of which documents are read, but others "
            r"such as 'data/part-0\.jsonl'; unpack it with tar -xf, and pass the files$",
        ):
            read(make_archive(members))
        assert read(make_archive([*members, ("a.txt", b"x")])) == [b"x"]
        assert read(make_archive([make_directory("data")])) == []

    def test_invalid_utf8_is_kept_and_logged(self, read, caplog):
        assert read(make_archive([("a.txt", b"caf\xe9")])) == [b"caf\xe9"]
        assert "1 documents have bytes that are not valid UTF-8" in caplog.text

    @pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
    def test_compressed_archives(self, tmp_path, compress):
        texts = [f"text {i} of an archive" for i in range(300)]
        data = make_archive([(f"{i}.txt", text.encode()) for i, text in enumerate(texts)])
        suffix = {gzip.compress: "gz", bz2.compress: "bz2"}[compress]
        (tmp_path / f"c.tar.{suffix}").write_bytes(compress(data))
        (tmp_path / "d.tar").write_bytes(data)
        source = str(tmp_path / "*.tar*")
        assert read_bytes_of_documents(source) == [text.encode() for text in texts] * 2
        assert count_pretokens(source, progress=False) == count_pretokens(texts * 2, progress=False)

    @given(texts=st.lists(st.text("aé|", max_size=600), max_size=6), longest=st.integers(1, 100))
    def test_any_texts(self, tmp_path_factory, texts, longest):
        path = tmp_path_factory.mktemp("tar") / "c.tar"
        path.write_bytes(make_archive([(f"{i}.txt", text.encode()) for i, text in enumerate(texts)]))
        expected = [part.encode() for text in texts for part in text.split("|") if part]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tokjax.corpus.sources._READ_SIZE", longest)
            assert read_bytes_of_documents(path, "|") == expected

    def test_side_columns(self, tmp_path):
        members = [(f"{i}.json", json.dumps({"text": str(i), "score": i / 4}).encode()) for i in range(50)]
        (tmp_path / "c.tar").write_bytes(make_archive(members))
        field = tokjax.RawTextField(columns=[Column("score", "float32", per="document")])
        tokjax.write_dataset(tmp_path / "c.tar", field, tmp_path / "data", shard_size=20)
        dataset = tokjax.open_dataset(tmp_path / "data")
        assert list(dataset) == [str(i) for i in range(50)]
        assert dataset.column("score").tolist() == [i / 4 for i in range(50)]

    def test_links_are_reported(self, read, caplog):
        """As GNU tar writes them for files with several names, unless `--hard-dereference` is passed."""
        links = [
            (make_header("b.txt", type=tarfile.LNKTYPE, linkname="a.txt"), b""),
            (make_header("c.txt", type=tarfile.SYMTYPE, linkname="a.txt"), b""),
            (make_header("d.jpg", type=tarfile.SYMTYPE, linkname="a.txt"), b""),
        ]
        assert read(make_archive([("a.txt", b"low"), *links])) == [b"low"]
        message = "members that are links, which are not read: 2, such as 'b.txt'; pack their files with"
        assert message in caplog.text

    def test_members_that_are_not_sorted(self, read):
        members = [("a.txt", b"low"), ("b.txt", b"lower"), ("a.json", b"{}"), ("b.json", b"{}")]
        with pytest.raises(
            SourceError,
            match=r"sample 'a': the record has no field 'text', .* pack them with tar --sort=name",
        ):
            read(make_archive(members))


class TestDamage:
    ARCHIVE = make_archive([(f"{i}.txt", b"some words " * 100) for i in range(5)])

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda data: data[:700], "unexpected end of data"),
            (lambda data: data[:2048], "the end of the archive is missing"),
            (lambda data: data[:2048] + b"x" + data[2049:], "bad checksum"),
            (lambda data: data[:2048] + b"short", "truncated header"),
            (lambda _: b"", "the end of the archive is missing"),
            (lambda _: b"text " * 200, "bad checksum|invalid header"),
            (lambda data: data + data, "data follow the end of the archive; are several archives concat"),
        ],
    )
    def test_damaged_archives(self, read, damage, message):
        with pytest.raises(
            SourceError, match=rf"c\.tar: truncated or damaged, or not a tar archive: {message}"
        ):
            read(damage(self.ARCHIVE))

    @given(
        changes=st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=4)), max_size=3),
        stop=st.integers(0, 10_240) | st.just(10_240),
    )
    def test_any_damage(self, tmp_path_factory, changes, stop):
        path = tmp_path_factory.mktemp("tar") / "c.tar"
        data = bytearray(
            make_archive([("é" * 200 + ".txt", b"text"), ("a.json", b'{"text": "a"}')], mtime=1.5)
        )
        for start, new in changes:
            data[start : start + len(new)] = new
        path.write_bytes(data[:stop])
        with contextlib.suppress(TokjaxError):
            read_bytes_of_documents(path)

    def test_damaged_compression(self, tmp_path):
        (tmp_path / "c.tar.gz").write_bytes(gzip.compress(self.ARCHIVE)[:-20])
        with pytest.raises(SourceError, match=r"c\.tar\.gz: truncated or damaged, or not"):
            read_bytes_of_documents(tmp_path / "c.tar.gz")

    def test_members_that_are_not_json(self, read):
        for contents in (b"{", b"[" * 100_000):
            with pytest.raises(
                SourceError, match=r"sample 'a': the member with the suffix 'json' is not JSON"
            ):
                read(make_archive([("a.json", contents)]))

    def test_duplicate_members(self, read):
        with pytest.raises(SourceError, match="sample 'a': there are several .* suffix 'txt'"):
            read(make_archive([("a.txt", b"x"), ("a.txt", b"y")]))


class TestHostileArchives:
    def test_only_regular_files_are_read(self, read, tmp_path):
        (tmp_path / "secret.txt").write_text("secret")
        secret = str(tmp_path / "secret.txt")
        members = [
            (make_header("a.txt", type=tarfile.SYMTYPE, linkname=secret), b""),
            (make_header("b.txt", type=tarfile.LNKTYPE, linkname=secret), b""),
            (make_header("c.txt", type=tarfile.FIFOTYPE), b""),
            (make_header("d.txt", type=tarfile.CHRTYPE, devmajor=1, devminor=5), b""),
            (make_header("e.txt", type=tarfile.DIRTYPE), b""),
            ("../../f.txt", b"path"),
            (secret, b"absolute path"),
        ]
        assert read(make_archive(members)) == [b"path", b"absolute path"]
        assert (tmp_path / "secret.txt").read_text() == "secret"
        assert {path.name for path in tmp_path.iterdir()} == {"secret.txt", "c.tar"}

    def test_sparse_files(self, read):
        header = bytearray(tarfile.TarInfo("a.txt").tobuf(tarfile.GNU_FORMAT))
        header[156:157] = tarfile.GNUTYPE_SPARSE
        header[483:495] = b"77777777777\0"  # 8 GiB of zeros
        sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a.txt"}
        pax = make_archive([(make_header("a.txt", pax_headers=sparse), b"99999999\n" + b"0\n" * 999)])
        with_map = make_archive([(make_header("a.txt", pax_headers={"GNU.sparse.map": "0,1"}), b"x")])
        for archive in (seal(bytes(header)) + bytes(1024), pax, with_map):
            with pytest.raises(SourceError, match="it has a sparse file; pack it again without"):
                read(archive)

    def test_large_samples(self, read, monkeypatch):
        header = make_header("a.txt", size=1 << 40).tobuf(tarfile.GNU_FORMAT)
        with pytest.raises(
            SourceError,
            match=r"c\.tar: up to 'a\.txt', the sample has 1,099,511,627,776 bytes, and at most 268,",
        ):
            read(header + bytes(1024))
        monkeypatch.setattr(archives, "_MAX_SAMPLE_BYTES", 10)
        members = [("a.jpg", b"x" * 11), ("a.txt", b"x" * 7), ("a.en.txt", b"y" * 3), ("b.txt", b"z" * 10)]
        assert read(make_archive(members)) == [b"x" * 7, b"z" * 10]
        with pytest.raises(SourceError, match=r"up to 'b\.en\.txt', the sample has 11 bytes"):
            read(make_archive([*members, ("b.en.txt", b"z")]))

    def test_negative_sizes(self, read):
        header = bytearray(tarfile.TarInfo("a.txt").tobuf(tarfile.GNU_FORMAT))
        header[124:136] = b"\xff" * 4 + struct.pack(">q", -512)
        with pytest.raises(SourceError, match=r"the member 'a\.txt' has the size -512|invalid offset"):
            read(seal(bytes(header)) + bytes(1024))
        pax = make_archive([(make_header("a.txt", pax_headers={"size": "-5000"}), b"x")])
        with pytest.raises(SourceError, match="truncated or damaged, or not a tar archive"):
            read(pax)

    @pytest.mark.parametrize("type_", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
    def test_large_extended_headers(self, read, type_):
        header = make_header("x", type=type_, size=1 << 30).tobuf(tarfile.GNU_FORMAT)
        with pytest.raises(
            SourceError, match="an extended header has 1,073,741,824 bytes, and at most 16,384"
        ):
            read(header + bytes(1024))

    def test_many_extended_headers(self, read):
        header = make_header("x", type=tarfile.XHDTYPE, size=0).tobuf(tarfile.GNU_FORMAT)
        with pytest.raises(SourceError, match="truncated or damaged, or not a tar archive"):
            read(header * 10_000 + bytes(1024))

    def test_headers_are_not_kept(self, read, monkeypatch):
        kept = 0
        next_header = tarfile.TarFile.next

        def count(archive):
            nonlocal kept
            kept = max(kept, len(archive.members))
            return next_header(archive)

        monkeypatch.setattr(tarfile.TarFile, "next", count)
        assert len(read(make_archive([(f"{i}.txt", b"x") for i in range(50)]))) == 50
        assert kept <= 1
