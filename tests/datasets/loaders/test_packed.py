"""Tests of `PackedTokenLoader`: order, state, and document columns."""

import numpy as np
import pytest

import tokjax


@pytest.fixture(scope="module")
def dataset(tokenizer, corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("loading") / "data"
    field = tokjax.PackedTokenField(tokenizer, chunk_tokens=16)
    tokjax.write_dataset([*corpus * 4, "", ""], field, path, shard_size=150)
    return tokjax.open_dataset(path)


def stream(dataset):
    return dataset.read(0, dataset.num_tokens)


def test_order_without_shuffling(dataset):
    loader = tokjax.PackedTokenLoader(dataset, batch_size=3, shuffle=False)
    ids = np.concatenate([batch.ids.reshape(-1) for batch in loader])
    assert len(loader) == dataset.num_tokens // 16 // 3
    assert ids.tolist() == stream(dataset)[: len(loader) * 48].tolist()
    batch = loader.batch_at(0)
    assert all(column.dtype == np.int32 for column in batch if column is not None)
    assert batch.total_tokens == 48


def test_extra_token(dataset):
    plain = tokjax.PackedTokenLoader(dataset, batch_size=2, seed=5)
    extra = tokjax.PackedTokenLoader(dataset, batch_size=2, seed=5, extra_token=True)
    assert extra.batch_at(1).ids.shape == (2, 17)
    ids = stream(dataset)
    for row in extra.batch_at(1).ids:
        assert any((ids[s : s + 17] == row).all() for s in range(0, len(ids) - 16, 16))
    if dataset.num_tokens % 16:
        assert (plain.batch_at(1).ids == extra.batch_at(1).ids[:, :16]).all()


def test_epochs_have_each_chunk_once_in_different_orders(dataset):
    loader = tokjax.PackedTokenLoader(dataset, batch_size=1, seed=1)
    chunks = sorted(map(tuple, stream(dataset)[: len(loader) * 16].reshape(-1, 16).tolist()))
    epochs = [[tuple(batch.ids[0].tolist()) for batch in loader] for _ in range(3)]
    assert all(sorted(epoch) == chunks for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    again = tokjax.PackedTokenLoader(dataset, batch_size=1, seed=1)
    assert [tuple(batch.ids[0].tolist()) for batch in again] == epochs[0]
    other = tokjax.PackedTokenLoader(dataset, batch_size=1, seed=2)
    assert [tuple(batch.ids[0].tolist()) for batch in other] != epochs[0]


def test_segments_are_documents(dataset):
    loader = tokjax.PackedTokenLoader(dataset, batch_size=2, seed=0, chunk_tokens=50, extra_token=True)
    splits = dataset.document_splits
    owner = np.repeat(np.arange(dataset.num_documents), np.diff(splits))
    ids = stream(dataset)
    for batch in loader:
        for row in range(2):
            start = next(
                s
                for s in range(0, len(ids), 50)
                if ids[s : s + 51].tolist() == batch.ids[row].tolist()
                and owner[s] == batch.document_ids[row, 0]
            )
            owners = owner[start : start + 51]
            assert batch.document_ids[row].tolist() == owners.tolist()
            _, expected = np.unique(owners, return_inverse=True)
            assert batch.segment_ids[row].tolist() == (expected + 1).tolist()
            positions = [i - list(owners).index(o) for i, o in enumerate(owners)]
            assert batch.positions[row].tolist() == positions


def test_empty_documents_have_no_tokens(tokenizer, tmp_path):
    field = tokjax.PackedTokenField(tokenizer, chunk_tokens=2, add_eos_between_docs=False)
    tokjax.write_dataset(["", "low", "", "", "low", "low", ""], field, tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    batch = tokjax.PackedTokenLoader(dataset, batch_size=1, shuffle=False, chunk_tokens=3).batch_at(0)
    assert batch.document_ids.tolist() == [[1, 4, 5]]
    assert batch.segment_ids.tolist() == [[1, 2, 3]]


def test_state_of_another_dataset_of_the_same_size(tokenizer, tmp_path):
    loaders = []
    for name, texts in (("one", ["abcd", "efgh"]), ("two", ["WXYZ", "1234"])):
        tokjax.write_dataset(texts, tokjax.PackedTokenField(tokenizer, chunk_tokens=2), tmp_path / name)
        loaders.append(tokjax.PackedTokenLoader(tokjax.open_dataset(tmp_path / name), batch_size=1))
    with pytest.raises(tokjax.errors.DatasetMismatchError, match="the state's datasets is"):
        loaders[1].set_state(loaders[0].get_state())


def test_set_state_moves_back_within_an_epoch(dataset):
    loader = tokjax.PackedTokenLoader(dataset, batch_size=2)
    start, count = loader.get_state(), 0
    for _ in loader:
        count += 1
        if count == 3:
            loader.set_state(start)
    assert count == len(loader) + 3
