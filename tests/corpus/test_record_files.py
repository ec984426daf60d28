"""Tests of files of records: ArrayRecord files with `tf.train.Example`, MDS shards, and chunks of litdata."""

import contextlib
import gzip
import json
import pickle
import struct

import loky
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.record_files import (
    make_example,
    make_mds_shard,
    make_varint,
    write_array_record,
    write_arrow_chunk,
    write_litdata,
)
from tests.support.text_strategies import hard_texts
from tokjax.corpus import litdata, mds, sample_shards
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import TextChunk, iter_file_chunks
from tokjax.corpus.record_files import RecordFileChunk
from tokjax.corpus.tf_example import parse_example, serialize_example
from tokjax.datasets import Column
from tokjax.models.sentencepiece_files import iter_fields
from tokjax.trainer import count_pretokens

TOKENIZER = tokjax.byte_level(["</s>"], eos_token="</s>")
TEXTS = [f"row {i} " * (i % 7 + 1) for i in range(500)]
STR = {"id": ("int", 8), "text": ("str", None)}
FORMATS = ("array_record", "mds", "mds.gz", "litdata")


def write(path, texts, field="text"):
    """Writes texts to a file in the format of its suffix."""
    if path.suffix == ".array_record":
        records = [make_example({"id": [i], field: text.encode()}) for i, text in enumerate(texts)]
        return write_array_record(path, records)
    if path.suffix == ".litdata":
        values = [[struct.pack("<q", i), text.encode()] for i, text in enumerate(texts)]
        return write_litdata(path, {"id": 0, field: ""}, ["int", "str"], values, name="chunk-0-00000.bin")
    samples = [{"id": i, field: text} for i, text in enumerate(texts)]
    shard = make_mds_shard({"id": ("int", 8), field: ("str", None)}, samples)
    path.write_bytes(gzip.compress(shard) if path.suffix == ".gz" else shard)
    return path


def write_mds(path, text):
    """Writes a shard of one text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(make_mds_shard(STR, [{"id": 0, "text": text}]))


def write_index(directory, names):
    """Writes the index of a directory of MDS shards, some of which may be compressed, too."""
    entries = [{"raw_data": {"basename": name}, "zip_data": {"basename": f"{name}.gz"}} for name in names]
    (directory / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))


def read_texts(source):
    return [tokjax.offsets.to_utf8(text).decode() for text in tokjax.corpus.read_documents(source, None)]


def list_chunks(source, target_nbytes):
    return list(iter_file_chunks(text_files(source), [], target_nbytes, safe_splits=False))


@pytest.mark.parametrize("suffix", FORMATS)
class TestEveryFormat:
    @pytest.fixture
    def path(self, tmp_path, suffix):
        return write(tmp_path / f"shard.00000.{suffix}", TEXTS)

    def test_texts(self, path):
        assert read_texts(path) == TEXTS
        assert read_texts([path, path]) == TEXTS * 2
        assert count_pretokens(path, progress=False) == count_pretokens(TEXTS, progress=False)

    def test_chunks_are_positions(self, path, suffix):
        chunks = list_chunks(path, 2000 if suffix != "mds.gz" else 20_000)
        assert {type(chunk) for chunk in chunks} == {RecordFileChunk}
        assert len(chunks) == 1 if suffix == "mds.gz" else len(chunks) > 3
        assert (chunks[0].start, chunks[-1].stop) == (0, 500)
        assert [chunk.start for chunk in chunks[1:]] == [chunk.stop for chunk in chunks[:-1]]
        assert sum(chunk.read_nbytes for chunk in chunks) == path.stat().st_size
        assert max(len(pickle.dumps(chunk)) for chunk in chunks) < 1000
        read = {chunk: chunk.read() for chunk in reversed(chunks)}
        texts = [tokjax.offsets.to_utf8(text).decode() for chunk in chunks for text, _ in read[chunk]]
        assert texts == TEXTS
        assert [sum(nbytes for _, nbytes in chunk.iter_texts()) for chunk in chunks] == [
            chunk.read_nbytes for chunk in chunks
        ]

    def test_large_compressed_files_are_read_in_parts(self, path, suffix):
        chunks = list_chunks(path, 100)
        assert {type(chunk) for chunk in chunks} == {TextChunk if suffix == "mds.gz" else RecordFileChunk}
        assert sum(chunk.read_nbytes for chunk in chunks) == path.stat().st_size
        texts = [text for chunk in chunks for text, _ in chunk.read()]
        assert [tokjax.offsets.to_utf8(text).decode() for text in texts] == TEXTS

    def test_workers_read_records(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 2000)
        columns = [Column("id", "int64", per="document")] if path.suffix != ".array_record" else []
        field = tokjax.PackedTokenField(TOKENIZER, columns=columns)
        with loky.ProcessPoolExecutor(2) as executor:
            tokjax.write_dataset(path, field, tmp_path / "data", executor=executor)
        dataset = tokjax.open_dataset(tmp_path / "data")
        assert [tokjax.decode(TOKENIZER, ids, skip_special_tokens=True) for ids in dataset] == TEXTS
        if columns:
            assert dataset.column("id").tolist() == list(range(500))

    def test_resuming(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 2000)
        field = tokjax.PackedTokenField(TOKENIZER)
        tokjax.write_dataset(path, field, tmp_path / "whole", shard_size=3000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tokjax.datasets.writer.finish_dataset", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                tokjax.write_dataset(path, field, tmp_path / "data", shard_size=3000)
        assert len(list((tmp_path / "data.incomplete").glob("shard-*.tokens.npy"))) > 2
        tokjax.write_dataset(path, field, tmp_path / "data", shard_size=3000)
        for file in (tmp_path / "whole").iterdir():
            assert file.read_bytes() == (tmp_path / "data" / file.name).read_bytes()

    def test_missing_fields(self, path, tmp_path):
        with pytest.raises(tokjax.errors.SourceError, match=r"no (column|field) 'body'.* pass text_files\("):
            read_texts(text_files(path, field="body"))
        with pytest.raises(tokjax.errors.SourceError, match=r"'id'.* is a (int|ndarray), not a string"):
            read_texts(text_files(path, field="id"))
        with pytest.raises(tokjax.errors.TokjaxError, match="no .*'body'"):
            tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "data", text_column="body")

    def test_empty_files(self, tmp_path, suffix):
        path = write(tmp_path / f"a.{suffix}", [])
        assert read_texts(path) == []
        tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "data")
        assert len(tokjax.open_dataset(tmp_path / "data")) == 0

    def test_truncated_files(self, path):
        data = path.read_bytes()
        for stop in {0, 1, 5, 100, len(data) // 2, len(data) - 1}:
            path.write_bytes(data[:stop])
            with pytest.raises(tokjax.errors.SourceError, match="00000"):
                read_texts(path)

    @given(texts=st.lists(hard_texts, max_size=5))
    def test_any_texts(self, tmp_path_factory, texts, suffix):
        texts = [text.encode("utf-8", "replace").decode() for text in texts]
        path = write(tmp_path_factory.mktemp("corpus") / f"a.{suffix}", texts)
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
        message = serialize_example("input_ids", ids)
        for _ in range(2):
            [(number, message)] = iter_fields(message)
            assert number == 1
        [(_, name), (number, feature)] = iter_fields(message)
        assert (name, number) == (b"input_ids", 2)
        [(number, values)] = iter_fields(feature)
        assert number == 3
        packed = b"".join(map(make_varint, ids))
        assert [*iter_fields(values)] == ([(1, packed)] if ids else [])
        assert parse_example(message_of(ids), "record 0")["input_ids"].tolist() == ids

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
                r"a.array_record, the first record: byte 0 \(0xff\) is not valid UTF-8, but",
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


def message_of(ids):
    return serialize_example("input_ids", ids)


class TestMds:
    def read(self, tmp_path, columns, samples, choose=list, **description):
        (tmp_path / "a.mds").write_bytes(make_mds_shard(columns, samples, **description))
        return [record for _, record in mds.iter_records(tmp_path / "a.mds", 0, len(samples), choose)]

    def test_encodings(self, tmp_path):
        columns = {
            "a": ("int", 8),
            "b": ("uint8", 1),
            "c": ("float32", 4),
            "d": ("str_int", None),
            "e": ("str_float", None),
            "f": ("json", None),
            "g": ("bytes", None),
        }
        sample = {"a": -5, "b": 200, "c": 0.5, "d": 1 << 70, "e": 0.25, "f": {"text": "é"}, "g": b"low"}
        assert self.read(tmp_path, columns, [sample, sample]) == [sample, sample]
        chosen = {"d": 1 << 70, "f": {"text": "é"}}
        assert self.read(tmp_path, columns, [sample], lambda _: list(chosen)) == [chosen]

    def test_ids_in_objects(self, tmp_path):
        """The documents of a field are in a JSON column."""
        samples = [{"meta": {"ids": [5, 6]}}, {"meta": {"ids": []}}]
        (tmp_path / "a.mds").write_bytes(make_mds_shard({"meta": ("json", None)}, samples))
        field = tokjax.PackedTokenField(TOKENIZER, add_eos_between_docs=False)
        tokjax.write_dataset(tmp_path / "a.mds", field, tmp_path / "ids", text_column="meta.ids")
        assert [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "ids")] == [[5, 6], []]

    @pytest.mark.parametrize(
        ("encoding", "size", "dtype", "shape"),
        [
            ("ndarray", None, "uint16", (3,)),
            ("ndarray", None, "int64", (2, 3)),
            ("ndarray", None, "int32", (300,)),
            ("ndarray:int32", None, "int32", (3,)),
            ("ndarray:float32", None, "float32", (1,)),
            ("ndarray:uint8:3", 3, "uint8", (3,)),
            ("ndarray:int32:2,2", 16, "int32", (2, 2)),
        ],
    )
    def test_arrays(self, tmp_path, encoding, size, dtype, shape):
        array = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
        [record] = self.read(tmp_path, {"a": (encoding, size)}, [{"a": array}])
        assert record["a"].dtype == array.dtype
        assert record["a"].tolist() == array.tolist()

    def test_directories(self, tmp_path):
        for i, text in enumerate(["low", "lower", "newest"]):
            shard = make_mds_shard(STR, [{"id": i, "text": text}])
            directory = tmp_path / "group" if i == 2 else tmp_path
            directory.mkdir(exist_ok=True)
            (directory / f"shard.{i:05}.mds").write_bytes(shard)
            (directory / f"shard.{i:05}.mds.gz").write_bytes(gzip.compress(shard))
        (tmp_path / "index.json").write_text("{}")
        assert read_texts(tmp_path) == ["newest", "low", "lower"]
        for path in tmp_path.rglob("*.mds"):
            path.unlink()
        assert read_texts(tmp_path) == ["newest", "low", "lower"]

    def test_index(self, tmp_path):
        for name in ("a.mds", "b.mds", "stale.mds"):
            (tmp_path / name).write_bytes(make_mds_shard(STR, [{"id": 0, "text": name}]))
        zipped = tmp_path / "c.mds.gz"
        zipped.write_bytes(gzip.compress(make_mds_shard(STR, [{"id": 0, "text": "c.mds"}])))
        entries = [{"raw_data": {"basename": name}, "zip_data": None} for name in ("b.mds", "a.mds")]
        entries.append({"raw_data": {"basename": "c.mds"}, "zip_data": {"basename": "c.mds.gz"}})
        (tmp_path / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
        assert read_texts(tmp_path) == ["b.mds", "a.mds", "c.mds"]
        zipped.unlink()
        message = r"c.mds: is missing, and index.json in its directory lists it; copy the directory"
        with pytest.raises(tokjax.errors.SourceError, match=message):
            read_texts(tmp_path)

    def test_raw_and_compressed_shards_in_different_directories(self, tmp_path):
        write_mds(tmp_path / "a" / "1.mds", "a")
        write_mds(tmp_path / "b" / "1.mds", "b")
        for name in ("a/1.mds.gz", "b/2.MDS.GZ"):
            (tmp_path / name).write_bytes(gzip.compress((tmp_path / name[0] / "1.mds").read_bytes()))
        (tmp_path / "a" / "1.mds.br").write_bytes(b"not read")
        assert read_texts(tmp_path) == ["a", "b", "b"]

    @pytest.mark.parametrize("index", [{"shards": [], "version": 2}, {"chunks": [], "config": {}}])
    def test_indexes_without_shards(self, tmp_path, index):
        (tmp_path / "index.json").write_text(json.dumps(index))
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match=r"is a directory without shards, and '.*index.json' lists none; write the shards again, or",
        ):
            read_texts(tmp_path)
        write_mds(tmp_path / "a" / "1.mds", "low")
        assert read_texts(tmp_path) == ["low"]
        write_index(tmp_path, ["2.mds"])
        with pytest.raises(tokjax.errors.SourceError, match=r"2\.mds: is missing, and index.json"):
            read_texts(tmp_path)

    def test_indexes_in_subdirectories(self, tmp_path):
        for name in ("b/2.mds", "b/1.mds", "b/stale.mds", "a.mds", "c/deep/1.mds", "d.mds"):
            write_mds(tmp_path / name, name)
        write_index(tmp_path / "b", ["2.mds", "1.mds"])
        write_index(tmp_path / "c", ["deep/1.mds"])
        write_index(tmp_path / "c" / "deep", ["1.mds", "not needed.mds"])
        (tmp_path / "e").mkdir()
        (tmp_path / "e" / "index.json").write_text("another program's")
        assert read_texts(tmp_path) == ["a.mds", "b/2.mds", "b/1.mds", "c/deep/1.mds", "d.mds"]
        write_index(tmp_path, ["d.mds", "c/deep/1.mds"])
        assert read_texts(tmp_path) == ["d.mds", "c/deep/1.mds"]

    @pytest.mark.parametrize("kind", ["mds", "litdata"])
    def test_missing_shards_in_subdirectories(self, tmp_path, monkeypatch, kind):
        names = ["1.mds", "2.mds", "3.mds"] if kind == "mds" else [f"chunk-0-{i}.bin" for i in (1, 2, 3)]
        for split in ("train", "val"):
            for name in names:
                if kind == "mds":
                    write_mds(tmp_path / split / name, name)
                else:
                    write_litdata(tmp_path / split, "", ["str"], [[name.encode()]], name=name)
            if kind == "mds":
                write_index(tmp_path / split, names)
        monkeypatch.chdir(tmp_path / "val")
        suffix = names[0][-4:]
        patterns = [f"../*/*{suffix}", f"../**/*{suffix}", f"{tmp_path}/t*/*[12]{suffix}"]
        assert [read_texts(source) for source in ("..", *patterns)] == [names * 2] * 3 + [names[:2]]
        message = r"train.{}: is missing, and index.json in its directory lists it; copy the directory again"
        (tmp_path / "train" / names[1]).unlink()
        for source in ("..", *patterns, "../train", f"../train/*{suffix}"):
            with pytest.raises(tokjax.errors.SourceError, match=message.format(names[1])):
                read_texts(source)
        assert read_texts(f"../*/*[13]{suffix}") == [names[0], names[2]] * 2
        for name in (names[0], names[2]):
            (tmp_path / "train" / name).unlink()
        for source in ("..", *patterns[:2], "../train"):
            with pytest.raises(tokjax.errors.SourceError, match=message.format(names[0])):
                read_texts(source)
        assert read_texts(f"*{suffix}") == read_texts(f"../v*/*{suffix}") == names

    def test_patterns_that_match_some_of_the_forms_of_a_shard(self, tmp_path):
        write_mds(tmp_path / "1.mds", "1")
        write_mds(tmp_path / "2.mds", "2")
        write_index(tmp_path, ["1.mds", "2.mds"])
        assert read_texts(tmp_path / "*.mds") == ["1", "2"]
        compressed = tmp_path / "2.mds.gz"
        compressed.write_bytes(gzip.compress((tmp_path / "2.mds").read_bytes()))
        (tmp_path / "2.mds").unlink()
        assert read_texts(tmp_path / "*.mds*") == ["1", "2"]
        assert read_texts(tmp_path / "1.*") == ["1"]
        with pytest.raises(
            tokjax.errors.SourceError, match=r"2.mds: is missing, .*; use a pattern that matches 2.mds.gz"
        ):
            read_texts(tmp_path / "*.mds")

    @pytest.mark.parametrize(
        ("index", "message"),
        [
            ("{", "index.json: can't be read, it is damaged: JSONDecodeError"),
            ({"shards": 3}, "it is damaged: TypeError"),
            ({"shards": [{"raw_data": None}]}, "names no file of the directory"),
            ({"shards": [{"raw_data": {"basename": 3}}]}, "it is damaged: AttributeError"),
            ({"shards": [{"raw_data": {"basename": "../a.mds"}}]}, "names no file of the directory"),
            ({"chunks": [{"filename": "/a.bin"}]}, "names no file of the directory"),
        ],
    )
    def test_damaged_indexes(self, tmp_path, index, message):
        (tmp_path / "a.mds").write_bytes(make_mds_shard(STR, [{"id": 0, "text": "low"}]))
        (tmp_path / "index.json").write_text(index if isinstance(index, str) else json.dumps(index))
        with pytest.raises(tokjax.errors.SourceError, match=message):
            read_texts(tmp_path)

    def test_ids(self, tmp_path):
        documents = [[5, 6, 256], [7]]
        samples = [{"tokens": np.array(ids, np.int32)} for ids in documents]
        path = tmp_path / "a.mds"
        path.write_bytes(make_mds_shard({"tokens": ("ndarray:int32", None)}, samples))
        field = tokjax.PackedTokenField(TOKENIZER, add_eos_between_docs=False)
        tokjax.write_dataset(path, field, tmp_path / "data", text_column="tokens")
        assert [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "data")] == documents

    @pytest.mark.parametrize(
        ("encoding", "value", "message"),
        [
            (
                "pkl",
                pickle.dumps(1),
                "the column 'text' has the encoding 'pkl', which is not supported; str,",
            ),
            ("ndarray:int32:x", b"", "the encoding 'ndarray:int32:x', which"),
            ("str:x", b"", "the encoding 'str:x', which"),
            (
                "bytes",
                np.arange(3).tobytes(),
                "has the encoding 'bytes', and its bytes are not text; if they",
            ),
            ("bytes", b"\xff", "its bytes are not text"),
            ("str", b"\xff", "sample 0: a value is damaged: 'utf-8' codec"),
            ("json", b"{", "a value is damaged"),
            ("json", b"[" * 100_000, "a value is damaged"),
            ("str_int", b"x", "a value is damaged"),
            ("uint16", b"x", "a value is damaged"),
            ("ndarray", b"", "a value is damaged"),
            ("ndarray", b"\x01", "a value is damaged"),
            ("ndarray", b"\x08\x08\x01", "a value is damaged: the shape of an array is incomplete"),
            ("ndarray:int32", b"\x04\x02\x00\x00\x00\x00", "a value is damaged: cannot reshape"),
        ],
    )
    def test_values_that_are_not_read(self, tmp_path, encoding, value, message):
        shard = make_mds_shard({"text": ("bytes", None)}, [{"text": value}], column_encodings=[encoding])
        (tmp_path / "a.mds").write_bytes(shard)
        with pytest.raises(tokjax.errors.SourceError, match=message):
            read_texts(tmp_path / "a.mds")

    @pytest.mark.parametrize(
        ("description", "message"),
        [
            ({"version": 3}, "has version 3 of the format 'mds', and version 2 of 'mds' is read"),
            ({"format": "json"}, "has version 2 of the format 'json'"),
            ({"column_names": ["text", "text"]}, "its description can't be read"),
            ({"column_names": ["text", 3]}, "its columns are invalid"),
            ({"column_sizes": [8, -1]}, "its columns are invalid"),
            ({"column_sizes": [8, None, None]}, "its columns are invalid"),
            ({"column_encodings": 5}, "its description can't be read"),
        ],
    )
    def test_damaged_descriptions(self, tmp_path, description, message):
        (tmp_path / "a.mds").write_bytes(make_mds_shard(STR, [{"id": 1, "text": "low"}], **description))
        with pytest.raises(tokjax.errors.SourceError, match=message):
            read_texts(tmp_path / "a.mds")

    def test_hostile_headers(self, tmp_path, monkeypatch):
        shard = make_mds_shard(STR, [{"id": 1, "text": "low"}])
        path = tmp_path / "a.mds"

        def check(data, message):
            path.write_bytes(data)
            with pytest.raises(tokjax.errors.SourceError, match=message):
                read_texts(path)

        check(struct.pack("<I", 1 << 31) + shard[4:], "it has 2,147,483,648 samples, more than 67,108,864")
        check(struct.pack("<I", 1 << 20) + shard[4:], "it ends too early")
        check(shard[:4] + struct.pack("<I", 3) + shard[8:], "its offsets are inconsistent")
        check(shard[:8] + struct.pack("<I", 3) + shard[12:], "its offsets are inconsistent")
        check(shard + b"x", "its samples end at byte")
        sizes = shard.rindex(struct.pack("<I", 3))
        check(
            shard[:sizes] + struct.pack("<I", 4) + shard[sizes + 4 :], "sample 0: is damaged: its values have"
        )
        monkeypatch.setattr(sample_shards, "_MAX_SAMPLE_BYTES", 10)
        check(shard, "sample 0 has 15 bytes, and at most 10 are read")

    @given(position=st.integers(0, 400), byte=st.integers(0, 255))
    def test_any_damaged_byte(self, tmp_path_factory, position, byte):
        """A damaged shard gives texts or an error of tokjax, and no other error."""
        shard = bytearray(make_mds_shard(STR, [{"id": i, "text": "low" * i} for i in range(4)]))
        shard[position % len(shard)] = byte
        path = tmp_path_factory.mktemp("corpus") / "a.mds"
        path.write_bytes(shard)
        with contextlib.suppress(tokjax.errors.SourceError):
            read_texts(path)


class TestLitdata:
    def test_texts(self, tmp_path):
        path = write_litdata(tmp_path / "data", "", ["str"], [[text.encode()] for text in TEXTS])
        assert read_texts(path) == read_texts(tmp_path / "data") == TEXTS

    def test_structures(self, tmp_path):
        structure = {"a": [0, 0.0], "b": {"text": "", "is_new": False}, "c": (0,)}
        sample = [struct.pack("<q", -5), struct.pack("<d", 0.5), "é".encode(), b"\x01", b"\x01\x02"]
        formats = ["int", "float", "text", "bool", "no_header_numpy:5"]
        path = write_litdata(tmp_path / "data", structure, formats, [sample])
        [(location, record)] = litdata.iter_records(path, 0, 1, list)
        assert location == f"{path}, sample 0"
        assert record.pop("c.0").tolist() == [513]
        assert record == {"a.0": -5, "a.1": 0.5, "b.text": "é", "b.is_new": True}
        assert read_texts(text_files(path, field="b.text")) == ["é"]

    @pytest.mark.parametrize(
        "data_format", ["no_header_numpy:2", "no_header_tensor:15", "no_header_tensor:16"]
    )
    @pytest.mark.parametrize("loader", ["PyTreeLoader", "TokensLoader"])
    def test_ids(self, tmp_path, data_format, loader):
        documents = [[5, 6, 256], [7]]
        values = [[np.array(ids, "<i4").tobytes()] for ids in documents]
        write_litdata(tmp_path / "ids", 0, [data_format], values, item_loader=loader)
        field = tokjax.PackedTokenField(TOKENIZER, add_eos_between_docs=False)
        tokjax.write_dataset(tmp_path / "ids", field, tmp_path / "data")
        assert [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "data")] == documents

    @pytest.mark.parametrize(
        ("data_format", "config", "message"),
        [
            (
                "pickle",
                {},
                "the value 'text' has the format 'pickle', which is not supported; texts, numbers",
            ),
            ("no_header_numpy:99", {}, "the format 'no_header_numpy:99', which"),
            ("no_header_numpy:x", {}, "the format 'no_header_numpy:x', which"),
            ("numpy:2", {}, "the format 'numpy:2', which"),
            ("str", {"encryption": {"level": "chunk"}}, "index.json: its chunks are encrypted, and only"),
            (
                "str",
                {"compression": "zstd"},
                r"compressed with 'zstd', and only .* pass the iterable litdata.StreamingDataset\('.*data'\)",
            ),
            (
                "str",
                {"data_format": ["str", "int"]},
                "its description can't be read: .*there are 1 names and",
            ),
            ("str", {"data_format": [5]}, "its description can't be read"),
            ("str", {"data_spec": "["}, "its description can't be read"),
            ("str", {"data_spec": "[1, []]"}, "its description can't be read"),
            ("int", {}, "sample 0: a value is damaged: unpack requires a buffer of 8 bytes"),
        ],
    )
    def test_files_that_are_not_read(self, tmp_path, data_format, config, message):
        config = {"data_format": [data_format]} | config
        write_litdata(tmp_path / "data", {"text": ""}, config.pop("data_format"), [[b"low"]], **config)
        with pytest.raises(tokjax.errors.SourceError, match=message):
            read_texts(tmp_path / "data")

    def test_missing_and_changed_indexes(self, tmp_path):
        path = write_litdata(tmp_path / "data", "", ["str"], [[b"low"]])
        assert read_texts(path) == ["low"]
        write_litdata(tmp_path / "data", {"text": "", "new": ""}, ["str", "str"], [[b"lower", b"new"]])
        assert read_texts(path) == ["lower"]
        (tmp_path / "data" / "index.json").unlink()
        with pytest.raises(
            tokjax.errors.SourceError,
            match=r"chunk-0-0.bin: is a chunk of litdata.* no index.json in its dir",
        ):
            read_texts(path)


ROWS = [{"text": f"row {i}", "meta": {"id": i}, "ids": list(range(i % 3))} for i in range(7)]


class TestLitdataWithArrow:
    @pytest.mark.parametrize("body", [b"", b"also as binary samples"])
    def test_texts_and_ids(self, tmp_path, body):
        path = write_arrow_chunk(tmp_path / "data", ROWS, body=body)
        texts = [row["text"] for row in ROWS]
        assert read_texts(path) == read_texts(tmp_path / "data") == texts
        tokjax.write_dataset(
            path, tokjax.PackedTokenField(TOKENIZER), tmp_path / "written", text_column="ids", workers=2
        )
        documents = [ids[:-1].tolist() for ids in tokjax.open_dataset(tmp_path / "written")]
        assert documents == [row["ids"] for row in ROWS]

    @given(bounds=st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted), batch_rows=st.integers(1, 8))
    def test_ranges(self, tmp_path_factory, bounds, batch_rows):
        path = write_arrow_chunk(tmp_path_factory.mktemp("data"), ROWS, batch_rows=batch_rows)
        records = list(litdata.iter_records(path, *bounds, lambda _: ["text", "meta.id"]))
        assert records == [
            (f"{path}, sample {i}", {"text": f"row {i}", "meta.id": i}) for i in range(*bounds)
        ]

    def test_damage(self, tmp_path):
        path = write_arrow_chunk(tmp_path / "data", ROWS)
        data = path.read_bytes()
        write_arrow_chunk(tmp_path / "data", ROWS, count=8)
        with pytest.raises(tokjax.errors.SourceError, match=r"chunk-0-0.bin: .*has 8 samples, and 7 rows"):
            read_texts(path)
        path.write_bytes(data[:-12] + struct.pack("<I", len(data)) + data[-8:])
        with pytest.raises(tokjax.errors.SourceError, match=r"its Arrow file has \d+ bytes, and \d+ are"):
            read_texts(path)
        for damaged in (data[:-1], data[:-300] + data[-200:], data[:-12] + b"\1\0\0\0" + data[-8:]):
            path.write_bytes(damaged)
            with pytest.raises(tokjax.errors.SourceError, match=r"chunk-0-0.bin: truncated or damaged"):
                read_texts(path)

    @given(position=st.integers(0, 4000), byte=st.integers(0, 255))
    def test_any_damage(self, tmp_path_factory, position, byte):
        path = write_arrow_chunk(tmp_path_factory.mktemp("data"), ROWS)
        data = bytearray(path.read_bytes())
        data[position % len(data)] = byte
        path.write_bytes(data)
        with contextlib.suppress(tokjax.errors.SourceError):
            read_texts(path)
