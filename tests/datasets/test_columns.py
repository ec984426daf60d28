"""Tests of side columns: written with the ids of a dataset, read back, and loaded in batches."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.byte_tokenizers import make_byte_tokenizer
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.loader_cases import PAD, TOKENIZER
from tests.support.rejections import rejects
from tokjax.datasets import Column

COLUMNS = [
    Column("loss_mask", bool),
    Column("source", "int16", per="document", fill=-1),
    Column("weights", "float32", fill=0.5),
]


def make_records(count, seed=0):
    """Returns records of ids with side columns. Values tell the document and the position."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(count):
        length = int(rng.integers(0, 30))
        records.append(
            {
                "ids": rng.integers(0, 256, length).tolist(),
                "loss_mask": (rng.random(length) < 0.5).tolist(),
                "weights": [1000.0 * (i + 1) + j for j in range(length)],
                "source": i,
            }
        )
    return records


def surround(record, dtype_fill):
    """Returns the values of a document with those of BOS and EOS."""
    name, fill = dtype_fill
    return [fill, *record[name], fill]


@pytest.fixture(scope="module")
def records():
    return make_records(60)


@pytest.fixture(scope="module")
def dataset(records, tmp_path_factory):
    field = tokjax.PackedTokenField(TOKENIZER, chunk_tokens=16, columns=COLUMNS)
    path = tmp_path_factory.mktemp("columns") / "data"
    tokjax.write_dataset(records, field, path, shard_size=300)
    return tokjax.open_dataset(path)


class TestReading:
    def test_columns_equal_the_records(self, dataset, records):
        assert dataset.columns == tuple(COLUMNS)
        masks, sources, weights = (dataset.column(column.name) for column in COLUMNS)
        for i, record in enumerate(records):
            assert dataset[i].tolist() == [256, *record["ids"], 257]
            assert masks[i].tolist() == surround(record, ("loss_mask", False))
            assert weights[i].tolist() == surround(record, ("weights", 0.5))
        assert sources.tolist() == list(range(60))
        assert [each.dtype.name for each in (masks[0], weights[0], sources)] == ["bool", "float32", "int16"]

    def test_cast(self, dataset):
        assert dataset.column("weights", "float64")[3].dtype == np.float64
        assert dataset.column("loss_mask", np.int32)[3].dtype == np.int32

    @given(start=st.integers(0, 1000), length=st.integers(0, 200))
    def test_ranges_across_shards(self, dataset, start, length):
        stop = min(start + length, dataset.num_tokens)
        start = min(start, stop)
        for name in ("loss_mask", "weights"):
            column = dataset.column(name)
            everything = np.concatenate([column[i] for i in range(len(dataset))])
            assert column.read(start, stop).tolist() == everything[start:stop].tolist()

    def test_manifest_describes_the_columns(self, dataset):
        manifest = json.loads((dataset.path / "manifest.json").read_text())
        assert [column["name"] for column in manifest["plan"]["columns"]] == [
            "loss_mask",
            "source",
            "weights",
        ]
        shard = manifest["shards"][0]
        bits = np.load(dataset.path / f"{shard['name']}.loss_mask.npy")
        assert len(bits) == -(-shard["num_items"] // 8)
        dataset.verify()

    def test_unknown_column(self, dataset):
        with rejects("has no column 'x'; it has 'loss_mask', 'source', 'weights'"):
            dataset.column("x")


class TestWriting:
    @get_max_examples(20)
    @given(records=st.lists(st.lists(st.booleans(), max_size=20), max_size=8), shard_size=st.integers(1, 40))
    def test_any_shards(self, tmp_path_factory, records, shard_size):
        path = tmp_path_factory.mktemp("any") / "data"
        field = tokjax.TokenizedTextField(TOKENIZER, columns=[Column("mask", bool)], max_tokens=12)
        source = [{"ids": [1] * len(mask), "mask": mask} for mask in records]
        tokjax.write_dataset(source, field, path, shard_size=shard_size)
        dataset = tokjax.open_dataset(path)
        for i, mask in enumerate(records):
            ids, stored = dataset[i], dataset.column("mask")[i]
            assert len(ids) == len(stored) <= 12
            expected = [False, *mask, False]
            kept = len(expected) if len(expected) <= 12 else 11  # the EOS token is kept
            assert stored[:kept].tolist()[: len(stored)] == expected[:kept][: len(stored)]

    def test_byte_lengths_of_texts(self, tmp_path):
        field = tokjax.TokenizedTextField(
            TOKENIZER, columns=[Column("num_bytes", "uint16", source="byte_lengths")]
        )
        texts = ["héllo", "", "日本 x"]
        tokjax.write_dataset(texts, field, tmp_path / "data")
        column = tokjax.open_dataset(tmp_path / "data").column("num_bytes")
        assert [int(column[i].sum()) for i in range(3)] == [len(text.encode()) for text in texts]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"loss_mask": [True]}, "loss_mask"),
            ({"weights": None}, "weights"),
            ({"source": 40_000}, "source"),
            ({"source": "web"}, "source"),
        ],
    )
    def test_wrong_values(self, records, tmp_path, change, message):
        wrong = [
            *records[:3],
            {**records[4], "ids": [1, 2], "loss_mask": [True, False], "weights": [1, 2]} | change,
        ]
        field = tokjax.PackedTokenField(TOKENIZER, columns=COLUMNS)
        with pytest.raises(tokjax.errors.TokjaxError, match=message) as error:
            tokjax.write_dataset(wrong, field, tmp_path / "data")
        assert "3" in str(error.value)  # the document
        assert not (tmp_path / "data").exists()

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Column("Mask", bool), "the name of a column must be lower-case"),
            (lambda: Column("tokens", bool), "the name 'tokens' is reserved"),
            (lambda: Column("mask", "str"), "mask"),
            (lambda: Column("mask", "int8", fill=300), "fill"),
            (lambda: Column("mask", bool, per="word"), "per must be 'token' or"),
        ],
    )
    def test_wrong_columns(self, make, message):
        with rejects(message):
            make()


def check_packed(batch, dataset):
    """Asserts that side columns are aligned with the ids of a packed batch."""
    masks, sources, weights = (dataset.column(column.name) for column in COLUMNS)
    is_token = batch.attention_mask == 1
    assert (batch.loss_mask[~is_token] == 0).all()
    assert (batch.columns["weights"][~is_token] == np.float32(0.5)).all()
    assert (batch.columns["source"][~is_token] == -1).all()
    assert batch.columns["source"][is_token].tolist() == batch.document_ids[is_token].tolist()
    assert batch.loss_mask.dtype == np.int32
    for document in np.unique(batch.document_ids[is_token]).tolist():
        slots = batch.document_ids == document
        ids, values = batch.ids[slots].tolist(), batch.columns["weights"][slots].tolist()
        stored = list(zip(dataset[document].tolist(), weights[document].tolist(), strict=True))
        assert all(pair in stored for pair in zip(ids, values, strict=True))
        assert batch.loss_mask[slots].sum() <= masks[document].sum()
    assert (sources[batch.document_ids[is_token]] == batch.columns["source"][is_token]).all()


CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}"""


class TestChatField:
    def test_conversations_become_packed_rows_with_loss_masks(self, tmp_path):
        tokenizer = make_byte_tokenizer("<|im_start|>", "<|im_end|>", "<pad>")
        conversations = [
            [
                {"role": "user", "content": f"question {i}"},
                {"role": "assistant", "content": f"answer {i}!"},
            ]
            for i in range(9)
        ]
        file = tmp_path / "chats.jsonl"
        file.write_text("".join(json.dumps({"messages": each}) + "\n" for each in conversations))
        field = tokjax.datasets.ChatField(
            tokenizer, CHATML, columns=[Column("sources", "int8", source="field")]
        )
        for source, name in ((file, "file"), ([{"messages": each} for each in conversations], "records")):
            tokjax.write_dataset(source, field, tmp_path / name)
        dataset = tokjax.open_dataset(tmp_path / "file")
        assert tokjax.open_dataset(tmp_path / "records").num_tokens == dataset.num_tokens
        for i, messages in enumerate(conversations):
            chat = tokjax.encode_chat(tokenizer, messages, CHATML)
            assert dataset[i].tolist() == chat.result.ids.tolist()
            assert dataset.column("loss_mask")[i].tolist() == np.asarray(chat.assistant_mask, bool).tolist()
            assert dataset.column("sources")[i].tolist() == chat.sources.tolist()
        for batch in tokjax.PlannedLoader(dataset, batch_size=2, block_size=128):
            for row in range(2):
                answers = tokjax.decode(tokenizer, batch.ids[row][batch.loss_mask[row] == 1])
                masked = tokjax.objectives.chat_loss_mask(batch.columns["sources"][row])
                assert masked.tolist() == batch.loss_mask[row].tolist()
                documents = dict.fromkeys(batch.document_ids[row][batch.document_ids[row] >= 0].tolist())
                assert [f"answer {i}!" in answers for i in documents] == [True] * len(documents)
                assert "question" not in answers

    def test_columns_that_are_not_computed(self, tmp_path):
        field = tokjax.datasets.ChatField(
            TOKENIZER, CHATML, columns=[Column("num_bytes", "uint16", source="byte_lengths")]
        )
        with rejects("column 'num_bytes' has source='byte_lengths', and the documents of ChatField are not"):
            tokjax.write_dataset([{"messages": []}], field, tmp_path / "data")


class TestLoading:
    def test_planned_rows(self, dataset):
        loader = tokjax.PlannedLoader(dataset, batch_size=4, block_size=64)
        seen = {}
        for batch in loader:
            check_packed(batch, dataset)
            for document in np.unique(batch.document_ids[batch.document_ids >= 0]).tolist():
                slots = batch.document_ids == document
                seen[document] = batch.ids[slots], batch.loss_mask[slots], batch.columns["weights"][slots]
        assert sorted(seen) == list(range(60))
        for document, (ids, mask, weights) in seen.items():
            assert ids.tolist() == dataset[document].tolist()
            assert mask.tolist() == dataset.column("loss_mask")[document].tolist()
            assert weights.tolist() == dataset.column("weights")[document].tolist()

    def test_mixture_of_planned_rows(self, dataset, tmp_path):
        field = tokjax.PackedTokenField(TOKENIZER, columns=COLUMNS)
        tokjax.write_dataset(make_records(20, seed=1), field, tmp_path / "other")
        other = tokjax.open_dataset(tmp_path / "other")
        mixture = tokjax.PlannedLoader([dataset, other], batch_size=4, block_size=64, weights=[1, 1])
        together = tokjax.PlannedLoader([dataset, other], batch_size=4, block_size=64)
        for batch in (*(mixture.batch_at(step) for step in range(5)), together.batch_at(0)):
            is_token = batch.attention_mask == 1
            documents = batch.document_ids[is_token]
            expected = np.where(documents < 60, documents, documents - 60)
            assert batch.columns["source"][is_token].tolist() == expected.tolist()
            for values, ids, document in zip(
                batch.columns["weights"][is_token], batch.ids[is_token], documents, strict=True
            ):
                source = dataset if document < 60 else other
                row = int(document) if document < 60 else int(document) - 60
                stored = zip(source[row].tolist(), source.column("weights")[row].tolist(), strict=True)
                assert (int(ids), float(values)) in stored

    def test_chunks_and_padded_rows(self, dataset, records, tmp_path):
        packed = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=1)
        for step in range(len(packed)):
            check_packed(packed.batch_at(step), dataset)
        field = tokjax.TokenizedTextField(TOKENIZER, columns=COLUMNS)
        tokjax.write_dataset(records, field, tmp_path / "rows")
        rows = tokjax.open_dataset(tmp_path / "rows")
        loader = tokjax.datasets.SequenceLoader(rows, batch_size=5, length=40, shuffle=False, drop_last=False)
        for step, batch in enumerate(loader):
            for row, ids in enumerate(batch.ids):
                count = int(batch.attention_mask[row].sum())
                document = 5 * step + row
                assert ids[:count].tolist() == rows[document].tolist()
                assert (ids[count:] == PAD).all()
                assert batch.loss_mask[row, :count].tolist() == rows.column("loss_mask")[document].tolist()
                assert (
                    batch.columns["weights"][row, :count].tolist()
                    == rows.column("weights")[document].tolist()
                )
                assert batch.columns["source"][row] == document

    def test_chosen_columns(self, dataset):
        options = {"batch_size": 4, "block_size": 64}
        batch = tokjax.PlannedLoader(dataset, **options, columns={"weights": "float16"}).batch_at(0)
        assert batch.loss_mask is None
        assert {name: values.dtype.name for name, values in batch.columns.items()} == {"weights": "float16"}
        assert tokjax.PlannedLoader(dataset, **options, columns=[]).batch_at(0).columns is None
        with rejects("columns must be a list of names"):
            tokjax.PlannedLoader(dataset, **options, columns="weights")

    def test_labels_of_a_loss_mask(self, dataset):
        batch = tokjax.PlannedLoader(dataset, batch_size=4, block_size=64).batch_at(0)
        counts = batch.causal_lm_labels() >= 0
        shifted = np.pad(batch.loss_mask[:, 1:], ((0, 0), (0, 1)))
        assert (shifted[counts] == 1).all()
        assert counts.any()


class TestDtypesOfBatches:
    def write(self, path, values, column):
        field = tokjax.PackedTokenField(TOKENIZER, columns=[column])
        records = [{"ids": [1, 2], "x": value} for value in values]
        tokjax.write_dataset(records, field, path)
        return tokjax.open_dataset(path)

    @pytest.mark.parametrize(("dtype", "fill"), [("int64", -(2**40)), ("uint64", 2**40), ("float64", 1e300)])
    def test_fill_values_must_fit(self, tmp_path, dtype, fill):
        data = self.write(tmp_path / "data", [1], Column("x", dtype, per="document", fill=fill))
        with rejects(f"does not fit .*; load it as {dtype}"):
            tokjax.PlannedLoader(data, batch_size=1, block_size=8)
        batch = tokjax.PlannedLoader(data, batch_size=1, block_size=8, columns={"x": dtype}).batch_at(0)
        assert batch.columns["x"][0].tolist() == [1] * 4 + [fill] * 4

    def test_integers_that_float16_does_not_hold(self, tmp_path):
        data = self.write(tmp_path / "data", [70000], Column("x", "int32", per="document"))
        loader = tokjax.PlannedLoader(data, batch_size=1, block_size=8, columns={"x": "float16"})
        with rejects("holds 70000, which does not fit"):
            loader.batch_at(0)

    @pytest.mark.parametrize("dtype", ["foo", "S3", "complex64", object, "datetime64[s]"])
    def test_invalid_dtypes(self, tmp_path, dtype):
        data = self.write(tmp_path / "data", [7], Column("x", "int32", per="document"))
        with rejects("the dtype to load must be one of bool"):
            tokjax.PlannedLoader(data, batch_size=1, block_size=8, columns={"x": dtype})

    def test_large_and_small_unsigned_integers(self, tmp_path):
        values = [2**63 + 1, 1]
        data = self.write(tmp_path / "data", [values], Column("x", "uint64"))
        assert data.column("x")[0].tolist() == [0, *values, 0]
