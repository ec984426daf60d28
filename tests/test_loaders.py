"""Loaders: every batch a function of seed and step, for any number of processes, and every document seen."""

import json
import pickle
import tracemalloc

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokjax
from tokjax.loading.mixing import mixture
from tokjax.store.cache import TokenCache

TOKENIZER = tokjax.byte_level_bpe(
    {bytes([i]): i for i in range(256)},
    special_tokens={"<s>": 256, "</s>": 257, "<pad>": 258},
    bos_token="<s>",
    eos_token="</s>",
    pad_token="<pad>",
)
PAD = 258
TEXTS = [f"{i:03d}" + "x" * (i * 7 % 41) for i in range(97)]
OTHERS = [f"{i:03d}" + "y" * (i * 5 % 23) for i in range(500, 537)]
FIELDS = {
    "raw": tokjax.RawTextField(),
    "tokenized": tokjax.TokenizedTextField(TOKENIZER, max_tokens=50),
    "packed": tokjax.PackedTokenField(TOKENIZER, chunk_tokens=16),
    "bucketed": tokjax.BucketedTokenField(TOKENIZER, bucket_boundaries=[16, 32], max_tokens=50),
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Of every field one of the texts, and one of others."""
    directory = tmp_path_factory.mktemp("loaders")
    for name, field in FIELDS.items():
        for texts, path in ((TEXTS, directory / name), (OTHERS, directory / f"{name} others")):
            tokjax.write_dataset(texts, field, path, shard_size=500)
    return {path.name: tokjax.open_dataset(path, TOKENIZER) for path in directory.iterdir()}


LOADERS = {
    "packed": lambda data, **options: tokjax.PackedTokenLoader(data["packed"], batch_size=12, **options),
    "chunks": lambda data, **options: tokjax.PackedTokenLoader(
        data["packed"], batch_size=12, documents=False, **options
    ),
    "raw": lambda data, **options: tokjax.SequenceLoader(data["raw"], batch_size=12, length=20, **options),
    "tokenized": lambda data, **options: tokjax.SequenceLoader(data["tokenized"], batch_size=12, **options),
    "multiples": lambda data, **options: tokjax.SequenceLoader(
        data["tokenized"], batch_size=12, multiple_of=8, **options
    ),
    "bucketed": lambda data, **options: tokjax.BucketedLoader(data["bucketed"], batch_size=12, **options),
    "buckets": lambda data, **options: tokjax.BucketedLoader(
        data["tokenized"], batch_size=12, bucket_boundaries=[20, 50], **options
    ),
    "budget": lambda data, **options: tokjax.TokenBudgetLoader(
        data["tokenized"], budget=700, multiple_of=8, rows_multiple_of=12, **options
    ),
}
loaders = pytest.mark.parametrize("name", LOADERS)


def same(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: a.dtype == b.dtype and np.array_equal(a, b), one, other))


def numbers_in(batch):
    """The documents of a batch, by the three digits that each begins with."""
    ids, mask = np.asarray(batch.ids), np.asarray(batch.attention_mask)
    return [int(bytes(row[1:4].tolist())) for row, real in zip(ids, mask, strict=True) if real.any()]


@loaders
@settings(max_examples=20)
@given(steps=st.lists(st.integers(0, 10**12), max_size=4), seed=st.integers(0, 2**40))
def test_a_batch_is_a_function_of_seed_and_step(datasets, name, steps, seed):
    loader = LOADERS[name](datasets, seed=seed)
    for step in steps:
        batch = loader.batch_at(step)
        assert same(batch, LOADERS[name](datasets, seed=seed).batch_at(step))
        assert all(leaf.dtype == np.int32 for leaf in jax.tree.leaves(batch))
    assert loader.step == 0


@loaders
@settings(max_examples=30)
@given(step=st.integers(0, 100), count=st.sampled_from([1, 2, 3, 4, 6, 12]), drop_last=st.booleans())
def test_processes_share_a_batch(datasets, name, step, count, drop_last):
    loader = LOADERS[name](datasets, seed=1, drop_last=drop_last)
    step = loader.steps_per_epoch * (step + 1) - 1 if step % 2 else step  # (also the last of an epoch)
    whole = loader.batch_at(step)
    parts = [loader.shard(index, count).batch_at(step) for index in range(count)]
    joined = jax.tree.map(lambda *rows: np.concatenate(rows) if rows[0].ndim else rows[0], *parts)
    assert same(whole, joined)


@loaders
@settings(max_examples=25)
@given(
    counts=st.lists(st.sampled_from([1, 2, 3, 4, 6, 12]), min_size=1, max_size=5),
    lengths=st.lists(st.integers(1, 7), min_size=5, max_size=5),
)
def test_any_number_of_processes_goes_on(datasets, name, counts, lengths):
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
            assert same(joined, next(alone))
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
    epochs = [[number for batch in loader for number in numbers_in(batch)] for _ in range(3)]
    assert all(sorted(epoch) == list(range(97)) for epoch in epochs)
    assert (epochs[0] != epochs[1]) == shuffle
    assert loader.step == 3 * len(loader)
    dropping = LOADERS[name](datasets, shuffle=shuffle, drop_last=True)
    seen = [number for batch in dropping for number in numbers_in(batch)]
    assert len(set(seen)) == len(seen) <= 97
    assert all(np.asarray(batch.attention_mask).any(axis=1).all() for batch in dropping)


def test_documents_are_whole_and_padded(datasets):
    for name in ("tokenized", "bucketed", "budget"):
        for batch in LOADERS[name](datasets, drop_last=False):
            for row, mask in zip(batch.ids, batch.attention_mask, strict=True):
                length = int(mask.sum())
                assert (mask == (np.arange(len(mask)) < length)).all()
                assert (row[length:] == PAD).all()
                if length:
                    text = TEXTS[int(bytes(row[1:4].tolist()))]
                    assert row[:length].tolist() == [256, *text.encode(), 257]


def test_long_documents_are_cut(datasets):
    batch = tokjax.SequenceLoader(datasets["raw"], batch_size=97, length=5, shuffle=False).batch_at(0)
    assert batch.ids.shape == (97, 5)
    assert batch.ids[40].tolist() == [256, *b"040"[:3], 257]  # (the tokenizer cuts text, not what is around)


class TestShapes:
    def test_of_sequences(self, datasets):
        assert {batch.ids.shape for batch in LOADERS["tokenized"](datasets)} == {(12, 50)}
        lengths = {batch.ids.shape[1] for batch in LOADERS["multiples"](datasets)}
        assert all(length % 8 == 0 or length == 50 for length in lengths)

    def test_of_buckets(self, datasets):
        shapes = {batch.ids.shape for batch in LOADERS["bucketed"](datasets, drop_last=False)}
        assert shapes == {(12, 16), (12, 32), (12, 50)}

    def test_of_a_budget(self, datasets):
        loader = LOADERS["budget"](datasets)
        for batch in loader:
            rows, length = batch.ids.shape
            assert rows * length <= 700
            assert length % 8 == rows % 12 == 0
            filled = int(batch.attention_mask.any(axis=1).sum())
            assert rows - 12 < filled <= rows
        real = sum(int(batch.attention_mask.sum()) for batch in loader)
        assert real == datasets["tokenized"].num_tokens

    def test_of_a_budget_of_memory(self, datasets):
        loader = tokjax.TokenBudgetLoader(
            datasets["tokenized"], budget=20_000, cost=lambda rows, length: rows * length**2, multiple_of=16
        )
        shapes = {batch.ids.shape for batch in loader}
        assert {length: max(rows for rows, of in shapes if of == length) for _, length in shapes} == {
            16: 30,  # (all that there are)
            32: 19,
            48: 8,
        }
        cheap = tokjax.TokenBudgetLoader(datasets["tokenized"], budget=1, cost=lambda rows, _: rows * 1e-4)
        assert [batch.ids.shape for batch in cheap] == [(97, 64)]

    def test_that_are_too_large(self, datasets):
        with pytest.raises(tokjax.InvalidArgumentError, match="1 rows of 48 ids cost 48, above"):
            tokjax.TokenBudgetLoader(datasets["tokenized"], budget=40, multiple_of=16)
        with pytest.raises(tokjax.InvalidArgumentError, match="a document has 45 ids, more than the last of"):
            tokjax.BucketedLoader(datasets["tokenized"], batch_size=2, bucket_boundaries=[10, 20])


class TestSeveralDatasets:
    def make(self, datasets, **options):
        both = [datasets["tokenized"], datasets["tokenized others"]]
        return tokjax.SequenceLoader(both, batch_size=10, **options)

    def test_without_weights_each_document_comes_once(self, datasets):
        loader = self.make(datasets, drop_last=False)
        for _ in range(2):
            numbers = [number for batch in loader for number in numbers_in(batch)]
            assert sorted(numbers) == [*range(97), *range(500, 537)]

    @settings(max_examples=20)
    @given(weights=st.lists(st.floats(0.02, 1), min_size=2, max_size=2), seed=st.integers(0, 100))
    def test_with_weights_they_are_mixed(self, datasets, weights, seed):
        loader = self.make(datasets, weights=weights, seed=seed)
        stream = loader.repeat()
        numbers = [number for _ in range(60) for number in numbers_in(next(stream))]
        share = weights[0] / sum(weights)
        assert abs(sum(number < 500 for number in numbers) - 600 * share) < 2
        for first, size in ((0, 97), (500, 37)):
            of_one = [number for number in numbers if first <= number < first + size]
            for start in range(0, len(of_one) - size + 1, size):
                assert sorted(of_one[start : start + size]) == list(range(first, first + size))
        assert loader.steps_per_epoch is None
        with pytest.raises(TypeError, match="a mixture has no end"):
            len(loader)

    def test_of_every_kind(self, datasets):
        for kind, options in (
            (tokjax.PackedTokenLoader, {"batch_size": 4}),
            (tokjax.BucketedLoader, {"batch_size": 4}),
            (tokjax.TokenBudgetLoader, {"budget": 400}),
        ):
            name = {"PackedTokenLoader": "packed", "BucketedLoader": "bucketed"}.get(
                kind.__name__, "tokenized"
            )
            both = [datasets[name], datasets[f"{name} others"]]
            loader = kind(both, weights=[1, 1], **options)
            marks = [(batch.ids == ord("y")).any() for batch in (loader.batch_at(step) for step in range(20))]
            assert any(marks)
            if name != "packed":  # (a batch is of one dataset)
                assert sum(marks) == 10
        packed = tokjax.PackedTokenLoader(
            [datasets["packed"], datasets["packed others"]],
            batch_size=3,
            shuffle=False,
            drop_last=False,
        )
        chunks = sum(dataset.num_tokens // 16 for dataset in packed.datasets)
        batches = list(packed)
        assert sum(int((batch.attention_mask.any(axis=1)).sum()) for batch in batches) == chunks
        assert batches[-1].document_ids.max() == 97 + 36
        assert [int(batch.total_tokens) for batch in batches[:-1]] == [48] * (len(batches) - 1)

    def test_weights_of_any_iterable(self, datasets):
        given, listed = self.make(datasets, weights=iter((2, 1))), self.make(datasets, weights=[2.0, 1.0])
        assert same(given.batch_at(3), listed.batch_at(3))
        given.set_state(json.loads(json.dumps(listed.get_state())))

    def test_steps_that_are_too_far(self, datasets):
        loader = self.make(datasets, weights=[2, 1])
        with pytest.raises(tokjax.InvalidArgumentError, match=r"step is \d+; steps are below \d+"):
            loader.batch_at(2**62)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1], "there are 2 datasets and 1 weights"),
            ([1, 0], "weights are above 0"),
            ([1, 1e-9], "no less than 1/16384 of all"),
            ([1, float("nan")], "weights must be a number"),
            ("12", "weights must be numbers, one for each dataset"),
            (2, "weights must be numbers, one for each dataset"),
        ],
    )
    def test_weights_that_are_none(self, datasets, weights, message):
        with pytest.raises(tokjax.InvalidArgumentError, match=message):
            self.make(datasets, weights=weights)


@given(weights=st.lists(st.floats(0.01, 1), min_size=1, max_size=6), place=st.integers(0, 10**15))
def test_a_mixture_counts_what_stands_before(weights, place):
    mixed = mixture(weights, len(weights))
    some = np.arange(200)
    datasets, counts = mixed.at(some)
    for dataset in range(len(weights)):
        assert counts[datasets == dataset].tolist() == list(range((datasets == dataset).sum()))
    datasets, counts = mixed.at(np.arange(place, place + 50))
    for dataset in range(len(weights)):
        here = counts[datasets == dataset]
        assert (np.diff(here) == 1).all()


class TestPlaces:
    def test_datasets_of_several_tokenizers(self, datasets, tmp_path):
        other = tokjax.byte_level(["</s>", "<pad>"], eos_token="</s>", pad_token="<pad>")
        tokjax.write_dataset(TEXTS, tokjax.TokenizedTextField(other, 50), tmp_path / "other")
        both = [datasets["tokenized"], tokjax.open_dataset(tmp_path / "other")]
        for weights in (None, [1, 1]):
            with pytest.raises(tokjax.DatasetMismatchError, match="ids would be of 2 tokenizers"):
                tokjax.SequenceLoader(both, batch_size=2, weights=weights)
        for kind, options in ((tokjax.PackedTokenLoader, {}), (tokjax.BucketedLoader, {})):
            with pytest.raises(
                tokjax.InvalidArgumentError, match="loads a .*Dataset, .* not a RawTextDataset"
            ):
                kind(datasets["raw"], batch_size=2, **options)
        raw = LOADERS["raw"](datasets)
        with pytest.raises(tokjax.DatasetMismatchError, match="the state's tokenizer is"):
            raw.set_state(LOADERS["raw"](datasets, tokenizer=other, pad_id=0).get_state())

    def test_a_state_of_another_loader(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        for other in (
            LOADERS["raw"](datasets),
            LOADERS["tokenized"](datasets, seed=1),
            LOADERS["budget"](datasets),
        ):
            with pytest.raises(tokjax.DatasetMismatchError, match=r"the state's \w+ is .*, this loader's is"):
                loader.set_state(other.get_state())
        with pytest.raises(tokjax.InvalidArgumentError, match="the state's step must be at least 0"):
            loader.set_state(loader.get_state() | {"step": -1})
        with pytest.raises(tokjax.InvalidArgumentError, match="a state is what get_state gave.*got None"):
            loader.set_state(None)

    @loaders
    def test_pickled(self, datasets, name):
        loader = LOADERS[name](datasets)
        next(iter(loader))
        again = pickle.loads(pickle.dumps(loader))
        assert same(again.batch_at(1), loader.batch_at(1))
        assert again.get_state() == loader.get_state()

    def test_processes_that_are_none(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        with pytest.raises(
            tokjax.InvalidArgumentError,
            match="batch_size is 12, and 5 processes can't share rows equally; make it a multiple of 5",
        ):
            loader.shard(0, 5)
        with pytest.raises(tokjax.InvalidArgumentError, match="process_index is 2; with 2 processes"):
            loader.shard(2, 2)

    def test_repeat(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        next(iter(loader))
        assert len(list(loader.repeat(2))) == 2 * len(loader) - 1
        with pytest.raises(tokjax.InvalidArgumentError, match="epochs must be at least 1"):
            next(loader.repeat(0))

    def test_options_that_make_no_sense(self, datasets):
        with pytest.raises(tokjax.InvalidArgumentError, match="PackedTokenField has no limit of ids"):
            tokjax.SequenceLoader(datasets["packed"], batch_size=2)
        with pytest.raises(tokjax.InvalidArgumentError, match="TokenizedTextField has no buckets"):
            tokjax.BucketedLoader(datasets["tokenized"], batch_size=2)
        with pytest.raises(tokjax.InvalidArgumentError, match="multiple_of needs lengths"):
            tokjax.SequenceLoader(datasets["raw"], batch_size=2, length=4, multiple_of=2)
        with pytest.raises(tokjax.InvalidArgumentError, match="a loader needs a dataset; got none"):
            tokjax.SequenceLoader([], batch_size=2)
        with pytest.raises(tokjax.InvalidArgumentError, match=r"bucketed fills no batch: its fullest bucket"):
            tokjax.BucketedLoader(datasets["bucketed"], batch_size=98)
        with pytest.raises(tokjax.InvalidArgumentError, match="97 items, fewer than one batch of 98"):
            tokjax.SequenceLoader(datasets["tokenized"], batch_size=98)


class TestCache:
    def test_it_never_changes_a_value(self, datasets):
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
    def test_it_takes_no_more_memory_than_it_may(self, key, sequence):
        tracemalloc.start()
        try:
            cache = TokenCache(500_000)
            for i in range(10_000):
                cache.get(key(i), lambda: bytes(bytearray(sequence)))
            assert tracemalloc.get_traced_memory()[0] < 500_000
        finally:
            tracemalloc.stop()
        assert 1000 < cache.stats().entries < 2000

    def test_what_is_larger_than_it_is_not_kept(self, datasets):
        cached = tokjax.open_dataset(datasets["packed"].path, cache_bytes=10)
        assert len(cached.read(0, 100)) == 100
        assert cached.cache_stats.entries == 0
        with pytest.raises(tokjax.InvalidArgumentError, match="cache_bytes must be at least 1"):
            tokjax.open_dataset(datasets["packed"].path, cache_bytes=0)


class TestPrefetch:
    def test_batches_come_in_order_on_devices(self, datasets):
        loader = LOADERS["packed"](datasets, seed=5)
        found = list(tokjax.prefetch_to_device(loader.repeat(2), size=3))
        assert len(found) == 2 * len(loader)
        for step, batch in enumerate(found):
            assert isinstance(batch.ids, jax.Array)
            assert same(jax.tree.map(np.asarray, batch), loader.batch_at(step))

    def test_its_state_is_that_of_what_was_given_out(self, datasets):
        loader = LOADERS["packed"](datasets, seed=5)
        with tokjax.prefetch_to_device(loader.repeat(), size=4) as batches:
            assert batches.get_state()["step"] == 0
            for _ in range(3):
                next(batches)
            state = batches.get_state()
        assert state["step"] == 3
        again = LOADERS["packed"](datasets, seed=5)
        again.set_state(state)
        assert same(next(again.repeat()), LOADERS["packed"](datasets, seed=5).batch_at(3))
        with pytest.raises(tokjax.InvalidArgumentError, match="come of no loader"):
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

    def test_it_stops(self):
        def endless():
            while True:
                yield np.zeros(2, np.int32)

        with tokjax.prefetch_to_device(endless()) as batches:
            next(batches)
            assert batches._thread.is_alive()
        assert not batches._thread.is_alive()
        forgotten = tokjax.prefetch_to_device(endless())
        thread = forgotten._thread
        del forgotten
        thread.join(timeout=5)
        assert not thread.is_alive()
        with pytest.raises(tokjax.InvalidArgumentError, match="size must be at least 1"):
            tokjax.prefetch_to_device(endless(), size=0)
