"""Every field: what is written is read back, by one way in and one way out."""

import gzip
import json
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import make_pair
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.core.utf8 import to_utf8
from tokjax.datasets.fields import make_field
from tokjax.trainer import train_sentencepiece

SPECIAL = {"<s>": 256, "</s>": 257}
TOKENIZER = tokjax.byte_level_bpe(
    {bytes([i]): i for i in range(256)} | {b"lo": 258, b"low": 259},
    special_tokens=SPECIAL,
    bos_token="<s>",
    eos_token="</s>",
)
PIECES = train_sentencepiece(CORPUS * 2, vocab_size=150, progress=False).tokenizer
FIELDS = {
    "raw": tokjax.RawTextField(),
    "raw, whole": tokjax.RawTextField(max_chars=None),
    "raw, short": tokjax.RawTextField(max_chars=5),
    "tokenized": tokjax.TokenizedTextField(TOKENIZER),
    "tokenized, short": tokjax.TokenizedTextField(TOKENIZER, max_tokens=5),
    "tokenized, bare": tokjax.TokenizedTextField(TOKENIZER, max_tokens=None, add_special_tokens=False),
    "tokenized by a library": tokjax.TokenizedTextField(make_pair("unigram")[1], disallowed_special=()),
    "sentencepiece": tokjax.SentencePieceTextField(PIECES, max_tokens=7),
    "packed": tokjax.PackedTokenField(TOKENIZER, chunk_tokens=4),
    "bucketed": tokjax.BucketedTokenField(TOKENIZER, bucket_boundaries=[8, 4], max_tokens=20),
}
fields = pytest.mark.parametrize("name", FIELDS)
documents = st.lists(hard_texts | byte_strings, max_size=8)


def encode_stored(field, text):
    """What a field stores of a document, the slow way, and how many ids or characters it cuts off."""
    if isinstance(field, tokjax.RawTextField):
        full = to_utf8(text).decode("utf-8", "surrogateescape")
        remaining = full[: field.max_chars]
        return list(remaining.encode("utf-8", "surrogateescape")), len(full) - len(remaining)
    tokenizer = field.tokenizer
    options = {"disallowed_special": field.disallowed_special}
    if isinstance(field, tokjax.PackedTokenField):
        ids = tokjax.encode(tokenizer, text, add_special_tokens=False, **options).tolist()
        return [tokjax.bos_id(tokenizer), *ids, tokjax.eos_id(tokenizer)], 0
    options["add_special_tokens"] = field.add_special_tokens
    full = tokjax.encode_result(tokenizer, text, **options).ids
    remaining = tokjax.encode_result(tokenizer, text, **options, max_length=field.max_tokens).ids
    return remaining.tolist(), len(full) - len(remaining)


def read_contents(dataset):
    """Of each document, by its id."""
    ids = dataset.documents["doc_id"].tolist()
    read = dataset.text_bytes if isinstance(dataset, tokjax.datasets.RawTextDataset) else dataset.document
    return {doc_id: read(row) for row, doc_id in enumerate(ids)}


@fields
@get_max_examples(25)
@given(texts=documents, shard_size=st.integers(1, 60))
def test_what_is_written_is_read_back(name, tmp_path_factory, texts, shard_size):
    field, path = FIELDS[name], tmp_path_factory.mktemp("fields") / "data"
    written = tokjax.write_dataset(texts, field, path, shard_size=shard_size)
    dataset = tokjax.open_dataset(path)
    assert len(dataset) == dataset.num_documents == written.num_documents == len(texts)
    assert dataset.field == field
    found = read_contents(dataset)
    assert sorted(found) == list(range(len(texts)))
    expected = [encode_stored(field, text) for text in texts]
    assert [list(found[doc_id]) for doc_id in range(len(texts))] == [remaining for remaining, _ in expected]
    if not isinstance(field, tokjax.RawTextField):
        assert {found[doc_id].dtype for doc_id in found} <= {np.dtype(np.int32)}
    assert written.num_cut == sum(num_dropped > 0 for _, num_dropped in expected)
    assert written.num_items == sum(map(len, found.values())) == dataset.document_lengths.sum()
    assert written.num_bytes == sum(map(len, map(to_utf8, texts)))
    dataset.verify()
    again = pickle.loads(pickle.dumps(dataset))
    assert {key: list(value) for key, value in read_contents(again).items()} == {
        key: list(value) for key, value in found.items()
    }


@fields
def test_it_is_the_same_bytes_for_any_number_of_workers(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 100)
    texts = CORPUS * 20
    for workers in (1, 3, 7):
        tokjax.write_dataset(texts, FIELDS[name], tmp_path / str(workers), shard_size=300, workers=workers)
    first, *others = [
        {path.name: path.read_bytes() for path in (tmp_path / str(workers)).iterdir()}
        for workers in (1, 3, 7)
    ]
    assert len(first) > 4
    assert others == [first, first]


@fields
def test_threads_share_it(name, tmp_path):
    tokjax.write_dataset(CORPUS * 5, FIELDS[name], tmp_path / "data", shard_size=50)
    dataset = tokjax.open_dataset(tmp_path / "data")
    expected = [list(dataset[row]) for row in range(len(dataset))]
    shared, found = tokjax.open_dataset(tmp_path / "data"), []
    threads = [
        threading.Thread(target=lambda: found.append([list(shared[row]) for row in range(len(shared))]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


@fields
def test_the_index_keeps_the_names(name, tmp_path):
    tokjax.write_dataset([(7, "low"), (3, "é")], FIELDS[name], tmp_path / "data")
    index = tokjax.open_dataset(tmp_path / "data").documents
    is_text = isinstance(FIELDS[name], tokjax.RawTextField)
    of_text = ("doc_id", "data_ptr", "byte_length", "char_length")
    assert index.dtype.names == (of_text if is_text else ("doc_id", "start_offset", "num_tokens"))
    assert sorted(index["doc_id"]) == [3, 7]
    if is_text:
        assert index.tolist() == [(7, 0, 3, 3), (3, 3, 2, 1)]


@fields
def test_a_field_by_its_number(name):
    field = FIELDS[name]
    assert make_field(field.TYPE_ID, json.loads(json.dumps(field.options)), field.tokenizer) == field


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (tokjax.TokenizedTextField, {"max_tokens": np.int64(5), "add_special_tokens": np.True_}),
        (tokjax.BucketedTokenField, {"max_tokens": np.int32(5000), "add_special_tokens": 1}),
        (tokjax.PackedTokenField, {"chunk_tokens": np.uint16(7), "add_eos_between_docs": 1}),
    ],
)
def test_options_are_numbers_that_a_manifest_can_hold(kind, given):
    field = kind(TOKENIZER, **given)
    assert json.loads(json.dumps(field.options)) == field.options
    assert {name: type(value) for name, value in field.options.items() if name in given} == {
        name: bool if name.startswith("add") else int for name in given
    }


@pytest.mark.parametrize("kind", [tokjax.TokenizedTextField, tokjax.BucketedTokenField])
def test_documents_fit_an_eos_id(kind):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="max_tokens must be at least 1, not 0"):
        kind(TOKENIZER, max_tokens=0)


def test_numbers_of_fields_are_those_of_the_design():
    numbers = {FIELDS[name].TYPE_ID for name in FIELDS}
    assert numbers == {40, 41, 42, 43, 44}
    with pytest.raises(tokjax.errors.DatasetMismatchError, match=r"type id 7; .* RawTextField \(40\)"):
        make_field(7, {}, None)


class TestRawText:
    def test_is_tokenized_by_any_tokenizer(self, tmp_path):
        tokjax.write_dataset(["low é", b"\xff!"], tokjax.RawTextField(), tmp_path / "data")
        dataset = tokjax.open_dataset(tmp_path / "data", TOKENIZER)
        assert dataset[0] == dataset.decode_text(0) == "low é"
        assert dataset.decode_text(1) == "\ufffd!"
        assert dataset.text_bytes(1) == b"\xff!"
        assert dataset.decode_tokenized(0, max_length=3).ids.tolist() == [256, 259, 257]
        other = dataset.decode_tokenized(1, tokenizer=tokjax.byte_level())
        assert tokjax.decode_bytes(tokjax.byte_level(), other.ids) == b"\xff!"
        without = tokjax.open_dataset(tmp_path / "data")
        with pytest.raises(
            tokjax.errors.DatasetIncompleteError, match=r"no tokenizer; open it with open_data"
        ):
            without.decode_tokenized(0)

    def test_long_texts_are_truncated_and_counted(self, tmp_path):
        written = tokjax.write_dataset(["éééé", "é"], tokjax.RawTextField(max_chars=2), tmp_path / "data")
        assert written.num_cut == 1
        assert tokjax.open_dataset(tmp_path / "data")[0] == "éé"


class TestBuckets:
    field = tokjax.BucketedTokenField(TOKENIZER, bucket_boundaries=[8, 4], max_tokens=20)

    def test_ids(self):
        assert self.field.bucket_boundaries == (4, 8, 20)
        assert [self.field.get_bucket_id(length) for length in (0, 4, 5, 8, 9, 20)] == [0, 0, 1, 1, 2, 2]
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="from 0 to max_tokens=20, not 21"):
            self.field.get_bucket_id(21)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="has 9, above max_tokens=8"):
            tokjax.BucketedTokenField(TOKENIZER, bucket_boundaries=[9, 2], max_tokens=8)

    def test_documents_of_a_bucket(self, tmp_path):
        texts = ["x" * (i * 7 % 19) for i in range(60)]
        tokjax.write_dataset(texts, self.field, tmp_path / "data", shard_size=100)
        dataset = tokjax.open_dataset(tmp_path / "data")
        assert len(dataset.manifest.shards) > 3
        sizes = dataset.bucket_sizes()
        seen = []
        for bucket, size in enumerate(sizes.tolist()):
            rows = dataset.bucket_rows(bucket, np.arange(size))
            lengths = dataset.document_lengths[rows].tolist()
            assert {dataset.get_bucket_id(length) for length in lengths} <= {bucket}
            seen += rows.tolist()
        assert sorted(seen) == list(range(60))


class TestSources:
    texts = ("low", "lower é", "the lowest")
    field = tokjax.TokenizedTextField(TOKENIZER)

    def read(self, source, path, **options):
        tokjax.write_dataset(source, self.field, path, **options)
        dataset = tokjax.open_dataset(path)
        return [tokjax.decode(TOKENIZER, ids, skip_special_tokens=True) for ids in dataset]

    def test_files(self, tmp_path):
        plain, packed, lines = (tmp_path / name for name in ("a.txt", "a.txt.gz", "a.jsonl"))
        plain.write_text("|".join(self.texts))
        packed.write_bytes(gzip.compress("|".join(self.texts).encode()))
        lines.write_text("".join(json.dumps({"body": text}) + "\n" for text in self.texts))
        for source in (plain, str(packed), [plain]):
            assert self.read(source, tmp_path / f"{len(list(tmp_path.iterdir()))}", separator="|") == list(
                self.texts
            )
        records = tokjax.corpus.text_files(lines, field="body")
        assert self.read(records, tmp_path / "lines") == list(self.texts)
        manifest = tokjax.open_dataset(tmp_path / "lines").manifest
        assert manifest.source["files"] == [[str(lines), lines.stat().st_size]]

    def test_parquet(self, tmp_path):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"text": list(self.texts)}), tmp_path / "a.parquet")
        assert self.read(tmp_path / "a.parquet", tmp_path / "data") == list(self.texts)

    def test_the_column_of_files(self, tmp_path):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        lines, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
        lines.write_text("".join(json.dumps({"text": "no", "body": text}) + "\n" for text in self.texts))
        parquet.write_table(pyarrow.table({"text": ["no"] * 3, "body": list(self.texts)}), table)
        for i, source in enumerate(
            (lines, str(table), [lines], tokjax.corpus.text_files(lines, field="body"))
        ):
            assert self.read(source, tmp_path / f"{i}", text_column="body") == list(self.texts)
        tokjax.datasets.rebuild_dataset(tmp_path / "0", trust_source=True)
        assert tokjax.open_dataset(tmp_path / "0").manifest.source["field"] == "body"
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match="text_column is 'body', and the source has field='title'; pass",
        ):
            self.read(tokjax.corpus.text_files(lines, field="title"), tmp_path / "none", text_column="body")

    @pytest.mark.parametrize("separator", ["", 3, b"|"])
    def test_invalid_separators(self, tmp_path, separator):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="separator must be a text, or None if each .* got"
        ):
            self.read(["a|b"], tmp_path / "data", separator=separator)

    def test_iterables(self, tmp_path):
        assert self.read(iter(self.texts), tmp_path / "texts") == list(self.texts)
        assert self.read(["|".join(self.texts)], tmp_path / "cut", separator="|") == list(self.texts)
        records = [{"t": text, "n": 1} for text in self.texts] + [{"t": None}]
        assert self.read(records, tmp_path / "records", text_column="t") == list(self.texts)

    def test_datasets(self, tmp_path):
        datasets = pytest.importorskip("datasets")
        table = datasets.Dataset.from_dict({"text": list(self.texts), "label": [1, 2, 3]})
        assert self.read(table, tmp_path / "table") == list(self.texts)
        stream = table.to_iterable_dataset()
        assert self.read(stream, tmp_path / "stream") == list(self.texts)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"no column 'body', it has \['text', 'label'\]"
        ):
            self.read(table, tmp_path / "none", text_column="body")

    @pytest.mark.parametrize(
        ("source", "options", "message"),
        [
            (3, {}, "must be .*not int"),
            ({"a": 1}, {}, r"a dict with the keys \['a'\]; pass one of its values, such as source\['a'\]"),
            ([{"a": 1}], {}, r"record 0 has no 'text', it has \['a'\]; pass text_column=NAME"),
            ([{"text": 3}], {}, "document 0 must be str or bytes, not int"),
            ([(1, "a")], {"separator": "|"}, "separator is for texts"),
            ("no/such/file", {}, "is not a file"),
        ],
    )
    def test_invalid_sources(self, tmp_path, source, options, message):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.write_dataset(source, self.field, tmp_path / "data", **options)
        assert not list(tmp_path.iterdir())
