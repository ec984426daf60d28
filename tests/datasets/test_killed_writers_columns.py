"""Tests of side columns and plans whose writers are killed: they stay aligned with the ids."""

import shutil

import numpy as np
import pytest

import tokjax
from tests.datasets.test_columns import COLUMNS, make_records
from tests.datasets.test_preference_pairs import TEXTS, make_texts
from tests.support.kill_points import count_kill_points
from tests.support.loader_cases import TOKENIZER, are_equal
from tokjax.datasets import Column

FIELD = tokjax.PackedTokenField(TOKENIZER, chunk_tokens=16, columns=COLUMNS)


def check_documents(dataset, records):
    """Asserts that a dataset has exactly the ids and columns of records, in this order."""
    assert len(dataset) == len(records)
    for row, record in enumerate(records):
        assert dataset[row].tolist() == [256, *record["ids"], 257]
        assert dataset.column("weights")[row].tolist() == [0.5, *record["weights"], 0.5]
        assert dataset.column("loss_mask")[row].tolist() == [False, *record["loss_mask"], False]
    assert dataset.column("source").tolist() == [record["source"] for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["write", "merge"])
def test_columns_after_a_kill(tmp_path, writer):
    records = make_records(12)
    parts = [tmp_path / "first", tmp_path / "second"]
    tokjax.write_dataset(records[:5], FIELD, parts[0], shard_size=40)
    tokjax.write_dataset(records[5:], FIELD, parts[1], shard_size=70)
    root = tmp_path / "root"
    data = root / "data"

    def write():
        if writer == "write":
            tokjax.write_dataset(records, FIELD, data, shard_size=60)
        else:
            tokjax.datasets.merge_datasets(parts, data, overwrite=True)

    def prepare():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()

    for _ in count_kill_points(write, prepare):
        if not data.exists():
            write()
        tokjax.open_dataset(data).verify()
        check_documents(tokjax.open_dataset(data), records)


@pytest.mark.slow
def test_preference_pairs_after_a_kill(tmp_path):
    records = make_texts(14)
    columns = [Column("margin", "float32", per="document")]
    field = tokjax.datasets.PreferenceField(TEXTS, max_tokens=20, columns=columns)
    tokjax.write_dataset(records, field, tmp_path / "expected", shard_size=200)
    expected, data = tokjax.open_dataset(tmp_path / "expected"), tmp_path / "root" / "data"

    def write():
        return tokjax.write_dataset(records, field, data, shard_size=200)

    def prepare():
        shutil.rmtree(data.parent, ignore_errors=True)
        data.parent.mkdir()

    for _ in count_kill_points(write, prepare):
        write()
        dataset = tokjax.open_dataset(data)
        dataset.verify()
        assert dataset.fingerprint == expected.fingerprint
        assert dataset.manifest.num_dropped == expected.manifest.num_dropped > 0
        for name in ("loss_mask", "rejected"):
            assert dataset.column(name)[9].tolist() == expected.column(name)[9].tolist()


def test_plans_after_a_kill(tmp_path):
    tokjax.write_dataset(make_records(40), FIELD, tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    plans = tmp_path / "plans"

    def load():
        return tokjax.PlannedLoader(dataset, batch_size=4, block_size=40, window=7, plan_dir=plans)

    expected = load().batch_at(3)
    for _ in count_kill_points(load, lambda: shutil.rmtree(plans, ignore_errors=True)):
        loader = load()
        assert are_equal(loader.batch_at(3), expected)
        documents = np.concatenate([np.unique(batch.document_ids) for batch in loader])
        assert sorted(documents[documents >= 0].tolist()) == list(range(40))
        assert len(list(plans.iterdir())) == 3
