"""Tests of the sources that `write_dataset` accepts."""

import gzip
import io
import json
import pickle
import tarfile

import numpy as np
import pytest

import tokjax
from tests.datasets.test_conversion import TOKENIZER
from tests.support.documents import write_texts
from tests.support.record_files import write_array_record
from tests.support.rejections import rejects
from tokjax.core.utf8 import to_utf8
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import iter_file_chunks
from tokjax.datasets import Column, document_encoding


class TestSources:
    texts = ("low", "lower é", "the lowest")
    field = tokjax.TokenizedTextField(TOKENIZER)

    def read(self, source, path, **options):
        tokjax.write_dataset(source, self.field, path, **options)
        dataset = tokjax.open_dataset(path)
        return [tokjax.decode(TOKENIZER, ids, skip_special_tokens=True) for ids in dataset]

    def test_files(self, tmp_path):
        plain, compressed, lines = (tmp_path / name for name in ("a.txt", "a.txt.gz", "a.jsonl"))
        plain.write_text("|".join(self.texts))
        compressed.write_bytes(gzip.compress("|".join(self.texts).encode()))
        lines.write_text("".join(json.dumps({"body": text}) + "\n" for text in self.texts))
        for source in (plain, str(compressed), [plain]):
            assert self.read(source, tmp_path / f"{len(list(tmp_path.iterdir()))}", separator="|") == list(
                self.texts
            )
        records = tokjax.corpus.text_files(lines, field="body")
        assert self.read(records, tmp_path / "lines") == list(self.texts)
        manifest = tokjax.open_dataset(tmp_path / "lines").manifest
        assert manifest.source["files"] == [[str(lines), lines.stat().st_size]]

    def test_fields_of_null(self, tmp_path):
        """A document whose text is in an object that is null is skipped, as in a Parquet file."""
        records = [{"meta": {"text": "low"}}, {"meta": None}, {"meta": {"text": None}}]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        for i, source in enumerate((records, tmp_path / "a.jsonl")):
            assert self.read(source, tmp_path / f"{i}", text_column="meta.text") == ["low"]
        with pytest.raises(tokjax.errors.TokjaxError, match="'meta.text'"):
            self.read([{"other": None}], tmp_path / "none", text_column="meta.text")

    @pytest.mark.parametrize("ids", [[108, 256], np.array([108, 256], "uint16")])
    def test_ids_that_are_not_in_records(self, tmp_path, ids):
        with rejects(
            r"^document 0 is a (list|ndarray) of ids, and not a text; pass records: \({'ids': ids} for"
        ):
            self.read([ids], tmp_path / "data")
        assert self.read(({"ids": each} for each in [ids]), tmp_path / "data") == ["llo"]

    def test_text_column_of_files(self, tmp_path):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        lines, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
        lines.write_text("".join(json.dumps({"text": "no", "body": text}) + "\n" for text in self.texts))
        parquet.write_table(pyarrow.table({"text": ["no"] * 3, "body": list(self.texts)}), table)
        for i, source in enumerate(
            (lines, str(table), [lines], tokjax.corpus.text_files(lines, field="body"))
        ):
            assert self.read(source, tmp_path / f"{i}", text_column="body") == list(self.texts)
        assert tokjax.open_dataset(tmp_path / "0").manifest.source["field"] == "body"
        with rejects("text_column is 'body', and the source has field='title'; pass"):
            self.read(tokjax.corpus.text_files(lines, field="title"), tmp_path / "none", text_column="body")

        with rejects("text_column must be the name of a"):
            self.read(lines, tmp_path / "none", text_column=3)

    @pytest.mark.parametrize("separator", ["", 3, b"|"])
    def test_invalid_separators(self, tmp_path, separator):
        with rejects("separator must be a non-empty str, or None if each .* got"):
            self.read(["a|b"], tmp_path / "data", separator=separator)

    def test_iterables(self, tmp_path):
        assert self.read(iter(self.texts), tmp_path / "texts") == list(self.texts)
        assert self.read(["|".join(self.texts)], tmp_path / "split", separator="|") == list(self.texts)
        records = [{"t": text, "n": 1} for text in self.texts] + [{"t": None}]
        assert self.read(records, tmp_path / "records", text_column="t") == list(self.texts)

    @pytest.mark.parametrize(
        ("source", "options", "message"),
        [
            (3, {}, "must be .*not int"),
            ({"a": 1}, {}, r"a dict with the keys \['a'\]; pass one of its values, such as source\['a'\]"),
            ([{"a": 1}], {}, r"document 0 has no 'text', it has \['a'\]; pass text_column=NAME"),
            ([{"text": 3}], {}, "document 0 must be str or bytes, not int"),
            ([(1, "a")], {"separator": "|"}, "separator is for texts"),
            ("no/such/file", {}, "is not a file"),
        ],
    )
    def test_invalid_sources(self, tmp_path, source, options, message):
        with rejects(message):
            tokjax.write_dataset(source, self.field, tmp_path / "data", **options)
        assert not list(tmp_path.iterdir())


LINES = [
    b'{"text": "low", "n": 1}',
    b"{",
    b"[1]",
    b'{"txt": "x"}',
    b'{"text": 5}',
    b'\xff{"text": "low"}',
    b'{"text": null}',
    b'{"text": "lower", "n": 2}',
]


def write_tar(path):
    members = [("1.json", LINES[0]), ("2.json", b"{"), ("3.json", b'{"body": "x"}'), ("4.txt", b"lower")]
    with tarfile.open(path, "w") as archive:
        for name, contents in members:
            header = tarfile.TarInfo(name)
            header.size = len(contents)
            archive.addfile(header, io.BytesIO(contents))


BAD_FILES = {
    "a.jsonl": (lambda path: path.write_bytes(b"\n".join(LINES)), 5, "the line at byte 24: not JSON"),
    "a.jsonl.gz": (
        lambda path: path.write_bytes(gzip.compress(b"\n".join(LINES))),
        5,
        "the line at byte 24: not JSON",
    ),
    "a.csv": (lambda path: path.write_text("n,text\n1,low\n1\n2,lower\n"), 1, "row 2 has 1 fields"),
    "a.tar": (write_tar, 2, "sample '2': the member with the suffix 'json' is not JSON"),
    "a.array_record": (lambda path: write_array_record(path, LINES), 5, "record 1: not JSON"),
}


class TestBadRecords:
    @pytest.mark.parametrize("name", BAD_FILES)
    def test_files(self, tmp_path, caplog, name):
        write, count, message = BAD_FILES[name]
        write(tmp_path / name)
        texts = ["low", "lower"]
        read = tokjax.corpus.read_documents(tmp_path / name, None, skip_bad_records=True)
        assert [to_utf8(text).decode() for text in read] == texts
        fields = [tokjax.RawTextField()]
        if name.endswith(("jsonl", "gz", "array_record")):
            fields.append(tokjax.RawTextField(columns=[Column("n", "int32", per="document")]))
        for i, field in enumerate(fields):
            written = tokjax.write_dataset(tmp_path / name, field, tmp_path / f"{i}", skip_bad_records=True)
            assert written.num_skipped == count
            merged = tokjax.datasets.merge_datasets([tmp_path / f"{i}"] * 2, tmp_path / f"merged {i}")
            assert merged.num_skipped == 2 * count
            assert list(tokjax.open_dataset(tmp_path / f"{i}")) == texts
            with pytest.raises(tokjax.errors.SourceError):
                tokjax.write_dataset(tmp_path / name, field, tmp_path / "none")
        assert len(caplog.messages) == 1 + len(fields)
        for logged in caplog.messages:
            assert logged.startswith(f"skipped bad records: {count}; ")
            assert message in logged

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (["low", None, 3, "lower"], "document 1 must be str or bytes, not NoneType"),
            ([None, {"text": "low"}, {"x": 1}, {"text": "lower"}], "document 0 must be str or bytes, not"),
            ([(7, "low"), (1,), (-1, "x"), (9, "lower")], "document 1 is a tuple of 1"),
        ],
    )
    def test_iterables(self, tmp_path, caplog, source, message):
        field = tokjax.RawTextField()
        assert tokjax.write_dataset(source, field, tmp_path / "d", skip_bad_records=True).num_skipped == 2
        assert list(tokjax.open_dataset(tmp_path / "d")) == ["low", "lower"]
        assert message in caplog.text

    @pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "records"])
    def test_resuming(self, tmp_path, monkeypatch, name):
        """The count does not depend on batches, shards and interruptions."""
        monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 100)
        lines = [json.dumps({"text": f"low {i}"} if i % 3 else {}) for i in range(100)]
        data = "\n".join(lines).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        source = list(map(json.loads, lines)) if name == "records" else tmp_path / name
        options = {"shard_size": 150, "skip_bad_records": True}
        whole = tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / "whole", **options)
        assert whole.num_skipped == 34
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tokjax.datasets.writer.finish_dataset", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / "d", **options)
        tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / "d", **options)
        for file in (tmp_path / "whole").iterdir():
            assert file.read_bytes() == (tmp_path / "d" / file.name).read_bytes()

    def test_only_bad_records(self, tmp_path):
        source = [{"body": "low"}] * 9
        message = r"all records are bad \(9\): document 0 has no 'text', it has .*; ...$"
        with pytest.raises(tokjax.errors.SourceError, match=message):
            tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / "d", skip_bad_records=True)
        assert not list(tmp_path.iterdir())

    def test_chunks_are_sent_with_errors(self, tmp_path):
        """Workers receive the rows of files that only one process can read."""
        (tmp_path / "a.csv").write_text("n,text\n1,low\n1\n")
        [chunk] = iter_file_chunks(text_files(tmp_path / "a.csv"), [], 1000, safe_splits=False)
        bad = []
        assert pickle.loads(pickle.dumps(chunk)).read(bad) == [("low", True)]
        assert "row 2 has 1 fields" in bad[0].message


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl", ".jsonl.gz", ".tar", ".parquet"])
def test_file_that_is_overwritten_in_place(tmp_path, monkeypatch, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path, new = tmp_path / f"a{suffix}", tmp_path / f"new{suffix}"
    write_texts(path, ["an old text", "another one"], "\n")
    write_texts(new, ["some writer", "changed all"], "\n")
    assert path.stat().st_size == new.stat().st_size
    compute = document_encoding.encode_documents

    def overwrite_and_compute(*arguments, **options):
        with path.open("r+b") as file:
            file.write(new.read_bytes())
        return compute(*arguments, **options)

    field = tokjax.TokenizedTextField(TOKENIZER)
    monkeypatch.setattr("tokjax.datasets.shard_writing.encode_documents", overwrite_and_compute)
    with pytest.raises(
        tokjax.errors.SourceError, match=rf"a\{suffix}: changed .* same call again when it no"
    ):
        tokjax.write_dataset(path, field, tmp_path / "data", workers=1)
    monkeypatch.undo()
    assert sorted(tmp_path.iterdir()) == sorted([path, new])
    tokjax.write_dataset(path, field, tmp_path / "data")
    text = b"".join(tokjax.decode_bytes(TOKENIZER, ids) for ids in tokjax.open_dataset(tmp_path / "data"))
    assert b"some writer" in text


@pytest.mark.parametrize("suffix", [".csv", ".jsonl.gz", ".tar", ".parquet"])
def test_interrupted_reading_of_a_file_resumes(tmp_path, monkeypatch, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    texts = [f"document {i}" for i in range(150)]
    path, options = tmp_path / f"a{suffix}", {"shard_size": 150, "workers": 1}
    write_texts(path, texts, group_size=5)
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 100)
    compute, num_calls = document_encoding.encode_documents, iter(range(100))

    def compute_some(*arguments, **options):
        if next(num_calls, None) is None:
            raise KeyboardInterrupt
        return compute(*arguments, **options)

    def get_times(directory):
        return {file.name: file.stat().st_mtime_ns for file in directory.glob("shard-*")}

    with monkeypatch.context() as patch:
        patch.setattr("tokjax.datasets.shard_writing.encode_documents", compute_some)
        with pytest.raises(KeyboardInterrupt):
            tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "data", **options)
    finished = get_times(tmp_path / "data.incomplete")
    tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "data", **options)
    assert list(tokjax.open_dataset(tmp_path / "data")) == texts
    assert finished
    assert finished.items() <= get_times(tmp_path / "data").items()
