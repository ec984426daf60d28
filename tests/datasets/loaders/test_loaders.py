"""Loaders: every batch a function of seed and step, for any number of processes, and every document seen."""

import json
import tracemalloc

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
    TOKENIZER,
    are_equal,
    read_document_numbers,
    write_datasets,
)
from tokjax.datasets.sequence_cache import TokenCache


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    return write_datasets(tmp_path_factory.mktemp("loaders"))


loaders = pytest.mark.parametrize("name", LOADERS)


@loaders
@get_max_examples(20)
@given(steps=st.lists(st.integers(0, 10**12), max_size=4), seed=st.integers(0, 2**40))
def test_a_batch_is_a_function_of_seed_and_step(datasets, name, steps, seed):
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
    step = loader.steps_per_epoch * (step + 1) - 1 if step % 2 else step  # (also the last of an epoch)
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
    """A run in legs, each with another number of processes, sees what a run in one process sees."""
    alone = LOADERS[name](datasets, seed=3).repeat()
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
            assert are_equal(joined, next(alone))
        states = {json.dumps(part.get_state()) for part in parts}
        assert len(states) == 1  # the same on every host
        [state] = states
        assert len(state) < 1000


def test_from_one_host_to_seven_in_mid_run(datasets):
    def make():
        return tokjax.PackedTokenLoader(datasets["packed"], batch_size=420, chunk_tokens=2, seed=4)

    alone, state, seen = make(), make().get_state(), []
    for count in [*range(1, 8), *range(6, 0, -1)]:
        parts = [make().shard(index, count) for index in range(count)]
        for part in parts:
            part.set_state(json.loads(json.dumps(state)))
        rows = [next(part.repeat()) for part in parts]
        seen.append(np.concatenate([batch.ids for batch in rows]))
        [state] = {json.dumps(part.get_state()): part.get_state() for part in parts}.values()
    assert all((ids == alone.batch_at(step).ids).all() for step, ids in enumerate(seen))


@pytest.mark.parametrize("name", ["raw", "tokenized", "multiples", "bucketed", "buckets", "budget"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_has_each_document_once(datasets, name, shuffle):
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


def test_long_documents_are_truncated(datasets):
    batch = tokjax.SequenceLoader(datasets["raw"], batch_size=97, length=5, shuffle=False).batch_at(0)
    assert batch.ids.shape == (97, 5)
    assert batch.ids[40].tolist() == [256, *b"040"[:3], 257]  # (the tokenizer cuts text, not what is around)


class TestShapes:
    def test_sequence_batches(self, datasets):
        assert {batch.ids.shape for batch in LOADERS["tokenized"](datasets)} == {(12, 50)}
        lengths = {batch.ids.shape[1] for batch in LOADERS["multiples"](datasets)}
        assert all(length % 8 == 0 or length == 50 for length in lengths)

    def test_bucketed_batches(self, datasets):
        shapes = {batch.ids.shape for batch in LOADERS["bucketed"](datasets, drop_last=False)}
        assert shapes == {(12, 16), (12, 32), (12, 50)}

    def test_token_budget_batches(self, datasets):
        loader = LOADERS["budget"](datasets)
        for batch in loader:
            rows, length = batch.ids.shape
            assert rows * length <= 700
            assert length % 8 == rows % 12 == 0
        real = sum(int(batch.attention_mask.sum()) for batch in loader)
        assert real == datasets["tokenized"].num_tokens

    def test_memory_budget_batches(self, datasets):
        loader = tokjax.TokenBudgetLoader(
            datasets["tokenized"], budget=20_000, cost=lambda rows, length: rows * length**2, multiple_of=16
        )
        assert {batch.ids.shape for batch in loader} == {
            (30, 16),  # (all that there are)
            (19, 32),
            (8, 48),
        }
        cheap = tokjax.TokenBudgetLoader(datasets["tokenized"], budget=1, cost=lambda rows, _: rows * 1e-4)
        assert [batch.ids.shape for batch in cheap] == [(97, 64)]

    @pytest.mark.parametrize("max_shapes", [1, 2, 3, 50])
    def test_budget_batches_have_few_shapes(self, datasets, max_shapes):
        """Of several datasets too; each document comes once an epoch."""
        both = [datasets["tokenized"], datasets["tokenized others"]]
        loader = tokjax.TokenBudgetLoader(both, budget=400, multiple_of=4, max_shapes=max_shapes)
        batches = list(loader)
        shapes = {batch.ids.shape for batch in batches}
        assert len(shapes) == len({length for _, length in shapes}) <= max_shapes
        assert sum(int(batch.attention_mask.sum()) for batch in batches) == sum(d.num_tokens for d in both)
        full = {batch.ids.shape for batch in loader.repeat(2)}
        assert full == shapes

    def test_budget_batches_have_at_most_eight_shapes(self, tmp_path):
        field = tokjax.TokenizedTextField(TOKENIZER)
        tokjax.write_dataset(["x" * n for n in range(1, 300)], field, tmp_path / "data")
        loader = tokjax.TokenBudgetLoader(tokjax.open_dataset(tmp_path / "data"), budget=900, multiple_of=1)
        assert len({batch.ids.shape for batch in loader}) == 8

    def test_oversized_documents(self, datasets):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="1 rows of 48 ids cost 48, above"):
            tokjax.TokenBudgetLoader(datasets["tokenized"], budget=40, multiple_of=16)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="a document has 45 ids, more than the last of"
        ):
            tokjax.BucketedLoader(datasets["tokenized"], batch_size=2, bucket_boundaries=[10, 20])


class TestCache:
    def test_cache_never_changes_a_value(self, datasets):
        for name in ("tokenized", "packed", "raw"):
            plain = datasets[name]
            cached = tokjax.open_dataset(plain.path, TOKENIZER, cache_bytes=2000)
            for _ in range(3):
                for row in (5, 6, 5, 7, 96, 5):
                    found = cached[row]
                    assert np.array_equal(found, plain[row]) if name != "raw" else found == plain[row]
                    if name != "raw":
                        found += 1  # (what was given is the caller's own)
            stats = cached.cache_stats
            assert stats.hits > 5
            assert 0 < stats.nbytes <= 2000
            assert 0 < stats.hit_rate < 1
        cached = tokjax.open_dataset(datasets["packed"].path, cache_bytes=5000)
        plain, starts = datasets["packed"], np.arange(0, 2000, 37)
        for _ in range(2):
            assert np.array_equal(cached.gather(starts, 40), plain.gather(starts, 40))
        assert plain.cache_stats is None

    @pytest.mark.parametrize("key", [lambda i: i, lambda i: (i, 1000 * i, 4000 + i)])
    @pytest.mark.parametrize("sequence", [b"", b"ids"])
    def test_cache_stays_within_its_limit(self, key, sequence):
        tracemalloc.start()
        try:
            cache = TokenCache(500_000)
            for i in range(10_000):
                cache.get(key(i), lambda: bytes(bytearray(sequence)))
            assert tracemalloc.get_traced_memory()[0] < 500_000
        finally:
            tracemalloc.stop()
        assert 1000 < cache.stats().entries < 2000

    def test_larger_entries_are_not_cached(self, datasets):
        cached = tokjax.open_dataset(datasets["packed"].path, cache_bytes=10)
        assert len(cached.read(0, 100)) == 100
        assert cached.cache_stats.entries == 0
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="cache_bytes must be at least 1"):
            tokjax.open_dataset(datasets["packed"].path, cache_bytes=0)


class TestPrefetch:
    def test_batches_come_in_order_on_devices(self, datasets):
        loader = LOADERS["packed"](datasets, seed=5)
        found = list(tokjax.prefetch_to_device(loader.repeat(2), size=3))
        assert len(found) == 2 * len(loader)
        for step, batch in enumerate(found):
            assert isinstance(batch.ids, jax.Array)
            assert are_equal(jax.tree.map(np.asarray, batch), loader.batch_at(step))

    def test_state_follows_yielded_batches(self, datasets):
        loader = LOADERS["packed"](datasets, seed=5)
        with tokjax.prefetch_to_device(loader.repeat(), size=4) as batches:
            assert batches.get_state()["step"] == 0
            for _ in range(3):
                next(batches)
            state = batches.get_state()
        assert state["step"] == 3
        again = LOADERS["packed"](datasets, seed=5)
        again.set_state(state)
        assert are_equal(next(again.repeat()), LOADERS["packed"](datasets, seed=5).batch_at(3))
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="come of no loader"):
            tokjax.prefetch_to_device(iter([np.zeros(1)])).get_state()

    def test_a_sharding(self, datasets):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        batch = next(tokjax.prefetch_to_device(LOADERS["packed"](datasets), sharding=sharding))
        assert batch.ids.sharding == sharding
        assert batch.total_tokens.shape == ()

    def test_errors_are_raised_where_the_user_is(self):
        def broken():
            yield np.zeros(2, np.int32)
            raise RuntimeError("the disk is gone")

        batches = tokjax.prefetch_to_device(broken())
        assert next(batches).shape == (2,)
        with pytest.raises(RuntimeError, match="the disk is gone"):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)

    def test_prefetching_stops(self):
        def endless():
            while True:
                yield np.zeros(2, np.int32)

        with tokjax.prefetch_to_device(endless()) as batches:
            next(batches)
            assert batches._worker.thread.is_alive()
        assert not batches._worker.thread.is_alive()
        forgotten = tokjax.prefetch_to_device(endless())
        thread = forgotten._worker.thread
        del forgotten
        thread.join(timeout=5)
        assert not thread.is_alive()
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="size must be at least 1"):
            tokjax.prefetch_to_device(endless(), size=0)
