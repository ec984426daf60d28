"""Tests of corpus readers: CSV, damaged Parquet files and streams."""

import csv
import gzip
import io
import json
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.documents import read_bytes_of_documents
from tokjax.corpus import readers
from tokjax.corpus.decompression import HEAD_BYTES
from tokjax.corpus.files import text_files
from tokjax.errors import SourceError
from tokjax.trainer import count_pretokens

BINARY = bytes(range(256)) * 8


class TestCSV:
    @given(
        rows=st.lists(st.text(st.sampled_from("a\"\n\r,\t é;'")), min_size=1, max_size=8),
        kind=st.sampled_from(["csv", "tsv", "csv.gz"]),
    )
    def test_texts_round_trip(self, tmp_path_factory, rows, kind):
        path = tmp_path_factory.mktemp("csv") / f"a.{kind}"
        table = io.StringIO(newline="")
        writer = csv.writer(table, delimiter="\t" if kind == "tsv" else ",")
        writer.writerows([["id", "text"], *enumerate(rows)])
        data = table.getvalue().encode("utf-8")
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
        assert read_bytes_of_documents(path) == [row.encode() for row in rows if row]

    def test_column_with_another_name(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_bytes("\ufeffbody,n\r\nfirst,1\r\n\r\nsecond,2\r\n".encode())
        assert read_bytes_of_documents(text_files(path, field="body")) == [b"first", b"second"]
        with pytest.raises(SourceError, match=r"no column 'text', of \['body', 'n'\]; pass text_files"):
            read_bytes_of_documents(path)
        dataset = tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "d", text_column="body")
        assert dataset.num_documents == 2

    def test_reading_stops_early(self, tmp_path):
        """The generators of the rows are closed from the inside: a closed file can't be detached."""
        (tmp_path / "a.csv").write_text("text\n" + "low\n" * 1000)
        (chunk,) = readers._plan_whole_file(tmp_path / "a.csv", "csv", "text", 1)
        batches = chunk.iter_texts()
        rows = next(batches)
        batches.close()
        assert rows == (["low"] * 64, 4005)

    def test_a_field_longer_than_the_limit_of_the_csv_module(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text("text\n" + "a" * 200_000 + "\n")
        limit = csv.field_size_limit()
        assert read_bytes_of_documents(path) == [b"a" * 200_000]
        assert csv.field_size_limit() == limit == 131_072

    @pytest.mark.parametrize(
        ("contents", "message"),
        [
            (b"text,text\na,b\n", r"several columns 'text', of \['text', 'text'\]"),
            (b"id,text\n1,a\n2\n", r"a\.csv: row 2 has 1 fields, the header has 2: \['2'\]"),
            (b"id,text\n1,a,b\n", r"row 1 has 3 fields"),
            (b'id,text\n1,"open\n2,a\n', r"a\.csv, line 3: unexpected end of data; is a quote not closed"),
            (b'id,text\n1,"a"b\n', r"line 2: ',' expected after"),
            (b"id,text\n" + b"1,a\n" * HEAD_BYTES + b"2,\xe9\n", "after line .* not valid UTF-8"),
        ],
    )
    def test_damaged_tables(self, tmp_path, contents, message):
        (tmp_path / "a.csv").write_bytes(contents)
        with pytest.raises(SourceError, match=message):
            read_bytes_of_documents(tmp_path / "a.csv")

    def test_the_longest_field_bounds_a_quote_that_is_not_closed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(readers, "_LONGEST_FIELD", 100)
        (tmp_path / "a.csv").write_text('text\n"' + "a\n" * 100)
        with pytest.raises(SourceError, match=r"field larger than field limit \(100\); is a quote not"):
            read_bytes_of_documents(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.tar"])
def test_byte_order_marks(tmp_path, name):
    """The mark at the start of a file belongs to no document; elsewhere, the character is text."""
    text = "low \ufeff<|>lower"
    contents = {"jsonl": json.dumps({"text": text}), "csv": f"text\n{text}\n"}
    marked = f"\ufeff{contents.get(name[2:], text)}".encode()
    (tmp_path / name).write_bytes(gzip.compress(marked) if name.endswith("gz") else marked)
    if name == "a.tar":
        with tarfile.open(tmp_path / name, "w") as archive:
            (tmp_path / "a.txt").write_bytes(marked)
            archive.add(tmp_path / "a.txt", "a.txt")
    assert read_bytes_of_documents(tmp_path / name) == [text.encode()]
    assert count_pretokens(tmp_path / name, progress=False) == count_pretokens([text], progress=False)


class TestDamagedParquet:
    def test_pages_with_invalid_checksums(self, tmp_path):
        path = tmp_path / "x.parquet"
        table = pa.table({"text": [f"word {i} of the text" for i in range(2000)]})
        pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
        data = bytearray(path.read_bytes())
        position = data.index(b"word 700 of")
        data[position] ^= 1
        path.write_bytes(data)
        with pytest.raises(SourceError, match=r"x\.parquet: truncated or damaged"):
            count_pretokens(path, progress=False)

    def test_invalid_utf8_in_a_string_column(self, tmp_path):
        path = tmp_path / "x.parquet"
        raw = pa.array([b"ok", b"\xff"], pa.binary())
        strings = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
        pq.write_table(pa.table({"text": strings}), path)
        with pytest.raises(SourceError, match=r"the column 'text' holds bytes that are not valid UTF-8"):
            count_pretokens(path, progress=False)

    def test_duplicate_column_names(self, tmp_path):
        path = tmp_path / "x.parquet"
        table = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"])
        pq.write_table(table, path)
        with pytest.raises(SourceError, match=r"there are several columns 'text', of \['text', 'text'\]"):
            count_pretokens(path, progress=False)
