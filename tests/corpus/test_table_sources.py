"""Tests of errors for tables and dicts where texts are expected: pandas, pyarrow, datasets, NumPy."""

import importlib.util
import json
import subprocess
import sys
import types
from functools import cache

import numpy as np
import pytest

import tokjax
from tests.support.rejections import rejects
from tokjax.trainer import count_pretokens

pa, pd = map(pytest.importorskip, ("pyarrow", "pandas"))
pyarrow_dataset = pytest.importorskip("pyarrow.dataset")

FRAME = pd.DataFrame({"id": [1, 2, 3], "text": ["a b", "c", "d"]})
TABLE = pa.table({"text": ["a b", "c", "d"]})
FRAME_TABLE = pa.Table.from_pandas(FRAME)


@pytest.fixture(scope="module")
def datasets():
    """The library, whose import takes seconds."""
    return pytest.importorskip("datasets")


@cache
def make_dataset():
    return pytest.importorskip("datasets").Dataset.from_dict({"text": ["a b", "c", "d"]})


def make_dataset_dict():
    return pytest.importorskip("datasets").DatasetDict(train=make_dataset())


RAY_PROGRAM = """
import sys, ray, tokjax
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
rows = ray.data.range(100, override_num_blocks=8).map(lambda row: {"text": f"row {row['id']}"})
for i, source in enumerate((rows, rows.iterator())):
    tokjax.write_dataset(source, tokjax.RawTextField(), sys.argv[1] + str(i))
"""


class RayDataset:
    """Stand-in for a dataset of Ray, which needs a cluster."""

    materialize = None

    def __init__(self, table):
        self.table = table
        self.context = types.SimpleNamespace(execution_options=types.SimpleNamespace(preserve_order=False))

    def schema(self):
        return self.table.schema

    def select_columns(self, names):
        return RayDataset(self.table.select(names))

    def iter_batches(self, batch_size, batch_format):
        assert (batch_size, batch_format) == (None, "pyarrow")
        assert self.context.execution_options.preserve_order
        return iter([self.table[:2], self.table[2:]])

    def iter_rows(self):
        return iter(self.table.to_pylist())


class TestTables:
    """Iterating over a table yields column names or rows, never texts."""

    @pytest.mark.parametrize(
        ("source", "hint"),
        [
            (FRAME, "is a DataFrame with the columns ['id', 'text']; pass the column that holds the texts"),
            (FRAME, "such as {}['text']"),
            (FRAME.rename(columns={"text": "body"})[["body"]], "such as {}['body']"),
            (TABLE, "such as {}['text'].to_pylist()"),
            (TABLE.to_batches()[0], "such as {}['text'].to_pylist()"),
            ({"text": ["a"]}, "is a dict with the keys ['text']; pass one of its values, such as {}['text']"),
            ({"text": "a"}, "pass one of its values, such as [{}['text']]"),
            (make_dataset_dict, "pass one of its values, such as {}['train']"),
            (
                RayDataset(TABLE),
                "is a RayDataset of Ray; pass its texts: (row['text'] for row in {}.iter_rows())",
            ),
            (np.arange(3), "must be str or bytes, not int64"),
            (np.array([["a", "b"]]), "must be str or bytes, not ndarray"),
            (TABLE["text"], "not StringScalar; pass the array's values: array.to_pylist()"),
            (pd.Series(["a", None]), "a missing value; leave it out"),
            (["a", None], "a missing value; leave it out"),
        ],
    )
    def test_tables_passed_as_texts_are_rejected(self, tokenizer, source, hint, tmp_path):
        source = source() if callable(source) else source
        if not isinstance(source, pd.DataFrame | pa.Table | pa.RecordBatch | RayDataset):
            with rejects(r"pass one of|must be str or bytes, not"):
                tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / "d")
        for call, name in (
            (lambda: count_pretokens(source, progress=False), "source"),
            (lambda: list(tokjax.corpus.read_documents(source, None)), "source"),
            (lambda: tokjax.encode_batch_result(tokenizer, source), "texts"),
            (lambda: tokjax.encode_batch_result(tokenizer, source, max_length=3), "texts"),
            (lambda: tokjax.encode_windows(tokenizer, source, max_length=9), "texts"),
            (lambda: tokjax.count_tokens(tokenizer, source), "texts"),
        ):
            with pytest.raises(tokjax.errors.InvalidArgumentError) as raised:
                call()
            assert hint.format(name) in str(raised.value)

    def test_tables_passed_as_pairs_are_rejected(self, tokenizer):
        with rejects(r"pairs is a DataFrame .*such as pairs\['text'\]"):
            tokjax.encode_batch_result(tokenizer, ["a"] * len(FRAME), FRAME)

    @pytest.mark.parametrize(
        "make",
        [
            make_dataset,
            lambda: FRAME,
            lambda: TABLE,
            lambda: TABLE.to_batches()[0],
            TABLE.to_reader,
            lambda: pa.RecordBatchReader.from_batches(TABLE.schema, iter(TABLE.to_batches(1))),
            lambda: pyarrow_dataset.dataset(FRAME_TABLE),
            lambda: iter([TABLE[:1], TABLE[1:]]),
            lambda: [FRAME[:2], FRAME[2:]],
            lambda: RayDataset(TABLE),
        ],
    )
    def test_only_write_dataset_accepts_tables(self, tmp_path, make):
        tokjax.write_dataset(make(), tokjax.RawTextField(), tmp_path / "d")
        assert list(tokjax.open_dataset(tmp_path / "d")) == ["a b", "c", "d"]
        with rejects(r"has no column 'body', it has \[.*'text'\]; pass text_c"):
            tokjax.write_dataset(make(), tokjax.RawTextField(), tmp_path / "e", text_column="body")

    @pytest.mark.slow
    def test_datasets_of_ray(self, tmp_path):
        if importlib.util.find_spec("ray") is None:  # (an import would change the path of this process)
            pytest.skip("could not import 'ray'")
        subprocess.run([sys.executable, "-c", RAY_PROGRAM, str(tmp_path / "d")], check=True)
        for i in range(2):
            assert list(tokjax.open_dataset(tmp_path / f"d{i}")) == [f"row {n}" for n in range(100)]

    def test_nested_columns(self, datasets, tmp_path):
        records = [{"meta": {"text": text, "n": i}} for i, text in enumerate(["a b", "c"])]
        sources = [pa.Table.from_pylist(records), datasets.Dataset.from_list(records), records]
        for i, source in enumerate(sources):
            tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / str(i), text_column="meta.text")
            assert list(tokjax.open_dataset(tmp_path / str(i))) == ["a b", "c"]
            with rejects(r"has no .*'other\.text', it has"):
                tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / "x", text_column="other.text")

    def test_partitioned_datasets(self, tmp_path):
        """The directories `lang=de` and `lang=en` are the values of a column."""
        for lang, texts in (("de", ["c"]), ("en", ["a b", "d"])):
            table = pa.table({"meta": [{"text": text, "n": 1} for text in texts], "unread": texts})
            pyarrow_dataset.write_dataset(table, tmp_path / f"lang={lang}", format="parquet")
        source = pyarrow_dataset.dataset(tmp_path, partitioning="hive")
        for column, expected in (("meta.text", ["c", "a b", "d"]), ("lang", ["de", "en", "en"])):
            tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / column, text_column=column)
            assert list(tokjax.open_dataset(tmp_path / column)) == expected

    @pytest.mark.parametrize("iterable", [False, True])
    @pytest.mark.parametrize("kind", ["numpy", "torch", "jax", "arrow", "pandas"])
    @pytest.mark.parametrize("column", ["text", "input_ids"])
    def test_formats_of_datasets(self, datasets, tmp_path, tokenizer, kind, iterable, column):
        if kind == "torch":
            pytest.importorskip(kind)
        source = datasets.Dataset.from_dict(
            {"text": ["a b", "c"], "input_ids": [[1, 2, 3], [4]], "n": [5, 6]}
        )
        source = (source.to_iterable_dataset() if iterable else source).with_format(kind)
        columns = [tokjax.datasets.Column("n", "int32", per="document")]
        field = tokjax.PackedTokenField(tokenizer, columns=columns, add_eos_between_docs=False)
        tokjax.write_dataset(source, field, tmp_path / "d", text_column=column)
        dataset = tokjax.open_dataset(tmp_path / "d", tokenizer)
        documents = [list(b"a b"), list(b"c")] if column == "text" else [[1, 2, 3], [4]]
        assert [ids.tolist() for ids in dataset] == documents
        assert dataset.column("n").tolist() == [5, 6]

    def test_transforms_of_datasets(self, tmp_path):
        source = make_dataset().with_transform(lambda rows: {"text": [text.upper() for text in rows["text"]]})
        tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / "d")
        assert list(tokjax.open_dataset(tmp_path / "d")) == ["A B", "C", "D"]

    def test_array_records(self, tmp_path):
        module = pytest.importorskip("array_record.python.array_record_module")
        sources = pytest.importorskip("array_record.python.array_record_data_source")
        writer = module.ArrayRecordWriter(str(tmp_path / "c.array_record"), "group_size:1")
        for text in ("a b", "c"):
            writer.write(text.encode())
        writer.close()
        source = sources.ArrayRecordDataSource([str(tmp_path / "c.array_record")])
        assert list(tokjax.corpus.read_documents(source, None)) == [b"a b", b"c"]
        tokjax.write_dataset(source, tokjax.RawTextField(), tmp_path / "d")
        assert list(tokjax.open_dataset(tmp_path / "d")) == ["a b", "c"]

    def test_other_functions_reject_a_dataset(self):
        with rejects(r"such as source\['text'\]"):
            count_pretokens(make_dataset(), progress=False)
        with rejects(r"\[record\['text'\] for record in records\]"):
            count_pretokens(list(make_dataset()), progress=False)

    def test_columns_of_tables_are_accepted(self, tokenizer):
        for source in (FRAME["text"], TABLE["text"].to_pylist(), make_dataset()["text"], FRAME["text"][1:]):
            assert list(tokjax.corpus.read_documents(source, None))[-1] == "d"
            assert len(tokjax.encode_batch_result(tokenizer, source)) == len(source)

    @pytest.mark.parametrize(
        ("make", "options"), [(make_dataset, {"num_shards": 2}), (make_dataset_dict, {})]
    )
    def test_directories_of_save_to_disk(self, tmp_path, make, options):
        make().save_to_disk(str(tmp_path / "d"), **options)
        assert list(tokjax.corpus.read_documents(tmp_path / "d", None)) == ["a b", "c", "d"]
        tokjax.write_dataset(tmp_path / "d", tokjax.RawTextField(), tmp_path / "written")
        assert list(tokjax.open_dataset(tmp_path / "written")) == ["a b", "c", "d"]

    def test_saved_datasets_that_are_not_read(self, datasets, tmp_path):
        datasets.DatasetDict(test=make_dataset(), train=make_dataset()).save_to_disk(str(tmp_path / "d"))
        train, test = (tmp_path / "d" / name for name in ("train", "test"))
        message = rf"several saved datasets, \['{train}', '{test}'\]; pass one of them, such as '{train}'"
        with rejects(message):
            tokjax.corpus.text_files(tmp_path / "d")
        state = json.loads((train / "state.json").read_text())
        (train / "state.json").write_text(
            json.dumps(state | {"_indices_data_files": [{"filename": "i.arrow"}]})
        )
        with rejects(r"pass datasets.load_from_disk\('.*train'\)"):
            tokjax.corpus.text_files(train)
        state["_data_files"] = [{"filename": "../test/data-00000-of-00001.arrow"}]
        (train / "state.json").write_text(json.dumps(state))
        with pytest.raises(
            tokjax.errors.SourceError, match=r"state.json: .*'../test/data.*is not in its directory"
        ):
            tokjax.corpus.text_files(train)
