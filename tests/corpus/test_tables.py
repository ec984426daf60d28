"""Tests of Parquet and Arrow files: chunks of row groups, columns, nested fields, ids, and damage."""

import contextlib
import gzip
import json
import pickle
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.datasets.test_executors import RecordingExecutor
from tests.support.documents import read_bytes_of_documents
from tests.support.loader_cases import TOKENIZER
from tests.support.rejections import rejects
from tokjax.corpus import tables
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import iter_file_chunks
from tokjax.corpus.records import MemoryChunk
from tokjax.corpus.tables import TableChunk
from tokjax.datasets import Column
from tokjax.errors import SourceError, TokjaxError
from tokjax.trainer import count_pretokens

TEXTS = [f"row {i} " * (i % 7 + 1) for i in range(1000)]


def list_chunks(source, target_nbytes):
    return list(iter_file_chunks(text_files(source), [], target_nbytes, safe_splits=False))


def write_arrow(table, path, kind, rows=100):
    writer = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}[kind]
    with writer(path, table.schema) as file:
        file.write_table(table, max_chunksize=rows)


class TestRowGroups:
    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "c.parquet"
        table = pa.table({"id": range(1000), "text": [*TEXTS[:-1], None]})
        pq.write_table(table, path, row_group_size=50)
        return path

    def test_chunks_are_positions(self, path):
        chunks = list_chunks(path, 5000)
        assert len(chunks) > 5
        assert {type(chunk) for chunk in chunks} == {TableChunk}
        assert [chunk.start for chunk in chunks[1:]] == [chunk.stop for chunk in chunks[:-1]]
        assert [chunk.first_row for chunk in chunks] == [50 * chunk.start for chunk in chunks]
        assert (chunks[0].start, chunks[-1].stop) == (0, 20)
        assert sum(chunk.read_nbytes for chunk in chunks) == path.stat().st_size
        # Chunks are small, and can be read in any order.
        assert max(len(pickle.dumps(chunk)) for chunk in chunks) < 1000
        read = {chunk: chunk.read() for chunk in reversed(chunks)}
        assert [text for chunk in chunks for text, _ in read[chunk]] == TEXTS[:-1]

    def test_large_groups_are_read_in_parts(self, path, monkeypatch):
        monkeypatch.setattr(tables, "_ROWS_PER_READ", 10)
        chunks = list_chunks(path, 100)
        assert {type(chunk) for chunk in chunks} == {MemoryChunk}
        assert max(len(chunk.items) for chunk in chunks) == 10
        assert [text for chunk in chunks for text in chunk.items] == TEXTS[:-1]
        assert sum(chunk.read_nbytes for chunk in chunks) == path.stat().st_size

    def test_workers_read_row_groups(self, path, monkeypatch):
        expected = count_pretokens(TEXTS[:-1], progress=False)
        assert count_pretokens(path, progress=False) == expected
        monkeypatch.setattr("tokjax.trainer.counting._EXECUTOR_CHUNK_BYTES", 5000)
        executor = RecordingExecutor()
        assert count_pretokens(path, executor=executor, progress=False) == expected
        assert len(executor.sent) > 5

    def test_metadata_of_a_changed_file_are_read_again(self, path):
        assert len(read_bytes_of_documents(path)) == 999
        pq.write_table(pa.table({"text": ["new"]}), path)
        assert read_bytes_of_documents(path) == [b"new"]

    def test_names_of_compressed_files(self, tmp_path):
        """Files that are compressed inside are read. Those compressed as a whole are not."""
        path = tmp_path / "a.parquet.gzip"
        pq.write_table(pa.table({"text": ["low"]}), path, compression="gzip")
        assert read_bytes_of_documents(path) == [b"low"]
        path.write_bytes(gzip.compress(path.read_bytes()))
        with pytest.raises(SourceError, match="; if it is compressed as a whole, unpack it$"):
            read_bytes_of_documents(path)

    def test_damaged_counts(self, tmp_path):
        """No single bit of the footer loses rows: it has no checksum."""
        path = tmp_path / "c.parquet"
        table = pa.table({"text": TEXTS[:50]})
        options = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
        pq.write_table(table, path, row_group_size=25, **options)
        data = path.read_bytes()
        footer_nbytes = int.from_bytes(data[-8:-4], "little")
        messages = set()
        for position in range(len(data) - 8 - footer_nbytes, len(data) - 8):
            path.write_bytes(data[:position] + bytes([data[position] ^ 16]) + data[position + 1 :])
            try:
                assert len(read_bytes_of_documents(path)) == 50
            except SourceError as error:
                messages.add(str(error).removeprefix(str(path)))
        assert ": truncated or damaged: its row groups have 50 rows, and it 58" in messages
        assert any(message.endswith("of the 50 rows from row 0 could be read") for message in messages)

    @given(
        texts=st.lists(st.none() | st.text("aé ", max_size=5), max_size=30),
        rows=st.integers(1, 9),
        target=st.integers(1, 200),
    )
    def test_any_chunks(self, tmp_path_factory, texts, rows, target):
        path = tmp_path_factory.mktemp("parquet") / "c.parquet"
        pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path, row_group_size=rows)
        read = [text for chunk in list_chunks(path, target) for text, _ in chunk.read()]
        assert read == [text for text in texts if text is not None]


class TestArrow:
    @pytest.mark.parametrize("kind", ["file", "stream"])
    @pytest.mark.parametrize("suffix", [".arrow", ".feather", ""])
    def test_texts(self, tmp_path, kind, suffix):
        path = tmp_path / f"c{suffix}"
        write_arrow(pa.table({"id": range(1000), "text": TEXTS}), path, kind)
        source = path if suffix else text_files(path, format="arrow")
        assert read_bytes_of_documents(source) == [text.encode() for text in TEXTS]
        assert count_pretokens(source, progress=False) == count_pretokens(TEXTS, progress=False)

    @pytest.mark.parametrize("kind", ["file", "stream"])
    def test_damaged_files(self, tmp_path, kind):
        path = tmp_path / "c.arrow"
        write_arrow(pa.table({"text": TEXTS}), path, kind)
        data = path.read_bytes()
        for damaged in (data[: len(data) // 2], b"text", b"ARROW1 text", b""):
            path.write_bytes(damaged)
            with pytest.raises(SourceError, match=r"c\.arrow: truncated or damaged, or not Arrow"):
                read_bytes_of_documents(path)

    @pytest.mark.parametrize("legacy", [False, True])
    @pytest.mark.parametrize("num_batches", [1, 4])
    def test_streams_without_an_end(self, tmp_path, legacy, num_batches):
        path = tmp_path / "c.arrow"
        table = pa.table({"text": pa.array(TEXTS[: 10 * num_batches]).dictionary_encode()})
        options = pa.ipc.IpcWriteOptions(use_legacy_format=legacy)
        with path.open("wb") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=10)
            stop = file.tell()
        data = path.read_bytes()
        texts = [text.encode() for text in TEXTS[: 10 * num_batches]]
        assert read_bytes_of_documents(path) == texts
        for end in range(stop, len(data)):
            path.write_bytes(data[:end])
            with pytest.raises(SourceError, match=r"c\.arrow: truncated"):
                read_bytes_of_documents(path)
        path.write_bytes(data[:stop])
        with pytest.raises(
            SourceError,
            match=rf"c\.arrow: truncated\? Its Arrow stream has no end marker after {10 * num_batches} rows, "
            r"so its writer may have been stopped; write it again, or to use these rows pass the table "
            r"pyarrow.ipc.open_stream\('.*c.arrow'\).read_all\(\)",
        ):
            read_bytes_of_documents(path)
        tokjax.write_dataset(pa.ipc.open_stream(path).read_all(), tokjax.RawTextField(), tmp_path / "data")
        assert len(tokjax.open_dataset(tmp_path / "data")) == 10 * num_batches
        path.write_bytes(data * 2)
        with pytest.raises(
            SourceError,
            match=rf"data follow the end of its Arrow stream, after {10 * num_batches} rows; pass each",
        ):
            read_bytes_of_documents(path)

    def test_streams_without_batches(self, tmp_path):
        path = tmp_path / "c.arrow"
        write_arrow(pa.table({"text": pa.array([], pa.string())}), path, "stream")
        assert read_bytes_of_documents(path) == []
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(SourceError, match="has no end marker after 0 rows"):
            read_bytes_of_documents(path)

    @pytest.mark.parametrize("kind", ["file", "stream"])
    def test_offsets_outside_of_the_buffer(self, tmp_path, kind):
        path = tmp_path / "c.arrow"
        write_arrow(pa.table({"text": ["ab", "cd"]}), path, kind)
        data = path.read_bytes()
        offsets = struct.pack("<iii", 0, 2, 4)
        assert data.count(offsets) == 1
        path.write_bytes(data.replace(offsets, struct.pack("<iii", 0, 2, 1 << 30)))
        with pytest.raises(SourceError, match=r"c\.arrow: truncated or damaged"):
            read_bytes_of_documents(path)

    @pytest.mark.parametrize("kind", ["file", "stream"])
    def test_names_that_are_not_utf8(self, tmp_path, kind):
        path = tmp_path / "c.arrow"
        write_arrow(pa.table({"text": ["ab"]}), path, kind)
        path.write_bytes(path.read_bytes().replace(b"text", b"tex\xc6"))
        with pytest.raises(SourceError, match="c.arrow: the column 'text' holds bytes that are"):
            read_bytes_of_documents(path)
        with pytest.raises(SourceError, match="c.arrow: a column, or its name, holds bytes that"):
            tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "data")

    @given(
        kind=st.sampled_from(["file", "stream"]),
        changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=4)), max_size=3),
        stop=st.floats(0, 1) | st.just(1.0),
    )
    def test_any_damage(self, tmp_path_factory, kind, changes, stop):
        path = tmp_path_factory.mktemp("arrow") / "c.arrow"
        write_arrow(pa.table({"text": ["ab", "é"], "n": [1, 2]}), path, kind)
        data = bytearray(path.read_bytes())
        for position, new in changes:
            start = int(position * len(data))
            data[start : start + len(new)] = new
        path.write_bytes(data[: int(stop * len(data))])
        field = tokjax.RawTextField(columns=[Column("n", "int32", per="document")])
        with contextlib.suppress(TokjaxError):
            read_bytes_of_documents(path)
        with contextlib.suppress(TokjaxError):
            tokjax.write_dataset(path, field, path.parent / "data")


@pytest.fixture(params=["parquet", "file", "stream", "jsonl"])
def save(request, tmp_path):
    """Returns a function that writes records as a file of each format."""

    def save(records):
        suffix = {"file": "arrow", "stream": "arrow"}.get(request.param, request.param)
        path = tmp_path / f"records.{suffix}"
        if suffix == "jsonl":
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        elif suffix == "arrow":
            write_arrow(pa.Table.from_pylist(records), path, request.param, rows=3)
        else:
            pq.write_table(pa.Table.from_pylist(records), path, row_group_size=3)
        return path

    return save


class TestNestedFields:
    RECORDS = ({"text": "outer", "meta": {"body": {"text": "a"}, "n": 1}}, {"text": "x", "meta": None})

    def test_field_of_a_struct(self, save):
        path = save([self.RECORDS[0], {"text": "y", "meta": {"body": {"text": "é"}, "n": 2}}])
        source = text_files(path, field="meta.body.text")
        assert read_bytes_of_documents(source) == [b"a", "é".encode()]
        with pytest.raises(SourceError, match=r"no (column|field) 'meta\.none'.*'meta'"):
            read_bytes_of_documents(text_files(path, field="meta.none"))

    def test_null_structs_are_skipped(self, save):
        path = save(self.RECORDS)
        if path.suffix != ".jsonl":  # (JSON null has no fields)
            assert read_bytes_of_documents(text_files(path, field="meta.body.text")) == [b"a"]

    def test_a_dot_in_a_name(self, save):
        path = save([{"meta.text": "dotted", "meta": {"text": "nested"}}])
        assert read_bytes_of_documents(text_files(path, field="meta.text")) == [b"dotted"]

    def test_struct_as_text(self, tmp_path):
        pq.write_table(pa.Table.from_pylist(list(self.RECORDS)), tmp_path / "c.parquet")
        with pytest.raises(SourceError, match="the column 'meta' holds struct<.*, not strings"):
            read_bytes_of_documents(text_files(tmp_path / "c.parquet", field="meta"))

    def test_in_records(self, save, tmp_path):
        path = save([{"meta": {"text": text}, "score": i} for i, text in enumerate("abcdef")])
        field = tokjax.RawTextField(columns=[Column("score", "int16", per="document")])
        tokjax.write_dataset(path, field, tmp_path / "files", text_column="meta.text")
        records = [{"meta": {"text": text}, "score": i} for i, text in enumerate("abcdef")]
        tokjax.write_dataset(records, field, tmp_path / "records", text_column="meta.text")
        for name in ("files", "records"):
            dataset = tokjax.open_dataset(tmp_path / name)
            assert (list(dataset), dataset.column("score").tolist()) == (list("abcdef"), [*range(6)])


class TestRecords:
    COLUMNS = (
        Column("loss_mask", bool),
        Column("weights", "float32"),
        Column("source", "int16", per="document"),
    )

    def make_records(self):
        return [
            {
                "other": str(i),
                "ids": [(7 * i + j) % 256 for j in range(i % 5)],
                "loss_mask": [j % 2 == 0 for j in range(i % 5)],
                "weights": [i + j / 4 for j in range(i % 5)],
                "source": i,
            }
            for i in range(20)
        ]

    def assert_equal(self, path, other):
        for file in path.glob("shard-*"):
            assert file.read_bytes() == (other / file.name).read_bytes()
        assert list(path.glob("shard-*"))

    def test_side_columns(self, save, tmp_path):
        field = tokjax.PackedTokenField(TOKENIZER, columns=self.COLUMNS)
        tokjax.write_dataset(save(self.make_records()), field, tmp_path / "files", shard_size=20)
        tokjax.write_dataset(self.make_records(), field, tmp_path / "records", shard_size=20)
        self.assert_equal(tmp_path / "files", tmp_path / "records")

    @pytest.mark.parametrize(
        "type_", [pa.list_(pa.int32()), pa.large_list(pa.uint16()), pa.list_(pa.int64())]
    )
    @pytest.mark.parametrize("name", ["ids", "input_ids"])
    def test_ids_without_side_columns(self, tmp_path, type_, name):
        ids = [record["ids"] for record in self.make_records()]
        table = pa.table({name: pa.array([None, *ids, None], type_), "n": range(22)})
        pq.write_table(table, tmp_path / "c.parquet", row_group_size=4)
        write_arrow(table, tmp_path / "c.arrow", "stream", rows=4)
        lines = "".join(json.dumps(record) + "\n" for record in table.to_pylist()[1:])
        (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        (tmp_path / "b.jsonl").touch()
        field = tokjax.PackedTokenField(TOKENIZER)
        options = {} if name == "ids" else {"text_column": name}
        tokjax.write_dataset([{"ids": each} for each in ids], field, tmp_path / "records", shard_size=20)
        files = [tmp_path / name for name in ("c.parquet", "c.arrow", "c.jsonl.gz", "*.jsonl*")]
        sources = [*files, table, table.to_reader(max_chunksize=3)]
        for i, source in enumerate(sources):
            tokjax.write_dataset(source, field, tmp_path / str(i), shard_size=20, **options)
            self.assert_equal(tmp_path / str(i), tmp_path / "records")

    def test_lists_of_one_length(self, tmp_path):
        table = pa.table({"ids": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))})
        write_arrow(table, tmp_path / "c.arrow", "file")
        field = tokjax.TokenizedTextField(TOKENIZER, add_special_tokens=False)
        for i, source in enumerate([tmp_path / "c.arrow", table, table.slice(1)]):
            tokjax.write_dataset(source, field, tmp_path / str(i))
            rows = [row.tolist() for row in tokjax.open_dataset(tmp_path / str(i))]
            assert rows == [[1, 2], [3, 4]][i // 2 :]

    def test_invalid_ids(self, tmp_path):
        field = tokjax.PackedTokenField(TOKENIZER)
        for ids, message in (
            ([[1, 300]], "300"),
            ([[-1]], "-1"),
            ([[1, None]], r"c\.parquet, row 0: ids must be integers"),
            ([[1 << 40]], r"c\.parquet, row 0: ids holds"),
        ):
            pq.write_table(pa.table({"ids": pa.array(ids, pa.list_(pa.int64()))}), tmp_path / "c.parquet")
            with pytest.raises(TokjaxError, match=message):
                tokjax.write_dataset(tmp_path / "c.parquet", field, tmp_path / "data")

    def test_ids_do_not_replace_a_column_that_was_named(self, tmp_path):
        """A wrong name is an error, also if there are ids."""
        table = pa.table({"ids": [[1, 2]], "body": ["a"]})
        pq.write_table(table, tmp_path / "c.parquet")
        (tmp_path / "c.jsonl").write_text('{"ids": [1, 2], "body": "a"}')
        for source in (tmp_path / "c.parquet", tmp_path / "c.jsonl", table, table.to_pylist()):
            with pytest.raises(TokjaxError, match="has no .*'bodi'|there is no column 'bodi'"):
                tokjax.write_dataset(
                    source, tokjax.PackedTokenField(TOKENIZER), tmp_path / "data", text_column="bodi"
                )

    def test_columns_of_the_same_name_are_rejected(self, tmp_path):
        table = pa.table([["a"], ["b"]], names=["text", "text"])
        with rejects("several columns 'text'; rename one"):
            tokjax.write_dataset(table, tokjax.PackedTokenField(TOKENIZER), tmp_path / "data")

    def test_a_separator_is_rejected(self, tmp_path):
        pq.write_table(pa.table({"ids": [[1, 2]]}), tmp_path / "c.parquet")
        with rejects("separator splits texts, and the files hold ids; omit"):
            tokjax.write_dataset(
                tmp_path / "c.parquet", tokjax.PackedTokenField(TOKENIZER), tmp_path / "data", separator="|"
            )

    def test_conversations(self, tmp_path):
        """Tables give each call the arguments of all others, as null; other records keep their null keys."""
        datasets = pytest.importorskip("datasets")
        template = "{% for m in messages %}{{ m | tojson }}{% endfor %}{{ tools | tojson }}"
        field = tokjax.datasets.ChatField(TOKENIZER, template)
        arguments = [{"content": "a", "role": "b"}, {}, {"n": [{"x": 1}, {"y": "c"}]}]
        calls = [{"function": {"arguments": each, "name": f"f{i}"}} for i, each in enumerate(arguments)]
        records = [  # (keys are sorted, since old versions of pyarrow sort them)
            {
                "messages": [
                    {"content": f"{i}?", "role": "user"},
                    {"content": None, "role": "assistant", "tool_calls": calls[i % 3 :]},
                    {"content": "2", "role": "tool", "tool_name": "f"},
                    {"content": "3", "role": "assistant", "weight": i % 2},
                ],
                "tools": calls,
            }
            for i in range(6)
        ]
        (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, records)))
        tokjax.write_dataset(tmp_path / "c.jsonl", field, tmp_path / "lines")
        table = pa.Table.from_pylist(records)
        pq.write_table(table, tmp_path / "c.parquet")
        dataset = datasets.Dataset(table)
        for i, source in enumerate((tmp_path / "c.parquet", table, dataset, dataset.to_iterable_dataset())):
            tokjax.write_dataset(source, field, tmp_path / str(i))
            self.assert_equal(tmp_path / str(i), tmp_path / "lines")
        arguments[1]["null"] = None
        records[0]["messages"][0]["null"] = None
        (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, records)))
        tokjax.write_dataset(tmp_path / "c.jsonl", field, tmp_path / "lines", overwrite=True)
        records[0]["messages"] = np.array(records[0]["messages"], object)  # (as of a data frame)
        tokjax.write_dataset(records, field, tmp_path / "records")
        self.assert_equal(tmp_path / "records", tmp_path / "lines")

    def test_errors(self, tmp_path):
        field = tokjax.RawTextField(columns=[Column("score", "float32", per="document")])
        path = tmp_path / "c.parquet"
        pq.write_table(pa.table({"text": ["a", "b"], "score": [1.0, None]}), path)
        with rejects(r"c\.parquet, row 1, column 'score': the record has no value"):
            tokjax.write_dataset(path, field, tmp_path / "data")
        pq.write_table(pa.table({"body": ["a", "b"], "meta": [{"x": 1}] * 2}), path)
        with rejects(r"no column 'text', it has \['body', 'meta', 'meta.x'\]"):
            tokjax.write_dataset(path, field, tmp_path / "data")
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(SourceError, match="truncated or damaged, or not Parquet"):
            tokjax.write_dataset(path, field, tmp_path / "data")
        (tmp_path / "c.csv").write_text("text\na\n")
        with rejects("format 'csv', and values of columns are read from JSON"):
            tokjax.write_dataset(tmp_path / "c.csv", field, tmp_path / "data")
