"""Tests of fields: options, stored form, and round trips through a dataset."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.byte_tokenizers import make_byte_tokenizer
from tests.support.huggingface_tokenizers import make_pair
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.core.utf8 import to_utf8
from tokjax.datasets.fields.registry import make_field
from tokjax.trainer import train_sentencepiece

TOKENIZER = make_byte_tokenizer("<s>", "</s>", tokens=[b"lo", b"low"])
PIECES = train_sentencepiece(CORPUS * 2, vocab_size=150, progress=False).tokenizer
FIELDS = {
    "raw": tokjax.RawTextField(),
    "raw, unlimited": tokjax.RawTextField(max_chars=None),
    "raw, short": tokjax.RawTextField(max_chars=5),
    "tokenized": tokjax.TokenizedTextField(TOKENIZER),
    "tokenized, short": tokjax.TokenizedTextField(TOKENIZER, max_tokens=5),
    "tokenized, no special tokens": tokjax.TokenizedTextField(
        TOKENIZER, max_tokens=None, add_special_tokens=False
    ),
    "tokenized with dropout": tokjax.TokenizedTextField(
        tokjax.models.with_dropout(TOKENIZER, 0.5, seed=1), disallowed_special=()
    ),
    "tokenized by a library": tokjax.TokenizedTextField(
        make_pair("unsplit unigram")[1], disallowed_special=()
    ),
    "sentencepiece": tokjax.datasets.SentencePieceTextField(PIECES, max_tokens=7),
    "packed": tokjax.PackedTokenField(TOKENIZER, chunk_tokens=4),
    "bucketed": tokjax.datasets.BucketedTokenField(TOKENIZER, bucket_boundaries=[8, 4], max_tokens=20),
}
fields = pytest.mark.parametrize("name", FIELDS)
documents = st.lists(hard_texts | byte_strings, max_size=8)


def encode_stored(field, text):
    """Returns the stored items of a document, and the number of ids or characters that are dropped.

    Reference implementation, one document at a time.
    """
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
    """Returns the stored items of each document, by document id."""
    ids = dataset.documents["doc_id"].tolist()
    read = dataset.text_bytes if isinstance(dataset, tokjax.datasets.RawTextDataset) else dataset.document
    return {doc_id: read(row) for row, doc_id in enumerate(ids)}


@fields
@get_max_examples(25)
@given(texts=documents, shard_size=st.integers(1, 60))
def test_round_trip(name, tmp_path_factory, texts, shard_size):
    field, path = FIELDS[name], tmp_path_factory.mktemp("fields") / "data"
    written = tokjax.write_dataset(texts, field, path, shard_size=shard_size)
    dataset = tokjax.open_dataset(path)
    assert len(dataset) == dataset.num_documents == written.num_documents == len(texts)
    assert dataset.field == field
    contents = read_contents(dataset)
    assert sorted(contents) == list(range(len(texts)))
    expected = [encode_stored(field, text) for text in texts]
    assert [list(contents[doc_id]) for doc_id in range(len(texts))] == [
        remaining for remaining, _ in expected
    ]
    if not isinstance(field, tokjax.RawTextField):
        assert {contents[doc_id].dtype for doc_id in contents} <= {np.dtype(np.int32)}
    assert written.num_cut == sum(num_dropped > 0 for _, num_dropped in expected)
    assert written.num_items == sum(map(len, contents.values())) == dataset.document_lengths.sum()
    assert written.num_bytes == sum(map(len, map(to_utf8, texts)))
    dataset.verify()
    unpickled = pickle.loads(pickle.dumps(dataset))
    assert {key: list(value) for key, value in read_contents(unpickled).items()} == {
        key: list(value) for key, value in contents.items()
    }


@fields
def test_bytes_do_not_depend_on_the_number_of_workers(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 100)
    texts = CORPUS * 12
    for workers in (1, 3, 7):
        tokjax.write_dataset(texts, FIELDS[name], tmp_path / str(workers), shard_size=300, workers=workers)
    first, *others = [
        {path.name: path.read_bytes() for path in (tmp_path / str(workers)).iterdir()}
        for workers in (1, 3, 7)
    ]
    assert len(first) > 4
    assert others == [first, first]


@pytest.mark.parametrize("name", ["raw", "tokenized", "packed", "bucketed"])
def test_threads_share_a_dataset(name, tmp_path):
    tokjax.write_dataset(CORPUS * 5, FIELDS[name], tmp_path / "data", shard_size=50)
    dataset = tokjax.open_dataset(tmp_path / "data")
    expected = [list(dataset[row]) for row in range(len(dataset))]
    shared = tokjax.open_dataset(tmp_path / "data")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: [list(shared[row]) for row in range(len(shared))], range(4)))
    assert results == [expected] * 4


@fields
def test_index_columns(name, tmp_path):
    tokjax.write_dataset([(7, "low"), (3, "é")], FIELDS[name], tmp_path / "data")
    index = tokjax.open_dataset(tmp_path / "data").documents
    is_text = isinstance(FIELDS[name], tokjax.RawTextField)
    text_columns = ("doc_id", "data_ptr", "byte_length", "char_length")
    assert index.dtype.names == (text_columns if is_text else ("doc_id", "start_offset", "num_tokens"))
    assert sorted(index["doc_id"]) == [3, 7]
    if is_text:
        assert index.tolist() == [(7, 0, 3, 3), (3, 3, 2, 1)]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (tokjax.TokenizedTextField, {"max_tokens": np.int64(5), "add_special_tokens": np.True_}),
        (tokjax.datasets.BucketedTokenField, {"max_tokens": np.int32(5000), "add_special_tokens": 1}),
        (tokjax.PackedTokenField, {"chunk_tokens": np.uint16(7), "add_eos_between_docs": 1}),
    ],
)
def test_numpy_options_become_json_values(kind, options):
    field = kind(TOKENIZER, **options)
    assert json.loads(json.dumps(field.options)) == field.options
    assert {name: type(value) for name, value in field.options.items() if name in options} == {
        name: bool if name.startswith("add") else int for name in options
    }


@pytest.mark.parametrize("kind", [tokjax.TokenizedTextField, tokjax.datasets.BucketedTokenField])
def test_max_tokens_must_be_positive(kind):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="max_tokens must be at least 1, not 0"):
        kind(TOKENIZER, max_tokens=0)


def test_type_ids():
    type_ids = {FIELDS[name].TYPE_ID for name in FIELDS}
    assert type_ids == {40, 41, 42, 43, 44}
    with pytest.raises(tokjax.errors.DatasetMismatchError, match=r"TYPE_ID 7; .* RawTextField \(40\)"):
        make_field(7, {}, None)


class TestRawText:
    def test_any_tokenizer_can_be_used(self, tmp_path):
        tokjax.write_dataset(["low é", b"\xff!"], tokjax.RawTextField(), tmp_path / "data")
        dataset = tokjax.open_dataset(tmp_path / "data", TOKENIZER)
        assert dataset[0] == dataset.decode_text(0) == "low é"
        assert dataset.decode_text(1) == "\ufffd!"
        assert dataset.text_bytes(1) == b"\xff!"
        assert dataset.decode_tokenized(0, max_length=3).ids.tolist() == [258, 257, 259]
        other = dataset.decode_tokenized(1, tokenizer=tokjax.byte_level())
        assert tokjax.decode_bytes(tokjax.byte_level(), other.ids) == b"\xff!"
        without = tokjax.open_dataset(tmp_path / "data")
        with pytest.raises(
            tokjax.errors.DatasetIncompleteError, match=r"no tokenizer; open it with open_data"
        ):
            without.decode_tokenized(0)


class TestBuckets:
    field = tokjax.datasets.BucketedTokenField(TOKENIZER, bucket_boundaries=[8, 4], max_tokens=20)

    def test_bucket_ids(self):
        assert self.field.bucket_boundaries == (4, 8, 20)
        lengths = (0, 4, 5, 8, 9, 20, 21, 10**9)
        assert list(map(self.field.get_bucket_id, lengths)) == [0, 0, 1, 1, 2, 2, 2, 2]
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="length must be at least 0, not -1"):
            self.field.get_bucket_id(-1)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="has 9, above max_tokens=8"):
            tokjax.datasets.BucketedTokenField(TOKENIZER, bucket_boundaries=[9, 2], max_tokens=8)

    def test_bucket_rows(self, tmp_path):
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
