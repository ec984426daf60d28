"""Tests of ArrayRecord files, whose records are `tf.train.Example` messages."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.datasets.test_executors import RecordingExecutor
from tests.support.record_files import make_example, make_varint, write_array_record
from tests.support.text_strategies import hard_texts
from tokjax.corpus.array_record import ArrayRecordChunk, parse_example, serialize_example
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import iter_file_chunks
from tokjax.datasets import Column
from tokjax.models.sentencepiece_files import iter_fields
from tokjax.trainer import count_pretokens

TOKENIZER = tokjax.byte_level(["</s>"], eos_token="</s>")
TEXTS = [f"row {i} " * (i % 7 + 1) for i in range(500)]


def write(path, texts):
    """Writes texts to a file, as the feature `text` of its records."""
    records = [make_example({"id": [i], "text": text.encode()}) for i, text in enumerate(texts)]
    return write_array_record(path, records)


def read_texts(source):
    return [tokjax.offsets.to_utf8(text).decode() for text in tokjax.corpus.read_documents(source, None)]


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "shard.00000.array_record", TEXTS)


def test_texts(path):
    assert read_texts(path) == TEXTS
    assert read_texts([path, path]) == TEXTS * 2
    assert count_pretokens(path, progress=False) == count_pretokens(TEXTS, progress=False)


@pytest.mark.parametrize("target_nbytes", [100, 2000])
def test_chunks(path, target_nbytes):
    """Chunks are positions in the file. Those of a large file are read in parts, each with its texts."""
    chunks = list(iter_file_chunks(text_files(path), [], target_nbytes, safe_splits=False))
    assert len(chunks) > 3
    assert sum(chunk.read_nbytes for chunk in chunks) == path.stat().st_size
    assert max(len(pickle.dumps(chunk)) for chunk in chunks) < 1000
    read = {chunk: chunk.read() for chunk in reversed(chunks)}
    assert [tokjax.offsets.to_utf8(text).decode() for chunk in chunks for text, _ in read[chunk]] == TEXTS
    assert {type(chunk) for chunk in chunks} == {ArrayRecordChunk}


def test_workers_read_records(path, tmp_path, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 2000)
    executor = RecordingExecutor()
    tokjax.write_dataset(path, tokjax.PackedTokenField(TOKENIZER), tmp_path / "data", executor=executor)
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert [tokjax.decode(TOKENIZER, ids, skip_special_tokens=True) for ids in dataset] == TEXTS


def test_missing_fields(path, tmp_path):
    with pytest.raises(tokjax.errors.SourceError, match=r"no field 'body'.* pass text_files\("):
        read_texts(text_files(path, field="body"))
    with pytest.raises(tokjax.errors.SourceError, match=r"'id'.* is a ndarray, not a string"):
        read_texts(text_files(path, field="id"))
    with pytest.raises(tokjax.errors.TokjaxError, match="no .*'body'"):
        tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "data", text_column="body")


def test_empty_and_truncated_files(path):
    data = path.read_bytes()
    for stop in {0, 1, 5, 100, len(data) // 2, len(data) - 1}:
        path.write_bytes(data[:stop])
        with pytest.raises(tokjax.errors.SourceError, match="00000"):
            read_texts(path)
    assert read_texts(write(path, [])) == []


@given(texts=st.lists(hard_texts, max_size=5))
def test_any_texts(tmp_path_factory, texts):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    path = write(tmp_path_factory.mktemp("corpus") / "a.array_record", texts)
    assert read_texts(path) == [text for text in texts if text]


@pytest.mark.parametrize("name", ["train.array_record-00000-of-00002", "train.arrayrecord"])
def test_names_of_array_record_files(tmp_path, name):
    path = write(tmp_path / "a.array_record", ["low"]).rename(tmp_path / name)
    assert read_texts(path) == ["low"]


class TestExamples:
    @pytest.fixture(autouse=True)
    def _protobuf(self):
        pytest.importorskip("google.protobuf.message")

    def test_values(self):
        record = make_example(
            {"a": b"text", "b": [b"x", b"y"], "c": [1, -2, 1 << 40], "d": [0.5, 2.0], "e": [7], "f": []}
        )
        values = parse_example(record, "record 0")
        assert {name: values[name] for name in "ab"} == {"a": b"text", "b": [b"x", b"y"]}
        assert values["c"].tolist() == [1, -2, 1 << 40]
        assert values["d"].dtype == np.float32
        assert values["d"].tolist() == [0.5, 2.0]
        assert values["e"].tolist() == [7]
        assert values["f"].tolist() == []
        unpacked = parse_example(make_example({"c": [1, -2, 300]}, packed=False), "record 0")
        assert unpacked["c"].tolist() == [1, -2, 300]
        assert parse_example(b"", "record 0") == {}

    @given(st.lists(st.integers(0, (1 << 32) - 1)))
    def test_serialization(self, ids):
        """A parser that was not generated from the definition reads the ids."""
        message = serialized = serialize_example("input_ids", ids)
        for _ in range(2):
            [(number, message)] = iter_fields(message)
            assert number == 1
        [(_, name), (number, feature)] = iter_fields(message)
        assert (name, number) == (b"input_ids", 2)
        [(number, values)] = iter_fields(feature)
        assert number == 3
        packed = b"".join(map(make_varint, ids))
        assert [*iter_fields(values)] == ([(1, packed)] if ids else [])
        assert parse_example(serialized, "record 0")["input_ids"].tolist() == ids

    def test_ids(self, tmp_path):
        documents = [[5, 6, 256], [7], []]
        records = [make_example({"input_ids": ids, "weight": [0.5] * len(ids)}) for ids in documents]
        path = write_array_record(tmp_path / "a.array_record", records)
        field = tokjax.PackedTokenField(
            TOKENIZER, add_eos_between_docs=False, columns=[Column("weight", "float32")]
        )
        tokjax.write_dataset(path, field, tmp_path / "data", text_column="input_ids")
        dataset = tokjax.open_dataset(tmp_path / "data")
        assert [ids.tolist() for ids in dataset] == documents
        assert dataset.column("weight")[0].tolist() == [0.5] * 3

    def test_missing_texts(self, tmp_path):
        records = [make_example({"text": b"low", "n": [1]}), make_example({"text": []}), b""]
        path = write_array_record(tmp_path / "a.array_record", records)
        with pytest.raises(tokjax.errors.SourceError, match="record 1: the field 'text' is a ndarray, not a"):
            read_texts(path)

    def test_records_in_groups(self, tmp_path):
        records = [make_example({"text": text.encode()}) for text in TEXTS]
        path = write_array_record(tmp_path / "a.array_record", records, "group_size:100")
        assert read_texts(path) == TEXTS


class TestJSONAndPlainTexts:
    @given(texts=st.lists(hard_texts, max_size=5), as_json=st.booleans())
    def test_any_texts(self, tmp_path_factory, texts, as_json):
        texts = [text.encode("utf-8", "replace").decode() for text in texts]
        first = "{ text" if texts else ""  # (not JSON, and not binary)
        records = [json.dumps({"text": text}) for text in texts] if as_json else [first, *texts]
        path = tmp_path_factory.mktemp("corpus") / "a.array_record"
        write_array_record(path, [record.encode() for record in records])
        assert read_texts(path) == [text for text in (texts if as_json else [first, *texts]) if text]

    def test_columns_and_ids_of_json(self, tmp_path):
        records = [{"meta": {"text": text}, "n": i, "ids": [i, 256]} for i, text in enumerate(TEXTS[:9])]
        path = write_array_record(
            tmp_path / "a.array_record", [json.dumps(record).encode() for record in records]
        )
        columns = [Column("n", "int32", per="document")]
        field = tokjax.PackedTokenField(TOKENIZER, add_eos_between_docs=False, columns=columns)
        encoded = [tokjax.encode(TOKENIZER, text, add_special_tokens=False).tolist() for text in TEXTS[:9]]
        for column, expected in (("meta.text", encoded), ("ids", [record["ids"] for record in records])):
            tokjax.write_dataset(path, field, tmp_path / column, text_column=column)
            dataset = tokjax.open_dataset(tmp_path / column)
            assert [ids.tolist() for ids in dataset] == expected
            assert dataset.column("n").tolist() == list(range(9))

    def test_texts_that_start_like_examples(self, tmp_path):
        texts = ["", "\n\nlow", "\n{", '{"text": "of a text"}', "Hi"]
        path = write_array_record(tmp_path / "a.array_record", [text.encode() for text in texts])
        assert read_texts(path) == texts[1:]

    @pytest.mark.parametrize(
        ("records", "field", "message"),
        [
            ([b"low", b"lower"], "body", r"record 0: the record has no field 'body', it has \['text'\]"),
            (
                [b"\xff\xd8"],
                "text",
                r"a.array_record: the first record, b'\\xff\\xd8', is not UTF-8 text; write the records as",
            ),
            ([b'{"a": 1}', b"low"], "text", r"no field 'text', it has \['a'\]"),
            (
                [b'{"text": "a"}', b"low"],
                "text",
                r"record 1: not JSON: .*; if the records are texts, pass array_record.*Source\(\[PATH\]\)",
            ),
            ([b'{"text": "a"}', b"[1]"], "text", "record 1: a JSON object is expected, not a list"),
            ([make_example({"text": b"a"}), b"low"], "text", "record 1: is not a tf.train.Example"),
        ],
    )
    def test_other_records(self, tmp_path, records, field, message):
        path = write_array_record(tmp_path / "a.array_record", records)
        with pytest.raises(tokjax.errors.SourceError, match=message):
            read_texts(text_files(path, field=field))
