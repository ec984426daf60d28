"""Tests of properties of all loaders: determinism, sharding, resuming, epochs, and the cache of datasets."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.loader_cases import (
    LOADERS,
    PAD,
    TEXTS,
    are_equal,
    read_document_numbers,
)
from tests.support.rejections import rejects

loaders = pytest.mark.parametrize("name", LOADERS)


@loaders
@get_max_examples(20)
@given(steps=st.lists(st.integers(0, 10**12), max_size=4), seed=st.integers(0, 2**40))
def test_batch_is_a_function_of_seed_and_step(datasets, name, steps, seed):
    loader = LOADERS[name](datasets, seed=seed)
    for step in steps:
        batch = loader.batch_at(step)
        assert are_equal(batch, LOADERS[name](datasets, seed=seed).batch_at(step))
        assert all(leaf.dtype == np.int32 for leaf in jax.tree.leaves(batch))
    assert loader.step == 0


@loaders
@get_max_examples(30)
@given(step=st.integers(0, 100), count=st.sampled_from([1, 2, 3, 4, 6, 12]), drop_last=st.booleans())
def test_processes_share_a_batch(datasets, name, step, count, drop_last):
    loader = LOADERS[name](datasets, seed=1, drop_last=drop_last)
    step = loader.steps_per_epoch * (step + 1) - 1 if step % 2 else step  # half of them the last of an epoch
    full = loader.batch_at(step)
    parts = [loader.shard(index, count).batch_at(step) for index in range(count)]
    joined = jax.tree.map(lambda *rows: np.concatenate(rows) if rows[0].ndim else rows[0], *parts)
    assert are_equal(full, joined)


@loaders
@get_max_examples(25)
@given(
    counts=st.lists(st.sampled_from([1, 2, 3, 4, 6, 12]), min_size=1, max_size=5),
    lengths=st.lists(st.integers(1, 7), min_size=5, max_size=5),
)
def test_resume_with_any_number_of_processes(datasets, name, counts, lengths):
    # A run that changes the number of processes when it resumes has the batches of a run in one process.
    single = LOADERS[name](datasets, seed=3).repeat()
    state = None
    for count, length in zip(counts, lengths, strict=False):
        parts = [LOADERS[name](datasets, seed=3).shard(index, count) for index in range(count)]
        for part in parts:
            if state is not None:
                part.set_state(json.loads(state))
        streams = [part.repeat() for part in parts]
        for _ in range(length):
            rows = [next(stream) for stream in streams]
            joined = jax.tree.map(lambda *rows: np.concatenate(rows) if rows[0].ndim else rows[0], *rows)
            assert are_equal(joined, next(single))
        states = {json.dumps(part.get_state()) for part in parts}
        assert len(states) == 1  # the same on every host
        [state] = states
        assert len(state) < 1000


@pytest.mark.parametrize("name", ["raw", "tokenized", "multiples", "bucketed", "buckets", "budget"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_epoch_has_each_document_once(datasets, name, shuffle):
    loader = LOADERS[name](datasets, shuffle=shuffle, drop_last=False)
    epochs = [[number for batch in loader for number in read_document_numbers(batch)] for _ in range(3)]
    assert all(sorted(epoch) == list(range(97)) for epoch in epochs)
    assert (epochs[0] != epochs[1]) == shuffle
    assert loader.step == 3 * len(loader)
    dropping = LOADERS[name](datasets, shuffle=shuffle, drop_last=True)
    seen = [number for batch in dropping for number in read_document_numbers(batch)]
    assert len(set(seen)) == len(seen) <= 97
    assert all(np.asarray(batch.attention_mask).any(axis=1).all() for batch in dropping)


def test_documents_are_complete_and_padded(datasets):
    for name in ("tokenized", "bucketed", "budget"):
        for batch in LOADERS[name](datasets, drop_last=False):
            for row, mask in zip(batch.ids, batch.attention_mask, strict=True):
                length = int(mask.sum())
                assert (mask == (np.arange(len(mask)) < length)).all()
                assert (row[length:] == PAD).all()
                if length:
                    text = TEXTS[int(bytes(row[1:4].tolist()))]
                    assert row[:length].tolist() == [256, *text.encode(), 257]


class TestDocumentIds:
    """Batches number the documents of all datasets in `int32`."""

    def test_too_many_documents(self, datasets, monkeypatch):
        packed = datasets["packed"]
        monkeypatch.setattr(type(packed), "num_documents", 1 << 30)
        three = [packed] * 3
        message = "the datasets have 3221225472 documents, and document_ids, which are int32, number at most "
        message += "2147483648; "
        with rejects(message + "create loaders of fewer"):
            tokjax.PlannedLoader(three, batch_size=1, block_size=64, weights=[1, 1, 1])
        with rejects(message + "pass documents=False"):
            tokjax.PackedTokenLoader(three, batch_size=1)
        loader = tokjax.PackedTokenLoader(three, batch_size=1, documents=False)
        assert loader.batch_at(0).ids.shape == (1, packed.chunk_tokens)
